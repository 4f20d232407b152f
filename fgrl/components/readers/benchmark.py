"""Prompts and answers of AlpacaEval, Arena-Hard and MT-Bench, from the files that these benchmarks themselves read.

alpaca_eval   a list of {instruction, output, generator, dataset}: answers, and with them the prompts; the number of the row
              identifies it
arena_hard    lines of {uid, prompt, category, cluster}, or {question_id, turns: [{content}]}: prompts
              lines of {uid, model, messages}, or {question_id, choices}: answers, the former with their prompts
mt_bench      lines of {question_id, turns, category, reference} (turns may be called prompt): prompts, the second turn as a
              follow-up, references one a turn
              lines of {question_id, model_id, choices}: answers
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import model_validator

from fgrl.base.errors import DataError
from fgrl.data.hub import download
from fgrl.data.row import Row, preview
from fgrl.data.row_reader import CountedReader
from fgrl.data.text_file import read_json_rows
from fgrl.registry import File, register
from fgrl.types import Message, Response, Sample


@register("benchmark")
class Benchmark(CountedReader):
    """Reader for a file of AlpacaEval, Arena-Hard or MT-Bench: prompts, or the answers of one model (for `given` of an
    evaluation).

    Also reads the files that an evaluation writes with `files`.
    """

    format: Literal["alpaca_eval", "arena_hard", "mt_bench"]
    """Benchmark whose format the file has."""
    path: Annotated[str | None, File] = None
    """Path of a local file, in place of `hub` and `file`."""
    hub: str | None = None
    """Hub id of a data set."""
    file: str | None = None
    """File in the data set, e.g. `alpaca_eval_gpt4_baseline.json`."""
    revision: str | None = None
    """Commit, tag or branch on the hub. Pin a commit: without one the data may change under a finished recipe."""

    @model_validator(mode="after")
    def _one_place(self) -> Benchmark:
        if (self.path is None) == (self.hub is None):
            raise ValueError("wants either `path`, or `hub` with `file`")
        if (self.hub is None) != (self.file is None) or (self.revision is not None and self.hub is None):
            raise ValueError("`hub`, `file` and `revision` go together")
        return self

    def identity(self) -> dict[str, Any]:
        return {} if self.hub is None else {"revision": self.revision}

    def read(self) -> Iterator[Sample]:
        """Read the samples. Raise `DataError` if the file is missing, has another number of rows, or has another
        format.
        """
        where, path = self._place()
        rows = read_json_rows([path])
        self.count(len(rows), where)
        for number in self.chosen(len(rows), where):
            try:
                samples = list(FORMATS[self.format](rows[number], number))
            except (KeyError, TypeError, IndexError, AttributeError, ValueError) as problem:
                raise DataError(
                    f"{where}: row {number + 1} is not of the format {self.format} ({type(problem).__name__}: {problem}):\n"
                    f"{preview(rows[number])}"
                ) from None
            yield from samples

    def _place(self) -> tuple[str, Path]:
        if self.path is not None:
            return self.path, Path(self.path)
        assert self.hub is not None
        assert self.file is not None
        where, (path,) = download(self.hub, [self.file], self.revision, self.say)
        return where, path


def alpaca_eval(row: Row, number: int) -> Iterator[Sample]:
    """Yield the prompt with the answer of the file's model."""
    meta = {"dataset": row["dataset"]} if "dataset" in row else {}
    prompt = Sample(id=str(number), prompt=_text(row["instruction"]), meta=meta)
    yield prompt if row.get("output") is None else prompt.with_chosen(Response(text=row["output"]))


def arena_hard(row: Row, number: int) -> Iterator[Sample]:
    """Yield a prompt, an answer, or both."""
    if "choices" in row:
        yield from _choices(row)
        return
    id, meta = _text(row.get("uid", row.get("question_id"))), {k: row[k] for k in ("category", "cluster") if k in row}
    if "messages" not in row:
        prompt = row["prompt"] if "prompt" in row else row["turns"][0]["content"]
        yield Sample(id=id, prompt=_text(prompt), meta=meta)
        return
    *asked, last = row["messages"]
    content = last["content"]
    chat = [Message(role=turn["role"], content=_text(turn["content"])) for turn in asked]
    prompt = chat[0].content if len(chat) == 1 else chat
    answer = content["answer"] if isinstance(content, dict) else content
    yield Sample(id=id, prompt=prompt, responses=[Response(text=_text(answer))], chosen=0, meta=meta)


def mt_bench(row: Row, number: int) -> Iterator[Sample]:
    """Yield a prompt with its follow-ups, or answers."""
    if "choices" in row:
        yield from _choices(row)
        return
    first, *later = [_text(turn) for turn in (row["turns"] if "turns" in row else row["prompt"])]
    meta = {"follow_ups": later, **({"category": row["category"]} if "category" in row else {})}
    reference = [_text(text) for text in row.get("reference") or []]
    yield Sample(id=str(row["question_id"]), prompt=first, reference=reference or None, meta=meta)


def _choices(row: Row) -> Iterator[Sample]:
    """Yield FastChat's answers: each choice is a conversation."""
    for choice in row["choices"]:
        first, *later = [_text(turn["content"] if isinstance(turn, dict) else turn) for turn in choice["turns"]]
        meta = {"later_responses": later}
        yield Sample(id=str(row["question_id"]), prompt="", responses=[Response(text=first)], chosen=0, meta=meta)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"wants text, got {type(value).__name__}")
    return value


FORMATS: dict[str, Callable[[Row, int], Iterator[Sample]]] = {
    "alpaca_eval": alpaca_eval,
    "arena_hard": arena_hard,
    "mt_bench": mt_bench,
}
