"""What the readers of questions with known answers share: rows -> a filled prompt file and references.

A row becomes a `Sample`: `prompt` is the prompt file's conversation with the row's texts in it, `reference` the list of
right answers, `meta` the question, what its answer is counted under (`kind`) and which passages were shown.

Rows that can have no reference (no answer, a refusal, no label) are left out and counted, never given one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, model_validator

from fgrl.data.formats.converter import BadRow, Row, preview, short
from fgrl.data.hub import Hub
from fgrl.data.nested import Missing, look
from fgrl.data.questions.passages import Passage, cut, render
from fgrl.data.questions.shots import Shot, Shots, draw, same, shown
from fgrl.errors import DataError
from fgrl.kinds import Expected, Peek
from fgrl.registry import File, Settings, name_of
from fgrl.rules.refusals import answers_among
from fgrl.templates import Prompt, read_prompt
from fgrl.types import Message, Sample


class ContextColumns(Settings):
    """Which column holds what; dots reach into nested ones (`passages.passage_text`)."""

    id: str | None = None
    """What identifies a row; null takes its number."""
    context: str | None = None
    """What a search found: a text, or a list of passages."""
    url: str | None = None
    """Where each passage is from, or what it is called."""
    selected: str | None = None
    """Whether a passage was used for the answer: 1 or true for each."""
    kind: str | None = None
    """What the question is counted under."""
    meta: list[str] = []
    """Columns to keep beside the sample, as they are."""


class LeftOut(Exception):
    """The row cannot have a reference; says why."""


@dataclass(frozen=True)
class Item:
    """A row, read."""

    question: str
    """What is asked: no two samples ask the same in the same words."""
    values: dict[str, str]
    """What the prompt file may say."""
    answers: list[str]
    meta: dict[str, Any] = field(default_factory=dict)


@dataclass
class Source:
    """Rows with the columns that were found in them."""

    where: str
    rows: Any
    columns: dict[str, str]
    """Role -> column."""
    meta: list[str]
    label_names: dict[str, list[str]] = field(default_factory=dict)
    """Column -> what its whole numbers mean, where the data set says so."""

    def value(self, row: Row, role: str) -> Any:
        """What the row holds for a role; None when the data has no column for it. Raises `BadRow`."""
        return None if role not in self.columns else self.at(row, self.columns[role])

    def at(self, row: Row, column: str) -> Any:
        """What the row holds in a column. Raises `BadRow`."""
        try:
            return look(row, column)
        except Missing:
            raise BadRow(f'no column "{column}", which the first row has') from None

    def text(self, row: Row, role: str) -> str:
        """A text that says something. Raises `BadRow`."""
        value = self.value(row, role)
        if not isinstance(value, str) or not value.strip():
            raise BadRow(f'"{self.columns[role]}" is {short(value)}: wants a text that says something')
        return value.strip()

    def texts(self, row: Row, role: str) -> list[str]:
        """A text or a list of texts, without empty ones and repeats. Raises `BadRow`."""
        value = self.value(row, role)
        listed = value if isinstance(value, list) else [value]
        if not all(item is None or isinstance(item, str) for item in listed):
            raise BadRow(f'"{self.columns[role]}" is {short(value)}: wants a text or a list of texts')
        return list(dict.fromkeys(item.strip() for item in listed if item and item.strip()))


class QuestionSet(Hub):
    """Questions with known answers, put into a prompt file.

    Rows that cannot be used (without an answer, refused, repeated) do not count for `skip` and `limit`: `limit: 1000`
    is a thousand samples where the data has them.
    """

    MAIN: ClassVar[str] = "question"
    """The field and the column of what is asked."""
    NO_ANSWERS: ClassVar[str] = ""
    """What to do when no row has an answer."""
    NO_PASSAGES: ClassVar[str] = ""
    """What to do when a row has no passages."""

    prompt: Annotated[str, File]
    """The prompt file, with the section headings and placeholders that `prompts/` shows."""
    as_text: bool = False
    """Make one text of the prompt file's turns, with an empty line between them: for base models, which have no chat
    template."""
    columns: ContextColumns = ContextColumns()
    """Which column holds what, where the usual names do not fit."""
    separator: str | None = None
    """What stands between the columns of `path: csv`: null is a comma, a tab is `"\\t"`."""
    refusals: list[str] = ["No Answer Present."]
    """Answers that are no answers, compared without case and punctuation; a row that has nothing else is left out."""
    repeated: Literal["drop", "keep"] = "drop"
    """A row whose id (or, without ids, whose prompt) was read before: leave it out, so that no question is trained on
    and held out as well, or read it again, as some benchmarks count."""
    max_passages: int | None = Field(10, ge=1)
    """Show this many passages; null shows all."""
    passage_words: int | None = Field(None, ge=1)
    """Show this many words of each passage; null shows all."""
    selected_only: bool = False
    """Show only passages that were marked as used for the answer."""
    show_urls: bool = True
    """Say where each passage is from."""
    no_context: Literal["error", "drop", "empty"] = "error"
    """A row without passages where the prompt file has {context}: stop, leave it out and count it, or leave the place
    empty."""
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
                f"shots.template: nothing is called {{{min(unknown)}}}; it may use {self._known('answer')}"
            )
        if "answer" not in used:
            raise ValueError("shots.template: wants {answer} somewhere")
        return self

    def load_options(self) -> dict[str, Any]:
        return {} if self.separator is None else {"sep": self.separator}

    def fields(self) -> frozenset[str]:
        """What the prompt file must say; {context} and {examples} it may."""
        return frozenset({self.MAIN})

    def example(self) -> str:
        """How one of the `shots` reads."""
        return "Question: {question}\nAnswer: {answer}"

    def names(self) -> dict[str, str | None]:
        """Role -> column."""
        return {role: getattr(self.columns, role) for role in type(self.columns).model_fields if role != "meta"}

    def needed(self, prompt: Prompt) -> set[str]:
        """Roles whose columns must be there."""
        needed = {self.MAIN}
        if "context" in prompt.fields:
            needed |= {"context"} if self.no_context == "error" else set()
            needed |= {"selected"} if self.selected_only else set()
        return needed

    @abstractmethod
    def item(self, source: Source, row: Row) -> Item:
        """A row, read. Raises `LeftOut` when it can have no reference and `BadRow` when it does not fit."""

    def expects(self, peek: Peek) -> Expected | None:
        """Local files are read and counted; of the hub it is `limit` or `expect_rows`, where the recipe says them."""
        return Expected(sum(1 for _ in self.read())) if self.files else super().expects(peek)

    def read(self) -> Iterator[Sample]:
        prompt = self._read_prompt()
        source = self._open(prompt)
        examples = self._examples(prompt, source)
        seen: set[str] = set()
        left: Counter[str] = Counter()
        first_bad = ""
        looked = usable = made = 0
        order = self.order(len(source.rows))
        try:
            for number, row in zip(order, self.at(source.rows, order), strict=True):
                looked += 1
                try:
                    sample = self._sample(prompt, source, examples, row, number)
                    self._once(sample, "id" in source.columns, seen)
                except LeftOut as reason:
                    left[str(reason)] += 1
                    continue
                except BadRow as problem:
                    if self.bad_rows == "error":
                        raise DataError(
                            f"{source.where}: row {number}: {problem} (`bad_rows: drop` leaves such rows out and counts "
                            "them)"
                        ) from None
                    first_bad = first_bad or f"; the first that does not fit: row {number}: {problem}"
                    left["that do not fit"] += 1
                    continue
                usable += 1
                if usable > self.skip:
                    made += 1
                    yield sample
                if made == self.limit:
                    break
        finally:
            if left:
                self.say(f"{source.where}: left out {left.total():,} of {looked:,} rows: {_told(left)}{first_bad}")
        if usable and not made:
            raise DataError(f"{source.where}: `skip: {self.skip}` leaves none of {usable} samples")
        if not usable:
            raise DataError(
                f"{source.where}: none of {looked} rows can be used: {_told(left)}{first_bad}. {self.NO_ANSWERS}".rstrip()
            )

    # ------------------------------------------------------------------------------------------------------------------

    def usable(self, answers: Sequence[str]) -> list[str]:
        """The answers that are answers. Raises `LeftOut` when there are none."""
        if not answers:
            raise LeftOut("without an answer")
        kept = answers_among(answers, self.refusals)
        if not kept:
            raise LeftOut(f"with a refusal for an answer ({answers[0]!r})")
        return kept

    def checked(self, where: str, rows: Any, prompt: Prompt) -> Source:
        """The columns of rows. Raises `DataError` with the first row and the key to set when one is missing."""
        first = rows[0]
        columns = {}
        for role, name in self.names().items():
            needed = role in self.needed(prompt)
            if name is None:
                if needed:
                    raise DataError(self._missing(where, first, f"no column for the {role} is named", role))
                continue
            try:
                look(first, name)
            except Missing:
                if needed or name != type(self.columns).model_fields[role].default:
                    raise DataError(self._missing(where, first, f'no column "{name}"', role)) from None
                continue
            columns[role] = name
        for name in self.columns.meta:
            try:
                look(first, name)
            except Missing:
                raise DataError(self._missing(where, first, f'no column "{name}"', "meta")) from None
        source = Source(where, rows, columns, self.columns.meta)
        return _narrowed(source)

    def _missing(self, where: str, first: Row, what: str, role: str) -> str:
        meaning = "the columns to keep" if role == "meta" else f"the column of the {role}"
        return (
            f"{where}: {what}, which reader `{name_of(self)[1]}` needs. Set `columns.{role}` to {meaning}; dots reach "
            f"into nested columns.\nIts first row:\n{preview(first)}"
        )

    def _known(self, *more: str) -> str:
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
        return self.checked(where, rows, prompt)

    def _sample(self, prompt: Prompt, source: Source, examples: Examples | None, row: Row, number: int) -> Sample:
        item = self.item(source, row)
        values, meta = dict(item.values), {self.MAIN: item.question} | item.meta
        if "context" in prompt.fields:
            values["context"], meta["passages"] = self._context(source, row)
        if examples is not None:
            values["examples"] = examples.text(item.question)
        name = source.value(row, "id")
        if name is None and "id" in source.columns:
            raise BadRow(f'"{source.columns["id"]}" is null: wants what identifies the row')
        if (kind := source.value(row, "kind")) is not None:
            meta["kind"] = kind
        meta |= {column: source.at(row, column) for column in source.meta}
        turns = prompt.fill(values)
        filled = "\n\n".join(turn.content for turn in turns) if self.as_text else turns
        return Sample(id=str(number if name is None else name), prompt=filled, reference=item.answers, meta=meta)

    def _once(self, sample: Sample, by_id: bool, seen: set[str]) -> None:
        """Raise `LeftOut` when the sample was there before."""
        key = sample.id if by_id else _said(sample.prompt)
        if key in seen and self.repeated == "drop":
            raise LeftOut("that repeat another")
        seen.add(key)

    def _context(self, source: Source, row: Row) -> tuple[str, list[str]]:
        """The text that stands for {context}, and what its passages are called."""
        value = source.value(row, "context")
        if isinstance(value, str) and value.strip() and not self.selected_only:
            return cut(value.strip(), self.passage_words), []
        passages = self._passages(source, row, value)
        if passages:
            names = [passage.url or str(number) for number, passage in enumerate(passages, start=1)]
            return render(passages, self.passage_words, self.show_urls), names
        if self.no_context == "drop":
            raise LeftOut("without passages")
        if self.no_context == "error":
            hint = f" {self.NO_PASSAGES}" if self.NO_PASSAGES else ""
            raise BadRow(
                f"there are no passages for {{context}} of the prompt file.{hint} (`no_context: drop | empty` goes on "
                "without)"
            )
        return "", []

    def _passages(self, source: Source, row: Row, texts: Any) -> list[Passage]:
        listed = texts if isinstance(texts, list) else []
        if not all(text is None or isinstance(text, str) for text in listed):
            raise BadRow(f'"{source.columns["context"]}" is {short(texts)}: wants a text or a list of texts')
        urls, marks = (_beside(source.value(row, role), len(listed)) for role in ("url", "selected"))
        found = [
            Passage(text, str(url or ""), bool(mark))
            for text, url, mark in zip(listed, urls, marks, strict=True)
            if text and text.strip() and (mark or not self.selected_only)
        ]
        return found[: self.max_passages]

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


@dataclass(frozen=True)
class Examples:
    """What was drawn for {examples}."""

    shots: Shots
    drawn: list[Shot]
    where: str

    def text(self, question: str) -> str:
        """The examples to show with one question."""
        return shown(self.shots, self.drawn, question, self.where)


def _narrowed(source: Source) -> Source:
    """Only the columns that are read, so that a page of text that nobody asked for is never decoded."""
    if not hasattr(source.rows, "flatten"):
        return source
    flat = source.rows.flatten()
    wanted = {*source.columns.values(), *source.meta}
    owner = {name: next((c for c in flat.column_names if f"{name}.".startswith(f"{c}.")), None) for name in wanted}
    for name, column in owner.items():
        if column == name and hasattr(flat.features[name], "names"):
            source.label_names[name] = flat.features[name].names
    if None not in owner.values():
        source.rows = flat.select_columns(sorted({column for column in owner.values() if column is not None}))
    return source


def _beside(values: Any, count: int) -> Sequence[Any]:
    """What stands beside each of `count` passages; nothing where the lists do not belong together."""
    return values if isinstance(values, list) and len(values) == count else [None] * count


def _said(prompt: str | Sequence[Message]) -> str:
    return same(prompt if isinstance(prompt, str) else "\n".join(turn.content for turn in prompt))


def _told(left: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {reason}" for reason, count in left.items())
