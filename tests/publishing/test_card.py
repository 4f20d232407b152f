"""The model card names data, recipe, numbers with intervals, base and license; what is text in a recipe is text in the card."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from huggingface_hub import ModelCard
from trained_stages import evaluate, finish, stage, train

import fgrl
from fgrl.errors import DataError
from fgrl.models.sources import Source
from fgrl.publishing import card as cards
from fgrl.publishing import exporting, lineage, provenance
from fgrl.publishing.exporting import Options
from fgrl.sanitizing import Sanitizer

PACKAGED = "smollm2-135m-instruct"


@pytest.fixture(scope="module")
def exported(tiny_model_dir, tmp_path_factory) -> Path:
    """Two trainings on top of each other and an evaluation of the second, exported."""
    world = tmp_path_factory.mktemp("card")
    runs = world / "runs"
    (tiny_model_dir / "README.md").write_text("---\nlicense: other\nlicense_name: tiny-1.0\n---\nA tiny model.\n")
    sft = train(runs, "sft", tiny_model_dir)
    policy = train(runs, "policy", sft / "out", upstream={"start": sft}, settings={"client": {"api_key_env": "MY_KEY"}})
    evaluate(runs, policy)
    about = "Pays <b>marks</b> of `people` | *well*\nin two lines."
    exporting.export(policy / "out", world / "my-policy", provenance.read(policy, about=about))
    (tiny_model_dir / "README.md").unlink()
    return world / "my-policy"


@pytest.fixture(scope="module")
def card(exported) -> ModelCard:
    return ModelCard.load(exported / "README.md")


def test_the_metadata_is_what_the_hub_reads(card):
    data = card.data.to_dict()
    assert data["library_name"] == "transformers"
    assert data["pipeline_tag"] == "text-generation"
    assert data["datasets"] == ["owner/prompts"]
    assert data["tags"] == ["fgrl", "grpo"]
    assert (data["license"], data["license_name"]) == ("other", "tiny-1.0")
    assert "base_model" not in data  # its base is a folder of this machine


def test_the_numbers_have_intervals_and_the_models_own_column(card):
    assert "| number | tuned | sft | difference |" in card.text
    assert "| rule.kept | 0.553 [0.44, 0.66] | 0.172 [0.08, 0.27] | 0.381 [0.23, 0.52] |" in card.text
    assert "64 prompts" in card.text


def test_data_are_named_with_revision_and_hash(card):
    assert "[owner/prompts](https://huggingface.co/datasets/owner/prompts)" in card.text
    assert "revision abc123" in card.text
    assert f"`rows.jsonl` |  | `sha256 {'f' * 64}`" in card.text
    assert "secret place" not in card.text


def test_the_recipe_is_attached_whole(card, exported):
    recipe = yaml.safe_load((exported / "recipe.yaml").read_text())
    assert list(recipe["stages"]) == ["start", "policy"]
    assert recipe["stages"]["policy"]["model"]["base"] == "${out:start}"
    assert recipe["seed"] == 3
    assert (exported / "recipe.yaml").read_text().strip() in card.text
    assert f"fgrl {fgrl.__version__}" in card.text
    assert "iterations 5, last reward 0.25" in card.text


def test_text_of_a_recipe_is_no_markup(card):
    above = card.text.partition("<details>")[0]
    assert r"Pays \<b\>marks\</b\> of \`people\` \| \*well\* in two lines." in above


def test_the_marker_records_the_check(exported):
    marker = json.loads((exported / exporting.MARKER).read_text())
    assert marker["check"]["same_answers"] == 3
    assert marker["stage"] == "policy"


def test_a_model_without_a_stage_has_a_card_that_says_so(tiny_model_dir, tmp_path):
    made = train(tmp_path / "runs", "policy", tiny_model_dir, lora=None)
    exporting.export(made / "out", tmp_path / "out", None, Options(license="mit", name="mine"))
    card = ModelCard.load(tmp_path / "out" / "README.md")
    assert card.data.to_dict()["license"] == "mit"
    assert card.text.strip().startswith("# mine")
    assert "so its recipe, data and numbers are not known here" in card.text
    assert not (tmp_path / "out" / "recipe.yaml").exists()


# -- where it comes from -----------------------------------------------------------------------------------------------


def test_the_packaged_model_is_named_as_on_the_hub():
    base = lineage.base_model(Source("/cache/smollm2", local=True, packaged=PACKAGED))
    assert base is not None
    assert (base.hub, base.license) == ("HuggingFaceTB/SmolLM2-135M-Instruct", {"license": "apache-2.0"})
    assert "quantized to Q4_1 and dequantized again" in base.note


def test_a_license_on_the_hub_is_read_from_the_cache(tmp_path, monkeypatch):
    card = tmp_path / "README.md"
    card.write_text("---\nlicense: llama3\n---\n")
    asked = []

    def cached(repo, file, revision=None):
        asked.append((repo, file, revision))
        return str(card) if revision is None else None

    monkeypatch.setattr(
        lineage.huggingface_hub.__class__, "try_to_load_from_cache", staticmethod(cached), raising=False
    )
    base = lineage.base_model(Source("meta/llama", revision="v1"))
    assert base is not None
    assert (base.hub, base.revision, base.license) == ("meta/llama", "v1", {"license": "llama3"})
    assert asked == [("meta/llama", "README.md", "v1"), ("meta/llama", "README.md", None)]


def test_an_evaluation_of_another_model_or_step_is_left_out(tiny_model_dir, tmp_path):
    runs = tmp_path / "runs"
    first = train(runs, "policy", tiny_model_dir)
    second = train(runs, "policy", tiny_model_dir, settings={"x": 1})
    evaluate(runs, first)
    assert [measured.model for measured in provenance.read(first).measured] == ["tuned"]
    assert provenance.read(second).measured == []
    assert provenance.read(first, step=40).measured == []


def test_two_stages_of_one_name_get_a_number_and_keep_their_references(tmp_path):
    runs = tmp_path / "runs"
    settings = [{"model": {"base": "a/b"}}, {"model": {"base": "${out:sft}"}}, {"model": {"base": "${out:sft}"}}]
    first = finish(stage(runs, "sft", "finetune", settings[0], makes="Checkpoint"))
    second = finish(stage(runs, "sft", "finetune", settings[1], makes="Checkpoint", upstream={"sft": first}))
    third = finish(stage(runs, "policy", "rl", settings[2], makes="Checkpoint", upstream={"sft": second}))
    stages = provenance.read(third).recipe()["stages"]
    assert list(stages) == ["sft", "sft_2", "policy"]
    assert [stages[name]["model"]["base"] for name in stages] == ["a/b", "${out:sft}", "${out:sft_2}"]


def test_folders_of_data_are_listed_and_functions_are_code(tmp_path):
    settings = {
        "prompts": {"name": "mix", "readers": [{"name": "hf", "path": "/srv/private/my prompts", "split": "train"}]},
        "reward": {"name": "function", "path": "/srv/private/rewards.py:score"},
    }
    identity = {
        "prompts": {"name": "mix", "readers": [{"name": "hf", "path": "folder", "split": "train"}]},
        "reward": {"name": "function", "path": {"sha256": "b" * 64}},
    }
    folder = finish(stage(tmp_path / "runs", "policy", "rl", settings, makes="Checkpoint", identity=identity))
    assert provenance.read(folder).own_code
    record = json.loads((folder / "stage.json").read_text())
    record["identity"]["data"] = {"prompts.readers[0]": {"sha256": "a" * 64}}
    (folder / "stage.json").write_text(json.dumps(record))
    data, functions = card_sections(provenance.read(folder))
    assert f"| `my prompts` | train | `sha256 {'a' * 64}` | policy.prompts.readers.0 |" in data
    assert "rewards.py" not in data
    assert functions.startswith("## Functions of the author")
    assert f"| `rewards.py:score` |  | `sha256 of the code {'b' * 64}` | policy.reward.path |" in functions


def card_sections(history: provenance.Provenance) -> tuple[str, str]:
    """What the card says of data, and of functions."""
    text = "\n".join(cards._data(history, Sanitizer(None)))
    data, heading, functions = text.partition("## Functions")
    return data, heading + functions


@pytest.mark.parametrize("kind", ["sources", "definitions"])
def test_components_of_imported_files_and_of_scripts_are_own_code(tmp_path, kind):
    folder = finish(stage(tmp_path / "runs", "policy", "rl", {}, makes="Checkpoint"))
    assert not provenance.read(folder).own_code
    record = json.loads((folder / "stage.json").read_text())
    record["identity"][kind] = {"0": "a" * 64}
    (folder / "stage.json").write_text(json.dumps(record))
    assert provenance.read(folder).own_code


def test_a_stage_that_is_gone_is_named(tmp_path):
    runs = tmp_path / "runs"
    first = finish(stage(runs, "sft", "finetune", {}, makes="Checkpoint"))
    second = finish(stage(runs, "policy", "rl", {}, makes="Checkpoint", upstream={"sft": first}))
    first.rename(tmp_path / "elsewhere")
    assert provenance.read(second).missing == [first.name]
    with pytest.raises(DataError, match="not the folder of a finished stage"):
        provenance.read(first)


@pytest.mark.parametrize(
    ("value", "published"),
    [
        ({"api_key": "abcdef"}, {"api_key": "<key>"}),
        ({"api_key_env": "MY_KEY", "note": "it is verysecretvalue!"}, {"api_key_env": "MY_KEY", "note": "it is <key>!"}),
        ("https://ann:pass@host/v1", "https://host/v1"),
        ("sk-abcdefghijk", "<key>"),
        ("use hf_AbCdEfGhIjKlMnOpQrSt now", "use <key> now"),
        ("/srv/data/rows.jsonl", "rows.jsonl"),
        ("~/models/base", "base"),
        ("C:\\data\\rows.jsonl", "rows.jsonl"),
        ("see /gone/people/ann/rows.jsonl.", "see rows.jsonl."),
        ("file:///gone/ann/rows.jsonl and ~/ann/rows.csv", "rows.jsonl and rows.csv"),
        ("read C:\\people\\ann\\rows.jsonl, once", "read rows.jsonl, once"),
        ("https://host/v1/rows and/or </b> 1/2/3 or /no_think", "https://host/v1/rows and/or </b> 1/2/3 or /no_think"),
        ("https://host/v1?a=1&api_key=abc&b=2 https://host?x-secret=y#z", "https://host/v1?a=1&api_key=<key>&b=2 https://host?x-secret=<key>#z"),
        ("https://host/v1?tokens=12&monkey=1", "https://host/v1?tokens=12&monkey=1"),
        ({"max_tokens": 12, "separator": "/"}, {"max_tokens": 12, "separator": "/"}),
        (["${out:sft}", 0.5, None], ["${out:sft}", 0.5, None]),
    ],
)  # fmt: skip
def test_secrets_and_paths_stay_here(value, published, monkeypatch):
    monkeypatch.setenv("MY_KEY", "verysecretvalue")
    assert Sanitizer(value).value(value) == published


def test_folders_of_this_machine_are_cut_from_running_text(tmp_path):
    text = f"compare {tmp_path}/a/b.txt, then {Path.cwd()}/recipes/x.yaml."
    assert Sanitizer(None, [tmp_path]).text(text) == "compare b.txt, then x.yaml."
