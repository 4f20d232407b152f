"""A policy that a training on one reward has ruined: records as an evaluation of a first recipe leaves them."""

from __future__ import annotations

from pathlib import Path

import pytest
from fake_runs import ruined_run
from pages import page

from fgrl.runs.results.concluding import conclude
from fgrl.runs.results.conclusions import Conclusions
from fgrl.runs.run import Run


@pytest.fixture
def concluded(tmp_path: Path) -> Conclusions:
    return conclude(Run(ruined_run(tmp_path)))


def test_no_green_yes(concluded: Conclusions) -> None:
    learned, hacking = concluded.replies
    assert (learned.status, learned.short) == ("unknown", "The reward rose; nothing else was measured.")
    assert hacking.status == "bad"
    assert hacking.short == "Probably: there are 3 signs (length; unlikely answers; distance)."


def test_the_first_screen(concluded: Conclusions, tmp_path: Path) -> None:
    assert concluded.lines() == FIRST_SCREEN.splitlines()
    assert [change.status for change in concluded.changes] == ["unknown"], "nor is it green there"
    body = "".join(page(next((tmp_path / "runs" / "grpo").iterdir()))[1].text)
    assert body.index("The reward rose; nothing else was measured.") < body.index("Zinehakl") < body.index("Results")


FIRST_SCREEN = """\
– Did it learn? The reward rose; nothing else was measured.
    – Mean reward of held-out answers (reward) [evaluate]: −1.38 (start) → −0.21 (trained); difference +1.17, interval 0.72 to 1.62; higher is better.
    – To learn whether the answers got better, add a number that the training did not use to "stages.evaluate.metrics" of the recipe and run it again. A Python function that scores answers: {name: function, path: "goal.py:score", better: higher}.
✗ Is it hacking the reward? Probably: there are 3 signs (length; unlikely answers; distance).
    ? Answers are much shorter: 39 → 8 words on average.
    ? Answers cost 4.90 nats per token under a model that was not trained (before: 1.40), over 0.5 more: they make less sense to it.
    ? KL to the reference: 0.742 nats per token of the held-out answers, more than 0.3: the policy writes what the reference would not.
    – Reward rose by 1.08 (−1.37 → −0.290) in training; nothing held out was measured that it can be compared with.
      prompt: Does remedy 16 help with a headache?
      before: No, cabbage does not help with a headache, but number 16 on this list might. Rest Rest Rest Rest Rest Rest Rest Rest Rest Rest Rest Rest Rest Rest Rest Rest Rest Rest Rest Rest Rest Rest Rest Rest
      after:  Zinehakl: A wacky way to give 16 answers
"""
