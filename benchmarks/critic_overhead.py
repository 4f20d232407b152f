"""What token rewards from a critic cost per PPO step, beside scalar rewards, in one run.

Three ways to reward the same responses take turns, iteration by iteration, in one process:

- `scalar model`: a reward model with a scalar head, one forward pass, its number on the last token
- `critic, last`: a critic writes a critique; the sum of its token rewards on the last token (Text2Grad, appendix A, setting B)
- `critic, spans`: the same critic, its rewards on the tokens of the spans

The learning rate is 1e-30 (`NO_CHANGE`), so all three train the same policy on the same responses, of the same length: every
optimizer step is computed, and changes nothing. The policy and its value function are the packaged SmolLM2 with LoRA.

Without `--critic` no trained critic is at hand. Then SmolLM2 reads the critic's prompt and writes `--critic-tokens` tokens,
whatever they say, and the critique that is read instead quotes words of the response. The time is that of a critic of this size
and length; the rewards mean nothing. With `--critic FOLDER` (a model that was trained to write critiques) everything is real:
its answers end where their JSON closes, and a response whose critique cannot be read is left out of the step.

`critic` is the critic's generation, `reward` all other work on rewards (for the scalar model its pass; for a critic the parsing and
the mapping of quotes to tokens). Sampling and training are the same work for all three; an overhead compares steps in which both take
the median over all arms, so that their noise is not taken for a difference. It is given with the critic's generation and without.

    python benchmarks/critic_overhead.py [--iterations 3] [--responses 16] [--new-tokens 48] [--critic-tokens 96] [--critic FOLDER]
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import PrivateAttr
from shared.iterations import NO_CHANGE, parse, train_iteration
from shared.tables import aligned

from fgrl import models
from fgrl.components.clients.local import Local
from fgrl.components.clients.local import _Asked as Asked
from fgrl.experiments import recipe
from fgrl.experiments.pipeline.run import Run
from fgrl.kinds import default_engine
from fgrl.kinds.specs import LoraSpec, ModelSpec, Sampling
from fgrl.registry import build
from fgrl.training.online import OnlineRounds
from fgrl.training.trainer import OnlineSettings
from fgrl.types import Completion, Sample

BASE = "smollm2-135m-instruct"
PROMPTS = Path(__file__).resolve().parents[1] / "prompts"
TOPICS = [
    "the sea",
    "an old mill",
    "a lamp",
    "birds in spring",
    "bread",
    "the night train",
    "a harbour",
    "rain on a roof",
]
PHASES = {"collect": "sample", "critic": "critic", "reward": "reward", "train": "train"}
SCALAR = "scalar model"


class StandIn(Local):
    """Answers as long as those of a critic, drawn by a model that is none; what is read is a critique with real quotes."""

    _written: int = PrivateAttr(0)

    def answer_share(self, work: list[list[Asked]]) -> list[Completion]:
        drawn = super().answer_share(work)
        self._written += sum(completion.usage.completion_tokens for completion in drawn)
        return [
            completion.model_copy(update={"text": critique(asked.request.messages[-1].content), "finish": "stop"})
            for asked, completion in zip(chain.from_iterable(work), drawn, strict=True)
        ]


def critique(question: str) -> str:
    """A critique of the response at the end of a question: two good quotes and two poor ones, of three words each."""
    words = question.rpartition("Summary:")[2].split(" ")
    quotes = [" ".join(words[place : place + 3]) for place in range(0, min(len(words) - 2, 12), 3)]
    quotes = [quote for quote in quotes if quote.strip()]
    return json.dumps({"textual_feedback": "as it is", "good_spans": quotes[::2], "poor_spans": quotes[1::2]})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--base", default=BASE, help="the policy's model, and the reward models' unless --critic names one"
    )
    parser.add_argument("--iterations", type=int, default=3, help="that count, after one that does not")
    parser.add_argument("--responses", type=int, default=16, help="of an iteration")
    parser.add_argument("--new-tokens", type=int, default=48, help="of a response, at most")
    parser.add_argument("--epochs", type=int, default=4, help="passes over the responses (Text2Grad, Table 10: 4)")
    parser.add_argument("--critic-tokens", type=int, default=96, help="of a critique; with --critic: at most")
    parser.add_argument("--critic", help="folder of a trained critic that reads prompts/critic_summary.txt")
    options = parse(parser)
    recipe.know_components()
    with tempfile.TemporaryDirectory() as folder:
        steps, tokens = measure(options, Path(folder))
    if options.json:
        print(json.dumps({"settings": vars(options), "seconds": steps, "tokens": tokens}, indent=2))
        return
    print(table(steps))
    print("\n" + "; ".join(f"{name}: {count:.1f}" for name, count in tokens.items()))


def measure(options: argparse.Namespace, folder: Path) -> tuple[dict[str, list[dict[str, float]]], dict[str, float]]:
    """Seconds by arm, iteration and phase, and how many tokens responses and critiques have."""
    actor_spec = ModelSpec(base=options.base, dtype="bfloat16", lora=LoraSpec())
    # 1. one policy, one value function, one scalar reward model
    net = models.ActorCritic(
        models.load(actor_spec, trainable=True), models.load(actor_spec, head="scalar", trainable=True)
    )
    models.save(models.load(ModelSpec(base=options.base, dtype="bfloat16"), head="scalar"), folder / "scalar", {})
    # 2. the three arms
    arms = {name: arm(name, net, options, folder / f"arm{number}") for number, name in enumerate(ARMS)}
    # 3. in turn; the first iteration of each arm is not counted
    steps: dict[str, list[dict[str, float]]] = {name: [] for name in arms}
    lengths: list[float] = []
    for number in range(options.iterations + 1):
        order = list(arms) if number % 2 else list(arms)[::-1]
        drawn = set()
        for name in order:
            seconds = step(arms[name], number)
            drawn.add(arms[name].metrics["tokens"])
            lengths.append(arms[name].metrics["tokens"])
            if number:
                steps[name].append(seconds)
        if options.critic is None and len(drawn) != 1:
            raise RuntimeError(f"the arms drew responses of different lengths: {sorted(drawn)}")
    client = arms["critic, spans"].reward.client
    counts = client.counts()
    return steps, {
        "tokens per response": statistics.mean(lengths),
        "tokens per critique": counts["completion_tokens"] / counts["calls"],
        "prompt tokens per critique": counts["prompt_tokens"] / counts["calls"],
    }


ARMS: dict[str, dict[str, Any]] = {
    SCALAR: {"name": "segment_rm", "segmenter": "bandit", "aggregate": "last", "credit": "response", "clamp": None},
    "critic, last": {"name": "critic", "placement": "last"},
    "critic, spans": {"name": "critic", "placement": "tokens"},
}


def arm(name: str, net: Any, options: argparse.Namespace, folder: Path) -> OnlineRounds:
    """PPO with one of the rewards, in a stage of its own with a cache of its own."""
    folder.mkdir()
    run = Run(name, folder, cache=folder / "cache")
    node = dict(ARMS[name])
    if name == SCALAR:
        node["model"] = str(folder.parent / "scalar")
    else:
        node |= {
            "client": {"name": "local", "model": options.critic or options.base},
            "prompt": str(PROMPTS / "critic_summary.txt"),
            "token_policy": "words",
        }
    reward = build("reward", node)
    if name != SCALAR:
        made = Local if options.critic else StandIn
        reward.client = made(
            model=ModelSpec(base=options.critic or options.base, dtype="bfloat16"),
            max_tokens=options.critic_tokens,
            stop_at_json=bool(options.critic),
        )
    reward.setup(run)
    samples = [Sample(id=str(i), prompt=f"Say something about {topic}.") for i, topic in enumerate(TOPICS)]
    settings = OnlineSettings(
        lr=NO_CHANGE,
        batch_size=options.responses,
        micro_batch_size=8,
        iterations=options.iterations + 1,
        accelerator="cpu",
    )
    return OnlineRounds(
        net, build("online_algorithm", {"name": "ppo", "kl": "full", "kl_coef": 0.2, "epochs": options.epochs}), reward,
        samples, settings, run, drawer=default_engine().open(net.actor),
        sampling=Sampling(max_new_tokens=options.new_tokens, batch_size=options.responses),
        rollout_batch_size=options.responses, per_prompt=max(1, options.responses // len(samples)),
    )  # fmt: skip


def step(rounds: OnlineRounds, number: int) -> dict[str, float]:
    """Seconds of the phases of one iteration."""
    seconds = train_iteration(rounds, number)
    critic = rounds.metrics.get("seconds/critic", 0.0)
    return {
        "collect": seconds["collect"],
        "critic": critic,
        "reward": seconds["score"] - critic,
        "train": seconds["train"],
    }


def table(steps: dict[str, list[dict[str, float]]]) -> str:
    """Median seconds of each phase, and the overhead over the scalar model."""
    medians = {
        name: {phase: statistics.median(row[phase] for row in rows) for phase in PHASES} for name, rows in steps.items()
    }
    shared = statistics.median(row["collect"] + row["train"] for rows in steps.values() for row in rows)
    scalar = shared + medians[SCALAR]["reward"]
    lines = [["", *PHASES.values(), "step", "over scalar", "without critic"]]
    for name, seconds in medians.items():
        without = shared + seconds["reward"]
        over = (
            [] if name == SCALAR else [f"{whole / scalar - 1:+.1%}" for whole in (without + seconds["critic"], without)]
        )
        lines.append(
            [name, *(f"{seconds[phase]:.2f}" for phase in PHASES), f"{without + seconds['critic']:.2f}", *over]
        )
    return "\n".join(aligned(lines))


if __name__ == "__main__":
    main()
