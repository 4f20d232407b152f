"""Conversion of rows of data sets in TRL's formats into samples and pairs.

The formats are understood in both of their shapes, text and lists of messages (conversational):

    prompts      prompt                          or the turns before the last answer of messages, chosen
    preference   prompt, chosen, rejected        or chosen, rejected alone, which begin with the same prompt (implicit)
    sft          prompt, response | completion   or messages, whose last turn is the response

Messages are `{role, content}`; further keys of a message are not kept.
"""

from __future__ import annotations

from typing import Any

from fgrl.data.formats import annotated
from fgrl.data.formats.columns import ColumnFinder, Columns, Format
from fgrl.data.row import BadRow, Row, as_id, cell, short
from fgrl.data.turns import Prompt, Turns, as_text_or_turns, as_turns
from fgrl.types import Pair, Response, Sample


class Converter:
    """Converter of rows into samples or pairs.

    Args:
        where: name of the data in messages.
        form: the format.
        columns: the names of columns in the recipe.
        first: the first row, which decides which columns are read.

    Raises `DataError` at once if a column is missing, with the first row and the key that maps the column.

    """

    def __init__(self, where: str, form: Format, columns: Columns, first: Row) -> None:
        finder = ColumnFinder(where, form, columns, first)
        finder.check_meta()
        self.form, self.meta = form, columns.meta
        self.id, self.reference = finder.find("id"), finder.find("reference")
        self.rubric, self.marks = finder.find("rubric"), finder.find("marks")
        self.prompt, self.messages = finder.find("prompt"), finder.find("messages")
        self.chosen = self.rejected = self.response = None
        self.prompt_source = ""
        if form == "preference":
            self.chosen, self.rejected = finder.need("chosen"), finder.need("rejected")
        elif form == "prompts":
            self.chosen = finder.find("chosen")
            named = columns.prompt or columns.messages or columns.chosen
            self.prompt_source = named or self.prompt or self.messages or self.chosen or finder.need("prompt")
        else:
            self.response = None if columns.messages else finder.find("response")
            if self.response is not None:
                finder.need("prompt")
            elif self.messages is None:
                finder.need("response")

    def sample(self, row: Row, number: int) -> Sample:
        """Return row `number` as a sample. A pair becomes a sample with its two responses, the rejected one first.
        Raises `BadRow` if the row does not fit.
        """
        fields = self._common_fields(row, number)
        if self.reference is not None:
            fields["reference"] = _reference(cell(row, self.reference), self.reference)
        if self.rubric is not None:
            fields["rubric"] = annotated.rubric(cell(row, self.rubric), self.rubric)
        if self.form == "preference":
            return as_sample(self.pair(row, number)).model_copy(update=fields)
        if self.form == "prompts":
            return Sample(prompt=self._prompt_alone(row), **fields)
        if self.response is None:
            assert self.messages is not None
            turns = as_turns(cell(row, self.messages), self.messages)
            prompt: Prompt = _before_answer(turns, self.messages)
            response = turns[-1].content
        else:
            prompt, response = self._prompt_and_answer(row, self.response)
        marks = [] if self.marks is None else [annotated.marks(cell(row, self.marks), self.marks, response)]
        return Sample(prompt=prompt, responses=[Response(text=response, annotations=marks)], chosen=0, **fields)

    def pair(self, row: Row, number: int) -> Pair:
        """Return row `number` as a pair. Raises `BadRow` if the row does not fit, e.g. if both answers are the same
        text.
        """
        assert self.chosen is not None
        assert self.rejected is not None
        chosen, rejected = cell(row, self.chosen), cell(row, self.rejected)
        if isinstance(chosen, str) and isinstance(rejected, str) and self.prompt is None:
            start, *answers = _common_start(chosen, rejected)
            if not start:
                raise BadRow(
                    f'"{self.chosen}" and "{self.rejected}" share no beginning that could be the prompt; '
                    "name the prompt's column as columns.prompt"
                )
            return Pair(prompt=start, chosen=answers[0], rejected=answers[1], **self._common_fields(row, number))
        prompt, preferred = self._prompt_and_answer(row, self.chosen)
        other_prompt, other = self._prompt_and_answer(row, self.rejected)
        if prompt != other_prompt:
            raise BadRow(f'"{self.chosen}" and "{self.rejected}" differ before their last turn')
        if preferred == other:
            raise BadRow(f'"{self.chosen}" and "{self.rejected}" are the same text')
        return Pair(prompt=prompt, chosen=preferred, rejected=other, **self._common_fields(row, number))

    def _common_fields(self, row: Row, number: int) -> dict[str, Any]:
        """Return `id` and `meta` of a sample or pair."""
        name = as_id(number if self.id is None else cell(row, self.id), self.id)
        return {"id": name, "meta": {column: cell(row, column) for column in self.meta}}

    def _prompt_alone(self, row: Row) -> Prompt:
        column, value = self.prompt_source, cell(row, self.prompt_source)
        if isinstance(value, str) and column == self.chosen:
            raise BadRow(f'"{column}" is text, so where the prompt ends is unknown; name a column as columns.prompt')
        prompt = as_text_or_turns(value, column)
        if isinstance(prompt, list) and prompt[-1].role == "assistant":
            return _before_answer(prompt, column)
        return prompt

    def _prompt_and_answer(self, row: Row, column: str) -> tuple[Prompt, str]:
        """Return the prompt, and the answer of `column`. The answer's messages may repeat the prompt, continue it or
        stand alone.
        """
        value = cell(row, column)
        if isinstance(value, str):
            if self.prompt is None:
                raise BadRow(f'"{column}" is text and there is no prompt; name its column as columns.prompt')
            return as_text_or_turns(cell(row, self.prompt), self.prompt), value
        turns = as_turns(value, column)
        before = _before_answer(turns, column, alone=True)
        answer = turns[-1].content
        prompt = None if self.prompt is None else as_text_or_turns(cell(row, self.prompt), self.prompt)
        if isinstance(prompt, list):
            return (before if before[: len(prompt)] == prompt else prompt + before), answer
        if before:
            return before, answer
        if prompt is None:
            raise BadRow(f'"{column}" has one turn only and there is no prompt; name its column as columns.prompt')
        return prompt, answer


def _reference(value: Any, column: str) -> str | list[str]:
    if isinstance(value, str) or (isinstance(value, list) and all(isinstance(item, str) for item in value)):
        return value
    raise BadRow(f'"{column}" is {short(value)}: wants text or a list of texts')


def _before_answer(turns: Turns, column: str, alone: bool = False) -> Turns:
    """Return the turns before the answer at their end. alone: the answer may be the only turn."""
    if turns[-1].role != "assistant":
        raise BadRow(f'the last turn of "{column}" is of "{turns[-1].role}": wants "assistant"')
    if len(turns) == 1 and not alone:
        raise BadRow(f'"{column}" has an answer but no turn before it')
    return turns[:-1]


def _common_start(chosen: str, rejected: str) -> tuple[str, str, str]:
    """Return the common beginning of two texts as the prompt, and the rest of each. The space between belongs to the
    answers. This is TRL's rule for implicit prompts. Raises `BadRow` if the texts are equal, or one text begins with
    all of the other.
    """
    pairs = enumerate(zip(chosen, rejected, strict=False))
    start = next((at for at, (first, second) in pairs if first != second), None)
    if start is None:
        raise BadRow("one answer is the beginning of the other, so where the prompt ends is unknown")
    if start and chosen[start - 1] == " ":
        start -= 1
    return chosen[:start], chosen[start:], rejected[start:]


def as_sample(pair: Pair) -> Sample:
    """Return a pair as a sample with two responses, the rejected one first."""
    responses = [Response(text=pair.rejected), Response(text=pair.chosen)]
    return Sample(id=pair.id, prompt=pair.prompt, responses=responses, meta=pair.meta)
