"""Tokens drawn by an engine beside the trainer: how far it is from the policy, and the correction of the gradient."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apart_engine
import numpy as np
import pytest
import torch
from apart_engine import Apart
from test_online import QUIET, by_ids, fitted, module_of, reward_of
from training_helpers import step_gradient, tiny

from fgrl.base import ops
from fgrl.base.errors import Stopped
from fgrl.components.algorithms.grpo import GRPO
from fgrl.components.algorithms.ppo import PPO
from fgrl.kinds import Correction
from fgrl.training import mismatch, online
from fgrl.training.alarms import Alarms
from fgrl.training.steps import Step, StepLoader
from fgrl.training.stored_rollouts import StoredRollout, parts
from fgrl.training.units import RolloutUnits
from fgrl.types import Advantages, Rollout, Sample, read_jsonl

NAN = float("nan")


def rollout(old_logp: Any, drawn_logp: Any, mask: Any, **more: Any) -> Rollout:
    real = torch.tensor(mask, dtype=torch.bool)
    rows, width = real.shape
    ids = torch.randint(10, 300, (rows, width), generator=torch.Generator().manual_seed(0))
    return Rollout(
        prompt_ids=torch.full((rows, 2), 7), prompt_mask=torch.ones(rows, 2, dtype=torch.bool), response_ids=ids, mask=real,
        eos=torch.zeros_like(real), group=torch.arange(rows), samples=[Sample(id=str(i), prompt="?") for i in range(rows)],
        texts=[""] * rows, old_logp=torch.tensor(old_logp), drawn_logp=torch.tensor(drawn_logp), **more,
    )  # fmt: skip


RATIOS = np.array([[0.25, 0.6, 1.0, 2.5], [1.9, 4.0, NAN, NAN]])
MASK = ~np.isnan(RATIOS)
OLD = np.where(MASK, -1.5, NAN)
DRAWN = OLD - np.log(RATIOS)


@pytest.mark.parametrize(
    ("kind", "weights"),
    [
        ("none", [[1, 1, 1, 1], [1, 1, 0, 0]]),
        ("truncate", [[0.25, 0.6, 1.0, 2.0], [1.9, 2.0, 0, 0]]),
        ("mask", [[0, 0.6, 1.0, 0], [1.9, 0, 0, 0]]),
    ],
)
def test_the_weights_of_each_kind(kind: Any, weights: Any) -> None:
    advantage = torch.where(torch.tensor(MASK), 3.0, 0.0)
    given = Advantages(advantage=advantage, returns=advantage + 1)
    made, metrics = mismatch.corrected(given, rollout(OLD, DRAWN, MASK), Correction(kind, 2.0))
    np.testing.assert_allclose(made.advantage, 3 * np.array(weights), rtol=1e-6)
    assert made.returns is given.returns, "the critic learns what it learned"
    if kind == "none":
        assert "correction_weight" not in metrics
    else:
        assert metrics["correction_weight"] == pytest.approx(np.array(weights)[MASK].mean())


def test_the_metrics_are_those_of_numpy() -> None:
    ratio = RATIOS[MASK]
    found = mismatch.measured(rollout(OLD, DRAWN, MASK), 2.0)
    assert found == pytest.approx({
        "mismatch": np.abs(np.log(ratio)).mean(), "mismatch_max": np.log(4.0), "mismatch_outside": 3 / 6,
        "importance_weight": ratio.mean(), "engine_kl": (ratio - 1 - np.log(ratio)).mean(),
    })  # fmt: skip


def test_mean_weight_and_kl_are_the_exact_ones_in_expectation() -> None:
    """Over all tokens of a vocabulary, weighted with the engine's own probabilities."""
    generator = np.random.default_rng(0)
    policy, engine = (np.exp(x) / np.exp(x).sum() for x in generator.normal(size=(2, 50)))
    counts = np.round(engine * 200_000).astype(int)
    logs = [np.repeat(np.log(p), counts)[None] for p in (policy, engine)]
    found = mismatch.measured(rollout(*logs, np.ones((1, counts.sum()))), 2.0)
    assert found["importance_weight"] == pytest.approx(1.0, abs=1e-3)
    assert found["engine_kl"] == pytest.approx((engine * np.log(engine / policy)).sum(), rel=1e-3)


def test_weights_hold_no_gradient_and_ignore_what_is_masked() -> None:
    logp = torch.tensor([[-1.0, torch.inf]], requires_grad=True)
    weight = ops.importance_weight(logp, torch.tensor([[-2.0, NAN]]), torch.tensor([[True, False]]), "truncate", 9.0)
    assert not weight.requires_grad
    assert weight.tolist() == [[pytest.approx(np.e), 0.0]]


@pytest.mark.parametrize("aggregate", ["seq_mean", "token_mean"])
@pytest.mark.parametrize("pieces", [1, 2, 5])
@pytest.mark.parametrize("kind", ["truncate", "mask"])
def test_it_equals_weighing_the_terms_of_the_surrogate(
    kind: Any, pieces: int, aggregate: Any, tiny_model_dir: Path
) -> None:
    """The gradient of a step, in any micro-batches, beside one written down token by token, with another ratio than 1."""
    actor = tiny(tiny_model_dir, trainable=True)
    generator = torch.Generator().manual_seed(1)
    mask = torch.arange(6) < torch.tensor([6, 3, 5, 1, 4])[:, None]
    drawn = rollout(torch.zeros(5, 6).tolist(), torch.zeros(5, 6).tolist(), mask.tolist())
    with torch.no_grad():
        now = actor.score(drawn).logp
    drawn.old_logp = now + 0.3 * torch.randn(5, 6, generator=generator)  # some are clipped
    drawn.drawn_logp = drawn.old_logp + torch.randn(5, 6, generator=generator)
    advantage = torch.where(mask, torch.randn(5, 6, generator=generator), 0.0)
    correction = Correction(kind, 1.5)
    algorithm = GRPO(aggregate=aggregate, clip=0.2)

    units = RolloutUnits(drawn, mismatch.corrected(Advantages(advantage), drawn, correction)[0], pad_id=0)
    batches = list(StepLoader(units, [Step([0, 1, 2, 3, 4])], micro_batches=pieces))
    holder = torch.nn.Module()
    holder.actor = actor
    loss, gradient = step_gradient(holder, lambda batch: algorithm.loss(holder, batch)[0], batches)

    holder.zero_grad()
    terms = torch.zeros(5, 6)
    logp = actor.score(drawn).logp
    for row, t in mask.nonzero().tolist():
        ratio = (logp[row, t] - drawn.old_logp[row, t]).exp()
        weight = (drawn.old_logp[row, t] - drawn.drawn_logp[row, t]).exp()
        inside = bool(1 / 1.5 <= weight <= 1.5)
        factor = min(float(weight), 1.5) if kind == "truncate" else float(weight) * inside
        a = advantage[row, t]
        clipped = torch.min(ratio * a, ratio.clamp(0.8, 1.2) * a)
        terms[row, t] = -factor * clipped
    wanted = (terms.sum(1) / mask.sum(1)).mean() if aggregate == "seq_mean" else terms.sum() / mask.sum()
    wanted.backward()
    assert loss == pytest.approx(float(wanted.detach()), rel=1e-4)
    for name, parameter in holder.named_parameters():
        if parameter.grad is not None:
            torch.testing.assert_close(gradient[name], parameter.grad, rtol=1e-3, atol=1e-6)


# -- in a training -----------------------------------------------------------------------------------------------------

ONE_STEP = {"batch_size": 6, "per_prompt": 2, "lr": 1e-2, "warmup": 0.0, "lora": None}


def test_an_engine_with_the_same_weights_shows_no_difference(tiny_model_dir: Path, tmp_path: Path) -> None:
    """One step an iteration, where GRPO alone would not score: the policy is scored all the same."""
    module = module_of(
        tiny_model_dir, tmp_path, reward_of(by_ids), algorithm=GRPO(), engine=Apart(), iterations=3, **ONE_STEP
    )
    rows = fitted(module)
    assert "old_logp" in module.rounds.needs
    for row in rows:
        assert row["mismatch_max"] < 1e-4
        assert row["mismatch_outside"] == row["staleness"] == 0
        assert row["importance_weight"] == pytest.approx(1, abs=1e-4)
        assert row["correction_weight"] == pytest.approx(1, abs=1e-4)
        assert abs(row["engine_kl"]) < 1e-6


def test_hf_has_none_of_it(tiny_model_dir: Path, tmp_path: Path) -> None:
    module = module_of(tiny_model_dir, tmp_path, reward_of(by_ids), algorithm=GRPO(), iterations=1, **ONE_STEP)
    (row,) = fitted(module)
    assert "old_logp" not in module.rounds.needs
    assert not row.keys() & {"mismatch", "staleness", "importance_weight", "engine_kl", "correction_weight"}


def test_in_bfloat16_the_difference_is_small_and_no_alarm_rings(tiny_model_dir: Path, tmp_path: Path) -> None:
    said: list[str] = []
    module = module_of(
        tiny_model_dir,
        tmp_path,
        reward_of(by_ids),
        engine=Apart(dtype="bfloat16"),
        iterations=3,
        alarms=Alarms(),
        lora=None,
    )
    module.rounds.watch.say = said.append
    rows = fitted(module)
    assert all(1e-5 < row["mismatch"] < 0.1 for row in rows)
    assert not [line for line in said if "mismatch" in line or "weight" in line]


@pytest.mark.parametrize(
    ("engine", "alarm"),
    [(Apart(skips=1), "mismatch"), (Apart(off=-1.0), "importance_weight"), (Apart(off=0.5), "mismatch")],
)
def test_stale_weights_and_wrong_log_probabilities_ring(
    engine: Any, alarm: str, tiny_model_dir: Path, tmp_path: Path
) -> None:
    """Every version is taken as far as the trainer hears; the log-probabilities tell."""
    said: list[str] = []
    module = module_of(
        tiny_model_dir, tmp_path, reward_of(by_ids), algorithm=PPO(kl_coef=0.0, epochs=2), engine=engine, alarms=Alarms(),
        iterations=8 if engine.skips else 2, lr=5e-3, warmup=0.0, lora=None, per_iteration=24, per_prompt=4, batch_size=12,
    )  # fmt: skip
    module.rounds.watch.say = said.append
    rows = fitted(module)
    assert any(f"alarm: {alarm} is" in line for line in said), (said, [row["mismatch"] for row in rows])
    if engine.skips:
        assert rows[0]["mismatch"] < 1e-4
        assert rows[-1]["mismatch"] > 0.1


def test_without_the_fault_nothing_rings(tiny_model_dir: Path, tmp_path: Path) -> None:
    said: list[str] = []
    module = module_of(
        tiny_model_dir, tmp_path, reward_of(by_ids), algorithm=PPO(kl_coef=0.0, epochs=2), engine=Apart(), alarms=Alarms(),
        iterations=8, lr=5e-3, warmup=0.0, lora=None, per_iteration=24, per_prompt=4, batch_size=12,
    )  # fmt: skip
    module.rounds.watch.say = said.append
    fitted(module)
    assert not [line for line in said if "mismatch" in line or "weight" in line]


def test_what_is_stored_is_the_advantage_before_the_correction(
    tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An engine whose log-probabilities are 1 too low: every weight is e, and the loss sees the bound instead."""
    monkeypatch.setattr(online, "name_of", lambda _component: ("reward", "fake"))
    stored = {}
    for name, engine in {"right": Apart(), "off": Apart(off=-1.0, bound=1.5)}.items():
        module = module_of(
            tiny_model_dir, tmp_path / name, reward_of(by_ids), algorithm=GRPO(), engine=engine, iterations=1, stored=4, **ONE_STEP
        )  # fmt: skip
        batches: list[Any] = []
        loss = module.rounds.algorithm.loss
        object.__setattr__(
            module.rounds.algorithm, "loss", lambda model, batch, b=batches, f=loss: b.append(batch) or f(model, batch)
        )
        (row,) = fitted(module)
        (path,) = parts(tmp_path / name)
        stored[name] = list(read_jsonl(path, StoredRollout))
        assert {rollout.staleness for rollout in stored[name]} == {0}
        trained = torch.cat([batch.columns["advantage"].flatten() for batch in batches]).abs().max()
        assert trained == pytest.approx(0.7071 * (1 if name == "right" else 1.5), rel=1e-3)
    assert [one.advantages for one in stored["right"]] == [one.advantages for one in stored["off"]]
    assert row["correction_weight"] == pytest.approx(1.5)
    assert row["importance_weight"] == pytest.approx(np.e, rel=1e-3)
    assert row["mismatch_outside"] == 1


class Silent(Apart):
    """Gives no log-probabilities, or too few."""

    gives: int = 0

    def open(self, model: Any) -> Any:
        drawer, gives = super().open(model), self.gives
        draw = drawer.draw

        def fewer(requests: Any) -> Any:
            return [
                type(each)(each.token_ids, each.finish, each.version, each.token_logp[:gives])
                for each in draw(requests)
            ]

        drawer.draw = fewer
        return drawer


def test_a_token_without_a_log_probability_is_no_training_data(tiny_model_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="wants one for each token"):
        fitted(module_of(tiny_model_dir, tmp_path, reward_of(by_ids), engine=Silent(gives=1), lora=None))


def test_responses_of_other_weights_stop_the_training(tiny_model_dir: Path, tmp_path: Path) -> None:
    module = module_of(tiny_model_dir, tmp_path, reward_of(by_ids), engine=Apart(), lora=None)
    drawer = module.rounds.drawer
    take = type(drawer).take
    drawer.take = lambda weights, version: take(drawer, weights, 0)
    with pytest.raises(Stopped, match="iteration 1 were drawn from weights of version 0, where 1 to 1 are allowed"):
        fitted(module)


def test_drawn_responses_on_disk_are_small_and_complete(tiny_model_dir: Path, tmp_path: Path) -> None:
    fitted(module_of(tiny_model_dir, tmp_path, reward_of(by_ids), engine=Apart(), lora=None, iterations=2))
    (file,) = (tmp_path / "drawn").iterdir()
    kept = [json.loads(line)["drawn"] for line in file.read_text().splitlines() if line]
    assert file.name == "0-1.jsonl"
    assert [each["version"] for each in kept] == [1] * 6
    assert all(len(each["token_logp"]) == len(each["token_ids"]) for each in kept)
    assert QUIET.mismatch is None
    assert apart_engine.DRAWS[-1][1] == 1
