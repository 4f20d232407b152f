"""Grades of relevances: how well their weights identify the marked tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from fgrl.base import lazy, ops
from fgrl.base.errors import DataError
from fgrl.feedback.rules.criterion_rules import CriterionRules
from fgrl.kinds import Checked, Relevance
from fgrl.measuring import statistics
from fgrl.measuring.statistics import Measured
from fgrl.types import Rollout, Sample

rollouts = lazy.load("fgrl.rollouts")
torch = lazy.load("torch")


@dataclass(frozen=True)
class Graded:
    """Tokens of a response under one criterion, with their marks and the weights of a relevance."""

    prompt: str
    group: str
    """Kind of the criterion: the rule's id, or "judged"."""
    marked: Sequence[bool]
    """[T]: True for each marked token."""
    weight: Sequence[float] | None
    """[T]: weight of each token; None if the relevance is unknown."""


def grade(relevance: Relevance, samples: Sequence[Sample], rules: CriterionRules, tokenizer: Any) -> Iterator[Graded]:
    """Yield each sample's tokens with their marks and weights. Raises `DataError` for a sample that does not have
    exactly one criterion.
    """
    encoded = [rollouts.encode_text(tokenizer, text_of(sample)) for sample in samples]
    tokens = rollouts.pad([[0]] * len(samples), [ids for ids, _offsets in encoded], pad_id=0, eos_ids=())
    rollout = Rollout(
        **vars(tokens),
        group=torch.arange(len(samples)),
        samples=list(samples),
        texts=[text_of(sample) for sample in samples],
        offsets=[offsets for _ids, offsets in encoded],
    )
    weights = relevance.weigh(rollout, [checked(row, sample, rules) for row, sample in enumerate(samples)])
    for sample, (_ids, offsets), weight in zip(samples, encoded, weights, strict=True):
        response = sample.chosen_response
        spans = [] if response is None else response.spans
        marks = ops.spans_to_tokens(spans, offsets, text_of(sample), partial=True)
        marked = (ops.without_characters(marks, offsets) > 0).tolist()
        weights_of_tokens = None if weight is None else weight.tolist()
        check = sample.rubric[0].check
        kind = "judged" if check is None else str(check["name"])
        yield Graded(json.dumps(sample.model_dump()["prompt"]), kind, marked, weights_of_tokens)


def text_of(sample: Sample) -> str:
    """Return the response whose tokens are graded; empty if there is none."""
    response = sample.chosen_response
    return "" if response is None else response.text


def checked(row: int, sample: Sample, rules: CriterionRules) -> Checked:
    """Return the sample's criterion with its verdict."""
    if len(sample.rubric) != 1:
        raise DataError(
            f"sample {sample.id} has {len(sample.rubric)} criteria, and each should have one: mark_by_rules and "
            "mark_by_llm make such samples"
        )
    criterion = sample.rubric[0]
    return Checked(row, criterion, rules.get(criterion, sample.id), sample.meta.get("kept"))


def numbers(graded: Sequence[Graded], threshold: float) -> dict[str, Measured]:
    """Return `precision`, `recall`, `f1`, `auc`, `unweighed`, and the first four for each kind of criterion, as `f1
    <kind>`.
    """
    result = shares(graded, threshold)
    result["unweighed"] = statistics.weighted_mean(
        [float(row.weight is None) for row in graded], [row.prompt for row in graded]
    )
    for kind in sorted({row.group for row in graded}):
        of_kind = [row if row.group == kind else Graded(row.prompt, row.group, [], None) for row in graded]
        result |= {f"{name} {kind}": number for name, number in shares(of_kind, threshold).items()}
    return result


def shares(graded: Sequence[Graded], threshold: float) -> dict[str, Measured]:
    """Return shares of the tokens of all responses: `precision` is undefined if none is relevant, `recall` if none is
    marked, `f1` if neither occurs; responses without weights are left out.
    """
    rows: list[tuple[float, ...] | None] = []
    for row in graded:
        if row.weight is None:
            rows.append(None)
            continue
        relevant = [weight > threshold for weight in row.weight]
        both = sum(above and marked for above, marked in zip(relevant, row.marked, strict=True))
        rows.append((both, sum(relevant), sum(row.marked)))
    return statistics.overlaps(rows, [row.prompt for row in graded]) | {"auc": area(graded)}


def area(graded: Sequence[Graded]) -> Measured:
    """Return the area under the curve, over the tokens of all responses that have weights."""
    tokens: list[tuple[float, bool, str]] = [
        (weight, marked, row.prompt)
        for row in graded
        if row.weight is not None
        for weight, marked in zip(row.weight, row.marked, strict=True)
    ]
    scores, labels, prompts = [list(part) for part in zip(*tokens, strict=True)] if tokens else ([], [], [])
    return statistics.area_under_curve(scores, labels, prompts, [row.prompt for row in graded])
