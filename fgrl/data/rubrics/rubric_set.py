"""Base class of readers of prompts with rubrics: rows become samples whose criteria have a check or go to the judge,
and criteria are counted by kind.

A criterion is *hard* if the data set means a program to decide it, *soft* if a judge. A hard criterion that has no rule
here is left to the judge too (`without_checker`); it is counted by its id and reported, never dropped silently.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from pydantic import PrivateAttr

from fgrl.base.errors import DataError
from fgrl.data.json_hub import JsonHub, RecordColumns
from fgrl.data.row import BadRow, LeftOut, Row, short
from fgrl.data.rubrics.demand import CODE_CHECKER, Demand, Tally
from fgrl.data.rubrics.instruction_ids import NO_SUCH_RULE, checked_by
from fgrl.data.turns import Prompt, as_prompt
from fgrl.feedback.rules.wording import sentence
from fgrl.kinds import Peek
from fgrl.types import Criterion, Sample

AS_JUDGED = "as `judged` asks"


class RubricColumns(RecordColumns):
    """Names of the columns; dots reach into nested columns."""

    id: str | None = "id"
    prompt: str = "prompt"
    """Column with the prompt: text, or messages."""


class RubricSet(JsonHub):
    """Reader of prompts with rubrics."""

    columns: RubricColumns = RubricColumns()
    """Names of the columns, if they differ from the names on the hub."""
    without_checker: Literal["judge", "drop"] = "judge"
    """Treatment of a hard criterion that no rule here checks: leave it to the judge, or leave it out. It is counted by
    its id in either case.
    """
    soft: Literal["judge", "drop"] = "judge"
    """Treatment of a soft criterion: leave it to the judge, or leave it out and count it. A row without any criterion
    is left out.
    """
    judged: list[str] = []
    """Ids of rules that are left to the judge although there is a checker, e.g. rules that the authors' release judges.
    `code:checker` stands for all code that comes with the data.
    """
    texts: dict[str, str] = {}
    """Sentences for rules that the data names by an id only, with {parameters}; they replace our own sentences."""

    _tally: Tally | None = PrivateAttr(default=None)

    def prompt_of(self, row: Row) -> Prompt:
        """Return the prompt of a row. Raises `BadRow`."""
        return as_prompt(self.value(row, "prompt"), self.columns.prompt)

    @abstractmethod
    def demands(self, row: Row, prompt: Prompt) -> list[Demand]:
        """Return the criteria of a row, in order. Raises `BadRow` if it does not fit."""

    def meta_of(self, row: Row) -> dict[str, Any]:
        """Return further entries of the sample's `meta`."""
        return {}

    def id_of(self, row: Row, name: str) -> str:
        """Return the sample's id. name: identifier of the row."""
        return name

    def with_criteria(self, prompt: Prompt, demands: Sequence[Demand], tally: Tally) -> Prompt:
        """Return the prompt as a model receives it."""
        return prompt

    def criteria_counts(self, peek: Peek | None = None) -> dict[str, Any]:
        """Return the criteria counts of the last read; `{"unknown": reason}` if the data cannot be read."""
        if peek is not None and (self.files or Path(self.path).is_dir()):
            try:
                deque(self.read(), maxlen=0)
            except DataError as problem:
                return {"unknown": str(problem).split("\n")[0]}
        return {} if self._tally is None else self._tally.numbers()

    def read(self) -> Iterator[Sample]:
        where, rows, numbers = self.opened()
        self.check_columns(where, rows)
        tally = self._tally = Tally()
        convert = self.with_own_ids(where, partial(self._sample, tally))
        try:
            yield from self.records(where, rows, numbers, convert, tally.left_out)
        finally:
            if tally.prompts or tally.left_out:
                self.say(f"{where}: {tally.summary()}")
        if not tally.prompts:
            raise DataError(f"{where}: none of {len(numbers)} rows gives a prompt with criteria{tally.omissions()}")

    # ------------------------------------------------------------------------------------------------------------------

    def by_id(self, instruction_id: Any, kwargs: Any, text: str | None = None) -> Demand:
        """Return a rule that the data names by its id. Raises `BadRow` if there is no sentence for it either."""
        if not isinstance(instruction_id, str) or not (kwargs is None or isinstance(kwargs, Mapping)):
            raise BadRow(f"{short(instruction_id)} with {short(kwargs)}: wants a rule's id and its parameters")
        check, why = checked_by(instruction_id, kwargs, text)
        if instruction_id in self.judged:
            check, why = None, AS_JUDGED
        words = text or sentence(instruction_id, kwargs, self.texts)
        if words is None:
            given = {name: value for name, value in (kwargs or {}).items() if value is not None}
            raise BadRow(
                f"there are no words for the rule {instruction_id!r} with {short(given)}: set `texts: "
                f'{{"{instruction_id}": "..."}}`'
            )
        return Demand(words, check, instruction_id, why="" if why == NO_SUCH_RULE else why)

    def _sample(self, tally: Tally, row: Row, number: int) -> Sample:
        """Return the sample of a row. Raises `BadRow`, and `LeftOut` if no criterion is kept."""
        prompt = self.prompt_of(row)
        demands = self.demands(row, prompt)
        if not demands:
            raise BadRow("there is no criterion")
        if CODE_CHECKER in self.judged:
            demands = [_judged(demand) if demand.by_code() else demand for demand in demands]
        name = self.name_of_row(row, number)
        kept = [demand for demand in demands if self._keeps(demand)]
        for demand in demands:
            tally.add(demand, kept=self._keeps(demand))
        if not kept:
            raise LeftOut("without a criterion that is kept")
        tally.prompts += 1
        meta = self.meta_of(row) | {"criteria": [demand.kind for demand in kept]} | self.kept(row)
        return Sample(
            id=self.id_of(row, name),
            prompt=self.with_criteria(prompt, demands, tally),
            rubric=[Criterion(text=demand.text, check=demand.check) for demand in kept],
            meta=meta,
        )

    def _keeps(self, demand: Demand) -> bool:
        return demand.check is not None or (self.without_checker if demand.hard else self.soft) == "judge"


def _judged(demand: Demand) -> Demand:
    """Return the demand without its code, for the judge, although the code could run."""
    return replace(demand, check=None, kind=CODE_CHECKER, hard=True, why=AS_JUDGED)
