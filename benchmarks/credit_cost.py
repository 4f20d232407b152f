"""What a credit-assignment method costs per iteration, beside GRPO, in one process.

GRPO with a reward that asks nothing of the policy, the same with a reward that asks for the policy and does not use it, and the online
methods of examples/credit take turns, iteration by iteration. The learning rate is 1e-30, so all of them train the same policy
(the packaged SmolLM2 with LoRA) on the same responses: every optimizer step is computed, and changes nothing.

Columns, in seconds: `sample`, drawing the responses and the passes that score them (top_entropy and vine need log-probabilities before
training, and vine those of the reference too; GRPO with one optimizer step per iteration needs neither); `reward`, computing the rewards;
`policy`, the part of `reward` that the policy's own passes and continuations take (the log's `seconds/policy`); `train`, the passes with
gradient and the optimizer step; `step`, the whole iteration.
`over grpo`: each iteration's time divided by that of the GRPO iteration next to it; median (minimum to maximum).

    python benchmarks/credit_cost.py [--iterations 5] [--responses 32] [--new-tokens 32] [--only vine]
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from itertools import islice
from pathlib import Path

from shared.iterations import NO_CHANGE, parse, train_iteration
from shared.tables import aligned

from fgrl import models
from fgrl.experiments.pipeline.run import Run
from fgrl.experiments.recipe import load
from fgrl.kinds import RewardWrapper
from fgrl.registry import register
from fgrl.training.online import OnlineRounds
from fgrl.types import Rewards, Rollout

RECIPES = Path(__file__).resolve().parents[1] / "examples" / "credit"
BASELINE, ASKING = "grpo", "grpo, asks"
LOGGED = ("tokens", "seconds/policy", "policy/forward_tokens", "policy/generated_tokens")
METHODS = ("top_entropy", "oar_g", "counterfactual", "vine")


@register("asks_for_the_policy")
class AsksForThePolicy(RewardWrapper):
    """Another reward, which could use the policy that answered, and does not."""

    own_needs = frozenset({"policy"})

    def score(self, rollout: Rollout) -> Rewards:
        return self.reward.score(rollout)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", help="the policy's model (default: that of the recipes)")
    parser.add_argument("--iterations", type=int, default=5, help="measured iterations, after one warm-up iteration")
    parser.add_argument("--responses", type=int, default=32, help="responses per iteration")
    parser.add_argument("--new-tokens", type=int, default=32, help="tokens per response, at most")
    parser.add_argument(
        "--only",
        nargs="*",
        default=METHODS,
        choices=METHODS,
        help="measure only these methods (GRPO is always measured)",
    )
    options = parse(parser)
    with tempfile.TemporaryDirectory() as folder:
        steps = measure(options, Path(folder))
    if options.json:
        print(json.dumps({"settings": vars(options), "iterations": steps}, indent=2))
    else:
        print("\n".join(aligned(table(steps))))


def measure(options: argparse.Namespace, folder: Path) -> dict[str, list[dict[str, float]]]:
    """Seconds and counts of each method's iterations."""
    base = load(RECIPES / "grpo.yaml").built_anew("policy")
    spec = base.model.model_copy(update={"base": options.base or base.model.base})
    net = models.ActorCritic(models.load(spec, trainable=True), None)
    arms = {
        name: arm(name, net, options, folder / str(place))
        for place, name in enumerate([BASELINE, ASKING, *options.only])
    }
    steps: dict[str, list[dict[str, float]]] = {name: [] for name in arms}
    for number in range(options.iterations + 1):
        for name in list(arms) if number % 2 else list(arms)[::-1]:
            seconds = train_iteration(arms[name], number)
            steps[name].append(seconds | {key: arms[name].metrics.get(key, 0.0) for key in LOGGED})
        drawn = {rows[-1]["tokens"] for rows in steps.values()}
        if len(drawn) != 1:
            raise SystemExit(f"iteration {number}: the methods drew responses of different lengths: {sorted(drawn)}")
        print(f"iteration {number}{'' if number else ' (does not count)'}", file=sys.stderr, flush=True)
    return {name: rows[1:] for name, rows in steps.items()}


def arm(name: str, net: models.ActorCritic, options: argparse.Namespace, folder: Path) -> OnlineRounds:
    """The training of a recipe, with the shared model, a small number of responses, and no change of the weights."""
    recipe = BASELINE if name == ASKING else name
    stage = load(RECIPES / f"{recipe}.yaml").built_anew("policy")
    folder.mkdir()
    run = Run("policy", folder, cache=folder / "cache")
    stage.setup(run)
    settings = stage.train.model_copy(
        update={
            "lr": NO_CHANGE,
            "batch_size": options.responses,
            "iterations": options.iterations + 1,
            "accelerator": "cpu",
        }
    )
    return OnlineRounds(
        net, stage.algorithm, AsksForThePolicy(reward=stage.reward) if name == ASKING else stage.reward,
        list(islice(stage.prompts.read(), options.responses)), settings, run, drawer=stage.rollout.engine.open(net.actor),
        sampling=stage.rollout.sampling.model_copy(update={"max_new_tokens": options.new_tokens}),
        rollout_batch_size=options.responses, per_prompt=stage.rollout.per_prompt,
    )  # fmt: skip


def table(steps: dict[str, list[dict[str, float]]]) -> list[list[str]]:
    """A row for each method: median seconds of its phases, its ratio to GRPO, and the tokens it read and drew beside the responses."""
    lines = [["", "sample", "reward", "policy", "train", "step", "over grpo", "tokens in passes", "tokens drawn"]]
    baseline = [row["step"] for row in steps[BASELINE]]
    for name, rows in steps.items():
        ratios = [row["step"] / beside for row, beside in zip(rows, baseline, strict=True)]
        phases = [[row[phase] for row in rows] for phase in ("collect", "score", "seconds/policy", "train", "step")]
        seconds = [statistics.median(values) for values in phases]
        over = f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"
        tokens = [statistics.mean(row[f"policy/{what}_tokens"] for row in rows) for what in ("forward", "generated")]
        lines.append([name, *(f"{value:.2f}" for value in seconds), over, *(f"{value:,.0f}" for value in tokens)])
    return lines


if __name__ == "__main__":
    main()
