"""Conversations of a policy with an environment, as responses whose tokens have authors.

The environment is asked as soon as turns finish. Each turn is drawn from a separate random stream, identified by its
conversation and its number, so neither the order nor the speed of the environment changes a response.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fgrl.base import seeds
from fgrl.base.errors import DataError, FgrlError
from fgrl.kinds import Drawer, Drawing, DrawRequest, Environment, Episode
from fgrl.kinds.environment import FAILURES
from fgrl.rollouts.replies import reply_ids, rewritten, shortened
from fgrl.rollouts.steps import Steps
from fgrl.rollouts.text import decode, encode_prompt
from fgrl.types import DrawnResponse, Message, Prompt, Turn

SHOWN = 80
"""Maximum number of characters of a turn in an error message."""


class Conversing(Drawer):
    """Drawer whose responses are conversations of another drawer with an environment."""

    converses = True

    def __init__(self, drawer: Drawer, environment: Environment, model: Any) -> None:
        self.drawer, self.environment, self.model = drawer, environment, model

    def draw(self, requests: Sequence[DrawRequest]) -> list[DrawnResponse]:
        return self.drawing().all_of(requests)

    def drawing(self) -> Drawing:
        return Conversations(self)

    def take(self, weights: Any, version: int) -> None:
        self.drawer.take(weights, version)

    def rest(self) -> None:
        self.drawer.rest()

    def wake(self) -> None:
        self.drawer.wake()

    def close(self) -> None:
        self.drawer.close()


def talking(drawer: Drawer, environment: Environment | None, model: Any) -> Drawer:
    """Return the drawer of a model's conversations with an environment, or the drawer itself if there is no
    environment.
    """
    return drawer if environment is None else Conversing(drawer, environment, model)


@dataclass
class Conversation:
    """An unfinished conversation."""

    request: DrawRequest
    episode: Episode | None = None
    prompt: Prompt = field(default_factory=lambda: Prompt(()))
    token_ids: list[int] = field(default_factory=list)
    logp: list[float] = field(default_factory=list)
    authors: list[int] = field(default_factory=list)
    text: str = ""
    """Text of the last turn."""
    turns: list[Turn] = field(default_factory=list)
    version: int = 0
    limited: bool = False
    """True after a limit has ended it."""
    over: DrawnResponse | None = None
    """The response, while the episode is being closed."""

    @property
    def left(self) -> int:
        return self.request.sampling.max_new_tokens - len(self.token_ids)

    def response(self, *, terminated: bool = True, lost: str | None = None) -> DrawnResponse:
        """Return the conversation so far."""
        return DrawnResponse(
            self.token_ids, "end" if terminated and lost is None else "length", self.version, self.logp or None, self.authors,
            tuple(self.turns), terminated, lost, prompt=self.prompt,
        )  # fmt: skip


class Conversations(Drawing):
    """The conversations of one drawing, by the number of their request."""

    drawer: Conversing

    def __init__(self, drawer: Conversing) -> None:
        super().__init__(drawer)
        self.environment, self.tokenizer = drawer.environment, drawer.model.tokenizer
        self._engine = drawer.drawer.drawing()
        self._steps = Steps(one_at_a_time=self.environment.one_at_a_time())
        self._going_on: dict[int, Conversation] = {}
        self._asked: dict[int, int] = {}
        """Number of the conversation, by the number of the engine's request."""

    def submit(self, requests: Sequence[DrawRequest]) -> range:
        own = super().submit(requests)
        for number in own:
            request = self.waiting.pop(number)
            assert request.sample is not None
            self._going_on[number] = Conversation(request)
            self._call(number, self.environment.begin, request.sample, seed_of(request))
        return own

    def __iter__(self) -> Iterator[tuple[int, DrawnResponse]]:
        while self._going_on:
            yield from self._answered(wait=not self._asked)
            for other, drawn in self._engine if self._asked else ():
                number = self._asked.pop(other)
                self._drawn(self._going_on[number], number, drawn)
                yield from self._answered()

    def _call(self, number: int, function: Any, *arguments: Any) -> None:
        self._steps.call(number, self.environment.step_seconds, function, *arguments)

    def _drawn(self, talk: Conversation, number: int, drawn: DrawnResponse) -> None:
        """Add a turn of the policy, and send it to the environment."""
        talk.token_ids += drawn.token_ids
        talk.logp += drawn.token_logp or []
        talk.authors += [len(talk.turns)] * len(drawn)
        talk.version = drawn.version
        talk.text = decode(self.tokenizer, drawn)
        assert talk.episode is not None
        text = self.tokenizer.decode(drawn.token_ids) if talk.episode.special else talk.text
        self._call(number, talk.episode.step, text)

    def _answered(self, *, wait: bool = False) -> Iterator[tuple[int, DrawnResponse]]:
        """Continue the conversations in which the environment has answered. Yield the conversations that have ended."""
        for number, outcome in self._steps.finished(wait=wait):
            talk = self._going_on[number]
            if talk.over is not None:
                if isinstance(outcome, BaseException) and not isinstance(outcome, FAILURES):
                    raise outcome
                del self._going_on[number]
                yield number, talk.over
                continue
            read = self._begun if talk.episode is None else self._limited if talk.limited else self._stepped
            over = read(talk, outcome)
            if over is None and talk.limited:
                assert talk.episode is not None
                self._call(number, talk.episode.limited)
            elif over is None:
                self._next_turn(talk, number)
            elif talk.episode is None or isinstance(outcome, TimeoutError) or type(talk.episode).close is Episode.close:
                del self._going_on[number]
                yield number, over
            else:
                talk.over = over
                self._call(number, talk.episode.close)

    def _begun(self, talk: Conversation, outcome: Any) -> DrawnResponse | None:
        if isinstance(outcome, FAILURES):
            talk.prompt = Prompt((self.drawer.model.pad_id,))  # models read no empty ones
            return talk.response(lost=_said(outcome))
        if isinstance(outcome, BaseException):
            raise outcome
        talk.episode = outcome
        outcome.tokenizer = self.tokenizer
        talk.prompt = opening(self.tokenizer, talk.request, outcome)
        return None

    def _stepped(self, talk: Conversation, outcome: Any) -> DrawnResponse | None:
        """Add the environment's answer. Return the response if the environment has ended the conversation."""
        error = None
        if isinstance(outcome, FgrlError):  # a budget that is spent, an endpoint that knows no such model
            raise outcome
        if isinstance(outcome, Exception) and not isinstance(outcome, FAILURES):
            error = _said(outcome)
            outcome = f"Error: {outcome}", self.environment.error_reward, False, False, {}
        elif isinstance(outcome, BaseException) and not isinstance(outcome, FAILURES):
            raise outcome
        problem = _said(outcome) if isinstance(outcome, BaseException) else _unfit(outcome)
        if problem is not None:
            return talk.response(lost=problem)
        observation, reward, terminated, truncated, info = outcome
        number, end = len(talk.turns), len(talk.token_ids)
        observation = observation.encode("utf-8", "replace").decode()
        if error is None and info and isinstance(info.get("error"), str):
            error = info["error"]
        assert talk.episode is not None
        turn = Turn(
            end, float(reward), talk.text, observation, talk.episode.role, talk.version, error, _numbers(info)
        )  # fmt: skip
        talk.turns.append(turn)
        if not (terminated or truncated) and number + 1 < self.environment.max_turns:
            reply, whole = self._reply(talk, observation)
            if reply is not None and (whole or self.environment.long_observation == "cut"):
                text, ids = reply
                talk.turns[-1] = replace(turn, observation=text)
                talk.token_ids += ids
                talk.authors += [-1] * len(ids)
                talk.logp += [0.0] * len(ids) if talk.logp else []
                return None
        talk.turns[-1] = replace(turn, observation=shortened(self.tokenizer, observation, self._longest))
        talk.limited = not (terminated or truncated)
        return None if talk.limited else talk.response(terminated=bool(terminated))

    def _limited(self, talk: Conversation, outcome: Any) -> DrawnResponse:
        """Add the environment's outcome at a limit, and return the response."""
        turn, added, error = talk.turns[-1], outcome, None
        if isinstance(outcome, Exception) and not isinstance(outcome, FAILURES):
            added, error = self.environment.error_reward, _said(outcome)
        elif isinstance(outcome, BaseException) and not isinstance(outcome, FAILURES):
            raise outcome
        problem = _said(added) if isinstance(added, BaseException) else _unfit(("", added, False, True, {}))
        if problem is None:
            talk.turns[-1] = replace(turn, reward=turn.reward + float(added), error=error or turn.error)
        return talk.response(terminated=False, lost=problem)

    @property
    def _longest(self) -> int:
        return self.environment.max_observation_tokens

    def _reply(self, talk: Conversation, observation: str) -> tuple[tuple[str, list[int]] | None, bool]:
        """Return the part of an observation that fits, with its ids, and whether it is complete; None if there is no
        room.
        """

        def ids(text: str) -> list[int]:
            reply = Message(role=talk.turns[-1].role, content=text)
            return reply_ids(self.tokenizer, talk.prompt.turns, reply, talk.token_ids[-1] if talk.token_ids else None)

        if self.environment.rewritten_turns == "refuse":
            drawn = [
                token for token, turn in zip(talk.token_ids, talk.authors, strict=True) if turn == len(talk.turns) - 1
            ]
            said = self.tokenizer.decode(drawn, skip_special_tokens=True)
            if rewritten(
                self.tokenizer, talk.prompt.turns, said, Message(role=talk.turns[-1].role, content=observation)
            ):
                raise DataError(
                    f"the chat template writes an earlier turn otherwise than it was drawn: {said[-SHOWN:]!r} is not in what it writes. "
                    "`rewritten_turns: append` goes on with the ids that were drawn; or name another template as `chat_template` of the model"
                )
        room = min(self._longest, talk.left - 1 - len(ids("")))
        if room < 1:
            return None, False
        text = shortened(self.tokenizer, observation, room)
        while len(written := ids(text)) >= talk.left and room > 1:  # where texts and headers share tokens
            room -= 1
            text = shortened(self.tokenizer, observation, room)
        return (None if len(written) >= talk.left else (text, written)), text == observation

    def _next_turn(self, talk: Conversation, number: int) -> None:
        request, most = talk.request, self.environment.max_turn_tokens
        limit = talk.left if most is None else min(most, talk.left)
        least = min(request.sampling.min_new_tokens, limit)
        sampling = request.sampling.model_copy(update={"max_new_tokens": limit, "min_new_tokens": least})
        read = replace(talk.prompt, token_ids=(*talk.prompt.token_ids, *talk.token_ids))
        turn = replace(
            request, prompt=read, sampling=sampling, row=stream_of(request.row, len(talk.turns)), sample=None
        )
        (other,) = self._engine.submit([turn])
        self._asked[other] = number


def opening(tokenizer: Any, request: DrawRequest, episode: Episode) -> Prompt:
    """Return the prompt at the start of a conversation. Raises `DataError` for an empty prompt."""
    sample = request.sample
    assert sample is not None
    first = sample.prompt if episode.prompt is None else episode.prompt
    if problem := empty_prompt(sample.id, first):
        raise problem
    return encode_prompt(tokenizer, first, request.sampling.max_prompt_tokens, episode.tools)


def empty_prompt(name: str, prompt: str | Sequence[Message]) -> DataError | None:
    """Return the error of a prompt without text; None for other prompts."""
    if prompt if isinstance(prompt, str) else any(turn.content for turn in prompt):
        return None
    return DataError(
        f"sample {name} has an empty prompt, and nothing brings another: name an environment that begins with a prompt of its own "
        "as `rollout.environment`, or give the reader a prompt"
    )


def seed_of(request: DrawRequest) -> int:
    """Return the seed of a conversation: the seed in its sample (`meta: {seed: ...}`), else one for its group."""
    assert request.sample is not None
    given = request.sample.meta.get("seed")
    return given if isinstance(given, int) else seeds.of_name(f"environment\0{request.seed}\0{request.group}", 4) >> 1


def stream_of(row: int, turn: int) -> int:
    """Return the number of the random stream of a turn."""
    return row if turn == 0 else seeds.of_name(f"turn\0{row}\0{turn}")


def _said(problem: BaseException) -> str:
    return f"{type(problem).__name__}: {problem}" if str(problem) else type(problem).__name__


def _unfit(outcome: Any) -> str | None:
    """Return the error in the five values of an environment, or None if they are valid."""
    if not isinstance(outcome, tuple) or len(outcome) != 5:
        return f"step returned {type(outcome).__name__}, not (observation, reward, terminated, truncated, info)"
    observation, reward, _terminated, _truncated, info = outcome
    if not isinstance(observation, str):
        return f"the observation is no text but {type(observation).__name__}"
    if not isinstance(reward, numbers.Real) or not math.isfinite(reward):
        return f"the reward is no finite number but {reward!r}"
    return None if info is None or isinstance(info, Mapping) else f"info is no mapping but {type(info).__name__}"


def _numbers(info: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the finite numbers of an environment's `info`."""
    return {
        str(name): float(value)
        for name, value in (info or {}).items()
        if isinstance(value, numbers.Real) and math.isfinite(value)
    }
