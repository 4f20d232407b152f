"""Writing of weights as in transformers, without its progress bar and the seconds that importing DeepSpeed takes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fgrl.models.pretrained import no_progress_bars


def write_weights(net: Any, folder: Path, **options: Any) -> None:
    """Call `net.save_pretrained(folder, ...)`, where `net` is a model of transformers or peft."""
    with no_progress_bars(), without_deepspeed():
        net.save_pretrained(folder, **options)


@contextmanager
def without_deepspeed() -> Iterator[None]:
    """Let accelerate assume that a model is not an engine of DeepSpeed, if nothing has imported DeepSpeed. Otherwise it
    would import DeepSpeed, if that is installed, to check this.
    """
    from accelerate.utils import other  # it imports torch

    available = other.is_deepspeed_available
    other.is_deepspeed_available = lambda: "deepspeed" in sys.modules
    try:
        yield
    finally:
        other.is_deepspeed_available = available
