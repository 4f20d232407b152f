"""Two nodes as two network namespaces of this machine: a training that torchrun starts on both, and what is said when one is late, ends
or hangs.

    sudo OMP_NUM_THREADS=1 python benchmarks/two_nodes.py [--cases run late lost_rank ...] [--limit 20] [--processes 1]

Needs Linux, root and `ip` (iproute2). A pair of virtual Ethernet devices joins the namespaces; their addresses (10.231.x) exist nowhere else.
Each case trains a tiny reward model on the CPU, in a folder of its own. A fault comes after the first checkpoint. Prints for each case the
seconds from the fault to the end of the last process that can end by itself, exit codes of torchrun on both nodes, the largest difference of a
trained weight to those of one process, and what fgrl said. After `lost_rank` and `hang_rank` the same command runs once more, and continues.

`run` no fault; `late` the second node starts 20 seconds later; `lost_rank`, `lost_node`, `lost_first` the process that trains on the
second node, all of the second node, all of the first are killed; `hang_rank`, `hang_first` that process, or that of the first node, is
stopped (SIGSTOP); `dark` the network of the second node goes down. `--limit` is `train.wait_limit`, which ends the last three.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from shared.tables import aligned
from strategies import model_folder

CASES = ("run", "late", "lost_rank", "lost_node", "lost_first", "hang_rank", "hang_first", "dark")
PORT = 29517
LATE = 20.0
"""Seconds."""
STAGE = "reward_model"
WHOLE = ("run", "late")
CONTINUED = ("lost_rank", "hang_rank")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=CASES)
    parser.add_argument("--limit", type=float, default=20.0, help="train.wait_limit, in seconds")
    parser.add_argument("--processes", type=int, default=1, help="on each node")
    options = parser.parse_args()
    if sys.platform != "linux" or os.geteuid() != 0 or shutil.which("ip") is None:
        sys.stderr.write(
            "two_nodes.py makes network namespaces: it needs Linux, root and the program `ip` (iproute2); nothing was run\n"
        )
        return 2
    with tempfile.TemporaryDirectory(prefix="two-nodes-") as folder:
        recipe = written(Path(folder), options.limit)
        alone = Path(folder, "alone")
        subprocess.run([*command(recipe, alone), "-q"], check=True, stdout=subprocess.DEVNULL)
        lines = [["case", "seconds", "codes", "difference", "said"]]
        for case in options.cases:
            lines.append(tried(case, recipe, Path(folder, case), options.processes, alone))
            sys.stderr.write("  ".join(lines[-1]) + "\n")
    print("\n".join(aligned(lines)))
    return 0


def written(folder: Path, limit: float) -> Path:
    """A recipe that trains for 60 steps."""
    pairs = [{"prompt": f"Say {n}", "chosen": f"{n} birds sing", "rejected": f"{n * 7} lamps"} for n in range(32)]
    (folder / "pairs.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    stage = {
        "name": "finetune", "data": {"name": "jsonl", "path": "pairs.jsonl", "format": "preference"},
        "model": {"base": str(model_folder(folder)), "dtype": "float32"}, "algorithm": {"name": "bradley_terry", "segmenter": "bandit"},
        "max_prompt_tokens": 16, "max_tokens": 40,
        "train": {
            "lr": 1e-3, "batch_size": 8, "micro_batch_size": 2, "epochs": 15, "checkpoint_every": 5, "accelerator": "cpu", "strategy": "ddp",
            "wait_limit": limit,
        },
    }  # fmt: skip
    file = folder / "two_nodes.yaml"
    file.write_text(json.dumps({"about": "A training on two nodes.", "stages": {STAGE: stage}}))
    return file


def command(recipe: Path, runs: Path, *more: str) -> list[str]:
    return [sys.executable, *more, "-m", "fgrl", "run", str(recipe), "--runs", str(runs), "--only", STAGE]


# -- one case ----------------------------------------------------------------------------------------------------------


def tried(case: str, recipe: Path, runs: Path, processes: int, alone: Path) -> list[str]:
    """The line of a case."""
    with Nodes(processes) as nodes:
        agents = nodes.start(recipe, runs, late=LATE if case == "late" else 0.0)
        began, left = time.monotonic(), [0, 1]
        if case not in WHOLE:
            while not list(runs.glob("stages/*/last.ckpt")):
                if any(agent.poll() is not None for agent in agents):
                    raise RuntimeError(f"{case}: ended before its first checkpoint\n{nodes.said()}")
                time.sleep(0.01)
            began = time.monotonic()
            left = FAULTS[case](nodes)
        codes = [str(agents[node].wait(timeout=1800)) if node in left else "-" for node in (0, 1)]
        seconds, said = time.monotonic() - began, nodes.said()
    if case in CONTINUED:
        with Nodes(processes) as nodes:
            again = [agent.wait(timeout=1800) for agent in nodes.start(recipe, runs)]
            if again != [0, 0]:
                raise RuntimeError(f"{case}: does not continue\n{nodes.said()}")
    differs = f"{difference(runs, alone):.1e}" if case in (*WHOLE, *CONTINUED) else ""
    return [case, f"{seconds:.0f}", " ".join(codes), differs, said]


class Nodes:
    """Two namespaces, and what runs in them."""

    def __init__(self, processes: int) -> None:
        self.processes = processes
        self.names = [f"fgrl-{os.getpid()}-{number}" for number in (0, 1)]
        self.addresses = ["10.231.77.1", "10.231.77.2"]
        self.outputs = [tempfile.NamedTemporaryFile(suffix=f"-node{number}") for number in (0, 1)]  # noqa: SIM115

    def __enter__(self) -> Nodes:
        for name in self.names:
            ip("netns", "add", name)
        first, second = self.names
        ip("link", "add", "node", "netns", first, "type", "veth", "peer", "name", "node", "netns", second)
        for name, address in zip(self.names, self.addresses, strict=True):
            ip("-n", name, "addr", "add", f"{address}/24", "dev", "node")
            ip("-n", name, "link", "set", "node", "up")
            ip("-n", name, "link", "set", "lo", "up")
        return self

    def __exit__(self, *_error: object) -> None:
        for number, name in enumerate(self.names):
            self.signal(number, signal.SIGKILL)
            ip("netns", "delete", name)

    def start(self, recipe: Path, runs: Path, *, late: float = 0.0) -> list[subprocess.Popen[bytes]]:
        """torchrun on both nodes."""
        agents = []
        for number, (name, own) in enumerate(zip(self.names, self.addresses, strict=True)):
            time.sleep(late * number)
            torchrun = (
                "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", str(self.processes), "--rdzv-backend", "c10d",
                "--rdzv-endpoint", f"{self.addresses[0]}:{PORT}", "--rdzv-conf", f"is_host={int(number == 0)}", "--local-addr", own,
                "--rdzv-id", "two-nodes",
            )  # fmt: skip
            placed = (f"stages.{STAGE}.train.nodes=2", f"stages.{STAGE}.train.devices={self.processes}")
            words = [*command(recipe, runs, *torchrun), *placed]
            agents.append(
                subprocess.Popen(
                    ["ip", "netns", "exec", name, *words], stdout=self.outputs[number], stderr=self.outputs[number],
                    env=os.environ | {"GLOO_SOCKET_IFNAME": "node", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
                )
            )  # fmt: skip
        return agents

    def processes_of(self, number: int) -> list[int]:
        listed = subprocess.run(["ip", "netns", "pids", self.names[number]], capture_output=True, text=True, check=True)
        return [int(line) for line in listed.stdout.split()]

    def ranks(self, number: int) -> list[int]:
        """The processes of a node that train."""
        found = []
        for process in self.processes_of(number):
            with contextlib.suppress(OSError):
                if b"\0RANK=" in Path(f"/proc/{process}/environ").read_bytes():
                    found.append(process)
        return found

    def signal(self, number: int, sent: int, *, ranks_alone: bool = False) -> None:
        for process in self.ranks(number)[-1:] if ranks_alone else self.processes_of(number):
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, sent)

    def said(self) -> str:
        """What fgrl printed about the end, of each node."""
        lines = []
        for number, output in enumerate(self.outputs):
            told = [
                line for line in Path(output.name).read_text().splitlines() if "lost: " in line or "interrupted" in line
            ]
            lines += [f"node {number}: {told[-1]}"] if told else []
        return " | ".join(lines)


def fault(number: int, sent: int, *, ranks_alone: bool, left: list[int]) -> Callable[[Nodes], list[int]]:
    """A signal to a node. left: the nodes that end by themselves."""

    def happens(nodes: Nodes) -> list[int]:
        nodes.signal(number, sent, ranks_alone=ranks_alone)
        return left

    return happens


def goes_dark(nodes: Nodes) -> list[int]:
    ip("-n", nodes.names[1], "link", "set", "node", "down")
    return [0]


FAULTS: dict[str, Callable[[Nodes], list[int]]] = {
    "lost_rank": fault(1, signal.SIGKILL, ranks_alone=True, left=[0, 1]),
    "lost_node": fault(1, signal.SIGKILL, ranks_alone=False, left=[0]),
    "lost_first": fault(0, signal.SIGKILL, ranks_alone=False, left=[1]),
    "hang_rank": fault(1, signal.SIGSTOP, ranks_alone=True, left=[0]),
    "hang_first": fault(0, signal.SIGSTOP, ranks_alone=True, left=[1]),
    "dark": goes_dark,
}


# -- helpers -----------------------------------------------------------------------------------------------------------


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


def difference(runs: Path, others: Path) -> float:
    """The largest of a trained weight."""
    from safetensors.torch import load_file

    mine, theirs = (dict(tensors(folder, load_file)) for folder in (runs, others))
    assert mine.keys() == theirs.keys() != set()
    return max(float((mine[name] - theirs[name]).abs().max()) for name in mine)


def tensors(runs: Path, load: Callable[[Path], dict]) -> Iterator[tuple[str, object]]:  # type: ignore[type-arg]
    for file in sorted(runs.glob("stages/*/out/*.safetensors")):
        yield from load(file).items()


if __name__ == "__main__":
    raise SystemExit(main())
