"""Marking on the page, in a real browser: exact offsets, overlapping spans, editing, undo, and everything by keyboard."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from annotation_browser import TEXTS, Desk, Site, items, served, settings, units
from browsers import chromium

HARD = "One cafe\u0301 🎉 and 👩‍👩‍👧‍👦 both.\r\nSecond line: \U0001d54f x\u0323\u0307, नमस्ते.\r\n\r\nThird line, שלום, the end."
"""Combining marks, emoji of one and of seven code points, letters beyond 16 bits, CRLF, two scripts more."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with served(tmp_path) as site:
        yield site


@pytest.fixture
def desk(browser: Any, site: Site) -> Iterator[Desk]:
    with browser.new_context(viewport={"width": 1280, "height": 900}) as context:
        desk = Desk(site, context)
        yield desk
        assert desk.errors == []


def code_points(text: str, start: int, end: int) -> tuple[int, int]:
    """A range in UTF-16 units as one in code points."""
    raw = text.encode("utf-16-le")
    return len(raw[: 2 * start].decode("utf-16-le")), len(raw[: 2 * end].decode("utf-16-le"))


def test_a_drag_marks_exactly_what_was_selected(browser: Any, tmp_path: Path) -> None:
    passages = [
        "cafe\u0301 🎉 and",
        "👩‍👩‍👧‍👦 both.\r\nSecond",
        "🎉 and 👩‍👩‍👧‍👦 both.\r\nSecond line: \U0001d54f x\u0323\u0307, नमस्ते.\r\n\r\nThird",
        "the end.",
    ]
    with served(tmp_path, items(1, (HARD, HARD))) as site, browser.new_context() as context:
        desk = Desk(site, context)
        for passage in passages:
            desk.drag(0, *units(HARD, passage))
            desk.save()
        stored = site.spans()
    assert {span["quote"] for span in stored} == set(passages)
    for span in stored:
        assert HARD[span["start"] : span["end"]] == span["quote"]
        assert (span["start"], span["end"]) == code_points(HARD, *units(HARD, span["quote"]))
        assert span["place"] == 0


def test_units_and_code_points_convert_both_ways(desk: Desk) -> None:
    for text in [HARD, "", "plain", "🎉" * 5000, "a" + "🎉" * 5000, "a" * 4095 + "🎉" + "b" * 5000 + "🎉" * 3000]:
        points, there, back = desk.page.evaluate(
            """async (text) => {
              const { Points } = await import('/static/text.js');
              const points = new Points(text);
              const there = Array.from({ length: text.length + 1 }, (_, unit) => points.toPoint(unit));
              const back = Array.from({ length: points.length + 1 }, (_, point) => points.toUnit(point));
              return [points.length, there, back];
            }""",
            text,
        )
        expected_there, expected_back, unit = [], [], 0
        for number, letter in enumerate(text):
            expected_back.append(unit)
            width = 2 if ord(letter) > 0xFFFF else 1
            expected_there += [number] * width
            unit += width
        assert points == len(text)
        assert there == [*expected_there, len(text)]
        assert back == [*expected_back, unit]


def test_every_overlapping_span_is_drawn_and_can_be_reached(desk: Desk, site: Site) -> None:
    text = TEXTS[0]
    for passage in ["It is cheap, and it is loud.\nIt has a garden", "cheap", "loud.\nIt has a garden, where children"]:
        desk.drag(0, *units(text, passage))
        desk.save()
    large, small, crossing = [
        "It is cheap, and it is loud.\nIt has a garden",
        "cheap",
        "loud.\nIt has a garden, where children",
    ]
    marks = desk.page.evaluate(
        """() => [...document.querySelectorAll('#text-0 mark')].map((mark) => [
          mark.textContent, mark.dataset.span, mark.className.match(/lane-\\d/)[0], mark.parentElement.closest('mark')?.dataset.span ?? null,
        ])"""
    )
    ids = {
        span["quote"]: span["id"]
        for span in (
            {"quote": body.body["quote"], "id": id} for id, body in site.store.state("item-1", "ann").spans.items()
        )
    }
    drawn = {quote: "".join(part for part, id, _, _ in marks if id == ids[quote]) for quote in ids}
    assert drawn == {quote: quote for quote in ids}
    lane = {quote: {lane for _, id, lane, _ in marks if id == ids[quote]} for quote in ids}
    assert lane == {large: {"lane-0"}, small: {"lane-1"}, crossing: {"lane-1"}}
    assert ("cheap", ids[small], "lane-1", ids[large]) in [tuple(mark) for mark in marks]
    # a click on the small one opens it, and leads to the large one that it lies in
    desk.page.locator(f"#text-0 mark[data-span='{ids[small]}']").click()
    chips = desk.page.get_by_role("group", name="Marks at this place").get_by_role("button")
    assert chips.evaluate_all("all => all.map(chip => chip.getAttribute('aria-pressed'))") == ["true", "false"]
    desk.tick("It's too wordy.")
    chips.nth(1).click()
    desk.tick("It repeats itself unnecessarily.")
    desk.save()
    assert {span["quote"]: span["reasons"] for span in site.spans()} == {
        large: ["repeats_itself"],
        small: ["too_wordy"],
        crossing: [],
    }


def test_a_like_and_a_dislike_differ_in_more_than_colour(desk: Desk) -> None:
    desk.mark(0, *units(TEXTS[0], "It is cheap"), "It's too wordy.")
    desk.page.keyboard.press("l")
    desk.mark(0, *units(TEXTS[0], "where children play"), "It states a useful fact.")
    look = "mark => [getComputedStyle(mark).textDecorationStyle, getComputedStyle(mark).backgroundColor]"
    dislike, like = (desk.page.locator(f"#text-0 mark.{side}") for side in ("dislike", "like"))
    assert [dislike.evaluate(look)[0], like.evaluate(look)[0]] == ["wavy", "solid"]
    before = dislike.evaluate(look)[1]
    dislike.click()
    desk.page.wait_for_selector("#text-0 mark.editing")
    assert dislike.evaluate("mark => mark.getAnimations().forEach(animation => animation.finish())") is None
    assert dislike.evaluate(look)[1] != before
    assert "Dislike" in desk.page.locator(".marks .entry").first.inner_text()


def test_edit_flip_and_change_of_the_passage(desk: Desk, site: Site) -> None:
    desk.mark(1, *units(TEXTS[1], "nobody goes"), "It's too wordy.", "I just disagree with it.")
    desk.page.locator("#text-1 mark").click()
    desk.page.get_by_role("checkbox", name="It's too wordy.").uncheck()
    desk.page.get_by_label("Describe why you disliked this span.").fill("says who?")
    desk.save()
    (span,) = site.spans()
    assert (span["reasons"], span["note"], span["label"]) == (["disagree", "other"], "says who?", -1)
    desk.page.locator("#text-1 mark").click()
    desk.page.get_by_role("button", name="Change to like").click()
    # the note is shown still, and what is shown is saved
    other = desk.page.get_by_role("checkbox", name="Other", exact=True)
    note = desk.page.locator("#reasons textarea")
    assert (other.is_checked(), note.input_value()) == (True, "says who?")
    other.uncheck()
    assert note.input_value() == ""
    other.check()
    assert note.input_value() == "says who?"
    desk.tick("It's engaging, maybe even a little funny.")
    desk.save()
    saved = [(span["label"], span["reasons"], span["note"]) for span in site.spans()]
    assert saved == [(1, ["engaging", "other"], "says who?")]
    desk.page.locator("#text-1 mark").click()
    desk.page.get_by_role("button", name="Change passage").click()
    desk.drag(1, *units(TEXTS[1], "It is dear; nobody"), wait=False)
    desk.page.locator("#text-1 mark", has_text="It is dear; nobody").wait_for()
    desk.saved()
    assert [(span["quote"], span["reasons"]) for span in site.spans()] == [
        ("It is dear; nobody", ["engaging", "other"])
    ]


def test_undo_and_redo_walk_through_every_action(desk: Desk, site: Site) -> None:
    def stored() -> list[tuple[str, list[str]]]:
        desk.saved()
        return [(span["quote"], span["reasons"]) for span in site.spans()]

    desk.mark(0, *units(TEXTS[0], "cheap"), "It's too wordy.")
    desk.mark(0, *units(TEXTS[0], "garden"))
    states = [[], [("cheap", ["too_wordy"])], [("cheap", ["too_wordy"]), ("garden", [])]]
    desk.page.locator("#text-0 mark", has_text="garden").click()
    desk.tick("I just disagree with it.")
    desk.save()
    states.append([("cheap", ["too_wordy"]), ("garden", ["disagree"])])
    desk.page.locator("#text-0 mark", has_text="cheap").click()
    desk.page.get_by_role("button", name="Delete").click()
    states.append([("garden", ["disagree"])])
    desk.page.locator("#text-0").focus()
    assert stored() == states[-1]
    for state in states[-2::-1]:
        desk.page.keyboard.press("Control+z")
        assert stored() == state
    assert desk.page.locator("#undo").is_disabled()
    for state in states[1:]:
        desk.page.keyboard.press("Control+Shift+z")
        assert stored() == state
    desk.page.reload()
    desk.page.wait_for_selector("#text-0 mark")
    desk.page.locator("#undo").click()
    assert stored() == states[-2]


def test_cancel_takes_a_new_mark_away_and_keeps_the_selection(desk: Desk, site: Site) -> None:
    start, end = units(TEXTS[0], "loud.\nIt has")
    desk.drag(0, start, end)
    desk.page.keyboard.press("Escape")
    desk.page.wait_for_selector("#reasons", state="hidden")
    desk.saved()
    assert site.spans() == []
    assert desk.caret() == [start, end]
    assert desk.page.evaluate("document.activeElement.id") == "text-0"
    assert desk.page.locator("#undo").is_disabled()
    # the selection is still there to be marked again; what was ticked before a slip of the Escape key comes back by undo
    desk.page.keyboard.press("m")
    desk.tick("It's too wordy.")
    desk.page.keyboard.press("Escape")
    desk.saved()
    assert site.spans() == []
    desk.page.keyboard.press("Control+z")
    desk.saved()
    assert [(span["quote"], span["reasons"]) for span in site.spans()] == [("loud.\nIt has", ["too_wordy"])]


def test_cancel_leaves_an_existing_mark_as_it_was(desk: Desk, site: Site) -> None:
    desk.mark(0, *units(TEXTS[0], "cheap"), "It's too wordy.")
    desk.page.locator("#text-0 mark").click()
    desk.tick("I just disagree with it.")
    desk.page.get_by_role("button", name="Cancel").click()
    desk.saved()
    assert [span["reasons"] for span in site.spans()] == [["too_wordy"]]
    desk.page.locator("#undo").click()
    desk.saved()
    assert [span["reasons"] for span in site.spans()] == [["too_wordy", "disagree"]]


def test_clicks_and_double_clicks_mark_nothing(desk: Desk, site: Site) -> None:
    desk.page.mouse.click(*desk.position(0, 30))
    desk.page.mouse.dblclick(*desk.position(0, 6))
    assert desk.page.evaluate("getSelection().toString()").strip() == "café"
    assert not desk.page.locator("#reasons").is_visible()
    desk.page.get_by_role("button", name="Mark selection").click()
    desk.save()
    assert [span["quote"].strip() for span in site.spans()] == ["café"]


def test_the_text_cannot_be_changed(desk: Desk) -> None:
    before = desk.page.locator("#text-0").evaluate("host => host.textContent")
    desk.page.locator("#text-0").focus()
    for key in ["x", "Backspace", "Delete", "Enter", "Control+x", "Control+v", "Control+b"]:
        desk.page.keyboard.press(key)
    desk.page.keyboard.insert_text("written by an input method 🎉")
    desk.page.locator("#text-0").evaluate(
        "host => { host.textContent = 'gone'; host.dispatchEvent(new InputEvent('input')); }"
    )
    assert desk.page.locator("#text-0").evaluate("host => host.textContent") == before == TEXTS[0]


def test_a_whole_item_by_keyboard_alone(desk: Desk, site: Site) -> None:
    press = desk.page.keyboard.press
    first = site.store.state("item-1", "ann").order[0]
    text = TEXTS[first]
    # into response A, four words on, select three words, mark as a like
    press("a")
    assert desk.page.evaluate("document.activeElement.id") == f"text-{first}"
    press("Control+Home")
    press("Control+ArrowRight")
    for _ in range(3):
        press("Control+Shift+ArrowRight")
    press("l")
    press("m")
    desk.page.wait_for_selector("#reasons[open]")
    assert desk.page.evaluate("document.activeElement.value") == "answers_question"
    press("Space")
    press("Tab")
    press("Tab")
    press("Space")
    press("Enter")
    desk.saved()
    (span,) = site.spans()
    assert span["label"] == 1
    assert span["reasons"] == ["answers_question", "helps_understanding"]
    assert span["start"] == text.index(" ") + 1 or span["start"] == text.index(" ")
    assert len(span["quote"].split()) == 3
    assert desk.page.evaluate("document.activeElement.id") == f"text-{first}"
    # a dislike of the first line lies over it
    press("Control+Home")
    press("Shift+End")
    press("d")
    press("Enter")
    press("Space")
    press("Control+Enter")
    desk.saved()
    assert {span["label"] for span in site.spans()} == {1, -1}
    # walk through both, though one covers the other, and delete the inner one
    press("Control+Home")
    press("n")
    assert "Dislike 1 of 2" in desk.said()
    assert "Overlaps 1 other mark" in desk.said()
    press("n")
    assert "Like 2 of 2" in desk.said()
    press("Enter")
    desk.page.wait_for_selector("#reasons.like[open]")
    press("Escape")
    press("n")
    press("n")
    press("Delete")
    desk.saved()
    assert [span["label"] for span in site.spans()] == [-1]
    # prefer the other response, and finish
    press("v")
    press("ArrowRight")
    press("Control+Enter")
    desk.at_item(2)
    state = site.store.state("item-1", "ann")
    assert state.done
    assert state.verdict.body == {"better": site.store.state("item-1", "ann").order[1], "reason": ""}
    assert desk.page.locator("#progress-text").inner_text() == "1 of 3 done, 2 left"


def test_the_popup_keeps_the_focus_and_gives_it_back(desk: Desk) -> None:
    desk.select(0, 4, 9)
    desk.page.keyboard.press("Enter")
    desk.page.wait_for_selector("#reasons[open]")
    inside = "document.getElementById('reasons').contains(document.activeElement)"
    seen = set()
    for key in ["Tab"] * 40 + ["Shift+Tab"] * 40:
        desk.page.keyboard.press(key)
        assert desk.page.evaluate(inside)
        seen.add(desk.page.evaluate("document.activeElement.textContent || document.activeElement.value"))
    assert {"Save", "Cancel", "Delete", "other"} <= seen
    desk.page.keyboard.press("Escape")
    assert desk.page.evaluate("document.activeElement.id") == "text-0"


def test_single_letter_keys_can_be_turned_off(desk: Desk) -> None:
    desk.page.keyboard.press("?")
    desk.page.get_by_role("checkbox", name="Use single letters as keys").uncheck()
    desk.page.get_by_role("button", name="Close").click()
    desk.page.keyboard.press("l")
    assert desk.page.locator("html").get_attribute("data-mode") == "dislike"


def test_questions_and_preference_are_saved_and_undone(desk: Desk, site: Site) -> None:
    box = (
        desk.page.locator("#response-1")
        .locator("xpath=..")
        .get_by_role("checkbox", name="It is clear and easy to follow.")
    )
    box.check()
    desk.saved()
    assert site.store.state("item-1", "ann").answers[1].body == {"liked": ["clear"]}
    desk.page.locator("#undo").click()
    desk.saved()
    assert not box.is_checked()
    assert not site.store.state("item-1", "ann").answers[1].body.get("liked")
    desk.page.locator("#preference-reason").fill("shorter")
    desk.page.get_by_role("radio", name="Tie").check()
    desk.saved()
    assert site.store.state("item-1", "ann").verdict.body == {"better": None, "reason": "shorter"}
    desk.page.locator("#undo").click()
    desk.saved()
    assert site.store.state("item-1", "ann").verdict is None
    assert desk.page.locator("input[name=better]:checked").count() == 0
    desk.page.locator("#redo").click()
    desk.saved()
    assert site.store.state("item-1", "ann").verdict.body == {"better": None, "reason": "shorter"}
    desk.page.get_by_role("radio", name="Response A").check()
    desk.page.locator("#preference-reason").fill("shorter and true")
    desk.page.locator("#title").click()
    desk.saved()
    desk.page.reload()
    desk.page.wait_for_selector(".response")
    assert desk.page.get_by_role("radio", name="Response A").is_checked()
    assert desk.page.locator("#preference-reason").input_value() == "shorter and true"
    assert site.store.state("item-1", "ann").verdict.body == {
        "better": site.store.state("item-1", "ann").order[0],
        "reason": "shorter and true",
    }


@pytest.mark.parametrize(
    ("name", "modes", "shown"),
    [
        ("retrieval_ab", {}, {"modes": 0, "text": 0, "preference": 1, "responses": 2}),
        ("retrieval_single", {"preference": False}, {"modes": 1, "text": 1, "preference": 0, "responses": 1}),
        ("retrieval_dislikes", {}, {"modes": 0, "text": 2, "preference": 1, "responses": 2}),
        ("retrieval_free_text", {}, {"modes": 1, "text": 2, "preference": 0, "responses": 2}),
        ("retrieval_no_reasons", {}, {"modes": 1, "text": 2, "preference": 1, "responses": 2}),
    ],
)
def test_page_settings(browser: Any, tmp_path: Path, name: str, modes: dict[str, Any], shown: dict[str, int]) -> None:
    page = settings(name, **modes)
    texts = TEXTS[: page.modes.responses]
    with served(tmp_path, items(1, texts), page) as site, browser.new_context() as context:
        desk = Desk(site, context)
        counts = {
            "modes": int(desk.page.locator("#modes").is_visible()),
            "text": desk.page.locator("[role=textbox][aria-readonly=true]").count(),
            "preference": desk.page.locator(".preference").count(),
            "responses": desk.page.locator(".response").count(),
        }
        assert counts == shown
        if not shown["text"]:
            desk.drag(0, 4, 9, wait=False)
            assert desk.page.locator("mark").count() == 0
            return
        desk.drag(0, 4, 9, wait=name != "retrieval_no_reasons")
        if name == "retrieval_no_reasons":
            desk.page.locator("mark").first.wait_for()
            assert not desk.page.locator("#reasons").is_visible()
            assert "No reason" not in desk.page.locator("main").inner_text()
            desk.saved()
            (span,) = site.spans()
            assert (span["label"], span["reasons"], span["note"]) == (-1, [], "")
            return
        if name == "retrieval_free_text":
            assert desk.page.locator("#reasons input").count() == 0
            desk.page.locator("#reasons textarea").fill("no source")
        assert desk.page.get_by_role("button", name="Change to like").count() == shown["modes"]
        desk.save()
        (span,) = site.spans()
        assert (span["label"], span["note"]) == (-1, "no source" if name == "retrieval_free_text" else "")


def test_long_texts_are_cut_into_blocks_at_line_ends_and_spaces(desk: Desk) -> None:
    for text in [
        "",
        "short",
        "x" * 24_000,
        "word 🎉 " * 30_000,
        "x🎉" * 40_000,
        "a line\n" * 20_000,
        "\n" + "x" * 50_000 + "\nend",
    ]:
        found = desk.page.evaluate(
            """async (text) => {
              const { pieces } = await import('/static/text.js');
              return pieces(text).map(({ start, end }) => [start, text.slice(start, end)]);
            }""",
            text,
        )
        assert "".join(part for _start, part in found) == text  # no pair is cut: halves would come back as U+FFFD
        assert [start for start, _part in found] == sorted({start for start, _part in found})
        assert all(part for _start, part in found) or text == ""
        assert max(len(part) for _start, part in found) <= 8192 + 16384 + 1
        if "\n" in text[1:-1] and "x" not in text:
            assert all(part.endswith("\n") for _start, part in found)
        if " " in text and "\n" not in text:
            assert all(part.endswith(" ") for _start, part in found)


def test_a_text_of_a_megabyte_stays_a_few_nodes(browser: Any, tmp_path: Path) -> None:
    long = "".join(
        f"Line {number} of a long text with 🎉 in it, so that units and code points differ.\n"
        for number in range(14_000)
    )
    assert len(long.encode()) > 1_000_000
    with served(tmp_path, items(1, (long, TEXTS[1]))) as site, browser.new_context() as context:
        desk = Desk(site, context)
        assert (
            desk.page.locator("#text-0").evaluate("host => host.textContent.length")
            == len(long.encode("utf-16-le")) // 2
        )
        nodes = desk.page.evaluate("document.getElementsByTagName('*').length")
        assert nodes < 1000
        start, end = units(long, "Line 10500 of"), units(long, "Line 10503 of")
        desk.select(0, start[0], end[1])
        desk.page.keyboard.press("m")
        desk.page.wait_for_selector("#reasons[open]")
        desk.save()  # the pop-up stands in the window, though the passage was far outside
        (span,) = site.spans()
        assert long[span["start"] : span["end"]] == span["quote"]
        assert span["quote"].startswith("Line 10500 of")
        assert span["quote"].endswith("Line 10503 of")
        assert desk.page.evaluate("document.getElementsByTagName('*').length") < 1000
