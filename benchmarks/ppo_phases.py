"""Where the time of a PPO step goes, against what this machine can do.

Phases of one iteration on the packaged SmolLM2 with LoRA: generate, log-probabilities of policy and reference, values,
rewards, training of actor and critic. Passes are held against this machine's measured bfloat16 matrix products, decoding
against its measured memory copies (every decoded step reads all weights once).

    python benchmarks/ppo_phases.py [--responses 32] [--new-tokens 48] [--repeats 3]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from fgrl import rollouts
from fgrl.experiments import recipe
from fgrl.kinds import default_engine
from fgrl.kinds.specs import LoraSpec, ModelSpec, Sampling
from fgrl.models import load

BASE = "smollm2-135m-instruct"
PROMPT = "Say something about the sea, the wind and the old harbour in one or two short sentences."


def seconds(work: Callable[[], Any], repeats: int) -> float:
    """Median wall time of `work` after one warm-up."""
    work()
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def matrix_bound() -> float:
    """bfloat16 floating-point operations a second of a large matrix product."""
    a, b = torch.randn(2048, 2048, dtype=torch.bfloat16), torch.randn(2048, 2048, dtype=torch.bfloat16)
    return 2 * 2048**3 / seconds(lambda: a @ b, 10)


def copy_bound() -> float:
    """Bytes a second that a large copy reads."""
    source = torch.ones(256 * 2**20 // 4)
    target = torch.empty_like(source)
    return source.nbytes / seconds(lambda: target.copy_(source), 5)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default=BASE)
    parser.add_argument("--responses", type=int, default=32)
    parser.add_argument("--new-tokens", type=int, default=48)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    recipe.know_components()

    flops, copies = matrix_bound(), copy_bound()
    print(f"bounds of this machine: {flops / 1e9:.0f} GFLOP/s (bfloat16 products), {copies / 1e9:.1f} GB/s (copies)")

    spec = ModelSpec(base=options.base, dtype="bfloat16", lora=LoraSpec())
    actor, critic = load(spec, trainable=True), load(spec, head="scalar", trainable=True)
    reward = load(ModelSpec(base=options.base, dtype="bfloat16"), head="scalar")
    engine = default_engine()
    prompt = rollouts.encode_prompt(actor.tokenizer, PROMPT)
    prompts = [prompt] * options.responses
    sampling = Sampling(
        max_new_tokens=options.new_tokens, min_new_tokens=options.new_tokens, batch_size=options.responses
    )

    def generate() -> list[list[int]]:
        return [drawn.token_ids for drawn in rollouts.sample(actor, engine.open(actor), prompts, sampling, seed=0)]

    tokens = rollouts.pad(prompts, generate(), actor.pad_id, actor.eos_ids)
    half = options.responses // 2
    parts = [rollouts.select(tokens, slice(0, half)), rollouts.select(tokens, slice(half, None))]

    def scored(model: Any, *fields: str, critic: Any = None) -> Callable[[], Any]:
        return lambda: rollouts.score(model, None, tokens, frozenset(fields), critic=critic, micro_batch_size=half)

    def train(loss: Callable[[Any], torch.Tensor]) -> Callable[[], None]:
        def work() -> None:
            for part in parts:
                loss(part).sum().backward()

        return work

    parameters = sum(p.numel() for p in actor.trunk.parameters())
    head = actor.output_layer.weight.numel()
    read = len(prompt) * len(parts) + tokens.response_ids.numel()  # rows share their prompt
    answered = tokens.response_ids.numel()
    passes = {
        "log-probabilities": (scored(actor, "old_logp"), 2 * (parameters * read + head * answered)),
        "reference and entropy": (scored(actor, "ref_logp", "ref_entropy"), 2 * (parameters * read + head * answered)),
        "values": (scored(actor, "values", critic=critic), 2 * parameters * read),
        "rewards": (
            lambda: rollouts.in_micro_batches(tokens, lambda part: {"r": reward.rewards(part)}, half),
            2 * parameters * read,
        ),
        # frozen weights take a forward and one product backward; the head is computed once forward and once backward
        "train actor": (train(lambda part: actor.score(part).logp), 2 * (2 * parameters * read + 2 * head * answered)),
        "train critic": (train(lambda part: critic.values(part)), 2 * 2 * parameters * read),
    }
    took = {"generate": seconds(generate, options.repeats)}
    weights = sum(p.nbytes for p in actor.net.parameters())
    shares = {"generate": weights * options.new_tokens / copies / took["generate"]}
    for name, (work, operations) in passes.items():
        took[name] = seconds(torch.no_grad()(work) if not name.startswith("train") else work, options.repeats)
        shares[name] = operations / flops / took[name]

    total = sum(took.values())
    print(
        f"{options.responses} responses of {options.new_tokens} tokens, prompts of {len(prompt)}: {answered / total:.0f} tokens/s\n"
    )
    print(f"{'phase':<24}{'seconds':>9}{'of step':>9}{'tokens/s':>10}{'of bound':>10}")
    for name, value in took.items():
        rate = (answered if name == "generate" else read) / value
        print(f"{name:<24}{value:>9.2f}{value / total:>9.0%}{rate:>10.0f}{shares[name]:>10.0%}")
    print(f"{'step':<24}{total:>9.2f}")


if __name__ == "__main__":
    main()
