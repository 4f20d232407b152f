"""How long `import fgrl`, `fgrl --help` and the help of each command take: medians of fresh processes.

The whole process counts, with the start of Python, which is printed as well. Beside the time that passes stands the processor's: on a
machine that is busy with other work it is the one to look at.

    python benchmarks/startup.py [--times 10] [--commands run plan]
"""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys
import time

MOST = 0.3
"""Seconds that the first two are meant to stay below on a quiet core."""


def seconds(arguments: list[str], times: int) -> tuple[float, float]:
    """The median time that passes in a Python process with these arguments, and the median time of the processor."""
    passed, used = [], []
    for _ in range(times):
        began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        passed.append(time.perf_counter() - began)
        used.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return statistics.median(passed), statistics.median(used)


def show(what: str, taken: tuple[float, float], times: int) -> None:
    print(f"{what:28} {taken[0]:.3f} s, processor {taken[1]:.3f} s  (median of {times})", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=10, help="processes of each; of the help of a command 3 at most")
    parser.add_argument("--commands", nargs="*", help="commands whose help is measured (default: all)")
    options = parser.parse_args()

    import typer.main

    import fgrl.cli

    for what, arguments in {
        "python -c pass": ["-c", "pass"],
        "python -c 'import fgrl'": ["-c", "import fgrl"],
        "fgrl --help": ["-m", "fgrl", "--help"],
    }.items():
        show(what, seconds(arguments, options.times), options.times)
    commands = getattr(typer.main.get_command(fgrl.cli.app), "commands", {})
    times = min(3, options.times)
    names = list(commands) if options.commands is None else options.commands
    slowest = {name: seconds(["-m", "fgrl", name, "--help"], times) for name in names}
    for name, taken in sorted(slowest.items(), key=lambda item: item[1], reverse=True):
        show(f"fgrl {name} --help", taken, times)
    print(f"meant to stay below {MOST} s on a quiet core")


if __name__ == "__main__":
    main()
