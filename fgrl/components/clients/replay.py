"""Answers from a file: for tests, and for working on prompts and parsers without paying for an answer twice.

    {"contains": "capital of France", "answer": "Paris"}
    {"contains": ["First reply: a", "Second reply: b"], "answers": ["1", "2"]}
    {"messages": [{"role": "user", "content": "Say hello."}], "answer": {"greeting": "hello"}, "finish": "stop"}
    {"any": true, "error": "connection refused"}

The first line that fits a request answers it.
"""

from __future__ import annotations

import heapq
import json
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, model_validator

from fgrl.base.errors import DataError
from fgrl.base.files import damage_reported
from fgrl.kinds import Client
from fgrl.registry import File, register
from fgrl.types import Completion, Message, Record, Request, Usage, parse_line, write_jsonl

SHOWN = 160
"""Maximum number of characters at the end of a question that a message shows."""


class Line(Record):
    """An answer, and the requests that it matches."""

    contains: str | list[str] | None = None
    """Text that the request's messages contain; if it is a list, every item."""
    messages: list[Message] | None = None
    """Exact messages of the request."""
    any: Literal[True] | None = None
    """Matches every request."""
    sample: int | None = None
    """Sample number of the request; null matches every sample."""
    answer: str | dict[str, Any] | list[Any] | None = None
    """Text of the answer; any other value becomes JSON."""
    answers: list[str] | None = None
    """Answers to sample 0, 1, ... of one question."""
    error: str | None = None
    """Reason why the request fails instead of getting an answer."""
    finish: str = "stop"
    logprobs: dict[str, float] | None = None
    """Log-probabilities (nats) of the first token; only returned if they are asked for."""
    prompt_tokens: int | None = Field(None, ge=0)
    completion_tokens: int | None = Field(None, ge=0)
    """Token count that is reported for the answer; null: estimated."""

    @model_validator(mode="after")
    def _one_of_each(self) -> Line:
        if sum(value is not None for value in (self.contains, self.messages, self.any)) != 1:
            raise ValueError(
                "a line needs one of contains, messages and any, which select the requests that it answers"
            )
        if sum(value is not None for value in (self.answer, self.answers, self.error)) != 1:
            raise ValueError("a line needs one of answer, answers and error")
        return self

    def fits(self, request: Request, text: str) -> bool:
        """Return True if the line answers the request, whose messages together are `text`."""
        if self.sample is not None and self.sample != request.sample:
            return False
        if self.answers is not None and request.sample >= len(self.answers):
            return False
        if self.messages is not None:
            return self.messages == request.messages
        parts = [self.contains] if isinstance(self.contains, str) else self.contains or []
        return all(part in text for part in parts)

    def text(self, sample: int) -> str:
        """Return the answer for the sample with this number."""
        answer = self.answer if self.answers is None else self.answers[sample]
        return answer if isinstance(answer, str) else json.dumps(answer, ensure_ascii=False)


class _Script:
    """Lines in their order. Lines for one exact conversation are looked up without a search."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.lines = lines
        self.places: dict[str | None, list[int]] = {}
        for number, line in enumerate(lines):
            exact = None if line.messages is None else _text_of(line.messages)
            self.places.setdefault(exact, []).append(number)

    def first(self, request: Request) -> Line | None:
        """Return the first line that matches the request."""
        whole = "\n".join(message.content for message in request.messages)
        places = (self.places.get(exact, []) for exact in (None, _text_of(request.messages)))
        lines = (self.lines[number] for number in heapq.merge(*places))
        return next((line for line in lines if line.fits(request, whole)), None)


def _text_of(messages: Sequence[Message]) -> str:
    return json.dumps([[message.role, message.content] for message in messages])


@register("replay")
class Replay(Client):
    """Answers from a file of JSON lines; the first line that matches a request answers it. No model is asked, and
    nothing is charged.
    """

    answers: Annotated[str, File]
    """Path of the file. A line specifies the requests that it answers (`contains`, `messages`, `any`) and the answer
    (`answer`, `answers`, `error`; `finish`, `logprobs`).
    """
    missing: Literal["fail", "error"] = "fail"
    """Treatment of a request that no line matches. fail: the stage stops and shows the line to add. error: the request
    fails.
    """

    _script: _Script | None = PrivateAttr(default=None)

    def complete(self, requests: Sequence[Request]) -> list[Completion]:
        """Return the file's answers. Raise `DataError` for an invalid line, and if no line matches (`missing: fail`)."""
        return [self._answer(request) for request in requests]

    def price(self) -> tuple[float, float]:
        return 0.0, 0.0

    def _answer(self, request: Request) -> Completion:
        if self._script is None:
            self._script = _Script(read_lines(self.answers))
        line = self._script.first(request)
        if line is None:
            reason = self._no_line(request)
            if self.missing == "fail":
                raise DataError(reason)
            return Completion(error=reason)
        if line.error is not None:
            return Completion(error=line.error)
        text = line.text(request.sample)
        completion_tokens = len(text) // 4 + 1 if line.completion_tokens is None else line.completion_tokens
        prompt_tokens = self.count_tokens(request) if line.prompt_tokens is None else line.prompt_tokens
        return Completion(
            text=text,
            finish=line.finish,
            usage=Usage(prompt_tokens=prompt_tokens, completion_tokens=completion_tokens, usd=0.0),
            logprobs=line.logprobs if request.logprobs else None,
        )

    def _no_line(self, request: Request) -> str:
        last = request.messages[-1].content if request.messages else ""
        example = json.dumps({"contains": last[-SHOWN // 2 :], "answer": "..."}, ensure_ascii=False)
        sample = f" (its answer number {request.sample})" if request.sample else ""
        return (
            f"{self.answers}: no line answers the question{sample} that ends with {last[-SHOWN:]!r}; add one, before the "
            f"first line that it should win over, such as\n{example}"
        )


def read_lines(path: str | Path) -> list[Line]:
    """Return the lines of a file. Raise `DataError` with the position of an invalid line."""
    text = Path(path).read_text(encoding="utf-8-sig")
    return [
        parse_line(line, Line, f"{path}:{number}")
        for number, line in enumerate(text.split("\n"), start=1)
        if line.strip()
    ]


def export(cache: str | Path, path: str | Path, model: str | None = None) -> int:
    """Write the answers of a cache (`completions.sqlite`), of one model or of all, as lines of a replay file, each for
    exactly its request. Return their number. If requests differ only in their parameters, the first of their lines
    answers.
    """
    source = Path(cache)
    if not source.is_file():
        raise DataError(f"{source}: no such file: answers are cached in `cache/completions.sqlite` of a runs folder")
    with closing(sqlite3.connect(source)) as database, damage_reported(source):
        rows = database.execute("SELECT question, answer FROM completions ORDER BY made, key").fetchall()
    asked = [(json.loads(question), Completion.model_validate_json(answer)) for question, answer in rows]
    chosen = [(question, answer) for question, answer in asked if model in (None, question["model"])]
    return write_jsonl(Path(path), (_line(question, answer) for question, answer in chosen))


def _line(question: dict[str, Any], answer: Completion) -> Line:
    return Line(
        messages=[Message(role=role, content=content) for role, content in question["messages"]],
        sample=question["sample"],
        answer=answer.text,
        finish=answer.finish or "stop",
        logprobs=answer.logprobs,
        prompt_tokens=answer.usage.prompt_tokens,
        completion_tokens=answer.usage.completion_tokens,
    )
