"""Answers on the page: their order, whether they pass, and what breaks a rule."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from browsers import chromium
from fake_runs import fake_run, write_lines
from pages import assert_safe, page, stage

from fgrl.measuring.answer import Answer
from fgrl.pages.report.answers import MOST_PROMPTS, MOST_RANKED, Answers, answers_section

COUNT = 40


def line(model: str, number: int, reward: float | None, text: str = "some words here", **more: Any) -> dict[str, Any]:
    own: dict[str, Any] = {
        "model": model, "sample": {"id": f"p{number}", "prompt": f"prompt {number}"},
        "response": {"text": text, "finished": True},
    }  # fmt: skip
    return own | ({} if reward is None else {"rewards": {"r": reward}}) | more


def many(**more: Any) -> list[dict[str, Any]]:
    """Prompt n has the reward n - 10 after training, and 0 before."""
    before = [line("sft", number, 0.0) for number in range(COUNT)]
    return before + [line("policy", number, float(number - 10), **more) for number in range(COUNT)]


def section_of(lines: list[dict[str, Any]], baseline: str) -> Answers:
    return answers_section(map(Answer.model_validate, lines), baseline)


def in_order(shown: Answers, order: str) -> list[str]:
    return [exchange.id for exchange in sorted(shown.exchanges, key=lambda exchange: exchange.ranks[order])]


def test_best_worst_and_most_changed_come_from_all_prompts() -> None:
    shown = section_of(many(), "sft")
    assert shown.first == MOST_PROMPTS
    assert shown.ordered_by == "the reward r of policy"
    assert [order for order, _words in shown.orders] == ["best", "worst", "changed"]
    best = in_order(shown, "best")
    assert best[:MOST_RANKED] == [f"p{number}" for number in range(COUNT - 1, COUNT - 1 - MOST_RANKED, -1)]
    assert in_order(shown, "worst") == best[::-1]
    assert in_order(shown, "changed")[:2] == ["p39", "p38"]  # |29|, |28|; p0 has |-10|
    assert len(shown.exchanges) == MOST_PROMPTS + MOST_RANKED
    assert [exchange.id for exchange in shown.exchanges if exchange.is_first] == [f"p{n}" for n in range(MOST_PROMPTS)]


def test_missing_rewards_are_neither_best_nor_worst() -> None:
    lines = [*many(), line("sft", 50, 0.0), line("policy", 50, None, rewards={"r": None})]
    shown = section_of(lines[:4] + lines[COUNT : COUNT + 4] + lines[-2:], "sft")
    assert in_order(shown, "best")[-1] == in_order(shown, "worst")[-1] == "p50"


def test_without_rewards_verdicts_count_and_without_both_the_texts() -> None:
    passes = [line("sft", n, None) for n in range(3)] + [
        line("policy", n, None, verdicts={"rule": n == 1}) for n in range(3)
    ]
    shown = section_of(passes, "sft")
    assert shown.ordered_by == "the share of passed checks of policy"
    assert in_order(shown, "best")[0] == "p1"
    changed = [line("sft", n, None) for n in range(3)] + [
        line("policy", n, None, "other" if n == 2 else "some words here") for n in range(3)
    ]
    shown = section_of(changed, "sft")
    assert (shown.orders, in_order(shown, "changed")[0]) == ([("changed", "most changed first")], "p2")
    assert shown.ordered_by == "the texts of policy"


def test_one_prompt_and_no_answers_have_no_orders() -> None:
    assert section_of([line("sft", 1, 0.0), line("policy", 1, 1.0)], "sft").orders == []
    assert section_of([], "sft").orders == []


def test_pass_and_fail_are_told_in_words_and_broken_parts_are_marked(tmp_path: Path) -> None:
    folder = fake_run(tmp_path, prompts=1, points=3, steps=3)
    tokens = {
        "tokens": ["one", ",", " two"],
        "offsets": [[0, 3], [3, 4], [4, 8]],
        "token_rewards": {"r": [1.0, -1.0, 0.5]},
    }
    lines = [
        line("sft", 1, None, "one, two", **tokens, verdicts={"rule": False},
             violations={"rule": [{"start": 3, "end": 4, "label": -1}]}),
        line("policy", 1, None, "one two", verdicts={"rule": True}),
        line("policy", 2, None, "x", verdicts={"rule": None}),
        line("sft", 2, None, "x", criteria={"rubric": [{"text": "a", "kept": True}, {"text": "b", "kept": False}]}),
    ]  # fmt: skip
    write_lines(stage(folder, "evaluate") / "out" / "answers.jsonl", lines)
    text, parsed = page(folder)
    assert_safe(text, parsed)
    assert "A wavy line marks what breaks a rule." in text
    assert 'class="t n5 breaks" title="token 2 of 3 · reward −1 · breaks a rule"' in text
    assert text.count(" breaks a rule") == 1 + 1  # the token, and the sentence
    for words, kind in (
        ("✗ fails rule", "broken"), ("✓ passes rule", "kept"), ("? undecided: rule", "missing"),
        ("✗ fails rubric (1 of 2)", "broken"),
    ):  # fmt: skip
        assert f'<b class="criterion-verdict {kind}">{words}</b>' in text


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = fake_run(tmp_path_factory.mktemp("orders"), prompts=2, points=20, steps=40)
    write_lines(stage(folder, "evaluate") / "out" / "answers.jsonl", many(verdicts={"rule": False}))
    page(folder)
    return folder / "report.html"


def prompts_from_top(desk: Any) -> list[str]:
    """The prompts that are visible, from the top of the page down."""
    places = desk.evaluate(
        """[...document.querySelectorAll('.exchanges > .exchange')].filter(each => each.offsetParent)
        .map(each => [each.getBoundingClientRect().top, each.querySelector('.prompt').innerText.trim()])"""
    )
    return [text for _top, text in sorted(places)]


@pytest.mark.parametrize("width", [1300, 420])
def test_orders_in_a_browser(browser: Any, report: Path, width: int) -> None:
    with browser.new_context(viewport={"width": width, "height": 900}) as context:
        desk = context.new_page()
        errors: list[str] = []
        desk.on("console", lambda message: errors.append(message.text))
        desk.goto(report.as_uri())
        assert prompts_from_top(desk) == [f"prompt {number}" for number in range(MOST_PROMPTS)]
        for label, expected in (
            ("best first", "prompt 39"),
            ("worst first", "prompt 0"),
            ("most changed first", "prompt 39"),
        ):
            desk.get_by_label(label).check()
            seen = prompts_from_top(desk)
            assert (seen[0], len(seen)) == (expected, MOST_PROMPTS + MOST_RANKED)
        desk.get_by_label("as in the file").check()
        assert prompts_from_top(desk)[0] == "prompt 0"
        assert desk.evaluate("document.documentElement.scrollWidth") <= width  # nothing sticks out
        verdict = desk.locator("#verdict").bounding_box()
        assert verdict["y"] < 450  # the first screen begins with the verdict
        assert errors == []


def test_axe_finds_nothing_serious_in_the_report(browser: Any, report: Path) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")
    found = []
    for scheme, width in (("light", 1300), ("dark", 420)):
        with browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme) as context:
            desk = context.new_page()
            desk.goto(report.as_uri())
            desk.evaluate("document.querySelectorAll('details').forEach(each => { each.open = true })")
            violations = axe.Axe().run(desk, options={"resultTypes": ["violations"]}).response["violations"]
            found += [
                f"{scheme}: {violation['id']}: {node['html'][:160]}"
                for violation in violations
                if violation["impact"] in ("serious", "critical")
                for node in violation["nodes"]
            ]
    assert found == []
