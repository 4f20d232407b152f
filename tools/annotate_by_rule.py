"""Annotate a file of samples on the annotation page, in a browser, by the rule of `recipes/small/span_rule.py`.

    fgrl run recipes/small/span_chains_responses.yaml
    python tools/annotate_by_rule.py runs/stages/responses-*/out/samples.jsonl recipes/small/span_annotations.jsonl

Serves the page (`fgrl annotate serve`), opens the link of the annotator `rule` in Chromium, and does there what a person does:
chooses like or dislike, drags over each passage, ticks its reasons, answers the questions about each response, chooses the better
response with a reason, and goes on to the next item. Then `fgrl annotate export` writes the file. The active time that the page
measures is the program's, so it says nothing about people.

Needs Playwright and Chromium (`--browser`).
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

from playwright.sync_api import sync_playwright

from fgrl.feedback.page_settings import OTHER, load_settings
from fgrl.types import Sample, read_jsonl

RULE = Path(__file__).resolve().parents[1] / "recipes" / "small" / "span_rule.py"
ANNOTATOR = "rule"
POSITION = """([place, unit]) => {
  const walker = document.createTreeWalker(document.getElementById(`text-${place}`), NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(), left = unit; node; left -= node.length, node = walker.nextNode()) {
    if (left > node.length) continue;
    const range = document.createRange();
    range.setStart(node, left);
    range.setEnd(node, left);
    const rect = range.getBoundingClientRect();
    return [rect.x, rect.y + rect.height / 2];
  }
}"""
"""Where a UTF-16 place of a response is on the screen."""


def rule() -> ModuleType:
    """The module of the rule."""
    spec = importlib.util.spec_from_file_location("span_rule", RULE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["span_rule"] = module
    spec.loader.exec_module(module)
    return module


def units(text: str, place: int) -> int:
    """A place in code points as a browser counts it."""
    return len(text[:place].encode("utf-16-le")) // 2


class Annotator:
    """Works on the page as a person would."""

    def __init__(self, page: Any, settings: str) -> None:
        taxonomy = load_settings(settings).taxonomy
        assert taxonomy is not None
        self.page, self.taxonomy, self.rule = page, taxonomy, rule()
        self.texts = {
            attribute.id: attribute.text
            for side in (taxonomy.likes, taxonomy.dislikes)
            for attribute in side.attributes
        }

    def item(self, sample: Sample) -> None:
        """Annotate the item that is open, which is this sample."""
        document, query = str(sample.meta["document"]), str(sample.meta["question"])
        texts = [response.text for response in sample.responses]
        marks = [self.rule.marks(document, query, text) for text in texts]
        for place, (text, own) in enumerate(zip(texts, marks, strict=True)):
            for mark in own:
                self.mark(place, text, mark)
            self.questions(place, own)
        better, reason = self.rule.preference(document, query, texts)
        self.page.locator(f'input[name="better"][value="{"tie" if better is None else better}"]').check()
        self.page.locator("#preference-reason").fill(reason)
        self.page.locator("#preference-reason").blur()
        self.saved()
        self.page.get_by_role("button", name="Done, next item").click()

    def mark(self, place: int, text: str, mark: Any) -> None:
        """Drag over a passage and tick its reasons."""
        self.page.locator(f'#modes input[value="{mark.label}"]').check(force=True)
        self.drag(place, units(text, mark.start), units(text, mark.end))
        side = self.taxonomy.of(mark.label)
        for reason in mark.reasons:
            self.page.get_by_role("checkbox", name=self.texts[reason], exact=True).check()
        if mark.note:
            self.page.get_by_role("checkbox", name=OTHER.capitalize(), exact=True).check()
            self.page.get_by_label(side.other).fill(mark.note)
        self.page.get_by_role("button", name="Save", exact=True).click()
        self.saved()

    def drag(self, place: int, start: int, end: int) -> None:
        self.page.locator(f"#text-{place}").scroll_into_view_if_needed()
        self.page.mouse.move(*self.page.evaluate(POSITION, [place, start]))
        self.page.mouse.down()
        self.page.mouse.move(*self.page.evaluate(POSITION, [place, end]), steps=3)
        self.page.mouse.up()
        self.page.wait_for_selector("#reasons[open]")

    def questions(self, place: int, marks: Sequence[Any]) -> None:
        """Tick what follows from the marks: whether the response is faithful, clear, too short."""
        reasons = {reason for mark in marks for reason in mark.reasons}
        ticked = {
            "liked": ["faithful"] if "misrepresents_source" not in reasons else [],
            "disliked": [
                *(["unfaithful"] if "misrepresents_source" in reasons else []),
                *(["too_short"] if "lacks_depth" in reasons else []),
                *(["too_long"] if reasons & {"repeats_itself", "too_wordy"} else []),
            ],
        }
        for question, options in ticked.items():
            for option in options:
                self.page.locator(
                    f'input[data-key="answers/{place}"][data-field="{question}"][value="{option}"]'
                ).check()

    def saved(self) -> None:
        self.page.locator("#state", has_text="Saved").wait_for()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("samples", type=Path, help="samples with two responses each, meta.document and meta.question")
    parser.add_argument("target", type=Path, help="the file of annotations to write")
    parser.add_argument("--settings", default="retrieval", help="settings of the page")
    parser.add_argument("--browser", default="/usr/bin/chromium", help="the program")
    given = parser.parse_args()
    samples = list(read_jsonl(given.samples, Sample))
    fgrl = [sys.executable, "-m", "fgrl", "annotate"]
    with tempfile.TemporaryDirectory() as folder:
        store = str(Path(folder) / "page.sqlite")
        command = [*fgrl, "serve", str(given.samples), "--store", store, "--annotators", ANNOTATOR]
        server = subprocess.Popen(
            [*command, "--settings", given.settings, "--port", "0", "--json"], stdout=subprocess.PIPE, text=True
        )
        try:
            annotate(link(server), samples, given)
        finally:
            server.terminate()
            server.wait()
        subprocess.run([*fgrl, "export", store, str(given.target)], check=True)


def link(server: subprocess.Popen[str]) -> str:
    """The annotator's link, as the server prints it."""
    text = ""
    assert server.stdout is not None
    for line in server.stdout:
        text += line
        try:
            return str(json.loads(text)["links"][ANNOTATOR])
        except json.JSONDecodeError:
            continue
    raise SystemExit(f"the server has ended: {text}")


def annotate(address: str, samples: Sequence[Sample], given: argparse.Namespace) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=given.browser, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1400, "height": 2000})
        page.set_default_timeout(60_000)
        page.goto(address)
        annotator = Annotator(page, given.settings)
        for count in range(1, len(samples) + 1):
            page.wait_for_selector(".response")
            number = page.url.rpartition("#item=")[2]
            annotator.item(samples[int(number) - 1])
            if count < len(samples):
                page.wait_for_url(lambda url, number=number: url.rpartition("#item=")[2] != number)
            else:
                page.wait_for_selector("#finished")
            print(f"{count} of {len(samples)} items", flush=True)
        browser.close()


if __name__ == "__main__":
    main()
