"""What `fgrl plan --machines` says a recipe costs: the work of stages, and memory, seconds and dollars on a card."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from fgrl.cli import app
from fgrl.commands.checking import estimate_lines
from fgrl.experiments.pipeline import costs
from fgrl.experiments.pipeline.estimating import Peek
from fgrl.experiments.recipe import load, placed, read
from fgrl.experiments.recipe.machines import Card
from fgrl.experiments.stages import counting
from fgrl.experiments.stages.counting import Texts, Uncounted, Work
from fgrl.kinds import Engine, Expected, PairBuilder, Reader
from fgrl.kinds.specs import LoraSpec, ModelSpec, Sampling
from fgrl.registry import Problems, build
from fgrl.training.memory import Role
from fgrl.training.trainer import OfflineSettings

ROOT = Path(__file__).resolve().parents[2]
CARD = Card(
    name="C", count=4, memory=80, tflops=1, tflops_float32=0.5, bandwidth=1, usd=2, passing=0.5, training=0.25, stepping=0.5, layer=0.001, disk=2,
)  # fmt: skip
QWEN = ModelSpec(base="Qwen/Qwen3-4B-Base", dtype="bfloat16")
N, LAYERS, HEAD = 4_022_468_096, 3_633_315_840, 151_936 * 2560
"""Its parameters: all, those of the products in its layers, and those of the output layer."""
QUERIES, ADAPTER = LoraSpec(r=1, targets=["q_proj"]), 36 * (2560 + 4096)
"""An adapter of it, and the adapter's parameters."""
CACHED = 36 * 8 * 128 * 2 * 2
"""Bytes of the keys and values of a token."""


@pytest.fixture
def peek(tmp_path: Path) -> Peek:
    return Peek(tmp_path, None, {})


# -- from work to money ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("work", "seconds"),
    [
        (Work("a pass", devices=2, passed=3e12), 3.0),
        (Work("training", devices=4, trained=1e12), 1.0),
        (Work("a pass", devices=2, float32=True, passed=3e12), 6.0),
        (Work("drawing", steps=100, layers=30, read=1e6, computed=1e9), 3.0),  # a step takes 0.001 s for each layer
        (Work("drawing", steps=100, layers=30, read=1e6, computed=2e10), 4.0),  # half of 10^12 a second
        (Work("drawing", steps=100, read=1e6, served=True), 0.8),
        (Work("drawing", steps=100, read=1e9, cached=5e8, served=True), 300.0),  # half of 1 GB/s
        (Work("training", written=4e9), 2.0),
    ],
)
def test_seconds_of_a_part(work: Work, seconds: float) -> None:
    found = costs.of({"memory": {"peak": 1}}, [work], CARD)
    assert found["seconds"] == pytest.approx(seconds)
    assert found["parts"] == {work.what: pytest.approx(seconds)}
    assert found["gpu hours"] == pytest.approx(seconds * 4 / 3600)
    assert found["usd"] == pytest.approx(seconds * 8 / 3600)


def test_a_cpu_sends_operations_reads_weights_and_computes_one_after_the_other() -> None:
    cpu, work = (
        CARD.model_copy(update={"overlaps": False}),
        Work("drawing", steps=100, layers=30, read=1e7, computed=1e9),
    )
    assert costs.of({"memory": {"peak": 1}}, [work], cpu)["seconds"] == pytest.approx(100 * (0.03 + 0.02 + 0.002))


def test_what_is_drawn_ahead_takes_no_time_beside_longer_work() -> None:
    drawing, training = Work("drawing", steps=100, layers=30, ahead=True), Work("training", trained=1e12)
    assert costs.of({"memory": {"peak": 1}}, [drawing, training], CARD)["seconds"] == pytest.approx(4)
    assert costs.of({"memory": {"peak": 1}}, [drawing], CARD)["seconds"] == pytest.approx(3)


@pytest.mark.parametrize(
    ("estimate", "fits"),
    [
        ({"memory": {"peak": 78 * 2**30}}, True),  # 2 of 80 GiB are reserved
        ({"memory": {"peak": 79 * 2**30}}, False),
        ({"memory": {"peak": 1}, "engine": {"weights": 79 * 2**30}}, False),
        ({"memory": {"peak": None}}, None),
    ],
)
def test_what_fits(estimate: dict[str, Any], fits: bool | None) -> None:
    found = costs.of(estimate, "nobody knows", CARD)
    assert (found["fits"], found["unknown"]) == (fits, "nobody knows")
    assert "seconds" not in found
    assert costs.together([{"costs": found}, {}], CARD) == {"seconds": 0, "gpu hours": 0, "usd": 0}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (90, "1.5 min, 0.05 GPU hours, $0.20"),
        (3600, "1.0 h, 2.00 GPU hours, $8.00"),
        (9e6, "2,500.0 h, 5,000.00 GPU hours, $20,000.00"),
    ],
)
def test_times_for_people(seconds: float, text: str) -> None:
    paid = {"seconds": seconds, "gpu hours": seconds / 1800, "usd": seconds / 450}
    costs_here = {"card": "H100", "fits": True, "memory": 2**30, "has": 2**31, "parts": {"drawing": 3, "training": 1}}
    line = "costs: fits on H100 (1.0 GiB of 2.0 GiB); " + text + "; drawing 75%, training 25%"
    assert estimate_lines({"costs": costs_here | paid}) == [line]


# -- from settings to work -------------------------------------------------------------------------------------------------


def test_a_batch_of_hf_takes_as_many_steps_as_its_longest_response(peek: Peek) -> None:
    sampling, given = Sampling(max_new_tokens=1000, max_prompt_tokens=300, batch_size=8), Texts(100, 400, 200)
    (work,) = counting.drawing(Role("actor", QWEN), given, sampling, build(Engine, "hf"), peek, devices=4, times=3)
    assert (work.what, work.devices, work.served) == ("drawing actor", 4, False)
    assert work.steps == 3 * 4 * 1000  # 25 responses a device, in batches of 8
    assert work.read == 2 * N
    assert work.cached == 8 * 200 / 1000 * (300 + 200) * CACHED * (
        1 + 2 * 32 / 8
    )  # a copy for each of 32 heads is written and read
    (fused,) = counting.drawing(
        Role("actor", QWEN.model_copy(update={"attention": "flash_attention_2"})), given, sampling, build(Engine, "hf"), peek, devices=4, times=3
    )  # fmt: skip
    assert fused.cached == pytest.approx(8 * 200 / 1000 * (300 + 200) * CACHED)
    assert work.passed == 3 * 2 * LAYERS * 100 * 300
    assert work.computed == 2 * (LAYERS + HEAD) * 8 * 200 / 1000  # of 8 responses a fifth is still drawn in a step
    assert (work.layers, work.float32) == (36, False)
    (four,) = counting.drawing(
        Role("actor", QWEN), replace(given, per_prompt=4), sampling, build(Engine, "hf"), peek, times=3
    )
    assert four.passed == work.passed / 4
    (alone,) = counting.drawing(Role("actor", QWEN), Texts(4, 400, 200), sampling, build(Engine, "hf"), peek, devices=4)
    assert alone.steps == 200
    adapted = Role("actor", QWEN.model_copy(update={"lora": QUERIES}), trained=True)
    (work,) = counting.drawing(adapted, given, sampling, build(Engine, "hf"), peek)
    assert work.layers == pytest.approx(36 * 1.13)  # one adapter in each layer


def test_a_server_puts_the_next_request_in_the_place_of_an_ended_one(peek: Peek) -> None:
    engine = build(Engine, {"name": "vllm", "copies": 2, "tensor_parallel": 2, "ahead": 1})
    sampling = Sampling(max_new_tokens=1000, max_prompt_tokens=300)
    many, alone = counting.drawing(Role("actor", QWEN), Texts(1024, 200, 100), sampling, engine, peek)
    assert (many.devices, many.served, many.ahead) == (4, True, True)
    assert many.steps == 512 * 100 / 256
    assert (many.read, many.cached) == (2 * N / 2, 256 * (200 + 50) * CACHED / 2)
    assert (alone.steps, alone.passed) == (450, 0)


@pytest.mark.parametrize(
    ("changed", "operations"),
    [
        ({}, 6 * (LAYERS * 10 + HEAD * 4)),
        ({"gradient_checkpointing": True}, 8 * (LAYERS * 10 + HEAD * 4)),
        ({"gradient_checkpointing": True, "lora": QUERIES}, 6 * ((LAYERS + ADAPTER) * 10 + HEAD * 4)),
        ({"quantize": "nf4", "lora": QUERIES}, 4 * ((2 * LAYERS + ADAPTER) * 10 + HEAD * 4)),
        (
            {"lora": QUERIES.model_copy(update={"last_blocks": 9})},
            2.5 * ((LAYERS + ADAPTER / 4) * 10 + HEAD * 4),  # the backward pass ends after a quarter
        ),
    ],
)
def test_operations_of_training(changed: dict[str, Any], operations: float, peek: Peek) -> None:
    train = OfflineSettings(lr=1e-5, batch_size=8, devices=8)
    role = Role("policy", QWEN.model_copy(update=changed), trained=True)
    texts = Texts(1, 6, 4)
    work = counting.training(role, texts, peek, train, saved=3)
    assert (work.devices, work.trained) == (8, operations * counting.PADDED * counting.WAITED)
    packed = counting.training(role, texts, peek, train.model_copy(update={"micro_batch_tokens": 8192}), 3, times=2)
    assert packed.trained == 2 * operations
    trained = N if "lora" not in changed else ADAPTER // (4 if changed["lora"].last_blocks else 1)
    assert work.written == 3 * 15 * trained


@pytest.mark.parametrize(
    ("fields", "limits", "texts"),
    [
        ({"path": "sastpg/HIR-16K"}, (2048, 4096), Texts(16_968, 400, 900, criteria=6)),
        ({"path": "sastpg/HIR-16K", "limit": 10}, (300, 500), Texts(10, 300, 500, criteria=6)),
        ({"path": "owner/unknown", "expect_rows": 7}, (300, 500), Texts(7, 150, 325)),
    ],
)
def test_texts_that_are_not_here(fields: dict[str, Any], limits: tuple[int, int], texts: Texts, peek: Peek) -> None:
    reader = build(Reader, {"name": "hf", "format": "prompts", **fields})
    assert counting.texts(reader, peek, *limits) == texts
    peek.limit = 3
    assert counting.texts(reader, peek, *limits).rows == 3


def test_texts_of_data_on_this_machine_are_counted_and_others_are_not(tmp_path: Path, peek: Peek) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text('{"prompt": "a"}\n{"prompt": "b"}\n')
    reader = build(Reader, {"name": "jsonl", "path": str(file), "format": "prompts"})
    assert counting.texts(reader, peek, 100, 20) == Texts(2, 1 + counting.TEMPLATE, 13)
    nobody = SimpleNamespace(
        work=lambda given: [counting.texts(build(Reader, {"name": "samples", "of": "${out:x}"}), given, 1, 1)]
    )
    assert counting.of_stage(nobody, peek) == "after x"  # type: ignore[arg-type]


def test_a_stage_without_work_says_so(peek: Peek) -> None:
    assert counting.of_stage(SimpleNamespace(), peek) == "it does not say what it computes"  # type: ignore[arg-type]

    def uncounted(_peek: Any) -> Any:
        raise Uncounted("nobody has counted")

    assert counting.of_stage(SimpleNamespace(work=uncounted), peek) == "nobody has counted"  # type: ignore[arg-type]


def test_pairs_of_drawn_responses_follow_from_as_many_as_were_drawn(peek: Peek) -> None:
    """Three responses to each of 100,000 prompts, through the stages between."""
    recipe = load(ROOT / "recipes" / "rla_llama3.yaml", [])
    peek.stages = recipe.stages
    assert counting.texts(recipe.stages["reward_model"].data, peek, 2048, 64) == Texts(240_000, 1500, 20)


def test_pairs_are_a_share_of_the_most_that_their_builder_makes(peek: Peek, tmp_path: Path) -> None:
    """At most three pairs of the six responses to each of 96 prompts."""
    peek.stages = load(ROOT / "recipes" / "quickstart.yaml", []).stages
    pairs = peek.stages["pairs"]
    assert pairs.expects(peek) == Expected(288)
    assert counting.texts(peek.stages["reward_model"].data, peek, 128, 128).rows == round(0.8 * 288)
    assert pairs.model_copy(update={"max_pairs": 50}).expects(peek) == Expected(50)
    every = pairs.model_copy(update={"builder": build(PairBuilder, "all_ranked")})
    assert every.expects(peek) == Expected(96 * 15)
    assert pairs.expects(Peek(tmp_path, None, {})) is None


@pytest.mark.parametrize(
    ("recipe", "stage", "parts"),
    [
        (
            "text2grad_qa", "policy",
            ["drawing actor", "drawing answers", "pass of actor", "training actor", "pass of critic", "training critic", "pass of reference"],
        ),
        ("text2grad_qa", "evaluate", ["drawing sft", "pass of sft", "drawing policy", "pass of policy", "drawing answers"]),
        ("text2grad_qa", "held_critiques", ["drawing answers"]),
        ("segment_ppo_llama3", "reward_model", ["pass of sft", "training reward_model"]),
        ("segment_ppo_llama3", "calibrate", ["pass of sft", "pass of reward_model"]),
        ("quickstart", "calibrate", ["pass of reward_model"]),  # on the pairs of the training, whose entropies are kept
        ("segment_ppo_llama3", "evaluate", ["drawing sft", "pass of sft", "drawing policy", "pass of policy", "pass of reward segment"]),
        ("rla_llama3", "samples", ["drawing model"]),
    ],
)  # fmt: skip
def test_parts_of_the_work_of_stages(recipe: str, stage: str, parts: list[str], peek: Peek) -> None:
    """A critic that is a model of this machine draws its answers; other models of rewards read each response once."""
    peek.stages = load(ROOT / "recipes" / f"{recipe}.yaml", []).stages
    work = counting.of_stage(peek.stages[stage], peek)
    assert [part.what for part in work if not isinstance(part, str)] == parts


# -- the command -----------------------------------------------------------------------------------------------------------


def test_a_card_of_ours_and_changes_of_it(tmp_path: Path) -> None:
    file = tmp_path / "machines.yaml"
    file.write_text("extends: h100\ncard: {count: 8, usd: 1.5}\n")
    card = read(file).card
    assert card is not None
    assert (card.name, card.count, card.usd, card.tflops) == ("H100", 8, 1.5, 989)
    assert placed(file, load(ROOT / "recipes" / "quickstart.yaml", [])) == []
    file.write_text("card: {count: 8}\n")
    with pytest.raises(Problems, match=r"card\.memory"):
        read(file)
    file.write_text("extends: h900\n")
    with pytest.raises(Problems, match="h100"):
        read(file)


def test_a_measured_machine_is_a_card_for_plans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, small in {"WIDTH": 64, "ROWS": 8, "STEPPED": 4, "NARROW": 32, "LEAST": 0}.items():
        monkeypatch.setattr(f"fgrl.experiments.pipeline.rates.{name}", small)
    file, ours = tmp_path / "card.yaml", tmp_path / "machines.yaml"
    done = CliRunner().invoke(app, ["doctor", "--measure", str(file)])
    assert done.exit_code == 0, done.output
    assert f"--machines {file}" in done.output
    ours.write_text("extends: card.yaml\ncard: {usd: 0.5}\n")
    card, changed = read(file).card, read(ours).card
    assert card is not None
    assert changed == card.model_copy(update={"usd": 0.5})
    assert min(card.tflops, card.tflops_float32, card.bandwidth, card.layer, card.memory) > 0


def test_the_plan_of_a_papers_recipe_on_eight_cards(tmp_path: Path) -> None:
    command = ["plan", str(ROOT / "recipes" / "rtt_qwen3.yaml"), "--runs", str(tmp_path)]
    on_eight = [*command, "--machines", str(ROOT / "machines" / "eight_h100.yaml")]
    printed = CliRunner().invoke(app, on_eight)
    assert printed.exit_code == 0, printed.output
    lines = {line.split(":")[0].strip(): line for line in printed.output.splitlines() if ": costs: " in line}
    assert "costs: fits on H100 (75.8 GiB of 77.6 GiB); " in lines["policy"]
    assert "costs: does not fit on H100 (98.4 GiB of 77.6 GiB); " in lines["ifeval"]
    assert "together on 8 x H100: " in printed.output
    assert "without grade, general" in printed.output
    data = json.loads(CliRunner().invoke(app, [*on_eight, "--json"]).stdout)
    found = {
        name: stage["estimate"]["costs"]
        for name, stage in data["stages"].items()
        if "costs" in stage.get("estimate", {})
    }
    assert sum(each.get("seconds", 0) for each in found.values()) == pytest.approx(data["costs"]["seconds"])
    without = json.loads(CliRunner().invoke(app, [*command, "--json"]).stdout)
    assert "costs" not in without
    assert not any("costs" in stage.get("estimate", {}) for stage in without["stages"].values())
