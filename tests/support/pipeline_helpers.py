"""Recipes of fake stages, without YAML, and the command line in a process of its own."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

from patience import HUNG
from scratch_registry import scratch

from fgrl import registry
from fgrl.base.console import Console
from fgrl.cli import main
from fgrl.experiments.pipeline import Options, Summary, execute
from fgrl.experiments.pipeline.sweep_points import THREADS
from fgrl.registry import outside

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FAKES = HERE / "fake_stages.py"


@contextmanager
def fakes() -> Iterator[ModuleType]:
    """`fake_stages` with its names registered; they are forgotten afterwards. Its errors are those of fgrl, also where another test
    imported the file as a user's."""
    with scratch(), mock.patch.object(outside, "_user_files", set[str]()):
        spec = importlib.util.spec_from_file_location("fake_stages_under_test", FAKES)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        yield module


@dataclass
class FakeRecipe:
    """What the pipeline reads of a `fgrl.experiments.recipe.Recipe`."""

    path: Path
    stages: dict[str, Any]
    seed: int = 0
    about: str = "A recipe of fakes."
    origins: dict[Any, str] = field(default_factory=dict)
    sources: dict[Path, str] = field(default_factory=dict)
    tracking: dict[str, Any] = field(default_factory=dict)
    auto: dict[Any, Any] = field(default_factory=dict)

    @property
    def address(self) -> str:
        return str(self.path)

    @property
    def data(self) -> dict[str, Any]:
        stages = {name: registry.dump(stage) for name, stage in self.stages.items()}
        return {"about": self.about, "seed": self.seed, "stages": stages}

    def to_yaml(self) -> str:
        return json.dumps(self.data)

    def built_anew(self, stage: str) -> Any:
        return self.stages[stage].model_copy(deep=True)

    def graph(self) -> dict[str, list[str]]:
        from fgrl.types import Ref

        return {
            name: list(dict.fromkeys(value.stage for _, value in registry.walk(stage) if isinstance(value, Ref)))
            for name, stage in self.stages.items()
        }


def fake_recipe(folder: Path, *, seed: int = 0, **stages: Any) -> Any:
    return FakeRecipe(folder / "fake.yaml", stages, seed)


class Bench:
    """A runs folder, and what was said on the way."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.runs, self.stream = folder, folder / "runs", io.StringIO()

    def run(self, _seed: int = 0, _options: Options | None = None, **stages: Any) -> Summary:
        recipe = fake_recipe(self.folder, seed=_seed, **stages)
        return execute(recipe, self.runs, _options, Console(stream=self.stream))

    def product(self, summary: Summary, stage: str) -> str:
        assert summary.folder is not None
        return (summary.folder / "stages" / stage / "out" / "samples.jsonl").read_text()


def environment() -> dict[str, str]:
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "120", **dict.fromkeys(THREADS, "1")}


def fgrl(*arguments: object, cwd: Path, **more: str) -> subprocess.CompletedProcess[str]:
    """`python -m fgrl ...`, finished."""
    return subprocess.run(
        [sys.executable, "-m", "fgrl", *map(str, arguments)],
        cwd=cwd,
        env=environment() | more,
        capture_output=True,
        text=True,
        timeout=HUNG,
        check=False,
    )


def fgrl_here(*arguments: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    """`fgrl ...` in the process of the tests, which has imported everything already: a process of its own spends one to three seconds
    on that. What the command registers and which files it imports is forgotten afterwards."""
    said, complained, code = io.StringIO(), io.StringIO(), 0
    with (
        scratch(),
        mock.patch.dict(outside._imported),
        mock.patch.object(outside, "_user_files", set[str]()),
        mock.patch("fgrl.experiments.recipe.loading._by_recipes", set()),
        mock.patch("fgrl.base.sanitizing._found", set[str]()),
        mock.patch("fgrl.base.sanitizing._variables", set[str]()),
        mock.patch.object(sys, "excepthook", sys.excepthook),
        mock.patch.dict(os.environ, COLUMNS="120"),
        chdir(cwd),
        redirect_stdout(said),
        redirect_stderr(complained),
    ):
        try:
            main([*map(str, arguments)])
        except SystemExit as end:  # as Python ends a process: 0 for None, and 1 after it has printed anything else
            if end.code is None or isinstance(end.code, int):
                code = end.code or 0
            else:
                print(end.code, file=sys.stderr)
                code = 1
    return subprocess.CompletedProcess(arguments, code, said.getvalue(), complained.getvalue())


def start(*arguments: object, cwd: Path) -> subprocess.Popen[str]:
    """`python -m fgrl ...`, running, in a process group of its own."""
    return subprocess.Popen(
        [sys.executable, "-m", "fgrl", *map(str, arguments)],
        cwd=cwd,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def names(text: str, place: str) -> bool:
    """True if a text has this host name or path as a whole word: short ones are also parts of random identifiers."""
    return re.search(rf"(?<!\w){re.escape(place)}(?!\w)", text) is not None


def lives(pid: int) -> bool:
    """Is there such a process that has not ended? (One that nobody has waited for has.)"""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


def recipe_file(folder: Path, stages: str, name: str = "fake.yaml") -> Path:
    """A recipe file of fake stages; `stages` is YAML in flow style."""
    path = folder / name
    path.write_text(f'about: "A recipe of fakes."\nimports: ["{FAKES}"]\nstages: {stages}\n')
    return path
