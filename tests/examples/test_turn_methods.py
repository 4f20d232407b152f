"""The methods over turns of examples/credit, and CISPO: their numbers against derivations in numpy and by transformers alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from credit_training import FOLDER
from model_helpers import stir
from scratch_registry import scratch_imports
from training_helpers import a_run, fake_actor_critic, fake_batch, tiny

from fgrl import rollouts
from fgrl.base.errors import DataError
from fgrl.components.engines.hf import HF
from fgrl.components.rewards.environment import EnvironmentReward
from fgrl.kinds.specs import Sampling
from fgrl.registry import import_file
from fgrl.rollouts.conversing import Conversing
from fgrl.rollouts.policies import LentPolicy
from fgrl.training.units import RolloutUnits
from fgrl.types import Rollout, Sample, Turn

TALKS: list[tuple[int, list[tuple[float, str]]]] = [
    (0, [(0.1, "low"), (0.3, "low"), (1.0, "end")]),
    (0, [(0.2, "high"), (0.0, "low"), (0.0, "cut")]),
    (0, [(1.0, "end")]),
    (0, [(0.4, "low"), (0.5, "end")]),
    (3, [(0.0, "low"), (1.0, "end")]),
    (3, [(0.5, "low"), (0.25, "end")]),
]
"""Group, and reward and observation of each turn."""


@pytest.fixture(scope="module")
def files() -> Iterator[dict[str, ModuleType]]:
    with scratch_imports():
        names = (
            "self_distillation",
            "number_game",
            "mt_grpo",
            "gigpo",
            "progress",
            "trace_answer",
            "cispo",
            "dapo",
            "told_distance",
        )
        yield {name: import_file(FOLDER / f"{name}.py") for name in names}


def played(scores: list[list[float | None]] | None = None) -> Rollout:
    """Two tokens a turn, and one of the environment between two."""
    width = max(3 * len(turns) - 1 for _, turns in TALKS)
    turn, reward = torch.full((len(TALKS), width), -1), torch.zeros(len(TALKS), width)
    mask = torch.zeros(len(TALKS), width, dtype=torch.bool)
    records = []
    for row, (_, turns) in enumerate(TALKS):
        mask[row, : 3 * len(turns) - 1] = True
        for k, (each, _said) in enumerate(turns):
            turn[row, 3 * k : 3 * k + 2], reward[row, 3 * k + 1] = k, each
        own = scores[row] if scores else [None] * len(turns)
        numbers = [{} if score is None else {"score": score} for score in own]
        records.append(
            [Turn(3 * k + 2, each, observation=said, numbers=numbers[k]) for k, (each, said) in enumerate(turns)]
        )
    ids = torch.zeros(mask.shape, dtype=torch.long)
    return Rollout(
        ids[:, :1], torch.ones(len(TALKS), 1).bool(), ids, mask, torch.zeros_like(mask), turn=turn, turn_reward=reward,
        turns=records, texts=[""] * len(TALKS), group=torch.tensor([group for group, _ in TALKS]),
        samples=[Sample(id=str(group), prompt="") for group, _ in TALKS], terminated=torch.ones(len(TALKS)).bool(),
    )  # fmt: skip


def z(value: float, others: list[float]) -> float:
    """The difference to the mean over the sample's standard deviation; 0 where there is none."""
    spread = np.std(others, ddof=1) if len(others) > 1 else 0.0
    return float((value - np.mean(others)) / (spread + 1e-6)) if spread > 0 else 0.0


def check(advantage: torch.Tensor, rollout: Rollout, wanted: Any) -> None:
    for row, (_, turns) in enumerate(TALKS):
        for k in range(len(turns)):
            own = advantage[row][rollout.turn_ids[row] == k].tolist()
            assert own == pytest.approx([wanted(row, k)] * 2, abs=2e-5)
        assert not advantage[row][~rollout.drawn[row]].any()


def of_group(row: int) -> list[int]:
    return [other for other, (group, _) in enumerate(TALKS) if group == TALKS[row][0]]


@pytest.mark.parametrize("weight", [1.0, 0.3])
def test_mt_grpo(weight: float, files: dict[str, ModuleType]) -> None:
    rollout = played()
    algorithm = files["mt_grpo"].MTGRPO(outcome_weight=weight)
    assert algorithm.aggregate == "seq_mean"

    def wanted(row: int, k: int) -> float:
        outcome = z(TALKS[row][1][-1][0], [TALKS[other][1][-1][0] for other in of_group(row)])
        if k == len(TALKS[row][1]) - 1:
            return outcome
        before_last = [TALKS[other][1][k][0] for other in of_group(row) if len(TALKS[other][1]) > k + 1]
        return z(TALKS[row][1][k][0], before_last) + weight * outcome

    check(algorithm.advantages(rollout, EnvironmentReward().scored(rollout)).advantage, rollout, wanted)


@pytest.mark.parametrize("gamma", [0.95, 0.5])
def test_gigpo(gamma: float, files: dict[str, ModuleType]) -> None:
    rollout = played()

    def to_come(row: int, k: int) -> float:
        return sum(gamma**distance * reward for distance, (reward, _) in enumerate(TALKS[row][1][k:]))

    def state(row: int, k: int) -> str | None:
        return TALKS[row][1][k - 1][1] if k else None

    def wanted(row: int, k: int) -> float:
        whole = z(sum(r for r, _ in TALKS[row][1]), [sum(r for r, _ in TALKS[other][1]) for other in of_group(row)])
        alike = [
            to_come(other, turn)
            for other in of_group(row)
            for turn in range(len(TALKS[other][1]))
            if state(other, turn) == state(row, k)
        ]
        return whole + 0.7 * z(to_come(row, k), alike)

    found = files["gigpo"].GiGPO(gamma=gamma, step_weight=0.7).advantages(rollout, EnvironmentReward().scored(rollout))
    check(found.advantage, rollout, wanted)
    alone = found.metrics["alone_in_state"]
    assert (float(alone.total), float(alone.count)) == (1.0, 13.0), "the turn after `high`"
    with pytest.raises(DataError, match=r"rollout\.environment"):
        files["gigpo"].GiGPO().advantages(replace(rollout, turns=None), EnvironmentReward().scored(rollout))


SCORES: list[list[float | None]] = [[0.2, None, 0.9], [None, None, 0.5], [1.0], [0.5, 0.25], [None, None], [0.0, 0.1]]


@pytest.mark.parametrize("gamma", [0.0, 0.5, 1.0])
def test_progress(gamma: float, files: dict[str, ModuleType]) -> None:
    rollout = played(SCORES)
    reward = files["progress"].Progress(reward=EnvironmentReward(), gamma=gamma, first=0.1, weight=2.0)
    given, found = EnvironmentReward().scored(rollout), reward.scored(rollout)
    for row, scores in enumerate(SCORES):
        wanted, before = np.zeros(len(scores)), 0.1
        for k, score in enumerate(scores):
            if score is not None:
                shares = np.array([gamma ** (k - turn) if turn < k else 1.0 for turn in range(k + 1)])
                wanted[: k + 1] += (score - before) * shares / shares.sum()
                before = score
        last = [score for score in scores if score is not None]
        assert wanted.sum() == pytest.approx((last[-1] if last else 0.1) - 0.1)
        places = [3 * k + 1 for k in range(len(scores))]
        assert (found.token - given.token)[row, places].tolist() == pytest.approx((2 * wanted).tolist(), abs=1e-6)
        assert float(found.response[row] - given.response[row]) == pytest.approx(2 * wanted.sum(), abs=1e-6)
        assert float(found.token[row].sum()) == pytest.approx(float(found.response[row]), abs=1e-5)


def test_trace(files: dict[str, ModuleType], tiny_model_dir: Path, tmp_path: Path) -> None:
    model = tiny(tiny_model_dir)
    reward = files["trace_answer"].Trace(
        reward=EnvironmentReward(),
        model={"base": str(tiny_model_dir), "dtype": "float32"},
        weight=0.5,
        micro_batch_size=3,
    )
    reward.setup(a_run(tmp_path))
    prompts = [Sample(id=str(i), prompt=f"Guess {i}", reference=str(i + 3)) for i in range(2)]
    game, sampling = (
        files["number_game"].NumberGame(max_turns=3, max_turn_tokens=5),
        Sampling(max_new_tokens=100, temperature=0.8),
    )
    drawer = Conversing(HF().open(model), game, model)
    lent = LentPolicy(model, HF().open(model), sampling, seed=5, name="policy", micro_batch_size=3)
    rollout = rollouts.collect(
        model,
        None,
        prompts,
        sampling,
        drawer,
        frozenset({"policy"}),
        per_prompt=2,
        seed=5,
        lent_policy=lent,
    )
    with lent.lend():
        found = reward.scored(rollout)
    outcome = EnvironmentReward().scored(rollout).response

    @torch.no_grad()
    def value(before: list[int], answer: list[int]) -> float:
        logits = model.net(torch.tensor([before + answer])).logits[0, len(before) - 1 : -1].float()
        return float(logits.log_softmax(1)[range(len(answer)), answer].mean())

    encode = lambda text: model.tokenizer(text, add_special_tokens=False).input_ids  # noqa: E731
    for row in range(4):
        prompt = rollout.prompt_ids[row][rollout.prompt_mask[row]].tolist()
        said, turns = rollout.response_ids[row][rollout.mask[row]].tolist(), rollout.turn_ids[row].tolist()
        count = max(turns) + 1
        assert count == 3
        states = [said[: turns.index(k)] for k in range(count)] + [said]
        assert states[0] == []
        assert states[1][-1] != said[turns.index(0)], "what the environment answered is in the state"
        values = [
            value(prompt + state + encode("\nThe answer is"), encode(f" {prompts[row // 2].reference}"))
            for state in states
        ]
        wanted = 0.5 * np.diff(values)
        wanted[-1] += float(outcome[row])
        places = [max(place for place, turn in enumerate(turns) if turn == k) for k in range(count)]
        assert found.token[row, places].tolist() == pytest.approx(wanted.tolist(), abs=1e-4)
        assert int((found.token[row] != 0).sum()) == count


def test_cispo_keeps_the_gradient_of_every_token(files: dict[str, ModuleType]) -> None:
    lengths, generator = [3, 5, 1, 4], torch.Generator().manual_seed(0)
    old, advantage = torch.randn(2, 4, 5, generator=generator)
    logp = (old + torch.randn(4, 5, generator=generator)).requires_grad_()
    algorithm = files["cispo"].CISPO(clip_high=0.5)
    batch = fake_batch(lengths, {"old_logp": old, "advantage": advantage})
    loss, metrics = algorithm.loss(fake_actor_critic(logp, old), batch)
    (gradient,) = torch.autograd.grad(loss, logp)
    wanted, clipped = 0.0, 0
    for row, length in enumerate(lengths):
        for place in range(length):
            ratio = math.exp(float(logp[row, place] - old[row, place]))
            weight = min(ratio, 1.5)
            clipped += ratio > 1.5
            wanted -= weight * float(advantage[row, place]) * float(logp[row, place]) / sum(lengths)
            assert float(gradient[row, place]) == pytest.approx(
                -weight * float(advantage[row, place]) / sum(lengths), abs=1e-6
            )
        assert not gradient[row, length:].any()
    assert float(loss) == pytest.approx(wanted, abs=1e-6)
    assert float(metrics["clip_fraction"].total) == clipped > 0


def test_self_distillation(files: dict[str, ModuleType], tiny_model_dir: Path) -> None:
    model = tiny(tiny_model_dir)
    prompts = [Sample(id=str(i), prompt=f"Guess {'more ' * i}", reference=[str(i + 3)]) for i in range(2)]
    sampling, reward = Sampling(max_new_tokens=6, temperature=0.8), files["self_distillation"].SelfDistillation()
    lent = LentPolicy(model, HF().open(model), sampling, seed=5, name="policy", micro_batch_size=3)
    needs = reward.needs()
    rollout = rollouts.collect(
        model, None, prompts, sampling, HF().open(model), needs, per_prompt=2, seed=5, lent_policy=lent
    )
    with lent.lend():
        found = reward.scored(rollout)
    lengths = [len(rollouts.encode_prompt(model.tokenizer, reward.with_answer(sample))) for sample in rollout.samples]
    assert (found.told >= 0).sum(dim=1).tolist() == lengths
    assert not (found.told[:, :-1] >= 0)[found.told[:, 1:] < 0].any(), "prompts end on the right"

    @torch.no_grad()
    def logp(prompt: list[int], said: list[int]) -> np.ndarray:
        logits = model.net(torch.tensor([prompt + said])).logits[0, len(prompt) - 1 : -1].float() / 0.8
        return logits.log_softmax(1)[range(len(said)), said].numpy()

    for row in range(4):
        said = rollout.response_ids[row][rollout.mask[row]].tolist()
        prompt = rollout.prompt_ids[row][rollout.prompt_mask[row]].tolist()
        text = f"{prompts[row // 2].prompt}\n(The right answer is: {row // 2 + 3})"
        wanted = logp(list(rollouts.encode_prompt(model.tokenizer, text).token_ids), said) - logp(prompt, said)
        assert np.abs(wanted).max() > 1e-3
        np.testing.assert_allclose(found.token[row, : len(said)].numpy(), wanted, atol=1e-4)
        assert float(found.response[row]) == pytest.approx(float(wanted.sum()), abs=1e-4)


@pytest.mark.parametrize(("of", "start"), [("student", False), ("teacher", False), ("student", True)])
def test_the_distance_to_the_policy_that_is_told(
    of: str, start: bool, files: dict[str, ModuleType], tiny_model_dir: Path
) -> None:
    """Loss and gradient, from whole distributions of transformers' logits. The output layer, which the teacher shares, is trained."""
    model = tiny(tiny_model_dir, trainable=True, **({"lora": {"r": 4, "alpha": 8}} if start else {}))
    if start:
        stir(model, 0.3)
    model.eval()
    before = tiny(tiny_model_dir)
    prompts = [Sample(id=str(i), prompt=f"Guess {'more ' * i}", reference=[str(i + 3)]) for i in range(2)]
    sampling, reward = Sampling(max_new_tokens=6, temperature=0.8), files["self_distillation"].SelfDistillation()
    lent = LentPolicy(model, HF().open(model), sampling, seed=5, name="policy", micro_batch_size=3)
    rollout = rollouts.collect(
        model, None, prompts, sampling, HF().open(model), reward.needs(), per_prompt=2, seed=5, lent_policy=lent
    )
    with lent.lend():
        rewards = reward.scored(rollout)
    algorithm = files["told_distance"].ToldDistance(of=of, start=start)
    units = RolloutUnits(rollout, rewards, algorithm.advantages(rollout, rewards), pad_id=model.pad_id)
    batch = replace(units.batch([3, 0, 2, 1]), temperature=0.8)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    loss, metrics = algorithm.loss(SimpleNamespace(actor=model), batch)
    found = torch.autograd.grad(loss, parameters)

    def distributions(net: Any, prompt: list[int], said: list[int]) -> torch.Tensor:
        logits = net(input_ids=torch.tensor([prompt + said])).logits[0, len(prompt) - 1 : -1].float() / 0.8
        return logits.log_softmax(1)

    total, count = torch.zeros(()), 0
    for row in range(4):
        said = rollout.response_ids[row][rollout.mask[row]].tolist()
        prompt = rollout.prompt_ids[row][rollout.prompt_mask[row]].tolist()
        told = rollouts.encode_prompt(
            model.tokenizer, f"{prompts[row // 2].prompt}\n(The right answer is: {row // 2 + 3})"
        )
        student = distributions(model.net, prompt, said)
        with torch.no_grad():
            teacher = distributions((before if start else model).net, list(told.token_ids), said)
        p, q = (student, teacher) if of == "student" else (teacher, student)
        total, count = total + (p.exp() * (p - q)).sum(), count + len(said)
    wanted = torch.autograd.grad(total / count, parameters)
    assert float(loss) == pytest.approx(float(total.detach()) / count, rel=1e-4)
    assert float(loss) > 1e-3
    assert metrics["told_distance"].value == pytest.approx(float(loss), rel=1e-4)
    assert max(float(each.abs().max()) for each in wanted) > 1e-4
    for one, two in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, two, atol=1e-6, rtol=1e-3)


def test_overlong_responses_lose_up_to_one(files: dict[str, ModuleType], tmp_path: Path) -> None:
    rollout = played()
    run = a_run(tmp_path)
    reward = files["dapo"].Overlong(reward=EnvironmentReward(), cache=4)
    with pytest.raises(DataError, match="draws nothing"):
        reward.setup(run)
    run.sampling = Sampling(max_new_tokens=8)
    reward.setup(run)
    given, found = EnvironmentReward().scored(rollout), reward.scored(rollout)
    lengths = [3 * len(turns) - 1 for _group, turns in TALKS]
    assert {2, 5, 8} == set(lengths)
    penalty = [{2: 0.0, 5: 0.25, 8: 1.0}[length] for length in lengths]
    assert (given.response - found.response).tolist() == pytest.approx(penalty)
    lost = given.token - found.token
    assert lost.sum(dim=1).tolist() == pytest.approx(penalty)
    assert [float(lost[row, length - 1]) for row, length in enumerate(lengths)] == pytest.approx(penalty)


def test_the_number_game(files: dict[str, ModuleType]) -> None:
    game = files["number_game"].NumberGame(most=16)
    talk = game.begin(Sample(id="a", prompt="", reference="5"), 0)
    assert talk.step("I say 8!") == ("8 is too high.", 0.0, False, False, {"score": pytest.approx(1 - 7 / 16)})
    assert talk.step("hm") == ("Answer with a number.", -0.1, False, False, {})
    assert talk.step("3 or 4") == ("3 is too low.", 0.0, False, False, {"score": pytest.approx(1 - 4 / 16)})
    assert talk.step("1" * 10_000)[0].endswith("is too high.")
    assert talk.step("5") == ("That is the number.", 1.0, True, False, {"score": 1.0})
    with pytest.raises(DataError, match="the number to guess"):
        game.begin(Sample(id="a", prompt="", reference="five"), 0)
