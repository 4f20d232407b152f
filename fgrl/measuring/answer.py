"""One answer of one model to a prompt, what was measured about it, and the file of an evaluation's answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fgrl.types import Annotation, Message, Record, Response, Sample, Span, Turn, read_jsonl, write_jsonl


class FollowUp(Record):
    """A later turn of a conversation: what the user asked next, and the response."""

    question: str
    response: Response
    n_tokens: int = 0
    """Tokens of the response, the end-of-sequence token counted; 0 where it was given as text."""


@dataclass
class Attribution:
    """A reward's record of one criterion of the prompt: the verdict, and the tokens that it depends on."""

    text: str
    """The criterion."""
    kept: bool | None
    """The verdict; None is missing."""
    relevance: list[float] | None = None
    """[T] how much the verdict depends on each token, 0 to 1; None where it is not known."""


class Answer(Record):
    """A model's response to a prompt, and what was measured about it.

    `T` response tokens, the end-of-sequence token counted; there are none where the response was given as text rather
    than drawn. Log-probabilities, KL and rewards are those of `response`, not of the follow-ups.

    A conversation with an environment is one response, with what the environment wrote. Log-probabilities and KL are of
    the tokens that the model drew.
    """

    model: str = ""
    """The name under which the evaluation compares it."""
    sample: Sample
    """The prompt with its references, its rubric and its meta; without responses."""
    response: Response
    follow_ups: list[FollowUp] = []
    """Questions after this response, with the responses to them."""
    turn: list[int] = []
    """[T] of a conversation with an environment: the number of the turn in which the model drew the token, from 0; -1: the
    environment wrote it. Empty: there was no environment.
    """
    turns: list[Turn] = []
    """Of a conversation: what the environment gave and answered for each turn, and what went wrong."""
    terminated: bool = True
    """False for a conversation that was truncated: more could have followed."""
    lost: str | None = None
    """Why the environment failed. Such a conversation is missing: the metric `environment` counts it, others leave it out."""
    tokens: list[str] = []
    """[T] decoded pieces, for display."""
    offsets: list[tuple[int, int]] = []
    """[T] characters of the response that each token covers; the end-of-sequence token covers none, at the end."""
    logp: float | None = None
    """Nats, summed over the response, under the model itself."""
    ref_logp: float | None = None
    """Nats, summed over the response, under the reference."""
    kl: float | None = None
    """Nats, summed over the response: KL(model || reference) of each next-token distribution, or its k1 estimate."""
    rewards: dict[str, float | None] = {}
    """Rewards of the whole response, by name of the reward; None = missing, as where a judge or a critic failed."""
    token_rewards: dict[str, list[float | None]] = {}
    """[T] by name of the reward; None = the reward says nothing about the token."""
    segments: dict[str, list[int]] = {}
    """[T] by name of the reward: index of the segment, -1 outside."""
    criteria: dict[str, list[Attribution]] = {}
    """By name of the reward: every criterion that it counts, in the rubric's order. Empty for a reward that reads no
    rubric.
    """
    verdicts: dict[str, bool | None] = {}
    """True if the response passes, by name of the metric that decides; None = could not be decided."""
    scores: dict[str, float] = {}
    """Numbers of this answer alone, by METRIC.NUMBER, such as its cosine to the reference."""
    violations: dict[str, list[Span]] = {}
    """Passages that break it (label -1), by name of the metric. A failed response without spans: it is broken nowhere
    in particular."""
    annotations: dict[str, Annotation | None] = {}
    """By name of the reward: what its critic recorded about the response, or None where that is missing. Empty for a
    reward without a critic.
    """

    @property
    def id(self) -> str:
        """The sample's id. Answers to one prompt share it, and so do the answers of several models: comparisons are
        paired by it, and intervals resample it.
        """
        return self.sample.id

    @property
    def text(self) -> str:
        """What the model wrote: the response's text; of a conversation its turns, one below the other."""
        return "\n".join(turn.text for turn in self.turns) if self.turns else self.response.text

    @property
    def chat(self) -> list[Message]:
        """The prompt as turns."""
        prompt = self.sample.prompt
        return [Message(role="user", content=prompt)] if isinstance(prompt, str) else prompt

    @property
    def question(self) -> str:
        """The prompt's last turn."""
        return self.chat[-1].content

    @property
    def references(self) -> list[str]:
        """Answers that the data consider right; several are alternatives."""
        reference = self.sample.reference
        return [reference] if isinstance(reference, str) else reference or []

    @property
    def n_tokens(self) -> int:
        """Tokens that the model drew: T, without those of an environment."""
        return sum(number >= 0 for number in self.turn) if self.turn else len(self.tokens)

    @property
    def given(self) -> bool:
        """It was given as text: there are no tokens, and whether it ended by itself is unknown."""
        return self.response.finished is None


def by_prompt(answers: Sequence[Answer]) -> dict[str, list[Answer]]:
    """Answers by the id of their prompt, in order."""
    groups: dict[str, list[Answer]] = {}
    for answer in answers:
        groups.setdefault(answer.id, []).append(answer)
    return groups


def write_answers(path: Path, answers: Mapping[str, Sequence[Answer]]) -> None:
    """One line an answer, finished by rename; `answers` by model. A number that is not finite is written as null."""
    write_jsonl(path, (answer.model_copy(update={"model": model}) for model, own in answers.items() for answer in own))


def read_answers(path: Path) -> dict[str, list[Answer]]:
    """Return the answers of a file by model, in the file's order; nothing where there is no file.

    Raises `DataError` with its place for a line that is no answer.
    """
    answers: dict[str, list[Answer]] = {}
    if path.exists():
        for answer in read_jsonl(path, Answer):
            answers.setdefault(answer.model, []).append(answer)
    return answers
