"""Two libraries that take turns at the same training, step by step, each in a process of its own.

A script starts itself once for each library (`Process`, which adds `--side NAME` to its command). The child does its work between
`Side.wait` and `Side.done`; `take_turns` asks for the steps and compares what has to be the same work.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Answer = dict[str, Any]


class Process:
    """One library, as the measuring process sees it: it is asked for a step and answers with what the step took."""

    def __init__(self, side: str, arguments: Sequence[str]) -> None:
        """arguments: of the script that runs, for its child."""
        self._child = subprocess.Popen(
            [sys.executable, sys.argv[0], "--side", side, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.side, self.peak = side, 0.0
        self.loaded = self._read()["resident"]

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *error: object) -> None:
        if error[0] is not None:
            self._child.kill()
        assert self._child.stdin is not None
        self._child.stdin.close()
        self._child.wait()

    def step(self) -> Answer:
        assert self._child.stdin is not None
        self._child.stdin.write("step\n")
        self._child.stdin.flush()
        answer = self._read()
        self.peak = answer["peak"]
        return answer

    def memory(self) -> dict[str, float]:
        """Resident MB: after loading, at the highest during the steps, and the difference."""
        return {"loaded": self.loaded, "peak": self.peak, "beyond": self.peak - self.loaded}

    def _read(self) -> Answer:
        assert self._child.stdout is not None
        line = self._child.stdout.readline()
        if not line:
            raise SystemExit(f"the process of {self.side} ended with {self._child.wait()}; its messages are above")
        answer: Answer = json.loads(line)
        return answer


def take_turns(
    first: Process, second: Process, steps: int, same: Sequence[str], describe: Callable[[str, Answer], str]
) -> dict[str, list[Answer]]:
    """The answers to `steps` steps of each, after one that does not count. Who goes first changes from step to step.

    same: entries of the answers that have to be equal; describe: the part of a progress line about one side.
    """
    answers: dict[str, list[Answer]] = {first.side: [], second.side: []}
    for number in range(steps + 1):
        for process in (first, second) if number % 2 else (second, first):
            answers[process.side].append(process.step())
        latest = {side: made[-1] for side, made in answers.items()}
        for entry in same:
            if latest[first.side][entry] != latest[second.side][entry]:
                values = ", ".join(f"{answer[entry]} in {side}" for side, answer in latest.items())
                raise SystemExit(f"step {number} is not the same work: {entry} {values}")
        line = "; ".join(describe(side, answer) for side, answer in latest.items())
        print(f"step {number}: {line}{'' if number else ' (does not count)'}", file=sys.stderr, flush=True)
    return {side: made[1:] for side, made in answers.items()}


class Side:
    """One library, as it sees itself: waits until it is asked for a step, and answers."""

    def __init__(self) -> None:
        self._answers = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # what libraries print is no answer
        self._loaded = False

    def wait(self) -> None:
        """Until a step is asked for; leaves when there are no more."""
        if not self._loaded:
            Path("/proc/self/clear_refs").write_text("5")  # the kernel forgets the peak so far
            self._answer({"resident": status("VmRSS")})
            self._loaded = True
        if not sys.stdin.readline():
            raise SystemExit
        self.begin()

    def done(self) -> None:
        self._answer({**self.end(), "peak": status("VmHWM")})

    def begin(self) -> None:
        """A step begins."""
        raise NotImplementedError

    def end(self) -> Answer:
        """What the step took, and what identifies its work."""
        raise NotImplementedError

    def _answer(self, answer: Answer) -> None:
        self._answers.write(json.dumps(answer) + "\n")
        self._answers.flush()


def digest(rows: Sequence[Sequence[int]]) -> str:
    """Identifies rows of token ids, whatever their order."""
    return hashlib.sha256(json.dumps(sorted(map(list, rows))).encode()).hexdigest()[:12]


def status(entry: str) -> float:
    """A number of MB from /proc/self/status."""
    line = next(row for row in Path("/proc/self/status").read_text().splitlines() if row.startswith(f"{entry}:"))
    return int(line.split()[1]) * 1024 / 1e6


def memory_table(memory: dict[str, dict[str, float]]) -> list[str]:
    """Lines with the memory of two sides, and the share of the first one in the second one's."""
    columns = ("loaded", "peak", "beyond")
    lines = [f"{'memory':<8}" + "".join(f"{column:>12}" for column in columns)]
    lines += [f"{side:<8}" + "".join(f"{used[column]:>9.0f} MB" for column in columns) for side, used in memory.items()]
    first, second = memory
    shares = (memory[first][column] / memory[second][column] for column in columns)
    return [*lines, f"{'share':<8}" + "".join(f"{share:>12.2f}" for share in shares)]
