"""Base class of readers of questions with known answers: rows become a filled prompt file and references.

A row becomes a `Sample`: `prompt` is the prompt file's conversation with the row's texts in it, `reference` the list of
right answers, `meta` the question, its kind, by which answers are counted (`kind`), and the passages that were shown.

Rows that can have no reference (no answer, a refusal, no label) are left out and counted.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import model_validator

from fgrl.base.errors import DataError
from fgrl.data.questions.context import ShowsPassages
from fgrl.data.questions.shots import Examples, Shot, Shots, draw, same
from fgrl.data.questions.source import Item, Source
from fgrl.data.row import BadRow, LeftOut, Row, as_id, cell, has
from fgrl.data.row_reader import Omissions
from fgrl.feedback.rules.refusals import answers_among
from fgrl.feedback.templates import Prompt, read_prompt
from fgrl.registry import File
from fgrl.types import Message, Response, Sample


class QuestionSet(ShowsPassages):
    """Reader of questions with known answers, put into a prompt file.

    Rows that cannot be used (without an answer, refused, repeated) do not count for `skip` and `limit`: `limit: 1000`
    yields a thousand samples if the data has them.
    """

    MAIN: ClassVar[str] = "question"
    """The field and the column of the question."""
    NO_ANSWERS: ClassVar[str] = ""
    """Advice if no row has an answer."""

    prompt: Annotated[str, File]
    """File with the prompt; `prompts/` shows its section headings and placeholders."""
    as_text: bool = False
    """Join the turns of the prompt file into one text, with an empty line between them: for base models, which have no
    chat template.
    """
    separator: str | None = None
    """Separator of the columns of `path: csv`, such as `"\\t"` for a tab; null: the sign that divides the first lines
    evenly.
    """
    refusals: list[str] = ["No Answer Present."]
    """Texts that are not answers, compared without case and punctuation. A row that has no other answer is left out."""
    repeated: Literal["drop", "keep"] = "drop"
    """Treatment of a row whose id (or, without ids, whose prompt) was read before. `drop`: it is left out, so that no
    question is both in the training and in the held-out data. `keep`: it is read again, as some benchmarks count.
    """
    shots: Shots | None = None
    """Examples for {examples} in the prompt file."""

    @model_validator(mode="after")
    def _separator_goes_with_csv(self) -> QuestionSet:
        if self.separator is not None and self.path != "csv":
            raise ValueError("separator: goes with path: csv")
        return self

    @model_validator(mode="after")
    def _shots_fit(self) -> QuestionSet:
        if self.shots is None:
            return self
        if self.shots.files and not self.files:
            raise ValueError("shots.files: goes with files")
        if self.shots.split and self.files:
            raise ValueError("shots.split: local files have no splits; name shots.files")
        used = Prompt("", (("user", self.shots.template or self.example()),)).fields
        if unknown := used - self.fields() - {"answer"}:
            raise ValueError(
                f"shots.template: unknown placeholder {{{min(unknown)}}}; it may use {self._placeholders('answer')}"
            )
        if "answer" not in used:
            raise ValueError("shots.template: wants {answer} somewhere")
        return self

    def fields(self) -> frozenset[str]:
        """Return the placeholders that the prompt file must have; it may also have {context} and {examples}."""
        return frozenset({self.MAIN})

    def example(self) -> str:
        """Return the template of one of the `shots`."""
        return "Question: {question}\nAnswer: {answer}"

    def names(self) -> dict[str, str | None]:
        """Return the column of each role."""
        return {role: getattr(self.columns, role) for role in type(self.columns).model_fields if role != "meta"}

    def needed(self, prompt: Prompt) -> set[str]:
        """Return the roles whose columns must exist."""
        needed = {self.MAIN}
        if "context" in prompt.fields:
            needed |= {"context"} if self.no_context == "error" else set()
            needed |= {"selected"} if self.selected_only else set()
        return needed

    @abstractmethod
    def item(self, source: Source, row: Row) -> Item:
        """Return the item of a row. Raises `LeftOut` if it can have no reference and `BadRow` if it does not fit."""

    def read(self) -> Iterator[Sample]:
        prompt = self._read_prompt()
        source = self._open(prompt)
        examples = self._examples(prompt, source)
        seen: set[str] = set()
        omissions = Omissions()
        usable = given = 0

        def convert(row: Row, number: int) -> Sample:
            sample = self._sample(prompt, source, examples, row, number)
            self._refuse_repeated(sample, "id" in source.columns, seen)
            return sample

        try:
            order = self.order(len(source.rows))
            for usable, sample in enumerate(
                self.records(source.where, source.rows, order, convert, omissions), start=1
            ):
                if usable > self.skip:
                    given += 1
                    yield sample
                if given == self.limit:
                    break
        finally:
            looked = usable + omissions.counts.total()
            if omissions:
                self.say(f"{source.where}: {omissions.summary(looked)}")
        if usable and not given:
            raise DataError(f"{source.where}: `skip: {self.skip}` leaves none of {usable} samples")
        if not usable:
            raise DataError(
                f"{source.where}: none of {looked} rows can be used: {omissions}{omissions.first_misfit}. "
                f"{self.NO_ANSWERS}".rstrip()
            )

    # ------------------------------------------------------------------------------------------------------------------

    def usable(self, answers: Sequence[str]) -> list[str]:
        """Return the answers that are no refusals. Raises `LeftOut` if there are none."""
        if not answers:
            raise LeftOut("without an answer")
        kept = answers_among(answers, self.refusals)
        if not kept:
            raise LeftOut(f"with a refusal for an answer ({answers[0]!r})")
        return kept

    def source(self, where: str, rows: Any, prompt: Prompt) -> Source:
        """Return the columns of rows. Raises `DataError` with the first row and the key to set if one is missing."""
        first = rows[0]
        needed = self.needed(prompt)
        columns = {}
        for role, name in self.names().items():
            if name is not None and has(first, name):
                columns[role] = name
            elif role in needed or (name is not None and name != type(self.columns).model_fields[role].default):
                what = f"no column for the {role} is named" if name is None else f'no column "{name}"'
                raise self.no_column(where, first, what, role, f"the column of the {role}")
        for name in self.columns.meta:
            if not has(first, name):
                raise self.no_column(where, first, f'no column "{name}"', "meta", "the columns to keep")
        return Source(where, rows, columns, self.columns.meta).narrowed()

    def _placeholders(self, *more: str) -> str:
        return ", ".join(f"{{{name}}}" for name in sorted({*self.fields(), *more}))

    def _read_prompt(self) -> Prompt:
        prompt = read_prompt(self.prompt, known={*self.fields(), "context", "examples"}, wanted=self.fields())
        if "examples" in prompt.fields and self.shots is None:
            raise DataError(f"{self.prompt}: the prompt has {{examples}}: set `shots: {{count: 3, split: train}}`")
        if self.shots is not None and "examples" not in prompt.fields:
            raise DataError(f"{self.prompt}: `shots` has no place: put {{examples}} into the prompt file")
        return prompt

    def _open(self, prompt: Prompt) -> Source:
        where, rows = self.rows()
        self.count(len(rows), where)
        if not len(rows):
            raise DataError(f"{where}: no rows")
        return self.source(where, rows, prompt)

    def _sample(self, prompt: Prompt, source: Source, examples: Examples | None, row: Row, number: int) -> Sample:
        item = self.item(source, row)
        values, meta = dict(item.values), {self.MAIN: item.question} | item.meta
        if "context" in prompt.fields:
            values["context"], meta["passages"] = self.context(source, row)
        if examples is not None:
            values["examples"] = examples.text(item.question)
        name = as_id(source.value(row, "id") if "id" in source.columns else number, source.columns.get("id"))
        if (kind := source.value(row, "kind")) is not None:
            meta["kind"] = kind
        meta |= {column: cell(row, column) for column in source.meta}
        turns = prompt.fill(values)
        filled = "\n\n".join(turn.content for turn in turns) if self.as_text else turns
        responses = [Response(text=text) for text in item.responses]
        return Sample(
            id=name, prompt=filled, reference=item.answers, meta=meta,
            responses=responses, chosen=0 if len(responses) == 1 else None, verdicts=item.verdicts,
        )  # fmt: skip

    def _refuse_repeated(self, sample: Sample, by_id: bool, seen: set[str]) -> None:
        """Raise `LeftOut` if the sample was read before."""
        key = sample.id if by_id else _key_of(sample.prompt)
        if key in seen and self.repeated == "drop":
            raise LeftOut("that repeat another")
        seen.add(key)

    def _examples(self, prompt: Prompt, source: Source) -> Examples | None:
        if self.shots is None:
            return None
        if self.shots.split or self.shots.files:
            other = {"split": self.shots.split} if self.shots.split else {"files": self.shots.files}
            source = self.model_copy(update=other | {"expect_rows": None})._open(prompt)
        template = Prompt("shots.template", (("user", self.shots.template or self.example()),))

        def usable(numbers: Sequence[int]) -> Iterator[Shot]:
            for row in self.at(source.rows, numbers):
                try:
                    item = self.item(source, row)
                except (LeftOut, BadRow):
                    continue
                yield Shot(item.question, template.fill(item.values | {"answer": item.answers[0]})[0].content)

        return Examples(self.shots, draw(self.shots, len(source.rows), usable), source.where)


def _key_of(prompt: str | Sequence[Message]) -> str:
    """Return a text that is equal for two prompts that ask the same question."""
    return same(prompt if isinstance(prompt, str) else "\n".join(turn.content for turn in prompt))
