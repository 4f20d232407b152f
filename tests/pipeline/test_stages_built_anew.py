"""Stages of one run share no state, also not what the modules of imported files remember; and their classes cross processes."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
from pipeline_helpers import environment
from scratch_registry import scratch

from fgrl.experiments.pipeline import execute
from fgrl.experiments.recipe import load
from fgrl.registry import import_file, outside

SOURCE = '''\
"""A stage that leaves something behind in its module, in its class and in a component."""

from dataclasses import dataclass
from typing import Any, ClassVar

from pydantic import PrivateAttr

from fgrl.kinds import Segmenter, Stage
from fgrl.registry import register
from fgrl.types import Ref, Samples

LEFT = []


@dataclass
class Note:
    text: str


@register("leaving_segmenter")
class Leaving(Segmenter):
    """Counts how often it was used."""

    _used: int = PrivateAttr(0)

    def starts(self, view: Any) -> Any: ...

    def use(self) -> int:
        self._used += 1
        return self._used


@register("leaving")
class LeavingStage(Stage):
    """Reports what an earlier stage left behind."""

    makes = Samples
    uses_torch = False
    left: ClassVar[list[str]] = []

    segmenter: Leaving
    """A component."""
    source: Ref[Samples] | None = None
    """A stage to come after."""

    def run(self, run: Any) -> dict[str, Any]:
        seen = {"module": len(LEFT), "class": len(self.left), "used": self.segmenter.use()}
        LEFT.append(run.seed)
        self.left.append("x")
        (run.out / "samples.jsonl").write_text("")
        return seen
'''


@pytest.fixture
def leaving(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(outside, "_imported", {})
    monkeypatch.setattr("fgrl.experiments.recipe.loading._by_recipes", set())
    (tmp_path / "leaving.py").write_text(SOURCE, encoding="utf-8")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "about: x\nimports: [leaving.py]\nstages:\n  first: {name: leaving, segmenter: leaving_segmenter}\n"
        '  second: {name: leaving, segmenter: leaving_segmenter, source: "${out:first}"}\n',
        encoding="utf-8",
    )
    return recipe


def test_a_stage_sees_nothing_of_the_stage_before_it(leaving: Path, tmp_path: Path) -> None:
    with scratch():
        summary = execute(load(leaving), tmp_path / "runs")
    assert summary.exit == 0
    expected = {"module": 0, "class": 0, "used": 1}
    assert [stage.summary for stage in summary.stages.values()] == [expected, expected]


def test_an_object_of_an_imported_class_is_read_in_another_process(leaving: Path) -> None:
    file = leaving.with_name("leaving.py")
    with scratch():
        pickled = pickle.dumps(import_file(file).Note("hello"))
    reading = (
        "import pickle, sys; from fgrl.registry import import_file; import_file(__import__('pathlib').Path(sys.argv[1])); "
        "print(pickle.loads(bytes.fromhex(sys.argv[2])).text)"
    )
    done = subprocess.run(
        [sys.executable, "-c", reading, str(file), pickled.hex()],
        env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.stdout, done.stderr) == ("hello\n", "")
