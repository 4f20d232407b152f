"""Limits of a rule in a data set: it may have a name and parameters, but must not specify where code runs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from fgrl.base.errors import DataError
from fgrl.data.row import BadRow
from fgrl.registry import Component, get
from fgrl.registry.annotations import full, needs_building
from fgrl.types import Sample

SANDBOX = "sandbox"


def is_for_data(name: str) -> bool:
    """Return True if there is a rule of this name that plain parameters describe, False if there is no rule of this
    name.

    Raises `BadRow` for rules with a parameter that is a component or a sandbox: `code:checker`, which would run code
    from the parameters, and rules that are made of rules.
    """
    try:
        rule = get("verifier", name)
    except LookupError:
        return False
    if not _is_plain(rule):
        raise BadRow(
            f'the data names the rule "{name}", which a data set must not name: it is for checkers that the reader finds '
            "in other columns, and for recipes"
        )
    return True


@cache
def _is_plain(rule: type[Component]) -> bool:
    return not any(needs_building(full(field)) for field in rule.model_fields.values())


def refuse_sandbox(sample: Sample, where: str) -> Sample:
    """Return the sample unchanged. Raises `DataError` if a check of its rubric specifies where code runs: only a recipe
    may.
    """
    for criterion in sample.rubric:
        if criterion.check is not None and names_a_sandbox(criterion.check):
            raise DataError(
                f"{where}: sample {sample.id}, criterion {criterion.text!r}: the data sets `sandbox`, which only a recipe may: "
                "remove it (code from data runs in the strong sandbox; docs/how-to/sandbox.md)"
            )
    return sample


def names_a_sandbox(value: Any) -> bool:
    """Return True if the value sets `sandbox` anywhere but inside `arguments`, which are only passed to the code."""
    if isinstance(value, Mapping):
        return SANDBOX in value or any(names_a_sandbox(inner) for key, inner in value.items() if key != "arguments")
    return isinstance(value, list) and any(map(names_a_sandbox, value))
