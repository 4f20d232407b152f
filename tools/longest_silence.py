"""The longest silence in the output of a command, for each stage of a recipe, from the start of the process.

    python tools/longest_silence.py fgrl run recipes/quickstart.yaml

The command gets a pseudo-terminal, as a person's terminal is one. A silence belongs to the stage that the last line `[2/6] NAME` before it
names; what comes before the first one is the start. Prints a line per stage; exit code 1 where a silence is longer than `--most`.
"""

from __future__ import annotations

import argparse
import os
import pty
import re
import select
import sys
import time

STAGE = re.compile(rb"\[\d+/\d+\] ([\w-]+)[ :]")


def silences(command: list[str], echo: bool = True) -> tuple[dict[str, float], int]:
    """Return the longest silence in seconds by stage, and the command's exit code."""
    began = time.monotonic()
    process, terminal = pty.fork()
    if process == 0:
        os.execvp(command[0], command)
    stage, longest, last = "start", {"start": 0.0}, began
    while True:
        select.select([terminal], [], [], 1.0)
        if not select.select([terminal], [], [], 0)[0]:
            continue
        try:
            chunk = os.read(terminal, 65536)
        except OSError:  # the other side is closed
            break
        if not chunk:
            break
        now = time.monotonic()
        longest[stage] = max(longest.get(stage, 0.0), now - last)
        last = now
        if found := STAGE.findall(chunk):
            stage = found[-1].decode()
        if echo:
            sys.stdout.buffer.write(chunk)
            sys.stdout.flush()
    longest[stage] = max(longest.get(stage, 0.0), time.monotonic() - last)
    return longest, os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def main() -> None:
    """Run the command and report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--most", type=float, default=5.0, help="longest silence in seconds that is allowed")
    parser.add_argument("--quiet", action="store_true", help="do not repeat the command's output")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    longest, code = silences(options.command, echo=not options.quiet)
    for stage, seconds in longest.items():
        print(f"{stage}: {seconds:.1f} s")
    sys.exit(code or int(max(longest.values()) > options.most))


if __name__ == "__main__":
    main()
