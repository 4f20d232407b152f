"""Little effort per item, in a real browser: keys, whole words, Markdown, suggestions, the lists of items and the manager's page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from annotation_browser import MANAGER, TEXTS, Desk, Site, items, served, settings, units
from browsers import chromium
from keyboard_annotator import Keyboard, Marked, annotate, as_marked, paper_items

from fgrl.feedback.page_settings import load_settings
from fgrl.pages.annotation.export import exported
from fgrl.types import Annotation, Response, Sample, Span, read_jsonl, write_jsonl

MOST_KEYS = 70
MARKDOWN = "# A *first* title\n\nSome **bold words 🎉** and `code_1 * 2`, see [the page](https://example.org/x).\n- one_two_three\n1. **Note:** 2 * 3 * 4\n\n```python\n# no title **x**\n```\n> said <b>so</b>"
BY_RULES = Annotation(
    by="rules",
    spans=[
        Span(start=0, end=8, label=-1.0, reasons=["too_wordy"]),
        Span(start=27, end=33, label=1.0),
        Span(start=40, end=44, label=-1.0),
    ],
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def desk(browser: Any, tmp_path: Path) -> Iterator[Desk]:
    with served(tmp_path) as site, browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        desk = Desk(site, context)
        yield desk
        assert desk.errors == []


def opened(desk: Desk) -> None:
    desk.page.wait_for_selector("#reasons[open]")


# -- keys ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, pytest.param(40, marks=pytest.mark.evidence)])
def test_items_of_the_papers_size_take_few_keys(browser: Any, tmp_path: Path, count: int) -> None:
    with (
        served(tmp_path, paper_items(count), load_settings("retrieval")) as site,
        browser.new_context(viewport={"width": 1400, "height": 900}) as context,
    ):
        desk = Desk(site, context)
        pressed, meant = [], {}
        for number in range(1, count + 1):
            keyboard = Keyboard(desk)
            meant[number] = annotate(keyboard, site, number)
            pressed.append(len(keyboard.pressed))
            desk.at_item(number + 1) if number < count else desk.page.wait_for_selector("#finished")
        assert desk.errors == []
        write_jsonl(tmp_path / "annotated.jsonl", exported(site.store, finished=True))
        assert {number: as_marked(site, number) for number in meant} == meant
    print(f"keys per item: {sorted(pressed)}")
    assert max(pressed) <= MOST_KEYS
    for number, sample in enumerate(read_jsonl(tmp_path / "annotated.jsonl", Sample), start=1):
        found = {
            Marked(response.text[span.start : span.end], int(span.label), frozenset(span.reasons))
            for response in sample.responses
            for span in response.spans
        }
        assert found == meant[number]
        assert (len(found), sum(len(mark.reasons) for mark in found)) == (10, 40)
        assert [(verdict.by, verdict.reason) for verdict in sample.verdicts or []] == [("ann", "clearer")]


def test_reasons_have_keys_and_a_legend(desk: Desk) -> None:
    press, legend = desk.page.keyboard.press, desk.page.locator("#legend")
    assert not legend.is_visible()
    press("s")
    assert legend.is_visible()
    assert "It states something that's factually wrong." in legend.inner_text()
    press("l")
    assert "It directly answers my question." in legend.inner_text()
    press("2")
    opened(desk)
    press("w")  # in the second row of keys, the twelfth reason
    press("2")  # again: not ticked
    press("-")
    desk.page.keyboard.type("2 q")  # Other leads into its text field
    press("Control+Enter")
    desk.saved()
    (span,) = desk.site.spans()
    assert (span["label"], span["reasons"], span["note"]) == (1, ["explains_concept", "other"], "2 q")
    press("s")
    press("Escape")
    press("3")
    assert not desk.page.locator("#reasons").is_visible(), "without a selection a digit does nothing"


def test_a_slip_costs_nothing(desk: Desk) -> None:
    desk.page.keyboard.press("s")
    desk.page.keyboard.press("4")
    opened(desk)
    desk.page.keyboard.press("Escape")
    desk.saved()
    assert desk.site.spans() == []
    desk.page.keyboard.press("Control+z")
    desk.saved()
    assert [span["reasons"] for span in desk.site.spans()] == [["off_topic"]]


def test_the_last_reasons_are_repeated(desk: Desk) -> None:
    press = desk.page.keyboard.press
    for key in ["s", ".", "1", "3", "s", ".", "s", "2"]:
        press(key)
    opened(desk)
    press(".")
    press("5")
    press("Enter")
    desk.saved()
    spans = [(span["place"], span["reasons"]) for span in desk.site.spans()]
    assert sorted(reasons for _place, reasons in spans) == [
        ["factually_wrong", "adds_nothing"],
        ["factually_wrong", "adds_nothing"],
        ["factually_wrong", "adds_nothing", "offensive"],
    ]
    press("l")
    press("s")
    press(".")
    assert "no reasons to repeat" in desk.said(), "reasons of dislikes are none of likes"


def test_sentences_and_words_are_selected_one_after_another(desk: Desk) -> None:
    order = desk.site.store.state("item-1", "ann").order
    press, selected = desk.page.keyboard.press, lambda: desk.page.evaluate("getSelection().toString()")
    sentences = {0: ["The café opens at eight.", "🎉 It is cheap, and it is loud.", "It has a garden, where children play.", "Nobody goes home hungry."], 1: ["It opens at nine.", "It is dear; nobody goes there twice."]}  # fmt: skip
    for sentence in [*sentences[order[0]], *sentences[order[1]]]:
        press("s")
        assert selected() == sentence
    press("s")
    assert "no further sentence" in desk.said()
    press("Shift+S")
    assert selected() == sentences[order[1]][-2]
    words = sentences[order[1]][-2].rstrip(".").replace(",", "").split(" ")
    for key, wanted in [
        ("f", words[:1]),
        ("f", words[1:2]),
        ("x", words[1:3]),
        ("x", words[1:4]),
        ("Shift+X", words[1:3]),
    ]:
        press(key)
        assert selected().replace(",", "").split(" ") == wanted


def test_keys_can_be_turned_off(desk: Desk) -> None:
    desk.page.evaluate("localStorage.setItem('annotate:page:letters', 'off')")
    desk.page.reload()
    desk.page.wait_for_selector(".response")
    desk.select(0, 4, 9)
    for key in "1s.":
        desk.page.keyboard.press(key)
    assert not desk.page.locator("#reasons").is_visible()
    assert desk.page.locator(".choice kbd, #legend:not([hidden])").count() == 0


# -- whole words -----------------------------------------------------------------------------------------------------------


def test_marks_cover_whole_words_unless_told_otherwise(desk: Desk) -> None:
    text = TEXTS[0]
    start, end = units(text, "fé opens at ei")
    desk.drag(0, start, end)
    desk.tick("It's too wordy.")
    desk.save()
    desk.select(0, *units(text, " loud"))
    desk.page.keyboard.press("m")
    desk.save()
    assert [span["quote"] for span in desk.site.spans()] == ["café opens at eight", "loud"]
    desk.page.keyboard.press("c")
    assert desk.page.locator("#exact").get_attribute("aria-pressed") == "false"
    desk.drag(0, *units(text, "arden, wh"))
    desk.save()
    desk.page.get_by_role("button", name="Whole words").click()
    desk.select(0, *units(text, " hom"))
    desk.page.keyboard.press("m")
    desk.save()
    assert [span["quote"] for span in desk.site.spans()][2:] == ["arden, wh", "home"]


# -- Markdown --------------------------------------------------------------------------------------------------------------


def test_markdown_is_readable_and_offsets_stay_those_of_the_text(browser: Any, tmp_path: Path) -> None:
    with served(tmp_path, items(1, (MARKDOWN, TEXTS[1]))) as site, browser.new_context() as context:
        desk = Desk(site, context)
        host = desk.page.locator("#text-0")
        assert host.evaluate("host => host.textContent") == MARKDOWN
        shown = host.inner_text().replace("\n\n", "\n")
        assert "A first title" in shown
        assert "Some bold words 🎉 and code_1 * 2, see the page." in shown
        assert "one_two_three" in shown
        assert "1. Note: 2 * 3 * 4" in shown
        assert "# no title **x**" in shown
        assert "said <b>so</b>" in shown
        assert host.evaluate("host => host.querySelectorAll('a, b, code, h1').length") == 0, "nothing is parsed as HTML"
        bold = host.locator(".md-strong").first
        assert bold.evaluate("part => [getComputedStyle(part).fontWeight, part.textContent]") == [
            "700",
            "bold words 🎉",
        ]
        for part in [
            "Some **bold",
            "bold words 🎉",
            "bold words 🎉** and `code_1 * 2",
            "first",
            "Note:** 2",
            "the page",
        ]:
            desk.select(0, *units(MARKDOWN, part))
            desk.page.keyboard.press("m")
            desk.save()
        stored = site.spans()
        for span in stored:
            assert MARKDOWN[span["start"] : span["end"]] == span["quote"]
        assert {span["quote"] for span in stored} == {
            "Some **bold", "**bold words 🎉**", "**bold words 🎉** and `code_1 * 2`", "*first*", "**Note:** 2",
            "[the page](https://example.org/x)",
        }, "signs that stand around all of a passage belong to it"  # fmt: skip
        desk.page.evaluate("localStorage.setItem('annotate:page:markdown', 'raw')")
        desk.page.reload()
        desk.page.wait_for_selector("#text-0 mark")
        assert "**bold words 🎉**" in host.inner_text()
        assert desk.errors == []


@pytest.mark.parametrize("sign", ["*", "**", "_", "`", "[", "[x](", "```\n", "# ", "> - ", "\\*", "*a", "**a "])
def test_strange_markdown_is_shown_as_it_is_written(desk: Desk, sign: str) -> None:
    for text in (sign, sign * 300, f"x {sign * 700}\n{sign}y"):
        looks = desk.page.evaluate(
            "async (text) => (await import('/static/markdown.js')).looksOf(text).map(({ start, end }) => [start, end])",
            text,
        )
        assert all(0 <= start < end <= len(text) for start, end in looks)


# -- suggestions and items that cannot be judged ---------------------------------------------------------------------------


@pytest.fixture
def suggesting(browser: Any, tmp_path: Path) -> Iterator[Desk]:
    responses = [Response(text=TEXTS[0], annotations=[BY_RULES]), Response(text=TEXTS[1])]
    samples = [sample.model_copy(update={"responses": responses}) for sample in items(2)]
    with (
        served(tmp_path, samples, settings(suggestions=True)) as site,
        browser.new_context(viewport={"width": 1280, "height": 900}) as context,
    ):
        desk = Desk(site, context)
        yield desk
        assert desk.errors == []


def decided(site: Site) -> list[tuple[str, bool]]:
    own = next(exported(site.store)).meta["annotation"]["by"]["ann"].get("suggestions", [])
    return [(one["id"], one["accepted"]) for one in own]


def test_suggestions_are_accepted_and_rejected_one_by_one(suggesting: Desk) -> None:
    desk, press = suggesting, suggesting.page.keyboard.press
    assert desk.page.locator("#text-0 mark.suggested").count() == 3
    press("h")
    assert "Suggested dislike: The café" in desk.said()
    press("Enter")
    desk.saved()
    (span,) = desk.site.spans()
    assert (span["quote"], span["label"], span["reasons"]) == ("The café", -1, ["too_wordy"])
    press("Delete")  # the next one has become the current one
    desk.saved()
    assert decided(desk.site) == [("0.0.0", True), ("0.0.1", False)]
    press("Control+z")
    desk.saved()
    assert decided(desk.site) == [("0.0.0", True)]
    # one without a reason asks for it when it is accepted, here with the mouse
    desk.page.locator(".entry", has_text=TEXTS[0][27:33]).get_by_role("button", name="Accept").click()
    opened(desk)
    desk.tick("It states a useful fact.")
    desk.save()
    press("v")
    press("1")
    press("Control+Enter")
    desk.page.locator("#missing", has_text="1 suggestion is neither accepted nor rejected").wait_for()
    desk.page.get_by_role("button", name="Reject").click()
    desk.saved()
    press("Control+Enter")
    desk.at_item(2)
    assert decided(desk.site) == [("0.0.0", True), ("0.0.1", True), ("0.0.2", False)]
    assert [span["reasons"] for span in desk.site.spans()] == [["too_wordy"], ["useful_fact"]]


def test_a_mark_after_a_suggestion_is_no_answer_to_it(suggesting: Desk) -> None:
    press = suggesting.page.keyboard.press
    for key in ["h", "s", "1"]:
        press(key)
    opened(suggesting)
    press("Enter")
    suggesting.saved()
    press("Enter")  # at the caret: the mark that was made, not the suggestion
    assert decided(suggesting.site) == []


def test_an_item_that_cannot_be_judged(desk: Desk) -> None:
    desk.page.keyboard.press("j")
    desk.page.keyboard.press("Control+Enter")
    desk.page.locator("#missing", has_text="no comment that says why").wait_for()
    desk.page.locator("#cannot-judge-comment").fill("It is in another language.")
    desk.page.keyboard.press("Control+Enter")
    desk.at_item(2)
    assert desk.site.store.state("item-1", "ann").unjudged == "It is in another language."
    desk.page.get_by_role("button", name="Items").click()
    row = desk.page.locator(".items button", has_text="Item 1")
    assert "cannot be judged" in row.inner_text()
    row.click()
    desk.at_item(1)
    assert desk.page.locator("#cannot-judge").is_checked()
    assert desk.page.locator("#cannot-judge-comment").input_value() == "It is in another language."
    desk.page.locator("#cannot-judge").uncheck()
    desk.saved()
    assert desk.site.store.state("item-1", "ann").unjudged is None


# -- lists and the manager's page ------------------------------------------------------------------------------------------


def test_items_are_found_by_words_and_by_state(browser: Any, tmp_path: Path) -> None:
    samples = [sample.model_copy(update={"prompt": f"Question about {word}?"}) for sample, word in zip(items(3), ["<b>cats</b>", "dogs", "big dogs"], strict=True)]  # fmt: skip
    with served(tmp_path, samples) as site, browser.new_context() as context:
        for item in site.store.items:
            site.store.open(item, "ann")
        site.store.append("item-2", "ann", "done", "", {"done": True})
        desk = Desk(site, context)
        desk.page.get_by_role("button", name="Items").click()
        names = desk.page.locator(".items .name")
        names.first.wait_for()
        assert names.all_inner_texts()[0].split("\n") == ["Item 1", "Question about <b>cats</b>?"]
        desk.page.get_by_role("searchbox").fill("dogs question")
        assert [text[:6] for text in names.all_inner_texts()] == ["Item 2", "Item 3"]
        desk.page.get_by_label("State").select_option("done")
        assert [text[:6] for text in names.all_inner_texts()] == ["Item 2"]
        names.first.click()
        desk.at_item(2)


def test_the_managers_page(browser: Any, tmp_path: Path) -> None:
    with (
        served(tmp_path, items(2, (MARKDOWN, TEXTS[1])), annotators=["ann", "<i>ben</i>"]) as site,
        browser.new_context() as context,
    ):
        for name, better in (("ann", 0), ("<i>ben</i>", 1)):
            start = MARKDOWN.index("bold")
            span = {
                "place": 0,
                "start": start,
                "end": start + 4,
                "quote": "bold",
                "label": -1,
                "reasons": ["too_wordy"],
                "note": "",
            }
            site.store.append("item-1", name, "span", "s", span)
            site.store.append(
                "item-1", name, "verdict", "", {"better": better, "reason": "<script>window.broken = 1</script>"}
            )
            site.store.append("item-1", name, "done", "", {"done": True})
        page = context.new_page()
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(site.links[MANAGER])
        page.locator(".items button").first.wait_for()
        assert page.url.endswith("/manage"), "the session's key does not stay in the address"
        rows = page.locator("table").first.locator("tbody tr").all_inner_texts()
        assert [row.split("\t")[:4] for row in rows] == [["ann", "1", "0", "1"], ["<i>ben</i>", "1", "0", "1"]]
        assert page.get_by_role("rowheader", name="Fleiss' kappa").count() == 1
        page.get_by_label("State").select_option("differ")
        assert page.locator(".items button").count() == 1
        page.locator(".items button").click()
        review = page.locator("#review[open]")
        assert "Prefers response B: <script>" in review.inner_text()
        assert review.locator("mark").count() == 2
        review.get_by_label("Whose marks").select_option("=ann")
        assert review.locator("mark").count() == 1
        assert review.locator("mark").evaluate("mark => mark.textContent") == "bold"
        review.get_by_role("button", name="Give back to the annotator").first.click()
        page.locator("#review", has_text="Not done").wait_for()
        assert not site.store.state("item-1", "ann").done
        assert page.evaluate(
            "[window.broken, document.querySelectorAll('main i, dialog i, dialog script').length]"
        ) == [None, 0]
        assert errors == []


def test_a_manager_without_the_link_is_told_so(browser: Any, tmp_path: Path) -> None:
    with served(tmp_path) as site, browser.new_context() as context:
        page = context.new_page()
        page.goto(f"{site.url}/manage")
        page.locator("#notice", has_text="Open the manager's link").wait_for()
        assert "item" not in json.dumps(page.locator("main").inner_text())
