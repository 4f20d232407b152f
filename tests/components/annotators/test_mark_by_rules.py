"""Labels from rules: what each kind of rule marks, what is counted, and how few may mark everything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fgrl.base.errors import DataError
from fgrl.components.annotators.mark_by_rules import MarkByRules
from fgrl.feedback.marks import Extent, thin
from fgrl.feedback.rules.rule import relevant
from fgrl.kinds import Annotator, Verifier
from fgrl.registry import build
from fgrl.types import Criterion, Response, Sample

FORBID = Criterion(text="Never say sea.", check={"name": "keywords:forbidden_words", "forbidden_words": ["sea"]})
SAY = Criterion(text="Say mill.", check={"name": "keywords:existence", "keywords": ["mill"]})
LONG = Criterion(
    text="Three words or more.",
    check={"name": "length_constraints:number_words", "relation": "at least", "num_words": 3},
)
JUDGED = Criterion(text="Be kind.")


def one(*texts: str, rubric=(FORBID, SAY, LONG, JUDGED), **more) -> Sample:
    more = {"id": "s", **more}
    return Sample(prompt="Write.", responses=[Response(text=text) for text in texts], rubric=list(rubric), **more)


def parts(sample: Sample) -> list[str]:
    return [sample.chosen_response.text[span.start : span.end] for span in sample.chosen_response.spans]


def test_each_criterion_with_a_check_becomes_a_labelled_sample():
    annotator = MarkByRules()
    given = one("the sea, the sea", "an old mill")
    found = annotator.annotate([given])
    assert [sample.id for sample in found] == ["s/0/0", "s/0/1", "s/0/2", "s/1/0", "s/1/1", "s/1/2"]
    assert [parts(sample) for sample in found] == [
        ["sea", "sea"], [], ["the sea, the sea"], [], ["mill"], ["an old mill"]
    ]  # fmt: skip
    assert [sample.rubric for sample in found] == [[FORBID], [SAY], [LONG]] * 2
    assert [sample.meta for sample in found] == [
        {"kept": False, "scope": "negative", "relevant": "part", "group": "keywords:forbidden_words"},
        {"kept": False, "scope": "positive", "relevant": "none", "group": "keywords:existence"},
        {"kept": True, "scope": "global", "relevant": "all", "group": "length_constraints:number_words"},
        {"kept": True, "scope": "negative", "relevant": "none", "group": "keywords:forbidden_words"},
        {"kept": True, "scope": "positive", "relevant": "part", "group": "keywords:existence"},
        {"kept": True, "scope": "global", "relevant": "all", "group": "length_constraints:number_words"},
    ]
    assert all(sample.prompt == "Write." and sample.chosen == 0 for sample in found)
    assert all(len(sample.responses) == 1 for sample in found)
    assert all(span.label == 1 for sample in found for span in sample.chosen_response.spans)
    assert ([one.spans for one in given.responses], given.meta) == ([[], []], {}), "what was given is not changed"
    assert annotator.counts() == {
        "labels": 6, "kept": 4, "relevant: all": 2, "relevant: part": 2, "relevant: none": 2, "without a check": 2
    }  # fmt: skip


def test_the_chosen_response_is_marked_beside_the_others():
    found = MarkByRules().annotate([one("mill", "a mill", rubric=[SAY], chosen=1, meta={"topic": 1, "group": "x"})])
    assert [(sample.id, parts(sample)) for sample in found] == [("s/response/0", ["mill"]), ("s/0/0", ["mill"])]
    assert found[0].meta["topic"] == 1
    assert found[0].meta["group"] == "keywords:existence"
    assert found[1].meta["relevant"] == "all", "it is all that there is"


def test_what_gives_no_label_is_counted():
    annotator = MarkByRules()
    broken = Criterion(
        text="?",
        check={"name": "code:checker", "source": "def check(response): return None", "sandbox": {"require": "weak"}},
    )
    assert annotator.annotate([one("mill", "", "mill", rubric=[SAY]), one(), one("x", rubric=[])]) != []
    assert annotator.counts() == {
        "labels": 1, "kept": 1, "relevant: all": 1, "relevant: part": 0, "relevant: none": 0,
        "without a rubric": 1, "without a response": 1, "empty responses": 1, "repeated responses": 1,
    }  # fmt: skip
    assert annotator.annotate([one("mill", rubric=[broken])]) == []
    assert annotator.counts()["undecided"] == 1


def test_a_check_that_no_rule_understands_is_named():
    wrong = Criterion(text="Say it.", check={"name": "keywords:existence", "words": ["mill"]})
    with pytest.raises(DataError, match=r"sample s, criterion 'Say it\.'.*"):
        MarkByRules().annotate([one("mill", rubric=[wrong])])


@pytest.mark.parametrize(("share", "whole"), [(None, 6), (1.0, 6), (0.5, 3), (0.4, 2), (0.25, 1), (0.2, 0), (0.0, 0)])
def test_few_labels_mark_everything(share, whole):
    samples = [one("the old mill", id=str(n), rubric=[SAY, LONG] if n < 3 else [LONG]) for n in range(6)]
    annotator = build(Annotator, {"name": "mark_by_rules", "max_all": share})
    found = annotator.annotate(samples)
    assert sum(sample.meta["relevant"] == "all" for sample in found) == whole
    assert len(found) == whole + 3
    assert annotator.counts().get("left out by max_all", 0) == 6 - whole


@given(
    st.lists(st.sampled_from(["all", "part", "none"]), max_size=30),
    st.one_of(st.none(), st.floats(0, 1)),
    st.randoms(use_true_random=False),
)
def test_thinning_keeps_order_and_share_and_does_not_depend_on_the_order(extents: list[Extent], share, random):
    rows = [Sample(id=str(n), prompt="p", meta={"relevant": extent}) for n, extent in enumerate(extents)]
    kept = thin(rows, share)
    extent_of = dict(zip(map(str, range(len(rows))), extents, strict=True))
    ids = [sample.id for sample in kept]
    assert ids == sorted(ids, key=int)
    whole = sum(extent_of[name] == "all" for name in ids)
    assert [name for name in extent_of if extent_of[name] != "all"] == [n for n in ids if extent_of[n] != "all"]
    if share is not None and kept:
        assert whole <= share * len(ids) + 1e-6
        if whole < extents.count("all"):
            assert whole + 1 > share * (len(ids) + 1) - 1e-6, "no more are left out than must be"
    random.shuffle(rows)
    assert {sample.id for sample in thin(rows, share)} == set(ids)


def test_without_the_taxonomy_what_is_related_is_marked_whatever_the_verdict():
    found = MarkByRules(taxonomy=False).annotate([one("the sea, the sea"), one("an old mill", id="t")])
    assert [(parts(sample), sample.meta["kept"]) for sample in found] == [
        (["sea", "sea"], False), ([], False), ([], True), ([], True), (["mill"], True), ([], True)
    ]  # fmt: skip
    assert all(span.label == 1 for sample in found for span in sample.chosen_response.spans)


def test_labels_are_what_the_rules_say():
    text = "One. Two sea.\n\n* three, mill"
    for sample in MarkByRules().annotate([one(text)]):
        rule = build(Verifier, dict(sample.rubric[0].check))
        assert sample.chosen_response.spans == relevant(rule, text)
        assert sample.meta["kept"] == rule.check(text)


def test_without_the_taxonomy_what_is_related_is_marked_and_never_the_whole():
    found = MarkByRules(taxonomy=False).annotate([one("the sea, the sea", "an old mill", rubric=(FORBID, SAY, LONG))])
    assert [parts(sample) for sample in found] == [["sea", "sea"], [], [], [], ["mill"], []]
    broken = Criterion(
        text="Say mill twice.",
        check={"name": "keywords:frequency", "keyword": "mill", "frequency": 2, "relation": "at least"},
    )
    (once,) = MarkByRules(taxonomy=False).annotate([one("an old mill", rubric=(broken,))])
    assert (once.meta["kept"], parts(once)) == (False, ["mill"]), "whatever the verdict"
    (silent,) = MarkByRules().annotate([one("an old mill", rubric=(broken,))])
    assert parts(silent) == []
