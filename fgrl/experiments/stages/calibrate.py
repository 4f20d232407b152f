"""Fit a reward normalizer (segment paper, section 2.3 and Appendix F)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, model_validator

from fgrl.base import lazy
from fgrl.base.errors import DataError
from fgrl.base.files import write_json
from fgrl.kinds import GIVEN_NEEDS, Normalizer, Peek, Reader, Reward, Run, Stage, check_scorer
from fgrl.kinds.specs import ModelSpec, check_lengths
from fgrl.registry import Key, Unkeyed, register
from fgrl.types import Stats

if TYPE_CHECKING:
    from torch import Tensor

    from fgrl.experiments.stages.counting import Work
    from fgrl.training.memory import Role

counting = lazy.load("fgrl.experiments.stages.counting")
encoding = lazy.load("fgrl.rollouts.encoding")
memory = lazy.load("fgrl.training.memory")
scoring = lazy.load("fgrl.measuring.attributing")
passes = lazy.load("fgrl.rollouts.passes")
previews = lazy.load("fgrl.experiments.stages.previews")
torch = lazy.load("torch")
rollouts = lazy.load("fgrl.rollouts")
sizes = lazy.load("fgrl.experiments.stages.sizes")


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
    max_prompt_tokens: int = Field(1024, ge=1, le=10_000_000)
    """Longer prompts lose their beginning."""
    max_tokens: int = Field(2048, ge=2, le=10_000_000)
    """Prompt and response together."""
    batch_size: Annotated[int, Unkeyed] = Field(32, ge=2, le=1_000_000)
    """Responses scored at the same time."""

    def _rows(self, model: Any, limit: int | None = None) -> Any:
        return encoding.pairs(islice(self.data.pairs(), limit), model, self.max_prompt_tokens, self.max_tokens)

    @model_validator(mode="after")
    def _lengths(self) -> CalibrateStage:
        if "max_prompt_tokens" in self.model_fields_set:
            check_lengths(self.max_prompt_tokens, self.max_tokens)
        return self

    @model_validator(mode="after")
    def _known_needs(self) -> CalibrateStage:
        check_scorer(self.reward, GIVEN_NEEDS, field="reward")
        return self

    def heads(self) -> dict[Key, tuple[ModelSpec, str]]:
        return {("model",): (self.model, "lm")}

    def estimate(self, peek: Peek) -> dict[str, Any]:
        shape = memory.PassShape(self.batch_size, self.max_tokens)
        return memory.estimate(memory.Workload(self._roles(), passed=shape), peek)

    def _roles(self) -> list[Role]:
        return [memory.Role("sft", self.model), *sizes.scorers("reward_model", self.reward)]

    def work(self, peek: Peek) -> Iterator[Work]:
        """Yield one pass of both responses of all pairs through each model."""
        given = counting.texts(self.data, peek, self.max_prompt_tokens, self.max_tokens)
        for role in self._roles():
            yield counting.passing(f"pass of {role.name}", role, 2 * given.tokens, peek)

    def run(self, run: Run) -> dict[str, Any]:
        # 1. the calibration responses as token ids
        self.setup(run)
        model = run.model(self.model)
        rollouts.check_same_tokens(model, reward=self.reward.tokenizer())
        rows = self._rows(model, limit=run.limit)
        if not rows:
            raise DataError("no pairs to calibrate on")
        check_scorer(self.reward, GIVEN_NEEDS, field="reward")
        # 2. the entropies that cut them, computed once and kept in the cache
        entropies = passes.entropies(rows, run, self.model) if "ref_entropy" in self.reward.needs() else None
        # 3. reward and location of every segment of every response
        rewards, locations, valid = self._actions(rows, model, run, entropies)
        # 4. the fit
        stats = self.normalizer.fit(rewards, locations, valid)
        write_json(run.out / "stats.json", stats)
        return {name: value for name, value in stats.items() if isinstance(value, float | int | str)} | {
            "responses": len(rows),
            "segments": int(valid.sum()),
            **rows.cut_counts(),
        }

    def _actions(self, rows: Any, model: Any, run: Run, entropies: Any) -> tuple[Tensor, Tensor, Tensor]:
        """`Reward.actions` of all rows, computed in micro-batches of similar length: each [B,S] on the CPU."""
        parts: list[tuple[Tensor, Tensor, Tensor]] = []
        lengths = rows.lengths()
        order = sorted(range(len(rows)), key=lengths.__getitem__)
        with run.progress("calibration responses", len(rows)) as ticker:
            for start in range(0, len(order), self.batch_size):
                chosen = order[start : start + self.batch_size]
                rollout = scoring.as_rollout(
                    [rollouts.given(model, rows[i]["prompt"], rows[i]["response"]) for i in chosen], model,
                    needs=self.reward.needs(), reference=model,
                    entropies=None if entropies is None else [entropies[i] for i in chosen],
                )  # fmt: skip
                rewards, locations, valid = self.reward.actions(rollout)
                parts.append((rewards.cpu(), locations.cpu(), valid.cpu()))
                ticker.advance(len(chosen))
                run.stop_if_interrupted()
        width = max(rewards.shape[1] for rewards, _locations, _valid in parts)

        def joined(tensors: Sequence[Tensor]) -> Tensor:
            return torch.cat([torch.nn.functional.pad(tensor, (0, width - tensor.shape[1])) for tensor in tensors])

        rewards, locations, valid = map(joined, zip(*parts, strict=True))
        return rewards, locations, valid

    def inspect(self, run: Run, count: int) -> Iterator[Any]:
        """Calibration responses with their raw segment rewards."""
        self.setup(run)
        model = run.model(self.model)
        rows = self._rows(model, limit=count)
        responses = [rollouts.given(model, row["prompt"], row["response"]) for row in rows]
        rollout = scoring.as_rollout(responses, model, needs=self.reward.needs(), reference=model)
        yield from previews.of_rollout(
            rollout, self.reward.scored(rollout), model.tokenizer, [row["lost"] for row in rows]
        )
