"""Tokens a second of the engines `hf` and `vllm` on the same cores, side by side.

    FGRL_VLLM_PYTHON=... python benchmarks/vllm_speed.py [--shapes 32x48 64x256] [--repeats 3] [--dtype float32] [--threads 1] [--full]

A shape is responses x tokens; every response has that many tokens. The engines take turns, so that a busy machine slows both; the
median of the repeats counts, after one that warms up. Processor seconds are those of this process and, for `vllm`, of its servers.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path
from typing import Any

import torch

from fgrl import models, registry
from fgrl.experiments import recipe
from fgrl.experiments.pipeline.run import scratch_run
from fgrl.kinds import DrawRequest
from fgrl.kinds.specs import LoraSpec, ModelSpec, Sampling
from fgrl.rollouts import encode_prompt
from fgrl.rollouts.serving import environment

TICKS = os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--shapes", nargs="+", default=["32x48", "64x256"])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--dtype", default="float32", choices=["bfloat16", "float32"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument(
        "--full", action="store_true", help="all weights are trained, rather than an adapter of rank 16"
    )
    options = parser.parse_args()
    if environment.look() is None:
        print(f"not measured, vLLM is in no environment of its own; make one: {environment.how_to_make()}")
        return
    torch.set_num_threads(options.threads)
    os.environ["OMP_NUM_THREADS"] = str(options.threads)  # the servers'
    recipe.know_components()
    spec = ModelSpec(base=options.model, dtype=options.dtype, lora=None if options.full else LoraSpec(r=16))
    model = models.load(spec, trainable=True)
    cache = Path.home() / ".cache" / "fgrl"
    with scratch_run("vllm_speed", cache=cache) as run:
        engine = registry.get("engine", "vllm")(dtype=options.dtype, max_tokens=1024, concurrency=64)
        engine.setup(run)
        with engine.open(model) as served, registry.get("engine", "hf")().open(model) as own:
            began = time.perf_counter()
            served.take(model, 0)
            print(
                f"{options.threads} threads, {options.dtype}; servers started and given the weights in {time.perf_counter() - began:.0f} s"
            )
            servers = [slot.process for slot in served._servers.slots()]
            print(f"{'':<10}{'hf tok/s':>10}{'vllm tok/s':>12}{'hf cpu s':>11}{'vllm cpu s':>12}", flush=True)
            for shape in options.shapes:
                measure(shape, {"hf": own, "vllm": served}, model, servers, options.repeats)


def measure(shape: str, drawers: dict[str, Any], model: Any, servers: list[int], repeats: int) -> None:
    rows, tokens = map(int, shape.split("x"))
    sampling = Sampling(max_new_tokens=tokens, min_new_tokens=tokens, batch_size=rows)
    prompts = [
        encode_prompt(model.tokenizer, f"Write one or two sentences about the number {row}.") for row in range(rows)
    ]
    speeds: dict[str, list[float]] = {name: [] for name in drawers}
    costs: dict[str, list[float]] = {name: [] for name in drawers}
    for repeat in range(repeats + 1):
        requests = [DrawRequest(prompt, sampling, repeat, row) for row, prompt in enumerate(prompts)]
        for name, drawer in drawers.items():
            began, used = time.perf_counter(), processor(servers)
            drawn = drawer.draw(requests)
            speeds[name].append(sum(len(one) for one in drawn) / (time.perf_counter() - began))
            costs[name].append(processor(servers) - used)
    middle = {
        name: statistics.median(found[1:])
        for name, found in (*speeds.items(), *((f"{k} cpu", v) for k, v in costs.items()))
    }
    print(
        f"{shape:<10}{middle['hf']:>10.0f}{middle['vllm']:>12.0f}{middle['hf cpu']:>11.1f}{middle['vllm cpu']:>12.1f}",
        flush=True,
    )


def processor(servers: list[int]) -> float:
    """Seconds of this process and of everything that the servers are."""
    total, left = time.process_time(), list(servers)
    while left:
        process = left.pop()
        ticks = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        total += (int(ticks[11]) + int(ticks[12])) / TICKS
        left += map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split())
    return total


if __name__ == "__main__":
    main()
