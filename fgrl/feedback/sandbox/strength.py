"""The strength of this machine's sandbox, determined by attempts to break out of it."""

from __future__ import annotations

import os
import socket
import tempfile
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from fgrl.base.errors import Unavailable
from fgrl.feedback.sandbox import seccomp, walls
from fgrl.feedback.sandbox.calls import Call, Outcome
from fgrl.feedback.sandbox.limits import RANK, SandboxSpec, Strength
from fgrl.feedback.sandbox.walls import Wall
from fgrl.feedback.sandbox.worker import Gone, Worker

GUIDE = "docs/how-to/sandbox.md"

ATTEMPTS = """
import os, socket, tempfile, threading

def attempts(secret, outside, port, allowed, fgrl):
    def read(): return open(secret).read()
    def write(): return open(outside, "w").write("x")
    def network(): return socket.create_connection(("127.0.0.1", port), 2)
    def environment(): assert set(os.environ) - set(allowed)
    def environment_of_fgrl(): return open(f"/proc/{fgrl}/environ").read()
    def process():
        if os.fork() == 0:
            os._exit(0)
    def thread(): threading.Thread(target=int).start()
    def memory(): return bytearray(1 << 31)
    def folder():
        for name in names:
            with open(name, "wb") as file:
                file.write(bytes(8 << 20))
    names = [f"trial-{number}" for number in range(8)]
    done = []
    for attempt in (read, write, network, environment, environment_of_fgrl, process, thread, memory, folder):
        try:
            attempt()
            done.append(attempt.__name__)
        except (OSError, MemoryError, AssertionError, RuntimeError):
            pass
    for name in names:
        if os.path.exists(name):
            os.remove(name)
    with tempfile.TemporaryFile() as file:
        file.write(b"its own folder")
    return done
"""
ENDLESS = "while True: pass"


@dataclass(frozen=True)
class DetectedSandbox:
    """The strongest sandbox of this machine."""

    strength: Strength
    how: str
    """Technique of the sandbox."""
    lacks: str = ""
    """Reason why it is not strong, with the next step; empty if it is."""

    def __str__(self) -> str:
        return f"{self.strength} ({self.how})" + (f"; {self.lacks}" if self.lacks else "")


@cache
def detect() -> DetectedSandbox:
    """Return the strongest sandbox that holds on this machine. The test runs once per process and takes about half a
    second.

    `strong`: bubblewrap, and every attempt to read, write, connect, look into the environment, start a process or
    thread, use memory, disk or time beyond the limits failed. `weak`: a separate process with limits. `none`: not even
    that.
    """
    lacks = walls.why_no_bubblewrap()
    if lacks is None and seccomp.program() is None:
        lacks = "there is no filter of system calls for this processor, so nothing would limit processes"
    if lacks is None:
        try:
            holes = _holes("bubblewrap")
        except Gone as gone:
            lacks = f"bubblewrap does not hold here: {gone}"
        else:
            chosen = walls.program()
            version = ".".join(map(str, chosen[1])) if chosen else ""
            if not holes:
                return DetectedSandbox("strong", f"bubblewrap {version} with seccomp")
            lacks = f"bubblewrap does not hold here: code got through ({', '.join(holes)})"
    try:
        holes = _holes("plain")
    except Gone as gone:
        return DetectedSandbox("none", "code cannot be run", f"{lacks}; without walls: {gone}")
    how = "a process with limits" + (" and seccomp" if seccomp.program() else "")
    secrets = ", also the environment of fgrl" if "environment_of_fgrl" in holes else ""
    return DetectedSandbox("weak", f"{how}, which can read and write whatever you can{secrets}", lacks)


def refuse_unless(require: Literal["strong", "weak"]) -> DetectedSandbox:
    """Return the sandbox of this machine if it is strong enough. Raises `Unavailable` with the next step if it is
    not.
    """
    detected = detect()
    if RANK[detected.strength] >= RANK[require]:
        return detected
    trust = "; or, for code that you trust, set sandbox.require to weak" if detected.strength == "weak" else ""
    raise Unavailable(
        f"code from data runs only in a sandbox; {require} is required, and here it is {detected.strength}: {detected.lacks} "
        f"({GUIDE}){trust}"
    )


def wall_of(detected: DetectedSandbox) -> Wall:
    """Return the isolation of untrusted code."""
    return "bubblewrap" if detected.strength == "strong" else "plain"


def _holes(wall: Wall) -> list[str]:
    """Return the attempts to break out that succeed. Raises `Gone` if code cannot be run, or cannot be stopped."""
    with tempfile.TemporaryDirectory() as folder, socket.create_server(("127.0.0.1", 0)) as server:
        secret, outside = Path(folder) / "secret", Path(folder) / "written"
        secret.write_text("secret", encoding="utf-8")
        allowed = [*walls.ENVIRONMENT, "PWD", "LC_CTYPE"]
        args = [str(secret), str(outside), server.getsockname()[1], allowed, os.getpid()]
        tried = _ask(wall, SandboxSpec(seconds=20), Call(ATTEMPTS, "attempts", args))
        endless = _ask(wall, SandboxSpec(seconds=0.3), Call(ENDLESS))
    for outcome, kind in ((tried, "value"), (endless, "timeout")):
        if outcome.kind != kind:
            raise Gone(outcome.detail)
    return [str(name) for name in tried.value]


def _ask(wall: Wall, spec: SandboxSpec, call: Call) -> Outcome:
    with closing(Worker(wall, spec)) as worker:
        outcome, _touched = worker.ask(call.encoded())
    return outcome
