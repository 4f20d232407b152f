"""Redirection of library messages to run.log instead of the terminal (unless with -v)."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fgrl.base.sanitizing import hide

QUIET = {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_DISABLE_PROGRESS_BARS": "1", "DATASETS_VERBOSITY": "error"}
"""Environment variables that the libraries read when they are imported. Values set by the user stay."""

LOUD = ("DeepSpeed",)
"""Loggers that write to stdout, which is reserved for results. transformers imports DeepSpeed if it is installed."""


def _to_root(record: logging.LogRecord) -> bool:
    logging.getLogger().handle(record)
    return False


class _WithoutSecrets(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return hide(super().format(record))


@contextmanager
def diverted(log: Path, *, verbose: bool) -> Iterator[None]:
    """Send Python's logging and warnings to the file `log` inside the context. With `verbose`, leave them unchanged.

    A handler of the root logger also keeps Lightning from adding its own to stderr.
    """
    for name in LOUD:
        logging.getLogger(name).addFilter(_to_root)
    if verbose:
        yield
        return
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)
    handler = logging.FileHandler(log, encoding="utf-8", delay=True)
    handler.setFormatter(_WithoutSecrets("%(asctime)s %(levelname)s %(name)s: %(message)s", "%H:%M:%S"))
    root = logging.getLogger()
    root.addHandler(handler)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.removeHandler(handler)
        handler.close()
