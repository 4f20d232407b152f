"""`auto`: what it stands for, by the device or by the recipe's `dtype`, and where the value stands."""

from __future__ import annotations

import io
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner
from wording import said

from fgrl import registry
from fgrl.base import native
from fgrl.base.console import Console
from fgrl.cli import app
from fgrl.experiments.pipeline import child_process, execute, machine, plan
from fgrl.experiments.recipe import Recipe, load
from fgrl.experiments.recipe.schema import schema
from fgrl.kinds.specs import ModelSpec
from fgrl.registry import Problems
from fgrl.registry.annotations import marker
from fgrl.registry.settings import ByDevice
from fgrl.training.trainer import OfflineSettings

ROOT = Path(__file__).resolve().parents[2]
RECIPE = """
about: "A model is sampled and trained."
stages:
  samples:
    name: sample
    prompts: {name: lines, path: prompts.txt, template: "{line}"}
    model: {base: owner/name, dtype: auto}
    per_prompt: 2
    sampling: {max_new_tokens: 4}
  pairs: {name: pair, data: {name: samples, of: "${out:samples}"}, builder: all_ranked}
  adapter:
    name: finetune
    data: {name: pairs, of: "${out:pairs}"}
    model: {base: owner/name, dtype: auto, lora: {r: 2}}
    algorithm: {name: dpo, reference: {base: owner/name, dtype: auto}}
    max_tokens: 64
    max_prompt_tokens: 32
    train: {lr: 1e-4, batch_size: 4, precision: auto}
  whole:
    name: finetune
    data: {name: pairs, of: "${out:pairs}"}
    model: {base: owner/name, dtype: auto}
    algorithm: {name: dpo, reference: {base: owner/name, dtype: auto}}
    max_tokens: 64
    max_prompt_tokens: 32
    train: {lr: 1e-4, batch_size: 4, precision: auto}
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    (tmp_path / "prompts.txt").write_text("one\ntwo\n", encoding="utf-8")
    (tmp_path / "r.yaml").write_text(RECIPE, encoding="utf-8")
    return tmp_path / "r.yaml"


def on(monkeypatch: pytest.MonkeyPatch, dtype: native.DType, cpu: native.DType | None = None) -> None:
    """From here on the machine multiplies this type; its CPU, where it has a GPU, another."""
    found = lambda accelerator="auto": native.Native((accelerator == "cpu" and cpu) or dtype, "as the test says")  # noqa: E731
    monkeypatch.setattr(native, "here", found)


def keys(recipe: Recipe, runs: Path) -> dict[str, str]:
    return {stage.name: stage.key for stage in plan(recipe, runs).stages}


def test_auto_is_what_the_device_multiplies(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, "bfloat16")
    stages = load(recipe).stages
    adapter, whole = stages["adapter"], stages["whole"]
    assert stages["samples"].model.dtype == "bfloat16"
    assert (adapter.model.dtype, adapter.algorithm.reference.dtype, adapter.train.precision) == (
        "bfloat16",
        "bfloat16",
        "bf16-true",
    )
    assert (whole.model.dtype, whole.algorithm.reference.dtype, whole.train.precision) == (
        "float32",
        "bfloat16",
        "bf16-mixed",
    )
    on(monkeypatch, "float32")
    for stage in ("adapter", "whole"):
        made = load(recipe).stages[stage]
        assert (made.model.dtype, made.algorithm.reference.dtype, made.train.precision) == (
            "float32",
            "float32",
            "32-true",
        )


def test_machines_that_agree_share_keys(recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, "bfloat16")
    narrow, agreed = keys(load(recipe), tmp_path), keys(load(recipe, ["dtype=float32"]), tmp_path)
    on(monkeypatch, "float32")
    wide = keys(load(recipe), tmp_path)
    assert wide == agreed
    assert keys(load(recipe, ["dtype=bfloat16"]), tmp_path) == narrow
    assert all(narrow[name] != wide[name] for name in narrow)
    written = (
        recipe.read_text(encoding="utf-8")
        .replace("dtype: auto", "dtype: float32")
        .replace("precision: auto", "precision: 32-true")
    )
    recipe.write_text(written, encoding="utf-8")
    assert keys(load(recipe), tmp_path) == wide, "the value counts, not how it was written"


def test_a_stage_on_the_cpu_of_a_machine_with_a_gpu(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, "bfloat16", cpu="float32")
    stages = load(recipe, ["stages.adapter.train.accelerator=cpu"]).stages
    assert (stages["adapter"].model.dtype, stages["adapter"].train.precision) == ("float32", "32-true")
    assert stages["samples"].model.dtype == "bfloat16"


def test_rows_and_children_set_the_dtype(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, "bfloat16")
    rows = 'rows:\n  wide: {about: "In float32.", dtype: float32}\n'
    recipe.write_text(RECIPE + rows, encoding="utf-8")
    child = recipe.with_name("child.yaml")
    child.write_text('extends: r.yaml\nabout: "In float32 too."\ndtype: float32\n', encoding="utf-8")
    for address in (f"{recipe}::wide", child):
        loaded = load(address)
        assert loaded.stages["samples"].model.dtype == "float32"
        assert loaded.data["dtype"] == "float32"
    assert load(child, ["dtype=auto"]).stages["samples"].model.dtype == "bfloat16"


@pytest.mark.parametrize("override", ["dtype=bfloat61", "dtype=16", "dtpye=float32", "stages.samples.model.dtype=atuo"])
def test_mistakes(override: str, recipe: Path) -> None:
    with pytest.raises(Problems) as raised:
        load(recipe, [override])
    said("validate", f"override {override}", str(raised.value))


def test_a_dtype_that_decides_nothing_is_noted(recipe: Path) -> None:
    recipe.write_text(
        RECIPE.replace("auto", "float32").replace("precision: float32", "precision: 32-true"), encoding="utf-8"
    )
    assert not load(recipe).notes
    assert "changes nothing" in load(recipe, ["dtype=bfloat16"]).notes[0]


def test_the_schema_knows_it() -> None:
    assert schema()["properties"]["dtype"]["anyOf"][0] == {"enum": ["auto", "float32", "bfloat16"]}


def test_settings_made_in_python_are_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, "bfloat16")
    assert ModelSpec(base="owner/name", dtype="auto").dtype == "bfloat16"
    assert OfflineSettings(lr=1e-4, batch_size=8, precision="auto").precision == "bf16-true"
    on(monkeypatch, "float32")
    assert ModelSpec(base="owner/name", dtype="auto").dtype == "float32"
    assert registry.build(ModelSpec, {"base": "owner/name", "dtype": "auto"}).dtype == "float32"


def test_the_plan_says_it(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, "float32")
    runs = ["--runs", str(recipe.parent / "runs")]
    shown = json.loads(CliRunner().invoke(app, ["plan", str(recipe), *runs, "--json"]).stdout)
    assert shown["auto"] == {"float32": "as the test says"}
    assert shown["stages"]["adapter"]["auto"] == {
        "model.dtype": "float32", "algorithm.reference.dtype": "float32", "train.precision": "32-true",
    }  # fmt: skip
    text = CliRunner().invoke(app, ["plan", str(recipe), *runs]).stdout
    assert "auto: float32 (as the test says)" in text
    assert "warning" not in text
    text = CliRunner().invoke(app, ["plan", str(recipe), *runs, "dtype=bfloat16"]).stdout
    assert "auto: bfloat16 (dtype, command line)" in text


def test_bfloat16_that_is_only_emulated_is_warned_of(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wide = ["dtype=float32", "stages.whole.train.precision=bf16-mixed"]
    on(monkeypatch, "float32")
    planned = plan(load(recipe, wide), recipe.parent / "runs")
    assert {stage.name: found for stage in planned.stages if (found := stage.emulated())} == {
        "whole": ["train.precision"]
    }
    assert "6 to 15 times slower" in planned.notices()[-1]
    assert "stages.whole.train.precision" in planned.notices()[-1]
    by_recipe = plan(load(recipe, ["dtype=bfloat16"]), recipe.parent / "runs")
    assert by_recipe.notices()[-1].endswith("asked for in samples, adapter, whole: set dtype=auto")
    on(monkeypatch, "bfloat16")
    assert len(plan(load(recipe, wide), recipe.parent / "runs").notices()) == 1


@pytest.mark.parametrize(
    ("dtype", "words"), [("float32", "emulated: as the test says; recipes that ask"), ("bfloat16", "native: ")]
)
def test_doctor_says_which(dtype: native.DType, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, dtype)
    assert machine.examine(tmp_path)["bfloat16"].startswith(words)


def test_the_run_records_it(tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on(monkeypatch, "bfloat16")
    (tmp_path / "prompts.txt").write_text("one\ntwo\n", encoding="utf-8")
    text = yaml.safe_load(RECIPE)
    recipe = tmp_path / "r.yaml"
    recipe.write_text(
        yaml.safe_dump({"about": "x", "stages": {"samples": text["stages"]["samples"]}}), encoding="utf-8"
    )
    stream = io.StringIO()
    loaded = load(recipe, [f"stages.samples.model.base={tiny_model_dir}"])
    summary = execute(loaded, tmp_path / "runs", console=Console(stream=stream))
    assert summary.exit == 0, summary.error
    folder = plan(loaded, tmp_path / "runs")["samples"].dir
    assert (
        yaml.safe_load((folder / "recipe.yaml").read_text(encoding="utf-8"))["stages"]["samples"]["model"]["dtype"]
        == "bfloat16"
    )
    assert (
        json.loads((folder / "stage.json").read_text(encoding="utf-8"))["identity"]["settings"]["model"]["dtype"]
        == "bfloat16"
    )
    assert "auto: bfloat16 (as the test says)" in stream.getvalue()
    assert "auto: bfloat16" in (summary.folder / "run.log").read_text(encoding="utf-8")


def test_every_small_recipe_can_be_run_in_float32() -> None:
    """No dtype that a small recipe takes from a paper's stays bfloat16."""
    files = [
        ROOT / "recipes" / "quickstart.yaml",
        *sorted((ROOT / "recipes" / "small").glob("*.yaml")),
        *sorted((ROOT / "examples").rglob("*.yaml")),
    ]
    assert len(files) > 15
    for file in files:
        assert not list(narrow(load(file, ["dtype=float32"]))), file.name


def narrow(recipe: Recipe) -> Iterator[tuple[Any, str]]:
    for name, stage in recipe.stages.items():
        for path, part in registry.walk(stage):
            if isinstance(part, registry.Settings):
                for field, info in type(part).model_fields.items():
                    values = marker(info.metadata, ByDevice)
                    if values is not None and getattr(part, field) not in (None, values.float32):
                        yield (name, *path, field), getattr(part, field)


def test_the_child_of_a_distributed_stage_takes_over_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    started: dict[str, Any] = {}

    def popen(command: list[str], **arguments: Any) -> Any:
        started.update(arguments)
        raise InterruptedError

    on(monkeypatch, "bfloat16", cpu="float32")
    monkeypatch.setattr(subprocess, "Popen", popen)
    monkeypatch.setattr(child_process, "_command", lambda *_: ["true"])
    monkeypatch.setenv("FGRL_KEPT", "{}")
    with pytest.raises(InterruptedError):
        child_process.run(
            _Any(stage=_Any(processes=lambda: 2)),
            Path("none"),
            _Any(environment={}, folder=Path("runs"), options=_Any(swept=None)),
            Console(quiet=True),
        )
    assert started["env"][native.INHERITED] == "float32,bfloat16"


class _Any:
    """Has every attribute."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        return "x"
