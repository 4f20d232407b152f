"""Sandboxes that tests share, and why one is not there."""

from __future__ import annotations

import atexit
import sys

import pytest

from fgrl.feedback.sandbox import Call, Sandbox, SandboxSpec, detect
from fgrl.feedback.sandbox.walls import Wall

SMALL = SandboxSpec(seconds=5, memory_mb=256, output_kb=8, result_kb=8, folder_mb=2)
_open: dict[tuple[Wall, str], Sandbox] = {}


def sandbox(wall: Wall, spec: SandboxSpec = SMALL) -> Sandbox:
    """A warm sandbox; skips the test where the kernel (or its absence) refuses this wall."""
    if sys.platform == "win32":
        pytest.skip("needs a sandbox")
    if wall == "bubblewrap" and detect().strength != "strong":
        pytest.skip(f"needs a strong sandbox: {detect().lacks}")
    key = (wall, spec.model_dump_json())
    if key not in _open:
        _open[key] = Sandbox(spec, wall)
    return _open[key]


def goes_on(place: Sandbox) -> bool:
    """Does it still answer? A machine that is busy may need a few tries within a short limit."""
    return any(place.run(Call("def one(): return 1", "one")).value == 1 for _ in range(10))


@atexit.register
def close_all() -> None:
    for one in _open.values():
        one.close()
    _open.clear()
