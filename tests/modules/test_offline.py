"""Training on fixed data, on a tiny model."""

from __future__ import annotations

import math
import tempfile
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from training_helpers import a_run, distance, joined, row, tiny, whole

from fgrl.base.errors import Stopped
from fgrl.components.algorithms.bradley_terry import BradleyTerry
from fgrl.components.algorithms.dpo import DPO
from fgrl.components.algorithms.sft import SFT
from fgrl.components.segmenters.bandit import Bandit
from fgrl.components.segmenters.entropy import Entropy
from fgrl.components.segmenters.ngram import NGram
from fgrl.experiments.pipeline.log import read_log
from fgrl.kinds.specs import ModelSpec
from fgrl.models import load, save
from fgrl.training.offline import OfflineRounds
from fgrl.training.rounds import Process
from fgrl.training.trainer import OfflineSettings
from fgrl.training.training_module import TrainingModule

LORA = {"r": 4, "alpha": 8}


def samples(count: int) -> list[list[dict[str, Any]]]:
    return [[row(3 + i % 6, seed=i)] for i in range(count)]


def pairs(count: int) -> list[list[dict[str, Any]]]:
    """The chosen responses have a token that the rejected ones have not."""
    units = []
    for i in range(count):
        chosen, rejected = row(4 + i % 4, seed=i), row(4 + (i + 1) % 4, seed=1000 + i)
        chosen["response"][1], rejected["response"][1] = 200, 100
        rejected["prompt"] = chosen["prompt"]
        units.append([chosen, rejected])
    return units


def module_of(folder: Path, model: Any, algorithm: Any, units: Any, **train: Any) -> Any:
    run = a_run(folder)
    algorithm.prepare([one for unit in units for one in unit], run, model)
    settings = {"lr": 1e-3, "batch_size": 6, "micro_batch_size": 6, "accelerator": "cpu"} | train
    return TrainingModule(OfflineRounds(model, algorithm, units, OfflineSettings(**settings), run))


def fitted(module: TrainingModule) -> list[dict[str, Any]]:
    module.fit(checkpoint_every=1)
    return read_log(module.run.dir / "log.jsonl")


KINDS = {
    "sft": (SFT, "lm", samples),
    "dpo": (DPO, "lm", pairs),
    "bradley_terry": (lambda: BradleyTerry(segmenter=Entropy(cutoff=5.0)), "scalar", pairs),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_micro_batch_size_changes_memory_and_not_what_is_learned(
    kind: str, tiny_model_dir: Path, tmp_path: Path
) -> None:
    algorithm, head, data = KINDS[kind]
    moved, losses = {}, {}
    for size in (6, 4, 1):
        model = tiny(tiny_model_dir, head=head, trainable=True, lora=LORA)
        start = {name: p.detach().clone() for name, p in model.named_parameters() if p.requires_grad}
        module = module_of(tmp_path / str(size), model, algorithm(), data(12), micro_batch_size=size, lr=1e-2, eps=1.0)
        losses[size] = [row["loss"] for row in fitted(module)]
        moved[size] = {name: p.detach() - start[name] for name, p in model.named_parameters() if name in start}
    assert len(losses[6]) == 2
    assert max(float(change.abs().max()) for change in moved[6].values()) > 1e-5
    for size in (4, 1):
        assert distance(moved[6], moved[size]) < 1e-2
        if kind != "sft":  # a mean over tokens, averaged over rows
            assert losses[size] == pytest.approx(losses[6], rel=1e-3)


def of_one_step(model: Any, units: Any, precision: str, **options: Any) -> dict[str, float]:
    """Metrics of DPO over the micro-batches of the first step, without a trainer."""
    with tempfile.TemporaryDirectory() as folder:
        algorithm, run = DPO(), a_run(Path(folder))
        algorithm.prepare([one for unit in units for one in unit], run, model)
        rounds = OfflineRounds(model, algorithm, units, OfflineSettings(lr=1e-3, accelerator="cpu", **options), run)
        with torch.autocast("cpu", torch.bfloat16) if precision == "bf16-mixed" else nullcontext():
            batches = rounds.start(0, Process(0, 1, nullcontext))
            return joined([(rounds.loss(batch)[1], len(batch.mask)) for batch in batches])


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("checkpointing", [False, True], ids=["", "checkpointing"])
@pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])
def test_dpo_starts_at_log_two_exactly(
    lora: Any, checkpointing: bool, dtype: str, precision: str, tiny_model_dir: Path, tmp_path: Path
) -> None:
    """In micro-batches of several lengths, with prompts that two rows share, and after an earlier adapter."""
    start = tmp_path / "start"
    earlier = tiny(tiny_model_dir, trainable=True, lora=LORA)
    with torch.no_grad():
        for name, parameter in earlier.named_parameters():
            if "lora_B" in name:
                parameter.add_(0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(len(name))))
    save(earlier, start, {})
    model = tiny(start, trainable=True, lora=lora, dtype=dtype, gradient_checkpointing=checkpointing)
    units = pairs(8)
    for chosen, rejected in units:
        chosen["prompt"] = rejected["prompt"] = chosen["prompt"] * 9
    options = {"batch_size": 8, "micro_batch_size": 3, "precision": precision, "max_steps": 1, "checkpoint_every": 1}
    if dtype == "bfloat16" and lora is None:  # what DeepSpeed makes of a policy; no other strategy trains it
        first = of_one_step(model, units, **options)
    else:
        (first,) = fitted(module_of(tmp_path / "run", model, DPO(), units, **options))
    assert first["log_ratio_chosen"] == first["log_ratio_rejected"] == first["margin"] == 0
    assert first["loss"] == pytest.approx(math.log(2), abs=1e-7)


def test_it_learns_which_response_is_better(tiny_model_dir: Path, tmp_path: Path) -> None:
    model = tiny(tiny_model_dir, head="scalar", trainable=True)
    algorithm = BradleyTerry(segmenter=NGram(n=2))
    module = module_of(tmp_path, model, algorithm, pairs(40), epochs=5, batch_size=8, micro_batch_size=8, lr=5e-3)
    held_out = pairs(60)[40:]
    algorithm.prepare([one for unit in held_out for one in unit], module.run, model)
    before = module.rounds.measure(held_out)
    rows = fitted(module)
    after = module.rounds.measure(held_out)
    assert len(rows) == 25
    assert before["accuracy"] < 0.9
    assert after["accuracy"] > 0.9
    assert after["loss"] < before["loss"] - 0.2


def test_measuring_is_the_algorithm_on_all_units_and_changes_nothing(tiny_model_dir: Path, tmp_path: Path) -> None:
    model = tiny(tiny_model_dir, head="scalar", trainable=True, lora=LORA | {"dropout": 0.5})
    units = pairs(7)
    algorithm = BradleyTerry(segmenter=Bandit())
    module = module_of(tmp_path, model, algorithm, units, micro_batch_size=3)
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    found = module.rounds.measure(units)
    (batch,) = whole(units)
    with torch.no_grad():
        _loss, wanted = algorithm.loss(model.eval(), batch)
    for name in ("loss", "accuracy", "margin", "reward_chosen", "reward_rejected", "segments"):
        assert found[name] == pytest.approx(wanted[name], rel=1e-4), name
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())


def test_training_uses_dropout_and_measuring_does_not(tiny_model_dir: Path, tmp_path: Path) -> None:
    model = tiny(tiny_model_dir, trainable=True, lora=LORA | {"dropout": 0.5})
    seen = []
    module = module_of(tmp_path, model, SFT(), samples(6), max_steps=1)
    loss = module.rounds.algorithm.loss
    object.__setattr__(module.rounds.algorithm, "loss", lambda m, b: seen.append(m.training) or loss(m, b))
    fitted(module)
    module.rounds.measure(samples(3))
    assert seen == [True, False]


@pytest.mark.parametrize(("shape", "end"), [("cosine", None), ("linear", None), ("constant", 1.0)])
def test_the_learning_rate_warms_up_and_falls(
    shape: str, end: float | None, tiny_model_dir: Path, tmp_path: Path
) -> None:
    model = tiny(tiny_model_dir, trainable=True, lora=LORA)
    module = module_of(
        tmp_path,
        model,
        SFT(),
        samples(10),
        batch_size=1,
        micro_batch_size=1,
        schedule=shape,
        warmup=0.3,
        min_lr_ratio=0.1,
        lr=1e-3,
    )
    rates = [row["lr"] / 1e-3 for row in fitted(module)]
    assert rates[:4] == pytest.approx([1 / 4, 2 / 4, 3 / 4, 1.0])
    done = 6 / 7  # before the last of 7 steps after the warm-up
    fall = {"cosine": (1 + math.cos(math.pi * done)) / 2, "linear": 1 - done}.get(shape)
    assert rates[-1] == pytest.approx(end if fall is None else 0.1 + 0.9 * fall)
    assert sorted(rates[3:], reverse=True) == pytest.approx(rates[3:])


def test_the_gradient_is_clipped(tiny_model_dir: Path, tmp_path: Path) -> None:
    """Plain gradient descent: without momentum the step is the learning rate times the clipped gradient."""
    moved = {}
    for clip in (1e-3, None):
        model = tiny(tiny_model_dir, trainable=True)
        start = [p.detach().clone() for p in model.parameters()]
        module = module_of(tmp_path / str(clip), model, SFT(), samples(6), clip_norm=clip, warmup=0.0)
        module.configure_optimizers = lambda m=model: torch.optim.SGD(m.parameters(), lr=1.0)
        norm = fitted(module)[0]["grad_norm"]
        far = sum(float((p - s).square().sum()) for p, s in zip(model.parameters(), start, strict=True)) ** 0.5
        moved[clip] = (norm, far)
    assert moved[None][0] == pytest.approx(moved[1e-3][0], rel=1e-4) == pytest.approx(moved[None][1], rel=1e-4)
    assert moved[1e-3][1] == pytest.approx(1e-3, rel=1e-3)
    assert moved[None][1] > 0.1


def test_steps_are_limited_and_logged(tiny_model_dir: Path, tmp_path: Path) -> None:
    model = tiny(tiny_model_dir, trainable=True, lora=LORA)
    module = module_of(tmp_path, model, SFT(), samples(13), epochs=3, max_steps=5, micro_batch_size=2)
    assert [len(step.units) for step in module.rounds.steps] == [
        6,
        6,
        1,
        6,
        6,
    ]  # the rest of the first pass is a step too
    assert [row["step"] for row in fitted(module)] == [1, 2, 3, 4, 5]


def test_a_loss_that_is_not_finite_stops_and_leaves_the_weights(tiny_model_dir: Path, tmp_path: Path) -> None:
    model = tiny(tiny_model_dir, trainable=True, lora=LORA)
    module = module_of(tmp_path, model, SFT(), samples(12))
    loss = module.rounds.algorithm.loss
    object.__setattr__(module.rounds.algorithm, "loss", lambda m, b: (loss(m, b)[0] * float("nan"), {}))
    before = {name: p.detach().clone() for name, p in model.named_parameters()}
    with pytest.raises(Stopped, match=r"the loss is not finite at step 0"):
        fitted(module)
    assert all(torch.equal(p, before[name]) for name, p in model.named_parameters())


def test_only_what_is_trained_is_in_the_checkpoint(tiny_model_dir: Path, tmp_path: Path) -> None:
    model = tiny(tiny_model_dir, head="scalar", trainable=True, lora=LORA)
    module = module_of(tmp_path, model, BradleyTerry(segmenter=Bandit()), pairs(6))
    frozen = {name: p.detach().clone() for name, p in model.named_parameters() if not p.requires_grad}
    fitted(module)
    state = torch.load(tmp_path / "last.ckpt", weights_only=False)["state_dict"]
    trained = {f"model.{name}" for name, p in model.named_parameters() if p.requires_grad}
    assert set(state) == trained
    assert any("number.weight" in name for name in trained)
    assert frozen
    assert all(torch.equal(p, frozen[name]) for name, p in model.named_parameters() if name in frozen)


def test_a_trained_reward_model_loads_as_it_was_and_says_how_it_was_cut(tiny_model_dir: Path, tmp_path: Path) -> None:
    model = tiny(tiny_model_dir, head="scalar", trainable=True, lora=LORA)
    algorithm = BradleyTerry(segmenter=Entropy(cutoff=1.5), aggregate="sum")
    units = pairs(6)
    fitted(module_of(tmp_path, model, algorithm, units))
    save(model, tmp_path / "saved", algorithm.describe())
    again = load(ModelSpec(base=str(tmp_path / "saved")), head="scalar")
    (batch,) = whole(units)
    with torch.no_grad():
        torch.testing.assert_close(again.rewards(batch), model.eval().rewards(batch), atol=1e-5, rtol=1e-5)
    told = algorithm.describe()
    assert told["segmenter"] == {"name": "entropy", "version": 1, "include_eos": False, "cutoff": 1.5}
    assert told["aggregate"] == "sum"


def test_responses_are_cut_once_by_the_model_that_training_starts_from(tiny_model_dir: Path, tmp_path: Path) -> None:
    """The entropies are those of the plain language model, and a second training reads them from the cache."""
    units = pairs(3)
    rows = [one for unit in units for one in unit]
    model = tiny(tiny_model_dir, head="scalar", trainable=True, lora=LORA)
    sft = tiny(tiny_model_dir)
    run = a_run(tmp_path)
    BradleyTerry(segmenter=Entropy(cutoff=5.0)).prepare(rows, run, model)
    starts = 0
    for one in rows:
        prompt, response = one["prompt"], one["response"]
        with torch.no_grad():
            logp = sft.transformer(input_ids=torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1]
        logp = logp.log_softmax(-1)
        entropy = -(logp.exp() * logp).sum(-1)
        number, wanted = -1, []
        for t in range(len(response)):
            if one["finished"] and t == len(response) - 1:
                wanted.append(-1)
                continue
            number += t == 0 or bool(entropy[t] > 5.0)
            wanted.append(number)
        starts += number
        assert one["columns"]["segment"].tolist() == wanted
    assert 0 < starts < sum(len(one["response"]) for one in rows) - len(rows)  # some tokens start a segment, some not
    kept = sorted((tmp_path / "cache").iterdir())
    run.model = None  # a second pass over the models would fail
    BradleyTerry(segmenter=Entropy(cutoff=5.1)).prepare(rows, run, model)
    assert sorted((tmp_path / "cache").iterdir()) == kept
