"""Guess the columns of prompts, answers and preferences of a table by their names and by what is in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from fgrl.data.formats.columns import Columns
from fgrl.data.row import Row, preview
from fgrl.errors import DataError, UsageError
from fgrl.foreign import columns
from fgrl.registry import unknown
from fgrl.types import Sample

Kind = Literal["sft", "dpo", "ppo", "grpo", "reward_model", "segment_ppo", "rtt", "critic", "chains"]
KINDS: tuple[Kind, ...] = get_args(Kind)
FORMATS: dict[Kind, str] = {
    "sft": "sft", "dpo": "preference", "reward_model": "preference", "segment_ppo": "preference", "chains": "sft",
    "critic": "prompts", "ppo": "prompts", "grpo": "prompts", "rtt": "prompts",
}  # fmt: skip
ROLES = tuple(name for name in Columns.model_fields if name != "meta")

RUBRIC = ("rubric", "criteria", "constraints", "requirements", "checks")
MARKS = ("marks", "spans", "highlights", "annotations")
LOOKED_AT = 1000
"""Rows that decide what a column holds."""
MOSTLY = 0.9
"""Share of the values that have to be of a kind; rows with other values do not fit, and are counted later."""


@dataclass
class Detected:
    """The columns that were chosen, and why."""

    form: str
    """`format` of the reader."""
    columns: dict[str, Any] = field(default_factory=dict)
    """`columns` of the reader: a column by role, and `meta`."""
    reference: str | None = None
    """The column whose texts are the right answers."""
    assumptions: list[str] = field(default_factory=list)


def detect(kind: Kind, rows: Sequence[Row], where: str, given: Mapping[str, str] | None = None) -> Detected:
    """Return the columns for a kind of training. Raises `DataError` with the first row when none fit.

    where: what the data is called in messages. given: columns by role that need no guess; `UsageError` for one that is
    not there.
    """
    table = _Columns(rows, where, kind, given or {})
    if kind in ("rtt", "critic", "chains") and not given and _are_records(rows[0]):
        return Detected("records", assumptions=["the rows are samples as fgrl's own stages and pages write them"])
    detected = Detected(FORMATS[kind])
    if FORMATS[kind] == "preference":
        _of_preferences(table, detected)
    elif kind in ("sft", "chains"):
        _of_answers(table, detected, "marks" if kind == "chains" else None)
    elif kind == "critic" and table.pick("marks", MARKS, table.is_list):
        detected.form = "sft"
        _of_answers(table, detected, "marks")
    else:
        _of_prompts(table, detected)
    if "id" in table.given:
        detected.columns["id"] = table.given["id"]
    return detected


def _are_records(row: Row) -> bool:
    return {"prompt", "id"} <= row.keys() <= Sample.model_fields.keys() and not {"responses", "rubric"}.isdisjoint(row)


def _of_answers(table: _Columns, detected: Detected, marks: str | None = None) -> None:
    conversation = table.pick("messages", columns("messages"), table.is_conversation)
    prompt = table.pick("prompt", columns("prompt"), table.is_prompt, without=columns("response"))
    answer = table.pick("response", columns("response"), table.is_prompt, without=(prompt or "",))
    if prompt and answer:
        detected.columns = {"prompt": prompt, "response": answer}
        detected.reference = answer if table.is_text(answer) else None
        if conversation:
            table.said.append(
                f'column "{conversation}" is a whole conversation and is not read; to use it: columns: {{messages: {conversation}}}'
            )
    elif conversation:
        detected.columns = {"messages": conversation}
    else:
        raise table.none_fits(
            "a prompt and an answer, or a list of messages {role, content} that ends with an answer",
            "prompt",
            "response",
        )
    if marks:
        marked = table.pick("marks", MARKS, table.is_list)
        if marked is None:
            raise table.none_fits(
                "a list of marked passages of the answer, [start, end, label] or {text, label}, beside prompt and answer",
                "marks",
            )
        detected.columns["marks"] = marked
    detected.assumptions = table.notes(detected.columns)


def _of_preferences(table: _Columns, detected: Detected) -> None:
    chosen = table.pick("chosen", columns("chosen"), table.is_prompt)
    rejected = table.pick("rejected", columns("rejected"), table.is_prompt)
    if not chosen or not rejected:
        if table.has("label", "completion") and not chosen:
            raise table.none_fits(
                "a preferred and a rejected answer; single answers with a label are not pairs, and no algorithm here reads them"
            )
        raise table.none_fits("a preferred and a rejected answer to the same prompt", "chosen", "rejected")
    prompt = table.pick("prompt", columns("prompt"), table.is_prompt, without=(chosen, rejected))
    detected.columns = ({"prompt": prompt} if prompt else {}) | {"chosen": chosen, "rejected": rejected}
    detected.assumptions = table.notes(detected.columns)
    if not prompt:
        detected.assumptions.append(
            f'there is no column of prompts: "{chosen}" and "{rejected}" begin with the same prompt'
        )


def _of_prompts(table: _Columns, detected: Detected) -> None:
    prompt = table.pick("prompt", columns("prompt"), table.is_prompt, without=columns("response"))
    conversation = table.pick("messages", columns("messages"), table.is_messages)
    chosen = table.pick("chosen", columns("chosen"), table.is_conversation)
    if prompt:
        detected.columns = {"prompt": prompt}
    elif conversation:
        detected.columns = {"messages": conversation}
    elif chosen:
        detected.columns = {"chosen": chosen}
    elif len(only := [name for name in table.names if table.is_text(name) and name not in columns("response")]) == 1:
        detected.columns = {"prompt": only[0]}
        table.said.append(f'"{only[0]}" is the only column of text, so it is taken for the prompts')
    else:
        raise table.none_fits("a prompt: a text or a list of messages {role, content}", "prompt")
    if table.kind == "rtt":
        rubric = table.pick("rubric", RUBRIC, table.is_list)
        if rubric is None:
            raise table.none_fits(
                "a list of demands on the answer, each a text or {text, check}, beside the prompt", "rubric"
            )
        detected.columns["rubric"] = rubric
    read = next(iter(detected.columns.values()))
    more = [name for name in table.names if name != read and name not in ("id", "prompt_id") and name.isidentifier()]
    detected.assumptions = table.notes(detected.columns)
    if more and table.kind in ("ppo", "grpo"):
        detected.columns["meta"] = more
        detected.assumptions.append(f"the reward function gets these columns as arguments: {', '.join(more)}")


class _Columns:
    """The columns of a table."""

    def __init__(self, rows: Sequence[Row], where: str, kind: Kind, given: Mapping[str, str]) -> None:
        self.rows, self.where, self.kind, self.given = rows[:LOOKED_AT], where, kind, given
        self.names = list(dict.fromkeys(name for row in self.rows for name in row))
        for role, name in given.items():
            if role not in ROLES:
                raise UsageError(f"--columns: {unknown('role', role, ROLES)}")
            if name not in self.names:
                raise UsageError(f"--columns: {unknown('column', name, self.names)}")
        self.said: list[str] = []
        self._others: dict[str, list[str]] = {}

    def has(self, *names: str) -> bool:
        return all(name in self.names for name in names)

    def pick(
        self, role: str, usual: Sequence[str], fits: Callable[[str], bool], without: Sequence[str] = ()
    ) -> str | None:
        """Return the first of the usual names that a column has and whose values fit; the others are remembered for the
        notes. A column that was given is taken as it is.
        """
        if role in self.given:
            return self.given[role]
        if role in ("prompt", "messages") and not {"prompt", "messages"}.isdisjoint(self.given):
            return None
        by_name = {name.lower().replace("-", "_").replace(" ", "_"): name for name in self.names}
        fitting = [by_name[name] for name in usual if name in by_name and by_name[name] not in without]
        fitting = [name for name in fitting if fits(name)]
        self._others[role] = fitting[1:]
        return fitting[0] if fitting else None

    def notes(self, columns: Mapping[str, Any]) -> list[str]:
        """Name the columns that were chosen, and the alternatives."""
        taken = ", ".join(f'{role} from "{name}"' for role, name in columns.items())
        notes = [f"columns: {taken}"]
        for role, name in columns.items():
            others = [other for other in self._others.get(role, []) if other not in columns.values()]
            if others:
                quoted = ", ".join(f'"{other}"' for other in others)
                notes.append(
                    f'the {role} could also be {quoted}: "{name}" was taken; to change it: columns: {{{role}: {others[0]}}}'
                )
        return notes + self.said

    def none_fits(self, wanted: str, *roles: str) -> DataError:
        """Return the error that no column fits what is wanted. roles: those that `--columns` can name."""
        shared = [name for name in self.names if self._is_share_gpt(name)]
        hint = f"; name the columns: --columns {','.join(f'{role}=COLUMN' for role in roles)}" if roles else ""
        if shared:
            hint = f'; the messages of "{shared[0]}" are {{from, value}}: write them as {{role, content}}, with the roles user and assistant'
        return DataError(
            f"{self.where}: no columns for {self.kind}, which needs {wanted}{hint}.\nIts first row:\n{preview(self.rows[0])}"
        )

    def is_text(self, name: str) -> bool:
        """Texts that are not all blank, in nearly all rows that have a value."""
        return self._mostly(name, _is_text) and any(_is_text(value) and value.strip() for value in self._values(name))

    def is_messages(self, name: str) -> bool:
        return self._mostly(name, _are_messages)

    def is_list(self, name: str) -> bool:
        return self._mostly(name, lambda value: isinstance(value, list))

    def is_prompt(self, name: str) -> bool:
        return self.is_text(name) or self.is_messages(name)

    def is_conversation(self, name: str) -> bool:
        """Messages that end with an answer."""
        return self._mostly(name, lambda value: _are_messages(value) and value[-1]["role"] == "assistant")

    def _is_share_gpt(self, name: str) -> bool:
        return self._mostly(
            name,
            lambda value: (
                isinstance(value, list)
                and value
                and isinstance(value[0], dict)
                and {"from", "value"} <= value[0].keys()
            ),
        )

    def _mostly(self, name: str, fits: Callable[[Any], Any]) -> bool:
        values = self._values(name)
        return bool(values) and sum(bool(fits(value)) for value in values) >= MOSTLY * len(values)

    def _values(self, name: str) -> list[Any]:
        return [row[name] for row in self.rows if row.get(name) is not None]


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_messages(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(
            isinstance(turn, dict) and isinstance(turn.get("role"), str) and isinstance(turn.get("content"), str)
            for turn in value
        )
    )
