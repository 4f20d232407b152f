"""Execution of a command, which is ended with all its child processes when the process behind our standard input has
ended.

    python guard.py COMMAND ...

It leads the process group. The kernel's own means (`fgrl.base.stops`) reach one process; vLLM has several, which can
outlive each other.
"""

import os
import signal
import subprocess
import sys
import threading


def _end() -> None:
    os.killpg(0, signal.SIGKILL)


def _watch() -> None:
    sys.stdin.buffer.read()  # returns when the other end is closed, by a kill too
    _end()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: None)  # it is for the command, which gets it too
    threading.Thread(target=_watch, daemon=True).start()
    code = subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, check=False).returncode
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    print(f"the server {how}", file=sys.stderr, flush=True)  # noqa: T201
    _end()
