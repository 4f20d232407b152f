"""The model card names data, recipe, numbers with intervals, base and license; what is text in a recipe is text in the card."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
import yaml
from huggingface_hub import ModelCard
from trained_stages import evaluate, finish, stage, train

import fgrl
from fgrl.base.errors import DataError
from fgrl.base.sanitizing import Sanitizer
from fgrl.exchange.publishing import card as cards
from fgrl.exchange.publishing import exporting, lineage, provenance
from fgrl.exchange.publishing.agreement import Agreement
from fgrl.exchange.publishing.exported import Exported
from fgrl.exchange.publishing.exporting import Options
from fgrl.models.sources import Source

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
    assert "| rule.kept | 0.553 [0.440, 0.660] | 0.172 [0.0800, 0.270] | 0.381 [0.230, 0.520] |" in card.text
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
    assert "iterations 5, last response reward 0.250" in card.text


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


@pytest.mark.parametrize("form", ["adapter", "weights"])
@pytest.mark.parametrize("head", ["lm", "scalar", "token"])
def test_the_example_of_every_form_is_python_and_loads_by_the_title(tmp_path, form, head):
    exported = Exported(tmp_path, form, head, "float32", "", "AutoPeftModel", None, Agreement(3, 9, 3, 0.0), True)
    text = cards.text(
        exported, provenance.Provenance(), recipe="", title='my "policy"', license="mit", sanitizer=Sanitizer(None),
        about={"segmenter": "bandit"}, size=5,
    )  # fmt: skip
    code = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    constants = [node.value for node in ast.walk(ast.parse(code[0])) if isinstance(node, ast.Constant)]
    assert len(code) == 1
    assert 'my "policy"' in constants
    assert ("head.safetensors" in text) == (form == "adapter" and head != "lm")
    assert not re.search(r"\n{3}|[ \t]\n", text)


def test_a_trial_and_stages_that_are_gone_are_said(tmp_path, tiny_model_dir):
    first = finish(stage(tmp_path / "runs", "sft", "finetune", {"reward": {"name": "length"}}, makes="Checkpoint"))
    made = train(tmp_path / "runs", "policy", tiny_model_dir, upstream={"sft": first}, lora=None)
    gone = train(tmp_path / "gone", "old", tiny_model_dir, lora=None)
    for folder, change in (
        (first, {"identity": {"limit": 4}}),
        (made, {"upstream": {"sft": key(first), "old": key(gone)}}),
    ):
        record = json.loads((folder / "stage.json").read_text())
        (folder / "stage.json").write_text(json.dumps(record | change))
    exporting.export(made / "out", tmp_path / "out", provenance.read(made))
    card = (tmp_path / "out" / "README.md").read_text()
    assert "| finetune (reward length) |" in card
    assert "**A trial**: stages were run with `--limit`" in card
    assert f"gone are missing here: old-{key(gone)}." in card


def key(folder: Path) -> str:
    return folder.name.rpartition("-")[2]


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


def test_two_stages_of_one_name_are_told_apart_and_keep_their_references(tmp_path):
    runs = tmp_path / "runs"
    settings = [{"model": {"base": "a/b"}}, {"model": {"base": "${out:sft}"}}, {"model": {"base": "${out:sft}"}}]
    first = finish(stage(runs, "sft", "finetune", settings[0], makes="Checkpoint"))
    second = finish(stage(runs, "sft", "finetune", settings[1], makes="Checkpoint", upstream={"sft": first}))
    third = finish(stage(runs, "policy", "rl", settings[2], makes="Checkpoint", upstream={"sft": second}))
    stages = provenance.read(third).recipe()["stages"]
    again = f"sft_{key(second)}"
    assert list(stages) == ["sft", again, "policy"]
    assert [stages[name]["model"]["base"] for name in stages] == ["a/b", "${out:sft}", f"${{out:{again}}}"]


def test_folders_of_data_and_functions_are_named_without_their_place(tmp_path, tiny_model_dir):
    settings = {
        "prompts": {"name": "mix", "readers": [{"name": "hf", "path": "/srv/private/my prompts", "split": "train"}]},
        "reward": {"name": "function", "path": "/srv/private/rewards.py:score"},
    }
    identity = {
        "prompts": {"name": "mix", "readers": [{"name": "hf", "path": "folder", "split": "train"}]},
        "reward": {"name": "function", "path": {"sha256": "b" * 64}},
    }
    folder = finish(stage(tmp_path / "runs", "policy", "rl", settings, makes="Checkpoint", identity=identity))
    record = json.loads((folder / "stage.json").read_text())
    record["identity"]["data"] = {"prompts.readers[0]": {"sha256": "a" * 64}}
    (folder / "stage.json").write_text(json.dumps(record))
    made = train(tmp_path / "other", "policy", tiny_model_dir, lora=None)
    exporting.export(made / "out", tmp_path / "out", provenance.read(folder))
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"| `my prompts` | train | `sha256 {'a' * 64}` | policy.prompts.readers.0 |" in card
    assert f"| `rewards.py:score` |  | `sha256 of the code {'b' * 64}` | policy.reward.path |" in card
    assert "/srv/private" not in card


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
