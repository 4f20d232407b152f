"""Random texts, highlights and correct steps, for the tests of improvement chains."""

from __future__ import annotations

from hypothesis import strategies as st

from fgrl.feedback.chain_checks import replaced
from fgrl.types import Highlight, Marked

WORDS = (
    "the mill",
    " ",
    "\n",
    "<dislike id='1'>",
    "</like id='2'>",
    "<",
    "like",
    "é",
    "👩‍👧",
    "a b",
    ".",
    "<DISLIKE2 id=3>",
    "&lt;",
)
texts = st.lists(st.one_of(st.sampled_from(WORDS), st.text(max_size=6)), max_size=8).map("".join)


@st.composite
def marked(draw: st.DrawFn, texts: st.SearchStrategy[str] = texts, dislikes: int = 0) -> Marked:
    """A text with highlights that nest, cross, touch and are empty."""
    text = draw(texts)
    place = st.integers(0, len(text))
    found = []
    for feeling, least in (("dislike", dislikes), ("like", 0)):
        places = draw(st.lists(st.tuples(place, place), min_size=least, max_size=5))
        ranges = sorted((min(pair), max(pair)) for pair in places)
        found += [Highlight(feeling, number, *pair) for number, pair in enumerate(ranges, start=1)]  # type: ignore[arg-type]
    return Marked.of(text, found)


@st.composite
def correct_steps(draw: st.DrawFn) -> tuple[Marked, int, Marked]:
    """A text, the dislike to address, and the text after one edit of the passage and at most 5 characters around it."""
    before = draw(marked(dislikes=1))
    number = draw(st.sampled_from([one.number for one in before.highlights if one.feeling == "dislike"]))
    target = before.disliked(number)
    start = max(0, target.start - draw(st.integers(0, 5)))
    end = min(len(before.text), target.end + draw(st.integers(0, 5)))
    return before, number, replaced(before, number, start, end, draw(texts))
