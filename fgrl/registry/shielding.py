"""State of the whole process that code of the user may change while it runs, and that is as before when it returns.

Torch's default type, threads, determinism, gradient mode and device, NumPy's handling of errors, the working folder,
the recursion limit, filters that make errors of warnings, and the standard streams are restored: a reward that
changed them would change trained weights. A change is reported once per function. Random generators are restored
silently: the user's code draws from its own stream, which begins where ours is.

What only harms its author is not caught: code that closes the standard streams or ends the process.
"""

from __future__ import annotations

import os
import random
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from typing import Any

from fgrl.base import console, ranks

Setting = tuple[Callable[[], Any], Callable[[Any], Any]]
"""Reads a setting, and writes it."""
FRESH: dict[str, Any] = {
    "NumPy's handling of errors": {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"},
    "torch's gradient mode": True,
    "torch's precision of products": "highest",
    "torch's default type": "torch.float32",
    "torch's default device": "cpu",
    "torch's determinism": (False, False),
    "cuDNN's determinism": {"deterministic": False, "benchmark": False},
}
"""Settings of a library that was just imported."""
_reported: set[tuple[str, str]] = set()
"""Function and setting of the changes that were reported."""


@contextmanager
def shielded(what: str) -> Iterator[None]:
    """While the block runs code of the user, called `what` in messages (`rewards.py:score`). What it prints goes to
    stderr.
    """
    before = {name: read() for name, (read, _write) in _settings().items()}
    with redirect_stdout(sys.stderr), redirect_stderr(sys.stderr), _user_stream.drawn_from():
        try:
            yield
        finally:
            settings, before = _settings(), FRESH | before
            changed = [name for name, (read, _write) in settings.items() if read() != before.get(name, read())]
            for name in changed:
                settings[name][1](before[name])
            _report(what, changed)


def _report(what: str, changed: list[str]) -> None:
    new = [name for name in changed if (what, name) not in _reported]
    if new and ranks.rank() == 0:
        _reported.update((what, name) for name in new)
        console.remark(f"{what} changed {', '.join(new)} of the whole process: restored after each call")


def _settings() -> dict[str, Setting]:
    """Return the settings of the libraries that are loaded."""
    settings: dict[str, Setting] = {
        "the working folder": (_folder, _enter),
        "the recursion limit": (sys.getrecursionlimit, sys.setrecursionlimit),
        "warnings into errors": (_raised_warnings, _set_raised_warnings),
    }
    if (numpy := sys.modules.get("numpy")) is not None and hasattr(numpy, "seterr"):
        settings["NumPy's handling of errors"] = numpy.geterr, lambda value: numpy.seterr(**value)
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "set_default_device"):  # absent, or being imported
        return settings
    cudnn = torch.backends.cudnn
    return settings | {
        "torch's default type": (
            lambda: str(torch.get_default_dtype()),
            lambda name: torch.set_default_dtype(getattr(torch, name.removeprefix("torch."))),
        ),
        "torch's number of threads": (torch.get_num_threads, torch.set_num_threads),
        "torch's gradient mode": (torch.is_grad_enabled, torch.set_grad_enabled),
        "torch's default device": (lambda: str(torch.get_default_device()), lambda device: torch.set_default_device(None)),
        "torch's precision of products": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        "torch's determinism": (
            lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
            lambda value: torch.use_deterministic_algorithms(value[0], warn_only=value[1]),
        ),
        "cuDNN's determinism": (
            lambda: {"deterministic": cudnn.deterministic, "benchmark": cudnn.benchmark},
            lambda value: _set_all(cudnn, value),
        ),
    }  # fmt: skip


def _set_all(owner: Any, values: dict[str, Any]) -> None:
    for name, value in values.items():
        setattr(owner, name, value)


def _enter(folder: str | None) -> None:
    if folder is not None:
        os.chdir(folder)


def _raised_warnings() -> list[Any]:
    """Return the filters that make errors of warnings. Libraries add others when they are imported."""
    return [entry for entry in warnings.filters if entry[0] == "error"]


def _set_raised_warnings(filters: list[Any]) -> None:
    for entry in _raised_warnings():
        if entry not in filters:
            warnings.filters.remove(entry)  # type: ignore[attr-defined]


def _folder() -> str | None:
    try:
        return os.getcwd()  # noqa: PTH109  (Path.cwd does no more)
    except FileNotFoundError:  # removed by somebody
        return None


class _UserStream:
    """The random stream of the user's code.

    It begins where ours is, and goes on at the next call unless ours has moved. So what such code draws is
    reproducible, also after a kill, and neither draws nor seeds of it change what is drawn elsewhere.
    """

    def __init__(self) -> None:
        self._ours: list[Any] | None = None
        self._theirs: list[Any] = []

    @contextmanager
    def drawn_from(self) -> Iterator[None]:
        ours = _generators()
        states = [read() for read, _write in ours]
        if self._ours is not None and _same(self._ours, states):
            _set(ours, self._theirs)
        try:
            yield
        finally:
            self._theirs = [read() for read, _write in ours]
            self._ours = states
            _set(ours, states)


def _generators() -> list[Setting]:
    generators: list[Setting] = [(random.getstate, random.setstate)]
    if (numpy := sys.modules.get("numpy.random")) is not None and hasattr(numpy, "set_state"):
        generators.append((numpy.get_state, numpy.set_state))
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "set_rng_state"):
        generators.append((torch.get_rng_state, torch.set_rng_state))
        if torch.cuda.is_initialized():
            generators.append((torch.cuda.get_rng_state, torch.cuda.set_rng_state))  # of this device
    return generators


def _set(generators: list[Setting], states: list[Any]) -> None:
    for (_read, write), state in zip(generators, states, strict=True):
        write(state)


def _same(a: Any, b: Any) -> bool:
    """Return True if two states, nested sequences with arrays and tensors in them, are equal."""
    if isinstance(a, list | tuple):
        return isinstance(b, list | tuple) and len(a) == len(b) and all(map(_same, a, b))
    equal = a == b
    return bool(equal.all()) if hasattr(equal, "all") else bool(equal)


_user_stream = _UserStream()
