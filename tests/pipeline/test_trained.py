"""`fgrl export` and `fgrl chat` find a trained model by a recipe, a run, a stage or a folder; whatever else a word may be is explained."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from conftest import CORPUS
from pipeline_helpers import fgrl
from typer.testing import CliRunner

from fgrl.base.errors import DataError, UsageError
from fgrl.cli import app
from fgrl.library import words

RECIPE = """
about: "Two trainings, one on top of the other, and a reward model."
stages:
  sft:
    name: finetune
    data: &rows {{name: jsonl, path: rows.jsonl}}
    model: {{base: {base}, lora: &lora {{r: 2, alpha: 4}}}}
    algorithm: sft
    max_prompt_tokens: 32
    max_tokens: 64
    train: &train {{lr: 1e-2, batch_size: 4, micro_batch_size: 4, epochs: 1, accelerator: cpu}}
  policy:
    name: finetune
    data: *rows
    model: {{base: "${{out:sft}}", lora: *lora}}
    algorithm: sft
    max_prompt_tokens: 32
    max_tokens: 64
    train: *train
  reward_model:
    name: finetune
    data: {{name: jsonl, path: pairs.jsonl, format: preference}}
    model: {{base: {base}, lora: *lora}}
    algorithm: {{name: bradley_terry, segmenter: bandit}}
    max_prompt_tokens: 32
    max_tokens: 64
    train: *train
rows:
  two:
    about: "A second policy."
    stages:
      other: {{name: finetune, data: {{name: jsonl, path: rows.jsonl}}, model: {{base: "${{out:sft}}", lora: {{r: 2, alpha: 4}}}},
              algorithm: sft, max_prompt_tokens: 32, max_tokens: 64,
              train: {{lr: 2e-2, batch_size: 4, micro_batch_size: 4, epochs: 1, accelerator: cpu}}}}
"""


@pytest.fixture(scope="module")
def world(tiny_model_dir, tmp_path_factory) -> Path:
    """A recipe with its data, run in `runs`; its row has not run."""
    folder = tmp_path_factory.mktemp("trained")
    rows = [{"id": str(i), "prompt": "Say:", "responses": [{"text": text}]} for i, text in enumerate(CORPUS[:4])]
    pairs = [{"prompt": "Say:", "chosen": text, "rejected": text[::-1]} for text in CORPUS[:4]]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "pairs.jsonl").write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    (folder / "tiny.yaml").write_text(RECIPE.format(base=json.dumps(str(tiny_model_dir))))
    done = CliRunner().invoke(app, ["run", str(folder / "tiny.yaml"), "--runs", str(folder / "runs"), "-q"])
    assert done.exit_code == 0, (done.output, done.exception)
    return folder


def run_folder(world: Path) -> Path:
    (folder,) = (world / "runs" / "tiny").iterdir()
    return folder


def stage_folder(world: Path, name: str) -> Path:
    (folder,) = (world / "runs" / "stages").glob(f"{name}-*")
    return folder


def test_every_way_to_name_the_policy_means_the_same_folder(world):
    recipe, run, stage = world / "tiny.yaml", run_folder(world), stage_folder(world, "policy")
    every = [
        recipe,
        f"{recipe}:policy",
        run,
        f"{run}:policy",
        run.parent,
        stage,
        stage / "out",
        run / "stages" / "policy",
    ]
    named = [words.model(str(word), world / "runs") for word in every]
    assert {model.model.resolve() for model in named} == {(stage / "out").resolve()}
    assert {model.name for model in named} == {"policy"}
    assert all(words.names_a_stage(str(word), world / "runs") for word in every)
    assert named[0].about.startswith("Two trainings")
    assert words.model(str(recipe), world / "runs", stage="sft").model == stage_folder(world, "sft") / "out"


def test_a_bare_name_means_the_only_run_or_stage_of_this_name(world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # no recipe of the name here
    runs, policy = world / "runs", stage_folder(world, "policy") / "out"
    run = run_folder(world)
    for word in ("policy", stage_folder(world, "policy").name, "tiny", "tiny:policy", run.name, f"{run.name}:policy"):
        assert words.names_a_stage(word, runs), word
        assert words.model(word, runs).model.resolve() == policy.resolve(), word
    assert words.model("sft", runs).name == "sft"
    for word in ("smollm2-135m-instruct", "owner/policy", "pol", "policy:sft", "..", ""):
        assert not words.names_a_stage(word, runs), word
    assert not words.names_a_stage("policy", tmp_path / "no runs")


def test_a_bare_name_of_several_runs_and_stages_lists_them(world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    stages = tmp_path / "runs" / "stages"
    first, unfinished = stages / "policy-0000000000000001", stages / "policy-0000000000000002"
    shutil.copytree(stage_folder(world, "policy"), first)
    unfinished.mkdir()
    assert words.model("policy", tmp_path / "runs").place == first.resolve(), "an unfinished one does not count"
    shutil.copytree(first, stages / "policy-0000000000000003")
    for number in range(10):
        (tmp_path / "runs" / "policy" / f"20260101T00000{number}Z-abcdef").mkdir(parents=True)
    with pytest.raises(
        UsageError, match=r"policy: 12 runs and stages have this name; name one by its folder: .*and 4 more"
    ):
        words.model("policy", tmp_path / "runs")
    with pytest.raises(UsageError, match=r"policy-0000000000000001|20260101T000009Z-abcdef"):
        words.names_a_stage("policy", tmp_path / "runs")


def test_a_recipe_with_a_name_goes_before_runs(world, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "recipes").mkdir()
    for name in ("tiny.yaml", "rows.jsonl", "pairs.jsonl"):
        shutil.copy(world / name, tmp_path / "recipes" / name)
    with pytest.raises(UsageError, match=r"has not run: fgrl run recipes/tiny\.yaml"):
        words.model("tiny", tmp_path / "runs")


def test_a_reward_model_is_named_by_its_stage(world):
    model = words.model(f"{world / 'tiny.yaml'}:reward_model", world / "runs")
    assert model.head == "scalar"


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("tiny.yaml:polisy", r'no stage "polisy"; did you mean "policy"'),
        ("tiny.yaml:two", r"the row of this name is .*tiny.yaml::two"),
        ("tiny.yaml::two", r"stage other has not run: fgrl run .*tiny.yaml::two.*or name a finished stage: .*two:policy"),
        ("tiny.yaml::two:other", r"stage other has not run: fgrl run"),
        ("tini.yaml", r'no such recipe, run or stage folder; did you mean ".*tiny.yaml"'),
        ("runs/nothing", r"no such recipe, run or stage folder"),
        ("runs", r"contains no runs"),
    ],
)  # fmt: skip
def test_a_word_that_names_no_model_is_explained(world, word, message):
    with pytest.raises(UsageError, match=message):
        words.model(str(world / word), world / "runs")


def test_several_policies_are_listed(world, tmp_path):
    """As where the second training did not begin with the first."""
    runs = shutil.copytree(world / "runs", tmp_path / "runs", symlinks=True)
    for file in (runs / "stages").glob("*/stage.json"):
        file.write_text(json.dumps(json.loads(file.read_text()) | {"upstream": {}}))
    with pytest.raises(UsageError, match=r"trained 2 models: name one of them: .*tiny.yaml:sft, .*tiny.yaml:policy"):
        words.model(str(world / "tiny.yaml"), runs)


def test_an_option_and_a_word_that_name_different_stages(world):
    with pytest.raises(UsageError, match="give one of the two"):
        words.model(f"{world / 'tiny.yaml'}:sft", world / "runs", stage="policy")


def test_an_unfinished_or_changed_stage_is_refused(world, tmp_path):
    (tmp_path / "policy-1" / "out").mkdir(parents=True)
    with pytest.raises(UsageError, match=r"not the folder of a finished stage \(there is no stage.json\)"):
        words.model(str(tmp_path / "policy-1"), world / "runs")
    copy = shutil.copytree(stage_folder(world, "policy"), tmp_path / "policy-2")
    weights = copy / "out" / "adapter_model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    with pytest.raises(DataError, match="has changed since it was written"):
        words.model(str(copy), world / "runs")


def test_the_stage_with_a_reward(world):
    with pytest.raises(UsageError, match=r"has no stage with a reward: name a stage: .*:policy"):
        words.stage(str(world / "tiny.yaml"), world / "runs")
    named = words.stage(f"{world / 'tiny.yaml'}:policy", world / "runs")
    assert named.upstream() == {"sft": stage_folder(world, "sft") / "out"}


def test_the_command_writes_a_folder_and_prints_its_path(world, tmp_path):
    arguments = ["export", str(world / "tiny.yaml"), str(tmp_path / "out"), "--runs", str(world / "runs")]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, (done.output, done.exception)
    assert done.stdout == f"{tmp_path / 'out'}\n"
    assert "merging the adapter into the weights: it is the last of 2 stacked adapters" in done.stderr
    card = (tmp_path / "out" / "README.md").read_text()
    assert "Two trainings, one on top of the other" in card
    assert "rows.jsonl" in card
    assert str(world) not in card
    again = CliRunner().invoke(app, [*arguments, "--force", "--json", "--dtype", "float32"])
    assert json.loads(again.stdout)["check"]["same_answers"] == 3


def test_the_command_pushes_after_the_check(world, tmp_path, monkeypatch):
    from fgrl.exchange.publishing import pushing

    pushed = []
    monkeypatch.setattr(pushing, "check", lambda repo, public: "api")
    monkeypatch.setattr(
        pushing, "push", lambda folder, repo, **options: pushed.append((folder, repo, options)) or "https://hub/x"
    )
    arguments = [
        "export",
        str(stage_folder(world, "sft")),
        str(tmp_path / "out"),
        "--push",
        "me/small",
        "--runs",
        str(world / "runs"),
    ]
    done = CliRunner().invoke(app, arguments)
    assert done.stdout == f"{tmp_path / 'out'}\nhttps://hub/x\n", (done.output, done.exception)
    ((folder, repo, options),) = pushed
    assert (folder, repo, options["public"], options["api"]) == (tmp_path / "out", "me/small", False, "api")
    assert (tmp_path / "out" / "README.md").read_text().partition("# ")[2].startswith("small\n")
    refused = CliRunner().invoke(app, ["export", str(world), str(tmp_path / "b"), "--public"])
    assert str(refused.exception) == "--public goes with --push"


def test_a_stages_folder_is_exported_by_a_process_that_has_loaded_no_recipe(world, tmp_path):
    done = fgrl("export", stage_folder(world, "sft"), "out", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "out\n"
    assert not words.names_a_stage(str(tmp_path / "out"), tmp_path), (
        "the recipe in an exported folder does not make it a run"
    )
