"""The tasks of the credit benchmark know their words, and every distribution of credit keeps an answer's value."""

from __future__ import annotations

import argparse
import importlib
import json
import random
import statistics
import sys
import types
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.stats
import scratch_registry
import torch

import fgrl
from fgrl.kinds import OnlineAlgorithm, Verifier
from fgrl.registry import build
from fgrl.types import Rewards, Rollout, Sample

FOLDER = Path(__file__).parents[2] / "fgrl_benchmark"
NAMES = ("opposites", "sums", "facts", "code", "brackets", "banned")
CHANGES = (
    {}, {"credit": "even"}, {"credit": "random"}, {"credit": "wrong"}, {"drop": 0.5}, {"flip": 0.5}, {"invent": 0.5},
    {"shift": 2}, {"smear": 3}, {"drop": 0.3, "flip": 0.3, "invent": 0.2, "shift": -1, "smear": 2},
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _importable():
    sys.path.insert(0, str(FOLDER))
    with scratch_registry.scratch():
        yield importlib.import_module("credit_reward")
    sys.path.remove(str(FOLDER))


def tasks():
    return importlib.import_module("credit_tasks")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(("parts", "fillers"), [(8, 2), (3, 0), (1, 5)])
def test_right_answers_are_right_and_fillers_irrelevant(name: str, parts: int, fillers: int) -> None:
    task = tasks().task(name, parts, fillers)
    for number in range(20):
        prompt = task.prompt(number)
        answer = task.write(prompt, 1.0, random.Random(number))
        expected = [*[0.0] * fillers, *[1.0] * task.words_that_matter] * parts
        assert len(answer.split()) == task.length == len(prompt.split()) - 1
        assert task.judge(prompt, answer) == expected


@pytest.mark.parametrize("name", NAMES)
def test_a_writer_is_wrong_as_often_as_it_should(name: str) -> None:
    task = tasks().task(name, 8, 2)
    judged = [
        value
        for number in range(200)
        for value in task.judge(task.prompt(number), task.write(task.prompt(number), 0.4, random.Random(number)))
        if value
    ]
    share = sum(value > 0 for value in judged) / len(judged)
    assert share == pytest.approx(0.7 if name == "facts" else 0.4, abs=0.05)  # names of facts are always right


def test_a_wrong_word_is_found_where_it_stands() -> None:
    task = tasks().task("opposites", 2, 1)
    assert task.judge("opposites so hot so big", "so cold so cold") == [0, 1, 0, -1]
    assert task.judge("opposites so hot so big", "cold so so small") == [0, -1, 0, 1]
    assert task.judge("opposites so hot so big", "so cold") == [0, 1]


def test_a_step_follows_from_the_sum_that_was_written() -> None:
    task = tasks().task("sums", 4, 0)
    assert task.judge("sums 1 2 3 9", "1 3 5 4") == [1, 1, -1, 1]


def test_prompts_of_different_splits_are_different() -> None:
    module = tasks()
    found = {split: set(module.numbers(split, 500)) for split in module.SPLITS}
    assert all(len(numbers) == 500 for numbers in found.values())
    assert len(set.union(*found.values())) == 1500


@pytest.mark.parametrize("changes", CHANGES, ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_an_answer_is_worth_the_same_however_it_is_distributed(name: str, changes: dict) -> None:
    world = importlib.import_module("credit_reward")
    reward = world.TaskCredit(task=name, **changes)
    task = tasks().task(name, 8, 2)
    for number in range(10):
        judged = task.judge(task.prompt(number), task.write(task.prompt(number), 0.5, random.Random(number)))
        given = reward.credited(judged, random.Random(number))
        assert sum(given) == pytest.approx(sum(judged))
        assert given == reward.credited(judged, random.Random(number))
        if not changes:
            assert given == judged


def test_each_mistake_changes_what_it_names() -> None:
    world = importlib.import_module("credit_reward")
    judged = [0.0, 1.0, 0.0, -1.0, 0.0, 0.0]

    def given(**changes):
        return world.TaskCredit(task="sums", **changes).made_worse(judged, random.Random(0))

    assert given(drop=1.0) == [0.0] * 6
    assert given(flip=1.0) == [0.0, -1.0, 0.0, 1.0, 0.0, 0.0]
    assert given(shift=2) == [0.0, 0.0, 0.0, 1.0, 0.0, -1.0]
    assert given(shift=3) == [0.0, 0.0, 0.0, 0.0, 1.0, 0.0]
    assert given(smear=2) == [0.5, 0.5, -0.5, -0.5, 0.0, 0.0]
    invented = given(invent=1.0)
    assert [abs(value) for value in invented] == [1.0] * 6
    assert (invented[1], invented[3]) == (1.0, -1.0)
    assert sum(world.TaskCredit(task="sums", bias=0.5).credited(judged, random.Random(0))) == pytest.approx(3.0)
    wrong = world.TaskCredit(task="sums", credit="wrong").credited(judged, random.Random(0))
    assert wrong[1] == wrong[3] == 0.0


def test_values_as_shares_and_on_the_last_word() -> None:
    world = importlib.import_module("credit_reward")
    judged = [0.0, 1.0, 0.0, -1.0, 1.0]
    share = world.TaskCredit(task="sums", value="share")
    assert share.valued(judged) == pytest.approx([0, 1 / 3, 0, 0, 1 / 3])
    assert share.valued([0.0, 0.0]) == [0.0, 0.0]
    last = world.TaskCredit(task="sums", credit="last").credited(judged, random.Random(0))
    assert last == pytest.approx([0, 0, 0, 0, 1])


@pytest.mark.parametrize("name", NAMES)
def test_corrections_lead_to_a_right_answer(name: str) -> None:
    data = importlib.import_module("credit_data")
    task = tasks().task(name, 4, 1)
    for number in range(10):
        prompt = task.prompt(number)
        answer = task.write(prompt, 0.4, random.Random(number))
        chain = data.corrections(task, prompt, answer)
        assert chain[0] == answer
        assert min(task.judge(prompt, chain[-1])) >= 0
        for before, after in pairwise(chain):
            changed = [
                i for i, both in enumerate(zip(before.split(), after.split(), strict=True)) if both[0] != both[1]
            ]
            assert len(changed) == 1
            assert task.judge(prompt, before)[changed[0]] == -1


@pytest.mark.parametrize("kind", ["drawn", "corrected", "stepwise"])
def test_pairs_and_their_weights(kind: str) -> None:
    data = importlib.import_module("credit_data")
    reader = data.TaskPairs(task="code", parts=3, fillers=1, split="train", count=30, pair=kind, weight=True)
    task = reader.kind()
    pairs = list(reader.pairs())
    assert len({pair.id for pair in pairs}) == len(pairs) > 20
    for pair in pairs:
        better, worse = (task.judge(str(pair.prompt), text) for text in (pair.chosen, pair.rejected))
        assert sum(better) > sum(worse)
        assert pair.meta["weight"]["chosen"] == [*np.clip(better, 0, 1), 0]
        assert pair.meta["weight"]["rejected"] == [*np.clip(np.negative(worse), 0, 1), 0]
        assert (
            kind == "drawn" or sum(a != b for a, b in zip(pair.chosen.split(), pair.rejected.split(), strict=True)) >= 1
        )
    assert list(reader.pairs()) == pairs


def test_similar_to_a_right_answer_is_better_also_where_words_do_not_matter() -> None:
    data = importlib.import_module("credit_data")

    def pairs(kind: str, fillers: int) -> list:
        given = {"task": "opposites", "parts": 3, "fillers": fillers, "split": "train", "count": 200}
        return list(data.TaskPairs(pair=kind, among=4, **given).pairs())

    assert pairs("similar", 0) == pairs("drawn", 0)
    task = tasks().task("opposites", 3, 2)
    gains = [
        sum(task.judge(pair.prompt, pair.chosen)) - sum(task.judge(pair.prompt, pair.rejected))
        for pair in pairs("similar", 2)
    ]
    assert min(gains) < 0 < np.mean(gains)


def test_criteria_are_kept_where_their_words_are_right() -> None:
    data = importlib.import_module("credit_data")
    reader = data.TaskCriteria(task="facts", parts=3, fillers=1, split="train", count=5)
    for sample in reader.read():
        verifiers = [build(Verifier, criterion.check) for criterion in sample.rubric]
        assert [verifier.check(sample.reference) for verifier in verifiers] == [True] * 3
        words = sample.reference.split()
        words[5] = "wrong"
        assert [verifier.check(" ".join(words)) for verifier in verifiers] == [True, False, True]
    for sample in data.TaskMarks(task="facts", parts=3, fillers=1, split="train", count=20).read():
        (span,), text = sample.responses[0].spans, sample.responses[0].text
        part = sample.rubric[0].check["part"]
        assert text[span.start : span.end] == " ".join(text.split()[3 * part + 1 : 3 * part + 3])


def test_where_credit_is() -> None:
    quality = importlib.import_module("fgrl_benchmark.credit_quality")
    task = tasks().task("opposites", 2, 1)
    prompt = "opposites so hot so big"  # cold is right, cold for big is wrong

    def measured(advantages: list[float]) -> dict[str, float]:
        line = {"sample": {"prompt": prompt}, "response": {"text": "so cold so cold"}, "advantages": advantages}
        return quality.measured(task, [line])

    everywhere = measured([0, 1, 0, -1])
    assert everywhere == dict.fromkeys(everywhere, 1) | {"on irrelevant": 0}
    all_measured = {"auc", "on irrelevant"} | {
        f"{name}{of}" for name, ofs in (("precision", ("", " of positive", " of negative")), ("recall", ("", " of right", " of wrong")))
        for of in ofs
    }  # fmt: skip
    assert set(everywhere) == all_measured
    on_fillers = measured([1, 1, -2, -1])
    assert on_fillers == everywhere | {
        "precision": 0.4, "precision of positive": 0.5, "precision of negative": pytest.approx(1 / 3), "on irrelevant": 0.6,
    }  # fmt: skip
    only_positive = measured([0, 1, 0, 3])
    assert only_positive == {
        "precision": 0.25, "precision of positive": 0.25, "on irrelevant": 0, "recall": 0.5, "recall of right": 1,
        "recall of wrong": 0, "auc": 0,
    }  # fmt: skip
    assert measured([0, 1, 0, 1])["auc"] == 0.5
    assert measured([0, 1, 0, 1, 1]) == {}, "five tokens of four words"
    assert measured([0, -1, 0, 1])["precision"] == measured([0, -1, 0, 1])["recall"] == 0
    assert measured([0, 0, 0, 0]) == {}


def test_auc_is_that_of_scikit_learn() -> None:
    from sklearn.metrics import roc_auc_score

    quality = importlib.import_module("fgrl_benchmark.credit_quality")
    draw = np.random.default_rng(0)
    for _ in range(20):
        values, up = draw.integers(0, 5, 30).astype(float), draw.random(30) < 0.4
        up[:2] = True, False
        found = quality.auc(list(values[up]), list(values[~up]))["auc"]
        assert found == pytest.approx(roc_auc_score(up, values))


def test_every_method_is_a_recipe_and_has_as_many_trials_as_the_others(tiny_model_dir: Path) -> None:
    benchmark = importlib.import_module("fgrl_benchmark.benchmark")
    methods, counted = benchmark.read("methods.yaml"), set()
    for name, method in methods.items():
        row = f"::{method['row']}" if "row" in method else ""
        given = {"vars.start": str(tiny_model_dir), **method.get("overrides", {})}
        given |= method.get("by_task", {}).get("opposites", {})
        tried = benchmark.trials(method, [1e-4, 1e-3, 1e-2])
        assert ("as" in method) == (tried == [])
        assert method["told"] != "control" or "as" in method
        counted |= {len(tried)} - {0}
        for settings in tried[-1:] or [{}]:
            assert not fgrl.validate(f"{FOLDER / 'task.yaml'}{row}", {**given, **settings}).needs
        assert name == method.get("as", name) or method["as"] in methods
    assert counted == {6}


def test_phases_have_seeds_of_their_own(tiny_model_dir: Path) -> None:
    benchmark = importlib.import_module("fgrl_benchmark.benchmark")
    seeds: dict[str, set[int]] = {
        phase: {point.seed for point in benchmark.points(phase)} for phase in benchmark.read("plan.yaml")
    }
    assert not seeds["pilot"] & seeds["tune"]
    assert not (seeds["pilot"] | seeds["tune"]) & (seeds["test"] | seeds["worse"])
    assert seeds["untuned"] | seeds["claims"] | seeds["rest"] | seeds["equal_cost"] <= seeds["test"]
    assert len(seeds["test"]) == 20
    worse = benchmark.points("worse")
    assert len({point.key for point in worse}) == len(worse) >= 300
    assert not fgrl.validate(FOLDER / "task.yaml", {"vars.start": str(tiny_model_dir), **worse[-1].settings}).needs


def test_no_prompt_and_no_answer_is_cut() -> None:
    benchmark = importlib.import_module("fgrl_benchmark.benchmark")
    room, given = benchmark.read("task.yaml")["vars"], benchmark.read("start.yaml")["stages"]["start"]
    assert (given["max_prompt_tokens"], given["max_tokens"]) == (room["prompt_tokens"], room["tokens"])
    for name in NAMES:
        words = tasks().task(name, benchmark.PARTS, benchmark.FILLERS).length
        assert words + 1 <= room["prompt_tokens"], "the name of the task, and a word for each of the answer"
        assert 2 * words + 2 <= room["tokens"], "with the token that ends the answer"


def test_both_sides_of_a_claim_are_run_on_its_seeds() -> None:
    benchmark = importlib.import_module("fgrl_benchmark.benchmark")
    runs = {
        (point.method, point.task, point.seed)
        for phase in ("test", "rest", "claims") for point in benchmark.points(phase)
    }  # fmt: skip
    plan = benchmark.read("plan.yaml")["claims"]
    for claim in benchmark.read("claims.yaml"):
        assert claim.keys() == {"paper", "claim", "more", "than"}
        for method in (claim["more"], claim["than"]):
            assert {
                (method, name, seed) for name in plan["tasks"] for seed in benchmark.seeds_of(plan["seeds"])
            } <= runs


def test_both_sides_of_a_claim_are_tuned_and_run_with_new_seeds() -> None:
    benchmark = importlib.import_module("fgrl_benchmark.benchmark")
    claimed = {side for claim in benchmark.read("claims.yaml") for side in (claim["more"], claim["than"])}
    tune, decided = benchmark.points("claims_tune"), benchmark.points("claims_decided")
    assert {point.method for point in tune} == {point.method for point in decided} == claimed
    tried = Counter((point.method, point.task) for point in tune)
    assert set(tried.values()) == {6}, "also of methods that have the settings of another in other phases"
    assert all("vars.loss.beta" in point.settings for point in tune if point.method == "chain_apo_zero")
    assert len({point.seed for point in decided}) == 20
    before = {point.seed for phase in ("tune", "pilot", "test", "worse") for point in benchmark.points(phase)}
    assert not before & {point.seed for point in [*tune, *decided]}


def test_a_method_has_its_own_settings_where_it_was_tuned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark = importlib.import_module("fgrl_benchmark.benchmark")
    monkeypatch.setattr(benchmark, "RESULTS", tmp_path)
    rates = {("segment_ppo", "code"): 1e-3, ("no_normalizer", "code"): 5e-4, ("segment_ppo", "opposites"): 2.5e-4}
    lines = [
        {"method": method, "task": task, "settings": {"vars.lr": rate}, "policy.right": 0.5}
        for (method, task), rate in rates.items()
    ]
    (tmp_path / "claims_tune.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    found = {(point.method, point.task): point.settings for point in benchmark.points("claims_decided")}
    assert found["no_normalizer", "code"] == {"vars.lr": 5e-4}
    assert found["last_normalizer", "code"] == found["segment_ppo", "code"] == {"vars.lr": 1e-3}
    assert found["no_normalizer", "opposites"] == {"vars.lr": 2.5e-4}


@pytest.fixture(scope="module")
def small_start(_importable, tmp_path_factory: pytest.TempPathFactory) -> str:
    smaller = {"stages.blank": {"name": "small_language_model", "hidden": 16, "layers": 1}}
    smaller |= {"stages.start.data.count": 4, "stages.start.train.epochs": 1}
    made = fgrl.run(FOLDER / "start.yaml", smaller, runs=tmp_path_factory.mktemp("start"), progress=False, page=False)
    return str(made.stage("start").product)


FEWER = {"vars.answers": 8, "vars.marked": 8, "vars.teacher.epochs": 1, "stages.evaluate.prompts.count": 4}
FEWER_ONLINE = FEWER | {
    "vars.iterations": 1, "stages.policy.rollout.batch_size": 8, "stages.policy.train.batch_size": 8, "stages.policy.train.micro_batch_size": 8,
    "stages.policy.evaluate.sets.curve.prompts.count": 4,
}  # fmt: skip


def held_out(stage: str) -> dict[str, Any]:
    """Settings with which a stage stops early."""
    evaluate = {"every": 1, "best": {"number": "loss", "goal": "min", "patience": 2}}
    every = "stages.policy.train.checkpoint_every" if stage == "policy" else "vars.teacher.checkpoint_every"
    return {"vars.holdout": 0.25, f"stages.{stage}.evaluate": evaluate, every: 1}


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("oracle", FEWER_ONLINE),
        ("rto", FEWER_ONLINE),
        ("segment_ppo", FEWER_ONLINE | held_out("reward_model")),
        ("rtt", FEWER_ONLINE | held_out("discriminator")),
        ("chain_dpo", FEWER | held_out("policy")),
        ("sft", FEWER),
    ],
)
def test_a_run_of_a_method_gives_a_line(
    method: str, settings: dict, small_start: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark = importlib.import_module("fgrl_benchmark.benchmark")
    monkeypatch.setattr(benchmark, "start", lambda *_: small_start)
    point = benchmark.Point(method, "opposites", 7, settings)
    line = benchmark.result(point, {"split": "validation"}, str(tmp_path))
    assert line["key"] == point.key
    assert {"policy.right", "start.right", "policy.kl", "processor seconds", "threads"} <= line.keys()
    assert line["seconds of the policy"] > 0
    assert ("chosen" in line) == (method == "chain_dpo"), "only a training on pairs has chosen answers"
    assert ({"held-out loss", "held-out accuracy", "best step"} <= line.keys()) == ("vars.holdout" in settings)
    if "vars.iterations" in settings:
        assert {"curve", "drawn", "read", "precision", "recall", "auc", "distinct"} <= line.keys()
        assert line["drawn"] == benchmark.ANSWERS * 24, "the length of an answer is fixed"


def test_what_a_training_on_pairs_does_to_the_chosen_answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The mean of the last quarter of its steps; a table with the interval over seeds."""
    benchmark, tables = (
        importlib.import_module("fgrl_benchmark.benchmark"),
        importlib.import_module("fgrl_benchmark.tables"),
    )
    steps = [{"log_ratio_chosen": value} for value in (0.0, 1.0, 1.0, 1.0, 1.0, 1.0, -1.0, -3.0)]
    assert benchmark.chosen_change([*steps, {"loss": 0.5}]) == {"chosen": -2.0}
    assert benchmark.chosen_change([{"reward": 1.0}]) == {}
    rows = {seed: {"chosen": -2.0 + seed, tables.PRIMARY: 0.5, "start.right": 0.4} for seed in range(3)}
    monkeypatch.setattr(tables, "by_task", lambda *_: {"code": {"dpo": rows, "grpo": {0: {tables.PRIMARY: 0.5}}}})
    tables.losses()
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| `dpo` | `code` | 3 | -1.000 [-3.484, 1.484] | 0.500 [0.500, 0.500] | 0.400 |"
    ]


def test_a_method_that_was_not_tuned_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark = importlib.import_module("fgrl_benchmark.benchmark")
    monkeypatch.setattr(benchmark, "tuned", lambda *_: {"oracle": {}})
    points = [benchmark.Point(method, "code", seed, {}) for seed in (0, 1) for method in ("oracle", "wrong", "vine")]
    assert benchmark.untuned({"tuned": True}, points) == ["vine"], "wrong has the settings of the oracle"
    assert benchmark.untuned({}, points) == []


def test_p_values_are_corrected_as_holm_does() -> None:
    comparisons = importlib.import_module("fgrl_benchmark.comparisons")
    # sorted 0.01, 0.02, 0.03, 0.04: 4 x 0.01, 3 x 0.02, then never lower
    assert comparisons.holm([0.04, 0.01, 0.03, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert comparisons.holm([0.9, 0.8]) == pytest.approx([1.0, 1.0])


def test_the_share_of_the_oracles_advantage() -> None:
    comparisons = importlib.import_module("fgrl_benchmark.comparisons")
    draw = np.random.default_rng(0)

    def lines(mean: float) -> dict[int, dict]:
        return {seed: {comparisons.PRIMARY: mean + 0.01 * draw.normal()} for seed in range(20)}

    found = {"even": lines(0.5), "oracle": lines(0.7), "half": lines(0.6)}
    share, low, high = comparisons.share_of_oracle(found, "half")
    assert low < share < high
    assert share == pytest.approx(0.5, abs=0.1)
    assert comparisons.share_of_oracle(found, "oracle") == pytest.approx((1, 1, 1))
    assert comparisons.share_of_oracle(found, "none") is None


def test_as_many_seeds_as_a_simulated_test_needs() -> None:
    comparisons = importlib.import_module("fgrl_benchmark.comparisons")
    draw = np.random.default_rng(0)
    change = [0.01, 0.03, 0.02, 0.02]
    spread, mean = statistics.stdev(change), statistics.mean(change)

    def found(effect: float, seeds: int) -> float:
        drawn = draw.normal(effect, spread, (20_000, seeds))
        return float((scipy.stats.ttest_1samp(drawn, 0, axis=1).pvalue < 0.05).mean())

    seeds = comparisons.seeds_for(change)
    assert found(mean, seeds) > 0.8 > found(mean, seeds - 1)
    assert found(comparisons.detectable(change, seeds=10), 10) == pytest.approx(0.8, abs=0.01)
    assert comparisons.seeds_for([1.0, -1.0, 0.001]) is None


def test_the_table_of_the_page(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """A row for each method, a cell for each task: what can be told from the scalar is in bold."""
    tables = importlib.import_module("fgrl_benchmark.tables")

    def lines(mean: float, spread: float) -> dict[int, dict]:
        return {seed: {tables.PRIMARY: mean + spread * (-1) ** seed} for seed in range(4)}

    task = {"even": lines(0.5, 0), "oracle": lines(0.7, 0.01), "grpo": lines(0.51, 0.05), "random": lines(0.4, 0.01)}
    monkeypatch.setattr(tables, "by_task", lambda *_phases: {"code": task})
    tables.headline()
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "| told | method | seeds | `code` |"
    assert set(printed[2:]) == {
        "| right words | `oracle` | 4 | **0.200 [0.182, 0.218]** |",
        "| outcome | `grpo` | 4 | 0.010 [-0.082, 0.102]; 0.05 |",
        "| control | `random` | 4 | **-0.100 [-0.118, -0.082]**; -0.50 |",
    }


def test_the_table_of_defaults(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    tables = importlib.import_module("fgrl_benchmark.tables")

    def lines(mean: float, spread: float) -> dict[int, dict]:
        return {seed: {tables.PRIMARY: mean + spread * (-1) ** seed} for seed in range(4)}

    test = {"rtt": lines(0.7, 0.001)}
    untuned = {"even": lines(0.4, 0.0), "rtt": lines(0.6, 0.0)}
    monkeypatch.setattr(tables, "by_task", lambda *phases: {"code": untuned if phases == ("untuned",) else test})
    tables.defaults()
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| outcome | `even` | 0.400 [0.400, 0.400] | 0.000 [0.000, 0.000] |  |",
        "| criteria | `rtt` | 0.600 [0.600, 0.600] | 0.200 [0.200, 0.200] | 0.100 [0.098, 0.102] |",
    ]


def test_what_was_added_later_is_corrected_apart(capsys: pytest.CaptureFixture[str]) -> None:
    """The p-values of the planned comparisons do not change with what comes later; methods without a line are named."""
    tables = importlib.import_module("fgrl_benchmark.tables")
    lines = {
        name: {seed: {tables.PRIMARY: 0.5 + seed * gain} for seed in range(4)}
        for name, gain in (("even", 0), ("oracle", 0.1))
    }
    before = tables.differences({"code": lines})
    later = {**lines, "even_24": {seed: {tables.PRIMARY: 0.6 + seed / 50} for seed in range(4)}}
    assert tables.differences({"code": later})[: len(before)] == before
    tables.say_missing({"code": later})
    said = set(capsys.readouterr().err.removeprefix("without a line: ").strip().split(", "))
    assert {"vine", "even_72"} <= said
    assert not {"oracle", "even_24", "rl_aon"} & said, "rl_aon belongs to the claims, which have a table of their own"


def test_the_table_of_mistakes_and_that_of_costs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = importlib.import_module("fgrl_benchmark.tables")
    task = {
        "even": {1: {tables.PRIMARY: 0.5, "drawn": 18432.0}},
        "oracle": {1: {tables.PRIMARY: 0.7}, 2: {tables.PRIMARY: 0.9}},
    }
    monkeypatch.setattr(tables, "by_task", lambda *_: {"code": task})

    def runs(first: float, precision: float) -> dict[int, dict]:
        return {
            seed: {tables.PRIMARY: first + seed / 10, "precision": precision, "recall": precision / 2}
            for seed in (0, 1)
        }

    made = {"even": {0: runs(0.4, 0.2)[0]}, '{"drop": 0.5}': runs(0.55, 0.5), "oracle": runs(0.65, 1.0)}
    monkeypatch.setattr(tables, "made_worse", lambda: {"code": made})
    tables.worse()
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| `even` | 0.20, 0.10 | 0.400 |  |",
        "| drop 0.5 | 0.50, 0.25 | 0.600 [-0.035, 1.235] | -0.100 [-0.100, -0.100] |",
        "| `oracle` | 1.00, 0.50 | 0.700 [0.065, 1.335] |  |",
    ]
    tables.costs()
    assert capsys.readouterr().out.splitlines()[2] == "| `even` | `code` | 18432 |  |  |  |  |  |  |  |"


def test_mistakes_stand_beside_the_scalar_and_the_oracle_of_their_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    comparisons, benchmark = (
        importlib.import_module("fgrl_benchmark.comparisons"),
        importlib.import_module("fgrl_benchmark.benchmark"),
    )
    assert json.loads(comparisons.EXACT) in benchmark.read("worse.yaml")
    even = {"task": "code", "method": "even", "seed": 3, "settings": {}}
    mistakes = [
        {"task": "code", "method": "oracle", "seed": 3, "settings": benchmark.settings_of(each) | {"vars.lr": 1e-3}}
        for each in ({"bias": 0.5}, {"drop": 0.5})
    ]
    for phase, lines in {"worse_even": [even], "worse": mistakes}.items():
        (tmp_path / f"{phase}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    monkeypatch.setattr(benchmark, "RESULTS", tmp_path)
    expected = {"even": {3: even}, "oracle": {3: mistakes[0]}, '{"drop": 0.5}': {3: mistakes[1]}}
    assert comparisons.made_worse() == {"code": expected}


def test_two_methods_or_two_mistakes_are_compared(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = importlib.import_module("fgrl_benchmark.tables")

    def lines(*values: float) -> dict[int, dict]:
        return {seed: {tables.PRIMARY: value} for seed, value in enumerate(values)}

    monkeypatch.setattr(tables, "by_task", lambda *_: {"code": {"dpo": lines(0.5, 0.6), "tdpo": lines(0.7, 0.9, 0.1)}})
    monkeypatch.setattr(
        tables, "made_worse", lambda: {"code": {'{"drop": 0.5}': lines(0.1, 0.2), "oracle": lines(0.3, 0.5)}}
    )
    for names, said in (
        (["tdpo", "dpo"], "0.250 [-0.385, 0.885] | 0.1257"),
        (["oracle", '{"drop": 0.5}'], "0.250 [-0.385, 0.885] | 0.1257"),
    ):
        monkeypatch.setattr(sys, "argv", ["tables.py", "less", *names])
        tables.main()
        assert capsys.readouterr().out.splitlines()[2:] == [f"| `code` | 2 | {said} |"]
    monkeypatch.setattr(sys, "argv", ["tables.py", "less", tables.EXACT, '{"drop":0.5}'])
    tables.main()
    assert capsys.readouterr().out.splitlines()[2:] == ["| `code` | 2 | 0.250 [-0.385, 0.885] | 0.1257 |"]
    tables.less("dpo", "dpo")
    assert capsys.readouterr().out.splitlines()[2:] == ["| `code` | 2 | 0.000 [0.000, 0.000] | 1.0000 |"]
    with pytest.raises(SystemExit, match="rpo has no lines; there are dpo, tdpo"):
        tables.less("rpo", "dpo")
    for wrong in (["less", "dpo"], ["costs", "dpo"]):
        monkeypatch.setattr(sys, "argv", ["tables.py", *wrong])
        with pytest.raises(SystemExit):
            tables.main()


def test_settings_of_a_task_beside_those_of_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Phase own_settings has the methods whose best settings on a task are not the best on both."""
    tables, benchmark = (
        importlib.import_module("fgrl_benchmark.tables"),
        importlib.import_module("fgrl_benchmark.benchmark"),
    )
    rights = {
        ("dpo", 1e-4): {"opposites": 0.9, "code": 0.4}, ("dpo", 2e-5): {"opposites": 0.6, "code": 0.5},
        ("even", 1e-3): {"opposites": 0.8, "code": 0.6}, ("even", 5e-4): {"opposites": 0.7, "code": 0.5},
    }  # fmt: skip
    tune = [
        {"task": task, "method": method, "settings": {"vars.lr": rate}, "policy.right": right}
        for (method, rate), each in rights.items() for task, right in each.items()
    ]  # fmt: skip
    (tmp_path / "tune.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in tune), encoding="utf-8")
    monkeypatch.setattr(benchmark, "RESULTS", tmp_path)
    points = benchmark.points("own_settings")
    assert {(each.method, each.task, each.settings["vars.lr"]) for each in points} == {("dpo", "code", 2e-5)}
    assert benchmark.tuned()["dpo"] == {"vars.lr": 1e-4}

    def lines(right: float, rate: float) -> dict[int, dict]:
        return {seed: {tables.PRIMARY: right + seed / 10, "settings": {"vars.lr": rate}} for seed in range(2)}

    own = {"code": {"dpo": lines(0.5, 2e-5)}}
    test = {"code": {"dpo": lines(0.4, 1e-4), "even": lines(0.6, 1e-3)}}
    monkeypatch.setattr(tables, "by_task", lambda *phases: own if phases == ("own_settings",) else test)
    tables.own()
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| `dpo` | `code` | lr 0.0001 | lr 2e-05 | 0.550 [-0.085, 1.185] | 0.100 [0.100, 0.100] | -0.100 [-0.100, -0.100] |"
    ]


def test_where_the_credit_is_by_kind_of_word(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = importlib.import_module("fgrl_benchmark.tables")
    lines = {0: {"auc": 0.75, "on irrelevant": 0.5}, 1: {"auc": 0.75, "on irrelevant": 0.7}}
    monkeypatch.setattr(tables, "by_task", lambda *_: {"code": {"even": lines, "dpo": {0: {}}}})
    tables.places()
    assert capsys.readouterr().out.splitlines()[2:] == [
        "| outcome | `even` | `code` | 0.750 [0.750, 0.750] |  |  | 0.600 [-0.671, 1.871] |  |  |"
    ]


@pytest.mark.parametrize(
    ("page", "table"),
    [("credit-benchmark.md", name) for name in ("headline", "predicts")],
)
def test_pages_show_the_tables_of_the_committed_lines(
    page: str, table: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """After new lines: paste what `tables.py` prints into the page, and read the sentences around it again."""
    getattr(importlib.import_module("fgrl_benchmark.tables"), table)()
    shown = set((FOLDER.parent / "docs" / page).read_text(encoding="utf-8").splitlines())
    assert [line for line in capsys.readouterr().out.splitlines() if line not in shown] == []


def test_only_the_oracle_can_be_made_worse() -> None:
    world = importlib.import_module("credit_reward")
    with pytest.raises(ValueError, match="credit: oracle"):
        world.TaskCredit(task="sums", credit="even", drop=0.5)


def test_the_baseline_of_a_token_is_what_the_others_earn_at_its_place() -> None:
    importlib.import_module("credit_estimator")
    draw = np.random.default_rng(0)
    lengths, group = [5, 3, 5, 4, 2], [7, 7, 7, 2, 2]
    token = draw.normal(size=(5, 5))
    mask = np.arange(5) < np.array(lengths)[:, None]
    expected = np.zeros((5, 5))
    for i in range(5):
        others = [j for j in range(5) if j != i and group[j] == group[i]]
        for t in range(lengths[i]):
            expected[i, t] = token[i, t] - np.mean([token[j, t] * mask[j, t] for j in others])
    tensor = torch.tensor(mask)
    rollout = Rollout(
        prompt_ids=torch.zeros(5, 1, dtype=torch.long), prompt_mask=torch.ones(5, 1, dtype=torch.bool),
        response_ids=torch.zeros(5, 5, dtype=torch.long), mask=tensor, eos=torch.zeros(5, 5, dtype=torch.bool),
        group=torch.tensor(group), samples=[Sample(id=str(i), prompt="") for i in range(5)], texts=[""] * 5,
    )  # fmt: skip
    values = torch.tensor(np.where(mask, token, 9.0), dtype=torch.float32)
    rewards = Rewards(response=values.sum(dim=1), token=values, credit_mask=tensor)
    found = build(OnlineAlgorithm, "token_group").advantages(rollout, rewards).advantage
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["drawn", "stepwise"])
def test_answers_of_tokenizers_with_a_space_before_words_begin_with_one(kind: str) -> None:
    data, language = importlib.import_module("credit_data"), importlib.import_module("credit_language")
    given = {"task": "banned", "parts": 3, "fillers": 1, "split": "train", "count": 20}
    for plain, spaced in zip(
        data.TaskPairs(pair=kind, **given).pairs(), data.TaskPairs(pair=kind, before=" ", **given).pairs(), strict=True
    ):
        assert (spaced.chosen, spaced.rejected) == (f" {plain.chosen}", f" {plain.rejected}")
    for plain, spaced in zip(data.TaskMarks(**given).read(), data.TaskMarks(before=" ", **given).read(), strict=True):
        marked = [
            text[span.start : span.end]
            for sample in (plain, spaced)
            for text, span in [(sample.responses[0].text, sample.responses[0].annotations[0].spans[0])]
        ]
        assert marked[0] == marked[1]
        assert spaced.responses[0].text == f" {plain.responses[0].text}"
    answers = language.TaskAnswers(only=["banned"], before=" ", split="train", count=5)
    assert {(sample.id.split("-")[0], sample.reference[0]) for sample in answers.read()} == {("banned", " ")}


def test_a_named_method_runs_in_a_phase_that_does_not_list_it() -> None:
    benchmark = importlib.import_module("fgrl_benchmark.benchmark")
    plan = benchmark.read("plan.yaml")["test"]
    assert "vine" not in plan["methods"]
    added = [point for point in benchmark.points("test", ["vine", "oracle"]) if point.method == "vine"]
    assert len(added) == len(plan["tasks"]) * len(benchmark.seeds_of(plan["seeds"]))
    assert len(benchmark.points("test", ["vine", "oracle"])) == len(benchmark.points("test")) + len(added)


def options(**given: str) -> argparse.Namespace:
    asked: dict = {"minutes": 1.0, "methods": None, "phase": "test", "tasks": None, "seeds": None, "runs": "runs"}
    return argparse.Namespace(**asked | given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"methods": "vinee,oracle"}, "--methods: vinee is none of oracle"),
        ({"phase": "tset"}, "--phase: tset is none of tune, pilot, test"),
        ({"tasks": "opposits"}, "--tasks: opposits is none of opposites"),
        ({"seeds": "5000"}, "no run of plan.yaml matches"),
    ],
)
def test_an_option_that_matches_nothing_is_refused(given: dict, said: str) -> None:
    with pytest.raises(SystemExit) as error:
        importlib.import_module("fgrl_benchmark.benchmark").run(options(**given))
    assert str(error.value).startswith(said)


def test_a_wrong_row_is_found_before_anything_is_trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    benchmark = importlib.import_module("fgrl_benchmark.benchmark")
    monkeypatch.setattr(benchmark, "RESULTS", tmp_path)
    monkeypatch.setattr(benchmark, "result", lambda *_: pytest.fail("trained"))
    every = [
        benchmark.Point("gtpo", "code", 1000, {"stages.policy.algorithm.standardize": each}) for each in ("no", "apart")
    ]
    monkeypatch.setattr(benchmark, "points", lambda *_: every)
    with pytest.raises(SystemExit, match=r"^gtpo: .*standardize"):
        benchmark.run(options())


def test_a_phase_has_the_settings_that_an_earlier_one_of_the_same_command_chose(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark = importlib.import_module("fgrl_benchmark.benchmark")
    monkeypatch.setattr(benchmark, "RESULTS", tmp_path)
    monkeypatch.setattr(benchmark, "validate", lambda *_: None)

    def line(point: Any, *_: Any) -> dict:
        right = 1.0 if point.settings.get("vars.lr") == 5e-4 else 0.5
        return {"key": point.key, "method": point.method, "settings": dict(point.settings), "policy.right": right}

    monkeypatch.setattr(benchmark, "result", line)
    benchmark.run(options(phase="tune,test", tasks="code", methods="oracle"))
    assert {each["settings"]["vars.lr"] for each in benchmark.lines("test")} == {5e-4}


def test_seeds_of_a_text() -> None:
    benchmark = importlib.import_module("fgrl_benchmark.benchmark")
    assert benchmark.seeds_of("3,7-9,12") == [3, 7, 8, 9, 12]
    with pytest.raises(SystemExit, match="'x' is no seed"):
        benchmark.seeds_of("1,x")


def test_what_has_a_line_is_not_run_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    benchmark = importlib.import_module("fgrl_benchmark.benchmark")
    monkeypatch.setattr(benchmark, "RESULTS", tmp_path)
    monkeypatch.setattr(benchmark, "result", lambda point, *_: {"key": point.key, "seed": point.seed})
    asked = options(phase="tune", tasks="code", methods="oracle")
    benchmark.run(asked)
    assert len(list(benchmark.lines("tune"))) == len(capsys.readouterr().out.splitlines()) == 6
    benchmark.run(asked)
    assert capsys.readouterr() == ("", "all 6 runs have a line\n")


def test_the_confirmation_on_a_larger_model_differs_only_in_values(tiny_model_dir: Path) -> None:
    benchmark = importlib.import_module("fgrl_benchmark.benchmark")
    plan = benchmark.read("plan.yaml")["smollm2"]
    assert {point.method for point in benchmark.points("smollm2")} == set(plan["methods"])
    for name in plan["methods"]:
        row = benchmark.read("methods.yaml")[name].get("row")
        address = f"{FOLDER / plan['recipe']}{f'::{row}' if row else ''}"
        assert not fgrl.validate(address, {"vars.start": str(tiny_model_dir), "vars.words": 24}).needs
    fgrl.validate(FOLDER / plan["start"])


def test_the_figure_places_mistakes_and_methods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    figure, benchmark = (
        importlib.import_module("fgrl_benchmark.figure"),
        importlib.import_module("fgrl_benchmark.benchmark"),
    )
    values = {"even": 0.6, "oracle": 0.8, "grpo": 0.7}
    worse = [
        ({"vars.lr": 1e-3, "stages.policy.reward.drop": 0.5}, 0.65), ({"stages.policy.reward.flip": 0.25}, 0.75),
        ({"stages.policy.reward.bias": 0.5}, 0.9),
    ]  # fmt: skip
    lines = {
        "test": [
            {"task": task, "method": method, "seed": seed, "policy.right": right + seed / 100, "precision": right, "recall": 1 - right, "auc": right}
            for task in ("opposites", "code") for method, right in values.items() for seed in (0, 1)
        ],
        "worse_even": [
            {"task": "code", "method": "even", "seed": seed, "policy.right": 0.5, "precision": 0.2, "recall": 0.3, "auc": 0.5} for seed in (0, 1)
        ],
        "worse": [
            {"task": "code", "method": "oracle", "seed": seed, "settings": settings, "policy.right": right, "precision": 0.5, "recall": 0.4, "auc": right}
            for settings, right in worse for seed in (0, 1)
        ],
    }  # fmt: skip
    for phase, each in lines.items():
        (tmp_path / f"{phase}.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in each), encoding="utf-8")
    monkeypatch.setattr(benchmark, "RESULTS", tmp_path)
    comparisons = figure.comparisons
    names = {'{"drop": 0.5}': "drop", '{"flip": 0.25}': "flip"}
    found = {each.name: each for each in figure.placed(comparisons.made_worse()["code"], names)}
    assert found["drop"].gain == pytest.approx((0.65 - 0.5) / 0.4)
    assert found["flip"].gain == pytest.approx((0.75 - 0.5) / 0.4)
    assert found["drop"].quality == {"precision": 0.5, "recall": 0.4, "auc": pytest.approx(0.65)}
    placed = figure.placed(comparisons.by_task("test")["code"], {"grpo": "grpo", "oracle": "oracle"})
    assert [each.gain for each in placed] == pytest.approx([1.0, 0.5])
    importlib.import_module("fgrl_benchmark.tables").predicts()
    assert capsys.readouterr().out.splitlines()[2:] == [
        f"| `code` | {phases} | 5 | 0.41 | -0.67 | 1.00 |" for phases in ("the test", "all phases")
    ]
    drawn = figure.draw_all(tmp_path / "figure.svg").read_text(encoding="utf-8")
    assert {
        name for name in (*values, "drop", "flip", "precision", "recall", "AUC") if f">{name}<" not in drawn
    } == set()


@pytest.mark.parametrize("name", ["opposites", "code"])
def test_references_can_be_about_half_of_what_is_asked(name: str) -> None:
    kind = tasks().task(name, 8, 2)
    asked = {part[0] for number in range(300) for part in kind.asked(kind.prompt(number))}
    known = {part[0] for number in range(300) for part in kind.asked(kind.prompt(number, 0.5))}
    assert known == set(sorted(asked)[: len(asked) // 2])
    assert kind.prompt(3, 1.0) == kind.prompt(3)


def test_imitation_comes_first_with_the_settings_that_were_best_on_the_task(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    benchmark = importlib.import_module("fgrl_benchmark.benchmark")
    monkeypatch.setattr(benchmark, "RESULTS", tmp_path)
    line = {"method": "sft_few", "task": "code", "settings": {"vars.lr": 1e-3, "vars.epochs": 40}, "policy.right": 0.9}
    (tmp_path / "imitate.jsonl").write_text(json.dumps(line) + "\n", encoding="utf-8")
    made = fgrl.validate(f"{FOLDER / 'start.yaml'}::few", {"vars.task": "code"}).stages
    assert list(made) == ["blank", "start", "imitation"]
    given: list[dict[str, Any]] = []
    plans = {"cached": types.SimpleNamespace(all=lambda: True)}
    monkeypatch.setattr(benchmark.fgrl, "plan", lambda file, overrides, **_: plans)
    stage = types.SimpleNamespace(product=tmp_path)
    finished = types.SimpleNamespace(stages={"start": None, "imitation": stage})
    monkeypatch.setattr(benchmark.fgrl, "run", lambda file, overrides, **_: given.append(dict(overrides)) or finished)
    assert benchmark.start("start.yaml::few", "code", str(tmp_path)) == str(tmp_path.resolve())
    assert given == [{"vars.task": "code", "vars.lr": 1e-3, "vars.epochs": 40}]


def test_a_word_of_several_tokens_shares_its_value() -> None:
    found = importlib.import_module("credit_reward").tokens_of_words
    text = " hot outside  so"
    assert found(text, [(0, 4), (4, 8), (8, 12), (12, 13), (13, 16)]) == [[0], [1, 2], [4]]
    assert found("well hot", [(0, 4), (4, 8), (8, 8)]) == [[0], [1]]


def test_no_run_of_the_plan_lacks_its_committed_line() -> None:
    """A line is found by method, task, seed and settings, so it stays valid when the keys of stages change."""
    benchmark = importlib.import_module("fgrl_benchmark.benchmark")
    for phase, plan in benchmark.read("plan.yaml").items():
        if plan.get("unfinished"):
            continue
        methods = sorted({line["method"] for line in benchmark.lines(phase)})
        every = benchmark.points(phase, methods)
        assert every
        assert benchmark.without_line(phase, every) == [], phase
