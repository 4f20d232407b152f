"""Methods of the credit benchmark by how many labels they have: critiques in its language, the plan, the table and the figure."""

from __future__ import annotations

import argparse
import importlib
import json
import random
import sys
import types
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import scratch_registry
import torch

from fgrl.experiments.recipe import load
from fgrl.kinds import Client
from fgrl.types import Completion, Request, Rollout, Sample

FOLDER = Path(__file__).parents[2] / "fgrl_benchmark"
NAMES = ("opposites", "sums", "facts", "code", "brackets", "banned")


@pytest.fixture(scope="module", autouse=True)
def critic() -> Iterator[types.ModuleType]:
    """The module of critiques; what it registers and imports from its folder is forgotten afterwards."""
    sys.path.insert(0, str(FOLDER))
    forget_modules()
    with scratch_registry.scratch_imports():
        yield importlib.import_module("credit_critic")
    forget_modules()
    sys.path.remove(str(FOLDER))


def forget_modules() -> None:
    for file in FOLDER.glob("*.py"):
        sys.modules.pop(file.stem, None)


def a_task(name: str, parts: int, fillers: int) -> Any:
    return importlib.import_module("credit_tasks").task(name, parts, fillers)


def marked(critic: types.ModuleType, task: Any, text: str, answer: str) -> list[tuple[str, float]]:
    return [(answer[span.start : span.end], span.label) for span in critic.named(task, text, answer)]


def test_a_critique_says_of_each_word_that_matters_whether_it_is_right(critic: types.ModuleType) -> None:
    task = a_task("opposites", 2, 1)
    assert critic.critique(task, "opposites so hot so big", "so cold so hot") == "0 hot cold true 1 big hot false"
    code = a_task("code", 1, 1)
    assert critic.critique(code, "code so add 3", "so += 4") == "0 add += true 0 3 4 false"


@pytest.mark.parametrize("name", NAMES)
def test_a_true_critique_names_what_the_rule_judges(name: str, critic: types.ModuleType) -> None:
    task = a_task(name, 8, 2)
    for number in range(20):
        prompt = task.prompt(number)
        answer = task.write(prompt, 0.5, random.Random(number))
        judged = [
            (word, value) for word, value in zip(answer.split(), task.judge(prompt, answer), strict=True) if value
        ]
        assert marked(critic, task, critic.critique(task, prompt, answer), answer) == judged


def test_equal_words_are_told_apart_by_their_part_and_order(critic: types.ModuleType) -> None:
    code = a_task("code", 2, 0)
    assert marked(critic, code, "1 3 3 true", "3 3 3 3") == [("3", 1.0)]
    (span,) = critic.named(code, "1 3 3 true", "3 3 3 3")
    assert span.start == 4
    assert marked(critic, code, "0 cut 3 false 0 3 3 true", "3 3 = 4") == [("3", -1.0), ("3", 1.0)]
    opposites = a_task("opposites", 1, 0)
    assert marked(critic, opposites, "0 false true true", "true") == [("true", 1.0)]


def test_a_sentence_about_no_word_of_the_part_says_nothing(critic: types.ModuleType) -> None:
    made = critic.TaskCritic(
        client=Truthful(task="opposites"), prompt=str(FOLDER / "critic.txt"), task="opposites", parts=2, fillers=1
    )
    read = made.read("0 hot hot true 1 big hot false 9 big hot true 1 big", "so cold so hot").value.annotation
    assert [(span.start, span.label) for span in read.spans] == [(11, -1.0)]
    for text in ("", "so so so", "1 hot cold true", "0 hot cold maybe"):
        assert made.read(text, "so cold so hot").value.annotation.spans == []
    question = made.critique_question(Request(messages=[]), "so cold so hot")
    assert question.allow_truncated
    assert [(span.start, span.label) for span in question.parse("0 hot cold true 1 big").value.annotation.spans] == [
        (3, 1.0)
    ]


class Truthful(Client):
    """Writes the critique that the rule would write."""

    task: str

    def complete(self, requests: Sequence[Request]) -> list[Completion]:
        critic, task = importlib.import_module("credit_critic"), a_task(self.task, 8, 2)
        texts = []
        for request in requests:
            words = request.messages[-1].content.split()
            prompt, answer = " ".join(words[: task.length + 1]), " ".join(words[task.length + 1 :])
            texts.append(Completion(text=critic.critique(task, prompt, answer), finish="stop"))
        return texts


@pytest.mark.parametrize("name", ["opposites", "code"])
def test_a_critic_that_is_always_right_is_the_oracle(name: str, critic: types.ModuleType) -> None:
    task = a_task(name, 8, 2)
    prompts = [task.prompt(number) for number in range(4)]
    texts = [task.write(prompt, 0.5, random.Random(prompt)) for prompt in prompts]
    mask = torch.ones(4, task.length, dtype=torch.bool)
    offsets = [
        [(len(" ".join(text.split()[:i])), len(" ".join(text.split()[: i + 1]))) for i in range(task.length)]
        for text in texts
    ]
    rollout = Rollout(
        prompt_ids=torch.zeros(4, 1, dtype=torch.long), prompt_mask=torch.ones(4, 1, dtype=torch.bool),
        response_ids=torch.zeros(4, task.length, dtype=torch.long), mask=mask, eos=torch.zeros_like(mask), group=torch.zeros(4),
        samples=[Sample(id=str(i), prompt=prompt) for i, prompt in enumerate(prompts)], texts=texts, offsets=offsets,
    )  # fmt: skip
    made = critic.TaskCritic(client=Truthful(task=name), prompt=str(FOLDER / "critic.txt"), task=name)
    oracle = importlib.import_module("credit_reward").TaskCredit(task=name)
    torch.testing.assert_close(made.score(rollout).token, oracle.score(rollout).token)


@pytest.mark.parametrize("name", NAMES)
def test_critiques_are_words_of_the_language_and_are_not_cut(name: str, critic: types.ModuleType) -> None:
    benchmark = importlib.import_module("fgrl_benchmark.benchmark")
    stages, room = benchmark.read("task.yaml")["rows"]["critic"]["stages"], benchmark.read("task.yaml")["vars"]
    known = set(importlib.import_module("credit_tasks").vocabulary())
    for sample in critic.TaskCritiques(task=name, split="train", count=5).read():
        assert set(sample.prompt.split() + sample.reference.split()) <= known
        written = len(sample.reference.split()) + 1
        assert len(sample.prompt.split()) <= room["tokens"]
        assert len(sample.prompt.split()) + written <= stages["critic"]["max_tokens"]
        assert written <= stages["policy"]["reward"]["client"]["max_tokens"]


def test_each_amount_is_a_recipe_that_holds_labels_out(tiny_model_dir: Path) -> None:
    benchmark = importlib.import_module("fgrl_benchmark.benchmark")
    methods = benchmark.read("label_methods.yaml")
    for name, method in methods.items():
        given = {"vars.start": str(tiny_model_dir), **method["overrides"], **method.get("by_task", {}).get("code", {})}
        given |= benchmark.trials(method, [1e-4])[-1]
        size = {"1k": 1024, "4k": 4096, "16k": 16384, "64k": 65536}[name.rpartition("_")[2]]
        assert (method["of"], method["labels"]) == (name.rpartition("_")[0], size)
        if method["labels"] > 1024 and method["of"] != "critic":
            continue  # they differ in numbers alone
        given |= {"vars.task": "code"}
        stages = load(
            f"{FOLDER / 'task.yaml'}::{method['row']}", [f"{key}={json.dumps(each)}" for key, each in given.items()]
        ).stages
        learns = next(iter(stages.values()))
        assert learns.data.count == method["labels"]
        assert learns.holdout == method["overrides"]["vars.holdout"]
        assert learns.evaluate.best.model_dump() == {"number": "loss", "goal": "min", "patience": 2}


def test_labels_are_measured_eight_times() -> None:
    """Steps of a whole training, by the labels that are trained on, the batch and the passes."""
    benchmark = importlib.import_module("fgrl_benchmark.benchmark")
    teacher = benchmark.read("task.yaml")["vars"]["teacher"]["batch_size"]
    policy = benchmark.read("task.yaml")["rows"]["offline"]["stages"]["policy"]["train"]["batch_size"]
    for name, method in benchmark.read("label_methods.yaml").items():
        given = method["overrides"]
        kept = method["labels"] * (1 - given["vars.holdout"])
        offline = method["row"] == "offline"
        epochs = given["vars.epochs" if offline else "vars.teacher.epochs"]
        every = given["stages.policy.train.checkpoint_every" if offline else "vars.teacher.checkpoint_every"]
        assert epochs * kept / (policy if offline else teacher) == 8 * every, name
        (evaluate,) = (value for key, value in given.items() if key.endswith(".evaluate"))
        assert evaluate["every"] == every
        assert method["labels"] * given["vars.holdout"] == min(512, method["labels"] / 8)


def test_the_plan_of_labels_has_seeds_of_its_own_and_enough_runs() -> None:
    benchmark = importlib.import_module("fgrl_benchmark.benchmark")
    phases = ("labels_tune", "labels", "labels_bounds", "labels_64k_tune", "labels_64k")
    runs = {phase: benchmark.points(phase) for phase in phases}
    tried: dict[tuple[str, str], int] = defaultdict(int)
    for point in runs["labels_tune"]:
        tried[point.method, point.task] += 1
    assert {method.startswith("tdpo"): count for (method, _), count in tried.items()} == {True: 3, False: 6}
    assert {point.method for point in runs["labels"]} == {method for method, _ in tried}
    assert len(runs["labels"]) + len(runs["labels_bounds"]) == 200
    of = {phase: {point.seed for point in every} for phase, every in runs.items()}
    assert of["labels"] == of["labels_bounds"] == of["labels_64k"]
    assert not of["labels"] & of["labels_tune"]
    others = {
        seed
        for phase, plan in benchmark.read("plan.yaml").items()
        if phase not in phases
        for seed in benchmark.seeds_of(str(plan["seeds"]))
    }
    assert not others & set.union(*of.values())


def test_most_labels_are_run_by_name_alone() -> None:
    benchmark = importlib.import_module("fgrl_benchmark.benchmark")
    every = benchmark.phases_of(argparse.Namespace(phase=None))
    assert set(benchmark.read("plan.yaml")) - set(every) == {"labels_64k_tune", "labels_64k"}
    assert benchmark.phases_of(argparse.Namespace(phase="labels,labels_64k")) == ["labels", "labels_64k"]


def test_what_a_run_takes_before_it_has_a_line() -> None:
    benchmark = importlib.import_module("fgrl_benchmark.benchmark")
    method = {"takes": [60, 16]}
    assert benchmark.expected(method, {}) == 76
    assert benchmark.expected(method, {"rates": [1, 2, 3]}) == 36, "three policies share what is learned from labels"
    assert benchmark.expected({}, {"rates": [1, 2, 3]}) == benchmark.SECONDS["task.yaml"]
    kinds = benchmark.kinds_of_run("labels", benchmark.read("plan.yaml")["labels"])
    assert kinds["rtt_1k"] == ("labels", "rtt_1k")
    assert benchmark.kinds_of_run("test", benchmark.read("plan.yaml")["test"])["rtt"] == ("task.yaml", "rtt")


def test_a_line_has_what_is_reached_on_held_out_labels() -> None:
    benchmark = importlib.import_module("fgrl_benchmark.benchmark")

    def found(*summaries: dict[str, Any]) -> dict[str, float]:
        return benchmark.held_out(
            types.SimpleNamespace(stages=dict(enumerate(types.SimpleNamespace(summary=each) for each in summaries)))
        )

    after = {"after": {"loss": 0.5, "accuracy": 0.75, "margin": 1.0}, "before": {"loss": 0.7}}
    assert found({"rows": 4}, {"holdout": after, "best": {"step": 56}}) == {
        "held-out loss": 0.5,
        "held-out accuracy": 0.75,
        "best step": 56,
    }
    assert found({"holdout": {"after": {"loss": 0.5}}}) == {"held-out loss": 0.5}
    assert found({"rows": 4}) == {}


def made_up() -> dict[str, dict[str, dict[int, dict]]]:
    def lines(right: float, auc: float | None, **more: float) -> dict[int, dict]:
        known = {} if auc is None else {"auc": auc}
        return {seed: {"policy.right": right + (seed % 2) / 50, **known, **more} for seed in range(1400, 1404)}

    methods = {
        "oracle": lines(0.9, 0.99), "even": lines(0.6, 0.63), "token_rm_1k": lines(0.4, 0.6), "token_rm_4k": lines(0.5, 0.7),
        "token_rm_16k": lines(0.7, 0.8, **{"held-out accuracy": 0.75, "seconds before": 350.0}), "tdpo_4k": lines(0.8, None),
    }  # fmt: skip
    return {"opposites": methods, "code": {"oracle": methods["oracle"]}}


def test_the_table_compares_an_amount_with_even_and_with_the_amount_below(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = importlib.import_module("fgrl_benchmark.tables")
    monkeypatch.setattr(tables, "by_task", lambda *_phases: made_up())
    monkeypatch.setattr(sys, "argv", ["tables.py", "labels"])
    tables.main()
    head, _, *rows = (line[2:-2].split(" | ") for line in capsys.readouterr().out.splitlines())
    found = {(row[0], row[1], row[2]): dict(zip(head, row, strict=True)) for row in rows}
    assert ("`opposites`", "`tdpo`", "4,096") in found
    most, least = (found["`opposites`", "`token_rm`", labels] for labels in ("16,384", "1,024"))
    assert most["less `even`"].startswith("0.100 [")
    assert most["less those with fewer labels"].startswith("0.200 [")
    assert least["less those with fewer labels"] == ""
    assert (most["AUC"], most["held-out accuracy"], most["s before"]) == ("0.800", "0.750", "350")
    assert len(rows) == 2 + 4 + 1


def test_the_figure_has_a_curve_for_each_method_with_lines(tmp_path: Path) -> None:
    curves = importlib.import_module("fgrl_benchmark.label_curves")
    drawn = curves.draw(tmp_path / "labels.svg", made_up()).read_text(encoding="utf-8")
    for text in ("oracle", "even", "token_rm", "tdpo", "opposites", "code", "1k", "64k", "right words after training"):
        assert f">{text}<" in drawn
    assert ">rtt<" not in drawn, "it has no line"
