"""Peak memory of stages, as `fgrl plan` computes it and as torch's allocator counts it, in one process and in several.

    python benchmarks/plan_memory.py [--cases sft ppo ...] [--processes 1 2] [--size tiny|small] [--where]

Each case is a stage on a random model, on CPUs, with prompts and responses that all reach their limits, which is what a plan assumes.
Counted are the bytes that torch's allocator gives out in a process, from before the models are loaded until the stage has ended; what
Python, the libraries and gloo take is not among them. With several processes the largest of them counts. `--where` names the operations
that were running at the peak.

Prints a Markdown table with planned and measured bytes. Exit code 1 when they differ by more than 15%.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

SIZES: dict[str, dict[str, int]] = {
    "tiny": {"hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 4, "vocab_size": 1024},
    "small": {"hidden_size": 256, "intermediate_size": 768, "num_hidden_layers": 8, "vocab_size": 8192},
}
BOUND = 0.15
PROMPT, RESPONSE = 64, 32
"""Tokens of each prompt and of each response."""
LORA = {"r": 8, "alpha": 16}
PAIRS = {"name": "jsonl", "path": "pairs.jsonl", "format": "preference"}
TOPICS = {"name": "jsonl", "path": "pairs.jsonl", "format": "prompts"}
LIMITS = {"max_prompt_tokens": PROMPT, "max_tokens": PROMPT + RESPONSE}
SAMPLING = {
    "max_prompt_tokens": PROMPT, "max_new_tokens": RESPONSE, "min_new_tokens": RESPONSE, "batch_size": 16
}  # fmt: skip


def tuned(algorithm: Any, model: dict[str, Any] | None = None, **train: Any) -> dict[str, Any]:
    settings = {"lr": 1e-4, "batch_size": 16, "micro_batch_size": 4, "max_steps": 2, "clip_norm": 1.0} | train
    data = (
        {"name": "jsonl", "path": "pairs.jsonl", "format": "sft", "columns": {"response": "chosen"}}
        if algorithm == "sft"
        else PAIRS
    )
    return {
        "name": "finetune", "data": data, "model": model or {}, "algorithm": algorithm, "train": settings, **LIMITS,
    }  # fmt: skip


def reinforced(
    algorithm: Any, model: dict[str, Any] | None = None, per_prompt: int = 1, **train: Any
) -> dict[str, Any]:
    settings = {"lr": 1e-4, "batch_size": 16, "micro_batch_size": 4, "iterations": 1, "clip_norm": 1.0} | train
    reward = {"name": "segment_rm", "model": {}, "segmenter": {"name": "ngram", "n": 3}, "normalizer": None}
    return {
        "name": "rl", "prompts": TOPICS, "model": model or {}, "reward": reward, "algorithm": algorithm,
        "rollout": {"batch_size": 32, "per_prompt": per_prompt, "sampling": SAMPLING}, "train": settings,
    }  # fmt: skip


def cases(processes: int) -> dict[str, dict[str, Any]]:
    """The stages by name. Those that share their weights out need several processes."""
    checkpointed = {"gradient_checkpointing": True}
    if processes == 1:
        return {
            "sft": tuned("sft"),
            "sft, recomputed": tuned("sft", checkpointed),
            "sft, packed": tuned("sft", micro_batch_tokens=400),
            "sft, bf16-mixed": tuned("sft", precision="bf16-mixed"),
            "bradley_terry, LoRA": tuned({"name": "bradley_terry", "segmenter": {"name": "ngram", "n": 3}}, {"lora": LORA}),
            "dpo": tuned({"name": "dpo", "reference_pass": "each_step"}),
            "ppo": reinforced({"name": "ppo", "kl_coef": 0.05}),
            "grpo, LoRA": reinforced({"name": "grpo", "kl_coef": 0.05}, {"lora": LORA, **checkpointed}, per_prompt=2),
            "sample": {"name": "sample", "prompts": TOPICS, "model": {}, "sampling": SAMPLING},
        }  # fmt: skip
    made = {
        f"sft, {how}": tuned("sft", strategy=how) for how in ("ddp", "fsdp", "deepspeed_stage_2", "deepspeed_stage_3")
    }
    made |= {
        f"ppo, {how}": reinforced({"name": "ppo", "kl_coef": 0.05}, strategy=how)
        for how in ("ddp", "deepspeed_stage_2")
    }
    return {name: stage | {"train": stage["train"] | {"devices": processes}} for name, stage in made.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", help="beginnings of their names; all without")
    parser.add_argument("--processes", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument("--where", action="store_true", help="name the operations at the peak")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(json.loads(options.worker))
        return 0
    print(
        f"| stage, {options.size} | processes | planned, MiB | measured, MiB | planned / measured |\n|---|--:|--:|--:|--:|"
    )
    off = []
    for processes in options.processes:
        names = [name for name in cases(processes) if name.startswith(tuple(options.cases or [""]))]
        with tempfile.TemporaryDirectory(prefix="plan-memory-") as made:
            given = {"names": names, "processes": processes, "folder": made, "size": options.size}
            launch(given, processes)
            for name in names:
                found = [json.loads((Path(made) / f"{name}-{rank}.json").read_text()) for rank in range(processes)]
                largest = max(found, key=lambda each: each["measured"])
                planned, measured = largest["planned"], largest["measured"]
                print(
                    f"| {name} | {processes} | {planned / 2**20:.2f} | {measured / 2**20:.2f} | {planned / measured:.2f} |",
                    flush=True,
                )
                if options.where:
                    print(json.dumps({"plan": largest["memory"], "running at the peak": largest["where"]}))
                if abs(planned / measured - 1) > BOUND:
                    off.append(f"{name}, {processes} processes")
    for each in off:
        print(f"{each}: planned and measured differ by more than {BOUND:.0%}", file=sys.stderr)
    return 1 if off else 0


def launch(given: dict[str, Any], processes: int) -> None:
    """Measure in so many new processes, which write into a folder."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    quiet = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "DS_ACCELERATOR": "cpu"}
    ranks = []
    for rank in range(processes):
        place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "NODE_RANK": "0", "LOCAL_RANK": str(rank)}
        place |= {"RANK": str(rank), "WORLD_SIZE": str(processes)}
        command = [sys.executable, __file__, "--worker", json.dumps(given)]
        ranks.append(
            subprocess.Popen(command, env=os.environ | quiet | place, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        )
    said = [process.communicate()[0].decode() for process in ranks]
    if any(process.returncode for process in ranks):
        raise SystemExit("\n".join(text[-3000:] for text in said) + "\na stage failed")


# -- in the processes that are measured --------------------------------------------------------------------------------


def work(given: dict[str, Any]) -> None:
    import warnings

    import torch

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    folder, rank = Path(given["folder"]), int(os.environ["LOCAL_RANK"])
    # before the processes are connected: a rank above 0 saves nothing then
    base = model_folder(folder / f"model-{rank}", SIZES[given["size"]])
    if given["processes"] > 1:
        from fgrl.training import launching

        launching.join(torch.device("cpu"), init_method="env://")
    for name in given["names"]:
        found = measured(cases(given["processes"])[name], base, folder / name, rank)
        (folder / f"{name}-{rank}.json").write_text(json.dumps(found))


def measured(settings: dict[str, Any], base: Path, folder: Path, rank: int) -> dict[str, Any]:
    """Run a stage, and return its planned and its measured peak."""
    from torch.profiler import ProfilerActivity, profile

    from fgrl.experiments import recipe
    from fgrl.experiments.pipeline.estimating import Peek
    from fgrl.experiments.pipeline.run import Run

    place = folder / str(rank)  # each process has its own copy of the recipe
    place.mkdir(parents=True)
    long = (
        "" if settings["name"] == "finetune" else "prompt " * PROMPT
    )  # where responses may be as long as prompt and response together
    rows = [
        {"prompt": f"{long}{number:03}", "chosen": "chosen " * PROMPT, "rejected": "rejected " * PROMPT}
        for number in range(48)
    ]  # with different ends: equal prompts are read once
    (place / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    whole = json.loads(
        json.dumps(settings).replace('"model": {', f'"model": {{"base": {json.dumps(str(base))}, ').replace(", }", "}")
    )
    if "train" in whole:
        whole["train"] |= {"accelerator": "cpu"}
    file = place / "recipe.yaml"
    file.write_text(json.dumps({"about": "A stage whose memory is measured.", "stages": {"stage": whole}}))
    stage = recipe.load(file, []).stages["stage"]
    memory = stage.estimate(Peek(place, None, {}))["memory"]
    (folder / "out").mkdir(parents=True, exist_ok=True)
    run = Run("stage", folder, cache=folder / "cache", rank=rank, accelerator="cpu")
    run.seed_libraries()
    gc.collect()  # what an earlier case has left would be counted as freed by this one
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiled:
        stage.run(run)
    run.close()
    return {"planned": memory["peak"], "memory": memory, **peak_of(profiled)}


def peak_of(profiled: Any) -> dict[str, Any]:
    """The most bytes that were given out at a time, and the names of the operations that ran then, the outermost first."""
    events = list(profiled.profiler.kineto_results.events())
    live = most = when = 0
    for event in sorted((event for event in events if event.name() == "[memory]"), key=lambda event: event.start_ns()):
        live += event.nbytes()
        if live > most:
            most, when = live, event.start_ns()
    running = [
        event for event in events
        if event.name() != "[memory]" and event.start_ns() <= when < event.start_ns() + event.duration_ns()
    ]  # fmt: skip
    return {"measured": most, "where": [event.name() for event in sorted(running, key=lambda event: event.start_ns())]}


def model_folder(path: Path, shape: dict[str, int]) -> Path:
    """A random Llama with a tokenizer of bytes."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(["<pad>", "<end>", *alphabet])}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", pad_token="<pad>")
    config = LlamaConfig(
        **shape, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512, bos_token_id=1, eos_token_id=1,
        pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(path)
    fast.save_pretrained(path)
    return path


if __name__ == "__main__":
    raise SystemExit(main())
