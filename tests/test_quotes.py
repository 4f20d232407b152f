"""Quotes in texts of many scripts: where they are found, as what, and that none is lost without being counted."""

from __future__ import annotations

import re
import unicodedata
from itertools import groupby, pairwise
from typing import Any

import pytest
import regex
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from quote_texts import texts

from fgrl.feedback.quotes import Located, Match, locate, locate_each

many = settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))


def found(quote: str, text: str, *options: Any, **more: Any) -> list[tuple[str, str]]:
    """(kind, what was found) of each match."""
    return [(match.kind, text[match.start : match.end]) for match in locate(quote, text, *options, **more)]


def edges(text: str) -> list[int]:
    """Places between extended grapheme clusters."""
    return [0, *(cluster.end() for cluster in regex.finditer(r"\X", text))]


def places(quote: str, text: str) -> list[tuple[int, int]]:
    return [(at, at + len(quote)) for at in range(len(text) - len(quote) + 1) if text.startswith(quote, at)]


def cuts_a_word(text: str, at: int) -> bool:
    sides = text[:at][-1:], text[at:][:1]
    spaced = not any(
        regex.match(r"[\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}]", s) for s in sides
    )
    return spaced and all(regex.match(r"\w", side) for side in sides)


# -- examples ----------------------------------------------------------------------------------------------------------

STORY = "He said “go — now”, twice.\r\nThe quick  brown fox jumps\u00a0over the lazy dog. A cafe\u0301, a cafe, 👩🏽‍🚀 👩 and 2½ \u00c5."


@pytest.mark.parametrize(
    ("quote", "kind", "match"),
    [
        ("The quick  brown", "exact", "The quick  brown"),
        ("The quick brown fox jumps over", "normalised", "The quick  brown fox jumps\u00a0over"),
        ('He said "go - now"', "normalised", "He said “go — now”"),
        ("twice. The", "normalised", "twice.\r\nThe"),
        ("  lazy dog.\n", "normalised", "lazy dog."),
        ("café", "normalised", "cafe\u0301"),
        ("\u212b", "normalised", "\u00c5"),
        ("ｌａｚｙ ｄｏｇ", "normalised", "lazy dog"),
        ("la\u00adzy\u200b", "normalised", "lazy"),
        ("👩🏽‍🚀", "exact", "👩🏽‍🚀"),
    ],
)
def test_a_quote_is_found_as_it_is_or_as_it_reads(quote, kind, match):
    assert found(quote, STORY) == [(kind, match)]


def test_a_character_is_not_taken_for_another_that_begins_with_it():
    assert locate("cafe", STORY)[0].start == STORY.index("cafe,"), "not the e of an é"
    assert locate("👩", STORY)[0].start == STORY.index("👩 and"), "not the face of an astronaut"
    assert found("cafe", "cafe\u0301") == [("exact", "cafe")], "but what stands there letter by letter is found"
    assert found("2 1", STORY) == []
    assert found("하", "한국") == []


@pytest.mark.parametrize(
    ("quote", "text", "start"),
    [
        ("he", "The sea: he saw it.", 9),
        ("12", "1200 ships, 12 lost", 12),
        ("x", "max_x = x", 8),
        ("HE", "The sea: he saw it.", 9),
        ("lat", "platform", 1),
        ("山川", "大山川海 山川", 1),
    ],
)
def test_a_whole_word_is_preferred_to_a_part_of_one(quote: str, text: str, start: int) -> None:
    assert [match.start for match in locate(quote, text, ignore_case=True)] == [start]


def test_white_space_alone_is_no_quote() -> None:
    assert [locate(blank, "a b\nc", "all", 0.5) for blank in (" ", "\n", "\u00a0 ")] == [[], [], []]


def test_case_counts_unless_told_otherwise():
    assert found("the LAZY dog", STORY) == []
    assert found("the LAZY dog", STORY, ignore_case=True) == [("normalised", "the lazy dog")]
    assert found("STRASSE", "die Straße", ignore_case=True) == [("normalised", "Straße")]


def test_first_and_all_places_also_where_they_overlap():
    assert locate("!!", "!!! b !!", "all") == [Match(at, at + 2, "exact", 1.0) for at in (0, 1, 6)]
    assert locate("!!", "!!! b !!") == [Match(0, 2, "exact", 1.0)]
    assert found("x  y", "x y, x\ty, x", "all") == [("normalised", "x y"), ("normalised", "x\ty")]


def test_something_like_it_is_found_only_above_the_threshold():
    assert found("The quik brown foxes jump", STORY) == []
    assert found("The quik brown foxes jump", STORY, "first", 0.8) == [("fuzzy", "The quick  brown fox jump")]
    assert found("The quick fox jumps", STORY, "first", 0.8) == [("fuzzy", "The quick  brown fox jumps")], (
        "longer than it"
    )
    assert found("go now", STORY, "first", 0.7) == [("fuzzy", "go — now")]
    assert found("a caffee,", STORY, "first", 0.7) == [("fuzzy", "a cafe,")]
    match = locate("abcdef", "xx abXdef", "first", 0.8)[0]
    assert match == Match(3, 9, "fuzzy", round(10 / 12, 4))
    assert locate("abcdef", "xx abXdef", "first", 0.84) == []
    assert locate("a long quote that holds all of it: sea, and more", "sea", "first", 0.5) == []


def test_all_of_several_like_it_from_the_best():
    text = "the green sea. the brown sae. the green sae."
    assert [match.start for match in locate("the green see", text, "all", 0.75)] == [0, 30]
    assert [match.score for match in locate("the green see", text, "all", 0.75)] == [0.96, 0.9231]


def test_a_quote_given_twice_means_two_places():
    text = "sea and sea, “sea”"
    assert [[match.start for match in one] for one in locate_each(["sea"] * 4, text)] == [[0], [8], [14], [14]]
    assert [len(one) for one in locate_each(["sea", "sea", "land"], text, "all")] == [3, 3, 0]
    nested = locate_each(["sea and sea", "sea", "and"], text)
    assert [[match.start for match in one] for one in nested] == [[0], [0], [4]]


def test_what_cannot_be_asked():
    assert locate("", "abc") == locate("abc", "") == locate("\u200b", "abc") == locate(" ", "abc", "all", 0.1) == []
    for threshold in (0, 1.5, -1):
        with pytest.raises(ValueError, match="a similarity is above 0 and at most 1"):
            locate("a", "b", "first", threshold)
    with pytest.raises(ValueError, match="first or all"):
        locate("a", "b", "last")  # type: ignore[arg-type]


def test_the_summary_and_its_alarm():
    located = Located()
    assert (located.rate, located.alarm(), located.counts()["quotes"]) == (0, None, 0)
    located.add(locate_each(["the lazy", "zebra", "go - now", "quik brown"], STORY, "first", 0.8))
    assert located.counts() == {
        "quotes": 4, "quotes: exact": 1, "quotes: normalised": 1, "quotes: fuzzy": 1, "lowest score": 0.9524,
        "unmatched quotes": 1, "unmatched rate": 0.25,
    }  # fmt: skip
    assert located.alarm(0.25) is None
    assert located.alarm().startswith("1 of 4 quotes (25.0%) were not found in their texts, more than 2.5%")


# -- properties --------------------------------------------------------------------------------------------------------


@many
@given(text=texts, data=st.data())
def test_a_quote_cut_from_a_text_is_found_exactly_where_it_stands(text: str, data: Any) -> None:
    assume(text)
    start = data.draw(st.integers(0, len(text) - 1))
    quote = text[start : data.draw(st.integers(start + 1, len(text)))]
    standing, whole = places(quote, text), set(edges(text))
    wanted = [place for place in standing if set(place) <= whole] or standing
    wanted = [place for place in wanted if not any(cuts_a_word(text, at) for at in place)] or wanted
    if not quote.strip():
        assert locate(quote, text, "all") == []
        return
    assert [(match.start, match.end) for match in locate(quote, text, "all")] == wanted
    assert locate(quote, text) == [Match(*wanted[0], "exact", 1.0)]
    assert locate(quote, text, "first", 0.5) == locate(quote, text), "nothing is guessed where it stands"


FORMS = ["NFC", "NFD", "NFKC", "NFKD"]
SHAPES = {"'": "‘’`′", '"': "“”„«", "-": "–—‐−"}


def rewritten(quote: str, data: Any) -> str:
    """The same quote as somebody else would type it."""
    for plain, others in SHAPES.items():
        shapes = plain + others
        quote = "".join(data.draw(st.sampled_from(shapes)) if one in shapes else one for one in quote)
    spaces = st.sampled_from([" ", "\n", "\r\n", "  \t", "\u00a0", "\u2003 "])
    clusters: list[str | None] = []
    for cluster in regex.findall(r"\X", quote):
        assume(len(regex.findall(r"\X", f"a{cluster}a")) == 3)  # a mark without a letter would join the space before it
        cluster = unicodedata.normalize(data.draw(st.sampled_from(FORMS)), cluster)
        clusters.append(data.draw(spaces) if cluster.isspace() else cluster)
        clusters.append(data.draw(st.sampled_from(["", "", "", "\u200b", "\u00ad"])))
    return data.draw(st.sampled_from(["", " ", "\n"])) + "".join(clusters) + data.draw(st.sampled_from(["", "  "]))


def blank(cluster: str) -> bool:
    """White space, or nothing that can be seen."""
    return not regex.sub(r"[\u00ad\u200b\u2060\ufe0e\ufe0f\ufeff]", "", cluster).strip()


@many
@given(text=texts, data=st.data())
def test_a_quote_typed_differently_is_found_where_it_was_cut(text: str, data: Any) -> None:
    assume(text)
    ends = edges(text)
    first = data.draw(st.integers(0, len(ends) - 2))
    last = data.draw(st.integers(first + 1, len(ends) - 1))
    quote = rewritten(text[ends[first] : ends[last]], data)
    while first < last and blank(text[ends[first] : ends[first + 1]]):
        first += 1
    while first < last and blank(text[ends[last - 1] : ends[last]]):
        last -= 1
    matches = locate(quote, text, "all")
    if first == last:
        assert all(match.kind == "exact" for match in matches), "nothing to see can only stand there as it is"
        return
    assert matches
    cut = cuts_a_word(text, ends[first]) or cuts_a_word(text, ends[last])
    for match in matches:
        if match.kind == "exact":
            assert text[match.start : match.end] == quote
        else:
            assert {match.start, match.end} <= set(ends)
    if matches[0].kind == "normalised":
        assert cut or (ends[first], ends[last]) in [(match.start, match.end) for match in matches]


LETTERS = "abcdefgh жзик 山川海 éñ"


@settings(many, max_examples=1000)
@given(text=texts, data=st.data())
def test_a_misspelt_quote_is_found(text: str, data: Any) -> None:
    """Two letters wrong in a quote of twenty or more; the text around it is anything."""
    words = st.text(LETTERS, min_size=20, max_size=30).map(lambda one: "x" + one.strip() + "y")
    quote = data.draw(words)
    assume(len(quote) >= 20)
    whole = text + " " + quote + " " + data.draw(texts)
    wrong = list(quote)
    for _ in range(2):
        at = data.draw(st.integers(1, len(wrong) - 2))
        wrong[at : at + 1] = data.draw(st.sampled_from([[], ["q"], [wrong[at], "q"]]))
    matches = locate("".join(wrong), whole, "first", 0.75)
    assert len(matches) == 1
    assert matches[0].score >= likeness(plain("".join(wrong)), plain(quote)) - 0.02, "or something about as like"
    if matches[0].kind == "fuzzy":
        assert matches[0].start < len(text) + 1 + len(quote)
        assert matches[0].end > len(text) + 1


@many
@given(
    quote=texts, text=texts, occurrence=st.sampled_from(["first", "all"]), threshold=st.sampled_from([0.3, 0.6, 0.9])
)
def test_whatever_is_found_is_whole_characters_and_as_like_as_it_says(quote, text, occurrence, threshold):
    matches = locate(quote, text, occurrence, threshold)
    assert len(matches) <= 1 or occurrence == "all"
    assert len({match.kind for match in matches}) <= 1
    if matches and matches[0].kind == "fuzzy":
        reach = sorted((match.start, match.end) for match in matches)
        assert all(one[1] <= two[0] for one, two in pairwise(reach)), "no two share a character"
        assert [match.score for match in matches] == sorted((match.score for match in matches), reverse=True)
    for match in matches:
        assert 0 <= match.start < match.end <= len(text)
        if match.kind == "exact":
            assert text[match.start : match.end] == quote
            continue
        assert {match.start, match.end} <= set(edges(text))
        like = likeness(plain(quote), plain(text[match.start : match.end]))
        if match.kind == "normalised":
            assert like == match.score == 1
        else:
            assert match.score == pytest.approx(like, abs=1e-4)
            assert match.score >= threshold - 1e-4


def plain(text: str) -> str:
    """How a text reads: written apart from `fgrl.feedback.quotes`."""
    clusters: list[str | None] = []
    for cluster in regex.findall(r"\X", text):
        letters = regex.sub(r"[\u00ad\u200b\u2060\ufe0e\ufe0f\ufeff]", "", unicodedata.normalize("NFKD", cluster))
        letters = re.sub("[‘’‚‛′‵‹›ʼ`]", "'", re.sub("[“”„‟«»〝〞〟]", '"', letters))
        letters = re.sub("[‐‑‒–—―⁃−⸺⸻]", "-", letters)
        if letters:
            clusters.append(letters if letters.strip() else None)
    runs = [" " if blank else "".join(run) for blank, run in groupby(clusters, lambda cluster: cluster is None)]
    return "".join(runs[runs[:1] == [" "] : len(runs) - (runs[-1:] == [" "])])


def likeness(one: str, other: str) -> float:
    """2 x longest common subsequence / both lengths."""
    row = [0] * (len(other) + 1)
    for letter in one:
        before = row
        row = [0]
        for j, mate in enumerate(other):
            row.append(before[j] + 1 if letter == mate else max(row[j], before[j + 1]))
    return 2 * row[-1] / (len(one) + len(other))


@many
@given(quotes=st.lists(texts, max_size=5), text=texts, occurrence=st.sampled_from(["first", "all"]))
def test_every_quote_is_found_or_counted(quotes, text, occurrence):
    each = locate_each(quotes, text, occurrence, 0.7)
    located = Located()
    located.add(each)
    assert len(each) == located.quotes == len(quotes)
    assert located.unmatched == sum(not one for one in each)
    assert located.unmatched + sum(located.kinds.values()) == len(quotes)
    assert (located.alarm(0.0) is None) == (located.unmatched == 0)
    for quote, matches in zip(quotes, each, strict=True):
        assert bool(matches) == bool(locate(quote, text, "all", 0.7))
