"""Highlights written as tags, and read again."""

from __future__ import annotations

import pytest
from chain_texts import marked
from hypothesis import given

from fgrl.feedback.chain_tags import TagMistake, read_tags, tag_names, write_tags
from fgrl.types import Highlight, Marked

NAMES = {"like": "like", "dislike": "dislike"}


@given(marked())
def test_tags_are_read_as_they_were_written(before: Marked) -> None:
    names = tag_names(before.text)
    assert read_tags(write_tags(before, names), names) == before


def test_crossing_passages_have_numbered_closing_tags() -> None:
    crossing = Marked.of(
        "abcdef", [Highlight("dislike", 1, 0, 4), Highlight("dislike", 2, 2, 6), Highlight("like", 1, 3, 3)]
    )
    tagged = write_tags(crossing, NAMES)
    assert tagged == (
        "<dislike id='1'>ab<dislike id='2'>c<like id='1'></like id='1'>d</dislike id='1'>ef</dislike id='2'>"
    )
    assert read_tags(tagged, NAMES) == crossing


def test_names_that_a_text_uses_as_tags_are_not_taken() -> None:
    assert tag_names("I dislike it, <b>like</b> you", "") == NAMES
    assert tag_names("see <dislike id='1'>", "and < / LIKE >") == {"like": "like2", "dislike": "dislike2"}
    assert tag_names("<like><like2></like3 id='1'>")["like"] == "like4"
    assert tag_names("a <likelihood>")["like"] == "like2"


@pytest.mark.parametrize(
    "tagged",
    ["a <dislike id='1'>b</dislike id='1'>", 'a <dislike id="1">b</dislike id="1">', "a <Dislike id=1>b< / dislike >"],
)
def test_other_ways_to_write_the_same_tags_are_read(tagged: str) -> None:
    assert read_tags(tagged, NAMES) == Marked.of("a b", [Highlight("dislike", 1, 2, 3)])


@pytest.mark.parametrize(
    ("tagged", "reason"),
    [
        ("<dislike id='1'>a", "is not closed"),
        ("a</dislike id='1'>", "closes what is not open"),
        ("<dislike>a</dislike id='1'>", "has no id"),
        ("<dislike id='1'>a<dislike id='2'>b</dislike>c</dislike id='2'>", "2 highlights are open"),
        ("<dislike id='1'>a</dislike id='1'><dislike id='1'>b</dislike id='1'>", "is there twice"),
        ("<dislike id='1'>a<dislike id='1'>b</dislike id='1'></dislike id='1'>", "is there twice"),
        ("<dislike id='one'>a</dislike id='one'>", "cannot be read as a tag"),
        ("<dislike id='1' why='x'>a</dislike id='1'>", "cannot be read as a tag"),
        ("<dislike id='1'>a</dislike id='1'", "cannot be read as a tag"),
        ("<di\u017flike id='1'>a</dislike id='1'>", "closes what is not open"),
    ],
)
def test_what_a_tag_means_is_never_guessed(tagged: str, reason: str) -> None:
    with pytest.raises(TagMistake, match=reason):
        read_tags(tagged, NAMES)
