"""Which metrics can be computed again from recorded answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fgrl import registry
from fgrl.components.clients.replay import Replay
from fgrl.evaluation.comparison import Comparison
from fgrl.kinds import Client, Metric
from fgrl.specs import ModelSpec
from fgrl.types import Ref

PROMPTS = Path(__file__).parents[2] / "prompts"


class FromText(Comparison):
    """Reads nothing but the answers."""

    def numbers(self, answers: Any) -> dict[str, Any]:
        return {}


class Bare(Metric):
    """Knows nothing of `Compared`."""

    def measure(self, answers: Any, *, baseline: str | None = None) -> dict[str, Any]:
        return {}


def test_only_a_metric_that_reads_answers_alone_is_computed_again() -> None:
    assert FromText().why_not_remeasured() == ""
    assert Bare().why_not_remeasured()


@pytest.mark.parametrize(("judge", "reason"), [(False, ""), (True, "it asks a judge")])
def test_a_rubric_needs_more_than_answers_only_with_a_judge(tmp_path: Path, judge: bool, reason: str) -> None:
    (tmp_path / "judge.jsonl").write_text("")
    client = {"name": "replay", "answers": str(tmp_path / "judge.jsonl")}
    node = {"name": "llm", "client": client, "prompt": str(PROMPTS / "judge_criterion.txt")}
    metric = registry.build(Metric, {"name": "rubric", "judge": node} if judge else "rubric")
    assert metric.why_not_remeasured() == reason


def test_a_metric_that_holds_a_client_or_another_stage_needs_more_than_answers(tmp_path: Path) -> None:
    class Asks(FromText):
        client: Client

    class Reads(FromText):
        model: ModelSpec

    assert Asks(client=Replay(answers="answers.jsonl")).why_not_remeasured() == "it asks a language model"
    assert Reads(model=ModelSpec(base=Ref("policy"))).why_not_remeasured() == "it uses the product of another stage"
    assert Reads(model=ModelSpec(base="folder")).why_not_remeasured() == ""
