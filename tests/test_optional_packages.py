"""A first run needs no optional package, and whoever needs one is told which extra installs it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fgrl.base.errors import Unavailable
from fgrl.components.readers.human_eval import HumanEval
from fgrl.experiments.pipeline import preconditions
from fgrl.experiments.pipeline.machine import EXTRAS
from fgrl.experiments.recipe import load

RECIPES = Path(__file__).parents[1] / "recipes"
OF_PAPERS = ("endpoints", "hub", "metrics")
"""Extras that the extra `papers` installs."""


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the packages of these extras."""
    hidden = tuple(name for extra in OF_PAPERS for name in EXTRAS[extra])
    inside = [name for name in sys.modules if name.startswith(tuple(f"{name}." for name in hidden))]
    for name in (*hidden, *inside):
        monkeypatch.setitem(sys.modules, name, None)


def not_installed(recipe: str) -> set[str]:
    """Return what a run of the recipe says about packages that are not installed."""
    missing = preconditions.unmet(load(RECIPES / recipe).stages, {}).missing
    return {line.partition(": ")[2] for line in missing if "is not installed" in line and "fgrl[" in line}


@pytest.mark.usefixtures("absent")
def test_a_first_run_needs_none_of_them() -> None:
    assert not_installed("quickstart.yaml") == set()


@pytest.mark.usefixtures("absent")
def test_problems_of_a_package_need_no_data_library() -> None:
    HumanEval().check_machine()
    with pytest.raises(Unavailable, match=r"fgrl\[hub\]"):
        HumanEval(path="openai/openai_humaneval").check_machine()


@pytest.mark.usefixtures("absent")
@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        ("rla_llama3_rlaif.yaml", "the client openai needs the package openai, which is not installed: pip install 'fgrl[endpoints]'"),
        ("segment_ppo_phi3.yaml", "needs the package datasets, which is not installed: pip install 'fgrl[hub]'"),
        ("small/text2grad_qa.yaml", "the metric rouge needs the package rouge-score, which is not installed: pip install 'fgrl[metrics]'"),
        ("small/rla.yaml", "a sentence encoder needs sentence-transformers, which is not installed: pip install 'fgrl[metrics]'"),
    ],
)  # fmt: skip
def test_a_recipe_that_needs_one_names_its_extra(recipe: str, said: str) -> None:
    assert any(said in line for line in not_installed(recipe)), not_installed(recipe)
