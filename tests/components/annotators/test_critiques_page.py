"""The recipe on the page about critiques is one that can be planned, and its stages fit together."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from fgrl.components.annotators.human import HumanAnnotations
from fgrl.components.rewards.rubric import SignedRubric
from fgrl.experiments.recipe import load
from fgrl.types import Response, Sample

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "how-to" / "critiques.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "prompts").symlink_to(ROOT / "prompts")
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "prompts.jsonl").write_text('{"id": "1", "prompt": "Summarize: a mill."}\n')
    return tmp_path / "recipes"


def test_the_recipe_can_be_built_with_each_further_stage(folder: Path) -> None:
    recipe, by_critic, _, refined = BLOCKS
    held_out = "  held_out: {name: annotate, data: {name: jsonl, path: prompts.jsonl}, annotator: {name: human, column: feedback}}\n"
    file = folder / "page.yaml"
    file.write_text('about: "Of the page."\n' + recipe + held_out + by_critic + refined)
    stages = load(str(file)).stages
    assert set(stages) == {"responses", "annotated", "checked", "critic", "policy", "held_out", "by_critic", "refined"}
    trained, reward = stages["critic"].data, stages["policy"].reward
    assert (trained.prompt, trained.format) == (reward.prompt, reward.format), "asked as it was trained"


def test_the_reward_with_an_outcome_fits_the_recipe(folder: Path) -> None:
    recipe, _, reward, _ = BLOCKS
    page = yaml.safe_load(recipe)
    page["stages"]["policy"] |= yaml.safe_load(reward)
    file = folder / "page.yaml"
    file.write_text(yaml.safe_dump({"about": "Of the page.", **page}, sort_keys=False))
    loaded = load(str(file)).stages["policy"].reward
    assert (type(loaded.outcome), loaded.total) == (SignedRubric, "outcome")


def test_prompts_in_the_tables_exist() -> None:
    named = set(re.findall(r"\b(?:critique|critic|steps|dense|refine)\w*\.txt", PAGE))
    assert len(named) == 12
    assert [name for name in named if not (ROOT / "prompts" / name).is_file()] == []


def test_the_short_line_is_read(tmp_path: Path) -> None:
    (line,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "people.jsonl").write_text(line)
    given = Sample(id="7", prompt="p", responses=[Response(text="The mill by the sea.")])
    (after,) = HumanAnnotations(path=str(tmp_path / "people.jsonl")).annotate([given])
    assert [(one.by, one.critique) for one in after.responses[0].annotations] == [("ada", "Vivid, but which mill?")]
    assert yaml.safe_load(line)["id"] == "7"
