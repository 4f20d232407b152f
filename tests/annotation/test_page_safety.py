"""Texts made to break pages are shown as texts, and the page passes axe-core's rules in each of its main states."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from annotation_browser import MANAGER, TEXTS, Desk, items, served, settings, units
from browsers import chromium

from fgrl.feedback.page_settings import PageSettings
from fgrl.types import Annotation, Response, Span

HOSTILE = [
    "<script>window.broken = 1</script>",
    "<img src=x onerror='window.broken = 2'>",
    "<svg onload=alert(3)><iframe srcdoc='<script>parent.broken = 4</script>'></iframe>",
    "</textarea></title><style>* { display: none }</style><base href='https://example.org/'>",
    'javascript:alert(5) {{7*7}} ${window.broken} " autofocus onfocus=alert(6) x="',
    "\u202eright to left override \u2066isolate\u2069 \u200b\ufeff zero width \u0007 bell",
    "data:text/html,<script>alert(8)</script> &lt;b&gt; &amp; &#60;i&#62;",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


def hostile_settings() -> PageSettings:
    """The shipped page with every text that a person can write made hostile."""
    body = json.loads(settings().model_dump_json())
    body["title"] = HOSTILE[0]
    body["guidelines"] = {HOSTILE[1]: HOSTILE[2]}
    for side in ("likes", "dislikes"):
        reasons = body["taxonomy"][side]
        reasons["lead"], reasons["other"] = HOSTILE[3], HOSTILE[4]
        reasons["groups"][0]["title"] = HOSTILE[6]
        reasons["groups"][0]["attributes"][0]["text"] = HOSTILE[1]
    body["questions"][0]["text"] = HOSTILE[0]
    body["questions"][0]["options"][0]["text"] = HOSTILE[2]
    return PageSettings.model_validate(body)


def test_hostile_texts_are_shown_as_text(browser: Any, tmp_path: Path) -> None:
    text = "\n".join(HOSTILE)
    samples = items(2, (text, text), prompt=text, meta={"document": text, "domain": HOSTILE[1]})
    dialogs: list[str] = []
    with served(tmp_path, samples, hostile_settings(), [HOSTILE[0]]) as site, browser.new_context() as context:
        context.on("dialog", lambda dialog: (dialogs.append(dialog.message), dialog.dismiss()))
        desk = Desk(site, context, HOSTILE[0])
        page = desk.page
        refused: list[str] = []
        page.on("console", lambda message: refused.append(message.text) if message.type == "error" else None)
        elements = "document.querySelectorAll('main :is(script, img, svg, iframe, style, base, link, object, a), body [onerror]').length"
        assert page.locator("#text-0").evaluate("host => host.textContent") == text
        assert page.locator(".prompt").evaluate("host => host.textContent") == text
        assert page.locator(".source-text").evaluate("host => host.textContent") == text
        assert page.locator("#title").inner_text() == HOSTILE[0]
        # every hostile passage is marked, quoted in the list, and described by a hostile note
        for part in HOSTILE[:3]:
            start, end = units(text, part)
            desk.select(0, start, end)
            page.keyboard.press("m")
            page.locator("#reasons textarea").fill(part)
            desk.save()
        assert page.locator(".marks bdi").all_inner_texts() == [HOSTILE[0], HOSTILE[1], f"{HOSTILE[2][:79]}…"]
        assert page.evaluate(elements) == 0
        for key in ["g", "?"]:
            page.keyboard.press(key)
            assert page.evaluate("document.querySelectorAll('dialog :is(script, img, svg, iframe, style)').length") == 0
            page.keyboard.press("Escape")
        # a second window makes a conflict about hostile texts
        second = Desk(site, context, HOSTILE[0])
        for each, note in [(desk, HOSTILE[4]), (second, HOSTILE[5])]:
            each.page.locator("#text-0 mark").first.click()
            each.page.locator("#reasons textarea").fill(note)
            each.page.get_by_role("button", name="Save", exact=True).click()
            each.page.wait_for_timeout(100)
        second.page.locator("#conflict[open]").wait_for()
        assert (
            second.page.evaluate("document.querySelectorAll('dialog :is(script, img, svg, iframe, style)').length") == 0
        )
        notes = [span["note"] for span in site.spans(annotator=HOSTILE[0])]
        assert notes == [HOSTILE[4], *HOSTILE[1:3]]
        for each in (desk, second):
            assert each.page.evaluate("window.broken") is None
            assert each.errors == []
        assert refused == ["Failed to load resource: the server responded with a status of 409 (Conflict)"] * len(
            refused
        )
    assert dialogs == []


def findings(page: Any, state: str) -> list[str]:
    """What axe-core finds in light and in dark colours and rates as serious or critical."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="needs axe-playwright-python")
    found = []
    for scheme, options in [("light", {}), ("dark", {"runOnly": ["color-contrast"]})]:
        page.emulate_media(color_scheme=scheme)
        page.evaluate("document.getAnimations().forEach(animation => animation.finish())")
        violations = axe.Axe().run(page, options={"resultTypes": ["violations"], **options}).response["violations"]
        found += [
            f"{state}, {scheme}: {violation['id']}: {node['html'][:160]}"
            for violation in violations
            if violation["impact"] in ("serious", "critical")
            for node in violation["nodes"]
        ]
    page.emulate_media(color_scheme="light")
    return found


def test_axe_finds_nothing_serious(browser: Any, tmp_path: Path) -> None:
    wrong: list[str] = []
    with (
        served(tmp_path, items(2)) as site,
        browser.new_context(viewport={"width": 1440, "height": 900}) as context,
    ):
        desk = Desk(site, context)
        page = desk.page
        wrong += findings(page, "start")
        for part, label in [("It is cheap, and it is loud", "d"), ("cheap", "l"), ("loud.\nIt has a garden", "l")]:
            page.keyboard.press(label)
            desk.select(0, *units(TEXTS[0], part))
            page.keyboard.press("m")
            page.wait_for_selector("#reasons[open]")
            if part == "cheap":
                wrong += findings(page, "pop-up")
            desk.save()
        page.keyboard.press("n")
        wrong += findings(page, "marks")
        page.locator("#text-0 mark", has_text="cheap").last.click()
        page.locator(".chips").wait_for()
        wrong += findings(page, "pop-up of overlapping spans")
        page.set_viewport_size({"width": 390, "height": 844})
        wrong += findings(page, "narrow pop-up")
        page.keyboard.press("Escape")
        wrong += findings(page, "narrow marks")
        page.set_viewport_size({"width": 1440, "height": 900})
        for name, button in [("guidelines", "Guidelines"), ("help", "Keys and display"), ("items", "Items")]:
            page.get_by_role("button", name=button, exact=True).click()
            page.locator(f"#{name}[open]").wait_for()
            wrong += findings(page, name)
            page.keyboard.press("Escape")
        page.get_by_role("button", name="Done, next item").click()
        page.locator("#missing li").first.wait_for()
        wrong += findings(page, "something is missing")
        second = Desk(site, context)
        for each in (desk, second):
            each.page.get_by_role("radio", name="Tie" if each is desk else "Response A").check()
            each.page.locator("#state", has_text="Saved" if each is desk else "Conflict").wait_for()
        second.page.locator("#conflict[open]").wait_for()
        wrong += findings(second.page, "conflict")
        second.page.close()
        context.set_offline(True)
        page.locator("#text-0 mark").first.click()
        page.get_by_role("button", name="Delete").click()
        desk.state("Offline")
        wrong += findings(page, "offline")
    assert wrong == []


def test_axe_finds_nothing_serious_about_suggestions_and_on_the_managers_page(browser: Any, tmp_path: Path) -> None:
    wrong: list[str] = []
    text = "# Title\n\n- **Bold** words, `code` and [a page](https://example.org).\n> A quote.\n"
    marks = Annotation(by="rules", spans=[Span(start=0, end=7, label=-1.0), Span(start=11, end=19, label=1.0)])
    responses = [Response(text=text, annotations=[marks]), Response(text=text)]
    samples = [items(1)[0].model_copy(update={"responses": responses})]
    with (
        served(tmp_path, samples, settings(suggestions=True)) as site,
        browser.new_context(viewport={"width": 1440, "height": 900}) as context,
    ):
        desk = Desk(site, context)
        desk.page.keyboard.press("h")
        wrong += findings(desk.page, "a suggestion")
        desk.page.keyboard.press("Delete")
        desk.page.keyboard.press("s")
        wrong += findings(desk.page, "legend")
        desk.page.keyboard.press("Escape")
        desk.page.keyboard.press("j")
        wrong += findings(desk.page, "cannot be judged")
        desk.saved()
        page = context.new_page()
        page.goto(site.links[MANAGER])
        page.locator(".items button").wait_for()
        wrong += findings(page, "manager")
        page.locator(".items button").click()
        page.locator("#review[open]").wait_for()
        wrong += findings(page, "review")
    assert wrong == []


def test_axe_finds_nothing_serious_on_other_pages(browser: Any, tmp_path: Path) -> None:
    wrong: list[str] = []
    with (
        served(tmp_path, items(1), settings("retrieval_ab")) as site,
        browser.new_context() as context,
    ):
        desk = Desk(site, context)
        wrong += findings(desk.page, "A/B only")
        desk.page.get_by_role("radio", name="Response A").check()
        desk.saved()
        desk.page.get_by_role("button", name="Done, next item").click()
        desk.page.wait_for_selector("#finished")
        wrong += findings(desk.page, "finished")
        context.clear_cookies()
        desk.page.reload()
        desk.page.locator("#notice").wait_for()
        wrong += findings(desk.page, "signed out")
        # the check does find what is wrong, in both schemes
        desk.page.locator("#title").evaluate("title => title.append(document.createElement('button'))")
        desk.page.locator("#notice").evaluate("notice => notice.style.color = 'light-dark(#bbb, #444)'")
        broken = str(findings(desk.page, "broken"))
        assert "button-name" in broken
        assert "light: color-contrast" in broken
        assert "dark: color-contrast" in broken
    assert wrong == []
