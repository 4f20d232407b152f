"""The page on environments, followed: a new environment in the recipe of the page."""

from __future__ import annotations

import re
from pathlib import Path

import yaml
from scratch_registry import scratch_imports

from fgrl import library
from fgrl.experiments.recipe import load
from fgrl.kinds import Environment
from fgrl.registry import name_of

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "environments.md"


def test_the_recipe_of_the_page_takes_the_new_environment(tmp_path: Path, tiny_model_dir: Path) -> None:
    text = PAGE.read_text(encoding="utf-8")
    block = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)[0]
    recipe = yaml.safe_load(block)
    recipe["stages"]["policy"] |= {
        "prompts": {"name": "lines", "path": "topics.txt"}, "model": str(tiny_model_dir),
        "train": {"lr": 1e-3, "batch_size": 64, "accelerator": "cpu"},
    }  # fmt: skip
    (tmp_path / "topics.txt").write_text("\n".join(map(str, range(8))))
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump({"about": "Guesses.", **recipe}))
    with scratch_imports():
        library.new("environment", "guess", tmp_path)
        environment = load(tmp_path / "recipe.yaml").stages["policy"].rollout.environment  # type: ignore[attr-defined]
        assert name_of(environment) == ("environment", "guess")


def test_the_page_has_all_settings() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in Environment.model_fields:
        assert f"`{name}`" in text
