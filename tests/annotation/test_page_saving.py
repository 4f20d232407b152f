"""Saving on the page, in a real browser: reloads, lost connections, lost answers, conflicts, several annotators, active time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from annotation_browser import TEXTS, Desk, Site, served, units
from browsers import chromium


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with served(tmp_path) as site:
        yield site


@pytest.fixture
def context(browser: Any) -> Iterator[Any]:
    with browser.new_context() as context:
        yield context


def quotes(site: Site, annotator: str = "ann") -> list[str]:
    return [span["quote"] for span in site.spans(annotator=annotator)]


def test_a_reload_shows_what_was_saved_and_what_was_being_entered(context: Any, site: Site) -> None:
    desk = Desk(site, context)
    desk.mark(0, *units(TEXTS[0], "cheap"), "It's too wordy.")
    desk.drag(0, *units(TEXTS[0], "garden"))
    desk.page.get_by_role("checkbox", name="Other", exact=True).check()
    desk.page.get_by_label("Describe why you disliked this span.").fill("half a sent")
    desk.saved()
    # the span is saved before the pop-up is closed, without what is still being entered
    assert [(span["quote"], span["reasons"]) for span in site.spans()] == [("cheap", ["too_wordy"]), ("garden", [])]
    desk.page.reload()
    desk.page.wait_for_selector("#reasons[open]")
    assert desk.page.get_by_label("Describe why you disliked this span.").input_value() == "half a sent"
    desk.save()
    assert [(span["quote"], span["note"]) for span in site.spans()] == [("cheap", ""), ("garden", "half a sent")]
    assert desk.page.locator("#text-0 mark").all_inner_texts() == ["cheap", "garden"]


def test_two_annotators_at_once_see_their_own_marks_only(browser: Any, site: Site) -> None:
    with browser.new_context() as first, browser.new_context() as second:
        ann, ben = Desk(site, first, "ann"), Desk(site, second, "ben")
        ann.drag(0, *units(TEXTS[0], "cheap"))
        ben.drag(0, *units(TEXTS[0], "It is cheap"))
        ann.tick("It's too wordy.")
        ben.tick("I just disagree with it.")
        ann.save()
        ben.save()
        ben.mark(1, *units(TEXTS[1], "nine"))
        assert (quotes(site, "ann"), quotes(site, "ben")) == (["cheap"], ["It is cheap", "nine"])
        for desk, own in [(ann, ["cheap"]), (ben, ["It is cheap", "nine"])]:
            desk.page.reload()
            desk.page.wait_for_selector("mark")
            assert sorted(desk.page.locator("mark").all_inner_texts()) == sorted(own)


@pytest.mark.parametrize("choice", ["Keep my version", "Take the other version"])
def test_a_conflict_shows_both_versions_and_the_choice(context: Any, site: Site, choice: str) -> None:
    first = Desk(site, context)
    first.mark(0, *units(TEXTS[0], "cheap"), "It's too wordy.")
    second = Desk(site, context)
    second.page.wait_for_selector("#text-0 mark")
    first.page.locator("#text-0 mark").click()
    first.tick("I just disagree with it.")
    first.save()
    # the second window still shows the first version
    second.page.locator("#text-0 mark").click()
    second.page.get_by_role("checkbox", name="Other", exact=True).check()
    second.page.get_by_label("Describe why you disliked this span.").fill("no price is given")
    second.page.get_by_role("button", name="Save", exact=True).click()
    dialog = second.page.locator("#conflict[open]")
    dialog.wait_for()
    mine, theirs = dialog.locator(".version").all_inner_texts()
    assert "no price is given" in mine
    assert "I just disagree with it." in theirs
    assert "I just disagree with it." not in mine
    assert [span["reasons"] for span in site.spans()] == [["too_wordy", "disagree"]]
    # deciding later loses nothing either
    second.page.keyboard.press("Escape")
    second.state("Conflict")
    second.page.locator("#state").click()
    second.page.get_by_role("button", name=choice).click()
    second.saved()
    (span,) = site.spans()
    mine_kept = choice == "Keep my version"
    assert (span["reasons"], span["note"]) == (
        (["too_wordy", "other"], "no price is given") if mine_kept else (["too_wordy", "disagree"], "")
    )
    versions = [revision.body["reasons"] for revision in site.store.revisions() if revision.kind == "span"]
    assert versions[:3] == [[], ["too_wordy"], ["too_wordy", "disagree"]]
    assert len(versions) == (4 if mine_kept else 3)


def test_a_conflict_with_a_deletion_and_one_over_answers(context: Any, site: Site) -> None:
    first = Desk(site, context)
    first.mark(0, *units(TEXTS[0], "cheap"))
    second = Desk(site, context)
    second.page.wait_for_selector("#text-0 mark")
    first.page.locator("#text-0 mark").click()
    first.page.get_by_role("button", name="Delete").click()
    first.saved()
    first.page.get_by_role("radio", name="Response A").check()
    first.saved()
    second.page.locator("#text-0 mark").click()
    second.tick("It's too wordy.")
    second.page.get_by_role("button", name="Save", exact=True).click()
    second.page.locator("#conflict[open]").wait_for()
    assert "Deleted" in second.page.locator(".version").all_inner_texts()[1]
    second.page.get_by_role("button", name="Take the other version").click()
    second.page.locator("#text-0 mark").wait_for(state="detached")
    second.page.get_by_role("radio", name="Tie").check()
    second.page.locator("#conflict[open]").wait_for()
    mine, theirs = second.page.locator(".version").all_inner_texts()
    assert "Tie" in mine
    assert "Response A" in theirs
    second.page.get_by_role("button", name="Keep my version").click()
    second.saved()
    assert (quotes(site), site.store.state("item-1", "ann").verdict.body["better"]) == ([], None)


def test_a_window_that_is_looked_at_again_takes_over_what_another_one_saved(context: Any, site: Site) -> None:
    first, second = Desk(site, context), Desk(site, context)
    second.mark(0, *units(TEXTS[0], "cheap"), "It's too wordy.")
    assert first.page.locator("mark").count() == 0
    first.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    first.page.locator("mark", has_text="cheap").click()
    first.tick("I just disagree with it.")
    first.save()
    assert [span["reasons"] for span in site.spans()] == [["too_wordy", "disagree"]]


def test_a_browser_that_keeps_nothing_still_saves_and_warns_before_it_is_closed(context: Any, site: Site) -> None:
    context.add_init_script(
        "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('forbidden') } })"
    )
    desk = Desk(site, context)
    desk.mark(0, *units(TEXTS[0], "cheap"), "It's too wordy.")
    warned = "dispatchEvent(new Event('beforeunload', { cancelable: true }))"
    assert desk.page.evaluate(warned)
    context.set_offline(True)
    desk.drag(0, *units(TEXTS[0], "garden"))
    desk.page.get_by_role("button", name="Save", exact=True).click()
    desk.state("Offline, 1 waiting")
    assert not desk.page.evaluate(warned)
    context.set_offline(False)
    desk.saved()
    assert quotes(site) == ["cheap", "garden"]


def test_connection_lost_and_back(context: Any, site: Site) -> None:
    desk = Desk(site, context)
    context.set_offline(True)
    desk.drag(0, *units(TEXTS[0], "cheap"))
    desk.tick("It's too wordy.")
    desk.page.get_by_role("button", name="Save", exact=True).click()
    desk.drag(0, *units(TEXTS[0], "garden"))
    desk.page.get_by_role("button", name="Save", exact=True).click()
    desk.page.get_by_role("radio", name="Tie").check()
    desk.state("Offline, 3 waiting")
    assert "No connection" in desk.said()
    assert quotes(site) == []
    context.set_offline(False)
    desk.saved()
    assert [(span["quote"], span["reasons"]) for span in site.spans()] == [("cheap", ["too_wordy"]), ("garden", [])]
    assert site.store.state("item-1", "ann").verdict.body["better"] is None
    assert desk.page.evaluate("Object.keys(localStorage).filter(name => /:(spans|verdict)/.test(name))") == []


def test_offline_changes_survive_the_end_of_the_page(context: Any, site: Site) -> None:
    desk = Desk(site, context)
    desk.mark(0, *units(TEXTS[0], "loud"))
    context.set_offline(True)
    desk.page.locator("#text-0 mark").click()
    desk.tick("It's too wordy.")
    desk.page.get_by_role("button", name="Save", exact=True).click()
    desk.drag(0, *units(TEXTS[0], "garden"))
    desk.page.get_by_role("button", name="Save", exact=True).click()
    desk.state("Offline, 2 waiting")
    desk.page.close()
    assert [span["reasons"] for span in site.spans()] == [[]]
    context.set_offline(False)
    again = Desk(site, context)
    again.page.locator("#text-0 mark", has_text="garden").wait_for()
    again.saved()
    assert [(span["quote"], span["reasons"]) for span in site.spans()] == [("loud", ["too_wordy"]), ("garden", [])]


def test_offline_changes_of_an_item_that_is_not_open_are_sent_too(context: Any, site: Site) -> None:
    desk = Desk(site, context)
    desk.mark(0, *units(TEXTS[0], "loud"))
    context.set_offline(True)
    desk.drag(0, *units(TEXTS[0], "garden"))
    desk.page.get_by_role("button", name="Save", exact=True).click()
    desk.state("Offline, 1 waiting")
    desk.page.close()
    context.set_offline(False)
    other = context.new_page()
    other.goto(f"{site.url}/#item=2")
    other.wait_for_selector(".response")
    other.locator("#state", has_text="Saved").wait_for()
    assert other.evaluate("location.hash") == "#item=2"
    assert quotes(site) == ["loud", "garden"]


def test_an_answer_that_is_lost_is_no_conflict_and_counts_once(context: Any, site: Site) -> None:
    desk = Desk(site, context)
    lost = []

    def lose(route: Any) -> None:
        route.fetch()  # the server stores it
        lost.append(route.request.post_data_json)
        route.abort()

    desk.page.route("**/spans/**", lose)
    desk.drag(0, *units(TEXTS[0], "cheap"))
    desk.state("Offline, 1 waiting")
    assert lost
    desk.tick("It's too wordy.")
    desk.page.unroute("**/spans/**")
    desk.save()
    assert not desk.page.locator("#conflict").is_visible()
    spans = [revision for revision in site.store.revisions() if revision.kind == "span"]
    assert [(span.version, span.body["reasons"]) for span in spans] == [(1, []), (2, ["too_wordy"])]


def test_a_session_that_ends_keeps_the_changes(context: Any, site: Site) -> None:
    desk = Desk(site, context)
    context.clear_cookies()
    desk.drag(0, *units(TEXTS[0], "cheap"))
    desk.page.get_by_role("button", name="Save", exact=True).click()
    desk.state("Signed out, 1 waiting")
    assert "Open your personal link again" in desk.page.locator("#notice").inner_text()
    assert quotes(site) == []
    again = Desk(site, context)
    again.saved()
    assert quotes(site) == ["cheap"]


def test_what_the_server_refuses_is_shown_and_can_be_dropped(context: Any, site: Site) -> None:
    desk = Desk(site, context)
    desk.page.route("**/spans/**", lambda route: route.fulfill(status=422, json={"error": "quote: it is not the text"}))
    desk.drag(0, *units(TEXTS[0], "cheap"))
    desk.page.get_by_role("button", name="Save", exact=True).click()
    desk.state("1 not saved")
    desk.page.locator("#state").click()
    assert "quote: it is not the text" in desk.page.locator("#notice").inner_text()
    desk.page.get_by_role("button", name="Drop this change").click()
    desk.saved()
    assert desk.page.locator("#text-0 mark").count() == 0


def test_an_item_is_finished_only_with_everything_saved_and_answered(context: Any, site: Site) -> None:
    desk = Desk(site, context)
    desk.drag(0, *units(TEXTS[0], "cheap"))
    desk.save()
    desk.page.get_by_role("button", name="Done, next item").click()
    missing = desk.page.locator("#missing li")
    missing.first.wait_for()
    assert set(missing.all_inner_texts()) == {"1 marked span has no reason", "no response is preferred"}
    desk.page.locator("#text-0 mark").click()
    desk.tick("It's too wordy.")
    desk.save()
    desk.page.get_by_role("radio", name="Response B").check()
    desk.page.get_by_role("button", name="Done, next item").click()
    desk.at_item(2)
    assert site.store.state("item-1", "ann").done
    # earlier items can be looked at and changed again; the list shows what is done
    desk.page.get_by_role("button", name="Earlier item").click()
    desk.at_item(1)
    assert "This item is done" in desk.page.locator("#finished-state").inner_text()
    desk.page.get_by_role("button", name="Mark as not done").click()
    desk.page.get_by_role("button", name="Done, next item").wait_for()
    assert not site.store.state("item-1", "ann").done
    desk.page.get_by_role("button", name="Done, next item").click()
    desk.at_item(2)
    desk.page.get_by_role("button", name="Items").click()
    assert desk.page.locator(".items .item-state").first.inner_text() == "done"
    desk.page.get_by_role("button", name="Close").click()
    for number in (2, 3):
        desk.page.get_by_role("radio", name="Response B").check()
        desk.page.get_by_role("button", name="Done, next item").click()
        desk.page.wait_for_selector("#finished" if number == 3 else ".response")
        if number == 2:
            desk.at_item(3)
    assert desk.page.locator("#progress-text").inner_text() == "3 of 3 done, 0 left"


NOTHING_WAITS = "Object.keys(localStorage).every(name => !name.includes(':time/'))"


def test_active_time_stops_a_minute_after_the_last_sign_of_activity(context: Any, site: Site) -> None:
    desk = Desk(site, context, clock=True)
    for seconds in (30, 300, 15):  # of the break in the middle one minute counts
        desk.page.keyboard.press("Shift")
        desk.page.clock.run_for(1000 * seconds)
    desk.until(NOTHING_WAITS)
    assert site.store.state("item-1", "ann").seconds == pytest.approx(30 + 60 + 15, abs=6)
    pieces = [revision for revision in site.store.revisions() if revision.kind == "time"]
    assert len({piece.key for piece in pieces}) == len(pieces) >= 6


def test_time_whose_answer_is_lost_is_sent_again_and_counts_once(context: Any, site: Site) -> None:
    desk = Desk(site, context, clock=True)
    sent = []

    def lose(route: Any) -> None:
        sent.append(route.request.post_data_json["id"])
        route.fetch()
        route.abort()

    desk.page.route("**/time", lose, times=1)
    desk.page.keyboard.press("Shift")
    desk.page.clock.run_for(17_000)
    desk.until(f"!{NOTHING_WAITS}")
    desk.page.clock.run_for(17_000)
    desk.until(NOTHING_WAITS)
    pieces = [revision.key for revision in site.store.revisions() if revision.kind == "time"]
    assert sent[0] in pieces
    assert len(pieces) == 2


def test_two_links_in_one_browser_do_not_mix(context: Any, site: Site) -> None:
    ann = Desk(site, context, "ann")
    stranger = context.new_page()
    stranger.goto(site.links["ben"])
    stranger.locator("#notice", has_text="This link belongs to ben, and this browser was last used by ann").wait_for()
    assert stranger.locator(".response").count() == 0
    ben = Desk(site, context, "ben")  # who says that it is Ben
    ann.mark(0, *units(TEXTS[0], "cheap"))
    ben.mark(0, *units(TEXTS[0], "loud"))
    for desk, name in [(ann, "ann"), (ben, "ben")]:
        desk.page.reload()
        desk.page.locator("#who", has_text=f"Annotator: {name}").wait_for()
    assert (quotes(site, "ann"), quotes(site, "ben")) == (["cheap"], ["loud"])


def test_the_same_passage_is_not_marked_twice(context: Any, site: Site) -> None:
    desk = Desk(site, context)
    desk.mark(0, *units(TEXTS[0], "cheap"))
    desk.drag(0, *units(TEXTS[0], "cheap"))
    desk.save()
    assert quotes(site) == ["cheap"]


def test_undo_belongs_to_the_store(context: Any, site: Site) -> None:
    desk = Desk(site, context)
    desk.mark(0, *units(TEXTS[0], "cheap"))
    kept = desk.page.evaluate("Object.keys(sessionStorage).filter(name => name.startsWith('annotate:history'))")
    assert kept == [f"annotate:history:{site.store.id}:ann:1"]


def mark_offline_and_leave(context: Any, site: Site) -> None:
    """A mark in item 1, which was only opened, waits in the browser; the item is given back in the meantime."""
    desk = Desk(site, context)
    context.set_offline(True)
    desk.drag(0, *units(TEXTS[0], "garden"))
    desk.page.get_by_role("button", name="Save", exact=True).click()
    desk.state("Offline, 1 waiting")
    # what a page sends while it is left may not know that the network is gone
    desk.page.evaluate("() => { window.fetch = () => Promise.reject(new TypeError('offline')) }")
    desk.page.close()
    site.store.release("item-1", "ann")
    context.set_offline(False)


def item_2(context: Any, site: Site) -> Any:
    page = context.new_page()
    page.goto(f"{site.url}/#item=2")
    page.wait_for_url("**/#item=2")
    page.wait_for_selector(".response")
    return page


def test_changes_of_an_item_that_was_only_opened_are_sent_after_its_lease(context: Any, site: Site) -> None:
    mark_offline_and_leave(context, site)
    page = item_2(context, site)
    page.locator("#state", has_text="Saved").wait_for()
    assert quotes(site) == ["garden"]


@pytest.mark.parametrize("status", [403, 404])
def test_refused_changes_of_an_item_that_is_not_open_are_shown(context: Any, site: Site, status: int) -> None:
    mark_offline_and_leave(context, site)
    refusal = {"error": "this item is not yours"}
    context.route("**/items/1/spans/**", lambda route: route.fulfill(status=status, json=refusal))
    page = item_2(context, site)
    page.locator("#state", has_text="1 not saved").click()
    assert "Not saved in item 1: this item is not yours" in page.locator("#notice").inner_text()
    assert quotes(site) == []


def test_a_conflict_in_an_item_that_is_not_open_can_be_reached(context: Any, site: Site) -> None:
    desk = Desk(site, context)
    desk.mark(0, *units(TEXTS[0], "cheap"))
    context.set_offline(True)
    desk.page.locator("#text-0 mark").click()
    desk.tick("It's too wordy.")
    desk.page.get_by_role("button", name="Save", exact=True).click()
    desk.state("Offline, 1 waiting")
    desk.page.close()
    (span,) = site.store.state("item-1", "ann").live_spans.values()
    site.store.save("item-1", "ann", "span", span.key, {**span.body, "reasons": ["disagree"]}, span.version)
    context.set_offline(False)
    page = item_2(context, site)
    page.locator("#state", has_text="Conflict").click()
    page.locator("#conflict[open]").wait_for()
    assert page.evaluate("location.hash") == "#item=1"
    page.get_by_role("button", name="Keep my version").click()
    page.locator("#state", has_text="Saved").wait_for()
    assert [span["reasons"] for span in site.spans()] == [["too_wordy"]]


def test_a_draft_of_another_window_is_kept(context: Any, site: Site) -> None:
    desk = Desk(site, context)
    desk.page.get_by_role("radio", name="Tie").check()
    desk.saved()
    name = f"annotate:{site.store.id}:ann:1:verdict"
    draft = '{"base":1,"body":{"better":0,"reason":"from another window"},"sent":[]}'

    def meanwhile(route: Any) -> None:
        desk.page.evaluate("([name, draft]) => localStorage.setItem(name, draft)", [name, draft])
        route.continue_()

    desk.page.route("**/verdict", meanwhile, times=1)
    desk.page.get_by_role("radio", name="Response A").check()
    desk.saved()
    assert site.store.state("item-1", "ann").verdict.version == 2
    assert desk.page.evaluate("name => localStorage.getItem(name)", name) == draft


def test_undo_leaves_what_another_window_changed(context: Any, site: Site) -> None:
    first = Desk(site, context)
    first.mark(0, *units(TEXTS[0], "cheap"), "It's too wordy.")
    second = Desk(site, context)
    second.page.locator("#text-0 mark").click()
    second.tick("I just disagree with it.")
    second.save()
    first.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    first.page.locator(".why", has_text="I just disagree with it.").wait_for()
    first.page.locator("#undo").click()
    assert "Not undone, because it was changed elsewhere since" in first.said()
    assert first.page.locator("#undo").is_disabled()
    first.saved()
    assert [span["reasons"] for span in site.spans()] == [["too_wordy", "disagree"]]


def test_a_held_key_finishes_one_item(context: Any, site: Site) -> None:
    desk = Desk(site, context)
    desk.page.get_by_role("radio", name="Tie").check()
    desk.saved()
    held: list[Any] = []
    desk.page.route("**/1/done", lambda route: held.append(route))
    desk.page.keyboard.down("Control")
    desk.page.keyboard.down("Enter")
    desk.page.keyboard.down("Enter")  # a repeat
    desk.until("document.getElementById('finish').disabled")
    desk.page.keyboard.up("Enter")
    desk.page.keyboard.press("Enter")  # pressed again while the first is not answered
    desk.page.wait_for_timeout(100)
    assert len(held) == 1
    held[0].continue_()
    desk.at_item(2)
    desk.page.keyboard.down("Enter")
    desk.page.locator("#missing li").wait_for()
    assert desk.page.locator("#finish").is_enabled()


def test_a_reason_without_a_choice_is_not_called_saved(context: Any, site: Site) -> None:
    desk = Desk(site, context)
    desk.page.locator("#preference-reason").fill("shorter")
    desk.state("The reason waits for a choice")
    desk.page.get_by_role("radio", name="Tie").check()
    desk.saved()
    assert site.store.state("item-1", "ann").verdict.body == {"better": None, "reason": "shorter"}
