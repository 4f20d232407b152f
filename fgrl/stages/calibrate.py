"""Fit a reward normalizer (segment paper, section 2.3 and Appendix F)."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Annotated, Any

from pydantic import Field

from fgrl import lazy
from fgrl.errors import DataError
from fgrl.files import write_json
from fgrl.kinds import Normalizer, Peek, Reader, Reward, Run, Stage
from fgrl.registry import Unkeyed, register
from fgrl.specs import ModelSpec
from fgrl.types import Stats

encoding = lazy.load("fgrl.rollouts.encoding")
scoring = lazy.load("fgrl.evaluation.attributing")
passes = lazy.load("fgrl.rollouts.passes")
previews = lazy.load("fgrl.stages.previews")
sizes = lazy.load("fgrl.stages.sizes")
torch = lazy.load("torch")
vocabulary = lazy.load("fgrl.rollouts.vocabulary")


@register("calibrate")
class CalibrateStage(Stage):
    """Score the responses of a calibration set and fit the statistics of their segment rewards."""

    makes = Stats

    data: Reader
    """Preference pairs: both responses of each are scored."""
    reward: Reward
    """The reward whose actions are normalized; its own normalizer is not used."""
    normalizer: Normalizer
    """What to fit."""
    model: ModelSpec
    """The SFT model: its tokenizer reads the data and its entropies cut the responses."""
    max_prompt_tokens: int = Field(1024, ge=1)
    """Longer prompts lose their beginning."""
    max_tokens: int = Field(2048, ge=2)
    """Prompt and response together."""
    batch_size: Annotated[int, Unkeyed] = Field(32, ge=2)
    """Responses scored at the same time."""

    def _rows(self, model: Any, limit: int | None = None) -> Any:
        return encoding.pairs(islice(self.data.pairs(), limit), model, self.max_prompt_tokens, self.max_tokens)

    def estimate(self, peek: Peek) -> dict[str, Any]:
        return sizes.calibrate(self, peek)

    def run(self, run: Run) -> dict[str, Any]:
        self.data.setup(run)
        self.reward.setup(run)
        model = run.model(self.model)
        vocabulary.check(model, reward=self.reward.tokenizer())
        rows = self._rows(model, limit=run.limit)
        if not rows:
            raise DataError("no pairs to calibrate on")
        # 1. rewards and locations of every segment of every response
        needs, entropies = self.reward.needs(), None
        if "ref_entropy" in needs:
            entropies = passes.entropies(rows, run, self.model)
        found: list[tuple[Any, Any, Any]] = []
        lengths = rows.lengths()
        order = sorted(range(len(rows)), key=lengths.__getitem__)
        with run.progress("calibration responses", len(rows)) as ticker:
            for start in range(0, len(order), self.batch_size):
                chunk = order[start : start + self.batch_size]
                known = None if entropies is None else [entropies[i] for i in chunk]
                some = [rows[i] for i in chunk]
                rollout = scoring.as_rollout(some, model, needs=needs, reference=model, entropies=known)
                rewards, locations, valid = self.reward.actions(rollout)
                found.append((rewards.cpu(), locations.cpu(), valid.cpu()))
                ticker.advance(len(some))
                run.stop_if_interrupted()
        # 2. the fit
        width = max(rewards.shape[1] for rewards, _locations, _valid in found)
        rewards, locations, valid = (
            torch.cat([torch.nn.functional.pad(t, (0, width - t.shape[1])) for t in column])
            for column in zip(*found, strict=True)
        )
        stats = self.normalizer.fit(rewards, locations, valid)
        write_json(run.out / "stats.json", stats)
        return {name: value for name, value in stats.items() if isinstance(value, float | int | str)} | {
            "responses": len(rows),
            "segments": int(valid.sum()),
            **rows.cut_counts(),
        }

    def inspect(self, run: Run, count: int) -> Iterator[Any]:
        """Calibration responses with their raw segment rewards."""
        self.data.setup(run)
        self.reward.setup(run)
        model = run.model(self.model)
        rows = self._rows(model, limit=count)
        rollout = scoring.as_rollout(rows, model, needs=self.reward.needs(), reference=model)
        yield from previews.of_rollout(rollout, self.reward.score(rollout), model.tokenizer)
