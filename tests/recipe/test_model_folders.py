"""Folders of models and of data are relative to the recipe that names them, whatever the current directory is."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner
from wording import said

from fgrl import cli
from fgrl.experiments.pipeline import plan
from fgrl.experiments.recipe import load
from fgrl.kinds.specs import ModelSpec
from fgrl.registry import Problems

RECIPE = """
about: "Answers of a model in a folder."
vars: {base: %s}
stages:
  answers:
    name: sample
    prompts: %s
    model: "${vars.base}"
    sampling: {max_new_tokens: 4}
"""
PROMPTS = "{name: lines, path: topics.txt}"


@pytest.fixture
def project(tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "project"
    for name in ("my-model", "models/tiny-llama"):
        shutil.copytree(tiny_model_dir, folder / name)
    (folder / "topics.txt").write_text("rivers\nlamps\n")
    monkeypatch.chdir(folder)
    return folder


def written(folder: Path, base: str, prompts: str = PROMPTS) -> Path:
    path = folder / "recipe.yaml"
    path.write_text(RECIPE % (json.dumps(base), prompts))
    return path


def base_of(recipe: Path, *overrides: str) -> str:
    spec = load(recipe, overrides).stages["answers"].model  # type: ignore[attr-defined]
    assert isinstance(spec, ModelSpec)
    return str(spec.base)


@pytest.mark.parametrize(
    "name", ["./my-model", "my-model", "models/tiny-llama", "./models/tiny-llama/", "../project/my-model"]
)
def test_a_folder_beside_the_recipe_is_found_from_anywhere_and_gives_one_key(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    recipe = written(project, name)
    folder = str((project / name).resolve())
    assert base_of(recipe) == folder
    here = plan(load(recipe), tmp_path / "runs")["answers"].key
    monkeypatch.chdir("/")
    loaded = load(recipe)
    assert base_of(recipe) == folder
    assert plan(loaded, tmp_path / "runs")["answers"].key == here
    assert loaded.built_anew("answers").model.base == folder  # type: ignore[attr-defined]
    copy = tmp_path / "elsewhere" / "copy.yaml"
    copy.parent.mkdir()
    copy.write_text(loaded.to_yaml())
    assert plan(load(copy), tmp_path / "runs")["answers"].key == here, "the resolved recipe loads from anywhere"


def test_a_bare_folder_without_a_variable(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = project / "bare.yaml"
    recipe.write_text(RECIPE.replace("${vars.base}", "./my-model").replace("vars: {base: %s}\n", "") % PROMPTS)
    monkeypatch.chdir("/")
    loaded = load(recipe)
    assert loaded.built_anew("answers").model.base == str(project / "my-model")  # type: ignore[attr-defined]


def test_a_recipe_that_extends_another_finds_the_folder_beside_that_one(project: Path) -> None:
    written(project, "./my-model")
    (project / "small").mkdir()
    child = project / "small" / "child.yaml"
    child.write_text("extends: ../recipe.yaml\nabout: The same.\n")
    assert base_of(child) == str(project / "my-model")


def test_on_the_command_line_a_folder_is_relative_to_the_current_directory(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = written(project, "my-model")
    monkeypatch.chdir(project / "models")
    assert base_of(recipe, "stages.answers.model=./tiny-llama") == str(project / "models" / "tiny-llama")


def test_names_of_the_hub_and_of_packages_stay_as_they_are(project: Path) -> None:
    for name in ("HuggingFaceTB/SmolLM2-135M-Instruct", "gpt2", "smollm2-135m-instruct"):
        recipe = written(project, name)
        assert base_of(recipe) == name
        assert not load(recipe).notes


@pytest.mark.parametrize("name", ["./my-modle", "./models/tiny_llama", "./nothing/like/it", "./models"])
def test_a_missing_folder_is_reported_with_similar_names(project: Path, name: str) -> None:
    with pytest.raises(Problems) as refused:
        load(written(project, name))
    said("validate", f"folder {name}", str(refused.value))


def test_a_hub_id_that_resembles_a_folder_is_pointed_out(project: Path) -> None:
    recipe = written(project, "models/tiny-lama")
    assert base_of(recipe) == "models/tiny-lama"
    result = CliRunner().invoke(cli.app, ["validate", str(recipe)])
    assert result.exit_code == 0
    assert '"models/tiny-lama" is read as a hub id, since there is no such folder' in result.stderr
    assert 'did you mean "models/tiny-llama"?' in result.stderr


def test_a_folder_of_the_current_directory_alone_is_refused(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = written(project, "tiny-llama")
    monkeypatch.chdir(project / "models")
    with pytest.raises(Problems) as refused:
        load(recipe)
    said("validate", "folder of the current directory alone", str(refused.value))


def test_a_folder_of_data_is_found_beside_the_recipe_and_its_place_does_not_count(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "data").mkdir()
    (project / "data" / "rows.jsonl").write_text('{"prompt": "Why?"}\n')
    recipe = written(project, "./my-model", "{name: hf, path: data, format: prompts}")
    here = plan(load(recipe), tmp_path / "runs")["answers"].key
    monkeypatch.chdir("/")
    moved = tmp_path / "moved"
    shutil.copytree(project, moved)
    assert plan(load(recipe), tmp_path / "runs")["answers"].key == here
    assert plan(load(moved / "recipe.yaml"), tmp_path / "runs")["answers"].key == here
    (moved / "data" / "rows.jsonl").write_text('{"prompt": "How?"}\n')
    assert plan(load(moved / "recipe.yaml"), tmp_path / "runs")["answers"].key != here
