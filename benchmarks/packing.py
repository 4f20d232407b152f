"""Training passes over rows of different lengths, padded and without padding: tokens per second of processor time.

    OMP_NUM_THREADS=1 python benchmarks/packing.py [--shapes segment_ppo rtt] [--shrink 4] [--micro 4 16] [--tokens 1024 4096] [--rounds 5]

One optimizer step of `rows` rows goes forward and backward through a LoRA policy. Lengths are drawn from log-normal distributions
(sigma 0.7) with the means and limits of a paper's setup, divided by --shrink. Padded micro-batches are those that a training
makes: rows of similar length together, or the responses to one prompt, which is then read once. Rounds alternate between the ways.
Prints, for each way, its passes, the tokens that went through the model for each real one, and the median over rounds of real tokens per
second of processor time, with its ratio to the fastest padded way.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import time
from collections.abc import Iterator
from typing import Any, NamedTuple


class Shape(NamedTuple):
    rows: int
    per_prompt: int
    prompt: tuple[int, int]
    """Mean and limit of its tokens."""
    response: tuple[int, int]


SHAPES = {
    "segment_ppo": Shape(64, 1, (200, 1024), (400, 1024)),
    "rtt": Shape(64, 8, (400, 2048), (900, 4096)),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="bfloat16")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("--shrink", type=int, default=4, help="divides all lengths")
    parser.add_argument("--rows", type=int, help="rows of a step, in place of those of the shape")
    parser.add_argument("--micro", nargs="+", type=int, default=[4, 16], help="micro_batch_size of the padded ways")
    parser.add_argument(
        "--tokens", nargs="+", type=int, default=[1024, 4096], help="micro_batch_tokens of the packed ways"
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args()
    found = {name: measured(SHAPES[name], options) for name in options.shapes}
    print(json.dumps(found) if options.json else "\n\n".join(table(name, ways) for name, ways in found.items()))


def measured(shape: Shape, options: argparse.Namespace) -> list[dict[str, Any]]:
    from fgrl import models
    from fgrl.kinds.specs import LoraSpec, ModelSpec
    from fgrl.training.steps import Step, StepLoader, micro_batches_per_step
    from fgrl.training.units import EncodedUnits

    spec = ModelSpec(base=options.model, dtype=options.dtype, lora=LoraSpec(r=16, alpha=32))
    model = models.load(spec, trainable=True)
    rows = list(drawn(shape, options))
    units = EncodedUnits([[row] for row in rows], pad_id=model.pad_id, eos_ids=model.eos_ids)
    step, real = Step(list(range(len(rows)))), sum(len(row["prompt"]) + len(row["response"]) for row in rows)
    through = 0

    def count(_trunk: Any, _arguments: Any, given: dict[str, Any]) -> None:
        nonlocal through
        through += given["input_ids"].numel()

    model.trunk.register_forward_pre_hook(count, with_kwargs=True)
    ways = [{"way": f"padded, {size} rows", "size": size, "packed": None} for size in options.micro]
    ways += [{"way": f"packed, {most} tokens", "size": 1, "packed": most} for most in options.tokens]
    for way in ways * options.rounds:
        model.packed_tokens = None
        model.pack_rows(way["packed"])
        loader = StepLoader(
            units, [step], micro_batches=micro_batches_per_step(len(rows), way["size"], 1), packed=way["packed"],
            shared=model.shares_prompts(gradient=True),
        )  # fmt: skip
        batches, through = list(loader), 0
        began = time.process_time()
        for batch in batches:
            model.score(batch).logp.sum().backward()
        way.setdefault("seconds", []).append(time.process_time() - began)
        way |= {"passes": len(batches), "through": through / real}
        model.zero_grad()
    return [way | {"tokens per second": real / statistics.median(way["seconds"])} for way in ways]


def drawn(shape: Shape, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Rows of random tokens; `per_prompt` of them have the same prompt."""
    draw = random.Random(0)

    def ids(mean: int, most: int, sigma: float = 0.7) -> list[int]:
        length = draw.lognormvariate(math.log(mean / options.shrink) - sigma**2 / 2, sigma)
        return [draw.randrange(10, 250) for _ in range(max(2, min(most // options.shrink, int(length))))]

    for place in range(options.rows or shape.rows):
        if place % shape.per_prompt == 0:
            prompt = ids(*shape.prompt)
        yield {"prompt": prompt, "response": ids(*shape.response), "finished": False, "columns": {}}


def table(name: str, ways: list[dict[str, Any]]) -> str:
    best = max(way["tokens per second"] for way in ways if way["packed"] is None)
    lines = [
        "| way | passes | tokens through the model / real | tokens per processor second | ratio |",
        "|---|--:|--:|--:|--:|",
    ]
    for way in ways:
        speed = way["tokens per second"]
        lines.append(f"| {way['way']} | {way['passes']} | {way['through']:.2f} | {speed:,.0f} | {speed / best:.2f} |")
    return "\n".join([f"**{name}**", "", *lines])


if __name__ == "__main__":
    main()
