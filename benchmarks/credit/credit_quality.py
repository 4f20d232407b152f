"""Where a method puts its credit, compared with the words that the rule judges: from the advantages of stored rollouts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from credit_tasks import Task


def quality_of(file: Path, kind: Task, iteration: int = 0) -> dict[str, float]:
    """Return precision, recall and AUC of the advantages of an iteration; {} where none is stored.

    In iteration 0 all methods credit answers of the same model.

    precision: share of the advantages' mass that is on judged words with the right sign; mass on irrelevant words and with
    the wrong sign counts against it. recall: share of the judged words whose advantage has the right sign and at
    least a tenth of the answer's largest size. auc: how probably a right word has a higher advantage than a wrong one.
    """
    if not file.is_file():
        return {}
    lines = (json.loads(line) for line in file.read_text(encoding="utf-8").splitlines())
    return measured(kind, (line for line in lines if line["iteration"] == iteration and line.get("advantages")))


def measured(kind: Task, lines: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return the numbers of stored rollouts."""
    mass = hit = judged = found = 0.0
    right: list[float] = []
    wrong: list[float] = []
    for line in lines:
        truth = kind.judge(line["sample"]["prompt"], line["response"]["text"])
        given = [value or 0.0 for value in line["advantages"]][: len(truth)]
        least = max(map(abs, given), default=0.0) / 10
        for true, value in zip(truth, given, strict=True):
            mass += abs(value)
            judged += true != 0
            if true * value > 0:
                hit += abs(value)
                found += abs(value) >= least
            if true:
                (right if true > 0 else wrong).append(value)
    if not mass or not judged:
        return {}
    return {"precision": hit / mass, "recall": found / judged, **auc(right, wrong)}


def auc(higher: list[float], lower: list[float]) -> dict[str, float]:
    """Return the probability that one of `higher` is above one of `lower`; ties count one half."""
    if not higher or not lower:
        return {}
    ranked = sorted([*((value, True) for value in higher), *((value, False) for value in lower)])
    below, total, start = 0, 0.0, 0
    while start < len(ranked):
        stop = start
        while stop < len(ranked) and ranked[stop][0] == ranked[start][0]:
            stop += 1
        ups = sum(is_higher for _, is_higher in ranked[start:stop])
        downs = stop - start - ups
        total += ups * (below + downs / 2)
        below += downs
        start = stop
    return {"auc": total / (len(higher) * len(lower))}
