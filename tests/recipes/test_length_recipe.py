"""The experiment on token rewards and length: its critic, and that its rows train (two iterations, nothing about the outcome)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import script_files

import fgrl
from fgrl.experiments import recipe as recipes

FILE = Path(__file__).resolve().parents[2] / "recipes" / "small" / "length.yaml"
SHORT = {
    "stages.start.data.copies": 1,
    "stages.start.train.epochs": 1,
    "stages.policy.train.iterations": 2,
    "stages.policy.rollout.batch_size": 24,
    "stages.policy.train.batch_size": 24,
    "stages.policy.train.micro_batch_size": 24,
    "stages.policy.stored_rollouts": 24,
}


@pytest.fixture(scope="module")
def words() -> Any:
    return script_files.loaded(FILE.with_name("length_words.py"))


def test_the_critic_is_never_wrong(words: Any) -> None:
    [spans] = words.critic(["sea 17"], ["salt lamp salt wave"])
    assert spans == [(0, 4, 1.0), (5, 9, -1.0), (10, 14, -1.0), (15, 19, 1.0)]
    assert words.lenient(["sea 17"], ["salt lamp"]) == [[(0, 4, 1.0), (5, 9, 0.25)]]
    every = [word for own in words.WORDS.values() for word in own]
    assert len(set(every)) == len(every) == 72


def test_quality(words: Any) -> None:
    measured = words.quality(["sea 17", "sea 18"], ["salt lamp salt wave", ""])
    assert measured == {"f1": [2 * 2 / (4 + 6), 0.0], "precision": [0.5, 0.0], "right": [2.0, 0.0]}


@pytest.mark.parametrize("row", ["min_length", "center_prompt"])
def test_a_row_trains(row: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    runs = tmp_path_factory.getbasetemp() / "length-runs"
    run = fgrl.run(f"{FILE}::{row}", SHORT, runs=runs, progress=False)
    assert run.numbers("f1").query("model == 'policy'")["mean"].notna().all()
    stage = recipes.load(f"{FILE}::{row}").stages["policy"]
    least = stage.rollout.sampling.min_new_tokens
    first = run.stages["policy"].log().iloc[0].dropna()
    assert first["max_log_ratio"] < 1e-5, "one optimizer step"
    assert ("token_reward_given" in first) == (stage.token_rewards is not None)
    answers = run.answers("evaluate", "policy")
    assert len(answers) == 96 * 4
    assert all(len(answer.tokens) > least for answer in answers), "the tokens before the bound, and the end or another"
