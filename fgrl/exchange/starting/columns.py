"""Guess the columns of prompts, answers and preferences of a table by their names and by what is in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from fgrl.base.errors import DataError, UsageError
from fgrl.base.foreign import columns
from fgrl.data.formats.columns import Columns
from fgrl.data.row import Row, preview
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
MOSTLY = 0.9
"""Share of the values that have to be of a kind; rows with other values do not fit, and are counted later."""
SHORT = 8
"""Words of an answer that another answer can be expected to contain."""


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
    form = "sft" if kind == "critic" and table.pick("marks", MARKS, _is_list) else FORMATS[kind]
    detected = {"preference": _of_preferences, "sft": _of_answers, "prompts": _of_prompts}[form](table)
    if "id" in table.given:
        detected.columns["id"] = table.given["id"]
    return detected


def _of_answers(table: _Columns) -> Detected:
    conversation = table.pick("messages", columns("messages"), _is_conversation)
    prompt = table.pick("prompt", columns("prompt"), _is_prompt, without=columns("response"))
    answer = table.pick("response", columns("response"), _is_prompt, without=(prompt or "",))
    if prompt and answer:
        chosen = {"prompt": prompt, "response": answer}
        if conversation:
            unread = f'column "{conversation}" is a whole conversation and is not read; to use it: columns: {{messages: {conversation}}}'
            table.said.append(unread)
    elif conversation:
        chosen = {"messages": conversation}
    else:
        wanted = "a prompt and an answer, or a list of messages {role, content} that ends with an answer"
        raise table.none_fits(wanted, "prompt", "response")
    if table.kind in ("chains", "critic"):
        marked = table.pick("marks", MARKS, _is_list)
        if marked is None:
            wanted = "a list of marked passages of the answer, [start, end, label] or {text, label}, beside prompt and answer"
            raise table.none_fits(wanted, "marks")
        chosen["marks"] = marked
    learned = table.kind == "sft" and "response" in chosen and table.mostly(chosen["response"], _is_text)
    return Detected("sft", chosen, chosen["response"] if learned else None, table.notes(chosen))


def _of_preferences(table: _Columns) -> Detected:
    chosen = table.pick("chosen", columns("chosen"), _is_prompt)
    rejected = table.pick("rejected", columns("rejected"), _is_prompt)
    if not chosen and {"label", "completion"} <= {*table.names}:
        raise table.none_fits(
            "a preferred and a rejected answer; single answers with a label are not pairs, and no algorithm here reads them"
        )
    if not chosen or not rejected:
        raise table.none_fits("a preferred and a rejected answer to the same prompt", "chosen", "rejected")
    prompt = table.pick("prompt", columns("prompt"), _is_prompt, without=(chosen, rejected))
    if not prompt:
        table.said.append(f'there is no column of prompts: "{chosen}" and "{rejected}" begin with the same prompt')
    found = ({"prompt": prompt} if prompt else {}) | {"chosen": chosen, "rejected": rejected}
    return Detected("preference", found, None, table.notes(found))


def _of_prompts(table: _Columns) -> Detected:
    found: dict[str, Any]
    texts = [name for name in table.names if table.mostly(name, _is_text) and name not in columns("response")]
    if prompt := table.pick("prompt", columns("prompt"), _is_prompt, without=columns("response")):
        found = {"prompt": prompt}
    elif conversation := table.pick("messages", columns("messages"), _are_messages):
        found = {"messages": conversation}
    elif chosen := table.pick("chosen", columns("chosen"), _is_conversation):
        found = {"chosen": chosen}
    elif len(texts) == 1:
        found = {"prompt": texts[0]}
        table.said.append(f'"{texts[0]}" is the only column of text, so it is taken for the prompts')
    else:
        raise table.none_fits("a prompt: a text or a list of messages {role, content}", "prompt")
    if table.kind == "rtt":
        rubric = table.pick("rubric", RUBRIC, _is_list)
        if rubric is None:
            wanted = "a list of demands on the answer, each a text or {text, check}, beside the prompt"
            raise table.none_fits(wanted, "rubric")
        found["rubric"] = rubric
    answer, (read, *_more) = None, found.values()
    more = [name for name in table.names if name != read and name not in ("id", "prompt_id") and name.isidentifier()]
    if table.kind in ("ppo", "grpo"):
        answer = table.pick("reference", columns("response"), _is_short, without=(read,), share=1)
        if answer:
            table.said.append(f'"{answer}" has short answers: the goal is that an answer contains the one of its row')
    detected = Detected("prompts", found, answer, table.notes(found))
    if more and table.kind in ("ppo", "grpo"):
        found["meta"] = more
        detected.assumptions.append(f"the reward function gets these columns as arguments: {', '.join(more)}")
    return detected


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

    def pick(
        self, role: str, usual: Sequence[str], fits: Callable[[Any], bool], without: Sequence[str] = (), share: float = MOSTLY
    ) -> str | None:  # fmt: skip
        """Return the first of the usual names that a column has and whose values fit; the others are remembered for the
        notes. A column that was given is taken as it is.
        """
        if role in self.given:
            return self.given[role]
        if role in ("prompt", "messages") and not {"prompt", "messages"}.isdisjoint(self.given):
            return None
        by_name = {name.lower().replace("-", "_").replace(" ", "_"): name for name in self.names}
        usual = [by_name[name] for name in usual if name in by_name and by_name[name] not in without]
        fitting = [name for name in usual if self.mostly(name, fits, share)]
        self._others[role] = fitting[1:]
        return fitting[0] if fitting else None

    def notes(self, columns: Mapping[str, Any]) -> list[str]:
        """Name the columns that were chosen, and the alternatives."""
        notes = ["columns: " + ", ".join(f'{role} from "{name}"' for role, name in columns.items())]
        for role, name in columns.items():
            others = [other for other in self._others.get(role, []) if other not in columns.values()]
            if others:
                quoted = ", ".join(f'"{other}"' for other in others)
                change = f"columns: {{{role}: {others[0]}}}"
                notes.append(f'the {role} could also be {quoted}: "{name}" was taken; to change it: {change}')
        return notes + self.said

    def none_fits(self, wanted: str, *roles: str) -> DataError:
        """Return the error that no column fits what is wanted. roles: those that `--columns` can name."""
        shared = [name for name in self.names if self.mostly(name, _is_share_gpt)]
        hint = f"; name the columns: --columns {','.join(f'{role}=COLUMN' for role in roles)}" if roles else ""
        if shared:
            hint = f'; the messages of "{shared[0]}" are {{from, value}}: write them as {{role, content}}, with the roles user and assistant'
        return DataError(
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


def _are_messages(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(
            isinstance(turn, dict) and isinstance(turn.get("role"), str) and isinstance(turn.get("content"), str)
            for turn in value
        )
    )


def _is_prompt(value: Any) -> bool:
    return _is_text(value) or _are_messages(value)


def _is_conversation(value: Any) -> bool:
    """Messages that end with an answer."""
    return _are_messages(value) and value[-1]["role"] == "assistant"


def _is_share_gpt(value: Any) -> bool:
    return (
        isinstance(value, list) and bool(value) and isinstance(value[0], dict) and {"from", "value"} <= value[0].keys()
    )


def _are_records(row: Row) -> bool:
    return {"prompt", "id"} <= row.keys() <= Sample.model_fields.keys() and not {"responses", "rubric"}.isdisjoint(row)
