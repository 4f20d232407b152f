"""The process inside the sandbox. It is run as a script by the bare interpreter and imports nothing of fgrl.

It runs a prelude, which is fgrl's own and trusted. Then it waits for calls on its standard input and forks a child for
each, which runs the untrusted code; it never runs that itself. A child and its parent share the parent's memory as it
was before any call (the child has a copy), read-only files and an empty folder. If a child touched the folder, the
answer reports it (`touched`), and the caller replaces the whole sandbox.

A child can start no process or thread, send no signal, open no socket and leave no shared memory behind: a system call
filter (seccomp, built outside by `fgrl.feedback.sandbox.seccomp`) refuses that. It cannot inspect its parent, which is
not dumpable. So when a child is dead, nothing of it remains.

Frames: four bytes of length (big-endian), then JSON.
"""

from __future__ import annotations

import base64
import collections
import contextlib
import ctypes
import datetime
import gc
import itertools
import json
import math
import os
import random
import re
import resource
import select
import signal
import string
import struct
import sys
import textwrap
import time
import traceback
import unicodedata
from typing import Any, NoReturn

LARGEST = 64 * 2**20
UNSEALED = 97
MOST_FILES = 4096
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 1, 4, 22, 38
CAPABILITY_VERSION = 0x20080522
LANDLOCK_CREATE_RULESET, LANDLOCK_RESTRICT_SELF = 444, 446
"""Numbers of system calls, the same on all processors."""
LANDLOCK_MAKE_BLOCK = 1 << 11
READY_MADE = (collections, datetime, itertools, math, re, string, textwrap, unicodedata)
"""Modules that most checkers import. They are imported here once, so that no child has to import them."""


def read_frame() -> bytes | None:
    """Return the next frame of standard input; None at its end. It reads no further byte, which a child would
    inherit.
    """
    head = _read(4)
    if head is None:
        return None
    (length,) = struct.unpack(">I", head)
    return _read(length) if length <= LARGEST else None


def _read(length: int) -> bytes | None:
    parts = []
    while length:
        part = os.read(0, min(length, 2**20))
        if not part:
            return None
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def write_frame(answer: dict[str, Any]) -> None:
    """Write an answer, its length first."""
    data = json.dumps(answer).encode("ascii")
    write_all(1, struct.pack(">I", len(data)) + data)


def write_all(target: int, data: bytes) -> None:
    """Write all bytes to a file descriptor."""
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]


def main() -> None:
    """Answer the calls that arrive, one after the other."""
    opening = read_frame()
    if opening is None:
        return
    limits = json.loads(opening)
    libc = ctypes.CDLL(None, use_errno=True)
    if sys.platform == "linux":
        libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    program = base64.b64decode(limits["filter"]) if limits["filter"] else None
    sys.path.append(limits["packages"])
    space: dict[str, Any] = {"__name__": "sandboxed", "__builtins__": __builtins__}
    exec(compile(limits["prelude"], "<prelude>", "exec", dont_inherit=True), space)
    os.chdir(limits["folder"])
    limits["opened"] = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    os.umask(0o077)
    gc.collect()
    gc.freeze()
    fresh = folder_state()
    write_frame({"ready": can_seal(libc, program)})
    while (frame := read_frame()) is not None:
        answer = one_call(frame, space, limits, libc, program)
        answer["touched"] = folder_state() != fresh
        write_frame(answer)


def can_seal(libc: Any, program: bytes | None) -> bool:
    """Return True if the kernel accepts the filter. A child tries it, because the filter cannot be undone."""
    if program is None:
        return True
    child = os.fork()
    if child == 0:
        try:
            seal(libc, program)
            os._exit(0)
        finally:
            os._exit(UNSEALED)
    return os.waitpid(child, 0)[1] == 0


def folder_state() -> tuple[int, bool]:
    """Return the time of the folder's last change of any kind, and whether the folder is empty.

    Code cannot forge this: the time of a change (ctime) cannot be set.
    """
    try:
        return os.stat(".").st_ctime_ns, not os.listdir(".")  # noqa: PTH116, PTH208
    except OSError:
        return 0, False


def one_call(
    frame: bytes, space: dict[str, Any], limits: dict[str, Any], libc: Any, program: bytes | None
) -> dict[str, Any]:
    """Run one call in a separate process."""
    started = time.monotonic()
    answer_in, answer_out = os.pipe()
    printed_in, printed_out = os.pipe()
    child = os.fork()
    if child == 0:
        be_child(frame, space, limits, libc, program, answer_out, printed_out)
    os.close(answer_out)
    os.close(printed_out)
    try:
        ended, reply, printed = watch(child, answer_in, printed_in, started + limits["seconds"], limits)
    finally:
        os.close(answer_in)
        os.close(printed_in)
    return {
        "ended": ended,
        "reply": reply.decode("utf-8", errors="replace"),
        "printed": printed.decode("utf-8", errors="replace"),
        "seconds": time.monotonic() - started,
    }


def watch(child: int, answer: int, printed: int, deadline: float, limits: dict[str, Any]) -> tuple[str, bytes, bytes]:
    """Return (how the child ended, its reply, its output). Reads until the child is dead, and kills it at a limit."""
    received = {answer: bytearray(), printed: bytearray()}
    largest = {answer: limits["result"], printed: limits["output"]}
    limit_of = {answer: "result", printed: "output"}
    poller = select.poll()
    for source in received:
        poller.register(source, select.POLLIN)
    poller.register(0, 0)  # it tells of the end of the caller, and of nothing else
    reading, exceeded, status = set(received), None, None
    while exceeded is None and status is None:
        left = deadline - time.monotonic()
        if left <= 0:
            exceeded = "timeout"
        elif limits["count_files"] and too_many_files(limits["opened"]):
            exceeded = "files"
        else:
            for source, _ in poller.poll(min(left, 0.05) * 1000 if reading else 0.5):
                if source == 0:
                    os.kill(child, signal.SIGKILL)
                    os._exit(0)
                part = os.read(source, 65536)
                if not part:
                    poller.unregister(source)
                    reading.discard(source)
                received[source] += part
                if len(received[source]) > largest[source]:
                    exceeded = limit_of[source]
                    del received[source][largest[source] :]
            if not reading:
                dead, code = os.waitpid(child, os.WNOHANG)
                status = code if dead else None
    if status is None:
        os.kill(child, signal.SIGKILL)
        status = os.waitpid(child, 0)[1]
    return exceeded or _ending(status), bytes(received[answer]), bytes(received[printed])


def _ending(status: int) -> str:
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        return "timeout" if number == signal.SIGXCPU else f"signal {number}"
    code = os.WEXITSTATUS(status)
    return f"exit {code}" if code else "exit"


def too_many_files(folder: int) -> bool:
    """Return True if the folder has too many files: even an empty file takes kernel memory, and no other limit counts
    files. folder: opened before any call, since a child can remove the permission to look into it.
    """
    usage = os.fstatvfs(folder)
    return usage.f_files - usage.f_ffree > MOST_FILES


# -- in the child --------------------------------------------------------------------------------------------------------


def be_child(
    frame: bytes,
    space: dict[str, Any],
    limits: dict[str, Any],
    libc: Any,
    program: bytes | None,
    answer: int,
    printed: int,
) -> NoReturn:
    """Close all file descriptors, set limits, run the code, answer, end. Never returns."""
    try:
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        high = [os.dup(answer), os.dup(printed)]
        os.dup2(high[1], 1)
        os.dup2(high[1], 2)
        os.dup2(high[0], 3)
        os.closerange(4, 4096)
        random.seed(0)  # Python seeds it anew in every fork
        bound(limits)
        if sys.platform == "linux":
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            hide_other_processes(libc)
        if program is not None:
            seal(libc, program)
    except BaseException:
        os._exit(UNSEALED)
    try:
        reply = run(frame, space)
    except MemoryError:
        reply = json.dumps({"error": "MemoryError", "memory": True})
    except BaseException as error:
        reply = json.dumps({"error": describe(error), "memory": False})
    with contextlib.suppress(BaseException):
        sys.stdout.flush()
        sys.stderr.flush()
    try:
        write_all(3, reply.encode("ascii"))
    finally:
        os._exit(0)


def bound(limits: dict[str, Any]) -> None:
    """Set the limits of this process."""
    seconds = math.ceil(limits["seconds"]) + 1
    for name, most in (
        ("RLIMIT_CPU", seconds),
        ("RLIMIT_AS", limits["memory"]),
        ("RLIMIT_FSIZE", limits["file"]),
        ("RLIMIT_NOFILE", 64),
        ("RLIMIT_CORE", 0),
        ("RLIMIT_NPROC", 0),
        ("RLIMIT_MEMLOCK", 0),
        ("RLIMIT_MSGQUEUE", 0),
    ):
        if hasattr(resource, name):
            resource.setrlimit(getattr(resource, name), (most, most))


def hide_other_processes(libc: Any) -> None:
    """Forbid this process to look into other processes of the same user: their environment, memory and open files.
    Without capabilities, root is a user like any other. A process in a Landlock domain may look only into processes of
    that domain; the domain needs a rule, and this one forbids to make block devices. A kernel before Linux 5.13 has no
    Landlock; `fgrl doctor` tells whether the environment of fgrl can be read.
    """
    libc.capset(struct.pack("<Ii", CAPABILITY_VERSION, 0), bytes(24))
    ruleset = libc.syscall(LANDLOCK_CREATE_RULESET, struct.pack("<Q", LANDLOCK_MAKE_BLOCK), ctypes.c_size_t(8), 0)
    if ruleset >= 0:
        libc.syscall(LANDLOCK_RESTRICT_SELF, ruleset, 0)


def seal(libc: Any, program: bytes) -> None:
    """Apply the filter to this process, irrevocably. Raises OSError if the kernel refuses."""

    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]

    structure = Program(len(program) // 8, program)
    if libc.prctl(PR_SET_SECCOMP, 2, ctypes.byref(structure), 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "the kernel refused the filter")


def run(frame: bytes, space: dict[str, Any]) -> str:
    """Return the value of a call, as JSON. space: the names of the prelude."""
    call = json.loads(frame)
    exec(compile(call["source"], "<code>", "exec", dont_inherit=True), space)
    if call["function"] is None:
        return json.dumps({"value": None})
    function = space.get(call["function"])
    if not callable(function):
        raise NameError(f"the source defines no function {call['function']!r}")
    value = function(*call["args"], **call["kwargs"])
    if call["truth"]:
        value = bool(value)
    try:
        return json.dumps({"value": value}, allow_nan=False)
    except BaseException as error:
        raise TypeError(f"returned something that is not JSON: {describe(error)}") from None


def describe(error: BaseException) -> str:
    """Return the error and the line of the code that raised it, even if the error cannot be printed."""
    try:
        text = f"{type(error).__name__}: {error}"[:2000]
        places = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == "<code>"]
        return f"line {places[-1]}: {text}" if places else text
    except BaseException:
        return "an error that cannot be printed"


if __name__ == "__main__":
    main()
