"""Seconds that `fgrl plan` takes for every shipped recipe and row on a machine without a network and with an empty hub cache.

    python benchmarks/plans_without_network.py [--only rtt] [--slowest 10]

Each plan is a process of its own, in which every connection to the outside is refused and counted. Exit code 1 when one was
tried, or a plan fails.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fgrl.experiments.recipe import load, rows
from fgrl.registry import Problems

ROOT = Path(__file__).resolve().parents[1]
CUT = """
import socket, sys
tried = []
connect = socket.socket.connect
def refuse(*arguments, **_):
    tried.append(arguments)
    raise OSError("the network is cut")
def local_only(self, address):
    refuse(address) if self.family in (socket.AF_INET, socket.AF_INET6) else connect(self, address)
socket.getaddrinfo, socket.socket.connect = refuse, local_only
from fgrl.cli import main
try:
    main(["plan", *sys.argv[1:]])
except SystemExit as left:
    sys.exit(9 if tried else left.code)
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="recipes whose address contains this")
    parser.add_argument("--slowest", type=int, default=10, help="how many to print")
    options = parser.parse_args()
    files = sorted((ROOT / "recipes").rglob("*.yaml"))
    addresses = [address for file in files for address in (str(file), *(f"{file}::{row}" for row in rows(file)))]
    taken: dict[str, tuple[float, float]] = {}
    """Seconds of the processors, and seconds that went by, which other work on the machine makes longer."""
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        environment = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
        environment |= {"HF_HOME": f"{folder}/hub"}
        for address in (address for address in addresses if options.only in address):
            command = [sys.executable, "-c", CUT, address, "--runs", f"{folder}/runs", *wanted(address)]
            began, before = time.perf_counter(), used()
            done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
            taken[address.removeprefix(f"{ROOT}/")] = used() - before, time.perf_counter() - began
            if done.returncode:
                failed += 1
                print(f"{address}: {'asked the network' if done.returncode == 9 else done.stderr.strip()}")
    for address in sorted(taken, key=taken.__getitem__, reverse=True)[: options.slowest]:
        print("{:6.2f} s of CPU, {:6.2f} s in all  {}".format(*taken[address], address))
    for place, what in enumerate(("CPU time", "time in all")):
        seconds = [each[place] for each in taken.values()]
        print(f"{what}: median {statistics.median(seconds):.2f} s, longest {max(seconds):.2f} s")
    print(f"{len(taken)} plans, {failed} failed")
    return 1 if failed else 0


def used() -> float:
    """Seconds of CPU time of the processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def wanted(address: str) -> list[str]:
    """A model on the hub, or a file, for what the recipe leaves to its user."""
    try:
        load(address)
    except Problems as problems:
        return [f"{name}={_stand_in(name)}" for name in problems.needs]
    return []


def _stand_in(name: str) -> str | Path:
    """A file for what people annotate or decide, a model for anything else."""
    small = ROOT / "recipes" / "small"
    if "annotations" in name:
        return small / "span_annotations.jsonl"
    return small / "definitions.jsonl" if "human" in name else "somebody/some-model"


if __name__ == "__main__":
    sys.exit(main())
