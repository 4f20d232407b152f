"""The layout of the packages, and what stays unloaded until it is needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from import_walk import FLOOR, ROOT, imports, room, sources, violations
from patience import HUNG

HEAVY = ["torch", "transformers", "lightning", "peft", "datasets", "wandb", "openai", "sentence_transformers", "sklearn",
         "scipy", "matplotlib", "deepspeed", "accelerate", "tokenizers", "pandas", "numpy", "rapidfuzz",
         "genai_prices", "httpx2"]  # fmt: skip

MODULES = sources()


@pytest.fixture(scope="module")
def known() -> frozenset[str]:
    """What breaks the layout now."""
    return frozenset(violations(MODULES))


def test_every_file_belongs_to_a_room() -> None:
    assert len(MODULES) > 250
    assert {room(module) for module in MODULES} - {""} <= set(FLOOR)


def test_imports_go_one_way_without_circles_and_the_catalogue_holds_components_alone(known: frozenset[str]) -> None:
    assert not known, known


PLANTED = {
    "an import statement": ("fgrl.feedback.rules.sentences", "import fgrl.cli", "feedback.rules imports fgrl.cli"),
    "a from import": ("fgrl.types", "from fgrl.kinds import Stage", "types imports fgrl.kinds"),
    "a submodule by its package": ("fgrl.models.heads", "from fgrl import training", "models imports fgrl.training"),
    "inside a function": ("fgrl.rollouts.rows", "def f():\n    from fgrl.data import hub", "rollouts imports fgrl.data.hub"),
    "a lazy module": ("fgrl.measuring.answer", 'x = lazy.load("fgrl.training.online")', "measuring imports fgrl.training.online"),
    "import_module": (
        "fgrl.feedback.llm.reading", 'importlib.import_module("fgrl.experiments.stages")', "feedback.llm imports fgrl.experiments.stages",
    ),
    "a table of names": ("fgrl.registry.names", 'TABLE = {"ppo": "fgrl.components.algorithms.ppo"}', "registry imports fgrl.components.algorithms.ppo"),
    "a name with an attribute": ("fgrl.base.ops", 'WHERE = "fgrl.models.load"', "base.ops imports fgrl.models"),
    "under TYPE_CHECKING": (
        "fgrl.kinds.specs", "if TYPE_CHECKING:\n    from fgrl.experiments.pipeline import Plan", "kinds.specs imports fgrl.experiments.pipeline",
    ),
    "a room of the same floor": (
        "fgrl.feedback.quotes", "from fgrl.feedback import templates", "feedback.quotes imports fgrl.feedback.templates",
    ),
    "a component that imports a component": (
        "fgrl.components.algorithms.ppo", "from fgrl.components.rewards.rubric import Rubric",
        "a component imports the component fgrl.components.rewards.rubric",
    ),
    "a component of the same kind": (
        "fgrl.components.algorithms.ppo", 'grpo = lazy.load("fgrl.components.algorithms.grpo")',
        "a component imports the component fgrl.components.algorithms.grpo",
    ),
    "a file without a component": ("fgrl.components.algorithms.helpers", "X = 1", "registers nothing"),
    "a circle": ("fgrl.base.ops", "from fgrl.base import ops", "imports itself"),
    "a circle in a room": ("fgrl.registry.settings", "from fgrl.registry.walking import walk", "imports itself through"),
    "a name that authors import": ("fgrl.rollouts.rows", "from fgrl import Reward", "imports fgrl.Reward, which belongs to no room"),
    "the command line in fgrl itself": ("fgrl", "from fgrl import cli", "fgrl itself imports fgrl.cli"),
    "a room that stands nowhere": ("fgrl.helpers.misc", "X = 1", "stands on no floor"),
}  # fmt: skip


@pytest.mark.parametrize("what", PLANTED)
def test_a_planted_violation_is_detected(what: str, known: frozenset[str]) -> None:
    module, code, message = PLANTED[what]
    planted = {**MODULES, module: f"{MODULES.get(module, '')}\n{code}\n"}
    new = set(violations(planted)) - known
    assert any(message in line for line in new), new


def test_the_walk_gives_the_line_of_each_import() -> None:
    source = """
from __future__ import annotations
import fgrl.cli
from fgrl.base import ops, lazy as l
from fgrl.models import load
import torch
X = l.load("fgrl.pages.report"), "fgrl.json", entry_points(group="fgrl.components")
"""
    assert sorted(imports(source, MODULES)) == [
        (3, "fgrl.cli"), (4, "fgrl.base.lazy"), (4, "fgrl.base.ops"), (5, "fgrl.models"), (7, "fgrl.pages.report"),
    ]  # fmt: skip


def loaded_after(code: str, cwd: Path) -> list[str]:
    """Which heavy modules a fresh interpreter has after running the code."""
    script = f"import sys, json\n{code}\nprint(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment,
        check=False,
        timeout=HUNG,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    "module",
    ["fgrl.cli", "fgrl.components", "fgrl.kinds", "fgrl.experiments.stages", "fgrl.experiments.recipe", "fgrl.registry", "fgrl.types",
     "fgrl.kinds.specs", "fgrl.base.ops", "fgrl.experiments.pipeline", "fgrl.training.trainer"],
)  # fmt: skip
def test_importing_loads_nothing_heavy(module: str, tmp_path: Path) -> None:
    assert loaded_after(f"import {module}", tmp_path) == []


def test_validating_describing_and_walking_sys_modules_load_nothing_heavy(tmp_path: Path) -> None:
    recipe = ROOT / "recipes" / "small" / "segment_ppo.yaml"
    code = f"""
import inspect
from fgrl.experiments import recipe
from fgrl import registry
from fgrl.experiments.recipe import schema
loaded = recipe.load({str(recipe)!r})
for stage in loaded.stages.values():
    registry.dump(stage), list(registry.walk(stage))
schema.schema()
for kind in registry.kinds():
    for name in registry.names(kind):
        registry.describe(kind, name)
for module in list(sys.modules.values()):
    hasattr(module, "__file__")
"""
    assert loaded_after(code, tmp_path) == []


def test_the_check_sees_a_heavy_module(tmp_path: Path) -> None:
    assert loaded_after("import numpy", tmp_path) == ["numpy"]


def test_files_of_tests_have_different_names() -> None:
    """pytest imports them by their bare names."""
    names = [file.name for file in (ROOT / "tests").rglob("*.py")]
    assert sorted({name for name in names if names.count(name) > 1}) == []
