"""A few rollouts of the first, the middle and the last iteration of a training, for the report.

In the stage's folder, while it trains:

    rollouts/<iteration>.jsonl    one `StoredRollout` per line, written before the iteration is trained on

and at the end rollouts.jsonl of the product, all of them in order. Which iteration is the last one is not known before
(a training may end early), so the newest one is kept, and replaces the one before it. An iteration that is repeated
after a kill writes the same lines again.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fgrl import lazy
from fgrl.evaluation.answer import Answer
from fgrl.files import write_lines
from fgrl.types import Annotation, Message, Response, Sample, write_jsonl

if TYPE_CHECKING:
    from torch import Tensor

    from fgrl.types import Advantages, Rewards, Rollout
rollouts = lazy.load("fgrl.rollouts")
torch = lazy.load("torch")

ROLLOUTS = "rollouts.jsonl"
"""In the product."""
FOLDER = "rollouts"
DIGITS = 6
"""Significant digits of rewards and advantages."""
MOST_TOKENS = 2048
"""Of a response that are stored; the others are counted."""
MOST_TURNS = 8
"""Of a prompt that is a conversation: the last ones."""
MOST_CHARACTERS = 10_000
"""Of a prompt's turn, of a critique, and of each reason in an annotation."""
MOST_SPANS = 200
"""Of an annotation."""


class StoredRollout(Answer):
    """A response of the training, with what it was trained on.

    `token_rewards`, `segments` and `annotations` have one entry, by the reward's name, as the reward gave them
    (`TokenRewards` changes the advantages alone); `response.score` is the reward of the whole response, None where it
    is missing. Long texts are cut.
    """

    iteration: int
    """From 0, as the log counts its steps."""
    advantages: list[float | None] | None = None
    """[T] what the loss weighs each token's probability with, before a correction for the engine, a number a token, None
    for a token that the loss does not count; None where the response was not trained on.
    """
    staleness: int | None = None
    """How many iterations before this one the policy had the weights that drew it; None where the engine draws from the
    policy itself.
    """
    tokens_left_out: int = 0
    """Tokens at the end of the response that are not stored."""
    spans_left_out: int = 0
    """Marked passages that are not stored: those behind the stored tokens, and those behind the first `MOST_SPANS`."""


class RolloutStore:
    """Stores `count` rollouts of some of the `iterations`."""

    def __init__(self, count: int, iterations: int, folder: Path, reward: str, tokenizer: Any) -> None:
        """`folder` is the stage's, `reward` the name of the reward."""
        self.count, self.folder, self.reward, self.tokenizer = count, folder / FOLDER, reward, tokenizer
        self.always = {0, iterations // 2}

    def add(self, iteration: int, rollout: Rollout, rewards: Rewards, advantages: Advantages) -> None:
        """Store rollouts of an iteration. `rollout` and `rewards` have all responses, `advantages` those whose reward
        is not missing.
        """
        # 1. responses that are evenly spaced over the iteration, whatever their rewards are
        size = len(rollout.mask)
        rows = sorted({i * size // self.count for i in range(self.count)})
        # 2. the place of each response among those that have advantages
        scored = ~torch.isnan(rewards.response).cpu()
        place = scored.cumsum(0) - 1
        kept = advantages.keep.cpu().tolist() if advantages.keep is not None else None
        trained = [int(place[i]) if scored[i] and (kept is None or kept[place[i]]) else None for i in rows]
        weights = advantages.advantage
        if advantages.trained is not None:
            weights = torch.where(advantages.trained, weights, torch.nan)
        # 3. the lines, and those of the iteration before make room
        self.folder.mkdir(exist_ok=True)
        lines = [
            self._line(iteration, rollout, rewards, i, None if at is None else weights[at])
            for i, at in zip(rows, trained, strict=True)
        ]
        write_jsonl(self.folder / f"{iteration}.jsonl", lines)
        for path in parts(self.folder.parent):
            if int(path.stem) not in self.always | {iteration}:
                path.unlink()

    def hand_on(self, out: Path) -> None:
        """Write the product's file."""
        every = [path.read_text(encoding="utf-8").splitlines() for path in parts(self.folder.parent)]
        write_lines(out / ROLLOUTS, (line for lines in every for line in lines))

    def _line(
        self, iteration: int, rollout: Rollout, rewards: Rewards, i: int, advantage: Tensor | None
    ) -> StoredRollout:
        length = int(rollout.mask[i].sum())
        ids = rollout.response_ids[i, :length].tolist()
        stored = min(length, MOST_TOKENS)
        # 1. the text of the stored tokens
        offsets = rollout.offsets[i] if rollout.offsets is not None else rollouts.offsets(self.tokenizer, ids)
        text = rollout.texts[i] if stored == length else rollout.texts[i][: offsets[stored - 1][1]]
        # 2. what was recorded about it
        worth = _number(float(rewards.response[i]))
        assigned = rewards.credit_mask[i, :stored].tolist()
        token_rewards = [
            _number(value) if known else None
            for value, known in zip(rewards.token[i, :stored].tolist(), assigned, strict=True)
        ]
        segments = None if rewards.segment_ids is None else rewards.segment_ids[i, :stored].tolist()
        whole = None if rewards.annotations is None else rewards.annotations[i]
        short = None if whole is None else _short_annotation(whole, len(text))
        return StoredRollout(
            iteration=iteration,
            model="policy",
            sample=Sample(id=rollout.samples[i].id, prompt=_short_prompt(rollout.samples[i].prompt)),
            response=Response(text=text, finished=bool(rollout.eos[i].any()), score=worth),
            tokens=rollouts.token_texts(self.tokenizer, ids[:stored]),
            offsets=[(min(start, len(text)), min(end, len(text))) for start, end in offsets[:stored]],
            token_rewards={self.reward: token_rewards},
            segments={} if segments is None else {self.reward: segments},
            annotations={} if rewards.annotations is None else {self.reward: short},
            advantages=None if advantage is None else [_number(value) for value in advantage[:stored].tolist()],
            staleness=None if rollout.drawn_version is None else iteration - int(rollout.drawn_version[i]),
            tokens_left_out=length - stored,
            spans_left_out=0 if whole is None or short is None else len(whole.spans) - len(short.spans),
        )


def parts(folder: Path) -> list[Path]:
    """Return the stored iterations of a training whose stage has this folder, in order."""
    return sorted((folder / FOLDER).glob("[0-9]*.jsonl"), key=lambda path: int(path.stem))


def _number(value: float) -> float | None:
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None


def _short(text: str) -> str:
    more = len(text) - MOST_CHARACTERS
    return text if more <= 0 else f"{text[:MOST_CHARACTERS]} … ({more:,} characters more)"


def _short_prompt(prompt: str | Sequence[Message]) -> str | list[Message]:
    if isinstance(prompt, str):
        return _short(prompt)
    return [Message(role=turn.role, content=_short(turn.content)) for turn in prompt[-MOST_TURNS:]]


def _short_annotation(annotation: Annotation, size: int) -> Annotation:
    """Return an annotation with short texts, and without the passages that are not in the first `size` characters."""
    spans = [
        span.model_copy(
            update={
                "reasons": [_short(reason) for reason in span.reasons],
                "note": None if span.note is None else _short(span.note),
            }
        )
        for span in annotation.spans
        if span.end <= size
    ]
    critique = None if annotation.critique is None else _short(annotation.critique)
    return annotation.model_copy(update={"spans": spans[:MOST_SPANS], "critique": critique})
