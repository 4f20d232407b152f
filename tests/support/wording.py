"""What commands say to their users, word by word: one snapshot per command, `tests/wording/COMMAND.txt`.

Tests check the class of an error, its place and its numbers; the words stand in the snapshot alone, so that another wording
changes one file. After a change of words, write the snapshots again and read the difference:

    rm tests/wording/*.txt
    WRITE_WORDING=1 python -m pytest -q -p no:xdist $(grep -rl 'import said' tests --include='test_*.py')
    git diff tests/wording
"""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1] / "wording"
ROOT = FOLDER.parents[1]
HEAD = "=== "


def said(command: str, title: str, text: str) -> None:
    """Compare what a command says in a situation, the title, with its snapshot."""
    words = plain(text)
    assert not any(line.startswith(HEAD) for line in words.splitlines())
    if os.environ.get("WRITE_WORDING"):
        write(command, read(command) | {title: words})
    kept = read(command)
    assert title in kept, (
        f"the snapshot of {command} has nothing on {title!r}: write it again (tests/support/wording.py)"
    )
    assert words == kept[title]


def plain(text: str) -> str:
    """Return a text without what differs between machines and runs: folders, addresses, ends of lines."""
    for place, name in ((Path.cwd(), "<here>"), (ROOT, "<fgrl>")):
        text = text.replace(f"{place}/", f"{name}/").replace(str(place), name)
    text = re.sub(r"\.py:\d+(?=\))|(?<=json/decoder)\.py:\d+", ".py:N", text)
    text = re.sub(r"/[^\s'\"]*/pytest-\d+/(popen-gw\d+/)?[^\s'\"/]*", "<folder>", text)
    text = "".join(letter if letter.isprintable() or letter == "\n" else ascii(letter)[1:-1] for letter in text)
    return "\n".join(line.rstrip() for line in text.strip().split("\n"))


@cache
def read(command: str) -> dict[str, str]:
    """Return what a command says, by title."""
    file = FOLDER / f"{command}.txt"
    if not file.exists():
        return {}
    sections = file.read_text(encoding="utf-8").split(f"\n{HEAD}")
    parts = (section.removeprefix(HEAD).partition("\n") for section in sections)
    return {title: words.strip("\n") for title, _, words in parts}


def write(command: str, sections: dict[str, str]) -> None:
    FOLDER.mkdir(exist_ok=True)
    text = "\n".join(f"{HEAD}{title}\n{words}\n" for title, words in sorted(sections.items()))
    (FOLDER / f"{command}.txt").write_text(text, encoding="utf-8")
    read.cache_clear()
    read.cache_clear()
