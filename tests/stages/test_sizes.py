"""What a plan says of models, against the models themselves."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tiny_recipe
import torch
import transformers
from pipeline_helpers import fgrl_here
from script_files import loaded as loaded_script

from fgrl.commands.checking import count, estimate_lines, size
from fgrl.components.algorithms.dpo import DPO
from fgrl.components.rewards.segment_rm import SegmentRM
from fgrl.components.segmenters.ngram import NGram
from fgrl.experiments import pipeline, recipe
from fgrl.experiments.pipeline.estimating import Peek
from fgrl.experiments.stages import sizes
from fgrl.kinds.specs import LoraSpec, ModelSpec
from fgrl.models import ActorCritic, load
from fgrl.training import memory
from fgrl.training.trainer import OnlineSettings
from fgrl.training.units import collate

FULL = ("stages.policy.model.lora=null", "stages.reward_model.model.lora=null")


@pytest.fixture
def tiny(tmp_path: Path, tiny_model_dir: Path) -> Path:
    return tiny_recipe.write(tmp_path / "recipe", tiny_model_dir)


def estimates(path: Path, *overrides: str) -> dict[str, dict[str, Any]]:
    return pipeline.estimates(pipeline.plan(recipe.load(path, list(overrides)), path.parent / "runs"))


def counted(model: torch.nn.Module) -> dict[str, int]:
    trained = [value for value in model.parameters() if value.requires_grad]
    return {"total": sum(value.numel() for value in model.parameters()), "trainable": sum(v.numel() for v in trained)}


def held(tensors: Any) -> int:
    return sum(value.numel() * value.element_size() for value in tensors)


@pytest.mark.parametrize("overrides", [(), FULL])
def test_roles_and_parameters(tiny: Path, tiny_model_dir: Path, overrides: tuple[str, ...]) -> None:
    """Upstream checkpoints are told from the recipe: nothing has run."""
    lora = None if overrides else LoraSpec(r=4, alpha=8)
    spec = ModelSpec(base=str(tiny_model_dir), lora=lora)
    trained = {head: counted(load(spec, head=head, trainable=True)) for head in ("lm", "scalar")}
    total = {head: {"total": numbers["total"]} for head, numbers in trained.items()}
    base = {"total": counted(load(ModelSpec(base=str(tiny_model_dir))))["total"]}
    found = {name: one["parameters"] for name, one in estimates(tiny, *overrides).items()}
    assert found == {
        "reward_model": {"reward_model": trained["scalar"], "sft": base},
        "calibrate": {"sft": base, "reward_model": total["scalar"]},
        "policy": {
            "actor": trained["lm"],
            "critic": trained["scalar"],
            "reference": base if overrides else "actor without its adapter",
            "reward_model": total["scalar"],
        },
        "evaluate": {"sft": base, "policy": total["lm"]},
    }


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("lora", [None, LoraSpec(r=4), LoraSpec(r=4, last_blocks=1)])
def test_memory_is_what_tensors_take(tiny: Path, tiny_model_dir: Path, dtype: str, lora: LoraSpec | None) -> None:
    """Weights, gradients and AdamW's states of actor and critic after a step."""
    spec = ModelSpec(base=str(tiny_model_dir), dtype=dtype, lora=lora)
    stage = tiny_recipe.alone(tiny, "policy")
    stage = stage.model_copy(update={"model": spec})
    found = stage.estimate(Peek(tiny.parent, None, {}))["memory"]
    both = ActorCritic(load(spec, trainable=True), load(spec, head="scalar", trainable=True))
    for role, model in (("actor", both.actor), ("critic", both.critic)):
        trained = [value for value in model.parameters() if value.requires_grad]
        optimizer = torch.optim.AdamW(trained)
        for value in trained:
            value.grad = torch.ones_like(value)
        optimizer.step()
        states = [state[name] for state in optimizer.state.values() for name in ("exp_avg", "exp_avg_sq")]
        real = {
            "weights": held(model.parameters()),
            "gradients": held(value.grad for value in trained),
            "optimizer": held(states),
        }
        own = 0 if role == "actor" or lora is not None or dtype == "float32" else 3 * 4 * both.actor.hidden_size
        for name, value in found[role].items():
            assert abs(value - real[name]) <= own, (role, name)  # the number head is float32 on any backbone
    # 12 rows of 48 + 10 tokens; keys and values of 2 layers with 2 heads of 8
    assert found["kv_cache"] == 12 * 58 * 2 * 2 * 2 * 8 * (4 if dtype == "float32" else 2)


def kept_for_backward(spec: ModelSpec) -> int:
    """Bytes of what autograd holds on to after a forward pass of 8 rows of 80 tokens with prompts of their own, without the weights."""
    model = load(spec, trainable=True)
    rows = [
        {"prompt": [number] * 20, "response": list(range(10, 70)), "finished": False, "columns": {}}
        for number in range(5, 13)
    ]
    weights = {value.untyped_storage().data_ptr() for value in model.parameters()}
    kept: dict[int, torch.UntypedStorage] = {}  # held here, so that no address is used twice

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        model.score(collate(rows, model.pad_id, model.eos_ids, {}))
    return sum(storage.nbytes() for address, storage in kept.items() if address not in weights)


def test_the_models_of_metrics_count(tiny: Path, tiny_model_dir: Path) -> None:
    """A scorer with an output layer, which the evaluated model is, too, and an encoder without one."""
    base = json.dumps(str(tiny_model_dir))
    metrics = f"[length, {{name: perplexity, scorer: {base}}}, {{name: bertscore, encoder: {base}, layer: 1, title: similar}}]"
    found = estimates(tiny, f"stages.evaluate.metrics={metrics}")["evaluate"]
    spec = ModelSpec(base=str(tiny_model_dir))
    assert found["parameters"]["metric similar"] == {"total": counted(load(spec, head="scalar"))["total"]}
    assert found["memory"]["metric similar"]["weights"] == 4 * found["parameters"]["metric similar"]["total"]
    assert found["parameters"]["metric perplexity"] == "shared with sft"


@pytest.mark.parametrize(
    ("stage", "more"), [("policy", []), ("reward_model", ["stages.reward_model.algorithm={name: dpo}"])]
)
def test_the_models_of_metrics_while_training_count(
    tiny: Path, tiny_model_dir: Path, stage: str, more: list[str]
) -> None:
    encoder = f"{{name: bertscore, encoder: {json.dumps(str(tiny_model_dir))}, layer: 1}}"
    topics = json.dumps(str(tiny.parent / "topics.txt"))
    held = (
        f"{{prompts: {{name: lines, path: {topics}}}, sampling: {{max_new_tokens: 4}}, metrics: [length, {encoder}]}}"
    )
    built = tiny_recipe.alone(tiny, stage, f"stages.{stage}.evaluate={{every: 2, sets: {{held: {held}}}}}", *more)
    found = built.estimate(Peek(tiny.parent, None, {}))
    parameters = found["parameters"]["metric bertscore on held"]
    if stage == "policy":
        assert parameters == "shared with reward_model"
    else:
        assert parameters == {"total": counted(load(ModelSpec(base=str(tiny_model_dir)), head="scalar"))["total"]}
        assert found["memory"]["metric bertscore on held"]["weights"] == 4 * parameters["total"]


def activations(stage: Any, peek: Peek, algorithm: DPO, size: int, strategy: str) -> int:
    train = stage.train.model_copy(update={"micro_batch_size": size, "strategy": strategy})
    return stage.model_copy(update={"algorithm": algorithm, "train": train}).estimate(peek)["memory"]["activations"]


@pytest.mark.parametrize(
    ("algorithm", "strategy", "grows"),
    [(DPO(), "auto", False), (DPO(reference_pass="each_step"), "auto", True), (DPO(), "deepspeed_stage_2", True), (DPO(), "fsdp", True)],
)  # fmt: skip
def test_a_larger_micro_batch_takes_more_memory_unless_pairs_are_read_one_at_a_time(
    tiny: Path, algorithm: DPO, strategy: str, grows: bool
) -> None:
    stage, peek = tiny_recipe.alone(tiny, "reward_model"), Peek(tiny.parent, None, {})
    small, large = (activations(stage, peek, algorithm, size, strategy) for size in (1, 3))
    assert large == (3 if grows else 1) * small


def deeper(folder: Path, layers: int, to: Path) -> str:
    shutil.copytree(folder, to)
    config = transformers.AutoConfig.from_pretrained(folder, num_hidden_layers=layers, layer_types=None)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(to)
    return str(to)


@pytest.mark.parametrize("lora", [None, LoraSpec(r=4)])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_activations_are_near_what_the_backward_pass_keeps(
    tiny_model_dir: Path, tmp_path: Path, lora: LoraSpec | None, checkpointing: bool
) -> None:
    """Of one block: the difference between a model of eight and one of two, within a fifth."""
    said, real = [], []
    for layers in (2, 8):
        base = deeper(tiny_model_dir, layers, tmp_path / str(layers))
        spec = ModelSpec(base=base, lora=lora, gradient_checkpointing=checkpointing)
        role = memory.Role("model", spec, trained=True)
        one = memory.loaded(role, Peek(tiny_model_dir, None, {}))
        said.append(memory._activations(one, role, memory.PassShape(8, 80), None))
        real.append(kept_for_backward(spec))
    assert said[1] - said[0] == pytest.approx(real[1] - real[0], rel=0.2)


def settings(**more: Any) -> OnlineSettings:
    return OnlineSettings(lr=1e-3, batch_size=8, **more)


@pytest.mark.parametrize(
    ("train", "per_weight"),
    [
        (settings(), (4, 4, 8)),
        (settings(precision="bf16-mixed"), (4, 4, 8)),
        (settings(precision="bf16-true"), (2, 2, 4)),
        (settings(strategy="ddp", devices=4), (4, 8, 8)),  # gradients lie in buckets, too
        (settings(strategy="fsdp", devices=4), (1, 1, 2)),
        (settings(strategy="deepspeed_stage_1", devices=4), (4, 4, 3)),
        (settings(strategy="deepspeed_stage_2", devices=4, precision="bf16-mixed"), (2, 1, 3)),
        (settings(strategy="deepspeed_stage_3", devices=4, precision="bf16-true"), (0.5, 1, 3)),
    ],
)
def test_strategies_spread_what_they_spread(
    train: OnlineSettings, per_weight: tuple[float, float, float], tiny_model_dir: Path
) -> None:
    role = memory.Role("actor", ModelSpec(base=str(tiny_model_dir)), trained=True)
    one = memory.loaded(role, Peek(tiny_model_dir, None, {}))
    found = memory._of_role(role, one, train)
    assert [value / one.parameters for value in found.values()] == pytest.approx(list(per_weight), rel=1e-4)


def test_the_fold_is_a_second_copy(tiny: Path) -> None:
    engine = "stages.policy.rollout.engine={name: hf, fold: true}"
    before, after = (estimates(tiny, *more)["policy"]["memory"] for more in ((), (engine,)))
    assert (
        after.pop("decoding_copy")
        == 4
        * memory.shapes.architecture(*memory.shapes.find(recipe.load(tiny).stages["calibrate"].model.base)).in_layers()
    )
    assert {**before, "peak": 0} == {**after, "peak": 0}


@pytest.mark.parametrize(("precision", "width"), [("32-true", None), ("bf16-mixed", 2)])
def test_rounded_weights_are_a_second_copy(precision: str, width: int | None, tiny: Path) -> None:
    overrides = ("stages.policy.rollout.engine=paged", f"stages.policy.train.precision={precision}")
    copied = estimates(tiny, *overrides)["policy"]["memory"].get("decoding_copy")
    base = recipe.load(tiny).stages["calibrate"].model.base
    layers = memory.shapes.architecture(*memory.shapes.find(base)).in_layers()
    assert copied == (None if width is None else width * layers)


def test_what_is_not_here_is_said_and_nothing_breaks(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tiny.parent))
    found = estimates(tiny, "vars.base=someone/something")
    for name, one in found.items():
        assert one["memory"]["peak"] is None, name
    assert found["calibrate"]["parameters"] == dict.fromkeys(
        ("sft", "reward_model"), "unknown (config not on this machine)"
    )
    assert estimate_lines(found["calibrate"]) == [
        "parameters: sft unknown (config not on this machine), reward model unknown (config not on this machine)",
        "memory: unknown",
    ]


def test_a_plan_says_what_no_card_holds_and_where_a_gpu_is_missing(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy of 70 billion weights, all of which are trained, and a reward model of 3 billion with an adapter."""
    large = tiny.parent / "large"
    large.mkdir()
    numbers = {"hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
               "intermediate_size": 28672, "vocab_size": 128256}  # fmt: skip
    (large / "config.json").write_text(json.dumps({"model_type": "llama", **numbers}))
    base = {"policy": large, "reward_model": "meta-llama/Llama-3.2-3B", "calibrate": "meta-llama/Llama-3.2-3B"}
    overrides = [f"stages.{name}.model.base={model}" for name, model in base.items()]
    overrides += ["stages.policy.model.lora=null", "stages.policy.train.accelerator=auto", "stages.evaluate=null"]
    planned = ("plan", tiny, *overrides, "--json")

    def warnings() -> list[str]:
        return [
            text for text in json.loads(fgrl_here(*planned, cwd=tiny.parent).stdout)["warnings"] if "at most" in text
        ]

    monkeypatch.setattr("fgrl.experiments.pipeline.machine.memory", lambda: 4.0)
    assert [text.partition(" (")[0] for text in warnings()] == [
        "larger than the memory here, which is 4.0 GiB: reward_model",
        "needs a GPU, and none is here; this machine has 4.0 GiB: calibrate",
        "fits on no card; the largest has 268.2 GiB: policy",
    ]
    monkeypatch.setattr("fgrl.base.native.has_gpu", lambda: True)
    monkeypatch.setattr(
        "fgrl.experiments.pipeline.machine.gpus", lambda: ["NVIDIA Small, 6144 MiB", "NVIDIA Large, 8192 MiB"]
    )
    assert "larger than the GPU here, which has 8.0 GiB: calibrate" in warnings()[1]
    monkeypatch.setattr("fgrl.experiments.pipeline.machine.gpus", lambda: ["NVIDIA Shared, [N/A]"])
    monkeypatch.setattr("fgrl.experiments.pipeline.machine.memory", lambda: 400.0)
    assert [text.partition(":")[0] for text in warnings()] == ["fits on no card; the largest has 268.2 GiB"]


def test_a_plan_with_sizes_loads_no_heavy_library(tiny: Path) -> None:
    code = (
        "import sys; from fgrl.experiments import pipeline, recipe; from pathlib import Path\n"
        f"made = pipeline.plan(recipe.load(Path({str(tiny)!r})), Path('runs'))\n"
        "assert pipeline.estimates(made)['policy']['memory']['peak'] > 0\n"
        "assert not {'torch', 'transformers', 'lightning', 'peft', 'numpy'} & set(sys.modules), sorted(sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=tiny.parent, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_numbers_for_the_eyes() -> None:
    assert [count(n) for n in (12, 1_500, 134_515_008, 3_821_079_552)] == ["12", "1.5K", "134.5M", "3.82B"]
    assert [size(n) for n in (12, 2048, 3 * 2**20, 2_254_857_830)] == ["12 bytes", "2.0 KiB", "3.0 MiB", "2.1 GiB"]
    estimate = {
        "parameters": {"actor": {"total": 1_500, "trainable": 20}, "reference": "actor without its adapter"},
        "memory": {"actor": {"weights": 2048, "gradients": 1024}, "kv_cache": 512, "peak": 4096},
    }
    assert estimate_lines(estimate) == [
        "parameters: actor 1.5K (20 trainable), reference actor without its adapter",
        "memory: actor 3.0 KiB (weights 2.0 KiB, gradients 1.0 KiB), KV cache 512 bytes, "
        "at most about 4.0 KiB on each device",
    ]


def test_frozen_models_of_a_training_are_shared_out_with_fsdp_alone(tiny_model_dir: Path) -> None:
    reward = SegmentRM(model=ModelSpec(base=str(tiny_model_dir)), segmenter=NGram(n=3))
    roles = [*sizes.scorers("reward_model", reward), memory.Role("judge", ModelSpec(base=str(tiny_model_dir)))]

    def weights(**more: Any) -> list[int]:
        said = memory.estimate(memory.Workload(roles, settings(devices=4, **more)), Peek(tiny_model_dir, None, {}))
        return [said["memory"][role.name]["weights"] for role in roles]

    reward_model, judge = weights(strategy="ddp")
    assert weights(strategy="fsdp") == [round(reward_model / 4), judge]


def test_the_planned_peak_is_near_what_the_allocator_gives_out(tmp_path: Path) -> None:
    """Of training all weights of a tiny model, within the bound of the script that compares more cases."""
    script = loaded_script(Path(__file__).parents[2] / "benchmarks" / "plan_memory.py")
    base = script.model_folder(tmp_path / "model", script.SIZES["tiny"])
    found = script.measured(script.cases(1)["sft"], base, tmp_path / "stage", 0)
    assert found["planned"] == pytest.approx(found["measured"], rel=script.BOUND)
