"""Rules that check the criteria of a rubric."""

from __future__ import annotations

import json
from typing import Any

from pydantic import PrivateAttr

from fgrl.base.errors import DataError
from fgrl.kinds import Verifier
from fgrl.registry import Problems, Settings, build
from fgrl.types import Criterion


class CriterionRules:
    """Rules that criteria name in `check`, each built and set up once."""

    def __init__(self, run: Any = None) -> None:
        self._run = run
        self._built: dict[str, Verifier] = {}

    def __eq__(self, other: object) -> bool:
        """Return True: all instances are equal, since they hold only a cache. Components that hold one are equal if
        their settings are.
        """
        return isinstance(other, CriterionRules)

    __hash__ = None  # type: ignore[assignment]

    def get(self, criterion: Criterion, owner: str) -> Verifier | None:
        """Return the rule that checks a criterion; None if the criterion has no check.

        owner: the sample's id, for the message. Raises `DataError` for a check that no rule understands.
        """
        if criterion.check is None:
            return None
        key = json.dumps(criterion.check, sort_keys=True)
        if key not in self._built:
            try:
                rule = build(Verifier, dict(criterion.check))
            except Problems as wrong:
                problems = "\n".join(map(str, wrong.problems))
                if "unknown verifier" in problems:
                    problems += "\n    = a verifier of your own is known once the recipe names its file in `imports`"
                raise DataError(f"sample {owner}, criterion {criterion.text!r}: {problems}") from None
            rule.setup(self._run)
            self._built[key] = rule
        return self._built[key]


class UsesRules(Settings):
    """Settings of components that decide criteria by their rules. Rules that run code need a sandbox."""

    _rules: CriterionRules = PrivateAttr(default_factory=CriterionRules)

    def setup(self, run: Any) -> None:
        self._rules = CriterionRules(run)
        super().setup(run)
