"""Processes of Python that find the large libraries loaded, for tests that start many.

Inside `processes()`, `subprocess` makes a process of Python (`-m module`, `-c code` or a file) from a copy of one that has imported
torch, Lightning, transformers, peft and matplotlib, and nothing of fgrl. The copy runs the module as Python does, from its first line, and the
ranks that it starts are made in the same way. Parents, sessions, signals, exit codes and pipes are the usual ones. Where more is asked for (a
terminal, other options of Python, a variable that libraries may read while they are imported), the process starts as usual.

What stays different: copies of one process order their sets alike. So there are two originals, which take turns: a run and the one that
it is compared with differ. Ranks of one run do not: a test of whether ranks agree starts its ranks as usual, too.

How: each process has a nursery, a copy that was made before it did anything. For a child the nursery forks twice; the one between ends,
and the process, which is the reaper of what is left alone below it for this moment, becomes the parent.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import inspect
import itertools
import os
import pickle
import runpy
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

LIBRARIES = (
    "accelerate", "lightning.pytorch", "matplotlib.backends.backend_svg", "matplotlib.figure", "peft", "pydantic.json_schema",
    "scipy.stats", "torch", "torch.distributed.launcher.api", "torch.distributed.tensor", "transformers.generation",
    "transformers.modeling_utils", "transformers.models.auto", "transformers.models.llama.modeling_llama", "typer",
)  # fmt: skip
READ_LATE = (
    "COLUMNS", "DS_", "FGRL_", "GLOO_", "GROUP_", "KILL_AT", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_", "MLFLOW_", "NODE_RANK", "PYTEST_",
    "PYTHONPATH", "PYTHONSAFEPATH", "PYTORCH_NVML_BASED_CUDA_CHECK", "RANK", "ROLE_", "SCORED", "SLURM_", "SPY", "TORCHELASTIC_",
    "TORCHINDUCTOR_CACHE_DIR", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "WANDB_", "WORLD_SIZE", "_MLFLOW_",
)  # fmt: skip
"""How variables begin that no library reads while it is imported; some of them are set by libraries, in the process of the tests, too. Others
are the same in a process and its original."""
SET_FIRST = {
    "DATASETS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "PYDANTIC_DISABLE_PLUGINS": "__all__",
    "TRANSFORMERS_VERBOSITY": "error",
}  # fmt: skip
"""What fgrl sets, where nobody has, before it imports a library."""
USUAL = {
    "shell": False, "executable": None, "preexec_fn": None, "close_fds": True, "pass_fds": (), "restore_signals": True, "gid": None,
    "gids": None, "uid": None, "umask": -1, "process_group": -1,
}  # fmt: skip
"""What a process asks of `Popen` that a nursery can make."""
OF_TORCHRUN = "torch.distributed.elastic.multiprocessing.subprocess_handler.subprocess_handler"
"""Where torchrun's agent has `Popen` from when it was imported."""
SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
PR_SET_CHILD_SUBREAPER = 36

usual_popen = subprocess.Popen


class Nursery:
    """The other end of a nursery."""

    def __init__(self, end: socket.socket, environment: Mapping[str, str]) -> None:
        self._end, self._read_early, self._one_by_one = end, read_early(environment), threading.Lock()

    def suits(self, environment: Mapping[str, str]) -> bool:
        return read_early(environment) == self._read_early

    def child(self, job: Mapping[str, Any], files: Sequence[int]) -> int:
        """Start a child of this process, with these files as 0, 1 and 2. Return its process id."""
        content = pickle.dumps(job)
        with self._one_by_one:
            reap(True)
            try:
                socket.send_fds(self._end, [struct.pack("q", len(content))], files)
                self._end.sendall(content)
                child, _adopted = struct.unpack("qq", received(self._end, 16))
            finally:
                reap(False)
        return int(child)


class Popen(usual_popen):  # type: ignore[type-arg]
    """That of `subprocess`; the process comes from the nursery where that can make it."""

    def _execute_child(self, *arguments: Any) -> None:
        asked = inspect.signature(super()._execute_child).bind(*arguments).arguments
        environment = dict(os.environ if asked["env"] is None else asked["env"])
        words = [str(word) for word in asked["args"]] if isinstance(asked["args"], (list, tuple)) else []
        pipes = [asked[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        files = [number if pipe == -1 else pipe for number, pipe in enumerate(pipes)]
        usual = all(asked[name] == value for name, value in USUAL.items()) and not any(map(os.isatty, files))
        python = words[:1] == [sys.executable] and (words[1] in ("-m", "-c") or not words[1].startswith("-"))
        nursery = next_nursery(environment) if usual and python else None
        if nursery is None:
            super()._execute_child(*arguments)
            return
        job = {
            "words": words[1:], "environment": environment, "parent": os.getpid(), "folder": str(Path(asked["cwd"] or ".").resolve()),
            "session": asked["start_new_session"],
        }  # fmt: skip
        self.pid = nursery.child(job, files)
        self._child_created = True
        pairs = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(asked[name] for name in pairs))


nurseries: list[Nursery] = []
"""Of this process."""
turns = itertools.count()
set_by_libraries: dict[str, str] = {}
"""Variables of the environment."""


@contextmanager
def processes(environment: Mapping[str, str]) -> Iterator[None]:
    """Inside, `subprocess` takes processes from the nurseries; elsewhere than on Linux it starts them as usual.

    environment: of the originals, when there are none yet.
    """
    if not nurseries and sys.platform == "linux":
        nurseries.extend(original(environment) for _ in range(2))
    with mock.patch.object(subprocess, "Popen", Popen if sys.platform == "linux" else usual_popen):
        yield


@contextmanager
def as_usual() -> Iterator[None]:
    """Inside, where that is inside `processes`, they start as usual, with all that they start."""
    with mock.patch.object(subprocess, "Popen", usual_popen):
        yield


def next_nursery(environment: Mapping[str, str]) -> Nursery | None:
    """None where libraries may have read other variables than in this environment."""
    nursery = nurseries[next(turns) % len(nurseries)]
    return nursery if nursery.suits(environment) else None


def original(environment: Mapping[str, str]) -> Nursery:
    """A nursery that imports the libraries itself."""
    ours, its = socket.socketpair()
    with its:
        usual_popen(
            [sys.executable, __file__, str(its.fileno()), *LIBRARIES], env={**SET_FIRST, **environment}, pass_fds=[its.fileno()], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    return Nursery(ours, environment)


def read_early(environment: Mapping[str, str]) -> dict[str, str]:
    return SET_FIRST | {name: value for name, value in environment.items() if not name.startswith(READ_LATE)}


def reap(on: bool) -> None:
    """Whether processes below this one that lose their parent become its children."""
    if ctypes.CDLL(None, use_errno=True).prctl(PR_SET_CHILD_SUBREAPER, int(on), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def received(end: socket.socket, size: int) -> bytes:
    content = b""
    while len(content) < size:
        part = end.recv(size - len(content))
        if not part:
            raise EOFError("the other process has ended")
        content += part
    return content


# -- in a nursery, and in what it makes ------------------------------------------------------------------------------------


def serve(end: socket.socket) -> dict[str, Any]:
    """Make the children of the process at the other end until that has ended. Return in each of them, with what it is to do."""
    while True:
        for number in SIGNALS:  # they are for the process of this nursery
            signal.signal(number, signal.SIG_IGN)
        head, files, _flags, _address = socket.recv_fds(end, 8, 3)
        if not head:
            os._exit(0)
        job = pickle.loads(received(end, struct.unpack("q", head)[0]))
        if between := os.fork():
            for file in files:
                os.close(file)
            os.waitpid(between, 0)
            end.sendall(struct.pack("q", 1))
            continue
        between = os.getpid()
        if child := os.fork():
            end.sendall(struct.pack("q", child))
            os._exit(0)
        while os.getppid() == between:
            time.sleep(0.001)
        end.close()
        ours, its = socket.socketpair()
        if os.fork():
            its.close()
            become(job, files)
            nurseries.append(Nursery(ours, os.environ))
            return job
        ours.close()
        for file in files:
            os.close(file)
        end = its


def become(job: Mapping[str, Any], files: Sequence[int]) -> None:
    """What the system and Python do when they start a process."""
    if os.getppid() != job["parent"]:
        os._exit(1)
    for number in SIGNALS:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    if job["session"]:
        os.setsid()
    for number, file in enumerate(files):
        os.dup2(file, number)
    for file in files:
        os.close(file)
    os.chdir(job["folder"])
    places = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    installed = [place for place in sys.path[1:] if place not in places]
    os.environ.clear()
    os.environ.update(job["environment"] | set_by_libraries)
    sys.path[:] = [
        *([] if os.environ.get("PYTHONSAFEPATH") else [job["folder"]]),
        *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)),
        *installed,
    ]
    importlib.invalidate_caches()
    sys.modules["numpy"].random.seed()
    subprocess.Popen = Popen  # type: ignore[misc]
    if OF_TORCHRUN in sys.modules:
        sys.modules[OF_TORCHRUN].Popen = Popen  # type: ignore[attr-defined]


def run(words: Sequence[str]) -> None:
    """What Python does with its arguments."""
    if words[0] == "-m":
        sys.argv[1:] = words[2:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif words[0] == "-c":
        sys.argv[:] = ["-c", *words[2:]]
        sys.path[:1] = sys.path[:1] if os.environ.get("PYTHONSAFEPATH") else [""]
        main = sys.modules["__main__"] = ModuleType("__main__")
        exec(compile(words[1], "<string>", "exec"), vars(main))
    else:
        sys.argv[1:], sys.path[0] = words[1:], str(Path(words[0]).resolve().parent)
        runpy.run_path(words[0], run_name="__main__")


def run_and_end(words: Sequence[str]) -> None:
    """End as Python does, but do not take the libraries apart, which would be most of the work of a short process."""
    code = 0
    try:
        run(words)
    except SystemExit as end:
        if not isinstance(end.code, int | None):
            raise
        code = end.code or 0
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    given = dict(os.environ)
    for library in sys.argv[2:]:
        importlib.import_module(library)
    set_by_libraries |= {name: value for name, value in os.environ.items() if given.get(name) != value}
    gc.collect()
    gc.freeze()
    run_and_end(serve(socket.socket(fileno=int(sys.argv[1])))["words"])
