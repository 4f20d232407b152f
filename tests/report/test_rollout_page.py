"""The rollouts of a training on the page: which iterations, with a critic or without, and what is missing."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from fake_runs import fake_run, write_lines
from pages import assert_safe, page, stage

from fgrl.pages.report.page import MOST_LAYERS
from fgrl.pages.report.rollouts import ADVANTAGE, MOST_COLUMNS, MOST_ROLLOUTS, StoredRollouts, rollouts_section
from fgrl.training.stored_rollouts import CREDIT, StoredRollout

TITLES = re.compile(r'<i class="t ([^"]*)" title="([^"]*)">')


def line(iteration: int = 0, rewards: Any = (1.0, -1.0, None), advantages: Any = (0.5, -2.0, 1.0), **more: Any) -> dict[str, Any]:  # fmt: skip
    """A rollout of three tokens, the last of which ends it."""
    return {
        "iteration": iteration, "model": "policy", "sample": {"id": "1", "prompt": f"prompt of {iteration}"},
        "response": {"text": "ab", "finished": True, "score": 0.25}, "tokens": ["a", "b", "</s>"], "offsets": [[0, 1], [1, 2], [2, 2]],
        "token_rewards": {"r": list(rewards)}, "advantages": list(advantages) if advantages else None, **more,
    }  # fmt: skip


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return fake_run(tmp_path, prompts=2, points=3, steps=3)


def section(run: Path, rows: list[dict[str, Any]], place: str = "out/rollouts.jsonl") -> str:
    write_lines(stage(run, "policy") / place, rows)
    text, parsed = page(run)
    assert_safe(text, parsed)
    drawn = re.search(r'<section class="rollouts".*?</section>', text, re.DOTALL)
    assert drawn
    return drawn[0]


def section_of(rows: list[dict[str, Any]]) -> StoredRollouts | None:
    return rollouts_section(map(StoredRollout.model_validate, rows))


def words(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", html))


def test_rewards_without_a_critic_show_reward_and_advantage(run: Path) -> None:
    shown = section(run, [line(segments={"r": [0, 1, -1]})])
    assert [title for _level, title in TITLES.findall(shown) if title.startswith("token")] == [
        "token 1 of 3 · reward +1 · segment 1", "token 2 of 3 · reward −1 · segment 2", "token 3 of 3 · no reward · ends the answer",
        "token 1 of 3 · advantage +0.500", "token 2 of 3 · advantage −2", "token 3 of 3 · advantage +1 · ends the answer",
    ]  # fmt: skip
    assert shown.count('<span class="seg') == 2, "advantages have no segments"
    assert "token reward (r)" in shown
    assert "advantage that was trained on" in shown
    assert "annotation" not in shown
    assert "poor passage" not in shown, "no legend of what there is not"
    assert "total reward 0 response reward +0.250 tokens 3" in words(shown)


@pytest.mark.parametrize(
    ("by_token", "facts"),
    [
        (True, "total reward 0 (trained on) response reward +0.250"),
        (False, "total reward 0 response reward +0.250 (trained on)"),
    ],
)
def test_the_reward_that_is_trained_on_is_named(run: Path, by_token: bool, facts: str) -> None:
    assert facts in words(section(run, [line(by_token=by_token)]))


def test_one_number_needs_no_mark(run: Path) -> None:
    assert "total reward +0.250 tokens" in words(section(run, [line(rewards=[0.25, None, None], by_token=True)]))


def test_iterations_in_their_order(run: Path) -> None:
    shown = section(run, [line(7), line(0), line(3), line(3)])
    assert re.findall(r"Iteration (\d+) <small>(\w+)</small>", shown) == [
        ("0", "first"),
        ("3", "middle"),
        ("7", "last"),
    ]
    assert re.findall(r"prompt of (\d)", shown) == ["0", "3", "3", "7"]


def test_a_training_that_has_not_ended_shows_its_newest_iteration(run: Path) -> None:
    for iteration in (0, 10, 9):
        shown = section(run, [line(iteration)], f"rollouts/{iteration}.jsonl")
    assert re.findall(r"Iteration (\d+) <small>(\w+)</small>", shown) == [
        ("0", "first"),
        ("9", "middle"),
        ("10", "newest"),
    ]


def test_what_is_missing_is_named(run: Path) -> None:
    failed = line(rewards=(None, None, None), advantages=None, annotations={"r": None})
    del failed["response"]["score"]
    left_out = line(advantages=None, tokens_left_out=7, spans_left_out=2, annotations={"r": {"critique": "Fine."}})
    empty = line() | {"response": {"text": "", "finished": False, "score": 0.0}, "tokens": []}
    unrewarded = line(rewards=(None, None, None))
    shown = section(run, [failed, left_out, empty, unrewarded])
    failed_part, left_out_part, empty_part, unrewarded_part = map(words, shown.split('<article class="exchange">')[1:])
    assert "token reward (r) on no token" in unrewarded_part
    assert "poor passage" in words(shown)
    assert "The critique is missing" in failed_part
    assert "the reward is missing, so the response was not trained on" in failed_part
    assert "a b" in failed_part, "the answer is drawn without values"
    assert "the algorithm left the response out of training" in left_out_part
    assert "The last 7 tokens of the response are not stored" in left_out_part
    assert "2 marked passages of the response are not stored" in left_out_part
    assert "tokens 10" in left_out_part
    assert "empty cut off" in empty_part


def test_where_the_sign_has_a_meaning_zero_is_neutral() -> None:
    """Nearly all labels of a critic may be poor; a reward model's rewards have no such middle."""
    rows = [line(rewards=[-2.0, -1.0, None], advantages=[1.0, 2.0, 3.0]) for _ in range(30)]
    plain, labelled = section_of(rows), section_of([row | {"annotations": {"r": {}}} for row in rows])
    assert plain is not None
    assert labelled is not None
    assert [(scale.reward, scale.middle) for scale, _ in plain.numbers.scales] == [("r", -1.0), (ADVANTAGE, 0.0)]
    assert [(scale.reward, scale.middle) for scale, _ in labelled.numbers.scales] == [("r", 0.0), (ADVANTAGE, 0.0)]
    assert labelled.numbers.scales[0][0].level(-2.0) == "n5"
    constant = section_of([line(rewards=[-0.5, -0.5, None])])
    assert constant is not None
    assert constant.numbers.scales[0][0].level(-0.5) == "n5", "values that do not differ are not neutral"
    assert [len(iteration.exchanges) for iteration in plain.iterations] == [MOST_ROLLOUTS]


@pytest.mark.parametrize(
    "rows", [[], [{}], [{"iteration": "3"}], [{"iteration": True}], [{"iteration": None, "tokens": 3}]]
)
def test_no_rollouts_no_section(rows: list[dict[str, Any]], run: Path) -> None:
    write_lines(stage(run, "policy") / "out" / "rollouts.jsonl", rows)
    text, _ = page(run)
    assert 'id="rollouts"' not in text
    assert 'href="#rollouts"' not in text


def test_columns_are_drawn_between_reward_and_advantage(run: Path) -> None:
    shown = section(run, [line(columns={"weight": [2.0, 0.5, None], "prm_logp": [-1.0, -2.0, -3.0]})])
    names = ["token reward (r)", "weight", "prm_logp", "advantage that was trained on"]
    assert re.findall(r'<input type="radio" class="pick-(\d)" name="rollouts-1"( checked)?><span>([^<]*)<', shown) == [
        (str(place), "" if place else " checked", name) for place, name in enumerate(names)
    ]
    assert re.findall(r'<p class="text layer layer-(\d)"', shown) == ["0", "1", "2", "3"], "one is seen at a time"
    titles = [title for _level, title in TITLES.findall(shown) if title.startswith("token")]
    assert titles[3:9] == [
        "token 1 of 3 · weight +2", "token 2 of 3 · weight +0.500", "token 3 of 3 · no weight · ends the answer",
        "token 1 of 3 · prm_logp −1", "token 2 of 3 · prm_logp −2", "token 3 of 3 · prm_logp −3 · ends the answer",
    ]  # fmt: skip
    legends = re.findall(
        r'<div class="layer layer-(\d)"><div class="legend".*?<span class="name">([^<]*)</span>',
        re.sub("\n", "", shown),
    )
    assert legends == [(str(place), name) for place, name in enumerate(names)]


def test_one_of_the_drawings_is_seen_at_a_time(run: Path) -> None:
    section(run, [line(columns={"weight": [2.0, 0.5, None]})])
    css = page(run)[0].partition("</style>")[0]
    for place in range(MOST_LAYERS):
        assert f"section:has(.pick-{place}:checked) .layer:not(.layer-{place}){{display:none}}" in css


def test_an_annotated_response_is_drawn_once(run: Path) -> None:
    spans = [{"start": 1, "end": 2, "label": -1, "reasons": ["vague"]}]
    shown = section(run, [line(annotations={"r": {"critique": "Fine.", "spans": spans}})])
    first = re.search(r'<p class="text layer layer-0"[^>]*>(.*?)</p>', shown)
    assert first
    assert (
        '<span class="mark poor lane-0"><i class="t n5" title="token 2 of 3 · reward −1 · 1 poor">b</i></span>'
        in first[1]
    )
    assert shown.count('<p class="text') == 2, "for the reward and for the advantage, nothing for the annotation alone"
    assert "1poor b — vague" in re.sub("<[^>]*>", "", shown)


def test_more_columns_than_are_drawn_are_named(run: Path) -> None:
    many = {f"column{number}": [float(number)] * 3 for number in range(MOST_COLUMNS + 2)}
    shown = section(run, [line(columns=many)])
    assert f"Not drawn: column{MOST_COLUMNS}, column{MOST_COLUMNS + 1}." in shown
    assert shown.count("<span>column") == MOST_COLUMNS


def credited(side: str, **more: Any) -> dict[str, Any]:
    return {
        "model": side, "sample": {"id": "1", "prompt": "Why <b>?"}, "response": {"text": "ab", "finished": True},
        "tokens": ["a", "b", "</s>"], "offsets": [[0, 1], [1, 2], [2, 2]], "columns": {"implicit_reward": [0.5, -0.25, None]}, **more,
    }  # fmt: skip


def test_credit_of_pairs_and_of_samples(run: Path) -> None:
    """Both responses of a pair stand below one prompt."""
    write_lines(
        stage(run, "policy") / "out" / CREDIT,
        [credited("chosen"), credited("rejected", tokens_left_out=5), credited("response")],
    )
    text, parsed = page(run)
    assert_safe(text, parsed)
    drawn = re.search(r'<section class="rollouts" id="credit".*?</section>', text, re.DOTALL)
    assert drawn
    assert 'href="#credit"' in text
    pair, sample = drawn[0].split('<article class="exchange">')[1:]
    assert (pair.count("Why"), sample.count("Why")) == (1, 1)
    assert re.findall(r"<h[34]>([^<]*)</h", pair) == ["chosen", "rejected"]
    assert '<span class="name">implicit_reward</span>' in drawn[0]
    assert "The last 5 tokens of the response are not stored" in words(pair)
    assert TITLES.findall(sample)[-3:] == [
        ("p5", "token 1 of 3 · implicit_reward +0.500"),
        ("n2", "token 2 of 3 · implicit_reward −0.250"),
        ("end", "token 3 of 3 · no implicit_reward · ends the answer"),
    ]


@pytest.mark.parametrize("rows", [[], [{}], [{"columns": {}}]])
def test_no_credit_no_section(rows: list[dict[str, Any]], run: Path) -> None:
    write_lines(stage(run, "policy") / "out" / CREDIT, rows)
    text, _ = page(run)
    assert 'id="credit"' not in text


def test_a_pair_without_its_first_response_is_drawn(run: Path) -> None:
    """A damaged file."""
    write_lines(stage(run, "policy") / "out" / CREDIT, [credited("rejected")])
    text, parsed = page(run)
    assert_safe(text, parsed)
    assert "rejected" in text
