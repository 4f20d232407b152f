"""Protection against code of the user, which runs in fgrl's process and must not change what is trained.

A change of torch's settings stops the run. When the code returns, the working folder and the random generators are
restored: the code draws from a separate stream, which begins at the state of fgrl's own. Its output goes to stderr.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from typing import Any

from fgrl.base.errors import UserCodeError

Generator = tuple[Callable[[], Any], Callable[[Any], Any]]
"""Functions that read and write the state of a random generator."""
FRESH: dict[str, Any] = {
    "torch's gradient mode": True,
    "torch's precision of products": "highest",
    "torch's default type": "torch.float32",
    "torch's default device": "cpu",
    "torch's determinism": (False, False),
    "cuDNN's determinism": (False, False),
}
"""Settings of torch directly after its import."""


@contextmanager
def shielded(what: str) -> Iterator[None]:
    """Protect the process while the block runs code of the user, called `what` in messages (`rewards.py:score`).

    Raises `UserCodeError` if the code changed a setting of torch.
    """
    before = _settings()
    with chdir("."), redirect_stdout(sys.stderr), redirect_stderr(sys.stderr), _user_stream.drawn_from():
        yield
    changed = [name for name, value in _settings().items() if value != before.get(name, value)]
    if changed:
        raise UserCodeError(
            f"{what} changed {', '.join(changed)} of the whole process, which would change what is trained\n"
            "    = set it back before the code returns, for example by a with statement (with torch.no_grad():)"
        )


def _settings() -> dict[str, Any]:
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "set_default_device"):  # absent, or being imported
        return FRESH
    cudnn = torch.backends.cudnn
    return {
        "torch's default type": str(torch.get_default_dtype()),
        "torch's number of threads": torch.get_num_threads(),
        "torch's gradient mode": torch.is_grad_enabled(),
        "torch's default device": str(torch.get_default_device()),
        "torch's precision of products": torch.get_float32_matmul_precision(),
        "torch's determinism": (
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
        ),
        "cuDNN's determinism": (cudnn.deterministic, cudnn.benchmark),
    }


class _UserStream:
    """The random stream of the user's code.

    It begins at the state of fgrl's own stream, and continues at the next call unless that stream has moved. So draws
    of such code are reproducible, also after a kill, and neither its draws nor its seeds change other draws.
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


def _generators() -> list[Generator]:
    generators: list[Generator] = [(random.getstate, random.setstate)]
    if (numpy := sys.modules.get("numpy.random")) is not None and hasattr(numpy, "set_state"):
        generators.append((numpy.get_state, numpy.set_state))
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "set_rng_state"):
        generators.append((torch.get_rng_state, torch.set_rng_state))
        if torch.cuda.is_initialized():
            generators.append((torch.cuda.get_rng_state, torch.cuda.set_rng_state))  # of this device
    return generators


def _set(generators: list[Generator], states: list[Any]) -> None:
    for (_read, write), state in zip(generators, states, strict=True):
        write(state)


def _same(a: Any, b: Any) -> bool:
    """Return True if two states, nested sequences with arrays and tensors in them, are equal."""
    if isinstance(a, list | tuple):
        return isinstance(b, list | tuple) and len(a) == len(b) and all(map(_same, a, b))
    equal = a == b
    return bool(equal.all()) if hasattr(equal, "all") else bool(equal)


_user_stream = _UserStream()
