"""One answer of one model to a prompt with its measurements, and the file of an evaluation's answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from fgrl.types import Annotation, Message, Record, Response, Sample, Span, Turn, read_jsonl, write_jsonl


class FollowUp(Record):
    """Later turn of a conversation: the user's next question, and the response."""

    question: str
    response: Response
    n_tokens: int = 0
    """Number of tokens of the response, including the end-of-sequence token; 0 if it was given as text."""


@dataclass
class Attribution:
    """A reward's record of one criterion of the prompt: the verdict, and the tokens that it depends on."""

    text: str
    """Text of the criterion."""
    kept: bool | None
    """Verdict: True if the criterion is satisfied; None if it is missing."""
    relevance: list[float] | None = None
    """[T] degree to which the verdict depends on each token, 0 to 1; None if it is unknown."""


class Answer(Record):
    """A model's response to a prompt, and its measurements.

    `T` is the number of response tokens, including the end-of-sequence token; there are none if the response was given
    as text rather than drawn. Log-probabilities, KL and rewards are those of `response`, not of the follow-ups.

    A conversation with an environment is one response, including the environment's text. Log-probabilities and KL are
    of the tokens that the model drew.
    """

    model: str = ""
    """Name of the model in the evaluation."""
    sample: Sample
    """Prompt with its references, its rubric and its meta; without responses."""
    response: Response
    follow_ups: list[FollowUp] = []
    """Questions after this response, with the responses to them."""
    turn: list[int] = []
    """[T] for a conversation with an environment: the number of the turn in which the model drew the token, from 0; -1
    if the environment wrote it. Empty without an environment.
    """
    turns: list[Turn] = []
    """Turns of a conversation with an environment: the rewards and answers of the environment, and errors."""
    terminated: bool = True
    """False for a conversation that was truncated before its end."""
    lost: str | None = None
    """Error of the environment. Such a conversation is missing: the metric `environment` counts it, others leave it
    out.
    """
    tokens: list[str] = []
    """[T] decoded pieces, for display."""
    offsets: list[tuple[int, int]] = []
    """[T] characters of the response that each token covers; the end-of-sequence token covers none, at the end."""
    logp: float | None = None
    """Log-probability under the model itself, in nats, summed over the response."""
    ref_logp: float | None = None
    """Log-probability under the reference, in nats, summed over the response."""
    kl: float | None = None
    """KL(model || reference) of each next-token distribution, in nats, summed over the response, or its k1 estimate."""
    rewards: dict[str, float | None] = {}
    """Rewards of the whole response, by name of the reward; None = missing, for example because a judge or a critic
    failed.
    """
    token_rewards: dict[str, list[float | None]] = {}
    """[T] by name of the reward; None = the reward has no value for the token."""
    segments: dict[str, list[int]] = {}
    """[T] by name of the reward: index of the segment, -1 outside all segments."""
    criteria: dict[str, list[Attribution]] = {}
    """Every criterion that a reward counts, in the rubric's order, by name of the reward. Empty for a reward that reads
    no rubric.
    """
    verdicts: dict[str, bool | None] = {}
    """True if the response passes, by name of the metric that decides; None = undecided."""
    scores: dict[str, float] = {}
    """Numbers of this answer alone, by METRIC.NUMBER, such as its cosine to the reference."""
    violations: dict[str, list[Span]] = {}
    """Passages that violate a metric's rule (label -1), by name of the metric. A failed response without spans violates
    the rule as a whole.
    """
    annotations: dict[str, Annotation | None] = {}
    """Annotation by the reward's critic, by name of the reward; None if it is missing. Empty for a reward without a
    critic.
    """

    @property
    def id(self) -> str:
        """Return the sample's id. Answers to one prompt have the same id, also those of different models: comparisons
        are paired by it, and intervals resample it.
        """
        return self.sample.id

    @property
    def text(self) -> str:
        """Return the text that the model wrote: the response's text; for a conversation, the texts of its turns on
        separate lines.
        """
        return "\n".join(turn.text for turn in self.turns) if self.turns else self.response.text

    @property
    def chat(self) -> list[Message]:
        """Return the prompt as turns."""
        prompt = self.sample.prompt
        return [Message(role="user", content=prompt)] if isinstance(prompt, str) else prompt

    @property
    def question(self) -> str:
        """Return the prompt's last turn."""
        return self.chat[-1].content

    @property
    def references(self) -> list[str]:
        """Return the answers that are correct according to the data; several are alternatives."""
        reference = self.sample.reference
        return [reference] if isinstance(reference, str) else reference or []

    @property
    def n_tokens(self) -> int:
        """Return the number of tokens that the model drew: T, without those of an environment."""
        return sum(number >= 0 for number in self.turn) if self.turn else len(self.tokens)

    @property
    def given(self) -> bool:
        """Return True if the response was given as text: there are no tokens, and it is unknown whether it ended by
        itself.
        """
        return self.response.finished is None


def by_prompt(answers: Sequence[Answer]) -> dict[str, list[Answer]]:
    """Return answers by the id of their prompt, in order."""
    groups: dict[str, list[Answer]] = {}
    for answer in answers:
        groups.setdefault(answer.id, []).append(answer)
    return groups


def write_answers(path: Path, answers: Mapping[str, Sequence[Answer]]) -> None:
    """Write one line for each answer, finished by rename; `answers` by model. A number that is not finite is written as
    null.
    """
    write_jsonl(path, (answer.model_copy(update={"model": model}) for model, own in answers.items() for answer in own))


def read_answers(path: Path) -> dict[str, list[Answer]]:
    """Return the answers of a file by model, in the file's order; an empty mapping if there is no file.

    Raises `DataError` with the place of a line that is not an answer.
    """
    answers: dict[str, list[Answer]] = {}
    if path.exists():
        for answer in read_jsonl(path, Answer):
            answers.setdefault(answer.model, []).append(answer)
    return answers
