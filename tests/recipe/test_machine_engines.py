"""Machine files say where engines draw, for the engines that can be told."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny_recipe
from apart_engine import Apart
from scratch_registry import scratch_imports
from training_helpers import tiny
from typer.testing import CliRunner

from fgrl.base.errors import UsageError
from fgrl.cli import app
from fgrl.experiments import pipeline
from fgrl.experiments.pipeline import plan
from fgrl.experiments.recipe import load, placed, read
from fgrl.registry import Problems, dump

APART = Path(__file__).resolve().parents[1] / "support" / "apart_registered.py"


@pytest.fixture
def recipe(tmp_path: Path, tiny_model_dir: Path) -> Iterator[Path]:
    path = tiny_recipe.write(tmp_path / "recipe", tiny_model_dir)
    path.write_text(f"{path.read_text()}imports: [{APART}]\n")
    with scratch_imports():
        yield path


ENGINE = "stages.policy.rollout.engine={name: apart, ahead: 1}"


def held_out(recipe: Path) -> str:
    return (
        f"stages.policy.evaluate={{every: 2, sets: {{held_out: {{prompts: {{name: lines, path: {recipe.parent}/topics.txt}}, "
        "metrics: [length], sampling: {max_new_tokens: 6}, engine: apart}}}"
    )


def machines(folder: Path, text: str) -> Path:
    file = folder / "machines.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def engines(recipe: Any) -> dict[str, Any]:
    policy = recipe.stages["policy"]
    return {"rollout": policy.rollout.engine, "held_out": policy.evaluate.sets["held_out"].engine}


def test_every_engine_that_has_the_fields_gets_them(recipe: Path, tmp_path: Path) -> None:
    file = machines(tmp_path, "train: {accelerator: cpu}\nengine: {devices: [4, 5], copies: 2, memory: 0.5}\n")
    overrides = [ENGINE, held_out(recipe)]
    after = load(recipe, [*overrides, *placed(file, load(recipe, overrides))])
    for engine in engines(after).values():
        assert (engine.devices, engine.copies, engine.memory, engine.tensor_parallel) == ([4, 5], 2, 0.5, 1)
    assert type(after.stages["evaluate"].engine).__name__ == "HF"


def test_a_stage_of_its_own(recipe: Path, tmp_path: Path) -> None:
    file = machines(
        tmp_path, "engine: {copies: 2}\nstages: {policy: {devices: 1, engine: {copies: 3, transfer: adapter}}}\n"
    )
    with_engine = [ENGINE, "stages.evaluate.engine=apart"]
    after = load(recipe, [*with_engine, *placed(file, load(recipe, with_engine))])
    assert (after.stages["policy"].rollout.engine.copies, after.stages["policy"].rollout.engine.transfer) == (
        3,
        "adapter",
    )
    assert (after.stages["evaluate"].engine.copies, after.stages["evaluate"].engine.transfer) == (2, "files")
    only = machines(tmp_path, "stages: {evaluate: {engine: {copies: 5}}}\n")
    after = load(recipe, [*with_engine, *placed(only, load(recipe, with_engine))])
    assert [after.stages["policy"].rollout.engine.copies, after.stages["evaluate"].engine.copies] == [1, 5]


def test_no_key_changes(recipe: Path, tmp_path: Path) -> None:
    file = machines(tmp_path, "engine: {devices: [4, 5], copies: 2, memory: 0.5}\n")
    before = load(recipe, [ENGINE])
    after = load(recipe, [ENGINE, *placed(file, before)])
    keys = [[stage.key for stage in plan(each, tmp_path / "runs").stages] for each in (before, after)]
    assert keys[0] == keys[1]


@pytest.mark.parametrize(
    ("text", "engine", "message"),
    [
        (
            "engine: {copies: 2}",
            "hf",
            r"engine\.copies: no engine of the recipe has .*\(its engines: hf\); name one that has",
        ),
        ("engine: {copise: 2}", "apart", r'engine\.copise: .*did you mean "copies"'),
        ("engine: {bound: 3.0}", "apart", r"engine\.bound: .*it can change results, so it belongs into the recipe"),
        (
            "stages: {policy: {engine: {copise: 2}}}",
            "apart",
            r'stages\.policy\.engine\.copise: .*did you mean "copies"',
        ),
        ("stages: {polcy: {engine: {copies: 2}}}", "apart", r'stages\.polcy: .*that draws; did you mean "policy"'),
    ],
)
def test_mistakes_are_named(text: str, engine: str, message: str, recipe: Path, tmp_path: Path) -> None:
    loaded = load(recipe, [f"stages.policy.rollout.engine={engine}"])
    with pytest.raises(UsageError, match=message):
        placed(machines(tmp_path, text + "\n"), loaded)


def test_a_value_that_the_engine_refuses_is_named(recipe: Path, tmp_path: Path) -> None:
    loaded = load(recipe, [ENGINE])
    file = machines(tmp_path, "engine: {copies: many}\n")
    with pytest.raises(Problems, match=r"stages\.policy\.rollout\.engine\.copies: wants int"):
        load(recipe, [ENGINE, *placed(file, loaded)])


# -- in a plan ---------------------------------------------------------------------------------------------------------


def estimates(recipe: Path, folder: Path, *overrides: str) -> dict[str, Any]:
    made = plan(load(recipe, overrides), folder / "runs")
    return pipeline.estimates(made)["policy"]


def test_a_plan_says_who_sits_where(recipe: Path, tmp_path: Path, tiny_model_dir: Path) -> None:
    """Bytes are those of the tensors of the model itself."""
    whole = sum(value.numel() for value in tiny(tiny_model_dir).parameters())
    lora = "stages.policy.model={base: '${vars.base}', lora: {r: 4, alpha: 8}}"
    adapted = tiny(tiny_model_dir, trainable=True, lora={"r": 4, "alpha": 8})
    own = sum(value.numel() for value in adapted.parameters() if value.requires_grad)
    config = json.loads((tiny_model_dir / "config.json").read_text())
    here = estimates(recipe, tmp_path, lora)
    assert "engine" not in here
    assert here["memory"]["kv_cache"] > 0
    engine = "stages.policy.rollout.engine={name: apart, copies: 2, tensor_parallel: 2, devices: [4, 5, 6, 7], dtype: bfloat16}"
    found = estimates(recipe, tmp_path, lora, engine)
    assert "kv_cache" not in found["memory"], "the responses are not drawn on the devices of the trainer"
    place = found["engine"]
    assert (place["devices"], place["named"], place["shared"]) == (4, [4, 5, 6, 7], [])
    assert place["weights"] == (2 * whole + 4 * own) / 2
    head = config["hidden_size"] // config["num_attention_heads"]
    of_a_token = 2 * config["num_hidden_layers"] * config["num_key_value_heads"] * head * 2
    assert place["kv_cache"] == 6 * (48 + 10) * of_a_token / 2, "half of 12 responses on two devices"


def test_the_command_shows_it_and_warns_of_shared_devices(recipe: Path, tmp_path: Path) -> None:
    file = machines(
        tmp_path, "train: {accelerator: gpu, devices: 2}\nengine: {devices: [1, 2], copies: 2, memory: 0.4}\n"
    )
    arguments = ["plan", str(recipe), "--machines", str(file), ENGINE, "--runs", str(tmp_path / "runs")]
    shown = CliRunner().invoke(app, arguments)
    assert shown.exit_code == 0, shown.output
    (line,) = [line for line in shown.output.splitlines() if "policy: engine:" in line]
    assert re.search(r"engine: weights .*, KV cache .* for all responses at once on each of 2 devices \(1, 2\)$", line)
    for way, warns in (("memory: 0.4", False), ("copies: 2", True)):
        file.write_text(f"train: {{accelerator: gpu, devices: 2}}\nengine: {{devices: [1, 2], {way}}}\n")
        shown = CliRunner().invoke(app, arguments)
        assert ("warning: the trainer uses device 1, too" in shown.output) == warns, shown.output


# -- what the stage refuses --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("{engine: {name: apart, ahead: 1, correct: none}}", r"ahead: 1 of apart .*set engine\.correct to truncate or mask"),
        ("{engine: apart, sampling: {truncated: true, top_p: 0.9}}", r"engine\.correct: truncate of apart would be biased"),
        ("{engine: {name: apart, correct: mask}, sampling: {truncated: true}}", r"engine\.correct: mask of apart would be biased"),
    ],
)  # fmt: skip
def test_a_biased_or_missing_correction_is_refused(settings: str, message: str, recipe: Path) -> None:
    with pytest.raises(Problems, match=message) as caught:
        load(recipe, [f"stages.policy.rollout={settings}"])
    assert "stages.policy.rollout" in str(caught.value)


@pytest.mark.parametrize(
    "settings",
    [
        "{engine: {name: apart, correct: none}, sampling: {truncated: true, top_p: 0.9}}", "{engine: {name: apart, ahead: 1}}",
        "{engine: {name: apart, ahead: 1, correct: mask}}", "{sampling: {truncated: true, top_p: 0.9}}",
    ],
)  # fmt: skip
def test_what_is_not_biased_is_allowed(settings: str, recipe: Path) -> None:
    assert load(recipe, [f"stages.policy.rollout={settings}"]).stages["policy"].rollout.engine is not None
    assert Apart().correction().kind == "truncate"


# -- what is shipped ---------------------------------------------------------------------------------------------------

ROOT = Path(__file__).resolve().parents[2]
ROWS = [
    "segment_ppo_phi3", "segment_ppo_llama3", "rla_llama3", "rtt_qwen3", "text2grad_summarize", "text2grad_qa", "text2grad_code",
    "small/rtt_rl_csr", "small/segment_ppo", "small/rtt",
]  # fmt: skip


@pytest.mark.parametrize("name", ROWS)
def test_a_row_differs_in_its_engine_alone(name: str) -> None:
    """And every file of machines/ that says where engines draw places it."""
    base, row = (load(f"{ROOT}/recipes/{name}.yaml{row}", []) for row in ("", "::vllm"))
    assert list(base.stages) == list(row.stages)
    for stage, settings in base.stages.items():
        before, after = dump(settings), dump(row.stages[stage])
        if stage == "policy":
            assert before["rollout"].pop("engine")["name"] == "hf"
            assert after["rollout"].pop("engine")["name"] == "vllm"
        assert before == after, stage
    files = sorted(file for file in (ROOT / "machines").glob("*.yaml") if read(file).engine)
    assert [file.stem for file in files] == ["cpu", "four_and_four", "one_gpu"]
    for file in files:
        place = load(f"{ROOT}/recipes/{name}.yaml::vllm", placed(file, row)).stages["policy"]
        assert place.rollout.engine.elsewhere().copies == (4 if file.stem == "four_and_four" else 1)
        assert place.train.devices == (4 if file.stem == "four_and_four" else 1)


def test_a_stage_whose_rollout_is_that_of_another_one_keeps_its_other_settings() -> None:
    """`rollout: "${stages.policy.rollout}"`: the file lays the fields of a machine over what stands there."""
    address = f"{ROOT}/recipes/text2grad_code.yaml::table13"
    engine = "stages.policy.rollout.engine={name: vllm, dtype: float32, bound: 3.0}"
    before = load(address, [engine])
    after = load(address, [engine, *placed(ROOT / "machines" / "four_and_four.yaml", before)])
    for name in ("policy", "ppo"):
        assert (after.stages[name].rollout.engine.copies, after.stages[name].train.devices) == (4, 4)
        assert dump(after.stages[name]) == dump(before.stages[name])
        assert after.stages[name].rollout.engine.bound == 3.0
