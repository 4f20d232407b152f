"""Runs of the credit benchmark. Each finished run is one line of results/PHASE.jsonl; what has a line is not run again.

    python benchmarks/credit/benchmark.py run --phase pilot --methods oracle,even --tasks sums,facts --seeds 100-103
    python benchmarks/credit/benchmark.py power --phase pilot

All runs share this process and start from one model, which start.yaml trains (a few minutes, once).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml
from credit_tasks import KINDS, task

import fgrl
from fgrl.evaluation.statistics import student

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "results"
NUMBERS = {"quality.right": "right", "quality.solved": "solved", "kl.sum": "kl"}
PARTS, FILLERS = 8, 2


def seeds_of(text: str) -> list[int]:
    """Seeds from `0,1,2` or `100-103`."""
    first, dash, last = text.partition("-")
    return list(range(int(first), int(last) + 1)) if dash else [int(part) for part in text.split(",")]


def start(runs: str) -> str:
    """Return the folder of the model that every training starts from, after training it where that is missing."""
    return str(fgrl.run(HERE / "start.yaml", runs=runs, progress=False).stage("start").product.resolve())


def lines(phase: str) -> Iterator[dict[str, Any]]:
    """Finished runs of a phase."""
    file = RESULTS / f"{phase}.jsonl"
    if file.is_file():
        yield from map(json.loads, file.read_text(encoding="utf-8").splitlines())


def run(options: argparse.Namespace) -> None:
    """Run what has no line yet."""
    methods = yaml.safe_load((HERE / "methods.yaml").read_text(encoding="utf-8"))
    done = {(line["method"], line["task"], line["seed"]) for line in lines(options.phase)}
    base = start(options.runs)
    RESULTS.mkdir(exist_ok=True)
    for seed in seeds_of(options.seeds):
        for name in options.tasks.split(","):
            for method in options.methods.split(","):
                if (method, name, seed) in done:
                    continue
                words = task(name, PARTS, FILLERS).length
                given = {"vars.start": base, "vars.task": name, "vars.words": words, "vars.split": options.split}
                begin = time.perf_counter(), time.process_time()
                finished = fgrl.run(
                    HERE / "task.yaml",
                    {**given, **methods[method]["overrides"]},
                    seed=seed,
                    runs=options.runs,
                    progress=False,
                )
                numbers = {
                    f"{row['model']}.{NUMBERS[row['number']]}": round(row["mean"], 6)
                    for row in finished.numbers()
                    if row["number"] in NUMBERS
                }
                line = {
                    "method": method, "task": name, "seed": seed, "split": options.split, **numbers,
                    "processor seconds": round(time.process_time() - begin[1], 1),
                    "seconds": round(time.perf_counter() - begin[0], 1),
                    "threads": int(os.environ.get("OMP_NUM_THREADS", "0")), "processor": platform.processor() or platform.machine(),
                }  # fmt: skip
                with (RESULTS / f"{options.phase}.jsonl").open("a", encoding="utf-8") as file:
                    file.write(json.dumps(line) + "\n")
                print(json.dumps(line), flush=True)


def shown(values: Sequence[float]) -> str:
    """Mean of one value per seed with its 95% interval (Student's t)."""
    over = student(values)
    bounds = "" if over.low is None or over.high is None else f" [{over.low:.3f}, {over.high:.3f}]"
    return f"{over.mean:.3f}{bounds}"


def power(options: argparse.Namespace) -> None:
    """Per task: each method's share of right words, its difference to `even`, and the smallest difference that 20 seeds can show."""
    found: dict[str, dict[str, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    before: dict[str, list[float]] = defaultdict(list)
    for line in lines(options.phase):
        found[line["task"]][line["method"]][line["seed"]] = line["policy.right"]
        before[line["task"]].append(line["start.right"])
    print(
        "| task | method | right words | before | difference to even | smallest difference of 20 seeds |\n|---|---|---|---|---|---|"
    )
    for name, methods in found.items():
        for method, values in methods.items():
            shared = sorted(values.keys() & methods.get("even", {}).keys())
            change = [values[seed] - methods["even"][seed] for seed in shared]
            least = "" if len(change) < 2 or method == "even" else f"{detectable(change):.3f}"
            against = shown(change) if change and method != "even" else ""
            print(
                f"| {name} | {method} | {shown(list(values.values()))} | {statistics.mean(before[name]):.3f} | {against} | {least} |"
            )


def detectable(change: Sequence[float], seeds: int = 20, power: float = 0.8) -> float:
    """Difference that a paired test at 5% finds with probability `power`, with this spread and so many seeds (normal approximation)."""
    normal = statistics.NormalDist()
    return (normal.inv_cdf(0.975) + normal.inv_cdf(power)) * statistics.stdev(change) / math.sqrt(seeds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    runner = commands.add_parser("run", help="run what is missing")
    runner.add_argument("--methods", required=True)
    runner.add_argument("--tasks", default=",".join(KINDS))
    runner.add_argument("--seeds", required=True)
    runner.add_argument("--split", default="validation", choices=["validation", "test"])
    runner.set_defaults(do=run)
    shower = commands.add_parser("power", help="what can be told apart")
    shower.set_defaults(do=power)
    for each in (runner, shower):
        each.add_argument("--phase", required=True)
        each.add_argument("--runs", default="runs")
    options = parser.parse_args()
    options.do(options)


if __name__ == "__main__":
    main()
