"""Guess the columns of prompts, answers and preferences of a table by their names and their content."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn, get_args

from fgrl.base.errors import DataError, UsageError
from fgrl.base.foreign import columns
from fgrl.data.formats.columns import Columns
from fgrl.data.row import Row, preview
from fgrl.registry import unknown
from fgrl.types import Sample

Kind = Literal["sft", "dpo", "ppo", "grpo", "reward_model", "segment_ppo", "rtt", "critic", "chains", "agent"]
KINDS: tuple[Kind, ...] = get_args(Kind)
REWARDED: tuple[Kind, ...] = ("ppo", "grpo", "agent")
"""Kinds with a reward function."""
FORMATS: dict[Kind, str] = {
    "sft": "sft", "dpo": "preference", "reward_model": "preference", "segment_ppo": "preference", "chains": "sft",
    "critic": "prompts", "ppo": "prompts", "grpo": "prompts", "rtt": "prompts", "agent": "prompts",
}  # fmt: skip
ROLES = tuple(name for name in Columns.model_fields if name != "meta")
NAMES = {
    "rubric": ("rubric", "criteria", "constraints", "requirements", "checks"),
    "marks": ("marks", "spans", "highlights", "annotations"),
    "reference": columns("response"),
}
"""Usual names of the columns of a role that exists in no other toolkit."""
MOSTLY = 0.9
"""Share of the values that must be of a kind. Rows with other values do not fit, and are counted later."""
SHORT = 8
"""Maximum number of words of an answer that another answer can be expected to contain."""


@dataclass
class Detected:
    """The columns that were chosen, and the reasons."""

    form: str
    """Value of the reader's `format`."""
    columns: dict[str, Any] = field(default_factory=dict)
    """Value of the reader's `columns`: a column by role, and `meta`."""
    reference: str | None = None
    """Column whose texts are the right answers."""
    assumptions: list[str] = field(default_factory=list)


def detect(kind: Kind, rows: Sequence[Row], where: str, given: Mapping[str, str] | None = None) -> Detected:
    """Return the columns for a kind of training. Raises `DataError` with the first row if none fit. where: name of the
    data in messages. given: columns by role that need no guess; raises `UsageError` if one of them does not exist.
    """
    table = _Columns(rows, where, kind, given or {})
    if kind in ("rtt", "critic", "chains") and not given and _are_records(rows[0]):
        return Detected("records", assumptions=["the rows are samples as fgrl's own stages and pages write them"])
    form = "sft" if kind == "critic" and table.pick("marks", _is_list) else FORMATS[kind]
    found = table.found(form)
    for role in ["rubric"] * (kind == "rtt") + ["marks"] * (kind in ("critic", "chains") and form == "sft"):
        found[role] = table.pick(role, _is_list) or table.refuse(role)
    found |= {role: name for role, name in table.given.items() if role == "id"}
    reference, more = None, []
    if kind == "sft" and table.mostly(found.get("response", ""), _is_text):
        reference = found["response"]
    if kind in REWARDED:
        if reference := table.pick("reference", _is_short, share=1):
            table.said.append(f'the goal is that an answer contains the short one of its row, in "{reference}"')
        known = (*found.values(), "id", "prompt_id")
        more = [name for name in table.names if name not in known and name.isidentifier()]
    notes = table.notes(found)
    if more:
        notes.append(f"the reward function gets these columns as arguments: {', '.join(more)}")
        found["meta"] = more
    return Detected(form, found, reference, notes)


class _Columns:
    """The columns of a table."""

    def __init__(self, rows: Sequence[Row], where: str, kind: Kind, given: Mapping[str, str]) -> None:
        self.rows, self.where, self.kind, self.given = rows, where, kind, given
        self.names = list(dict.fromkeys(name for row in self.rows for name in row))
        for role, name in given.items():
            if role not in ROLES:
                raise UsageError(f"--columns: {unknown('role', role, ROLES)}")
            if name not in self.names:
                raise UsageError(f"--columns: {unknown('column', name, self.names)}")
        self.said: list[str] = []
        self._others: dict[str, list[str]] = {}

    def found(self, form: str) -> dict[str, Any]:
        """Return the columns that a format needs, by role: the columns of the first alternative that is complete."""
        for roles in ALTERNATIVES[form]:
            found = {role: name for role, fits in roles.items() if (name := self.pick(role, fits))}
            if len(found) == len(roles):
                break
        else:
            texts = [name for name in self.names if self.mostly(name, _is_text) and name not in columns("response")]
            if form != "prompts" or len(texts) != 1:
                self.refuse(form)
            found = {"prompt": texts[0]}
            self.said.append(f'"{texts[0]}" is the only column of text, so it is taken for the prompts')
        if "rejected" in found and "prompt" not in found:
            self.said.append("there is no column of prompts: both answers begin with the same prompt")
        return found

    def pick(self, role: str, fits: Callable[[Any], bool], share: float = MOSTLY) -> str | None:
        """Return the first of the usual names of a role that exists as a column and whose values fit. The others are
        remembered for the notes. A given column is taken without a check.
        """
        if role in self.given:
            return self.given[role]
        if role in ("prompt", "messages") and not {"prompt", "messages"}.isdisjoint(self.given):
            return None
        by_name = {name.lower().replace("-", "_").replace(" ", "_"): name for name in self.names}
        usual = [by_name[name] for name in NAMES.get(role) or columns(role) if name in by_name]
        fitting = [name for name in usual if name not in self.given.values() and self.mostly(name, fits, share)]
        self._others[role] = fitting[1:]
        return fitting[0] if fitting else None

    def notes(self, columns: Mapping[str, Any]) -> list[str]:
        """Return sentences that name the chosen columns and the alternatives."""
        notes = ["columns: " + ", ".join(f'{role} from "{name}"' for role, name in columns.items())]
        for role, name in columns.items():
            others = [other for other in self._others.get(role, []) if other not in columns.values()]
            if others:
                quoted = ", ".join(f'"{other}"' for other in others)
                change = f"columns: {{{role}: {others[0]}}}"
                notes.append(f'the {role} could also be {quoted}: "{name}" was taken; to change it: {change}')
        return notes + self.said

    def refuse(self, what: str) -> NoReturn:
        """Raise the error that no column fits a format or a role."""
        wanted, *roles = WANTED[what]
        shared = [name for name in self.names if self.mostly(name, _is_share_gpt)]
        hint = f"; name the columns: --columns {','.join(f'{role}=COLUMN' for role in roles)}" if roles else ""
        if shared:
            hint = f'; the messages of "{shared[0]}" are {{from, value}}: write them as {{role, content}}, with the roles user and assistant'
        elif what == "preference" and {"label", "completion"} <= {*self.names}:
            hint = "; single answers with a label are not pairs, and no algorithm here reads them"
        raise DataError(
            f"{self.where}: no columns for {self.kind}, which needs {wanted}{hint}.\nIts first row:\n{preview(self.rows[0])}"
        )

    def mostly(self, name: str, fits: Callable[[Any], bool], share: float = MOSTLY) -> bool:
        """Return True if nearly all values of a column fit; blank texts do not count."""
        values = [row[name] for row in self.rows if row.get(name) is not None]
        values = [value for value in values if not isinstance(value, str) or value.strip()]
        return bool(values) and sum(fits(value) for value in values) >= share * len(values)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_short(value: Any) -> bool:
    return isinstance(value, str) and len(value.split()) <= SHORT


def _is_list(value: Any) -> bool:
    return isinstance(value, list)


def _have(value: Any, keys: Mapping[str, type]) -> bool:
    """Return True for a list of mappings that have these keys with values of these types."""
    return (
        isinstance(value, list)
        and bool(value)
        and all(
            isinstance(one, dict) and all(key in one and isinstance(one[key], kind) for key, kind in keys.items())
            for one in value
        )
    )


def _are_messages(value: Any) -> bool:
    return _have(value, {"role": str, "content": str})


def _is_share_gpt(value: Any) -> bool:
    return _have(value, {"from": object, "value": object})


def _is_prompt(value: Any) -> bool:
    return _is_text(value) or _are_messages(value)


def _is_conversation(value: Any) -> bool:
    """Return True for messages that end with an answer."""
    return _are_messages(value) and value[-1]["role"] == "assistant"


def _are_records(row: Row) -> bool:
    return {"prompt", "id"} <= row.keys() <= Sample.model_fields.keys() and not {"responses", "rubric"}.isdisjoint(row)


ALTERNATIVES: dict[str, list[dict[str, Callable[[Any], bool]]]] = {
    "sft": [{"prompt": _is_prompt, "response": _is_prompt}, {"messages": _is_conversation}],
    "preference": [
        {"prompt": _is_prompt, "chosen": _is_prompt, "rejected": _is_prompt}, {"chosen": _is_prompt, "rejected": _is_prompt},
    ],
    "prompts": [{"prompt": _is_prompt}, {"messages": _are_messages}, {"chosen": _is_conversation}],
}  # fmt: skip
"""Roles of the columns of a format, and the values that fit them."""
WANTED = {
    "sft": ("a prompt and an answer, or a list of messages {role, content} that ends with an answer", "prompt", "response"),
    "preference": ("a preferred and a rejected answer to the same prompt", "chosen", "rejected"),
    "prompts": ("a prompt: a text or a list of messages {role, content}", "prompt"),
    "rubric": ("a list of demands on the answer, each a text or {text, check}, beside the prompt",),
    "marks": (
        "a list of marked passages of the answer, [start, end, label] or {text, label}, beside prompt and answer", "marks",
    ),
}  # fmt: skip
"""Needed columns in words, with the roles that `--columns` can name."""
