"""Evaluations while a model trains: they change nothing, survive crashes, keep the best model and can end the training."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiny_recipe
import torch
from test_resume import Bomb, crash_around_saving, crash_inside, crashing
from tiny_recipe import a_run, alone, log, weights

from fgrl.base.errors import DataError
from fgrl.measuring.answer import read_answers
from fgrl.registry import Problems
from fgrl.training.evaluations import Evaluations

SET = "{prompts: {name: lines, path: topics.txt, skip: 20, limit: 5}, metrics: [length, kl, reference_likelihood], per_prompt: 2, " \
      "sampling: {max_new_tokens: 6, max_prompt_tokens: 48, batch_size: 4}}"  # fmt: skip


NUMBER = "held_out/reference_likelihood.per_token"


def evaluated(stage: str, every: int = 2, sets: str = SET, **more: str) -> str:
    """An override that evaluates."""
    rest = "".join(f", {name}: {value}" for name, value in more.items())
    return f"stages.{stage}.evaluate={{every: {every}, sets: {{held_out: {sets}}}{rest}}}"


HOLDOUT = "stages.reward_model.evaluate={every: 2}"
POLICY = evaluated("policy")
CASES = {"policy": ("policy", POLICY), "reward model": ("reward_model", HOLDOUT)}


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory, tiny_model_dir: Path) -> Path:
    return tiny_recipe.write(tmp_path_factory.mktemp("recipe"), tiny_model_dir)


@pytest.fixture(autouse=True)
def beside_the_recipe(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files in overrides are relative to where a command is given."""
    monkeypatch.chdir(recipe.parent)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, recipe: Path) -> Callable[..., Path]:
    """Folder of an undisturbed run of a stage."""
    made: dict[tuple[str, ...], Path] = {}

    def of(stage: str, *overrides: str) -> Path:
        if (stage, *overrides) not in made:
            folder = made[stage, *overrides] = tmp_path_factory.mktemp("undisturbed") / "run"
            summary = alone(recipe, stage, *overrides).run(a_run(folder))
            (folder / "summary.json").write_text(json.dumps(summary))
        return made[stage, *overrides]

    return of


def curve(folder: Path, name: str) -> dict[int, float]:
    """A number of the log by step."""
    return {row["step"]: row[name] for row in log(folder) if name in row}


def training_rows(folder: Path) -> list[dict[str, Any]]:
    """The log without the rows of evaluations."""
    return [row for row in log(folder) if "loss" in row]


@pytest.mark.parametrize("case", CASES)
def test_an_evaluation_changes_no_weight_and_no_number_of_the_training(
    case: str, undisturbed: Callable[..., Path]
) -> None:
    stage, evaluation = CASES[case]
    plain, evaluated = undisturbed(stage), undisturbed(stage, evaluation)
    assert weights(evaluated / "out") == weights(plain / "out")
    assert training_rows(evaluated) == log(plain)


def test_a_policy_is_evaluated_at_the_start_every_so_often_and_at_the_end(undisturbed: Callable[..., Path]) -> None:
    folder = undisturbed("policy", POLICY)
    likelihood = curve(folder, NUMBER)
    assert list(likelihood) == [0, 2, 4, 5]
    low, high = (curve(folder, f"{NUMBER}/{end}") for end in ("low", "high"))
    assert all(low[step] <= likelihood[step] <= high[step] for step in likelihood)
    assert all(low[step] < high[step] for step in likelihood)
    for step, name in ((0, "start"), (2, "policy")):
        answers = read_answers(folder / "evaluations" / str(step) / "held_out" / "answers.jsonl")
        assert list(answers) == [name]
        assert len(answers[name]) == 10
    drawn = answers["policy"]
    mean = sum(answer.ref_logp or 0.0 for answer in drawn) / sum(answer.n_tokens for answer in drawn)
    assert likelihood[2] == pytest.approx(mean)
    kl = curve(folder, "held_out/kl.sum")
    assert kl[0] == 0 < kl[2], "the reference is the policy without its adapter"
    measured = json.loads((folder / "evaluations" / "2" / "held_out" / "metrics.json").read_text())
    assert set(measured["metrics"]["length"]) >= {"start", "policy", "differences"}


def test_held_out_units_are_measured_by_the_algorithm(undisturbed: Callable[..., Path]) -> None:
    """Each unit for itself; together they are what `holdout` measures before and after."""
    folder = undisturbed("reward_model", HOLDOUT)
    summary = json.loads((folder / "summary.json").read_text())
    accuracy, loss = (curve(folder, f"holdout/bradley_terry.{name}") for name in ("accuracy", "loss"))
    assert list(accuracy) == [0, 2, 4, 6]
    for step, when in ((0, "before"), (6, "after")):
        assert accuracy[step] == pytest.approx(summary["holdout"][when]["accuracy"])
        assert loss[step] == pytest.approx(summary["holdout"][when]["loss"], rel=1e-5)


SFT = (
    "stages.reward_model.algorithm={name: sft}",
    "stages.reward_model.data={format: sft, columns: {prompt: prompt, response: chosen}}",
)
REFERENCES = {"its start is the reference": (), "a copy is the reference": ("stages.reward_model.model.lora=null",)}


@pytest.mark.parametrize("case", REFERENCES)
def test_fine_tuning_answers_prompts(case: str, undisturbed: Callable[..., Path]) -> None:
    """Beside its held-out units; the KL is to the model before training, whichever way that is kept."""
    folder = undisturbed("reward_model", *SFT, *REFERENCES[case], evaluated("reward_model"))
    kl, words = (curve(folder, f"held_out/{number}") for number in ("kl.sum", "length.tokens"))
    assert list(kl) == list(words) == list(curve(folder, "holdout/sft.loss")) == [0, 2, 4, 6]
    assert kl[0] == 0 < min(kl[step] for step in (2, 4, 6))
    answers = read_answers(folder / "evaluations" / "6" / "held_out" / "answers.jsonl")
    assert [(name, len(own)) for name, own in answers.items()] == [("policy", 10)]


def test_an_evaluation_draws_the_same_again(recipe: Path, tmp_path: Path, undisturbed: Callable[..., Path]) -> None:
    """Its random streams are its own: they depend neither on the batches nor on what training has drawn."""
    alone(recipe, "policy", POLICY.replace("batch_size: 4", "batch_size: 20")).run(a_run(tmp_path / "run"))
    for step in (0, 5):
        answers = [
            (folder / "evaluations" / str(step) / "held_out" / "answers.jsonl").read_text()
            for folder in (undisturbed("policy", POLICY), tmp_path / "run")
        ]
        assert [json.loads(line)["response"] for line in answers[0].splitlines()] == [
            json.loads(line)["response"] for line in answers[1].splitlines()
        ]


# -- crashes -----------------------------------------------------------------------------------------------------------


def crash_while_evaluating(patch: pytest.MonkeyPatch, step: int, *, after: bool) -> None:
    """Crash in the evaluation of a step: before it measures, or when all but its record is done."""
    whole = Evaluations.take

    def take(self: Evaluations, number: int, *arguments: Any) -> None:
        if number == step:
            if not after:
                raise Bomb
            patch.setattr(Path, "rename", bomb)
        whole(self, number, *arguments)

    def bomb(self: Path, target: Path) -> None:
        raise Bomb

    patch.setattr(Evaluations, "take", take)


EVALUATING: dict[str, Callable[[pytest.MonkeyPatch, int], None]] = {
    "at the end of the first evaluation": lambda patch, _last: crash_while_evaluating(patch, 0, after=True),
    "in a later round": lambda patch, _last: crash_inside(patch, 7),
    "before a later evaluation": lambda patch, _last: crash_while_evaluating(patch, 4, after=False),
    "at the end of a later evaluation": lambda patch, _last: crash_while_evaluating(patch, 4, after=True),
    "at the end of the last evaluation": lambda patch, last: crash_while_evaluating(patch, last, after=True),
}
"""Of processes that go on one after another."""
LAST = {"policy": 5, "reward model": 6}
"""Step of the last evaluation."""
BEST = {
    "policy": ("policy", evaluated("policy", keep="all", best="{number: reference_likelihood.per_token, goal: min}")),
    "reward model": ("reward_model", "stages.reward_model.evaluate={every: 2, best: {number: loss, goal: min}}"),
}


def assert_same(one: Path, other: Path, what: str) -> None:
    """The same weights, log, records and kept models."""
    assert log(one) == log(other), what
    parts = [{str(path.relative_to(folder)) for path in folder.rglob("*")} for folder in (one, other)]
    assert parts[0] - {"summary.json"} == parts[1], what
    for path in one.rglob("*"):
        if path.is_file() and (path.suffix == ".safetensors" or "evaluations" in path.parts):
            assert path.read_bytes() == (other / path.relative_to(one)).read_bytes(), (what, path)


@pytest.mark.parametrize("case", BEST)
def test_crashes_change_nothing(
    case: str, recipe: Path, undisturbed: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage, evaluation = BEST[case]
    for crash in EVALUATING.values():
        with crashing(monkeypatch, lambda patch, crash=crash: crash(patch, LAST[case])):  # type: ignore[misc]
            alone(recipe, stage, evaluation).run(a_run(tmp_path / "run"))
    alone(recipe, stage, evaluation).run(a_run(tmp_path / "run"))
    assert_same(undisturbed(stage, evaluation), tmp_path / "run", "crashes")


def test_evaluations_between_two_checkpoints_are_repeated(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undisturbed: Callable[..., Path]
) -> None:
    """A process that goes on from an earlier checkpoint deletes what was measured after it."""
    stage, evaluation = BEST["policy"]
    folder = tmp_path / "run"
    with crashing(monkeypatch, lambda patch: crash_around_saving(patch, 3, before=False)):
        alone(recipe, stage, evaluation).run(a_run(folder))
    earlier = tmp_path / "earlier"
    with crashing(monkeypatch, lambda patch: crash_around_saving(patch, 0, before=False)):
        alone(recipe, stage, evaluation).run(a_run(earlier))
    (earlier / "last.ckpt").replace(folder / "last.ckpt")
    assert (folder / "evaluations" / "2").exists()
    record = folder / "evaluations" / "2" / "numbers.json"
    record.write_text(
        record.read_text().replace('"mean"', '"mean": 99, "unused"', 1).replace('"unused": ', '"n": 1, "x": ')
    )
    alone(recipe, stage, evaluation).run(a_run(folder))
    assert_same(undisturbed(stage, evaluation), folder, "an earlier checkpoint")


# -- the best model ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("goal", ["min", "max"])
def test_the_product_is_the_best_policy_by_the_named_number(goal: str, undisturbed: Callable[..., Path]) -> None:
    folder = undisturbed(
        "policy", evaluated("policy", keep="all", best=f"{{number: reference_likelihood.per_token, goal: {goal}}}")
    )
    likelihood = curve(folder, NUMBER)
    assert len(set(likelihood.values())) > 1, "nothing to choose from"
    best = {"min": min, "max": max}[goal](likelihood, key=lambda step: likelihood[step])
    assert weights(folder / "out") == weights(folder / "out" / "policies" / str(best))
    kept = {step: weights(folder / "out" / "policies" / str(step)) for step in likelihood}
    assert len({tuple(of_step.items()) for of_step in kept.values()}) == len(likelihood)
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["best"] == {"step": best, "number": NUMBER, "value": likelihood[best]}
    assert summary["iterations"] == 5


def test_without_keep_only_the_best_is_on_the_disk(undisturbed: Callable[..., Path]) -> None:
    folder = undisturbed("reward_model", BEST["reward model"][1])
    losses = curve(folder, "holdout/bradley_terry.loss")
    best = min(losses, key=lambda step: losses[step])
    assert [path.name for path in (folder / "policies").iterdir()] == [str(best)]
    assert not (folder / "out" / "policies").exists()
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["holdout"]["after"]["loss"] == pytest.approx(losses[best], rel=1e-5)


def test_training_stops_where_no_better_policy_is_in_sight(
    recipe: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With patience 2, and numbers that are best at the second evaluation; who starts again does not train on."""
    means = iter([3.0, 5.0, 4.0, 5.0, 6.0, 7.0])
    whole = Evaluations.take

    def take(self: Evaluations, step: int, *arguments: Any) -> None:
        value = next(means)
        with monkeypatch.context() as patch:
            patch.setattr(Evaluations, "_value", lambda self, step: numbers.get(step, value))
            whole(self, step, *arguments)
        numbers[step] = value

    numbers: dict[int, float] = {}
    monkeypatch.setattr(Evaluations, "take", take)
    monkeypatch.setattr(Evaluations, "_value", lambda self, step: numbers[step])
    patient = evaluated("policy", every=1, best="{number: reference_likelihood.per_token, patience: 2}")
    summary = dict(alone(recipe, "policy", patient).run(a_run(tmp_path / "run")))
    assert summary["iterations"] == 3
    assert summary["responses"] == 36
    assert summary["best"] | {"number": ""} == {"step": 1, "number": "", "value": 5.0}
    assert [row["step"] for row in training_rows(tmp_path / "run")] == [0, 1, 2]
    saved = weights(tmp_path / "run" / "out")
    assert torch.load(tmp_path / "run" / "last.ckpt", weights_only=False)["round"] == 3
    shutil.rmtree(tmp_path / "run" / "out")  # as the pipeline does
    again = dict(alone(recipe, "policy", patient).run(a_run(tmp_path / "run")))
    assert again == summary
    assert weights(tmp_path / "run" / "out") == saved


@pytest.mark.parametrize("keep", ["none", "all"])
def test_an_unknown_number_is_refused_before_training(keep: str, recipe: Path, tmp_path: Path) -> None:
    misspelt = evaluated("policy", keep=keep, best="{number: held_out/length.tokns}")
    with pytest.raises(DataError, match=r'best\.number: no evaluation has a number "held_out/length\.tokns"'):
        alone(recipe, "policy", misspelt).run(a_run(tmp_path / "run"))
    assert not training_rows(tmp_path / "run")


# -- what is refused ---------------------------------------------------------------------------------------------------

WIN_RATE = "{prompts: {name: lines, path: topics.txt}, metrics: [{name: token_auc, rule: 'punctuation:no_comma'}], sampling: {max_new_tokens: 4}}"


@pytest.mark.parametrize(
    ("stage", "override", "said"),
    [
        ("policy", "stages.policy.evaluate={every: 2}", "nothing to evaluate"),
        ("policy", evaluated("policy").replace("held_out:", "reward:"), "cannot be the name of a set"),
        ("policy", evaluated("policy", sets=WIN_RATE), "rewards"),
        (
            "policy",
            evaluated("policy", sets=SET.replace("[length, kl, reference_likelihood]", "[length, length]")),
            "two metrics",
        ),
        ("reward_model", HOLDOUT.replace("2", "3"), "3 is not a multiple of train.checkpoint_every 2"),
        ("reward_model", evaluated("reward_model"), "a scalar head cannot answer prompts"),
        ("reward_model", HOLDOUT.replace("{every", "{best: {}, every"), "number"),
    ],
)
def test_what_cannot_work_is_refused(recipe: Path, stage: str, override: str, said: str) -> None:
    with pytest.raises(Problems, match=said):
        alone(recipe, stage, override)


def test_weights_are_refused_whose_shards_evaluations_cannot_gather(recipe: Path) -> None:
    with pytest.raises(Problems, match="and evaluate needs all of them"):
        alone(recipe, "reward_model", HOLDOUT, "vars.strategy=deepspeed_stage_3")
    with pytest.raises(Problems, match=r"the engine hf \(evaluate.sets.held_out.engine\)"):
        alone(recipe, "policy", evaluated("policy"), "vars.strategy=fsdp", "stages.policy.rollout.engine={name: vllm}")
