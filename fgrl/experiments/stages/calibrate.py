"""Fitting of a reward normalizer (segment paper, section 2.3 and Appendix F)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, model_validator

from fgrl.base import lazy, ranks
from fgrl.base.errors import DataError
from fgrl.base.files import atomically, write_json
from fgrl.kinds import GIVEN_NEEDS, Normalizer, Peek, Reader, Reward, Run, Stage, check_scorer
from fgrl.kinds.specs import ModelSpec, check_lengths
from fgrl.registry import Key, Unkeyed, register, walk
from fgrl.types import Ref, Stats

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
safetensors = lazy.load("safetensors.torch")
sizes = lazy.load("fgrl.experiments.stages.sizes")


@register("calibrate")
class CalibrateStage(Stage):
    """Scoring of the responses of a calibration set, and fit of the statistics of their segment rewards."""

    makes = Stats

    data: Reader
    """Reader of preference pairs. Both responses of each pair are scored."""
    reward: Reward
    """The reward whose actions are normalized; its own normalizer is not used."""
    normalizer: Normalizer
    """Normalizer to fit."""
    model: ModelSpec
    """The SFT model: its tokenizer reads the data, and its entropies divide the responses into segments."""
    max_prompt_tokens: int = Field(1024, ge=1, le=10_000_000)
    """Maximum number of tokens of a prompt. Longer prompts lose their beginning."""
    max_tokens: int = Field(2048, ge=2, le=10_000_000)
    """Maximum number of tokens of prompt and response together."""
    batch_size: Annotated[int, Unkeyed] = Field(32, ge=2, le=1_000_000)
    """Responses scored at the same time."""
    devices: Annotated[int, Unkeyed] = Field(1, ge=1, le=100_000)
    """Number of processes that share the responses, one per device. The result is the same as with one process."""

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
        shape = memory.PassShape(self.batch_size, self.max_tokens, self.max_tokens)
        return memory.estimate(memory.Workload(self._roles(), passed=shape), peek)

    def _roles(self) -> list[Role]:
        return [memory.Role("sft", self.model), *sizes.scorers("reward_model", self.reward)]

    def work(self, peek: Peek) -> Iterator[Work]:
        """Yield one pass of both responses of all pairs through each model. The entropies of pairs that the reward
        model was trained on were computed by that training.
        """
        given = counting.texts(self.data, peek, self.max_prompt_tokens, self.max_tokens)
        trained = [peek.stage(part) for _path, part in walk(self.reward) if isinstance(part, Ref)]
        kept = any(stage.data.model_dump() == self.data.model_dump() for stage in trained if hasattr(stage, "data"))
        for role in self._roles()[kept:]:
            yield counting.passing(f"pass of {role.name}", role, given, peek, self.processes(), times=2)

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
        parts = self._parts(rows, model, run, entropies)
        if not ranks.leave():
            return {}
        rewards, locations, valid = _joined(parts)
        # 4. the fit
        stats = self.normalizer.fit(rewards, locations, valid)
        write_json(run.out / "stats.json", stats)
        return {name: value for name, value in stats.items() if isinstance(value, float | int | str)} | {
            "responses": len(rows),
            "segments": int(valid.sum()),
            **rows.cut_counts(),
        }

    def _parts(self, rows: Any, model: Any, run: Run, entropies: Any) -> list[Path]:
        """Return files with `Reward.actions` of all rows, in micro-batches of similar length, of which each process
        computes a share. A process that continues uses the files that exist.
        """
        lengths = rows.lengths()
        order = sorted(range(len(rows)), key=lengths.__getitem__)
        groups = [order[start : start + self.batch_size] for start in range(0, len(order), self.batch_size)]
        folder = run.dir / "parts"
        folder.mkdir(exist_ok=True)
        parts = [folder / f"{self.batch_size}-{number:08d}.safetensors" for number in range(len(groups))]
        with run.progress("calibration responses", len(rows) // ranks.connected()) as ticker:
            for number, (part, chosen) in enumerate(zip(parts, groups, strict=True)):
                if not ranks.is_mine(number):
                    continue
                if not part.exists():
                    with ranks.apart():
                        rollout = scoring.as_rollout(
                            [rollouts.given(model, rows[i]["prompt"], rows[i]["response"]) for i in chosen], model,
                            needs=self.reward.needs(), reference=model,
                            entropies=None if entropies is None else [entropies[i] for i in chosen],
                        )  # fmt: skip
                        actions = zip(("rewards", "locations", "valid"), self.reward.actions(rollout), strict=True)
                    with atomically(part) as partial:
                        safetensors.save_file({name: values.cpu().contiguous() for name, values in actions}, partial)
                ticker.advance(len(chosen))
                run.stop_if_interrupted()
        return parts

    def inspect(self, run: Run, count: int) -> Iterator[Any]:
        """Yield calibration responses with their raw segment rewards."""
        self.setup(run)
        model = run.model(self.model)
        rows = self._rows(model, limit=count)
        responses = [rollouts.given(model, row["prompt"], row["response"]) for row in rows]
        rollout = scoring.as_rollout(responses, model, needs=self.reward.needs(), reference=model)
        yield from previews.of_rollout(
            rollout, self.reward.scored(rollout), model.tokenizer, [row["lost"] for row in rows]
        )


def _joined(parts: Sequence[Path]) -> list[Tensor]:
    """Return rewards, locations and validity of the actions of all rows, each [B,S]."""
    read = [safetensors.load_file(part) for part in parts]
    width = max(part["rewards"].shape[1] for part in read)

    def padded(tensor: Tensor) -> Tensor:
        return torch.nn.functional.pad(tensor, (0, width - tensor.shape[1]))

    return [torch.cat([padded(part[name]) for part in read]) for name in ("rewards", "locations", "valid")]
