"""Which steps are one edit that addresses one passage."""

from __future__ import annotations

import pytest
from chain_texts import correct_steps
from hypothesis import assume, given

from fgrl.feedback import chain_checks
from fgrl.feedback.chain_checks import BrokenStep, Edit, EditLimits, replaced, with_ends_of
from fgrl.feedback.chain_tags import read_tags
from fgrl.types import Highlight, Marked

NAMES = {"like": "l", "dislike": "d"}
ANY_CHANGE = EditLimits(reach=5, gap=0, max_change=1.0)


def tagged(text: str) -> Marked:
    return read_tags(text, NAMES)


BEFORE = tagged(
    "The mill is <d id=1>very very old</d id=1>. It stands by <d id=2>the sea</d id=2>, and <l id=1>people come</l id=1> "
    "every summer to see it. Nobody lives there today."
)
LIMITS = EditLimits(reach=20, gap=10, max_change=0.5)


@given(correct_steps())
def test_an_edit_around_the_passage_always_passes(step: tuple[Marked, int, Marked]) -> None:
    before, number, after = step
    assume(not chain_checks.same_words(before.text, after.text))
    try:
        edit = EditLimits(reach=5, gap=5, max_change=1.0).check(before, after, number)
    except BrokenStep as broken:
        raise AssertionError(f"{broken.problem}: {broken}") from None
    assert before.text[: edit.start] == after.text[: edit.start]
    assert before.text[edit.end :] == after.text[edit.new_end :]
    target = before.disliked(number)
    assert edit.start <= target.start <= target.end <= edit.end
    assert target.start - edit.start <= 5
    assert edit.end - target.end <= 5


@pytest.mark.parametrize(
    ("after", "problem"),
    [
        # tags
        ("The mill is <d id=1>ancient</d id=1>. It stands by <d id=2>the sea</d id=2>, and <l id=1>people come</l id=1> every summer to see it. Nobody lives there today.", chain_checks.TAG_KEPT),
        ("The mill is <d id=1>very very old</d id=1>. It stands by the lake, and <l id=1>people come</l id=1> every summer to see it. Nobody lives there today.", chain_checks.OTHER_TAG),
        ("The mill is ancient. It stands by the lake, and <l id=1>people come</l id=1> every summer to see it. Nobody lives there today.", chain_checks.MORE_TAGS),
        ("The mill is ancient. It stands by <d id=2>the sea</d id=2>, <d id=3>and</d id=3> <l id=1>people come</l id=1> every summer to see it. Nobody lives there today.", chain_checks.NEW_TAG),
        ("The mill is ancient. It stands by <d id=2>the sea</d id=2>, and people come every summer to see it. Nobody lives there today.", chain_checks.LIKE_LOST),
        ("The mill is ancient. It stands <d id=2>by the sea</d id=2>, and <l id=1>people come</l id=1> every summer to see it. Nobody lives there today.", chain_checks.MOVED),
        ("The mill is ancient. It stands by <d id=2>the sea</d id=2>, and <l id=1>people</l id=1> come every summer to see it. Nobody lives there today.", chain_checks.MOVED),
        # texts
        ("The mill is very very old. It stands by <d id=2>the sea</d id=2>, and <l id=1>people come</l id=1> every summer to see it. Nobody lives there today.", chain_checks.UNCHANGED),
        ("Short. <d id=2></d id=2><l id=1></l id=1>", chain_checks.TOO_LARGE),
        ("The mill is ancient. It stands by <d id=2>the sea</d id=2>, and <l id=1>people come</l id=1> every summer to see it. Nobody lives here today.", chain_checks.SEVERAL),
        ("The mill is very very old. It stands by <d id=2>the sea</d id=2>, and <l id=1>people come</l id=1> every summer to see it. Nobody lives here today.", chain_checks.ELSEWHERE),
        ("The mill is ancient, falling apart, <d id=2></d id=2>and <l id=1>people come</l id=1> every summer to see it. Nobody lives there today.", chain_checks.TOO_FAR),
    ],
)  # fmt: skip
def test_each_kind_of_broken_step_has_its_own_problem(after: str, problem: str) -> None:
    with pytest.raises(BrokenStep) as broken:
        LIMITS.check(BEFORE, tagged(after), 1)
    assert broken.value.problem == problem, str(broken.value)


def test_the_edit_is_where_the_text_changed() -> None:
    after = tagged(
        "The mill is ancient. It stands by <d id=2>the sea</d id=2>, and <l id=1>people come</l id=1> every summer to see it. "
        "Nobody lives there today."
    )
    assert LIMITS.check(BEFORE, after, 1) == Edit(start=12, end=25, new_end=19)


def test_an_edit_may_extend_beyond_the_passage_up_to_reach() -> None:
    before = tagged("one two three <d id=1>four</d id=1> five six seven")
    after = tagged("one two 3 4 five six seven")
    assert EditLimits(reach=6, max_change=1.0).check(before, after, 1) == Edit(8, 18, 11)
    with pytest.raises(BrokenStep) as broken:
        EditLimits(reach=5, max_change=1.0).check(before, after, 1)
    assert broken.value.problem == chain_checks.TOO_FAR


def test_unchanged_text_inside_the_passage_is_no_gap() -> None:
    before = tagged("<d id=1>A first clause, and then many words that stay as they are, and a last one</d id=1>. End.")
    after = tagged("A 1st clause, and then many words that stay as they are, and the last one. End.")
    assert EditLimits(gap=0).check(before, after, 1).shift == len(after.text) - len(before.text)


def test_of_repeated_text_it_does_not_matter_which_copy_goes() -> None:
    """Deleting "ab " from "ab ab ab" gives the same text wherever it was; the tags behind it show which one it was."""
    before = tagged("ab <d id=1>ab </d id=1><d id=2>ab</d id=2>")
    assert ANY_CHANGE.check(before, tagged("ab <d id=2>ab</d id=2>"), 1) == Edit(3, 6, 3)
    far = tagged("<d id=1>ab</d id=1> ab ab ab ab <l id=1>ab</l id=1>")
    assert ANY_CHANGE.check(far, tagged("ab ab ab ab <l id=1>ab</l id=1>"), 1).start == 0


def test_highlights_inside_and_across_the_edit_may_change() -> None:
    before = tagged("aa <d id=1>bb <d id=2>cc</d id=2> d<d id=3>d</d id=1> ee</d id=3> ff")
    after = tagged("aa xx <d id=2>yy</d id=2><d id=3> ee</d id=3> ff")
    assert ANY_CHANGE.check(before, after, 1) == Edit(3, 11, 8)
    wrong = tagged("aa xx <d id=2>yy</d id=2><d id=3> e</d id=3>e ff")
    with pytest.raises(BrokenStep) as broken:
        ANY_CHANGE.check(before, wrong, 1)
    assert broken.value.problem == chain_checks.MOVED


def test_a_replaced_passage_takes_the_others_along() -> None:
    before = tagged("aa <d id=1>bb <d id=2>cc</d id=2> d<d id=3>d</d id=1> ee</d id=3> <l id=1>ff</l id=1>")
    after = replaced(before, 1, 3, 11, "XY")
    assert after == tagged("aa <d id=2>XY</d id=2><d id=3> ee</d id=3> <l id=1>ff</l id=1>")


def test_white_space_at_the_ends_is_that_of_the_original() -> None:
    original = "\n  a bc \n"
    read = with_ends_of(original, tagged("a <d id=1>xyz</d id=1>  "))
    assert read == Marked.of("\n  a xyz \n", [Highlight("dislike", 1, 5, 8)])
    assert with_ends_of(original, Marked.of(original, [])).text == original


def test_a_window_that_is_too_large_to_compare_is_refused() -> None:
    size = chain_checks.LARGEST + 1
    before = Marked.of("a" * size, [Highlight("dislike", 1, 0, size)])
    with pytest.raises(BrokenStep, match="more than 20,000 characters"):
        EditLimits(max_change=1.0).check(before, Marked.of("b" * size, []), 1)


def test_more_or_fewer_spaces_are_no_edit_but_a_new_line_is_one() -> None:
    more_spaces, new_line = (
        tagged(
            f"The mill is very{between}very old. It stands by <d id=2>the sea</d id=2>, and <l id=1>people come</l id=1> "
            "every summer to see it. Nobody lives there today."
        )
        for between in ("  ", "\n")
    )
    with pytest.raises(BrokenStep) as caught:
        LIMITS.check(BEFORE, more_spaces, 1)
    assert caught.value.problem == chain_checks.UNCHANGED
    assert LIMITS.check(BEFORE, new_line, 1).shift == 0
