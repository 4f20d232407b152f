"""Rows of data sets as they are found in the world -> samples and pairs.

The formats of TRL are understood in both of their shapes, text and lists of messages (conversational):

    prompts      prompt                          or the turns before the last answer of messages, chosen
    preference   prompt, chosen, rejected        or chosen, rejected alone, which begin with the same prompt (implicit)
    sft          prompt, response | completion   or messages, whose last turn is the response

Messages are `{role, content}`; further keys of a message are not kept.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from fgrl.errors import DataError
from fgrl.registry import Settings
from fgrl.types import Message, Pair, Response, Sample

Format = Literal["preference", "prompts", "sft"]
Row = Mapping[str, Any]
Turns = list[Message]


class Columns(Settings):
    """Which column of the data holds what; null tries the usual names."""

    id: str | None = None
    """What identifies a row (usual: `id`, `prompt_id`; without either, the number of the row)."""
    prompt: str | None = None
    """The prompt, text or messages (usual: `prompt`, `instruction`)."""
    response: str | None = None
    """The answer to learn from, text or messages (usual: `response`, `completion`)."""
    messages: str | None = None
    """A whole conversation (usual: `messages`)."""
    chosen: str | None = None
    """The preferred answer, text or messages (usual: `chosen`)."""
    rejected: str | None = None
    """The other answer, text or messages (usual: `rejected`)."""
    reference: str | None = None
    """A model answer, text or a list of them; only read when it is named here."""
    meta: list[str] = []
    """Columns to keep beside the sample, as they are."""


USUAL = {
    "id": ("id", "prompt_id"),
    "prompt": ("prompt", "instruction"),
    "response": ("response", "completion"),
    "messages": ("messages",),
    "chosen": ("chosen",),
    "rejected": ("rejected",),
    "reference": (),
}


class BadRow(Exception):
    """A row that does not fit the format, though its columns are there."""


class Converter:
    """Rows -> samples or pairs.

    Args:
        where: what to call the data in messages.
        first: its first row, to look at the columns and to show when one is missing.

    Raises `DataError` at once when a column is missing, with the first row and the key that maps the column.
    """

    def __init__(self, where: str, form: Format, columns: Columns, first: Row) -> None:
        self.where, self.form, self.columns, self.first = where, form, columns, first
        for name in columns.meta:
            if name not in first:
                raise DataError(self._missing(f'no column "{name}"', "columns.meta", "the column to keep"))
        self.id, self.reference = self._find("id"), self._find("reference")
        self.prompt, self.messages = self._find("prompt"), self._find("messages")
        self.chosen = self.rejected = self.response = None
        self.source = ""
        if form == "preference":
            self.chosen, self.rejected = self._want("chosen"), self._want("rejected")
        elif form == "prompts":
            self.chosen = self._find("chosen")
            named = columns.prompt or columns.messages or columns.chosen
            source = named or self.prompt or self.messages or self.chosen or self._want("prompt")
            self.source = source
        else:
            self.response = None if columns.messages else self._find("response")
            if self.response is not None:
                self._want("prompt")
            elif self.messages is None:
                self._want("response")

    def sample(self, row: Row, number: int) -> Sample:
        """Row `number` as a sample: a pair's two responses, the rejected one first.

        Raises `BadRow` when the row does not fit.
        """
        known = self._known(row, number)
        if self.reference is not None:
            known["reference"] = self._reference(row, self.reference)
        if self.form == "preference":
            return as_sample(self.pair(row, number)).model_copy(update=known)
        if self.form == "prompts":
            return Sample(prompt=self._only_prompt(row), **known)
        if self.response is None:
            assert self.messages is not None
            turns = self._turns(self._value(row, self.messages), self.messages)
            prompt: str | Turns = self._before_answer(turns, self.messages)
            response = turns[-1].content
        else:
            prompt, response = self._joined(row, self.response)
        return Sample(prompt=prompt, responses=[Response(text=response)], chosen=0, **known)

    def pair(self, row: Row, number: int) -> Pair:
        """Row `number` as a pair. Raises `BadRow` when it does not fit, e.g. when both answers are the same text."""
        assert self.chosen is not None
        assert self.rejected is not None
        chosen, rejected = self._value(row, self.chosen), self._value(row, self.rejected)
        if isinstance(chosen, str) and isinstance(rejected, str) and self.prompt is None:
            start, *answers = _common_start(chosen, rejected)
            if not start:
                raise BadRow(
                    f'"{self.chosen}" and "{self.rejected}" share no beginning that could be the prompt; '
                    "name the prompt's column as columns.prompt"
                )
            return Pair(prompt=start, chosen=answers[0], rejected=answers[1], **self._known(row, number))
        prompt, preferred = self._joined(row, self.chosen)
        other_prompt, other = self._joined(row, self.rejected)
        if prompt != other_prompt:
            raise BadRow(f'"{self.chosen}" and "{self.rejected}" differ before their last turn')
        if preferred == other:
            raise BadRow(f'"{self.chosen}" and "{self.rejected}" are the same text')
        return Pair(prompt=prompt, chosen=preferred, rejected=other, **self._known(row, number))

    # ------------------------------------------------------------------------------------------------------------------

    def _find(self, role: str) -> str | None:
        """The column of a role, or None when the data has none under its usual names. A mapped column must be there."""
        mapped = getattr(self.columns, role)
        if mapped is not None:
            if mapped not in self.first:
                raise DataError(self._missing(f'no column "{mapped}"', f"columns.{role}", f"the column of the {role}"))
            return mapped
        return next((name for name in USUAL[role] if name in self.first), None)

    def _want(self, role: str) -> str:
        found = self._find(role)
        if found is None:
            names = " or ".join(f'"{name}"' for name in USUAL[role])
            raise DataError(self._missing(f"no column {names}", f"columns.{role}", f"the column of the {role}"))
        return found

    def _missing(self, what: str, key: str, meaning: str) -> str:
        return (
            f"{self.where}: {what}, which `format: {self.form}` needs. Set `{key}` to {meaning}, or another `format`.\n"
            f"Its first row:\n{preview(self.first)}"
        )

    def _known(self, row: Row, number: int) -> dict[str, Any]:
        name = number if self.id is None else self._value(row, self.id)
        if name is None:
            raise BadRow(f'"{self.id}" is null: wants what identifies the row')
        return {"id": str(name), "meta": {column: self._value(row, column) for column in self.columns.meta}}

    def _reference(self, row: Row, column: str) -> str | list[str]:
        value = self._value(row, column)
        if isinstance(value, str) or (isinstance(value, list) and all(isinstance(item, str) for item in value)):
            return value
        raise BadRow(f'"{column}" is {short(value)}: wants text or a list of texts')

    def _value(self, row: Row, column: str) -> Any:
        if column not in row:
            raise BadRow(f'no column "{column}", which the first row has')
        return row[column]

    def _only_prompt(self, row: Row) -> str | Turns:
        column, value = self.source, self._value(row, self.source)
        if isinstance(value, str) and column == self.chosen:
            raise BadRow(f'"{column}" is text, so where the prompt ends is unknown; name a column as columns.prompt')
        found = self._text_or_turns(value, column)
        if isinstance(found, list) and found[-1].role == "assistant":
            return self._before_answer(found, column)
        return found

    def _joined(self, row: Row, column: str) -> tuple[str | Turns, str]:
        """The prompt, and the answer of `column`, whose messages repeat the prompt, go on from it or stand alone."""
        value = self._value(row, column)
        if isinstance(value, str):
            if self.prompt is None:
                raise BadRow(f'"{column}" is text and there is no prompt; name its column as columns.prompt')
            return self._text_or_turns(self._value(row, self.prompt), self.prompt), value
        turns = self._turns(value, column)
        before = self._before_answer(turns, column, alone=True)
        answer = turns[-1].content
        prompt = None if self.prompt is None else self._text_or_turns(self._value(row, self.prompt), self.prompt)
        if isinstance(prompt, list):
            return (before if before[: len(prompt)] == prompt else prompt + before), answer
        if before:
            return before, answer
        if prompt is None:
            raise BadRow(f'"{column}" has one turn only and there is no prompt; name its column as columns.prompt')
        return prompt, answer

    def _before_answer(self, turns: Turns, column: str, alone: bool = False) -> Turns:
        if turns[-1].role != "assistant":
            raise BadRow(f'the last turn of "{column}" is of "{turns[-1].role}": wants "assistant"')
        if len(turns) == 1 and not alone:
            raise BadRow(f'"{column}" has an answer but no turn before it')
        return turns[:-1]

    def _text_or_turns(self, value: Any, column: str) -> str | Turns:
        if isinstance(value, str):
            if not value.strip():
                raise BadRow(f'"{column}" is empty')
            return value
        return self._turns(value, column)

    def _turns(self, value: Any, column: str) -> Turns:
        def fits(turn: Any) -> bool:
            return isinstance(turn, Mapping) and all(isinstance(turn.get(key), str) for key in ("role", "content"))

        if not isinstance(value, Sequence) or isinstance(value, str) or not value or not all(map(fits, value)):
            raise BadRow(f'"{column}" is {short(value)}: wants text or a list of messages {{role, content}}')
        return [Message(role=turn["role"], content=turn["content"]) for turn in value]


def as_sample(pair: Pair) -> Sample:
    """A pair as a sample with two responses, the worse one first."""
    responses = [Response(text=pair.rejected), Response(text=pair.chosen)]
    return Sample(id=pair.id, prompt=pair.prompt, responses=responses, meta=pair.meta)


def preview(row: Row) -> str:
    """A row for the eyes: a line a column, long values cut."""
    width = max((len(name) for name in row), default=0)
    return "\n".join(f"  {name:<{width}}  {short(value)}" for name, value in row.items())


def short(value: Any, length: int = 90) -> str:
    """A value as JSON, cut."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= length else text[: length - 1] + "…"


def _common_start(chosen: str, rejected: str) -> tuple[str, str, str]:
    """The prompt that two texts begin with, and what follows in each; the space between belongs to the answers.

    TRL's rule for implicit prompts. Raises `BadRow` when the texts are the same, or one begins with all of the other.
    """
    start = next((at for at, (one, other) in enumerate(zip(chosen, rejected, strict=False)) if one != other), None)
    if start is None:
        raise BadRow("one answer is the beginning of the other, so where the prompt ends is unknown")
    if start and chosen[start - 1] == " ":
        start -= 1
    return chosen[:start], chosen[start:], rejected[start:]
