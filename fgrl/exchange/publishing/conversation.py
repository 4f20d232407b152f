"""A conversation with a language model: turns, answers while they are drawn, and the rewards of their tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fgrl import rollouts
from fgrl.base import lazy, seeds
from fgrl.base.errors import UsageError
from fgrl.kinds import DrawRequest, Engine, Reward, default_engine
from fgrl.kinds.specs import Sampling
from fgrl.pages.report.marked_tokens import MarkedTokens
from fgrl.rollouts.text import UNFINISHED
from fgrl.runs.results.text import reward_facts
from fgrl.types import DrawnResponse, Message, Sample

answering = lazy.load("fgrl.measuring.answering")
attributing = lazy.load("fgrl.measuring.attributing")


@dataclass(frozen=True)
class Reply:
    """An answer of the model."""

    drawn: DrawnResponse
    """The response that was drawn. It is not finished if the length limit or Ctrl-C ended it."""
    stopped: bool
    """True if Ctrl-C ended it."""

    @property
    def text(self) -> str:
        return self.drawn.text


@dataclass
class Conversation:
    """A conversation up to now. An answer is drawn from a separate random stream: the same seed and words give the same
    answers.
    """

    name: str
    model: Any
    """A `fgrl.models.LanguageModel`."""
    temperature: float = 0.7
    max_tokens: int = 256
    """Maximum number of tokens of an answer."""
    seed: int = 0
    system: str | None = None
    """Text of the system turn; None leaves it to the chat template."""
    turns: list[Message] = field(default_factory=list)
    """Questions and answers."""
    engine: Engine = field(default_factory=default_engine)

    def __post_init__(self) -> None:
        room = self.model.max_tokens
        if room is not None and self.max_tokens >= room:
            raise UsageError(
                f"--max-tokens {self.max_tokens} leaves no room for a question: {self.name} reads {room} tokens in all"
            )

    @property
    def remembers(self) -> bool:
        """True if the model sees earlier turns. It does not see them without a chat template: each text is then
        continued separately.
        """
        return bool(self.model.tokenizer.chat_template)

    def reset(self) -> None:
        """Forget all questions and answers; the system turn stays."""
        self.turns.clear()

    def prompt(self, question: str) -> str | list[Message]:
        """Return the text or turns that the model reads before it answers."""
        if not self.remembers:
            return question
        first = [] if self.system is None else [Message(role="system", content=self.system)]
        return [*first, *self.turns, Message(role="user", content=question)]

    def ask(self, question: str, shown: Callable[[str], None] = lambda _text: None) -> Reply:
        """Return the answer, which becomes a turn. `shown` gets its text piece by piece while it is drawn; Ctrl-C ends
        it.

        Raises `DataError` if the chat template refuses the conversation; then nothing is remembered.
        """
        prompt = self.prompt(question)
        room = None if self.model.max_tokens is None else self.model.max_tokens - self.max_tokens
        asked = rollouts.encode_prompt(self.model.tokenizer, prompt, room)
        drawn: list[int] = []
        printed = ""
        sampling = Sampling(max_new_tokens=self.max_tokens, max_prompt_tokens=len(asked), temperature=self.temperature)
        stopped = False
        seed = seeds.of_turn(self.seed, len(self.turns) // 2)
        try:
            with self.engine.open(self.model) as drawer:
                for token in drawer.stream(DrawRequest(asked, sampling, seed, row=0)):
                    drawn.append(token)
                    text = rollouts.decode(self.model.tokenizer, drawn)
                    if not text.endswith(UNFINISHED) and text.startswith(printed):
                        new, printed = text[len(printed) :], text
                        shown(new)
        except KeyboardInterrupt:
            stopped = True
        answer = rollouts.given(self.model, asked, drawn)
        text = answer.text
        if text.startswith(printed):
            shown(text[len(printed) :])
        if self.remembers:
            self.turns += [Message(role="user", content=question), Message(role="assistant", content=text)]
        return Reply(answer, stopped)


def rewarded(
    reward: Reward, model: Any, reference: Any, question: str | Sequence[Message], reply: Reply, title: str = ""
) -> MarkedTokens:
    """Return an answer with the reward of every token. reference: a model, or None for `model` with its adapter switched
    off.

    Raises `DataError` if the reward reads token ids of another tokenizer, and `UsageError` if it reads a reference and
    there is none.
    """
    rollouts.check_same_tokens(model, reward=reward.tokenizer())
    needs = frozenset({"offsets"} | reward.needs())
    if reference is None and not model.adapted and needs & {"ref_logp", "ref_kl", "ref_entropy"}:
        raise UsageError(
            "the reward reads a reference model (to divide answers into segments, or for the KL), and this model has no adapter that "
            "could be switched off: name the reference as the second model"
        )
    prompt = question if isinstance(question, str) else list(question)
    sample = Sample(id="chat", prompt=prompt)
    rollout = attributing.as_rollout([reply.drawn], model, needs=needs, reference=reference, samples=[sample])
    rewards = reward.score(rollout)
    values = answering.token_rewards(rewards, 0, len(reply.drawn))
    total, pieces = answering.response_reward(rewards, 0), rollouts.pieces(model.tokenizer, reply.drawn, values)
    facts = [("reward", "missing")] if total is None else reward_facts(total, values)
    return MarkedTokens(title, pieces, ["response"] * len(pieces), values=values, facts=facts)
