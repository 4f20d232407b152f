"""One sandboxed process from the outside: started, called, killed. Its replies are limited in size and only used as data."""

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

from fgrl.sandbox import seccomp, walls
from fgrl.sandbox.limits import Limits
from fgrl.sandbox.walls import Wall

START = 60.0
"""Seconds in which an interpreter must have started, also on a busy machine."""
GRACE = 30.0
"""Seconds after the call's own limit at which the worker, which should have killed the call, is given up."""
LARGEST_REQUEST = 32 * 2**20


class Gone(Exception):
    """The process ended or stopped answering. The message is its last line on stderr, if any."""


class Worker:
    """A process behind a wall that answers calls one after the other.

    Raises `Gone` when it cannot be started.
    """

    def __init__(self, wall: Wall, limits: Limits) -> None:
        self._limits = limits
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115
        self._folder = Path(tempfile.mkdtemp(prefix="sandbox-")) if wall == "plain" else None
        command = walls.plain() if wall == "plain" else walls.bubblewrap(limits)
        folders = {"HOME": str(self._folder), "TMPDIR": str(self._folder)} if self._folder else {}
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
        limits = self._limits
        program = seccomp.program()
        return {
            "seconds": limits.seconds,
            "memory": limits.memory_mb * 2**20,
            "output": limits.output_kb * 1024,
            "result": limits.result_kb * 1024,
            "file": limits.folder_mb * 2**20,
            "folder": walls.FOLDER if self._folder is None else str(self._folder),
            "count_files": wall == "bubblewrap",
            "filter": base64.b64encode(program).decode("ascii") if program else "",
        }

    def ask(self, request: bytes) -> dict[str, Any]:
        """The runner's answer to one call: `ended`, `reply`, `printed`, `seconds`, `touched`. Raises `Gone`."""
        self._send(request, time.monotonic() + START)
        answer = self._receive(time.monotonic() + self._limits.seconds + GRACE)
        kinds = {"ended": str, "reply": str, "printed": str, "seconds": int | float, "touched": bool}
        if set(answer) != set(kinds) or not all(isinstance(answer[key], kind) for key, kind in kinds.items()):
            raise Gone("the sandbox's own process sent an invalid answer")
        return answer

    def _send(self, data: bytes, deadline: float) -> None:
        unsent = memoryview(struct.pack(">I", len(data)) + data)
        while unsent:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([], [self._in], [], left)[1]:
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
        if length > 6 * 1024 * (self._limits.output_kb + self._limits.result_kb) + 4096:
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
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self._out], [], [], left)[0]:
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
        """Kill everything in it and remove its folder."""
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
