"""Every segmenter on right-padded batches, with the edges: only an end-of-sequence token, one token, no tokens."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from fgrl.base import ops
from fgrl.components.segmenters.bandit import Bandit
from fgrl.components.segmenters.entropy import Entropy
from fgrl.components.segmenters.ngram import NGram
from fgrl.components.segmenters.sentence import DELIMITERS, Sentence
from fgrl.components.segmenters.token import Token
from fgrl.kinds import Segmenter
from fgrl.registry import build
from fgrl.types import Rollout, Sample, Segmentable

# a response that ended, one that was cut off, one token and the end, the end alone, nothing
LENGTHS = [6, 7, 2, 1, 0]
ENDED = [True, False, True, True, False]
NAN = float("nan")


def view(entropy: list[list[float]] | None = None) -> Segmentable:
    lengths = torch.tensor(LENGTHS)
    mask = torch.arange(7) < lengths[:, None]
    eos = (torch.arange(7) == lengths[:, None] - 1) & torch.tensor(ENDED)[:, None]
    return Segmentable(
        ids=torch.zeros(5, 7, dtype=torch.long),
        mask=mask,
        eos=eos,
        entropy=None if entropy is None else torch.tensor(entropy),
    )


def ids(segmenter: Segmenter, of: Segmentable) -> list[list[int]]:
    return segmenter.segment_ids(of).tolist()


ENTROPY = [
    [0.1, 1.75, 1.76, 0.2, 2.5, 3.0, NAN],  # the token at 5 is the end-of-sequence token
    [9.0, 0.0, 2.25, 0.0, 1.5, 0.0, 8.0],
    [0.0, 9.0, NAN, 9.0, 9.0, 9.0, 9.0],
    [9.0, 9.0, 9.0, 9.0, 9.0, 9.0, 9.0],
    [NAN] * 7,
]
NOTHING = [-1] * 7
ONE_AND_END = [0, -1, -1, -1, -1, -1, -1]


@pytest.mark.parametrize(
    ("cutoff", "first", "second"),
    [
        (0.0, [0, 1, 2, 3, 4, -1, -1], [0, 0, 1, 1, 2, 2, 3]),  # an entropy of exactly 0 is not above 0
        (1.5, [0, 1, 2, 2, 3, -1, -1], [0, 0, 1, 1, 1, 1, 2]),
        (1.75, [0, 0, 1, 1, 2, -1, -1], [0, 0, 1, 1, 1, 1, 2]),  # strict: 1.75 itself does not start one
        (2.0, [0, 0, 0, 0, 1, -1, -1], [0, 0, 1, 1, 1, 1, 2]),
        (2.25, [0, 0, 0, 0, 1, -1, -1], [0, 0, 0, 0, 0, 0, 1]),
        (100.0, [0, 0, 0, 0, 0, -1, -1], [0, 0, 0, 0, 0, 0, 0]),
        (1000.0, [0, 0, 0, 0, 0, 0, -1], [0, 0, 0, 0, 0, 0, 0]),
    ],
)
def test_entropy_at_several_cutoffs(cutoff: float, first: list[int], second: list[int]):
    found = ids(Entropy(cutoff=cutoff), view(ENTROPY))
    pair = [0, 0, -1, -1, -1, -1, -1] if cutoff == 1000.0 else ONE_AND_END
    assert found == [first, second, pair, ONE_AND_END, NOTHING]


def test_entropy_may_count_the_end_of_sequence():
    found = ids(Entropy(cutoff=2.75, include_eos=True), view(ENTROPY))
    assert found == [
        [0, 0, 0, 0, 0, 1, -1],  # 3.0 nats before the end-of-sequence token
        [0, 0, 0, 0, 0, 0, 1],
        [0, 1, -1, -1, -1, -1, -1],
        ONE_AND_END,
        NOTHING,
    ]


def test_a_segment_ends_before_the_token_the_reference_was_unsure_of():
    """Section 2.2: the entropy of token i's own distribution makes i a start, and i - 1 an end."""
    sharp = [[0.0] * 7 for _ in LENGTHS]
    sharp[1][3] = 5.0
    found = Entropy(cutoff=1.0).segment_ids(view(sharp))
    assert found[1].tolist() == [0, 0, 0, 1, 1, 1, 1]
    assert ops.segment_ends(found)[1].nonzero().flatten().tolist() == [2, 6]


def test_cutoff_1000_is_the_bandit():
    assert ids(Entropy(cutoff=1000), view(ENTROPY)) == ids(Bandit(), view())


def test_cutoff_0_is_the_token_segmenter_where_entropy_is_positive():
    assert ids(Entropy(cutoff=0), view([[0.5] * 7 for _ in LENGTHS])) == ids(Token(), view())


def test_entropy_says_what_is_missing():
    with pytest.raises(ValueError, match="needs the reference's entropies"):
        Entropy(cutoff=1.75).segment_ids(view())
    broken = [row.copy() for row in ENTROPY]
    broken[0][1] = broken[1][0] = NAN
    with pytest.raises(ValueError, match="NaN at 2 of 16 response tokens"):
        Entropy(cutoff=1.75).segment_ids(view(broken))


@pytest.mark.parametrize("cutoff", [-0.1, NAN, float("inf")])
def test_a_cutoff_is_a_finite_number_of_nats(cutoff: float):
    with pytest.raises(ValidationError):
        Entropy(cutoff=cutoff)


def test_bandit_is_one_segment_that_ends_at_the_end():
    found = Bandit().segment_ids(view())
    assert found.tolist() == [
        [0, 0, 0, 0, 0, 0, -1],
        [0, 0, 0, 0, 0, 0, 0],
        [0, 0, -1, -1, -1, -1, -1],
        ONE_AND_END,
        NOTHING,
    ]
    ends = ops.segment_ends(found)
    assert ends.long().argmax(dim=1).tolist()[:4] == [5, 6, 1, 0]  # the end-of-sequence token, or the last real token
    assert ops.locations(found).tolist() == [[1.0], [1.0], [1.0], [1.0], [0.0]]


def test_bandit_may_stop_before_the_end_of_sequence():
    found = ids(Bandit(include_eos=False), view())
    assert found[0] == [0, 0, 0, 0, 0, -1, -1]
    assert found[3] == ONE_AND_END


def test_token_is_every_token_but_the_end_of_sequence():
    assert ids(Token(), view()) == [
        [0, 1, 2, 3, 4, -1, -1],
        [0, 1, 2, 3, 4, 5, 6],
        ONE_AND_END,
        ONE_AND_END,
        NOTHING,
    ]


@pytest.mark.parametrize(
    ("n", "first", "second"),
    [
        (1, [0, 1, 2, 3, 4, -1, -1], [0, 1, 2, 3, 4, 5, 6]),
        (2, [0, 0, 1, 1, 2, -1, -1], [0, 0, 1, 1, 2, 2, 3]),
        (3, [0, 0, 0, 1, 1, -1, -1], [0, 0, 0, 1, 1, 1, 2]),
        (5, [0, 0, 0, 0, 0, -1, -1], [0, 0, 0, 0, 0, 1, 1]),
        (99, [0, 0, 0, 0, 0, -1, -1], [0, 0, 0, 0, 0, 0, 0]),
    ],
)
def test_ngram(n: int, first: list[int], second: list[int]):
    assert ids(NGram(n=n), view()) == [first, second, ONE_AND_END, ONE_AND_END, NOTHING]


def test_an_ngram_has_tokens():
    with pytest.raises(ValidationError):
        NGram(n=0)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_every_response_with_a_token_has_a_segment_and_padding_has_none(data: st.DataObject):
    width = data.draw(st.integers(1, 8))
    rows = data.draw(st.lists(st.tuples(st.integers(0, width), st.booleans()), min_size=1, max_size=4))
    mask = torch.tensor([[t < length for t in range(width)] for length, _ in rows])
    eos = torch.tensor([[ended and t == length - 1 for t in range(width)] for length, ended in rows])
    entropy = torch.rand(len(rows), width, generator=torch.Generator().manual_seed(data.draw(st.integers(0, 99)))) * 4
    of = Segmentable(
        ids=torch.zeros_like(mask, dtype=torch.long),
        mask=mask,
        eos=eos,
        entropy=entropy.masked_fill(~mask, NAN),
        texts=["a" * length for length, _ in rows],
        offsets=[[(t, t + 1) for t in range(length)] for length, _ in rows],
    )
    wider = Segmentable(
        ids=torch.nn.functional.pad(of.ids, (0, 3)),
        mask=torch.nn.functional.pad(mask, (0, 3)),
        eos=torch.nn.functional.pad(eos, (0, 3)),
        entropy=torch.nn.functional.pad(of.entropy, (0, 3), value=9.0),
        texts=of.texts,
        offsets=of.offsets,
    )
    for segmenter in (Entropy(cutoff=1.75), Entropy(cutoff=1000), NGram(n=3), Sentence(), Token(), Bandit()):
        found = segmenter.segment_ids(of)
        assert torch.equal((found >= 0).any(dim=1), mask.any(dim=1))
        assert not (found >= 0)[~mask].any()
        assert torch.equal(segmenter.segment_ids(wider)[:, :width], found), "more padding changed the segments"


# -- sentences ---------------------------------------------------------------------------------------------------------


def pieces(*rows: list[str], ended: bool = True) -> Segmentable:
    """Responses given as the texts of their tokens; an end-of-sequence token follows each row."""
    width = max(len(row) for row in rows) + 2
    mask = torch.tensor([[t <= len(row) - (not ended) for t in range(width)] for row in rows])
    eos = torch.tensor([[ended and t == len(row) for t in range(width)] for row in rows])
    offsets = []
    for row in rows:
        places, at = [], 0
        for piece in row:
            places.append((at, at + len(piece)))
            at += len(piece)
        offsets.append([*places, (at, at)] if ended else places)
    return Segmentable(
        ids=torch.zeros_like(mask, dtype=torch.long),
        mask=mask,
        eos=eos,
        texts=["".join(r) for r in rows],
        offsets=offsets,
    )


def cut(row: list[str], **options: object) -> list[str]:
    """The texts of the segments that the tokens `row` are cut into."""
    found = Sentence(**options).segment_ids(pieces(row))[0].tolist()  # type: ignore[arg-type]
    assert found[len(row) :] == [-1, -1], "the end-of-sequence token and padding belong to no segment"
    texts = [""] * (max(found) + 1)
    for piece, index in zip(row, found, strict=False):
        texts[index] += piece
    return texts


@pytest.mark.parametrize("delimiter", [".", "!", "?", "\n", ";", "...", ",", ":"])
def test_the_papers_splitters(delimiter: str):
    assert cut(["The", " cat", delimiter, " A", " dog"]) == ["The cat" + delimiter, " A dog"]
    assert cut(["The", " cat" + delimiter, " A", " dog"]) == ["The cat" + delimiter, " A dog"]
    assert cut(["The", " cat", delimiter]) == ["The cat" + delimiter]


@pytest.mark.parametrize("delimiter", sorted(set(DELIMITERS)))
def test_foreign_splitters(delimiter: str):
    assert cut(["あ", "い", delimiter, "う", "え"]) == ["あい" + delimiter, "うえ"]


def test_the_default_list_names_the_scripts_it_claims():
    for delimiter in "。！？；，：、…؟،؛।։።။។۔":
        assert delimiter in DELIMITERS
    assert len(DELIMITERS) == len(set(DELIMITERS))


def test_a_run_of_delimiters_ends_one_segment():
    assert cut(["Well", ".", ".", ".", " yes"]) == ["Well...", " yes"]
    assert cut(["What", "?", "!", " No"]) == ["What?!", " No"]
    assert cut(["End", ".", "\n\n", "Next"]) == ["End.\n\n", "Next"]
    assert cut(["End", ".", "  ", "\n", "Next"]) == ["End.  \n", "Next"]
    assert cut(["End", "...?!", "\n", "Next"]) == ["End...?!\n", "Next"]


def test_a_delimiter_over_several_tokens_ends_at_the_one_that_completes_it():
    assert cut(["a", "<", "/s", ">", "b"], delimiters=["</s>"]) == ["a</s>", "b"]
    assert cut(["a", " .", ".", ".b", "c"], delimiters=["..."]) == ["a ...b", "c"]


def test_a_delimiter_inside_a_token_ends_the_segment_after_it():
    assert cut(["one", "e.g", "two", "three"]) == ["onee.g", "twothree"]


def test_leading_and_trailing_delimiters():
    assert cut([".", "a", "b", "."]) == [".", "ab."]
    assert cut(["\n"]) == ["\n"]


def test_numbers_are_cut_unless_kept():
    tokens = ["pi", " is", " 3", ".", "14", ",", " or", " 1", ",", "000", " at", " 10", ":", "30", ".", " Yes"]
    assert cut(tokens) == ["pi is 3.", "14,", " or 1,", "000 at 10:", "30.", " Yes"]
    assert cut(tokens, keep_numbers=True) == ["pi is 3.14,", " or 1,000 at 10:30.", " Yes"]
    assert cut(["v", "2", ".", " x", ".", "5", "!", "6"], keep_numbers=True) == ["v2.", " x.", "5!", "6"]


def test_own_delimiters_replace_the_list():
    assert cut(["a", ".", "b", "|", "c"], delimiters=["|"]) == ["a.b|", "c"]
    assert cut(["a", "-", ">", "b", "-", "c"], delimiters=["-", "->"]) == ["a->", "b-", "c"]  # the longest wins
    assert cut(["a", "(", "b", "[", "c"], delimiters=["(", "["]) == ["a(", "b[", "c"]  # literal, not patterns


@pytest.mark.parametrize("delimiters", [[], [""]])
def test_delimiters_are_not_empty(delimiters: list[str]):
    with pytest.raises(ValidationError):
        Sentence(delimiters=delimiters)


def test_bytes_of_a_character():
    """Three tokens make up one full stop: the one that finishes it ends the segment."""
    of = pieces(["a", "。", "b"])
    of = Segmentable(
        ids=torch.zeros(1, 6, dtype=torch.long),
        mask=torch.tensor([[True] * 6]),
        eos=torch.tensor([[False] * 5 + [True]]),
        texts=of.texts,
        offsets=[[(0, 1), (1, 1), (1, 1), (1, 2), (2, 3), (3, 3)]],
    )
    assert Sentence().segment_ids(of).tolist() == [[0, 0, 0, 0, 1, -1]]
    of.offsets = [[(0, 1), (1, 2), (1, 2), (1, 2), (2, 3), (3, 3)]]  # tokenizers that give all of them the character
    assert Sentence().segment_ids(of).tolist() == [[0, 0, 0, 0, 1, -1]]


def test_rows_are_cut_apart_and_need_not_end():
    of = pieces(["a", ".", "b"], ["c"], ["d", "e", "f", ",", "g"], ended=False)
    assert Sentence().segment_ids(of).tolist() == [
        [0, 0, 1, -1, -1, -1, -1],
        [0, -1, -1, -1, -1, -1, -1],
        [0, 0, 0, 0, 1, -1, -1],
    ]


def test_only_an_end_of_sequence():
    assert Sentence().segment_ids(pieces([], ["a", ".", "b"])).tolist() == [[0, -1, -1, -1, -1], [0, 0, 1, -1, -1]]


def test_sentence_says_what_is_missing():
    with pytest.raises(ValueError, match="needs texts and token offsets"):
        Sentence().segment_ids(view())
    of = pieces(["a", ".", "b"])
    of.offsets = [[(0, 1)]]
    with pytest.raises(ValueError, match="response 0 has 3 tokens, but offsets for 1"):
        Sentence().segment_ids(of)
    of.texts = ["a.b", "c"]
    with pytest.raises(ValueError, match="1 responses, but 2 texts"):
        Sentence().segment_ids(of)


def test_starts_are_real_tokens():
    of = pieces(["a", ".", "b", "."], ["c", "."])
    of.entropy = torch.full(of.mask.shape, 9.0)
    for segmenter in (Entropy(cutoff=1), NGram(n=1), Sentence(), Token(), Bandit()):
        starts = segmenter.starts(of)
        assert starts.dtype == torch.bool
        assert not starts[~of.mask].any()


def test_what_each_segmenter_looks_at():
    assert Entropy(cutoff=1).needs == {"entropy"}
    assert Sentence().needs == {"text"}
    assert NGram(n=1).needs == Token().needs == Bandit().needs == frozenset()


# -- conversations -----------------------------------------------------------------------------------------------------

TALK = [[0, 0, 0, -1, -1, 1, 1, 1, -1, 2], [0, 0, -1, 1, 1, 1, 1, 1, -1, -1]]
"""Turns of the tokens of two responses; the second has two tokens of padding."""


def conversation(end: int = 9) -> Rollout:
    """Each turn ends with the token `end`; the last one of the first response is nothing else."""
    turn = torch.tensor(TALK)
    mask = torch.arange(10) < torch.tensor([10, 8])[:, None]
    ids = torch.where(ops.segment_ends(turn), end, 4)
    ids[:, 3] = 9  # also where an environment wrote it, or the policy in the middle of a turn
    eos = torch.zeros_like(mask)
    eos[0, 9], eos[1, 7] = end == 9, end == 9
    texts = ["a, b." + "x" * 5, "ab,cd.e,xx"]
    return Rollout(
        ids[:, :1], torch.ones(2, 1).bool(), ids, mask, eos, turn=turn, group=torch.arange(2), texts=texts, ends=frozenset({9}),
        samples=[Sample(id=str(row), prompt="") for row in range(2)], offsets=[[(i, i + 1) for i in range(10)]] * 2,
        ref_entropy=torch.full((2, 10), 1.0),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "first", "second"),
    [
        ("turn", [0, 0, 0, -1, -1, 1, 1, 1, -1, 2], [0, 0, -1, 1, 1, 1, 1, 1, -1, -1]),
        ("bandit", [0, 0, 0, -1, -1, 1, 1, 1, -1, 2], [0, 0, -1, 1, 1, 1, 1, 1, -1, -1]),
        ({"name": "turn", "include_eos": False}, [0, 0, -1, -1, -1, 1, 1, -1, -1, 2], [0, -1, -1, 1, 1, 1, 1, -1, -1, -1]),
        ({"name": "entropy", "cutoff": 1000}, [0, 0, 0, -1, -1, 1, 1, 1, -1, 2], [0, 0, -1, 1, 1, 1, 1, 1, -1, -1]),
        ({"name": "entropy", "cutoff": 0.5}, [0, 1, -1, -1, -1, 2, 3, -1, -1, 4], [0, -1, -1, 1, 2, 3, 4, -1, -1, -1]),
        ("token", [0, 1, -1, -1, -1, 2, 3, -1, -1, 4], [0, -1, -1, 1, 2, 3, 4, -1, -1, -1]),
        ({"name": "ngram", "n": 3}, [0, 0, -1, -1, -1, 1, 1, -1, -1, 2], [0, -1, -1, 1, 1, 1, 2, -1, -1, -1]),
        ("sentence", [0, 0, -1, -1, -1, 1, 1, -1, -1, 2], [0, -1, -1, 1, 1, 1, 2, -1, -1, -1]),
    ],
)  # fmt: skip
def test_segments_end_with_turns_and_what_an_environment_wrote_is_in_none(
    name: Any, first: list[int], second: list[int]
) -> None:
    segmenter: Any = build("segmenter", name)
    assert segmenter.segment_ids_of(conversation()).tolist() == [first, second]


def test_a_turn_that_was_cut_off_has_no_end_token() -> None:
    segmenter: Any = build("segmenter", {"name": "turn", "include_eos": False})
    assert segmenter.segment_ids_of(conversation(end=3)).tolist() == TALK
