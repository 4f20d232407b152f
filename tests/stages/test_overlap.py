"""Held-out prompts that are trained on: found between readers, also while planning, reported, refused or left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fgrl.base.console import Console
from fgrl.base.errors import DataError
from fgrl.experiments import recipe
from fgrl.experiments.pipeline import execute, plan
from fgrl.experiments.pipeline.estimating import estimates
from fgrl.measuring.overlap import HeldOutItem, seen, settle
from fgrl.rollouts import trained_prompts
from fgrl.types import Message


def known(*prompts: Any) -> frozenset[int]:
    return frozenset(digest for prompt in prompts for digest in trained_prompts.digests(prompt))


def turns(*texts: tuple[str, str]) -> list[Message]:
    return [Message(role=role, content=text) for role, text in texts]


@pytest.mark.parametrize(
    ("trained", "asked"),
    [
        ("Why is it so?", "why  is it\nso"),
        ("Why is it so?", turns(("user", "Why is it so?"))),
        ("Why?", turns(("system", "Be brief."), ("user", "WHY"))),
        (
            turns(("user", "A?"), ("assistant", "B."), ("user", "C?")),
            turns(("user", "a"), ("assistant", "b"), ("user", "c")),
        ),
        ("\ufb01ne", "fine"),
    ],
)
def test_prompts_that_differ_in_little_are_alike(trained: Any, asked: Any) -> None:
    item = HeldOutItem.of("x", asked)
    assert item.digests[0] not in known(trained)
    assert item.is_among(known(trained))


@pytest.mark.parametrize(
    ("trained", "asked"),
    [
        ("2+2=", "2-2="),
        ("Why?", "Why not?"),
        ("a b", "ab"),
        (turns(("user", "A"), ("assistant", "B"), ("user", "C")), "C"),
    ],
)
def test_other_prompts_are_not_alike(trained: Any, asked: Any) -> None:
    assert not HeldOutItem.of("x", asked).is_among(known(trained))


def test_overlaps_are_counted_with_an_example_refused_or_left_out() -> None:
    items = [HeldOutItem.of(text, text) for text in ("new", "Why", "How?", "Who")]
    digests = known("How?", "why?")
    assert seen(items, digests) == (
        '2 of the 4 prompts that it is evaluated on (1 word for word, 1 up to case, spaces and final punctuation), such as "Why"'
    )
    assert seen(items[:1], digests) == ""
    said: list[str] = []
    assert settle("warn", {"policy": digests, "sft": frozenset()}, items, said.append) == ["new", "Why", "How?", "Who"]
    assert len(said) == 1
    assert said[0].startswith("warning: policy was trained on 2 of the 4 prompts")
    assert settle("drop", {"policy": digests, "sft": known("new")}, items, said.append) == ["Who"]
    assert said[1:] == ["overlap: left out 3 of 4 held-out prompts, which were trained on"]
    with pytest.raises(DataError, match="policy was trained on 2 of the 4 prompts"):
        settle("refuse", {"policy": digests}, items, said.append)
    assert settle("refuse", {"policy": known("other")}, items, said.append)
    with pytest.raises(DataError, match="leaves nothing to measure"):
        settle("drop", {"policy": digests}, items[1:3], said.append)


RECIPE = """about: a training that measures held-out rows and prompts, and an evaluation
stages:
  sft:
    name: finetune
    data: {{name: jsonl, path: rows.jsonl, format: sft}}
    model: {{base: {base}, lora: {{r: 2, alpha: 4}}}}
    algorithm: sft
    train: {{lr: 1e-3, batch_size: 4, accelerator: cpu, checkpoint_every: 50}}
    holdout: 0.25
    overlap: {overlap}
    evaluate:
      every: 50
      sets:
        asked: {{prompts: {{name: lines, path: asked.txt, template: "{{line}}"}}, metrics: [length], sampling: {{max_new_tokens: 2}}, overlap: {overlap}}}
  evaluate:
    name: evaluate
    prompts: {{name: lines, path: asked.txt, template: "{{line}}"}}
    models: {{policy: "${{out:sft}}", start: {base}}}
    baseline: start
    sampling: {{max_new_tokens: 2}}
    metrics: [length]
    overlap: {overlap}
"""


def project(folder: Path, base: Path, overlap: str) -> recipe.Recipe:
    prompts = ["One?", "Two?", "Three?", "Four?", "Five?", "Six?", "one", "Seven?"]  # the last two are held out
    rows = (json.dumps({"prompt": prompt, "completion": "yes"}) + "\n" for prompt in prompts)
    (folder / "rows.jsonl").write_text("".join(rows))
    (folder / "asked.txt").write_text("TWO\nSeven?\nNew?\nThree?\n")
    path = folder / "recipe.yaml"
    path.write_text(RECIPE.format(base=json.dumps(str(base)), overlap=overlap))
    return recipe.load(path)


def test_overlaps_are_reported_in_the_plan_and_while_running(
    tiny_model_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loaded = project(tmp_path, tiny_model_dir, "warn")
    told = '2 of the 4 prompts that it is evaluated on (1 word for word, 1 up to case, spaces and final punctuation), such as "TWO"'
    planned = estimates(plan(loaded, tmp_path / "runs"))
    assert planned["evaluate"]["overlap"] == f"policy is trained on {told}"
    assert planned["sft"]["overlap"] == f"the model of evaluate.sets.asked is trained on {told}"
    assert execute(loaded, tmp_path / "runs", console=Console()).exit == 0
    warnings = [
        line.partition("warning: ")[2] for line in capsys.readouterr().err.splitlines() if "was trained on" in line
    ]
    assert [line.partition(" that it")[0] for line in warnings] == [
        "the model of `holdout` was trained on 1 of the 2 prompts",
        "the model of evaluate.sets.asked was trained on 2 of the 4 prompts",
        "policy was trained on 2 of the 4 prompts",
    ]  # fmt: skip


def test_overlaps_are_left_out_or_refused(tiny_model_dir: Path, tmp_path: Path) -> None:
    loaded = project(tmp_path, tiny_model_dir, "drop")
    assert execute(loaded, tmp_path / "runs", console=Console(quiet=True)).exit == 0
    stages = {stage.name: stage.dir for stage in plan(loaded, tmp_path / "runs").stages}
    answers = [json.loads(line) for line in (stages["evaluate"] / "out" / "answers.jsonl").read_text().splitlines()]
    assert {answer["sample"]["prompt"] for answer in answers} == {"Seven?", "New?"}
    own = (stages["sft"] / "evaluations" / "0" / "asked" / "answers.jsonl").read_text().splitlines()
    assert {json.loads(line)["sample"]["prompt"] for line in own} == {"Seven?", "New?"}
    summary = json.loads((stages["sft"] / "stage.json").read_text())["summary"]
    assert summary["holdout"]["rows"] == 1
    refusing = project(tmp_path, tiny_model_dir, "refuse")
    ended = execute(refusing, tmp_path / "runs", console=Console(quiet=True))
    assert ended.exit == 3
    assert "`overlap: refuse` forbids that" in ended.error
