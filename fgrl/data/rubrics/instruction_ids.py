"""Rules that a data set names by id, as IFEval and IFBench do (columns `instruction_id_list` and `kwargs`)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from fgrl.data.rubrics.untrusted import is_for_data
from fgrl.registry import get

BOUNDS = ("num_words", "num_sentences", "frequency", "let_frequency", "capital_frequency")
"""Parameters that hold the bound of a relation; a rule has at most one of them."""
RELATIONS = {
    "at least": ("at least", 0), "no less": ("at least", 0), "no less than": ("at least", 0), "not less than": ("at least", 0),
    "more than": ("at least", 1),
    "less than": ("less than", 0), "fewer than": ("less than", 0),
    "at most": ("less than", 1), "no more": ("less than", 1), "no more than": ("less than", 1), "not more than": ("less than", 1),
}  # fmt: skip
"""IFEval's relation and the number to add to the bound, by the relation of a data set: at most 5 is less than 6."""
NO_SUCH_RULE = "no such rule here"
OPTIONS = ("my answer is yes", "my answer is no", "my answer is maybe")


def spec(instruction_id: str, kwargs: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return a rule of a data set as recipes and `Criterion.check` write it: `{"name": id, parameter: value}`.

    Data sets give every rule the columns of all rules: null columns are left out. Whole numbers that a table stores as
    floats become whole again (IFBench's `N` is 15.0), and parameters of rules that have none are left out.
    """
    given = {key: _whole(value) for key, value in (kwargs or {}).items() if value is not None}
    fields = _fields(instruction_id)
    return {**({} if fields == [] else given), "name": instruction_id}


def fitted(instruction_id: str, kwargs: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the `spec` of a rule, with corrections of the differences in HiR-16K and others: relations in other words
    (`at most` n is `less than` n + 1), and `relation` in place of the rule's `let_relation` or `capital_relation`.
    """
    check = spec(instruction_id, kwargs)
    fields = _fields(instruction_id) or []
    for name in ("let_relation", "capital_relation"):
        if name in fields and name not in check and "relation" in check:
            check[name] = check.pop("relation")
    relation = next((name for name in check if name.endswith("relation")), None)
    bound = next((name for name in BOUNDS if name in check), None)
    words = str(check[relation]).strip().lower() if relation else ""
    if relation and bound and words in RELATIONS and isinstance(check[bound], int):
        check[relation], added = RELATIONS[words]
        check[bound] += added
    return check


def checked_by(
    instruction_id: str, kwargs: Mapping[str, Any] | None = None, text: str | None = None
) -> tuple[dict[str, Any] | None, str]:
    """Return (the check of a data set's rule, "") or (None, the reason why there is none).

    text: the rule in the data set's words, if it has any. IFEval's `constrained_response` knows three options, and a
    text that offers other options is another rule. Raises `BadRow` for a rule that a data set must not name (code,
    rules made of rules).
    """
    if not is_for_data(instruction_id):
        return None, NO_SUCH_RULE
    known = text is None or all(option in text.lower() for option in OPTIONS)
    if instruction_id == "detectable_format:constrained_response" and not known:
        return None, "other options"
    if (kwargs or {}).get("name") is not None:  # of another rule than the one that was looked at
        return None, "its parameters do not fit"
    check = fitted(instruction_id, kwargs)
    try:
        get("verifier", instruction_id).model_validate({key: value for key, value in check.items() if key != "name"})
    except ValidationError:
        return None, "its parameters do not fit"
    return check, ""


def _fields(instruction_id: str) -> list[str] | None:
    """Return the parameters of a rule; None if there is no rule of that name."""
    try:
        return list(get("verifier", instruction_id).model_fields)
    except LookupError:
        return None


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value
