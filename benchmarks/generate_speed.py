"""Tokens a second of the `hf` engine and of transformers' own `generate`, side by side.

    python benchmarks/generate_speed.py [--batch 32 64] [--new 40] [--repeats 5] [--dtype bfloat16]

The ways take turns, so that a busy machine slows all of them; the median of the repeats counts. A token counts when it
belongs to an answer (up to and with its end). With LoRA: a rank-16 adapter on all linear layers.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch

from fgrl import models, rollouts
from fgrl.components.engines.hf import HF
from fgrl.kinds.specs import LoraSpec, ModelSpec, Sampling
from fgrl.rollouts import encode_prompt, pad
from fgrl.types import Prompt

TOPICS = [
    "the sea",
    "rivers",
    "bread",
    "trains",
    "the moon",
    "cats",
    "chess",
    "a lamp",
    "rain",
    "tea",
    "books",
    "snow",
    "music",
    "maps",
    "glass",
    "ships",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--batch", type=int, nargs="+", default=[32, 64])
    parser.add_argument("--new", type=int, default=40, help="longest answer in tokens")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float32"])
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(f"{options.threads} threads, {options.dtype}, up to {options.new} new tokens")
    print(f"{'':<34}" + "".join(f"{f'batch {size}':>14}" for size in options.batch))
    for lora in (None, LoraSpec(r=16)):
        model = models.load(ModelSpec(base=options.model, dtype=options.dtype, lora=lora), trainable=lora is not None)
        ways: dict[str, Callable[..., list[list[int]]]] = {
            "transformers generate": by_transformers,
            "hf engine": by_engine,
        }
        if lora is not None:
            ways["hf engine, adapter folded"] = lambda *given: by_engine(*given, fold=True)
        speeds = {size: measure(model, ways, size, options) for size in options.batch}
        for way in ways:
            name = way + (", LoRA" if lora is not None else "")
            print(f"{name:<34}" + "".join(f"{speeds[size][way]:>8.0f} tok/s" for size in options.batch), flush=True)


def measure(
    model: Any, ways: dict[str, Callable[..., Any]], size: int, options: argparse.Namespace
) -> dict[str, float]:
    prompts = [
        encode_prompt(model.tokenizer, f"Write one or two sentences about {TOPICS[n % len(TOPICS)]}, number {n}.")
        for n in range(size)
    ]
    speeds: dict[str, list[float]] = {way: [] for way in ways}
    for repeat in range(options.repeats + 1):
        for way, generate in ways.items():
            start = time.perf_counter()
            answers = generate(model, prompts, options.new, repeat)
            speeds[way].append(sum(map(len, answers)) / (time.perf_counter() - start))
    return {way: statistics.median(found[1:]) for way, found in speeds.items()}


def by_engine(model: Any, prompts: list[Prompt], new: int, seed: int, fold: bool = False) -> list[list[int]]:
    sampling = Sampling(max_new_tokens=new, batch_size=len(prompts))
    return [
        drawn.token_ids for drawn in rollouts.sample(model, HF(fold=fold).open(model), prompts, sampling, seed=seed)
    ]


def by_transformers(model: Any, prompts: list[Prompt], new: int, seed: int) -> list[list[int]]:
    torch.manual_seed(seed)
    tokens = pad(prompts, [[]] * len(prompts), model.pad_id, set())
    ends = sorted(model.eos_ids)
    with torch.no_grad():
        whole = model.net.generate(
            input_ids=tokens.prompt_ids,
            attention_mask=tokens.prompt_mask.long(),
            do_sample=True,
            top_k=0,
            max_new_tokens=new,
            eos_token_id=ends,
            pad_token_id=model.pad_id,
        )
    answers = whole[:, tokens.prompt_ids.shape[1] :].tolist()
    return [row[: next((n + 1 for n, token in enumerate(row) if token in ends), new)] for row in answers]


if __name__ == "__main__":
    main()
