"""The algorithm `dpo`: its objectives on a model, against trl's, and the reference that is read once."""

from __future__ import annotations

import json
import math
import shutil
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from training_helpers import FakeModel, a_run, distance, fake_batch, row, step_gradient, tiny, whole

from fgrl.base.mergeable import as_numbers
from fgrl.components.algorithms.dpo import DPO
from fgrl.experiments.pipeline.log import read_log
from fgrl.kinds.specs import ModelSpec
from fgrl.registry import Problems, build
from fgrl.registry.walking import dump
from fgrl.rollouts import reference_sums
from fgrl.training.offline import OfflineRounds
from fgrl.training.rounds import Process
from fgrl.training.trainer import OfflineSettings
from fgrl.training.training_module import TrainingModule

LORA = {"r": 4, "alpha": 8}
OBJECTIVES: dict[str, dict[str, Any]] = {
    "dpo": {},
    "dpop": {"dpop_lambda": 5.0},
    "ipo": {"objective": "ipo"},
    "ipo of trl": {"objective": "ipo", "length_normalized": True},
    "apo_zero": {"objective": "apo_zero"},
    "apo_down": {"objective": "apo_down"},
    "dpo and sft": {"sft_coef": 0.3, "length_normalized": True},
}


def dpo(**fields: Any) -> DPO:
    return build("offline_algorithm", {"name": "dpo", **fields})


def edits(count: int, seed: int = 0) -> list[list[dict[str, Any]]]:
    """Pairs whose answers share their beginning, as steps of a chain do."""
    units = []
    for i in range(count):
        chosen, rejected = row(8 + i % 4, seed=seed + i, prompt=6), row(9 + i % 3, seed=seed + 1000 + i, prompt=6)
        rejected["prompt"] = chosen["prompt"]
        shared = 3 + i % 4
        rejected["response"][:shared] = chosen["response"][:shared]
        units.append([chosen, rejected])
    return units


def stirred(model: Any, size: float = 0.05) -> Any:
    with torch.no_grad():
        for i, (_name, parameter) in enumerate(model.named_parameters()):
            if parameter.requires_grad:
                parameter.add_(size * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(i)))
    return model


def prepared(algorithm: DPO, model: Any, folder: Path) -> DPO:
    algorithm.prepare([], a_run(folder), model)
    return algorithm


# -- settings ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        (
            {"objective": "ipo", "label_smoothing": 0.1},
            "label_smoothing 0.1 is defined for the objective dpo only, not for ipo",
        ),
        ({"objective": "apo_zero", "dpop_lambda": 5.0}, "dpop_lambda 5 is defined for the objective dpo only"),
        ({"label_smoothing": 0.1, "dpop_lambda": 5.0}, "no paper defines the two together"),
        ({"dpop_lambda": -1.0}, "greater than or equal to 0|wants"),
        ({"objective": "hinge"}, "apo_down"),
    ],
)
def test_combinations_that_no_paper_defines_are_refused(fields: dict[str, Any], match: str) -> None:
    with pytest.raises(Problems, match=match):
        dpo(**fields)


# -- values ------------------------------------------------------------------------------------------------------------


def test_length_normalisation_averages_log_ratios_and_the_sft_term_averages_tokens_then_pairs() -> None:
    logp = torch.tensor(
        [[-1.0, -2.0, math.nan], [-4.0, math.nan, math.nan], [-1.0, -1.0, -7.0], [-3.0, -2.0, math.nan]]
    )
    reference = torch.tensor(
        [[-1.5, -2.0, math.nan], [-3.0, math.nan, math.nan], [-1.0, -1.0, -6.0], [-3.0, -4.0, math.nan]]
    )
    leaf = logp.clone().requires_grad_()
    algorithm = dpo(beta=0.4, length_normalized=True, sft_coef=0.5, reference_pass="each_step")
    loss, metrics = algorithm.loss(FakeModel(logp=leaf, reference=reference), fake_batch([2, 1, 3, 2], {}))
    loss.backward()
    w, l = (0.5 / 2, -1 / 3), (-1.0, 2 / 2)  # noqa: E741
    x = [0.4 * (a - b) for a, b in zip(w, l, strict=True)]
    nll = [3 / 2, 9 / 3]
    wanted = sum(math.log1p(math.exp(-a)) + 0.5 * b for a, b in zip(x, nll, strict=True)) / 2
    assert loss.item() == pytest.approx(wanted, rel=1e-6)
    slopes = [-0.4 / 2 / (1 + math.exp(a)) for a in x]
    gradient = torch.tensor([
        [slopes[0] / 2 - 0.5 / 2 / 2] * 2 + [0.0], [-slopes[0], 0.0, 0.0],
        [slopes[1] / 3 - 0.5 / 2 / 3] * 3, [-slopes[1] / 2] * 2 + [0.0],
    ])  # fmt: skip
    torch.testing.assert_close(leaf.grad, gradient)
    numbers = as_numbers(metrics)
    assert numbers["logp_chosen"] == pytest.approx((-3 - 9) / 2)
    assert numbers["logp_rejected"] == pytest.approx((-4 - 5) / 2)
    assert numbers["nll_chosen"] == pytest.approx(sum(nll) / 2)


@pytest.mark.parametrize(
    ("fields", "theirs"),
    [
        ({}, "sigmoid"),
        ({"length_normalized": True}, "sigmoid_norm"),
        ({"objective": "ipo", "length_normalized": True}, "ipo"),
        ({"objective": "apo_zero"}, "apo_zero"),
        ({"objective": "apo_down"}, "apo_down"),
    ],
)
def test_objectives_are_those_of_trl(fields: dict[str, Any], theirs: str, tiny_model_dir: Path, tmp_path: Path) -> None:
    """Loss and gradient of `trl.DPOTrainer` on the same ids, reference and policy, with answers that share their beginning."""
    trl = pytest.importorskip("trl", reason="needs trl")
    import datasets
    import transformers

    policy, reference = (transformers.AutoModelForCausalLM.from_pretrained(tiny_model_dir) for _ in range(2))
    with torch.no_grad():
        for i, parameter in enumerate(reference.parameters()):
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(i)))
    folder = tmp_path / "reference"
    reference.save_pretrained(folder)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tiny_model_dir)
    tokenizer.save_pretrained(folder)
    units = edits(3)

    model = tiny(tiny_model_dir, trainable=True)
    algorithm = prepared(dpo(beta=0.25, reference=ModelSpec(base=str(folder)), **fields), model, tmp_path)
    loss, gradient = step_gradient(model, lambda b: algorithm.loss(model, b)[0], whole(units, pieces=2))

    trainer = trl.DPOTrainer(
        model=policy, ref_model=reference, processing_class=tokenizer,
        train_dataset=datasets.Dataset.from_list([{"prompt": "a", "chosen": "b", "rejected": "c"}]),
        args=trl.DPOConfig(
            output_dir=str(tmp_path / "trl"), beta=0.25, report_to="none", use_cpu=True, bf16=False,
            gradient_checkpointing=False, disable_dropout=True, loss_type=theirs,
        ),
    )  # fmt: skip
    collate = trainer.data_collator
    names = ("prompt_ids", "chosen_ids", "rejected_ids")
    inputs = collate([
        dict(zip(names, (chosen["prompt"], chosen["response"], rejected["response"]), strict=True))
        for chosen, rejected in units
    ])  # fmt: skip
    their_loss = trainer.compute_loss(trainer.model, inputs)
    their_loss.backward()
    assert loss == pytest.approx(float(their_loss.detach()), rel=2e-5)
    wanted = {f"net.{name}": p.grad for name, p in policy.named_parameters() if p.grad is not None}
    assert distance(wanted, gradient) < 2e-4


@pytest.mark.parametrize("pass_", ["once", "each_step"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("objective", ["dpo", "dpop", "ipo", "apo_zero", "apo_down"])
def test_where_policy_and_reference_agree_the_loss_is_exact(
    objective: str, dtype: str, pass_: str, tiny_model_dir: Path, tmp_path: Path
) -> None:
    """With prompts and beginnings that are read once, and dropout on."""
    model = tiny(tiny_model_dir, trainable=True, lora={**LORA, "dropout": 0.5}, dtype=dtype)
    algorithm = prepared(dpo(reference_pass=pass_, **OBJECTIVES[objective]), model, tmp_path)
    (batch,) = whole(edits(3))
    loss, metrics = algorithm.loss(model.train(), batch)
    assert as_numbers(metrics)["log_ratio_chosen"] == as_numbers(metrics)["log_ratio_rejected"] == 0
    wanted = {"ipo": 1 / (2 * 0.1) ** 2, "apo_zero": 1.0, "apo_down": 1.0}.get(objective, math.log(2))
    assert loss.item() == pytest.approx(wanted, rel=1e-7)
    assert float(algorithm.loss(stirred(model), batch)[0]) != pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("pass_", ["once", "each_step"])
def test_a_model_from_another_folder_is_compared_with_where_training_started(
    pass_: str, tiny_model_dir: Path, tmp_path: Path
) -> None:
    """The best model of a training is loaded from the product's folder and measured on held-out pairs."""
    folder = tmp_path / "best"
    shutil.copytree(tiny_model_dir, folder)
    stirred(tiny(tiny_model_dir, trainable=True)).net.save_pretrained(folder)
    start, best = tiny(tiny_model_dir, trainable=True), tiny(folder, trainable=True)
    (batch,) = whole(edits(3))
    algorithm = prepared(dpo(reference_pass=pass_), start, tmp_path / "run")
    loss = float(algorithm.loss(best, batch)[0])
    again = float(prepared(dpo(reference_pass=pass_), start, tmp_path / "run").loss(stirred(start), batch)[0])
    assert loss == pytest.approx(again, rel=1e-6)
    assert loss != pytest.approx(math.log(2), rel=1e-3)


@pytest.mark.parametrize("name", OBJECTIVES)
def test_objectives_do_not_depend_on_the_cut_or_on_how_rows_are_read(
    name: str, tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tiny(tiny_model_dir, trainable=True)
    units = edits(6)
    results = []
    for pass_, packed, (pieces, world) in (
        ("once", True, (1, 1)), ("once", True, (2, 2)), ("each_step", True, (1, 1)), ("each_step", True, (5, 1)),
        ("each_step", False, (1, 1)),
    ):  # fmt: skip
        monkeypatch.setattr(type(model), "packs_pairs", lambda self, packed=packed: packed)
        if results:
            model = tiny(tiny_model_dir, trainable=True)
        algorithm = prepared(dpo(beta=0.3, reference_pass=pass_, **OBJECTIVES[name]), model, tmp_path)
        algorithm.loss(model, whole(units)[0])  # the reference is loaded
        stirred(model)
        results.append(
            step_gradient(model, lambda b, a=algorithm, m=model: a.loss(m, b)[0], whole(units, pieces, world))
        )
    (loss, gradient), *others = results
    assert math.isfinite(loss)
    for other_loss, other_gradient in others:
        assert other_loss == pytest.approx(loss, rel=1e-5, abs=2e-6)
        assert distance(gradient, other_gradient) < 5e-5


# -- the reference, once -----------------------------------------------------------------------------------------------


class Passes:
    """Counts passes of the reference."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        read = DPO.reference_logp

        def counted(algorithm: DPO, policy: Any, batch: Any) -> Any:
            self.count += 1
            return read(algorithm, policy, batch)

        monkeypatch.setattr(DPO, "reference_logp", counted)

    def taken(self) -> int:
        count, self.count = self.count, 0
        return count


def trained(
    folder: Path, model: Any, algorithm: DPO, units: Any, cache: Path | None = None, **train: Any
) -> list[dict[str, Any]]:
    run = a_run(folder)
    run.cache = cache or run.cache
    algorithm.prepare([one for unit in units for one in unit], run, model)
    settings = {"lr": 1e-2, "batch_size": 4, "micro_batch_size": 3, "accelerator": "cpu", "checkpoint_every": 1} | train
    TrainingModule(OfflineRounds(model, algorithm, units, OfflineSettings(**settings), run)).fit(checkpoint_every=1)
    return [{name: value for name, value in row.items() if name != "time"} for row in read_log(folder / "log.jsonl")]


@pytest.mark.parametrize("lora", [None, LORA], ids=["full", "lora"])
@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
def test_every_pair_is_read_once_by_the_reference_for_all_epochs_and_trainings(
    precision: str, lora: Any, tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes, units = Passes(monkeypatch), edits(6)

    def train(name: str, **fields: Any) -> list[dict[str, Any]]:
        model = tiny(tiny_model_dir, trainable=True, lora=lora)
        algorithm = dpo(**fields)
        rows = trained(tmp_path / name, model, algorithm, units, tmp_path / "cache", epochs=3, precision=precision)
        assert algorithm._frozen is None or fields.get("reference_pass") == "each_step", (
            "the reference's memory is free again"
        )
        return rows

    first = train("first")
    assert passes.taken() == 6
    assert first[0]["loss"] == pytest.approx(math.log(2), abs=1e-7)
    assert first[0]["log_ratio_chosen"] == first[0]["log_ratio_rejected"] == 0
    assert first[-1]["loss"] != pytest.approx(math.log(2), abs=1e-3)
    again = train("again", objective="apo_down")
    assert passes.taken() == 0, "another loss on the same pairs finds the file"
    assert again[0]["loss"] == 1.0
    assert train("same") == first
    live = train("live", reference_pass="each_step")
    assert [row["loss"] for row in live] == pytest.approx(
        [row["loss"] for row in first], rel=2e-2 if precision == "bf16-mixed" else 1e-4
    )


def test_a_pair_s_numbers_do_not_depend_on_its_neighbours_in_bfloat16(tiny_model_dir: Path, tmp_path: Path) -> None:
    """So a stored number fits the policy's in every later batch: with equal weights each log-ratio is 0 in any arrangement."""
    model = tiny(tiny_model_dir, trainable=True, lora=LORA, dtype="bfloat16")
    algorithm = prepared(dpo(), model, tmp_path)
    units = edits(7)
    for order, pieces in (([0, 1, 2, 3, 4, 5, 6], 1), ([6, 2, 4, 0], 2), ([5, 1, 3], 1)):
        for batch in whole([units[i] for i in order], pieces):
            metrics = as_numbers(algorithm.loss(model, batch)[1])
            assert metrics["log_ratio_chosen"] == metrics["log_ratio_rejected"] == metrics["margin"] == 0


def test_a_killed_training_goes_on_with_the_stored_numbers_and_ends_the_same(
    tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    units = edits(6)
    ends = {}
    for name, stops in (("undisturbed", [None]), ("killed", [2, None]), ("without its file", [2, "lost", None])):
        passes, counts = Passes(monkeypatch), []
        for stop in stops:
            if stop == "lost":
                for file in (tmp_path / name / "cache").glob("reference-*"):
                    file.unlink()
                continue
            model = tiny(tiny_model_dir, trainable=True, lora=LORA)
            algorithm = dpo()
            if stop is not None:
                count = 0
                loss = DPO.loss

                def failing(self: DPO, model: Any, batch: Any, limit: int = stop * 4, loss: Any = loss) -> Any:
                    nonlocal count
                    count += 1
                    if count > limit:
                        raise KeyboardInterrupt
                    return loss(self, model, batch)

                object.__setattr__(algorithm, "loss", failing.__get__(algorithm))
                with pytest.raises((KeyboardInterrupt, SystemExit)):
                    trained(tmp_path / name, model, algorithm, units, epochs=2)
            else:
                trained(tmp_path / name, model, algorithm, units, epochs=2)
            counts.append(passes.taken())
        assert counts == {"undisturbed": [6], "killed": [6, 0], "without its file": [6, 6]}[name]
        ends[name] = {n: p.detach().clone() for n, p in model.named_parameters() if p.requires_grad}
    for name in ("killed", "without its file"):
        assert all(torch.equal(ends[name][n], value) for n, value in ends["undisturbed"].items()), name


def test_a_damaged_or_partial_file_is_completed(
    tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, units, passes = tiny(tiny_model_dir, trainable=True, lora=LORA), edits(5), Passes(monkeypatch)
    batches = [whole([unit])[0] for unit in units]
    monkeypatch.setattr(reference_sums, "STORED_EVERY", 2)
    algorithm, run = dpo(), a_run(tmp_path)
    algorithm.prepare([], run, model)
    read = DPO.reference_logp

    def cut_off(algorithm: DPO, policy: Any, batch: Any) -> Any:
        if passes.count == 3:
            raise RuntimeError("killed")
        return read(algorithm, policy, batch)

    with monkeypatch.context() as patch:
        patch.setattr(DPO, "reference_logp", cut_off)
        with pytest.raises(RuntimeError, match="killed"):
            algorithm.begin(model, batches, run)
    assert passes.taken() == 3
    algorithm.prepare([], run, model)
    algorithm.begin(model, batches, run)
    assert passes.taken() == 3, "two pairs were stored"
    (file,) = run.cache.glob("reference-*.safetensors")
    content = file.read_bytes()
    file.write_bytes(content[:-3] + b"\0\1\2")
    algorithm.prepare([], run, model)
    algorithm.begin(model, batches, run)
    assert passes.taken() == 5
    assert file.read_bytes() == content


def test_other_weights_other_tokens_and_another_precision_have_files_of_their_own(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    model, run = tiny(tiny_model_dir, trainable=True, lora=LORA), a_run(tmp_path)
    other = tmp_path / "other"
    stirred(tiny(tiny_model_dir, trainable=True)).transformer.save_pretrained(other)
    model.tokenizer.save_pretrained(other)

    def name(units: Any, spec: ModelSpec | None = None, conditions: str | None = None) -> str:
        batches = [whole([unit])[0] for unit in units]
        return reference_sums.file_for(
            batches, spec or model.spec.frozen(), run, conditions or dpo()._conditions(model)
        ).name

    changed = edits(3)
    changed[1][0]["response"][2] += 1
    with torch.autocast("cpu", torch.bfloat16):
        mixed = dpo()._conditions(model)
    names = {
        name(edits(3)), name(edits(2)), name(changed), name(edits(3), ModelSpec(base=str(other))),
        name(edits(3), conditions=mixed), name([unit[::-1] for unit in edits(3)]),
    }  # fmt: skip
    assert len(names) == 6
    assert name(edits(3)) == name(edits(3))


def test_defaults_and_the_pass_of_the_reference_are_no_part_of_a_stage_s_key() -> None:
    def key(**fields: Any) -> str:
        return json.dumps(dump(dpo(**fields), for_key=True), sort_keys=True)

    plain = key()
    assert "dpop_lambda" not in plain
    assert key(reference_pass="each_step") == plain
    changed = [{"objective": "ipo"}, {"dpop_lambda": 5.0}, {"sft_coef": 0.1}, {"length_normalized": True}]
    assert len({key(**fields) for fields in changed} | {plain}) == 5


def test_pairs_are_read_one_at_a_time_and_held_out_pairs_are_measured_too(
    tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, units, passes = tiny(tiny_model_dir, trainable=True, lora=LORA), edits(6), Passes(monkeypatch)
    run = a_run(tmp_path)
    algorithm = dpo()
    algorithm.prepare([], run, model)
    settings = OfflineSettings(lr=1e-2, batch_size=4, micro_batch_size=4, accelerator="cpu", max_steps=1)
    rounds = OfflineRounds(model, algorithm, units[:5], settings, run)
    assert rounds.micro_batches == 4
    batches = list(rounds.start(0, Process(0, 1, nullcontext)))
    assert [len(batch.mask) for batch in batches] == [2] * 4
    assert passes.taken() == 4, "of five pairs the only step takes four"
    held_out = rounds.measure(units[5:])
    assert held_out["loss"] == pytest.approx(math.log(2), abs=1e-7)
    assert held_out["logp_chosen"] < 0
    assert passes.taken() == 1
    rounds.measure(units[5:])
    assert passes.taken() == 0
