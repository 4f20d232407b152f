"""Pairs of the steps of chains, and how the stage draws some of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from critique_answers import sample
from hypothesis import given
from hypothesis import strategies as st
from training_helpers import a_run

from fgrl.base.errors import DataError
from fgrl.components.annotators.improvement_chain import ImprovementChain
from fgrl.components.pair_builders.chain import ChainPairs
from fgrl.components.readers.jsonl import JsonLines
from fgrl.components.rewriters.delete import Delete
from fgrl.components.rewriters.replace import Replace
from fgrl.experiments.pipeline import keys
from fgrl.experiments.stages.pair import PairStage, drawn
from fgrl.feedback.chain_checks import EditLimits
from fgrl.kinds import Stage
from fgrl.registry import build
from fgrl.types import Annotation, Pair, Pairs, Response, Sample, Span, write_jsonl

ANY_CHANGE = EditLimits(max_change=1.0)


def chain(*words: str, id: str = "s", **response: Any) -> Sample:
    """A chain in which these words are deleted one by one, from left to right."""
    text = " ".join(words)
    spans = [Span(start=text.index(word), end=text.index(word) + len(word), label=-1) for word in words[1:]]
    given = Response(text=text, annotations=[Annotation(by="ada", spans=spans)], **response)
    (made,) = ImprovementChain(rewriter=Delete(), limits=ANY_CHANGE).annotate(
        [sample(id=id, responses=[given], chosen=None, meta={"domain": "news"})]
    )
    return made


def members(builder: ChainPairs, *samples: Sample) -> list[tuple[str, str, int]]:
    return [(pair.rejected, pair.chosen, pair.meta["step"]) for one in samples for pair in builder.build(one)]


def test_each_kind_takes_its_own_steps() -> None:
    given = chain("one", "two", "three")
    assert members(ChainPairs(), given) == [("one two three", "one three", 1), ("one three", "one", 2)]
    assert members(ChainPairs(kind="first_edit"), given) == [("one two three", "one three", 1)]
    assert members(ChainPairs(kind="full_rewrite"), given) == [("one two three", "one", 2)]
    (pair,) = ChainPairs(kind="full_rewrite").build(given)
    assert (pair.id, pair.prompt) == ("s/0/ada#0", "Ask.")
    assert pair.meta == {**given.meta, "sample": "s/0/ada", "step": 2, "kind": "full_rewrite"}
    assert pair.meta["domain"] == "news"


def test_a_chain_that_comes_back_to_its_text_makes_no_full_rewrite() -> None:
    spans = [Span(start=0, end=1, label=-1, reasons=["x"]), Span(start=0, end=1, label=-1, reasons=["y"])]
    given = sample(responses=[Response(text="a", annotations=[Annotation(spans=spans)])], chosen=None)
    (made,) = ImprovementChain(rewriter=Replace(texts={"x": "b", "y": "a"}), limits=ANY_CHANGE).annotate([given])
    assert members(ChainPairs(), made) == [("a", "b", 1), ("b", "a", 2)]
    assert members(ChainPairs(kind="full_rewrite"), made) == []


def test_unfinished_responses_can_be_left_out() -> None:
    given = chain("one", "two", "three", finished=False)
    assert len(members(ChainPairs(finished_only=True), given)) == 1


def test_samples_that_are_no_chains_are_refused() -> None:
    with pytest.raises(DataError, match="is not an improvement chain"):
        ChainPairs().build(sample("a", "b"))
    annotator = ImprovementChain(rewriter=Delete())
    annotator.annotate(
        [sample(responses=[Response(text="a", annotations=[Annotation(spans=[Span(start=0, end=1, label=-1)])])])]
    )
    with pytest.raises(DataError, match="is not an improvement chain"):
        ChainPairs().build(annotator.failed()[0])


@given(st.integers(0, 20), st.integers(0, 20), st.integers(0, 3))
def test_the_draw_keeps_the_order_and_depends_on_seed_and_ids_alone(total: int, count: int, seed: int) -> None:
    pairs = [Pair(id=f"{number}", prompt="p", chosen="a", rejected="b") for number in range(total)]
    kept = drawn(pairs, count, seed)
    assert len(kept) == min(total, count)
    assert kept == [pair for pair in pairs if pair in kept]
    assert {pair.id for pair in drawn(pairs[::-1], count, seed)} == {pair.id for pair in kept}
    more = drawn([*pairs, Pair(id="new", prompt="p", chosen="a", rejected="b")], count, seed)
    assert len({pair.id for pair in kept} - {pair.id for pair in more}) <= 1


def stage(folder: Path, samples: list[Sample], **options: Any) -> PairStage:
    write_jsonl(folder / "chains.jsonl", samples)
    return PairStage(data=JsonLines(path=str(folder / "chains.jsonl")), builder=ChainPairs(), **options)


def test_the_stage_keeps_as_many_pairs_as_it_is_told_to(tmp_path: Path) -> None:
    chains = [chain("one", "two", "three", "four", id=f"{number}") for number in range(4)]
    run = a_run(tmp_path, seed=3)
    assert stage(tmp_path, chains).run(run)["pairs"] == 12
    every = list(Pairs(run.out).read())
    summary = stage(tmp_path, chains, max_pairs=5).run(run)
    assert (summary["pairs"], summary["left out by max_pairs"]) == (5, 7)
    kept = drawn(every, 5, seed=3)
    assert list(Pairs(run.out).read()) == kept
    assert stage(tmp_path, chains, max_pairs=1).run(run)["prompts with a pair"] == 1
    assert summary["prompts with a pair"] == len({pair.meta["sample"] for pair in kept})
    assert stage(tmp_path, chains, max_pairs=50).run(run)["left out by max_pairs"] == 0


def test_the_setting_leaves_the_keys_of_other_recipes_as_they_were(tmp_path: Path) -> None:
    known, same, other = (
        keys.identity(stage(tmp_path, [chain("a", "b")], **options), seed=0, upstream={})["settings"]
        for options in ({}, {"max_pairs": None}, {"max_pairs": 3})
    )
    assert "max_pairs" not in known
    assert known == same != other


def test_the_builder_is_known_to_recipes() -> None:
    built = build(Stage, {"name": "pair", "data": {"name": "samples", "of": "${out:chains}"}, "builder": "chain"})
    assert isinstance(built.builder, ChainPairs)  # type: ignore[attr-defined]
