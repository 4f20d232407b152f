"""Highlights as numbered tags in a text: `the <dislike id='2'>busy</dislike id='2'> street` (CH-Wang et al. 2025,
appendix A).

Closing tags carry the number, too, so highlights may cross each other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from fgrl.types import Feeling, Highlight, Marked

TagNames = Mapping[Feeling, str]
"""Names of the tags of each feeling."""
FEELINGS: tuple[Feeling, ...] = ("like", "dislike")


class TagMistake(ValueError):
    """Tags that cannot be read as highlights, with a reason that a model can act on."""


def tag_names(*texts: str) -> dict[Feeling, str]:
    """Return names for the tags that occur as tags in none of the texts: `like` and `dislike`, or else these words with
    a number. A text that already contains `<dislike id='1'>` keeps it.
    """
    return {feeling: _free_name(feeling, texts) for feeling in FEELINGS}


def _free_name(name: str, texts: tuple[str, ...]) -> str:
    free, number = name, 1
    while any(_beginning(free).search(text) for text in texts):
        number += 1
        free = f"{name}{number}"
    return free


def _beginning(name: str) -> re.Pattern[str]:
    """Return the beginning of a tag of this name, or of a longer one: a highlight may end anywhere in it."""
    return re.compile(rf"<\s*/?\s*{re.escape(name)}", re.IGNORECASE | re.ASCII)


def write_tags(marked: Marked, names: TagNames) -> str:
    """Return the text with its tags. A highlight that has no text any more is an empty pair of tags."""
    parts: list[str] = []
    before = 0
    for place in sorted({end for highlight in marked.highlights for end in (highlight.start, highlight.end)}):
        parts += [marked.text[before:place], *_tags_at(marked, place, names)]
        before = place
    return "".join([*parts, marked.text[before:]])


def _tags_at(marked: Marked, place: int, names: TagNames) -> list[str]:
    """Return the tags at one place: first closing tags, the innermost first; then empty pairs; then opening tags, the
    outermost first.
    """
    closing = [one for one in marked.highlights if one.start < place == one.end]
    empty = [one for one in marked.highlights if one.start == place == one.end]
    opening = [one for one in marked.highlights if one.start == place < one.end]
    return [
        *(_tag(one, names, "/") for one in sorted(closing, key=lambda one: (-one.start, one))),
        *(_tag(one, names, slash) for one in empty for slash in ("", "/")),
        *(_tag(one, names) for one in sorted(opening, key=lambda one: (-one.end, one))),
    ]


def _tag(highlight: Highlight, names: TagNames, slash: str = "") -> str:
    return f"<{slash}{names[highlight.feeling]} id='{highlight.number}'>"


def read_tags(tagged: str, names: TagNames) -> Marked:
    """Return the text without its tags, and the places of the tags.

    The number may stand in quotes of either kind or in none, and white space inside a tag does not matter. A closing
    tag without a number closes the only highlight of its name that is open; if several are open it is a mistake. Raises
    `TagMistake` for anything else: the meaning of a tag is never guessed.
    """
    feelings = {name: feeling for feeling, name in names.items()}
    tag = re.compile(
        rf"<\s*(/?)\s*({'|'.join(map(re.escape, feelings))})(?:\s+id\s*=\s*(['\"]?)([0-9]{{1,6}})\3)?\s*>",
        re.IGNORECASE | re.ASCII,
    )
    pieces: list[str] = []
    length = before = 0
    opened: dict[tuple[Feeling, int], int] = {}
    closed: dict[tuple[Feeling, int], Highlight] = {}
    for match in tag.finditer(tagged):
        piece = _without_tags(tagged[before : match.start()], names)
        pieces.append(piece)
        length += len(piece)
        before = match.end()
        feeling = feelings[match[2].lower()]
        number = int(match[4]) if match[4] else _only_open(feeling, opened, match) if match[1] else None
        if number is None:
            raise TagMistake(f"{match[0]} has no id")
        key = feeling, number
        if not match[1]:
            if key in opened or key in closed:
                raise TagMistake(f"{match[0]} is there twice")
            opened[key] = length
        elif key not in opened:
            raise TagMistake(f"{match[0]} closes what is not open")
        else:
            closed[key] = Highlight(feeling, number, opened.pop(key), length)
    pieces.append(_without_tags(tagged[before:], names))
    if opened:
        feeling, number = next(iter(opened))
        raise TagMistake(f"<{names[feeling]} id='{number}'> is not closed")
    return Marked.of("".join(pieces), closed.values())


def _without_tags(piece: str, names: TagNames) -> str:
    """Return a piece of text between tags. Raises `TagMistake` if it contains something that looks like a tag but is
    none.
    """
    for name in names.values():
        if broken := _beginning(name).search(piece):
            raise TagMistake(f"{piece[broken.start() : broken.start() + 40]!r} cannot be read as a tag")
    return piece


def _only_open(feeling: Feeling, opened: Mapping[tuple[Feeling, int], int], match: re.Match[str]) -> int:
    numbers = [number for other, number in opened if other == feeling]
    if len(numbers) != 1:
        raise TagMistake(f"{match[0]} has no id, and {len(numbers)} highlights are open")
    return numbers[0]
