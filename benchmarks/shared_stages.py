"""Stages without training on several processes: seconds of each rank, and whether the product has the bytes of one process.

    OMP_NUM_THREADS=1 python benchmarks/shared_stages.py [--model MODEL] [--processes 1 2 4] [--prompts 32] [--new 32] [--stages sample ...]

`sample` draws two responses to each prompt, `calibrate` scores both responses of as many pairs and takes the entropies that cut them, and
`evaluate` lets a model answer and takes its KL to another. Each stage runs with each number of processes in a folder of its own. The
processes are copies of one that has imported everything. Prints, for each stage and number, the seconds of processor time of each rank (with
what every rank does: reading the recipe, loading models), and whether all files of the product are equal.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

from shared.tables import aligned

STAGES = ("sample", "calibrate", "evaluate")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="smollm2-135m-instruct")
    parser.add_argument("--processes", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--prompts", type=int, default=32)
    parser.add_argument("--new", type=int, default=32, help="tokens of a response, at most")
    parser.add_argument("--stages", nargs="+", choices=STAGES, default=STAGES)
    options = parser.parse_args()
    import lightning.pytorch  # noqa: F401  (so that the copies have it)
    import transformers  # noqa: F401

    lines = [["stage", "processes", "seconds of each rank", "bytes"]]
    with tempfile.TemporaryDirectory() as folder:
        recipe = written(Path(folder), options)
        for stage in options.stages:
            first: dict[str, bytes] = {}
            for world in options.processes:
                place = Path(folder, f"{stage}-{world}")
                seconds = ran(recipe, place, stage, world)
                made = product(place, stage)
                first = first or made
                same = "equal" if made == first else "DIFFERENT"
                lines.append([stage, str(world), " ".join(f"{value:.1f}" for value in seconds), same])
    print("\n".join(aligned(lines)))


def written(folder: Path, options: argparse.Namespace) -> Path:
    """A recipe of the three stages, with prompts and pairs of several lengths."""
    texts = [" ".join(["a bird sings in the garden"] * (1 + number % 5)) for number in range(options.prompts)]
    (folder / "prompts.txt").write_text("\n".join(f"{number}: {text}" for number, text in enumerate(texts)))
    pairs = [
        {"prompt": text, "chosen": text[: 9 + number % 40], "rejected": text[:7]} for number, text in enumerate(texts)
    ]
    (folder / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    prompts, model = {"name": "lines", "path": "prompts.txt"}, {"base": options.model, "dtype": "float32"}
    sampling = {"max_new_tokens": options.new, "batch_size": 4}
    stages: dict[str, dict[str, Any]] = {
        "sample": {"name": "sample", "prompts": prompts, "model": model, "sampling": sampling, "per_prompt": 2},
        "calibrate": {
            "name": "calibrate", "data": {"name": "jsonl", "path": "pairs.jsonl", "format": "preference"}, "model": model, "batch_size": 4,
            "reward": {"name": "segment_rm", "model": model, "segmenter": {"name": "entropy", "cutoff": 2.0}}, "normalizer": "location",
        },
        "evaluate": {
            "name": "evaluate", "prompts": prompts, "models": {"one": model, "other": model}, "baseline": "one", "metrics": ["length", "kl"],
            "sampling": sampling,
        },
    }  # fmt: skip
    recipe = {"about": "Stages that share their work out.", "stages": {name: stages[name] for name in options.stages}}
    file = folder / "shared.yaml"
    file.write_text(json.dumps(recipe))
    return file


def ran(recipe: Path, folder: Path, stage: str, world: int) -> list[float]:
    """Run a stage in copies of this process. Return the processor seconds of each rank."""
    folder.mkdir()
    job, pids = uuid.uuid4().hex, []
    for rank in range(world):
        pids.append(os.fork())
        if not pids[-1]:
            step = {
                "SLURM_JOB_ID": job,
                "SLURM_STEP_NUM_TASKS": str(world),
                "SLURM_PROCID": str(rank),
                "SLURM_LOCALID": str(rank),
            }
            os.environ |= step if world > 1 else {}
            work(
                rank,
                ["run", str(recipe), "--runs", str(folder), "--only", stage, f"stages.{stage}.devices={world}"],
                folder,
            )
    ended = [os.wait4(pid, 0) for pid in pids]
    if any(status for _pid, status, _usage in ended):
        sys.exit((folder / "said-0").read_text())
    return [seconds(usage) for _pid, _status, usage in ended]


def work(rank: int, words: list[str], folder: Path) -> None:
    """Be a rank; what it says is in a file."""
    from fgrl import cli

    code = 1
    with (
        (folder / f"said-{rank}").open("w") as said,
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
    ):
        try:
            cli.main(words)
        except SystemExit as end:
            code = int(end.code or 0)
    os._exit(code)


def seconds(usage: resource.struct_rusage) -> float:
    return usage.ru_utime + usage.ru_stime


def product(folder: Path, stage: str) -> dict[str, bytes]:
    (out,) = (folder / "stages").glob(f"{stage}-*/out")
    return {file.relative_to(out).as_posix(): file.read_bytes() for file in sorted(out.rglob("*")) if file.is_file()}


if __name__ == "__main__":
    main()
