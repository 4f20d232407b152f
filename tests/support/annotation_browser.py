"""The annotation page as its users have it: the real server in a thread, Chromium in front of it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fgrl.feedback.page_settings import PageSettings, load_settings
from fgrl.pages.annotation.store import Store
from fgrl.types import Response, Sample

TEXTS = (
    "The café opens at eight. 🎉 It is cheap, and it is loud.\nIt has a garden, where children play.\n\nNobody goes home hungry.",
    "It opens at nine.\nIt is dear; nobody goes there twice.",
)
"""Response 0 and response 1 of every item."""
MANAGER = "manager-of-this-test"
"""Of the link to the manager's page, and the name of that link among the annotators' ones."""
POSITION = """([place, unit]) => {
  const walker = document.createTreeWalker(document.getElementById(`text-${place}`), NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(), left = unit; node; left -= node.length, node = walker.nextNode()) {
    if (left > node.length) continue;
    const range = document.createRange();
    range.setStart(node, left);
    let rect = range.getBoundingClientRect();
    if (rect.height === 0) {
      range.setEnd(node, Math.min(left + 1, node.length));
      rect = range.getClientRects()[0];
    }
    return [rect.x, rect.y + rect.height / 2];
  }
}"""
SELECT = """async ([place, anchor, focus]) => {
  const { MarkedText } = await import('/static/text.js');
  const host = document.getElementById(`text-${place}`);
  const at = (unit) => {
    const walker = document.createTreeWalker(host, NodeFilter.SHOW_TEXT);
    for (let node = walker.nextNode(), left = unit; node; left -= node.length, node = walker.nextNode()) {
      if (left <= node.length) return [node, left];
    }
  };
  host.focus();
  document.getSelection().setBaseAndExtent(...at(anchor), ...at(focus));
}"""


def settings(name: str = "retrieval", **modes: Any) -> PageSettings:
    """Shipped settings; nothing is required, so that an item can be finished at once, unless `modes` says so."""
    loaded = load_settings(name)
    return loaded.model_copy(update={"modes": loaded.modes.model_copy(update={"preference_reason": False, **modes})})


def items(count: int = 3, texts: Iterable[str] = TEXTS, **fields: Any) -> list[Sample]:
    """Samples with these responses."""
    given = {
        "prompt": "When does the café open, and is it worth a visit?",
        "meta": {"document": "The café: open from 8 to 6.\n\nPrices are low.", "domain": "yelp"},
        **fields,
    }
    return [
        Sample(id=f"item-{number}", responses=[Response(text=text) for text in texts], **given)
        for number in range(1, count + 1)
    ]


class Site:
    """A store that is being served."""

    def __init__(self, store: Store, url: str, links: dict[str, str]) -> None:
        self.store, self.url, self.links = store, url, links

    def spans(self, item: str = "item-1", annotator: str = "ann") -> list[dict[str, Any]]:
        """What the store has of the spans that are not deleted, in order of their start."""
        state = self.store.state(item, annotator)
        return sorted(
            (span.body for span in state.live_spans.values()), key=lambda body: (body["place"], body["start"])
        )


@contextmanager
def served(
    folder: Path, samples: list[Sample] | None = None, page: PageSettings | None = None, annotators: Iterable[str] = ("ann", "ben"),
    overlap: int = 99,
) -> Iterator[Site]:  # fmt: skip
    """A new store of these samples behind the real server, on a free port of this machine. All items are everybody's."""
    pytest.importorskip("starlette", reason="needs Starlette: pip install 'fgrl[annotate]'")
    uvicorn = pytest.importorskip("uvicorn", reason="needs uvicorn: pip install 'fgrl[annotate]'")
    from fgrl.pages.annotation import serving
    from fgrl.pages.annotation.access import Address

    folder.mkdir(parents=True, exist_ok=True)
    store = Store.create(folder / "page.sqlite", samples or items(), page or settings(), annotators, overlap)
    bound = serving.listen("127.0.0.1", 0)
    address = Address("127.0.0.1", bound.getsockname()[1])
    links = {**serving.issue_links(store, address), MANAGER: f"{address.url}/manage/{MANAGER}"}
    server = uvicorn.Server(serving.configuration(serving.application(store, address, MANAGER)))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
    thread.start()
    try:
        yield Site(store, address.url, links)
    finally:
        server.should_exit = True
        thread.join(timeout=20)
        bound.close()
        store.close()


class Desk:
    """One annotator with a browser window."""

    def __init__(self, site: Site, context: Any, annotator: str = "ann", *, clock: bool = False) -> None:
        """`clock`: time passes on the page only where a test lets it."""
        self.site, self.context = site, context
        self.page = context.new_page()
        if clock:
            self.page.clock.install(time=0)
            self.page.clock.pause_at(1000)
        self.page.set_default_timeout(60_000)
        self.errors: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.goto(site.links[annotator])
        self.page.wait_for_selector(".response, #finished, #notice button")
        if (stranger := self.page.get_by_role("button", name=f"I am {annotator}", exact=True)).is_visible():
            stranger.click()
        self.page.wait_for_selector(".response, #finished")

    def position(self, place: int, unit: int) -> list[float]:
        """Where a UTF-16 place of a response is on the screen."""
        return self.page.evaluate(POSITION, [place, unit])

    def drag(self, place: int, start: int, end: int, *, wait: bool = True) -> None:
        """Mark by the mouse from one UTF-16 place to another."""
        self.page.locator(f"#text-{place}").scroll_into_view_if_needed()
        x, y = self.position(place, start)
        height = self.page.viewport_size["height"]
        if not 120 < y < height - 120:
            self.page.mouse.wheel(0, y - height / 2)
            self.page.wait_for_timeout(100)
            x, y = self.position(place, start)
        self.page.mouse.move(x, y)
        self.page.mouse.down()
        self.page.mouse.move(x + 2, y)
        self.page.mouse.move(*self.position(place, end), steps=2)
        self.page.mouse.up()
        if wait:
            self.page.wait_for_selector("#reasons[open]")

    def select(self, place: int, anchor: int, focus: int) -> None:
        """Select without the mouse, as the browser's own keys would."""
        self.page.evaluate(SELECT, [place, anchor, focus])

    def tick(self, *texts: str) -> None:
        """Tick reasons in the pop-up, by their text."""
        for text in texts:
            self.page.get_by_role("checkbox", name=text, exact=True).check()

    def save(self) -> None:
        """Save the pop-up, and wait until the server has acknowledged everything."""
        self.page.get_by_role("button", name="Save", exact=True).click()
        self.saved()

    def mark(self, place: int, start: int, end: int, *texts: str) -> None:
        self.drag(place, start, end)
        self.tick(*texts)
        self.save()

    def saved(self) -> None:
        self.state("Saved")

    def state(self, text: str) -> None:
        """Wait until the page shows this state of saving."""
        self.page.locator("#state", has_text=text).wait_for()

    def at_item(self, number: int) -> None:
        """Wait until this item is open."""
        self.page.wait_for_url(f"**/#item={number}")

    def until(self, expression: str) -> None:
        """Wait until a JavaScript expression is true. (`wait_for_function` needs eval, which the page forbids.)"""
        for _ in range(600):
            if self.page.evaluate(expression):
                return
            self.page.wait_for_timeout(50)
        raise AssertionError(f"never true: {expression}")

    def caret(self) -> list[int]:
        """Anchor and focus of the selection, counted from the start of the response that has it."""
        return self.page.evaluate(
            """() => {
              const selection = document.getSelection();
              const host = selection.anchorNode.parentElement.closest('.text');
              const count = (node, offset) => {
                const range = document.createRange();
                range.setStart(host, 0);
                range.setEnd(node, offset);
                return range.toString().length;
              };
              return [count(selection.anchorNode, selection.anchorOffset), count(selection.focusNode, selection.focusOffset)];
            }"""
        )

    def said(self) -> str:
        """What a screen reader was told of late."""
        return self.page.locator("#announcements").inner_text()


def units(text: str, part: str) -> tuple[int, int]:
    """Where a part of a text begins and ends, in UTF-16 units, which a browser counts."""
    start = text.index(part)
    count = len(text[:start].encode("utf-16-le")) // 2
    return count, count + len(part.encode("utf-16-le")) // 2
