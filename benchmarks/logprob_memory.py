"""Peak extra memory of log-probabilities and entropies, and of a training step: in chunks against all logits at once.

    python benchmarks/logprob_memory.py [--rows 8] [--length 256] [--model smollm2-135m-instruct] [--json]

Every case runs in a fresh process. "Extra" is the highest resident memory during the pass above what was resident right
before it (the model is loaded and one short row has gone through, so that libraries are warm). Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CASES = {
    "score, no gradient": ("score", "float32", False),
    "score, no gradient, bfloat16": ("score", "bfloat16", False),
    "train all weights": ("train", "float32", False),
    "train LoRA r16 on bfloat16": ("lora", "bfloat16", False),
    "train LoRA, gradient checkpointing": ("lora", "bfloat16", True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--rows", type=int, default=8)
    parser.add_argument("--length", type=int, default=256, help="response tokens a row")
    parser.add_argument("--prompt", type=int, default=16, help="prompt tokens a row")
    parser.add_argument("--only", choices=("score", "train", "lora"), help="cases of one kind")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    parser.add_argument("--naive", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.case:
        print(json.dumps(measure(options)))
        return
    rows = []
    for case in (case for case, (kind, *_) in CASES.items() if options.only in (None, kind)):
        found = {way: in_fresh_process(case, way == "naive", options) for way in ("chunked", "naive")}
        rows.append(
            {"case": case, **{f"{way}_{what}": value for way, one in found.items() for what, value in one.items()}}
        )
        if not options.json:
            print(line(rows[-1]) if len(rows) > 1 else f"{HEADER}\n{line(rows[-1])}", flush=True)
    if options.json:
        print(json.dumps(rows, indent=2))


HEADER = f"{'case':<36}{'chunked MB':>12}{'all at once MB':>16}{'chunked s':>12}{'all at once s':>15}"


def line(row: dict[str, Any]) -> str:
    return (
        f"{row['case']:<36}{row['chunked_extra_mb']:>12.0f}{row['naive_extra_mb']:>16.0f}"
        f"{row['chunked_seconds']:>12.2f}{row['naive_seconds']:>15.2f}"
    )


def in_fresh_process(case: str, naive: bool, options: argparse.Namespace) -> dict[str, float]:
    command = [sys.executable, __file__, "--case", case, "--model", options.model]
    command += ["--rows", str(options.rows), "--length", str(options.length), "--prompt", str(options.prompt)]
    done = subprocess.run(command + ["--naive"] * naive, check=True, stdout=subprocess.PIPE, text=True, env=os.environ)
    return json.loads(done.stdout.splitlines()[-1])


def measure(options: argparse.Namespace) -> dict[str, float]:
    import torch

    from fgrl import models
    from fgrl.kinds.specs import LoraSpec, ModelSpec
    from fgrl.rollouts import pad

    kind, dtype, checkpointing = CASES[options.case]
    lora = LoraSpec(r=16) if kind == "lora" else None
    spec = ModelSpec(base=options.model, dtype=dtype, lora=lora, gradient_checkpointing=checkpointing)
    model = models.load(spec, trainable=kind != "score")
    generator = torch.Generator().manual_seed(0)

    def batch(rows: int, length: int) -> Any:
        ids = torch.randint(10, len(model.tokenizer), (rows, options.prompt + length), generator=generator).tolist()
        return pad([row[: options.prompt] for row in ids], [row[options.prompt :] for row in ids], model.pad_id, set())

    def score(tokens: Any) -> tuple[Any, Any]:
        if not options.naive:
            scores = model.score(tokens, entropy=True)
            return scores.logp, scores.entropy
        ids = torch.cat([tokens.prompt_ids, tokens.response_ids], 1)
        logits = model.net(input_ids=ids, use_cache=False).logits[:, options.prompt - 1 : -1].float()
        logs = logits.log_softmax(-1)
        return logs.gather(-1, tokens.response_ids[..., None]).squeeze(-1), -(logs.exp() * logs).sum(-1)

    def step(tokens: Any) -> None:
        with torch.set_grad_enabled(kind != "score"):
            logp, entropy = score(tokens)
            if kind != "score":
                (-logp.mean() - 0.01 * entropy.mean()).backward()
                model.zero_grad(set_to_none=True)

    step(batch(1, 8))
    tokens = batch(options.rows, options.length)
    Path("/proc/self/clear_refs").write_text("5")  # the kernel forgets the peak so far
    before, start = status("VmRSS"), time.perf_counter()
    step(tokens)
    seconds = time.perf_counter() - start
    return {"extra_mb": (status("VmHWM") - before) / 1e6, "seconds": seconds}


def status(what: str) -> int:
    """A number of bytes from /proc/self/status."""
    found = next(row for row in Path("/proc/self/status").read_text().splitlines() if row.startswith(f"{what}:"))
    return int(found.split()[1]) * 1024


if __name__ == "__main__":
    main()
