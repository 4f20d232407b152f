"""Calling users' functions with the keyword arguments that TRL passes to reward functions.

| argument | what it is |
|---|---|
| prompts | a text, or a list of messages `{"role": ..., "content": ...}`, as the data have it |
| completions | a text, or a list of one message where the prompt is a list of messages |
| completion_ids | token ids, the end-of-sequence token counted |
| trainer_state | `global_step` and `max_steps` of the training |
| log_metric(name, value), log_extra(column, values) | a number for the log; a value for each completion |
| every column that the reader keeps, `reference`, `rubric`, `id` | a list; None where a row does not have it |

and, beyond TRL, `completion_tokens` (the text of each token) and `completion_offsets` (the characters that each
covers). All are lists with one item per completion. A function gets what its signature takes, so it may leave out
`**kwargs`.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections.abc import Awaitable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from fgrl.base import lazy
from fgrl.base.errors import DataError, UserCodeError
from fgrl.kinds.functions import file as files
from fgrl.kinds.functions import returned
from fgrl.kinds.functions.reporting import as_user_error, report
from fgrl.kinds.functions.returned import Returned
from fgrl.kinds.functions.signatures import IN_WORDS, Function, Returns
from fgrl.registry.explaining import nearby
from fgrl.registry.problems import nearest
from fgrl.registry.shielding import shielded
from fgrl.types import Message, Sample

if TYPE_CHECKING:
    import asyncio
else:
    asyncio = lazy.load("asyncio")

Form = Literal["as_prompt", "text", "messages"]
"""Form of completions: as in TRL (messages if the prompt is a list of messages, else texts), always texts, or always
messages.
"""
OF_TEXTS = ("prompts", "completions")
OF_TOKENS = ("completion_ids", "completion_tokens", "completion_offsets")
OF_LOGS = ("log_extra", "log_metric")
STATE = "trainer_state"
GIVEN = (*OF_TEXTS, *OF_TOKENS, *OF_LOGS, STATE)
"""Names of the arguments that are not columns."""


@dataclass(frozen=True)
class TrainerState:
    """Progress of the training, under the names of `transformers.TrainerState`."""

    global_step: int
    """Number of optimizer steps taken."""
    max_steps: int
    """Number of optimizer steps of the whole training."""


@dataclass
class Texts:
    """N responses to prompts, as functions see them."""

    samples: Sequence[Sample]
    """The prompts."""
    texts: Sequence[str]
    ids: Sequence[Sequence[int]] | None = None
    """[N][T] token ids; None if they are unknown."""
    offsets: Sequence[Sequence[tuple[int, int]]] | None = None
    """[N][T] characters of the text that each token covers; None if they are unknown."""
    state: TrainerState | None = None
    """Progress of the training; None if nothing is being trained."""
    conversations: Sequence[Sequence[Message]] | None = None
    """[N] responses to an environment, message by message; None if there is no environment."""
    logs: bool = False
    """True if there is a log for `log_metric` and `log_extra`."""
    metrics: dict[str, list[float]] = field(default_factory=dict)
    """Values that `log_metric` was called with."""
    extras: dict[str, list[Any]] = field(default_factory=dict)
    """[N] values that `log_extra` was called with."""

    def arguments(self, form: Form) -> dict[str, Any]:
        """Return every known keyword argument, by name."""
        chats = [_chats(sample, form) for sample in self.samples]
        known: dict[str, Any] = {
            "prompts": [_prompt(sample, form) for sample in self.samples],
            "completions": [
                [message.model_dump() for message in own] if chat else text
                for chat, own, text in zip(chats, self._messages(), self.texts, strict=True)
            ],
        }
        if self.ids is not None:
            known["completion_ids"] = [list(own) for own in self.ids]
        if self.offsets is not None:
            known["completion_offsets"] = [list(own) for own in self.offsets]
            known["completion_tokens"] = [
                [text[start:end] for start, end in own] for text, own in zip(self.texts, self.offsets, strict=True)
            ]
        if self.state is not None:
            known["trainer_state"] = self.state
        if self.logs:
            known |= {"log_metric": self._log_metric, "log_extra": self._log_extra}
        return columns(self.samples) | known

    def _messages(self) -> Sequence[Sequence[Message]]:
        return self.conversations or [[Message(role="assistant", content=text)] for text in self.texts]

    def _log_metric(self, name: str, value: float) -> None:
        self.metrics.setdefault(str(name), []).append(float(value))

    def _log_extra(self, column: str, values: list[Any]) -> None:
        if len(values) != len(self.texts):
            raise ValueError(f"log_extra({column!r}): {len(values)} values for {len(self.texts)} completions")
        plain = [value.tolist() if hasattr(value, "tolist") else value for value in values]
        for place, value in enumerate(plain):
            try:
                json.dumps([column, value], ensure_ascii=False, allow_nan=False).encode()
            except (TypeError, ValueError) as error:  # a lone surrogate, too
                what = f"log_extra({column!r}): the value for completion {place} cannot be JSON"
                raise ValueError(f"{what}: {error}") from None
        self.extras[str(column)] = plain


def columns(samples: Sequence[Sample]) -> dict[str, list[Any]]:
    """Return the columns of the data by name, each with one item per sample; None for a sample that does not have it.

    Raises `DataError` for a column with the name of another argument.
    """
    names = dict.fromkeys(name for sample in samples for name in sample.meta)
    taken = next((name for name in names if name in GIVEN), None)
    if taken is not None:
        raise DataError(
            f"the data has a column {taken!r}, and functions have an argument of this name: give the column another name"
        )
    known: dict[str, list[Any]] = {"id": [sample.id for sample in samples]}
    if any(sample.reference is not None for sample in samples):
        known["reference"] = [sample.reference for sample in samples]
    if any(sample.rubric for sample in samples):
        known["rubric"] = [[criterion.model_dump() for criterion in sample.rubric] for sample in samples]
    return known | {name: [copy.deepcopy(sample.meta.get(name)) for sample in samples] for name in names}


class Caller:
    """Caller of users' functions, with their arguments other than the responses."""

    def __init__(
        self, paths: Sequence[str], *, allowed: Collection[Returns], arguments: Mapping[str, Any], form: Form
    ) -> None:
        """Check the functions. paths: `/.../rewards.py:score`. allowed: permitted kinds of return value. arguments:
        further keyword arguments, for the functions that accept them. Raises ValueError if the functions do not fit.
        """
        self.paths, self.allowed, self.given, self.form = paths, allowed, arguments, form
        self._loaded: list[Function] | None = None
        self.looked = [files.look(path) for path in paths]
        """The functions, used only for their signatures."""
        self.kinds = [self._kind(function) for function in self.looked]
        for name in arguments:
            if name in GIVEN:
                raise ValueError(f"arguments: {name!r} is an argument that the functions get anyway")
            if not any(function.takes(name) for function in self.looked):
                raise ValueError(f"arguments: no function takes {name!r}: add it to the parameters")

    def functions(self) -> list[Function]:
        """Return the functions from files that were executed for this object alone, so that no state of other stages is
        left.
        """
        if self._loaded is None:
            self._loaded = files.load(self.paths)
        return self._loaded

    @property
    def names(self) -> list[str]:
        """Return the names of the functions in logs: their own names, preceded by the file's if two are equal."""
        names = [function.name for function in self.looked]
        return [
            name if names.count(name) == 1 else f"{function.file.stem}.{name}"
            for name, function in zip(names, self.looked, strict=True)
        ]

    def needs_offsets(self) -> bool:
        """Return True if a function returns spans, or takes the text or the characters of tokens."""
        asked = ("completion_tokens", "completion_offsets")
        return "spans" in self.kinds or any(name in function.parameters for function in self.looked for name in asked)

    def check_arguments(self, samples: Sequence[Sample], available: Collection[str]) -> None:
        """Raise `UserCodeError` if a function requires an argument that is not available. available: names in `GIVEN`
        that are available, besides the prompts and their columns.
        """
        own = list(columns(samples))
        for function in self.looked:
            for name in function.requires():
                if name not in (*own, *available, *self.given):
                    raise self._without(function, name, own, available)

    def call(self, texts: Texts) -> list[Returned]:
        """Return the checked results of each function for these responses. Raises `UserCodeError`."""
        lengths = [len(own) for own in (texts.ids if texts.ids is not None else texts.offsets or ())]
        return [
            returned.checked(function, kind, value, texts.texts, lengths)
            for function, kind, value in zip(self.functions(), self.kinds, self.values(texts), strict=True)
        ]

    def values(self, texts: Texts) -> list[Any]:
        """Return the results of each function for these responses, not yet checked. Async functions wait at the same
        time, as in TRL. Raises `UserCodeError` for their exceptions.
        """
        known = texts.arguments(self.form)
        self.check_arguments(texts.samples, [name for name in known if name in GIVEN])
        values: list[Any] = []
        waiting: dict[int, Awaitable[Any]] = {}
        for place, function in enumerate(self.functions()):
            # copies: each function may change what it gets
            known = texts.arguments(self.form) | copy.deepcopy(dict(self.given))
            own = {name: value for name, value in known.items() if function.takes(name)}
            with shielded(function.place), self._reported(function, texts):
                value = returned.collected(function.call(**own))
            values.append(value)
            if inspect.isawaitable(value):
                waiting[place] = self._awaited(function, value, texts)
        if waiting:
            with shielded(" and ".join(self.functions()[place].place for place in waiting)):
                for place, value in zip(waiting, together(list(waiting.values())), strict=True):
                    values[place] = value
        return values

    async def _awaited(self, function: Function, value: Awaitable[Any], texts: Texts) -> Any:
        with self._reported(function, texts, asyncio.current_task()):
            return returned.collected(await value)

    @contextmanager
    def _reported(self, function: Function, texts: Texts, task: asyncio.Task[Any] | None = None) -> Iterator[None]:
        """Turn an exception of the function into a `UserCodeError`. task: the task in which an async function runs."""
        try:
            yield
        except BaseException as error:
            if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
                raise  # another function has failed
            chats = any(_chats(sample, self.form) for sample in texts.samples)
            form, other = ('lists of one message, completion[0]["content"]', "text") if chats else ("texts", "messages")
            hint = f"completions are {form} here (the field `completions: {other}` of the recipe changes that)"
            notes = [hint] if isinstance(error, TypeError | AttributeError | KeyError) else []
            if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
                notes.append("the memory was full while this function ran: let it score fewer completions at a time")
            notes.append(f"called with {len(texts.texts)} completions")
            user = as_user_error(error, *notes, called=function.name, at=(function.file, function.line))
            if user is None or user is error:
                raise
            raise user from error

    def _kind(self, function: Function) -> Returns:
        kind = function.kind()
        if kind is None or kind not in self.allowed:
            wanted = " or ".join(IN_WORDS[allowed] for allowed in IN_WORDS if allowed in self.allowed)
            text = inspect.formatannotation(function.returns)
            place = f"{nearby(function.file)}:{function.line}"
            raise ValueError(f"{place}: {function.name} is annotated with -> {text}; wants {wanted}")
        return kind

    def _without(
        self, function: Function, name: str, known: Sequence[str], available: Collection[str]
    ) -> UserCodeError:
        near = nearest(name, [*known, *available])
        if name in GIVEN:
            what, step = "which is not known here", f"give it a default: {name}=None"
        else:
            guess = f'did you mean "{near}"? ' if near else ""
            if not near and not set(GIVEN) & set(function.parameters):
                guess = "the answers are in `completions`; else "
            what = "and there is no such column"
            step = f"{guess}name it under `columns: {{meta: [{name}]}}` of the reader, under `arguments`, or give it a default"
        what = f"{function.name} needs the argument {name!r}, {what}"
        return UserCodeError(report(function.file, function.line, what, f"the columns are: {', '.join(known)}", step))


def together(waiting: Sequence[Awaitable[Any]]) -> list[Any]:
    """Return the results of coroutines that wait at the same time. If one of them raises, the others are cancelled.
    Works inside a running event loop (a notebook), too.
    """

    async def gather() -> list[Any]:
        return await asyncio.gather(*waiting)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(gather())
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, gather()).result()


def _chats(sample: Sample, form: Form) -> bool:
    return form == "messages" or (form == "as_prompt" and not isinstance(sample.prompt, str))


def _prompt(sample: Sample, form: Form) -> Any:
    if isinstance(sample.prompt, str):
        return [{"role": "user", "content": sample.prompt}] if form == "messages" else sample.prompt
    return [{"role": turn.role, "content": turn.content} for turn in sample.prompt]
