"""Pages, read back: what is in them, and that nothing in them can run or load anything."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

from fake_runs import write_json

import fgrl.pages.report

VOID = {"meta", "link", "input", "br"}
HOSTILE = [
    "<script>alert(1)</script>",
    "</style><img src=x onerror=alert(1)>",
    '" onmouseover="alert(1)',
    "'><svg/onload=alert(1)>",
    "javascript:alert(1)",
    "{{ 7 * 191 }}{% raw %}",
    "]]> <!-- --!>",
    "a\u202eb\u2066c\u200fd",
    "nul\x00 esc\x1b[31mred\x1b[0m bell\x07 c1\x9b",
    "line\u2028sep\ufeff\U000e0041",
    "lone\ud800surrogate",
    "$\\frac{1}{2}$ ${out:x}",
]


class Page(HTMLParser):
    """Elements and attributes; complains about markup that does not nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), (tag, attrs)
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open, tag
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if not self.open or self.open[-1] != "style":
            self.text.append(data)


def page(folder: Path) -> tuple[str, Page]:
    path = fgrl.pages.report.write(folder)
    assert path == folder / "report.html"
    text = path.read_text(encoding="utf-8")
    return text, Page(text)


def stage(folder: Path, name: str) -> Path:
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return folder / summary["stages"][name]["dir"]


def change(path: Path, **values: object) -> None:
    write_json(path, json.loads(path.read_text(encoding="utf-8")) | values)


def assert_safe(text: str, parsed: Page) -> None:
    names = {tag for tag, _ in parsed.tags}
    assert not names & {"script", "img", "iframe", "object", "embed", "form", "base", "audio", "video", "use", "image"}
    for tag, attributes in parsed.tags:
        assert not [name for name in attributes if name.startswith("on") or name in ("src", "style", "action")], tag
        for name in ("href", "xlink:href"):
            if name in attributes:
                assert (attributes[name] or "").startswith(("#", "data:,")), attributes
    css = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert css
    assert "url(" not in css[1]
    assert "@import" not in css[1]
    assert len(re.findall("<style", text)) == len(re.findall("</style", text)) == 1
