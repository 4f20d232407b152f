"""A few responses of a training, with the numbers of their tokens, for the report.

Online training stores responses of the first, the middle and the last iteration. During the training, they are in the
stage's folder:

    rollouts/<iteration>.jsonl    one `StoredRollout` per line, written before the iteration is trained on

At the end, rollouts.jsonl of the product has all of them in order. The last iteration is not known in advance (a
training may end early), so the newest one is stored, and replaces the previous one. An iteration that is repeated after
a kill writes the same lines again.

Offline training stores a few units of its data, with the credit of their tokens under the trained model, in
credit.jsonl of the product, one `CreditedResponse` per line.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fgrl.base import lazy
from fgrl.base.files import write_lines
from fgrl.measuring.answer import Answer
from fgrl.types import (
    Advantages,
    Annotation,
    DrawnResponse,
    Message,
    Response,
    Rewards,
    Rollout,
    Sample,
    Turn,
    write_jsonl,
)

if TYPE_CHECKING:
    from torch import Tensor

    from fgrl.rollouts.rows import EncodedRow
rollouts = lazy.load("fgrl.rollouts")
torch = lazy.load("torch")

ROLLOUTS, CREDIT = "rollouts.jsonl", "credit.jsonl"
"""File names in the product, for online and for offline training."""
FOLDER = "rollouts"
DIGITS = 6
"""Significant digits of rewards and advantages."""
MOST_TOKENS = 2048
"""Maximum number of tokens of a response that are stored; the others are counted."""
MOST_TURNS = 8
"""Maximum number of turns of a prompt that is a conversation; the last ones are stored."""
MOST_CHARACTERS = 10_000
"""Maximum number of characters of a prompt's turn, of a critique, and of each reason in an annotation."""
MOST_SPANS = 200
"""Maximum number of spans of an annotation."""


class CreditedResponse(Answer):
    """Response with numbers of its tokens. Long texts are cut."""

    columns: dict[str, list[float | None]] = {}
    """[T] by name: columns of the data, of the reward, of the algorithm and of auxiliary models. None if it is not a
    finite number.
    """
    tokens_left_out: int = 0
    """Number of tokens at the end of the response that are not stored."""


class StoredRollout(CreditedResponse):
    """Response of the training, with the numbers that it was trained on.

    `token_rewards`, `segments` and `annotations` have one entry, by the reward's name, as the reward returned them
    (`TokenRewards` only changes the advantages); `response.score` is the reward of the whole response, None if it is
    missing.
    """

    iteration: int
    """Number of the iteration from 0, as in the log."""
    advantages: list[float | None] | None = None
    """[T] weight of each token's probability in the loss, before a correction for the engine; None for a token that is
    not in the loss. None as a whole if the response was not trained on.
    """
    by_token: bool | None = None
    """True if the algorithm trains on token rewards, False if on the reward of the whole response; None in an older
    file.
    """
    staleness: int | None = None
    """Number of iterations since the policy had the weights that drew the response; None if the engine draws from the
    policy itself.
    """
    spans_left_out: int = 0
    """Number of marked passages that are not stored: those after the stored tokens, and those after the first
    `MOST_SPANS`.
    """


class RolloutStore:
    """Store of `count` rollouts from each of some of the `iterations`."""

    def __init__(
        self, count: int, iterations: int, folder: Path, reward: str, tokenizer: Any, by_token: bool | None = None
    ) -> None:
        """Create the store. `folder` is the stage's, `reward` the name of the reward, `by_token` that of
        `StoredRollout`.
        """
        self.count, self.folder, self.reward, self.tokenizer = count, folder / FOLDER, reward, tokenizer
        self.by_token = by_token
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
        # 3. the lines, and those of the iteration before make room
        self.folder.mkdir(exist_ok=True)
        lines = [
            self._line(iteration, rollout, rewards, advantages, i, at) for i, at in zip(rows, trained, strict=True)
        ]
        write_jsonl(self.folder / f"{iteration}.jsonl", lines)
        for path in parts(self.folder.parent):
            if int(path.stem) not in self.always | {iteration}:
                path.unlink()

    def hand_on(self, out: Path) -> None:
        """Write the product's file."""
        every = [path.read_text(encoding="utf-8").split("\n")[:-1] for path in parts(self.folder.parent)]
        write_lines(out / ROLLOUTS, (line for lines in every for line in lines))

    def _line(
        self, iteration: int, rollout: Rollout, rewards: Rewards, advantages: Advantages, i: int, at: int | None
    ) -> StoredRollout:
        length = int(rollout.mask[i].sum())
        ids = rollout.response_ids[i, :length].tolist()
        offsets = (
            rollout.offsets[i] if rollout.offsets else rollouts.offsets(self.tokenizer, DrawnResponse(ids, "length"))
        )
        shown = _stored(self.tokenizer, ids, rollout.texts[i], offsets)
        stored, text = len(shown["tokens"]), shown["text"]
        worth = _number(float(rewards.response[i]))
        segments = None if rewards.segment_ids is None else rewards.segment_ids[i, :stored].tolist()
        whole = None if rewards.annotations is None else rewards.annotations[i]
        short = None if whole is None else _short_annotation(whole, len(text))
        weights = None
        if at is not None:
            counted = rollout.drawn[i] if advantages.trained is None else rollout.drawn[i] & advantages.trained[at]
            weights = _numbers(advantages.advantage[at, :stored], counted[:stored])
        columns = token_columns(rollout, rewards, advantages, i, at)
        finished = bool(rollout.eos[i].any() if rollout.terminated is None else rollout.terminated[i])
        return StoredRollout(
            iteration=iteration,
            model="policy",
            sample=Sample(id=rollout.samples[i].id, prompt=_short_prompt(rollout.samples[i].prompt)),
            response=Response(text=text, finished=finished, score=worth),
            turn=rollout.turn[i, :stored].tolist() if rollout.turns and rollout.turn is not None else [],
            turns=[_short_turn(each) for each in rollout.turns[i] if each.end <= stored] if rollout.turns else [],
            terminated=rollout.terminated is None or bool(rollout.terminated[i]),
            lost=None if rollout.lost is None else rollout.lost[i],
            tokens=shown["tokens"],
            offsets=shown["offsets"],
            token_rewards={self.reward: _numbers(rewards.token[i, :stored], rewards.credit_mask[i, :stored])},
            segments={} if segments is None else {self.reward: segments},
            annotations={} if rewards.annotations is None else {self.reward: short},
            advantages=weights,
            by_token=self.by_token,
            columns={name: _numbers(value[:stored]) for name, value in columns.items()},
            staleness=None if rollout.drawn_version is None else iteration - int(rollout.drawn_version[i]),
            tokens_left_out=length - stored,
            spans_left_out=0 if whole is None or short is None else len(whole.spans) - len(short.spans),
        )


def token_columns(
    rollout: Rollout, rewards: Rewards, advantages: Advantages | None, i: int, at: int | None
) -> dict[str, Tensor]:
    """Return the columns of auxiliary models, reward and algorithm for the tokens of response `i`, without rewards and
    advantages, [T] by name. at: its place in `advantages`; None if it is not there.
    """
    length = int(rollout.mask[i].sum())
    records = [(rollout.added(Rollout), i), (rewards.added(Rewards), i)]
    if advantages is not None and at is not None:
        records.append((advantages.added(Advantages), at))
    return {
        name: value[row, :length]
        for columns, row in records
        for name, (column, value) in columns.items()
        if column.axes == ("token",)
    }


def write_credit(
    out: Path, units: Iterable[tuple[str, Sequence[tuple[EncodedRow, Mapping[str, Tensor]]]]], tokenizer: Any
) -> None:
    """Write the product's file of offline training. units: the id of each unit, its rows (chosen and rejected of a
    pair), and the credit of their tokens, [T] by name.
    """
    lines = []
    for id, rows in units:
        for side, (row, credit) in zip(SIDES if len(rows) == len(SIDES) else ["response"], rows, strict=True):
            ids = list(row["response"])
            shown = _stored(tokenizer, ids, rollouts.decode(tokenizer, ids), rollouts.offsets(tokenizer, ids))
            prompt = _short(tokenizer.decode(list(row["prompt"])))
            stored = len(shown["tokens"])
            named = {name: value for name, value in row["columns"].items() if value.ndim} | dict(credit)
            lines.append(CreditedResponse(
                model=side, sample=Sample(id=id, prompt=prompt),
                response=Response(text=shown["text"], finished=bool(row["finished"])),
                tokens=shown["tokens"], offsets=shown["offsets"],
                columns={name: _numbers(value[:stored]) for name, value in named.items()},
                tokens_left_out=len(ids) - stored,
            ))  # fmt: skip
    write_jsonl(out / CREDIT, lines)


SIDES = ("chosen", "rejected")


def _stored(tokenizer: Any, ids: Sequence[int], text: str, offsets: Sequence[tuple[int, int]]) -> dict[str, Any]:
    """Return the stored tokens of a response, their text, and the characters of it that each covers."""
    stored = min(len(ids), MOST_TOKENS)
    text = text if stored == len(ids) else text[: offsets[stored - 1][1]]
    return {
        "text": text,
        "tokens": rollouts.token_texts(tokenizer, ids[:stored]),
        "offsets": [(min(start, len(text)), min(end, len(text))) for start, end in offsets[:stored]],
    }


def parts(folder: Path) -> list[Path]:
    """Return the stored iterations of a training whose stage has this folder, in order."""
    return sorted((folder / FOLDER).glob("[0-9]*.jsonl"), key=lambda path: int(path.stem))


def _numbers(values: Tensor, there: Tensor | None = None) -> list[float | None]:
    known = values if there is None else torch.where(there, values, torch.nan)
    return [_number(float(value)) for value in known.tolist()]


def _number(value: float) -> float | None:
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else None


def _short(text: str) -> str:
    more = len(text) - MOST_CHARACTERS
    return text if more <= 0 else f"{text[:MOST_CHARACTERS]} … ({more:,} characters more)"


def _short_turn(turn: Turn) -> Turn:
    return replace(turn, text=_short(turn.text), observation=_short(turn.observation))


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
