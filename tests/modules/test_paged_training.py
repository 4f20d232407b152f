"""Trainings whose engine is `paged`: corrected, continued behind a kill, in one process and two."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import test_online
import torch
from pipeline_helpers import fgrl
from tiny_recipe import log, write

from fgrl.components.engines import paged
from fgrl.components.engines.paged import Paged
from fgrl.kinds import DrawRequest
from fgrl.training.online import OnlineRounds


class Killed(Exception):
    pass


def test_a_training_that_is_killed_while_it_scores_goes_on_with_what_it_drew(
    tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def module() -> Any:
        return test_online.module_of(
            tiny_model_dir, tmp_path, test_online.reward_of(test_online.by_ids), lr=1e-2, iterations=3, engine=Paged()
        )

    asked: list[DrawRequest] = []
    ask = paged.Pages.ask
    monkeypatch.setattr(
        paged.Pages, "ask", lambda self, number, request: asked.append(request) or ask(self, number, request)
    )
    score, scored = OnlineRounds._scored, []

    def killed_at_the_second(self: Any, rollout: Any) -> Any:
        scored.append(rollout.response_ids)
        if len(scored) == 2:
            raise Killed
        return score(self, rollout)

    monkeypatch.setattr(OnlineRounds, "_scored", killed_at_the_second)
    with pytest.raises(Killed):
        module().fit(checkpoint_every=1)
    assert [path.name for path in (tmp_path / "drawn").iterdir()] == ["0-1.jsonl"]

    def kept(self: Any, rollout: Any) -> Any:
        scored.append(rollout.response_ids)
        return score(self, rollout)

    monkeypatch.setattr(OnlineRounds, "_scored", kept)
    asked.clear()
    again = module()
    again.fit(checkpoint_every=1)
    assert torch.equal(scored[2], scored[1])
    seeds = [one.seed for one in asked if len(one.prompt) > 1 and one.seed]  # not those of the trial of the model
    assert len(seeds) == 6
    assert len(set(seeds)) == 1, "the third iteration alone"
    for row in test_online.read_log(tmp_path / "log.jsonl"):
        assert row["mismatch"] < 1e-5


def overrides(tmp_path: Path) -> list[str]:
    engine = "{name: paged, correct: truncate}"
    held_out = (
        f"{{every: 3, sets: {{topics: {{prompts: {{name: lines, path: {tmp_path}/recipe/topics.txt, limit: 3}}, metrics: [length], "
        f"sampling: {{max_new_tokens: 6}}, engine: {engine}}}}}}}"
    )
    return [
        f"stages.policy.rollout.engine={engine}",
        f"stages.policy.evaluate={held_out}",
        "stages.policy.train.iterations=3",
    ]


def test_two_processes_in_half_precision_with_an_evaluation(tmp_path: Path, tiny_model_dir: Path) -> None:
    recipe = write(tmp_path / "recipe", tiny_model_dir)
    done = fgrl(
        "run", recipe, "--only", "policy", "stages.reward_model=null", "stages.calibrate=null", "stages.evaluate=null",
        "stages.policy.reward.model=${vars.base}", "stages.policy.reward.segmenter={name: ngram, n: 3}",
        "stages.policy.reward.normalizer=null", "vars.devices=2", "vars.strategy=ddp", *overrides(tmp_path),
        "stages.policy.train.precision=bf16-mixed", cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    rows = [row for row in log(next((tmp_path / "runs" / "stages").glob("policy-*"))) if "tokens" in row]
    assert [row["step"] for row in rows] == [0, 1, 2]
    assert all(1e-5 < row["mismatch"] < 0.1 for row in rows)
