"""Servers of vLLM on this machine: start, checks, replacement, end. `fgrl.rollouts.serving.drawer` knows which weights
they have.

The processes of a distributed stage share servers. Rank 0 starts them. If a rank finds a dead server, it starts a
replacement while it holds a lock, and records its address.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import filelock

from fgrl.base import ranks, stops
from fgrl.base.errors import EngineFailed
from fgrl.base.files import write_json
from fgrl.rollouts.serving import guard
from fgrl.rollouts.serving.connection import UNIX, Connection, ServerGone, ServerRefused, check_address

STATE = "servers.json"
POLL = 0.2
"""Seconds between two checks of a server that starts."""
HEALTH = 10.0
"""Seconds in which a server has to answer a health check."""
LEAVE = 10.0
"""Seconds in which a server may end by itself."""
SETTLE = 1.0
"""Seconds in which the guard of an ended server records how it ended."""
SHOWN = 15
"""Number of lines of a server's log that an error shows."""
MODULE = "vllm.entrypoints.openai.api_server"
WORKER = Path(__file__).with_name("in_vllm")


@dataclass(frozen=True)
class Launch:
    """Settings for starting a server."""

    python: str
    arguments: tuple[str, ...]
    """Arguments of vLLM's API server, without the address at which it listens."""
    environment: Mapping[str, str]
    devices: tuple[tuple[int, ...], ...] = ()
    """GPUs of each copy; (): the GPUs that vLLM chooses."""

    def command(self, socket: Path) -> list[str]:
        """Return the command line of a server that listens at a socket of this machine."""
        own = [self.python, "-m", MODULE, "--uds", str(socket), *self.arguments]
        return [sys.executable, "-I", str(Path(guard.__file__)), *own]

    def variables(self, copy: int) -> dict[str, str]:
        """Return the environment of a server: the environment of this process, without variables that are only for this
        process.
        """
        unknown = (stops.PARENT, "PYTHONHOME")
        ours = {name: value for name, value in ranks.without_launcher(os.environ).items() if name not in unknown}
        names = list(filter(None, ours.get("CUDA_VISIBLE_DEVICES", "").split(",")))
        own = [names[each] if names else str(each) for each in self.devices[copy]] if self.devices else []
        visible = {"CUDA_VISIBLE_DEVICES": ",".join(own)} if own else {}
        return dict([ranks.LOOPBACK]) | ours | dict(self.environment) | visible | {"PYTHONPATH": str(WORKER)}


@dataclass(frozen=True)
class Slot:
    """The place of one server; another server may take it later."""

    number: int
    address: str
    process: int | None = None
    """Id of the server's process group; None if the server was not started by fgrl."""
    generation: int = 0
    """Number of servers that were in this place before."""
    version: str = ""
    """Version of the weights that were last brought to it and found there."""

    @property
    def connection(self) -> Connection:
        return Connection(self.address)


class Servers:
    """All copies of one kind of server."""

    def __init__(
        self, folder: Path, launch: Launch | None, *, copies: int, addresses: Sequence[str] = (), start_limit: float,
        rank: int = 0, say: Callable[[str], None] = lambda _text: None,
    ) -> None:  # fmt: skip
        """folder: a folder for these servers alone. launch: None for the servers at `addresses`, which run already.
        rank: the rank of this process; all processes of a stage have the same folder.
        """
        self.folder, self.launch, self.copies, self.addresses = folder, launch, copies, list(addresses)
        self.start_limit, self.rank, self.say = start_limit, rank, say
        self.held: Counter[tuple[str, str]] = Counter()
        """Number of drawers that draw from each version."""
        self._own: dict[int, subprocess.Popen[bytes]] = {}
        self._sockets: Path | None = None
        """Folder of the sockets of `_own`."""
        self.started = False
        """True if the servers run, as far as this process knows."""
        self._turn = threading.RLock()
        self._lock = filelock.FileLock(str(folder.with_suffix(".lock")), timeout=3 * start_limit)

    @contextmanager
    def reserved(self) -> Iterator[None]:
        """Reserve the servers: meanwhile no other thread of this process draws from them or changes their weights."""
        while not self._turn.acquire(timeout=POLL):
            stops.point()
        try:
            yield
        finally:
            self._turn.release()

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold the lock of changes: meanwhile no other process replaces a server or changes its weights."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        with self._lock:
            yield

    # -- starting ------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start all copies, and wait until they pass a health check."""
        shutil.rmtree(self.folder, ignore_errors=True)  # of a process that was killed
        self.folder.mkdir(parents=True)
        if self.launch is None:
            slots = [Slot(number, address) for number, address in enumerate(self.addresses)]
            for slot in slots:
                check_address(slot.address)
        else:
            many = f"{self.copies} servers" if self.copies > 1 else "a server"
            self.say(f"vllm: starting {many}; the logs are in {self.folder}")
            slots = [self._launched(Slot(number, "")) for number in range(self.copies)]
        try:
            for slot in slots:
                self._wait(slot)
        except BaseException:
            self.end()
            raise
        self._write(slots)
        self.started = True

    def _launched(self, slot: Slot) -> Slot:
        assert self.launch is not None
        # a path of its own is short enough for a socket, and its folder is closed to other users
        self._sockets = self._sockets or Path(tempfile.mkdtemp(prefix="fgrl-"))
        socket = self._sockets / f"{slot.number}-{slot.generation}"
        with self._log(slot).open("wb") as log:
            process = subprocess.Popen(
                self.launch.command(socket), env=self.launch.variables(slot.number), stdin=subprocess.PIPE, stdout=log,
                stderr=subprocess.STDOUT, start_new_session=True, cwd=self.folder,
            )  # fmt: skip
        self._own[slot.number] = process
        return replace(slot, address=f"{UNIX}{socket}", process=process.pid, version="")

    def _wait(self, slot: Slot) -> None:
        until = time.monotonic() + self.start_limit
        while not self.is_well(slot):
            stops.point()
            process = self._own.get(slot.number)
            if process is not None and process.poll() is not None:
                raise EngineFailed(f"server {slot.number} of vLLM ended before it was ready:\n{self.last_words(slot)}")
            if time.monotonic() > until:
                raise EngineFailed(
                    f"server {slot.number} of vLLM at {slot.address} was not ready within start_timeout, {self.start_limit:g} s:\n"
                    f"{self.last_words(slot)}"
                )
            time.sleep(POLL)

    # -- watching ------------------------------------------------------------------------------------------------------

    def slots(self) -> list[Slot]:
        """Return the current servers, including replacements that other processes started."""
        return [Slot(**one) for one in json.loads((self.folder / STATE).read_text(encoding="utf-8"))]

    def is_well(self, slot: Slot) -> bool:
        """Return True if a server answers."""
        process = self._own.get(slot.number)
        if process is not None and process.pid == slot.process and process.poll() is not None:
            return False
        try:
            slot.connection.get("/health", limit=HEALTH)
        except (ServerGone, ServerRefused):
            return False
        return True

    def note(self, slot: Slot, version: str) -> None:
        """Record which weights a server has."""
        with self.changing():
            self._write([replace(one, version=version) if one.number == slot.number else one for one in self.slots()])

    def renew(self, slot: Slot, why: str) -> Slot:
        """Return the replacement of a server that is gone; another process may have started it already. If the server
        was not started by fgrl, wait for it.
        """
        with self.changing():
            now = next(one for one in self.slots() if one.number == slot.number)
            if now.generation != slot.generation:
                return now
            last = self.last_words(slot)
            if self.launch is None:
                self.say(f"vllm: the server at {slot.address} is gone ({why}); waiting for it")
                new = replace(slot, generation=slot.generation + 1, version="")
            else:
                self.say(
                    f"vllm: server {slot.number} is gone ({why}), another one is started; its last line: {last.splitlines()[-1]}"
                )
                self._kill(slot)
                new = self._launched(replace(slot, generation=slot.generation + 1))
            self._wait(new)
            self._write([new if one.number == new.number else one for one in self.slots()])
        return new

    def last_words(self, slot: Slot) -> str:
        """Return the last lines of a server's log."""
        if self.launch is None:
            return "(its log is where it was started)"
        process = self._own.get(slot.number)
        if process is not None and process.pid == slot.process:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(SETTLE)
        with contextlib.suppress(FileNotFoundError):
            lines = self._log(slot).read_text(encoding="utf-8", errors="replace").splitlines()
            return "\n".join(line[:300] for line in lines[-SHOWN:]) or "(its log is empty)"
        return "(it has no log)"

    # -- ending --------------------------------------------------------------------------------------------------------

    def end(self) -> None:
        """End everything that this process has started; rank 0 removes all files except the logs."""
        for process in self._own.values():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
        until = time.monotonic() + LEAVE
        for process in self._own.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0.0, until - time.monotonic()))
            _kill_group(process.pid)
            process.wait()
            if process.stdin is not None:
                process.stdin.close()
        self._own.clear()
        if self._sockets is not None:
            shutil.rmtree(self._sockets, ignore_errors=True)
            self._sockets = None
        for left in self.folder.glob("*") if self.rank == 0 else ():
            if left.is_dir():
                shutil.rmtree(left, ignore_errors=True)
            elif left.suffix != ".log":
                left.unlink(missing_ok=True)

    def _kill(self, slot: Slot) -> None:
        if slot.process is not None:
            _kill_group(slot.process)
        process = self._own.pop(slot.number, None)
        if process is not None:
            process.wait()
            if process.stdin is not None:
                process.stdin.close()

    def _log(self, slot: Slot) -> Path:
        return self.folder / f"server-{slot.number}-{slot.generation}.log"

    def _write(self, slots: Sequence[Slot]) -> None:
        write_json(self.folder / STATE, [asdict(slot) for slot in slots])


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)


class Pool:
    """The servers of a stage. They stay until the stage ends, or until other servers are needed and nothing draws from
    these.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        self.folder = folder
        for left in folder.glob(f"*/{STATE}") if rank == 0 else ():  # of a process that was killed
            shutil.rmtree(left.parent)
        self._known: dict[str, Servers] = {}
        self._drawers: dict[str, int] = {}

    def take(self, key: str, make: Callable[[Path], Servers]) -> Servers:
        """Return the servers of `key`; they are made if there are none. Each call must be followed by `give_back`."""
        if key not in self._known:
            for idle in [name for name, drawers in self._drawers.items() if not drawers]:
                self._known.pop(idle).end()
                del self._drawers[idle]
            self._known[key] = make(self.folder / key)
            self._drawers[key] = 0
        self._drawers[key] += 1
        return self._known[key]

    def give_back(self, key: str) -> None:
        """Record that a drawer is closed."""
        self._drawers[key] -= 1

    def close(self) -> None:
        """End all servers."""
        for servers in self._known.values():
            servers.end()
        self._known.clear()
        self._drawers.clear()
