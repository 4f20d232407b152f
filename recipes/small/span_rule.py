"""A written rule that marks answers to a query about a document, and one that rewrites what is marked. The first made the annotations
that ship with the small recipe, and it is that recipe's judge.

    imports: [span_rule.py]
    rewards: {rule: span_rule}
    rewriter: from_document

The rule reads an answer sentence by sentence, from left to right. It dislikes, each sentence for the first of these that applies:

    repeats_itself         at least 70% of its content words, and at least two, are in earlier sentences of the answer
    generic                it contains a stock phrase ("in conclusion", "it is important to", ...), or it breaks off at the end
    misrepresents_source   fewer than 35% of its content words, of at least three, are in the document or in the query
    too_wordy              it has more than 28 words

and likes the first other sentence of which at least 60% of the content words, and at least three, are in the document
(useful_fact, uses_document). An answer of fewer than eight words is disliked as a whole (lacks_depth). At most `MOST_DISLIKES`
sentences are disliked. Of two answers the one with fewer disliked sentences is better, then the one with more liked ones, then
the one with fewer words; else it is a tie.

The ids are attributes of the taxonomy that the annotation page shows. A rule is no person: it cannot tell whether a claim is true.

The rewriter replaces a disliked sentence by the first line of the document that the answer does not have yet, and deletes it where
there is none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fgrl import lazy, ops
from fgrl.base.errors import DataError
from fgrl.feedback.chains import RuleRewriter
from fgrl.kinds import ChainCase, Reward
from fgrl.registry import register
from fgrl.types import Annotation, Rewards, Rollout, Sample, Span

torch = lazy.load("torch")

MOST_DISLIKES = 4
FEWEST_WORDS = 8
COVERED = 0.7
"""A response has a line of the document with this share of its content words."""
WORDY = 28
STOCK_PHRASES = (
    "in conclusion", "in summary", "to summarize", "overall", "it is important to", "it's important to", "it is worth",
    "it's worth", "plays a crucial role", "plays an important role", "plays a vital role", "in today's world",
    "as an ai", "i hope this helps", "here is", "here are", "here's", "can be used in a variety", "a wide range of",
    "in many different ways", "there are many", "in other words", "the document",
)  # fmt: skip
_FUNCTION_WORDS = """
a about all also an and any are as at be been being but by can could did do does each for from had has have how if in into is it its
may mean means meaning more most no nor not of off often on once one only onto or other our out over own refer refers related same
shall should so some such term than that the their them then there these they this those through to too two under until up upon used
using was we were what when where whether which while who whom whose why will with within without word words would you your
"""
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
_WORD = re.compile(r"[^\W_]+(?:['’-][^\W_]+)*")
_SENTENCE = re.compile(r"\S(?:.*?[.!?][\"')\]]*(?=\s|$)|.*?(?=\n|$))")
_ENDINGS = (
    ("ies", "y", 5),
    ("sses", "ss", 5),
    ("ing", "", 6),
    ("ed", "", 5),
    ("es", "", 5),
    ("s", "", 4),
    ("e", "", 4),
)


@dataclass(frozen=True)
class RuleMark:
    """A sentence that the rule marks: characters `start:end`, +1 or -1, and attributes of the taxonomy."""

    start: int
    end: int
    label: int
    reasons: tuple[str, ...]
    note: str | None = None


def stem(word: str) -> str:
    """A rough stem: directs, directed and directing are one word."""
    word = word.lower()
    for ending, replacement, shortest in _ENDINGS:
        if word.endswith(ending) and len(word) >= shortest and not word.endswith("ss"):
            return word.removesuffix(ending) + replacement
    return word


def content(text: str) -> set[str]:
    """Stems of the words that carry content."""
    return {stem(word) for word in _WORD.findall(text) if word.lower() not in FUNCTION_WORDS}


def sentences(text: str) -> list[tuple[int, int]]:
    """Characters of each sentence or line; marks of a list ("1.", "-") alone are none."""
    found = [match.span() for match in _SENTENCE.finditer(text)]
    return [(start, end) for start, end in found if re.search(r"[^\W\d_]", text[start:end])]


def marks(document: str, query: str, response: str) -> list[RuleMark]:
    """What the rule marks in a response, from left to right."""
    if len(_WORD.findall(response)) < FEWEST_WORDS:
        size = len(response.rstrip())
        start = len(response) - len(response.lstrip())
        return [RuleMark(start, size, -1, ("lacks_depth",), "It is too short.")] if size > start else []
    source, given = content(document), content(document) | content(query)
    every = sentences(response)
    result: list[RuleMark] = []
    earlier: set[str] = set()
    liked = disliked = 0
    for start, end in every:
        sentence = response[start:end]
        own = content(sentence)
        reason, note = _dislike(sentence, own, earlier, given, is_last=(start, end) == every[-1])
        if reason is not None:
            if disliked < MOST_DISLIKES:
                result.append(RuleMark(start, end, -1, (reason,), note))
            disliked += 1
        elif not liked and len(own & source) >= max(3, 0.6 * len(own)):
            result.append(RuleMark(start, end, 1, ("useful_fact", "uses_document")))
            liked += 1
        earlier |= own
    return result


def _dislike(
    sentence: str, own: set[str], earlier: set[str], given: set[str], *, is_last: bool
) -> tuple[str | None, str | None]:
    """The attribute by which a sentence is disliked, and a note; (None, None) where it is not."""
    lower = sentence.lower()
    if len(own & earlier) >= max(2, 0.7 * len(own)):
        return "repeats_itself", None
    if any(re.search(rf"\b{re.escape(phrase)}\b", lower) for phrase in STOCK_PHRASES):
        return "generic", None
    if is_last and not re.search(r"[.!?][\"')\]]*$", sentence):
        return "generic", "It breaks off."
    if len(own) >= 3 and len(own & given) < 0.35 * len(own):
        return "misrepresents_source", None
    if len(_WORD.findall(sentence)) > WORDY:
        return "too_wordy", None
    return None, None


def score(document: str, query: str, response: str) -> float:
    """Sentences that are liked minus sentences that are disliked; -4 for an answer that is too short."""
    if len(_WORD.findall(response)) < FEWEST_WORDS:
        return -float(MOST_DISLIKES)
    return float(sum(mark.label for mark in marks(document, query, response)))


def preference(document: str, query: str, responses: Sequence[str]) -> tuple[int | None, str]:
    """Place of the better one of two responses, None for a tie, and the reason in words."""
    counts = []
    for response in responses:
        own = marks(document, query, response)
        disliked, liked = (sum(mark.label == label for mark in own) for label in (-1, 1))
        counts.append((disliked, -liked, len(_WORD.findall(response))))
    if counts[0] == counts[1]:
        return None, "Both have as many disliked and liked sentences, and as many words."
    better = int(counts[1] < counts[0])
    one, other = counts[better], counts[1 - better]
    if one[0] != other[0]:
        return better, f"It has fewer disliked sentences: {one[0]} against {other[0]}."
    if one[1] != other[1]:
        return better, f"It has more liked sentences: {-one[1]} against {-other[1]}."
    return better, f"It says as much in fewer words: {one[2]} against {other[2]}."


@register("span_rule")
class SpanRule(Reward):
    """Liked minus disliked sentences of a response, by the rule of this file, which compares it with `meta.document` and
    `meta.question` of its prompt."""

    reads_reference = False

    document: str = "document"
    """Entry of the prompt's `meta` that holds the document."""
    query: str = "question"
    """Entry of the prompt's `meta` that holds the query, as the reader `with_prompt` stores it."""

    def check_prompts(self, samples: Sequence[Sample]) -> None:
        for sample in samples:
            for name in (self.document, self.query):
                if not isinstance(sample.meta.get(name), str):
                    raise DataError(f"sample {sample.id}: meta.{name} has no text, and span_rule reads it")

    def score(self, rollout: Rollout) -> Rewards:
        """The reward is on the last token; what the rule marks is the response's annotation."""
        about = [(str(sample.meta[self.document]), str(sample.meta[self.query])) for sample in rollout.samples]
        pairs = list(zip(about, rollout.texts, strict=True))
        worth = torch.tensor([score(*own, text) for own, text in pairs], device=rollout.mask.device)
        last = ops.segment_ends(torch.where(rollout.mask, 0, -1))
        annotations: list[Any] = [
            Annotation(by="rule", spans=[as_span(mark) for mark in marks(*own, text)]) for own, text in pairs
        ]
        return Rewards(worth, torch.where(last, worth[:, None], 0.0), last, annotations=annotations)


def as_span(mark: RuleMark) -> Span:
    return Span(start=mark.start, end=mark.end, label=float(mark.label), reasons=list(mark.reasons), note=mark.note)


@register("from_document")
class FromDocument(RuleRewriter):
    """Replaces a disliked passage by the first line of the document (`meta.document`) that the response does not have yet; where it
    has them all, the passage is deleted. A response of which nothing would be left has no chain."""

    def edit(self, text: str, span: Span, case: ChainCase) -> tuple[int, int, str]:
        start, end = span.start, span.end
        before, after = text[:start], text[end:]
        rest = content(f"{before} {after}")
        for line in str(case.sample.meta.get("document", "")).splitlines():
            own = content(line)
            if own and len(own & rest) < COVERED * len(own):
                return start, end, line
        if not (before + after).strip():
            raise ValueError("nothing would be left of the response")
        return start - before.endswith(" "), end + (not before.endswith(" ") and after.startswith(" ")), ""
