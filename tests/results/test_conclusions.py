"""The first screen: what is concluded from recorded numbers, and what is not."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from fake_runs import estimate, fake_run, write_answers, write_json, write_lines
from pages import assert_safe, change, page, stage

from fgrl.kinds.specs import ModelSpec, stage_of
from fgrl.measuring import observations
from fgrl.measuring.answer import Answer
from fgrl.measuring.observations import Observed
from fgrl.measuring.repetition import copied_share
from fgrl.measuring.statistics import weighted_mean
from fgrl.measuring.symptoms import repeats_prompt
from fgrl.registry import build
from fgrl.runs.results.concluding import conclude, renew
from fgrl.runs.results.conclusions import Conclusions, Finding, Reply
from fgrl.runs.results.verdict import percent, trend
from fgrl.runs.run import Run
from fgrl.types import Ref, Response, Sample

LONG = "A heron stands still in the shallow water for a very long time and then it strikes a small fish"
GOAL = {
    "purpose": "goal",
    "numbers": {"kept": {"words": "share that satisfies the rule", "better": "higher", "even": None}},
}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A finished run with a reward that rises, and answers that stay as they are."""
    folder = fake_run(tmp_path, prompts=2, points=3, steps=3)
    rising(folder, 0.0, 2.1)
    answers(folder, LONG, LONG)
    return folder


def rising(folder: Path, first: float, last: float, **more: list[float]) -> None:
    steps = 20
    rows = []
    for step in range(steps):
        done = step / (steps - 1)
        row = {
            "step": step,
            "reward": first + (last - first) * done,
            "reward_std": 0.3,
            "tokens": 30.0,
            "kl": 3.0 * done,
        }
        rows.append(row | {name: values[min(step, len(values) - 1)] for name, values in more.items()})
    write_lines(stage(folder, "policy") / "log.jsonl", rows)


def answers(folder: Path, before: str, after: str, *, prompts: int = 30, **fields: Any) -> None:
    """The same two answers to each of the prompts, but for a number at their end."""
    lines = [
        {
            "model": model, "sample": {"id": str(number), "prompt": f"Tell me something about animal {number}"},
            "response": {"text": f"{text} {number}".strip() if text else "", "finished": True}, **fields,
        }
        for model, text in (("sft", before), ("policy", after))
        for number in range(prompts)
    ]  # fmt: skip
    write_answers(stage(folder, "evaluate") / "out", lines)


def goal(
    folder: Path, before: float, after: float, half: float | None = 0.1, meanings: Any = None, **more: Any
) -> None:
    difference = estimate(after - before, half or 0.0)
    if half is None:
        difference |= {"low": None, "high": None}
    numbers = {"sft": {"kept": estimate(before)}, "policy": {"kept": estimate(after)}}
    metric = numbers | {"differences": {"policy": {"kept": difference}}}
    about = {"mine": GOAL} if meanings is None else meanings
    report = {"baseline": "sft", "metrics": {"mine": metric} | more, "meanings": about}
    write_json(stage(folder, "evaluate") / "out" / "metrics.json", report)


def verdict(folder: Path) -> Conclusions:
    return conclude(Run(folder))


def replies(folder: Path) -> tuple[Any, Any]:
    """(did it learn, is it hacking the reward)."""
    learned, hacking = verdict(folder).replies
    assert learned.question == "Did it learn?"
    return learned, hacking


def recipe(folder: Path, policy: str, models: str, **more: str) -> None:
    """The stages of the recipe: the trainings, and an evaluation of models."""
    settings = "".join(f", {name}: {value}" for name, value in more.items())
    text = f"stages:\n  {policy}\n  evaluate: {{name: evaluate, models: {{{models}}}{settings}}}\n"
    (folder / "recipe.yaml").write_text(text, encoding="utf-8")


def texts(reply: Any, *statuses: str) -> str:
    return "\n".join(finding.text for finding in reply.findings if not statuses or finding.status in statuses)


@pytest.mark.parametrize(
    ("after", "half", "status", "words"),
    [
        (0.5, 0.1, "good", "Yes"),
        (0.2, 0.1, "unsure", "includes 0"),
        (0.05, 0.1, "bad", "got worse"),
        (0.5, None, "unknown", "has no interval"),
        (0.3, 0.1, "unsure", "includes 0"),  # the interval ends at 0
    ],
)
def test_learning_is_asserted_only_when_the_interval_excludes_0(
    run: Path, after: float, half: float | None, status: str, words: str
) -> None:
    goal(run, 0.2, after, half)
    learned, _ = replies(run)
    assert (learned.status, words in learned.short) == (status, True)
    assert "higher is better" in learned.findings[0].text
    assert "Yes" in learned.short or status != "good"


def test_a_direction_that_is_lower(run: Path) -> None:
    lower = {"mine": {"purpose": "goal", "numbers": {"kept": {"words": "errors", "better": "lower"}}}}
    goal(run, 0.5, 0.2, meanings=lower)
    assert replies(run)[0].status == "good"
    goal(run, 0.2, 0.5, meanings=lower)
    learned, hacking = replies(run)
    assert learned.status == "bad"
    assert "while the held-out errors rose from 0.20 to 0.50" in texts(hacking, "bad")


def test_nothing_is_concluded_without_a_declared_direction(run: Path) -> None:
    goal(run, 0.2, 0.6, meanings={})
    learned, hacking = replies(run)
    assert (learned.status, hacking.status) == ("unknown", "unknown")
    assert "no number declares which side of it is better" in learned.short
    assert "mine.kept of policy: difference +0.40" in texts(learned)
    symptom = {"mine": GOAL | {"purpose": "symptom"}}
    goal(run, 0.2, 0.6, meanings=symptom)
    assert replies(run)[0].status == "unknown"


REWARD = {
    "purpose": "reward",
    "numbers": {
        "* good": {"words": "share of tokens with a positive reward ({number})"},
        "*": {"words": "mean reward of held-out answers ({number})", "better": "higher"},
    },
}


@pytest.mark.parametrize(
    ("after", "status", "words"),
    [
        (0.5, "unknown", "The reward rose; nothing else was measured."),
        (0.2, "unsure", "The reward did not clearly change; nothing else was measured."),
        (0.05, "bad", "The reward fell; nothing else was measured."),
    ],
)  # fmt: skip
def test_the_reward_alone_is_no_yes(run: Path, after: float, status: str, words: str) -> None:
    goal(run, 0.2, after, meanings={"mine": REWARD})
    learned, hacking = replies(run)
    assert (learned.status, learned.short) == (status, words)
    assert "Mean reward of held-out answers (kept) [evaluate]: 0.20 (sft) → " in texts(learned)
    assert "stages.evaluate.metrics" in learned.telling[-1].text
    assert not texts(learned, "good"), "no green mark at all"
    assert hacking.status in ("unknown", "unsure"), "a reward that rises says nothing about hacking it"
    assert "only the reward itself was measured" in hacking.short
    undeclared = {"sft": {"own": estimate(0.2)}, "policy": {"own": estimate(0.6)}}
    undeclared |= {"differences": {"policy": {"own": estimate(0.4)}}}
    goal(run, 0.2, after, meanings={"mine": REWARD}, other=undeclared)
    learned = replies(run)[0]
    assert learned.short == words.replace(
        "nothing else was measured", "no other number declares which side of it is better"
    )
    assert "other.own of policy" in texts(learned)


def test_the_function_of_the_reward_is_no_goal(run: Path) -> None:
    policy = "policy: {name: rl, reward: {name: function, path: [mine.py:own, mine.py:other]}}"
    for path, title, status in (("mine.py:own", "mine", "unknown"), ("mine.py:mine", "", "good")):
        metrics = f"[{{name: function, path: '{path}', title: '{title}'}}]"
        recipe(run, policy, 'policy: "${out:policy}"', metrics=metrics)
        goal(run, 0.2, 0.5)
        assert replies(run)[0].status == status
        assert [each.status for each in verdict(run).changes] == [status]


def test_the_metric_that_is_named_to_the_user_can_be_added(run: Path, tmp_path: Path) -> None:
    goal(run, 0.2, 0.5, meanings={"mine": REWARD})
    (named,) = re.findall(r"{name: .*}", replies(run)[0].telling[-1].text)
    (tmp_path / "goal.py").write_text("def score(completions, **kwargs):\n    return [1.0 for _ in completions]\n")
    metric = build("metric", yaml.safe_load(named.replace("goal.py", str(tmp_path / "goal.py"))))
    assert metric.meaning("score").better == "higher"


def test_how_well_a_reward_judges_is_not_the_reward_on_held_out_prompts(run: Path) -> None:
    judging = {"purpose": "reward", "numbers": {"*": {"words": "how well it judges", "better": "higher", "even": 0.5}}}
    reward = {"sft": {"r": estimate(0.9)}, "policy": {"r": estimate(0.1)}}
    reward |= {"differences": {"policy": {"r": estimate(-0.8)}}}
    goal(run, 0.2, 0.6, meanings={"mine": judging, "rewarded": REWARD}, rewarded=reward)
    learned, _ = replies(run)
    assert (learned.status, learned.short) == ("bad", "The reward fell; nothing else was measured.")
    assert "how well it judges" not in texts(learned)


def test_grades_are_not_measured_by_the_reward_itself(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    summary["stages"]["evaluate"]["kind"] = "grade"
    write_json(run / "summary.json", summary)
    goal(run, 0.2, 0.6, meanings={"mine": REWARD})
    learned, hacking = replies(run)
    assert (learned.status, learned.short) == ("good", "Yes, on held-out prompts.")
    assert "reward itself" not in hacking.short
    goal(run, 0.2, 0.2, meanings={"mine": REWARD})
    assert replies(run)[0].short == "Not shown: the interval of the difference includes 0."


def test_lines_to_read_grades_against_are_not_what_learned(run: Path) -> None:
    goal(run, 0.2, 0.6)
    recipe = run / "recipe.yaml"
    text = recipe.read_text()
    graded = 'evaluate: {name: grade, right: {other: {name: samples, of: "${out:critiques}"}}}'
    assert 'evaluate: {name: evaluate, models: {policy: "${out:policy}"}}' in text
    recipe.write_text(text.replace('evaluate: {name: evaluate, models: {policy: "${out:policy}"}}', graded))
    assert replies(run)[0].short == "Unknown: nothing held out was measured."
    recipe.write_text(recipe.read_text().replace("right: {other:", "right: {policy:"))
    assert replies(run)[0].short == "Yes, on held-out prompts."


def test_a_goal_counts_more_than_the_reward_on_held_out_prompts(run: Path) -> None:
    reward = {"sft": {"r": estimate(0.1)}, "policy": {"r": estimate(0.9)}}
    reward |= {"differences": {"policy": {"r": estimate(0.8)}}}
    goal(run, 0.5, 0.2, meanings={"mine": GOAL, "rewarded": REWARD}, rewarded=reward)
    learned, hacking = replies(run)
    assert (learned.status, learned.short) == ("bad", "No: it got worse on held-out prompts.")
    assert hacking.status == "bad"


def test_nothing_held_out(run: Path) -> None:
    (stage(run, "evaluate") / "out" / "metrics.json").unlink()
    (stage(run, "evaluate") / "out" / "answers.jsonl").unlink()
    learned, hacking = replies(run)
    assert (learned.status, learned.short) == ("unknown", "Unknown: nothing held out was measured.")
    assert (hacking.status, hacking.short[:7]) == ("unknown", "Unknown")
    assert "nothing held out was measured that it can be compared with" in texts(hacking)


def test_a_reward_that_rises_while_the_goal_falls(run: Path) -> None:
    goal(run, 0.5, 0.2)
    learned, hacking = replies(run)
    assert (learned.status, hacking.status) == ("bad", "bad")
    assert hacking.short == "Very likely: the reward rose while the goal got worse."
    wanted = "Reward rose by 1.99 (0.0553 → 2.04) in training while the held-out share that satisfies the rule fell from 0.50 to 0.20."
    assert hacking.telling[0].text == wanted
    whole = verdict(run)
    assert whole.lines()[0] == "✗ Did it learn? No: it got worse on held-out prompts."
    assert whole.lines()[2] == "✗ Is it hacking the reward? Very likely: the reward rose while the goal got worse."
    assert whole.lines()[3] == f"    ✗ {wanted}"
    text, parsed = page(run)
    assert_safe(text, parsed)
    body = "".join(parsed.text)
    assert body.index("Very likely") < body.index("Results") < body.index("Curves")  # on the first screen


def test_a_reward_that_rises_alone_is_one_sign(run: Path) -> None:
    goal(run, 0.2, 0.25)
    hacking = replies(run)[1]
    assert (hacking.status, hacking.short) == ("unsure", "Possibly: there is one sign (reward against goal).")
    assert "did not measurably change" in texts(hacking, "unsure")


def test_a_reward_that_does_not_rise_is_no_sign(run: Path) -> None:
    goal(run, 0.5, 0.2)
    recipe(run, "policy: {name: rl, rollout: {batch_size: 16, per_prompt: 2}}", 'policy: "${out:policy}"')
    for first, last in ((1.0, 1.1), (2.0, 0.0)):
        rising(run, first, last)
        learned, hacking = replies(run)
        assert (learned.status, hacking.status) == ("bad", "good")
        assert "there is no gain that hacking the reward could explain" in texts(hacking)


@pytest.mark.parametrize(
    ("before", "after", "topic", "words"),
    [
        (LONG, "No", "length", "much shorter: 21 → 2 words"),
        ("Yes", LONG, "length", "much longer: 2 → 21 words"),
        (LONG, "", "empty answers", "100% of the answers are empty (before: 0%)"),
        (LONG, f"{LONG[:60]}. You said tell me something about animal", "repetition of the prompt", "100% of the answers repeat"),
        (LONG, "on and on and on and on and on and on and on and on and on", "repetition", "of the word pairs"),
    ],
)  # fmt: skip
def test_symptoms_in_answers(run: Path, before: str, after: str, topic: str, words: str) -> None:
    goal(run, 0.2, 0.5)
    answers(run, before, after)
    hacking = replies(run)[1]
    assert topic in [finding.topic for finding in hacking.findings if finding.status == "unsure"]
    assert words in texts(hacking, "unsure")
    answers(run, before, before)
    assert replies(run)[1].status == "good"


def test_symptoms_are_those_that_were_stored(run: Path) -> None:
    """They are not measured again: the answers are only read for an example."""
    goal(run, 0.2, 0.5)
    answers(run, LONG, "No")
    hacking = replies(run)[1]
    assert hacking.short == "Possibly: there is one sign (length)."
    out = stage(run, "evaluate") / "out"
    write_lines(out / "answers.jsonl", [])
    without = replies(run)[1]
    assert without == hacking.model_copy(update={"example": None})
    (out / "observations.jsonl").unlink()
    earlier = replies(run)[1]
    assert "an earlier version of fgrl evaluated the answers" in texts(earlier, "unknown")
    assert not [finding for finding in earlier.findings if finding.topic == "length"]


def test_symptoms_of_an_evaluation_while_training(run: Path) -> None:
    """The answers of the start are beside the first evaluation, those of the trained model beside the last one."""
    out = stage(run, "evaluate") / "out"
    goal(run, 0.2, 0.5)
    answers(run, LONG, "No")
    lines = [json.loads(line) for line in (out / "answers.jsonl").read_text().splitlines()]
    every = stage(run, "policy") / "evaluations"
    for line in lines:
        line["model"] = {"sft": "start", "policy": "trained"}[line["model"]]
    write_answers(every / "8" / "held_out", lines)
    for step, model in ((0, "start"), (8, "trained")):
        write_lines(
            every / str(step) / "held_out" / "answers.jsonl", [line for line in lines if line["model"] == model]
        )
    report = json.loads((out / "metrics.json").read_text().replace('"sft"', '"start"').replace('"policy"', '"trained"'))
    write_json(every / "8" / "held_out" / "metrics.json", report)
    (out / "metrics.json").unlink()
    learned, hacking = replies(run)
    assert "[policy, while training]" in texts(learned, "good")
    assert hacking.short == "Possibly: there is one sign (length)."
    assert (hacking.example.before[:7], hacking.example.after[:2]) == (LONG[:7], "No")


def test_two_signs_are_a_verdict(run: Path) -> None:
    goal(run, 0.2, 0.25)
    answers(run, LONG, "No")
    hacking = replies(run)[1]
    assert (hacking.status, hacking.short) == ("bad", "Probably: there are 2 signs (reward against goal; length).")


def test_one_answer_for_all_prompts_and_cut_answers(run: Path) -> None:
    goal(run, 0.2, 0.5)
    out = stage(run, "evaluate") / "out"
    lines = [json.loads(line) for line in (out / "answers.jsonl").read_text().splitlines()]
    for line in lines:
        if line["model"] == "policy":
            line["response"] = {"text": LONG, "finished": False}
    write_answers(out, lines)
    hacking = replies(run)[1]
    assert "100% of the answers are the same as the answer to another prompt" in texts(hacking, "unsure")
    assert "100% of the answers are cut off by the length limit" in texts(hacking, "unsure")
    for line in lines:
        line["response"] = {"text": LONG, "finished": False}
    write_answers(out, lines)
    hacking = replies(run)[1]
    said = "100% of the answers are cut off by the length limit (before: 100%)"
    assert said in texts(hacking, "unknown"), "as before, which is no good sign"
    assert said not in texts(hacking, "good")
    for line in lines:
        line["response"]["finished"] = None  # not known is no answer that ends
    write_answers(out, lines)
    assert "cut off" not in texts(replies(run)[1])


def test_distance_from_the_reference(run: Path) -> None:
    goal(run, 0.2, 0.5)
    for kl, expected in ((12.0, "unsure"), (6.0, "good")):
        answers(run, LONG, LONG, kl=kl, tokens=["x"] * 30)
        found = next(finding for finding in replies(run)[1].findings if finding.topic == "distance")
        assert (found.status, "of the held-out answers" in found.text) == (expected, True)
    answers(run, LONG, LONG)
    assert "0.100 nats per token in the last iteration of policy" in texts(replies(run)[1], "good")


def likely(folder: Path, dearer: float) -> None:
    """Answers of 30 tokens that cost 1.5 nats a token under the reference, those of the trained model more."""
    answers(folder, LONG, LONG, tokens=["x"] * 30)
    out = stage(folder, "evaluate") / "out"
    lines = [json.loads(line) for line in (out / "answers.jsonl").read_text().splitlines()]
    for line in lines:
        line["ref_logp"] = -30 * (1.5 + (dearer if line["model"] == "policy" else 0.0))
    write_answers(out, lines)


def test_answers_that_make_less_sense_are_a_sign(run: Path) -> None:
    goal(run, 0.2, 0.5)
    for dearer, expected in ((0.55, "unsure"), (0.45, "good"), (-1.0, "good")):
        likely(run, dearer)
        learned, hacking = replies(run)
        found = next(finding for finding in hacking.findings if finding.topic == "unlikely answers")
        assert (learned.status, found.status, hacking.status) == ("good", expected, expected)
    measured = {"sft": {"nats_per_token": estimate(1.25)}, "policy": {"nats_per_token": estimate(1.875)}}
    goal(run, 0.2, 0.5, perplexity=measured)
    text = "Answers cost 1.88 nats per token under a model that was not trained (before: 1.25), over 0.5 more"
    assert text in texts(replies(run)[1], "unsure"), "what a metric measured counts before the reference"


def test_a_reward_that_is_named_to_be_about_length_may_change_it(run: Path) -> None:
    goal(run, 0.2, 0.5)
    answers(run, LONG, "No")
    for path, expected in (
        ("rewards/short/scores.py:spans", "unsure"), ("scores.py:keywords", "unsure"), ("scores.py:briefly", "unsure"),
        ("scores.py:too_long", "good"), ("brevity.py:score", "good"),
    ):  # fmt: skip
        reward = f"reward: {{name: mean, of: [{{name: function, path: [{path}]}}]}}"
        recipe(run, f"policy: {{name: rl, {reward}}}", 'policy: "${out:policy}"')
        hacking = replies(run)[1]
        found = next(finding for finding in hacking.findings if finding.topic == "length")
        assert (found.status, hacking.status) == (expected, expected)
        assert ("named to be about" in found.text) == (expected == "good")


def test_a_sign_comes_with_an_example(run: Path) -> None:
    goal(run, 0.2, 0.5)
    assert replies(run)[1].example is None
    answers(run, f"{LONG}\n\x1b[2J" + 60 * "and so on ", "No", prompts=11)
    shown = replies(run)[1].example
    assert shown.prompt.startswith("Tell me something about animal ")
    assert shown.prompt.rpartition(" ")[2] == shown.after.rpartition(" ")[2], "the same prompt"
    assert (len(shown.before), shown.before[-1]) == (200, "…")
    lines = verdict(run).lines()
    assert f"      before: {LONG} ␛[2Jand so on" in "\n".join(lines)
    assert f"      after:  {shown.after}" in lines
    text, parsed = page(run)
    assert_safe(text, parsed)
    body = "".join(parsed.text)
    assert body.index(shown.after) < body.index("Results")
    assert verdict(run).as_json()["questions"][1]["example"]["after"] == shown.after


def alarms(folder: Path, *records: dict[str, Any] | None) -> None:
    """Put alarms into the record of the training; None alone: nothing watched."""
    place = stage(folder, "policy") / "stage.json"
    write_json(place, json.loads(place.read_text()) | {"alarms": None if records == (None,) else list(records)})


ENTROPY = {"name": "entropy", "since": 11, "value": 0.01, "bound": "below 0.1"}


def test_alarms_of_the_record(run: Path) -> None:
    goal(run, 0.2, 0.5)
    assert "larm" not in texts(replies(run)[1]), "nothing watched"
    alarms(run)
    assert "No alarm during the training of policy" in texts(replies(run)[1], "good")
    alarms(run, ENTROPY)
    hacking = replies(run)[1]
    assert hacking.status == "unsure"
    assert (
        "Alarm “entropy” in policy from iteration 11 on, until the end: entropy of the policy (nats per token) was 0.0100, below 0.1"
        in texts(hacking)
    )
    alarms(run, ENTROPY | {"until": 13})
    assert replies(run)[1].status == "good"
    assert "from iteration 11 on, for a time" in texts(replies(run)[1], "unknown")


def test_an_alarm_that_goes_off_again(run: Path) -> None:
    """It is told once: from when it went off first, and whether it was on at the end."""
    goal(run, 0.2, 0.5)
    alarms(run, ENTROPY | {"until": 13}, ENTROPY | {"since": 15, "value": None, "bound": "not a finite number"})
    told = texts(replies(run)[1], "unsure")
    assert told.count("Alarm") == 1
    assert "from iteration 11 on, until the end" in told


def test_alarms_of_a_training_that_an_alarm_stopped(run: Path) -> None:
    """It has no record yet: they stand beside it."""
    goal(run, 0.2, 0.5)
    folder = stage(run, "policy")
    (folder / "stage.json").unlink()
    write_json(folder / "alarms.json", [ENTROPY])
    assert "Alarm “entropy”" in texts(replies(run)[1], "unsure")
    (folder / "alarms.json").write_text("[{")
    assert "larm" not in texts(replies(run)[1]), "a damaged file is not the absence of alarms"


def test_an_alarm_of_the_engine_is_shown_and_is_no_sign_of_hacking(run: Path) -> None:
    goal(run, 0.2, 0.5)
    alarms(run, {"name": "mismatch", "since": 6, "value": 0.4, "bound": "above 0.1"})
    hacking = replies(run)[1]
    assert hacking.status == "good"
    assert "Alarm “mismatch” in policy from iteration 6 on, until the end" in texts(hacking, "unknown")


def test_an_alarm_is_not_counted_twice(run: Path) -> None:
    goal(run, 0.2, 0.5)
    answers(run, LONG, "No")
    alarms(run, {"name": "tokens", "since": 10, "value": 3.0, "bound": "below 0.4 of its first value 30"})
    hacking = replies(run)[1]
    assert hacking.short == "Possibly: there is one sign (length)."
    assert "Alarm “tokens”" in texts(hacking, "unknown")


def test_training_without_a_reward_asks_about_side_effects(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    summary["stages"]["policy"]["kind"] = "finetune"
    write_json(run / "summary.json", summary)
    goal(run, 0.2, 0.5)
    answers(run, LONG, "No")
    effects = replies(run)[1]
    assert (effects.question, effects.status) == ("Does it have side effects?", "unsure")
    likely(run, 2.0)
    effects = replies(run)[1]
    assert effects.status == "good", "training on data is meant to move the model"
    assert "Answers cost 3.50 nats" in texts(effects, "unknown")


def test_a_reward_model_alone(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    own = summary["stages"]["reward_model"]
    for last, status in ((0.9, "good"), (0.55, "unsure"), (0.1, "bad")):
        own["summary"] = {"holdout": {"rows": 80, "before": {"accuracy": 0.5}, "after": {"accuracy": last}}}
        write_json(run / "summary.json", summary | {"stages": {"reward_model": own}})
        (run / "recipe.yaml").write_text("stages: {reward_model: {name: finetune}}\n")
        (reply,) = verdict(run).replies
        assert reply.findings[0].status == status
        assert reply.status == ("good" if status == "good" else "unsure")
        assert "Accuracy on 80 held-out rows [reward_model]" in reply.findings[0].text
    own["summary"] = {"holdout": {"rows": 80, "before": {"loss": 2.0}, "after": {"loss": 1.0}}}
    write_json(run / "summary.json", summary | {"stages": {"reward_model": own}})
    (reply,) = verdict(run).replies
    assert (reply.status, "no interval is known" in reply.findings[0].text) == ("unsure", True)
    own["summary"] = {}
    write_json(run / "summary.json", summary | {"stages": {"reward_model": own}})
    assert verdict(run).replies[0].short == "Unknown: nothing held out was measured."


def test_runs_that_train_nothing_have_no_verdict(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    write_json(run / "summary.json", summary | {"stages": {"samples": summary["stages"]["samples"]}})
    (run / "recipe.yaml").write_text("stages: {samples: {name: sample}}\n")
    assert verdict(run) == Conclusions()
    text, parsed = page(run)
    assert_safe(text, parsed)
    assert "Did it learn" not in text


def test_a_number_that_compares_by_itself(run: Path) -> None:
    recipe(run, 'policy: {name: rl, model: "${out:sft}"}', 'sft: "${out:sft}", policy: "${out:policy}"')
    numbers = {"win_rate": {"words": "comparisons won", "better": "higher", "even": 0.5}}
    for won, status in ((0.8, "good"), (0.52, "unsure"), (0.1, "bad")):
        write_json(
            stage(run, "evaluate") / "out" / "metrics.json",
            {
                "baseline": "sft", "metrics": {"judged": {"policy": {"win_rate": estimate(won)}}},
                "meanings": {"judged": {"purpose": "goal", "numbers": numbers}},
            },
        )  # fmt: skip
        assert replies(run)[0].status == status


JUDGED = {"purpose": "goal", "numbers": {"win_rate": {"words": "comparisons won", "better": "higher", "even": 0.5}}}
FROM_SFT = "policy: {name: rl, model: {base: '${out:sft}', lora: {r: 4}}}"


def win_rates(folder: Path, baseline: str, **won: float) -> None:
    metric = {model: {"win_rate": estimate(share, 0.02)} for model, share in won.items()}
    report = {"baseline": baseline, "metrics": {"judged": metric}, "meanings": {"judged": JUDGED}}
    out = stage(folder, "evaluate") / "out"
    write_json(out / "metrics.json", report)
    won_by = {model: {"win_rate": weighted_mean(wins(model, share), range(1000))} for model, share in won.items()}
    symptoms = observations.read(out)
    assert symptoms is not None
    judged = Observed(won_by, {"resamples": 500, "level": 0.95, "seed": 0}, baseline)
    observations.write(out, replace(symptoms, metrics={**symptoms.metrics, "judged": judged}))


def wins(model: str, share: float) -> list[float]:
    """The share of 1,000 prompts, drawn for each model."""
    won = [1.0] * round(1000 * share)
    return random.Random(model).sample(won + [0.0] * (1000 - len(won)), 1000)


@pytest.mark.parametrize(
    ("sft", "status", "hacking_status"),
    [(0.08, "good", "good"), (0.3, "bad", "bad"), (0.14, "unsure", "unsure")],
)
def test_win_rates_against_another_opponent_are_compared_with_each_other(
    run: Path, sft: float, status: str, hacking_status: str
) -> None:
    answers_of_others = "{gpt4_turbo: {name: benchmark}}"
    recipe(run, FROM_SFT, "sft: {base: '${out:sft}'}, policy: {base: '${out:policy}'}", given=answers_of_others)
    win_rates(run, "gpt4_turbo", sft=sft, policy=0.15)
    learned, hacking = replies(run)
    assert (learned.status, hacking.status) == (status, hacking_status)
    (shown,) = re.findall(r"\(sft\) → 0.150 \(policy\); difference (\S+), interval (\S+) to (\S+);", texts(learned))
    change = np.array(wins("policy", 0.15)) - wins("sft", sft)
    drawn = np.random.default_rng(1).choice(change, (2000, 1000)).mean(1)  # paired by prompt
    expected = [change.mean(), *np.quantile(drawn, [0.025, 0.975])]
    assert [float(value.replace("−", "-")) for value in shown] == pytest.approx(expected, abs=0.003)


def test_win_rates_of_an_earlier_version_are_not_compared_with_each_other(run: Path) -> None:
    """It stored means alone, of which no difference is known."""
    recipe(run, FROM_SFT, "sft: '${out:sft}', policy: '${out:policy}'", given="{gpt4_turbo: {name: benchmark}}")
    win_rates(run, "gpt4_turbo", sft=0.08, policy=0.15)
    (stage(run, "evaluate") / "out" / "observations.jsonl").unlink()
    learned, hacking = replies(run)
    assert (learned.status, hacking.status) == ("unknown", "unknown")
    assert "no observations: it was measured by an earlier version of fgrl" in texts(learned)


def test_a_win_rate_against_another_opponent_alone_says_nothing(run: Path) -> None:
    recipe(run, FROM_SFT, "policy: '${out:policy}'", given="{gpt4_turbo: {name: benchmark}}")
    win_rates(run, "gpt4_turbo", policy=0.15)
    learned, hacking = replies(run)
    assert learned.short == "Unknown: the model that the training began with was not measured in the same way."
    assert hacking.status == "unknown"
    assert "nothing held out was measured that it can be compared with" in texts(hacking)


def test_numbers_that_cannot_be_compared_do_not_count_against_others(run: Path) -> None:
    models = "sft: '${out:sft}', policy: '${out:policy}'"
    recipe(
        run, f"sft: {{name: finetune, model: hub/base}}\n  {FROM_SFT}", models, given="{gpt4_turbo: {name: benchmark}}"
    )
    win_rates(run, "gpt4_turbo", sft=0.08, policy=0.15)
    learned, _ = replies(run)
    assert learned.short == "Yes, on held-out prompts."
    assert (
        "[evaluate]: 0.080 [0.060 to 0.100] (sft; higher is better); what the training began with has no number"
        in texts(learned)
    )


def test_the_opponent_of_a_metric_is_the_model_that_it_names(run: Path) -> None:
    metrics = "[{name: win_rate, title: judged, versus: first}]"
    models = "other: hub/other, first: '${out:sft}', policy: '${out:policy}'"
    recipe(run, FROM_SFT, models, baseline="other", metrics=metrics)
    win_rates(run, "other", other=0.4, policy=0.7)
    learned, _ = replies(run)
    assert (learned.status, "policy; higher" in texts(learned)) == ("good", True)


def test_a_reward_is_compared_with_the_goal_of_its_own_training(run: Path) -> None:
    models = "base: hub/base, sft: '${out:sft}', policy: '${out:policy}'"
    recipe(run, f"sft: {{name: finetune, model: hub/base}}\n  {FROM_SFT}", models)
    shares = {"base": 0.2, "sft": 0.5, "policy": 0.1}
    metric: dict[str, Any] = {model: {"kept": estimate(share)} for model, share in shares.items()}
    metric["differences"] = {model: {"kept": estimate(shares[model] - 0.2, 0.05)} for model in ("sft", "policy")}
    report = {"baseline": "base", "metrics": {"mine": metric}, "meanings": {"mine": GOAL}}
    write_json(stage(run, "evaluate") / "out" / "metrics.json", report)
    lines = [
        {
            "model": model,
            "sample": {"id": str(number), "prompt": "Tell me"},
            "response": {"text": text, "finished": True},
        }
        for model, text in (("base", LONG), ("sft", LONG), ("policy", "on and on and on and on and on and on and on"))
        for number in range(30)
    ]
    write_answers(stage(run, "evaluate") / "out", lines)
    learned, hacking = replies(run)
    assert learned.short == "Partly: some numbers improved, others got worse."
    assert hacking.short == "Very likely: the reward rose while the goal got worse."
    assert "of the word pairs" in texts(hacking, "unsure")


def test_each_of_several_trainings_is_judged_by_its_own_models(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    summary["stages"]["pairs"]["kind"] = "rl"  # its folder becomes that of a second training
    write_json(run / "summary.json", summary)
    write_lines(
        stage(run, "pairs") / "log.jsonl",
        [json.loads(line) for line in (stage(run, "policy") / "log.jsonl").read_text().splitlines()],
    )
    second = "\n  pairs: {name: rl, model: '${out:sft}'}"
    recipe(run, FROM_SFT + second, "sft: '${out:sft}', policy: '${out:policy}', pairs: '${out:pairs}'")
    goal(run, 0.2, 0.5)
    hacking = replies(run)[1]
    assert hacking.short == "Unknown: nothing held out was measured that the reward of pairs can be compared with."
    assert "[policy] Reward rose" in texts(hacking, "good")
    assert "[pairs] Reward rose" in texts(hacking, "unknown")


def test_models_that_nothing_trained_are_not_judged(run: Path) -> None:
    recipe(run, "policy: {name: rl, model: hub/small}", "small: hub/small, big: hub/big, policy: '${out:policy}'")
    shares = {"small": 0.5, "big": 0.9, "policy": 0.2}
    metric: dict[str, Any] = {model: {"kept": estimate(share)} for model, share in shares.items()}
    metric["differences"] = {model: {"kept": estimate(shares[model] - 0.5, 0.05)} for model in ("big", "policy")}
    report = {"baseline": "small", "metrics": {"mine": metric}, "meanings": {"mine": GOAL}}
    write_json(stage(run, "evaluate") / "out" / "metrics.json", report)
    learned, hacking = replies(run)
    assert (learned.status, hacking.status) == ("bad", "bad")
    assert "big" not in texts(learned)


def test_the_model_that_was_selected_is_the_one_of_its_training(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text())
    summary["stages"]["calibrate"]["summary"] = {"chosen": "early"}
    write_json(run / "summary.json", summary)
    select = "calibrate: {name: select, models: {early: {base: '${out:policy}', step: 5}}}"
    recipe(run, f"{FROM_SFT}\n  {select}", "sft: '${out:sft}', policy: '${out:calibrate}'")
    goal(run, 0.5, 0.2)
    assert replies(run)[1].short == "Very likely: the reward rose while the goal got worse."


@pytest.mark.parametrize(
    ("model", "stage_name"),
    [
        ("${out:policy}", "policy"), (" ${out: policy } ", "policy"), ({"base": "${out:policy}", "step": 5}, "policy"),
        (ModelSpec(base=Ref("policy")), "policy"), ("hub/id", None), ({"base": "hub/id"}, None),
        ({"base": 3}, None), ({}, None), (None, None), ("${out:}", None),
    ],
)  # fmt: skip
def test_the_stage_of_a_model(model: object, stage_name: str | None) -> None:
    assert stage_of(model) == stage_name


def test_what_changed_most(run: Path) -> None:
    more = {
        name: {
            "sft": {"x": estimate(1.0, 0.1)},
            "policy": {"x": estimate(1.0 + moved, 0.1)},
            "differences": {"policy": {"x": estimate(moved, half)}},
        }
        for name, moved, half in (("small", 0.3, 0.2), ("large", -3.0, 0.1), ("none", 0.1, 0.2), ("equal", 1.0, 0.0))
    }
    goal(run, 0.2, 0.5, **more)
    changes = verdict(run).changes
    assert [change.number for change in changes] == ["equal.x", "large.x", "mine.kept", "small.x"]
    assert [change.size for change in changes[:2]] == ["the same on every prompt", "7.3 SD"]
    assert [change.status for change in changes] == ["unknown", "unknown", "good", "unknown"]
    body = "".join(page(run)[1].text)
    assert "What changed most?" in body
    data = verdict(run).as_json()
    assert [each["number"] for each in data["changed_most"]] == [change.number for change in changes]
    assert json.loads(json.dumps(data)) == data


def test_conclusions_are_stored_with_a_run_that_has_ended(run: Path) -> None:
    goal(run, 0.2, 0.5)
    change(run / "summary.json", exit=None)
    assert renew(run) == verdict(run)
    assert Run(run).record.conclusions is None
    change(run / "summary.json", exit=0)
    assert renew(run) == Conclusions.model_validate(Run(run).record.conclusions) == verdict(run)


def test_the_page_draws_what_is_stored(run: Path) -> None:
    goal(run, 0.2, 0.5)
    renew(run)
    goal(run, 0.5, 0.2)
    assert "Yes, on held-out prompts." in "".join(page(run)[1].text)
    assert renew(run).replies[0].status == "bad"
    assert "No: it got worse on held-out prompts." in "".join(page(run)[1].text)


def test_trends() -> None:
    assert trend([1.0], [], 4) is None
    assert trend([0.0, 1.0, 2.0, 3.0], [], 0) == (0.0, 3.0, True)
    assert trend([0.0, 1.0], [], 0) == (0.0, 1.0, False), "nothing is known about its noise"
    assert trend([0.0, 1.0, 0.0, 1.0, 0.0, 1.0], [], 0) == (0.0, 1.0, False), "noisy"
    for spread, sure in ((9.0, False), (0.1, True)):
        assert trend([0.0, 1.0, 2.0, 3.0], [spread] * 4, 4) == (0.0, 3.0, sure)


def test_copied_passages() -> None:
    asked = ["say", "something", "about", "sewing", "in", "one", "or", "two", "short", "sentences"]

    def answer(text: str, question: str) -> Answer:
        return Answer(sample=Sample(id="1", prompt=question), response=Response(text=text, finished=True))

    def share(text: str) -> float | None:
        return copied_share(answer(text, " ".join(asked)), 4)

    assert share("Sewing in one or two words") == pytest.approx(5 / 6)
    assert share("one or two of them sewing") == 0
    assert share("") is None
    document = " ".join(f"word{number}" for number in range(100))
    quoting = answer("It is word1 word2 word3 word4 as the document tells on its first page", document)
    copying = answer("word1 word2 word3 word4 word5 word6", document)
    short = answer("In one or two short sentences: no", " ".join(asked))
    assert list(map(repeats_prompt, (quoting, copying, short, answer("", document)))) == [False, True, True, None]


def test_shares_as_text() -> None:
    assert [percent(share) for share in (0, 0.004, 0.05, 0.1, 0.384, 1)] == ["0%", "0.4%", "5.0%", "10%", "38%", "100%"]


def test_the_page_names_what_is_better(run: Path) -> None:
    goal(run, 0.2, 0.5)
    body = "".join(page(run)[1].text)
    assert "share that satisfies the rule mine.kept ↑ higher is better" in " ".join(body.split())
    change(stage(run, "evaluate") / "out" / "metrics.json", meanings={})
    assert "is better" not in "".join(page(run)[1].text).replace("which side of it is better", "")


def test_a_good_reply_names_its_reason_before_what_is_open() -> None:
    good = Finding(status="good", text="the rule is kept more often")
    other = Finding(status="good", text="and answers are shorter")
    unsure = Finding(status="unsure", text="accuracy on few rows")
    reply = Reply(status="good", question="Did it learn?", short="Yes.", findings=[unsure, good, other])
    assert [each.text for each in reply.telling] == [good.text, unsure.text]
    assert reply.rest == [other]
    lines = Conclusions(replies=[reply]).lines()
    assert [line.strip()[2:] for line in lines[1:]] == [good.text, unsure.text]
    doubtful = reply.model_copy(update={"status": "unsure"})
    assert doubtful.telling == [unsure]
