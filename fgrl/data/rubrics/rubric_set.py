"""What the readers of prompts with rubrics share: rows -> samples whose criteria have a check or go to the judge, and how
many of which kind there are.

A criterion is *hard* when the data set means a program to decide it, *soft* when a judge. A hard one that has no rule here is
left to the judge too (`without_checker`), counted by its id and said: it is never passed over in silence.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import PrivateAttr

from fgrl import lazy
from fgrl.data.formats.converter import BadRow, Row, preview, short
from fgrl.data.hub import Hub
from fgrl.data.json_rows import parsed, plain_rows
from fgrl.data.nested import Missing, look
from fgrl.data.rubrics.instruction_ids import checked_by
from fgrl.errors import DataError
from fgrl.kinds import Expected, Peek
from fgrl.registry import Settings, name_of
from fgrl.rules.code import CODE_CHECKER
from fgrl.rules.wording import sentence
from fgrl.types import Criterion, Message, Sample

huggingface_hub = lazy.load("huggingface_hub")

JSON_FILES = (".json", ".jsonl")
Check = dict[str, Any]
Prompt = str | list[Message]


class RubricColumns(Settings):
    """Which column holds what; dots reach into nested ones."""

    id: str | None = "id"
    """What identifies a row; null takes its number."""
    prompt: str = "prompt"
    """The prompt: text, or messages."""
    meta: list[str] = []
    """Columns to keep beside the sample, as they are."""


@dataclass(frozen=True)
class Demand:
    """A criterion as the data set has it."""

    text: str
    check: Check | None = None
    kind: str = ""
    """The rule's id, or what the data set calls it; what hard criteria without a checker are counted under."""
    hard: bool = True
    why: str = ""
    """Why a hard one has no check."""


@dataclass
class Count:
    """What was read."""

    prompts: int = 0
    rules: int = 0
    code: int = 0
    soft: int = 0
    judged: int = 0
    """Hard ones without a checker that are left to the judge."""
    without: Counter[str] = field(default_factory=Counter)
    """Hard ones without a checker, kept or not, by their id."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Criteria."""
    left_out: Counter[str] = field(default_factory=Counter)
    """Rows."""
    unsaid: int = 0
    """Prompts in which no criterion stands word for word, where that was looked at."""

    def add(self, one: Demand, kept: bool) -> None:
        """Count a criterion, and whether it stays in the rubric."""
        if one.check is None and one.hard:
            self.without[one.kind + (f" ({one.why})" if one.why else "")] += 1
        if not kept:
            self.dropped["hard without a checker" if one.hard else "soft"] += 1
        elif one.check is not None:
            self.code += one.check["name"] == CODE_CHECKER
            self.rules += one.check["name"] != CODE_CHECKER
        elif one.hard:
            self.judged += 1
        else:
            self.soft += 1

    def numbers(self) -> dict[str, Any]:
        """For summaries and plans. `criteria` are those that were kept."""
        found: dict[str, Any] = {
            "prompts": self.prompts, "criteria": self.rules + self.code + self.soft + self.judged, "by rules": self.rules,
            "by their own code": self.code, "soft": self.soft, "hard without a checker": self.without.total(),
        }  # fmt: skip
        return found | ({"namely": dict(self.without.most_common())} if self.without else {})

    def told(self) -> str:
        """In words."""
        numbers = self.numbers()
        text = (
            f"{self.prompts:,} prompts, {numbers['criteria']:,} criteria: {self.rules:,} hard by rules, {self.code:,} hard by "
            f"their own code in the sandbox, {self.soft:,} soft for the judge"
        )
        if self.without:
            which = ", ".join(f"{name} {count:,}" for name, count in self.without.most_common())
            left = "left to the judge" if self.judged else "left out"
            text += f", {self.without.total():,} hard without a checker here, {left}: {which}"
        if self.unsaid:
            text += f"; in {self.unsaid:,} prompts no criterion stands word for word (`list_criteria: true` adds them)"
        return text + self.missing()

    def missing(self) -> str:
        """What was left out, in words."""
        parts = []
        for what, counts in (("criteria", self.dropped), ("rows", self.left_out)):
            if counts:
                parts.append(
                    f"; left out {what}: " + ", ".join(f"{number:,} {name}" for name, number in counts.items())
                )
        return "".join(parts)


class RubricSet(Hub):
    """Prompts with rubrics.

    Files of JSON are read as they stand, whatever their rows have in common; parquet and CSV through `datasets`.
    """

    HUB_FILES: ClassVar[tuple[str, ...]] = ()
    """Files of JSON on the hub whose rows do not fit one type a column."""

    columns: RubricColumns = RubricColumns()
    """Which column holds what, where the hub's names do not fit."""
    without_checker: Literal["judge", "drop"] = "judge"
    """A hard criterion that no rule here checks: leave it to the judge, or leave it out; counted by its id either way."""
    soft: Literal["judge", "drop"] = "judge"
    """A soft criterion: leave it to the judge, or leave it out and count it. A row without any criterion is left out."""
    judged: list[str] = []
    """Ids of rules that are left to the judge although there is a checker, e.g. what the authors' release judges;
    `code:checker` is all code that comes with the data."""
    texts: dict[str, str] = {}
    """Sentences for rules that the data names by an id only, with {parameters}; they come before our own."""

    _count: Count | None = PrivateAttr(default=None)
    _expected: Expected | None = PrivateAttr(default=None)

    def criteria_counts(self, peek: Peek | None = None) -> dict[str, Any]:
        """Of what was read last; `{"unknown": why}` when it cannot be read."""
        if peek is not None:
            try:
                self.expects(peek)
            except DataError as problem:
                return {"unknown": str(problem).split("\n")[0]}
        return {} if self._count is None else self._count.numbers()

    def roles(self) -> dict[str, str]:
        """Role -> column that must be there."""
        return {"prompt": self.columns.prompt}

    def prompt_of(self, row: Row) -> Prompt:
        """Raises `BadRow`."""
        return as_prompt(self.value(row, "prompt"), self.columns.prompt)

    @abstractmethod
    def demands(self, row: Row, prompt: Prompt) -> list[Demand]:
        """The criteria of a row, in order. Raises `BadRow` when it does not fit."""

    def more(self, row: Row) -> dict[str, Any]:
        """What else to keep beside the sample."""
        return {}

    def named(self, row: Row, id: str) -> str:
        """The sample's id."""
        return id

    def asked(self, prompt: Prompt, demands: Sequence[Demand], count: Count) -> Prompt:
        """The prompt as a model gets it."""
        return prompt

    def expects(self, peek: Peek) -> Expected | None:
        """Local files are read and counted; of the hub it is `limit` or `expect_rows`, where the recipe says them."""
        if self._local() is None:
            return super().expects(peek)
        if self._expected is None:
            self._expected = Expected(sum(1 for _ in self.read()))
        return self._expected

    def read(self) -> Iterator[Sample]:
        where, rows = self.rows()
        self.count(len(rows), where)
        numbers = self.chosen(len(rows), where)
        self._want_columns(where, rows[0])
        found = self._count = Count()
        first_bad = ""
        try:
            for number, row in zip(numbers, self.at(rows, numbers), strict=True):
                try:
                    sample = self._sample(row, number, found)
                except (BadRow, DataError) as problem:
                    if self.bad_rows == "error":
                        raise DataError(
                            f"{where}: row {number}: {problem} (`bad_rows: drop` leaves such rows out and counts them)"
                        ) from None
                    found.left_out["that do not fit"] += 1
                    first_bad = first_bad or f"; the first that does not fit: row {number}: {problem}"
                    continue
                if sample is not None:
                    yield sample
        finally:
            if found.prompts or found.left_out:
                self.say(f"{where}: {found.told()}{first_bad}")
        if not found.prompts:
            raise DataError(
                f"{where}: none of {len(numbers)} rows gives a prompt with criteria{found.missing()}{first_bad}"
            )

    def rows(self) -> tuple[str, Sequence[Row]]:
        names = list(self.data_files or self.HUB_FILES)
        if self.files and self.path == "json":
            return ", ".join(self.files), plain_rows(self.files)
        if self.files or not names or not all(name.endswith(JSON_FILES) for name in names):
            return super().rows()
        folder = Path(self.path)
        if folder.is_dir():
            paths = [folder / name for name in names]
            return ", ".join(map(str, paths)), plain_rows(paths)
        where = ", ".join(f"{self.path}/{name}" for name in names)
        try:
            paths = [
                Path(huggingface_hub.hf_hub_download(self.path, name, repo_type="dataset", revision=self.revision))
                for name in names
            ]
        except (OSError, ValueError, huggingface_hub.errors.HfHubHTTPError) as error:
            raise DataError(f"{where}: cannot be loaded: {error}") from error
        if self.revision is None:
            self.say(f"{where}: no `revision` is pinned")
        return where, plain_rows(paths)

    def at(self, rows: Any, numbers: Sequence[int]) -> Iterator[Row]:
        return (rows[number] for number in numbers) if isinstance(rows, list) else super().at(rows, numbers)

    # ------------------------------------------------------------------------------------------------------------------

    def value(self, row: Row, role: str) -> Any:
        """What the row holds for a role. Raises `BadRow`."""
        column = getattr(self.columns, role)
        try:
            return look(row, column)
        except Missing:
            raise BadRow(f'no column "{column}"') from None

    def by_id(self, instruction_id: Any, kwargs: Any, text: str | None = None) -> Demand:
        """A rule that the data names by its id. Raises `BadRow` for what cannot be told in words either."""
        if not isinstance(instruction_id, str) or not (kwargs is None or isinstance(kwargs, Mapping)):
            raise BadRow(f"{short(instruction_id)} with {short(kwargs)}: wants a rule's id and its parameters")
        check, why = checked_by(instruction_id, kwargs, text)
        if instruction_id in self.judged:
            check, why = None, "as `judged` asks"
        said = text or sentence(instruction_id, kwargs, self.texts)
        if said is None:
            raise BadRow(
                f"there are no words for the rule {instruction_id!r} with {short(_told(kwargs))}: set `texts: "
                f'{{"{instruction_id}": "..."}}`'
            )
        return Demand(said, check, instruction_id, why="" if why == "no such rule here" else why)

    def _sample(self, row: Row, number: int, count: Count) -> Sample | None:
        prompt = self.prompt_of(row)
        demands = self.demands(row, prompt)
        if not demands:
            raise BadRow("there is no criterion")
        if CODE_CHECKER in self.judged:
            coded = (one.check is not None and one.check["name"] == CODE_CHECKER for one in demands)
            demands = [
                Demand(one.text, None, CODE_CHECKER, why="as `judged` asks") if by_code else one
                for one, by_code in zip(demands, coded, strict=True)
            ]
        name = number if self.columns.id is None else self.value(row, "id")
        if name is None:
            raise BadRow(f'"{self.columns.id}" is null: wants what identifies the row')
        kept = []
        for one in demands:
            if one.check is None and (self.without_checker if one.hard else self.soft) == "drop":
                count.add(one, kept=False)
                continue
            count.add(one, kept=True)
            kept.append(one)
        if not kept:
            count.left_out["without a criterion that is kept"] += 1
            return None
        count.prompts += 1
        meta = self.more(row) | {"criteria": [one.kind for one in kept]}
        for column in self.columns.meta:
            try:
                meta[column] = look(row, column)
            except Missing:
                raise BadRow(f'no column "{column}"') from None
        return Sample(
            id=self.named(row, str(name)), prompt=self.asked(prompt, demands, count), rubric=[Criterion(text=one.text, check=one.check) for one in kept],
            meta=meta,
        )  # fmt: skip

    def _want_columns(self, where: str, first: Row) -> None:
        wanted = self.roles() | ({} if self.columns.id is None else {"id": self.columns.id})
        for role, name in [*wanted.items(), *(("meta", name) for name in self.columns.meta)]:
            try:
                look(first, name)
            except Missing:
                meaning = (
                    "null for the row's number, or to what identifies a row" if role == "id" else "the column to read"
                )
                raise DataError(
                    f'{where}: no column "{name}", which reader `{name_of(self)[1]}` needs. Set `columns.{role}` to '
                    f"{meaning}; dots reach into nested columns.\nIts first row:\n{preview(first)}"
                ) from None

    def _local(self) -> list[str] | None:
        return self.files or ([self.path] if Path(self.path).is_dir() else None)


def as_prompt(value: Any, column: str) -> Prompt:
    """Text, or messages {role, content}; an answer at their end is taken away. Raises `BadRow`."""
    if isinstance(value, str):
        if not value.strip():
            raise BadRow(f'"{column}" is empty')
        return value
    turns = value if isinstance(value, Sequence) else []
    fits = [
        isinstance(turn, Mapping) and all(isinstance(turn.get(key), str) for key in ("role", "content"))
        for turn in turns
    ]
    if not turns or not all(fits):
        raise BadRow(f'"{column}" is {short(value)}: wants text or a list of messages {{role, content}}')
    messages = [Message(role=turn["role"], content=turn["content"]) for turn in turns]
    return messages[:-1] if len(messages) > 1 and messages[-1].role == "assistant" else messages


def instruction(prompt: Prompt) -> str:
    """The prompt as one text, for checkers that are given the instruction."""
    return prompt if isinstance(prompt, str) else "\n\n".join(turn.content for turn in prompt)


def listed(value: Any, column: str) -> list[Any]:
    """A list, also where the data has it as text. Raises `BadRow`."""
    found = parsed(value, column)
    if not isinstance(found, Sequence) or isinstance(found, str):
        raise BadRow(f'"{column}" is {short(value)}: wants a list')
    return list(found)


def together(**columns: Sequence[Any]) -> None:
    """Raise `BadRow` unless all have the same length."""
    lengths = {name: len(values) for name, values in columns.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{count} {name}" for name, count in lengths.items())
        raise BadRow(f"{told}: they belong together one by one")


def _told(kwargs: Mapping[str, Any] | None) -> dict[str, Any]:
    return {name: value for name, value in (kwargs or {}).items() if value is not None}
