"""One sandboxed process seen from the outside: started, called, killed. Its replies are limited in size and only used
as data.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import struct
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from fgrl.feedback.sandbox import seccomp, walls
from fgrl.feedback.sandbox.calls import Kind, Outcome, line, parse
from fgrl.feedback.sandbox.limits import SandboxSpec
from fgrl.feedback.sandbox.walls import Wall

START = 60.0
"""Seconds within which an interpreter must have started, also on a busy machine."""
GRACE = 30.0
"""Seconds after the call's own limit. By then the worker should have killed the call; otherwise the worker itself is
killed.
"""
LARGEST_REQUEST = 32 * 2**20
EXCEEDED: dict[str, tuple[Kind, str]] = {
    "timeout": ("timeout", "it took longer than {seconds:g} s"),
    "output": ("output", "it printed more than {output_kb} KB"),
    "result": ("result", "it returned more than {result_kb} KB of JSON"),
    "files": ("files", "it created too many files"),
}


class Gone(Exception):
    """Raised if the process ended or stopped answering. The message is its last line on stderr, if any."""


class Worker:
    """A process behind a wall that answers calls one after the other. Raises `Gone` if it cannot be started."""

    def __init__(self, wall: Wall, spec: SandboxSpec, prelude: str = "") -> None:
        self._spec, self._prelude = spec, prelude
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115
        self._folder = Path(tempfile.mkdtemp(prefix="sandbox-")) if wall == "plain" else None
        command = walls.plain() if wall == "plain" else walls.bubblewrap(spec)
        folders = {}
        if self._folder is not None:
            folders = dict.fromkeys(("HOME", "TMPDIR"), str(self._folder / "folder"))
            for name in ("folder", "packages"):
                (self._folder / name).mkdir()
            for entry in walls.installed_files(spec.packages):
                (self._folder / "packages" / entry.name).symlink_to(entry)
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._stderr,
                cwd=self._folder or "/",
                env={**walls.ENVIRONMENT, **folders},
                start_new_session=True,
            )
        except OSError as error:
            self._remove()
            raise Gone(f"{command[0]} cannot be started: {error}") from None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._in, self._out = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._in, False)
        try:
            self._send(json.dumps(self._opening(wall)).encode("ascii"), time.monotonic() + START)
            if self._receive(time.monotonic() + START).get("ready") is not True:
                raise Gone("the kernel does not take the filter of system calls (seccomp)")
        except BaseException:
            self.close()
            raise

    def _opening(self, wall: Wall) -> dict[str, Any]:
        spec = self._spec
        program = seccomp.program()
        return {
            "seconds": spec.seconds,
            "memory": spec.memory_mb * 2**20,
            "output": spec.output_kb * 1024,
            "result": spec.result_kb * 1024,
            "file": spec.folder_mb * 2**20,
            "folder": walls.FOLDER if self._folder is None else str(self._folder / "folder"),
            "packages": walls.PACKAGES if self._folder is None else str(self._folder / "packages"),
            "prelude": self._prelude,
            "count_files": wall == "bubblewrap",
            "filter": base64.b64encode(program).decode("ascii") if program else "",
        }

    def ask(self, request: bytes) -> tuple[Outcome, bool]:
        """Return (outcome of one call, whether the call touched its folder). Raises `Gone`."""
        self._send(request, time.monotonic() + START)
        answer = self._receive(time.monotonic() + self._spec.seconds + GRACE)
        kinds = {"ended": str, "reply": str, "printed": str, "seconds": int | float, "touched": bool}
        if set(answer) != set(kinds) or not all(isinstance(answer[key], kind) for key, kind in kinds.items()):
            raise Gone("the sandbox's own process sent an invalid answer")
        return self._outcome(answer["ended"], answer["reply"], answer["printed"], answer["seconds"]), answer["touched"]

    def _outcome(self, ended: str, reply: str, printed: str, seconds: float) -> Outcome:
        if ended in EXCEEDED:
            kind, reason = EXCEEDED[ended]
            return Outcome(kind, None, reason.format(**self._spec.model_dump()), printed, seconds)
        if ended != "exit" or not reply:
            return Outcome("crash", None, line(f"it ended without an answer ({ended})"), printed, seconds)
        return Outcome(*parse(reply), printed, seconds)

    def _send(self, data: bytes, deadline: float) -> None:
        unsent = memoryview(struct.pack(">I", len(data)) + data)
        while unsent:
            if not _ready(self._in, select.POLLOUT, deadline):
                raise Gone("the sandbox accepts no call")
            try:
                unsent = unsent[os.write(self._in, unsent) :]
            except BlockingIOError:
                continue
            except OSError:
                raise Gone(self._last_words()) from None

    def _receive(self, deadline: float) -> dict[str, Any]:
        (length,) = struct.unpack(">I", self._read(4, deadline))
        # JSON escapes need at most six bytes per character
        if length > 6 * 1024 * (self._spec.output_kb + self._spec.result_kb) + 4096:
            raise Gone("the sandbox's own process sent more than its limits allow")
        try:
            answer = json.loads(self._read(length, deadline))
        except (ValueError, RecursionError):
            raise Gone("the sandbox's own process sent an invalid answer") from None
        if not isinstance(answer, dict):
            raise Gone("the sandbox's own process sent an invalid answer")
        return answer

    def _read(self, length: int, deadline: float) -> bytes:
        parts = []
        while length:
            if not _ready(self._out, select.POLLIN, deadline):
                raise Gone("the sandbox does not answer")
            part = os.read(self._out, min(length, 2**20))
            if not part:
                raise Gone(self._last_words())
            parts.append(part)
            length -= len(part)
        return b"".join(parts)

    def _last_words(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=1)
        self._stderr.seek(0)
        lines = self._stderr.read(4000).decode("utf-8", errors="replace").strip().splitlines()
        return lines[-1] if lines else "the sandbox's process ended"

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def close(self) -> None:
        """Kill everything in the process and remove its folder."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()
        self._remove()

    def _remove(self) -> None:
        self._stderr.close()
        if self._folder is not None:
            if self._folder.is_symlink():
                self._folder.unlink()
                return
            with suppress(RecursionError):
                shutil.rmtree(self._folder, ignore_errors=True)
            if self._folder.exists():
                # untrusted code nested folders deeper than Python can remove, or took permissions away
                for command in (["chmod", "-R", "u+rwX"], ["rm", "-rf"]):
                    with suppress(OSError):
                        subprocess.run([*command, "--", self._folder], capture_output=True, check=False)


def _ready(descriptor: int, event: int, deadline: float) -> bool:
    """Wait until a file descriptor, of any number, can be read or written (or is at its end). Return False at the
    deadline.
    """
    poller = select.poll()
    poller.register(descriptor, event)
    left = deadline - time.monotonic()
    return left > 0 and bool(poller.poll(left * 1000))
