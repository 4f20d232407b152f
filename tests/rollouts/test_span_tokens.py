"""Characters to tokens, of both kinds of tokenizer, over texts of many scripts; the oracle is the bytes of the vocabulary."""

from __future__ import annotations

from itertools import accumulate, combinations, pairwise, product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from quote_texts import TOKENIZERS, bytes_of, texts

from fgrl import rollouts
from fgrl.base import ops
from fgrl.feedback.quotes import Located, locate_each
from fgrl.types import Span

many = settings(max_examples=1000, deadline=None, suppress_health_check=list(HealthCheck))
kinds = pytest.mark.parametrize("kind", list(TOKENIZERS))


def sampled(kind: str, text: str) -> tuple[Any, list[int], str]:
    """A tokenizer, token ids with an end, and the text that they say."""
    tokenizer = TOKENIZERS[kind]()
    ids = [*tokenizer(text, add_special_tokens=False).input_ids, tokenizer.eos_token_id]
    return tokenizer, ids, rollouts.decode(tokenizer, ids)


def sharing(pieces: list[bytes], text: str, start: int, end: int) -> list[int]:
    """Tokens with a byte of the characters `start:end`."""
    first, last = len(text[:start].encode()), len(text[:end].encode())
    stops = [0, *accumulate(map(len, pieces))]
    return [i for i, (a, b) in enumerate(pairwise(stops)) if max(a, first) < min(b, last)]


def chosen(spans: list[Span], offsets: list[tuple[int, int]], text: str) -> list[int]:
    return [i for i, label in enumerate(ops.spans_to_tokens(spans, offsets, text, "overlap").tolist()) if label]


@kinds
@many
@given(text=texts, data=st.data())
def test_the_tokens_of_a_span_are_those_that_share_a_character_with_it(kind: str, text: str, data: Any) -> None:
    tokenizer, ids, said = sampled(kind, text)
    offsets, pieces = rollouts.offsets(tokenizer, ids), bytes_of(kind, tokenizer, ids)
    assert b"".join(pieces) == said.encode(), "the oracle knows every byte"
    start = data.draw(st.integers(0, len(said)))
    end = data.draw(st.integers(start, len(said) + 2))
    span = Span(start=start, end=end)
    found = chosen([span], offsets, said)
    # tokens that hold a part of a character share it, also where a neighbour holds the rest
    assert found == sharing(pieces, said, start, end)
    covered = {place for i in found for place in range(*offsets[i])}
    assert set(range(start, min(end, len(said)))) <= covered, "every character that was asked for"
    assert ops.uncovered_spans([span], offsets, said, "overlap") == ([] if found else [0]), "what has no token is told"
    assert bool(found) == (start < min(end, len(said))), "and nothing else is"


@kinds
def test_a_replacement_character_is_a_character_like_any_other(kind: str) -> None:
    """Decoders write it for broken bytes, too, so the text alone does not tell where it begins."""
    alphabet = ["\ufffd", "a", " ", "é", "你", "🎉"]
    for text in map("".join, product(alphabet, repeat=3)):
        tokenizer, ids, said = sampled(kind, text)
        offsets, pieces = rollouts.offsets(tokenizer, ids), bytes_of(kind, tokenizer, ids)
        assert offsets[-1] == (len(said), len(said)), "the end covers nothing"
        for start, end in combinations(range(len(said) + 1), 2):
            assert chosen([Span(start=start, end=end)], offsets, said) == sharing(pieces, said, start, end)


def test_broken_bytes_that_were_drawn_have_their_own_characters() -> None:
    tokenizer = TOKENIZERS["byte_level"]()
    a, e2, f0 = (tokenizer.convert_tokens_to_ids(token) for token in ("a", "â", "ð"))
    ids = [a, e2, a, f0, f0, a, tokenizer.eos_token_id]
    assert rollouts.decode(tokenizer, ids) == "a\ufffda\ufffd\ufffda"
    assert rollouts.offsets(tokenizer, ids) == [*((i, i + 1) for i in range(6)), (6, 6)]


@kinds
def test_an_id_that_the_tokenizer_does_not_have_covers_nothing(kind: str) -> None:
    tokenizer, ids, said = sampled(kind, "a mill")
    assert rollouts.decode(tokenizer, [*ids, 99_999]) == said
    offsets = rollouts.offsets(tokenizer, [*ids, 99_999])
    assert offsets == [*rollouts.offsets(tokenizer, ids), (len(said), len(said))]


@kinds
@settings(max_examples=100, deadline=None)
@given(
    words=st.lists(st.sampled_from(["a", "good", "novel", "here", "lamps,", "…"]), min_size=1, max_size=6),
    data=st.data(),
)
def test_every_word_of_a_marked_passage_has_its_tokens(kind: str, words: list[str], data: Any) -> None:
    tokenizer, ids, said = sampled(kind, " ".join(words))
    offsets = rollouts.offsets(tokenizer, ids)
    first = data.draw(st.integers(0, len(words) - 1))
    last = data.draw(st.integers(first, len(words) - 1))
    start = said.index(" ".join(words)) + len(" ".join([*words[:first], ""]))
    span = Span(start=start, end=start + len(" ".join(words[first : last + 1])))
    labels = ops.spans_to_tokens([span], offsets, said).tolist()
    covered = {place for label, extent in zip(labels, offsets, strict=True) if label for place in range(*extent)}
    letters = {place for place in range(span.start, span.end) if said[place] != " "}
    assert letters <= covered
    assert covered <= set(range(span.start - 1, span.end)), "and no more than the space before it"


@kinds
@many
@given(text=texts, data=st.data())
def test_quotes_reach_their_tokens_or_are_counted(kind: str, text: str, data: Any) -> None:
    tokenizer, ids, said = sampled(kind, text)
    offsets, pieces = rollouts.offsets(tokenizer, ids), bytes_of(kind, tokenizer, ids)
    quotes = data.draw(st.lists(st.one_of(cuts(said), texts), max_size=4))
    located = locate_each(quotes, said, data.draw(st.sampled_from(["first", "all"])), 0.8)
    counted = Located()
    counted.add(located)
    places = [match for matches in located for match in matches]
    spans = [Span(start=match.start, end=match.end) for match in places]
    assert counted.quotes == len(quotes)
    assert counted.unmatched == sum(not matches for matches in located)
    assert ops.uncovered_spans(spans, offsets, said, partial=True) == [], "what was found has tokens"
    wanted = {i for match in places for i in sharing(pieces, said, match.start, match.end)}
    assert chosen(spans, offsets, said) == sorted(wanted)


def cuts(text: str) -> st.SearchStrategy[str]:
    ends = st.integers(0, len(text))
    return st.tuples(ends, ends).map(lambda two: text[min(two) : max(two)])


@kinds
@many
@given(text=texts)
def test_a_written_text_is_encoded_with_the_characters_that_it_was_written_with(kind: str, text: str) -> None:
    """`encode_text` and the very tokens' own offsets agree wherever the tokenizer gives the text back as it was."""
    tokenizer = TOKENIZERS[kind]()
    ids, offsets = rollouts.encode_text(tokenizer, text)
    assert ids == tokenizer(text, add_special_tokens=False).input_ids
    assert all(0 <= start <= end <= len(text) for start, end in offsets)
    if rollouts.decode(tokenizer, ids) == text:
        assert offsets == rollouts.offsets(tokenizer, ids)
        assert offsets == [(a, b) for a, b in own(bytes_of(kind, tokenizer, ids), text)]


def own(pieces: list[bytes], text: str) -> list[tuple[int, int]]:
    """Characters that each token has a byte of."""
    owner = [place for place, character in enumerate(text) for _ in character.encode()] + [len(text)]
    stops = [0, *accumulate(map(len, pieces))]
    return [(owner[a], owner[b - 1] + 1) if a < b else (owner[a], owner[a]) for a, b in pairwise(stops)]


@many
@given(text=texts, data=st.data())
def test_labels_carry_over_between_tokenizers(text: str, data: Any) -> None:
    """What one tokenizer marks, another finds again: its tokens that share a character with those marked, none other."""
    _, ids, said = sampled("metaspace", text)
    ours = rollouts.offsets(TOKENIZERS["metaspace"](), ids)
    theirs = rollouts.encode_text(TOKENIZERS["byte_level"](), said)[1]
    source, target = (part.tolist() for part in ops.overlaps(ours, theirs))
    wanted = {
        (i, j)
        for i, (a, b) in enumerate(ours)
        for j, (c, d) in enumerate(theirs)
        if set(range(a, b)) & set(range(c, d))
    }
    assert set(zip(source, target, strict=True)) == wanted
    assert len(source) == len(wanted), "each once"


def test_a_tokenizer_that_changes_the_text_says_itself_where_its_tokens_are() -> None:
    from tokenizers import normalizers
    from transformers import PreTrainedTokenizerFast

    plain = TOKENIZERS["byte_level"]().backend_tokenizer
    changed = type(plain).from_str(plain.to_str())
    changed.normalizer = normalizers.NFC()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=changed, eos_token="<eos>")
    ids, offsets = rollouts.encode_text(tokenizer, "the e\u0301 sea")
    assert rollouts.decode(tokenizer, ids) == "the é sea"
    assert chosen([Span(start=4, end=6)], offsets, "the e\u0301 sea") == [
        i for i, (a, b) in enumerate(offsets) if a < 6 and b > 4
    ]
    assert offsets[-1] == (6, 10)


@kinds
def test_known_texts(kind: str) -> None:
    tokenizer, ids, said = sampled(kind, "the sea 你🎉👩\u200d🚀 e\u0301\r\n.")
    offsets = rollouts.offsets(tokenizer, ids)
    for start, end in ((8, 9), (9, 10), (10, 13), (14, 16), (16, 18)):
        pieces = bytes_of(kind, tokenizer, ids)
        inside = b"".join(pieces[i] for i in chosen([Span(start=start, end=end)], offsets, said))
        assert said[start:end].encode() in inside


VALUES = st.sampled_from([1.0, 0.5, -0.5, -2.0, 0.0])
BEATS = {"poor": lambda a, b: a < b, "good": lambda a, b: a > b, "cancel": lambda a, b: a * b < 0}


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    text=texts,
    raw=st.lists(st.tuples(st.integers(0, 30), st.integers(0, 12), VALUES), max_size=5),
    conflict=st.sampled_from(["poor", "good", "cancel"]),
    spread=st.sampled_from(["even", "last"]),
    policy=st.sampled_from(["words", "inside", "start", "overlap"]),
)
def test_the_total_of_spans_does_not_depend_on_the_tokenizer(
    text: str, raw: list[tuple[int, int, float]], conflict: Any, spread: Any, policy: Any
) -> None:
    """It is the sum of the values of the spans that keep a character where spans of different signs meet."""
    for kind in TOKENIZERS:
        tokenizer, ids, said = sampled(kind, text)
        spans = [Span(start=start, end=min(start + size, len(said)), label=value)
                 for start, size, value in raw if start <= len(said)]  # fmt: skip

        def keeps(span: Span, spans: list[Span] = spans) -> bool:
            own = range(span.start, span.end)
            beaten = [
                o for o in spans if BEATS[conflict]((o.label > 0) - (o.label < 0), (span.label > 0) - (span.label < 0))
            ]
            return any(not any(o.start <= place < o.end for o in beaten) for place in own)

        wanted = sum(span.label for span in spans if keeps(span))
        offsets = rollouts.offsets(tokenizer, ids)
        found = ops.span_rewards(spans, offsets, said, policy, conflict, spread=spread)
        assert float(found.token.sum()) == pytest.approx(wanted, abs=1e-4)
        lost = {number for number, span in enumerate(spans) if not keeps(span)}
        assert lost == {*found.overruled, *found.uncovered}, "what is lost is counted"
