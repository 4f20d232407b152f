"""Two processes evaluate as one does: each answers its share of the prompts, and all know the numbers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tiny_recipe
from pipeline_helpers import HERE
from test_distributed import POLICY, REWARD_MODEL, TWO, Ran, run, run_here
from tiny_recipe import log

pytestmark = pytest.mark.usefixtures("warm")

EVALUATED = (
    "stages.policy.evaluate.every=2", "stages.policy.evaluate.keep=all", "stages.policy.evaluate.best.number=kl.sum",
    "stages.policy.evaluate.sets.held_out={prompts: {name: lines, path: topics.txt, limit: 5}, per_prompt: 2, "
    "metrics: [kl, reference_likelihood, length], sampling: {max_new_tokens: 8, batch_size: 3}}",
)  # fmt: skip


ZERO = [pytest.param(f"deepspeed_stage_{stage}", marks=pytest.mark.evidence) for stage in (1, 2)]


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory, tiny_model_dir: Path) -> Path:
    path = tiny_recipe.write(tmp_path_factory.mktemp("recipe"), tiny_model_dir)
    path.write_text(path.read_text() + f"imports: ['{HERE / 'distributed_spy.py'}']\n")
    return path


def evaluations(ran: Ran) -> dict[int, dict[str, float]]:
    rows = [row for row in log(ran.stage) if "loss" not in row]
    return {row.pop("step"): row for row in rows}


def answers(ran: Ran, step: int) -> list[str]:
    path = ran.stage / "evaluations" / str(step) / "held_out" / "answers.jsonl"
    return [json.loads(line)["response"]["text"] for line in path.read_text().splitlines()]


@pytest.mark.parametrize("strategy", ["ddp", *ZERO])
def test_policies_of_one_and_two_processes(strategy: str, recipe: Path, tmp_path: Path) -> None:
    """Prompts are shared out as 3 and 2; before training the answers are the same, and so are the numbers but for rounding."""
    options = tuple(option.replace("topics.txt", str(recipe.parent / "topics.txt")) for option in (*POLICY, *EVALUATED))
    if strategy != "ddp":
        pytest.importorskip("deepspeed", reason="needs deepspeed: pip install 'fgrl[deepspeed]'")
    one = run_here(recipe, tmp_path / "one", *options)
    two = run(recipe, tmp_path / "two", *options, *TWO, f"vars.strategy={strategy}")
    assert [one.code, two.code] == [0, 0], two.said
    assert list(evaluations(one)) == list(evaluations(two)) == [0, 2, 3]
    assert len(answers(one, 0)) == 10
    assert answers(one, 0) == answers(two, 0)
    for step in (0, 2):
        assert evaluations(one)[step] == pytest.approx(evaluations(two)[step], rel=2e-3, abs=1e-4)
    assert two.seen("weights-policy-0.json") == two.seen("weights-policy-1.json")
    parts = [sorted(str(path.relative_to(ran.stage)) for path in ran.stage.rglob("*")) for ran in (one, two)]
    assert parts[0] == parts[1], "only rank 0 writes"
    said = [json.loads((ran.stage / "stage.json").read_text())["summary"]["best"]["step"] for ran in (one, two)]
    assert said[0] == said[1] > 0


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_held_out_pairs_of_one_and_two_processes(strategy: str, recipe: Path, tmp_path: Path) -> None:
    options = (*REWARD_MODEL, "stages.reward_model.evaluate={every: 2, best: {number: loss, goal: min}}")
    one = run_here(recipe, tmp_path / "one", *options)
    two = run(recipe, tmp_path / "two", *options, *TWO, f"vars.strategy={strategy}")
    assert [one.code, two.code] == [0, 0], two.said
    assert list(evaluations(one)) == list(evaluations(two)) == [0, 2, 4, 6]
    assert evaluations(one)[0] == pytest.approx(evaluations(two)[0], rel=1e-5)
    for step in (2, 4, 6):
        assert evaluations(one)[step] == pytest.approx(evaluations(two)[step], rel=2e-3, abs=1e-5)
