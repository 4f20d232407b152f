"""Place of a method's credit, compared with the words that the rule judges: from the advantages of stored rollouts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from fgrl_benchmark.credit_tasks import Task


def quality_of(file: Path, kind: Task, iteration: int = 0) -> dict[str, float]:
    """Return precision, recall and AUC of the advantages of an iteration; {} if none is stored.

    In iteration 0 all methods whose policy begins as the start model credit answers of the same model.

    precision: share of the advantages' mass that is on judged words with the right sign; mass on irrelevant words and with
    the wrong sign counts against it. recall: share of the judged words whose advantage has the right sign and at
    least a tenth of the answer's largest size. auc: probability that a right word has a higher advantage than a wrong one.
    By kind of word: recall of right and of wrong words, and the share of the mass that is on irrelevant ones; precision of positive
    and of negative advantages: the share of their mass that is on right, or on wrong words.
    """
    if not file.is_file():
        return {}
    lines = (json.loads(line) for line in file.open(encoding="utf-8"))
    return measured(kind, (line for line in lines if line["iteration"] == iteration and line.get("advantages")))


def measured(kind: Task, lines: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return the numbers of stored rollouts. A share of nothing is left out, and so is an answer whose tokens are not
    its words.
    """
    values: dict[int, list[float]] = {1: [], 0: [], -1: []}
    found = {1: 0, -1: 0}
    for line in lines:
        truth = kind.judge(line["sample"]["prompt"], line["response"]["text"])
        given = [value or 0.0 for value in line["advantages"]]
        if len(given) != len(truth):
            continue
        least = max(map(abs, given), default=0.0) / 10
        for true, value in zip(map(int, truth), given, strict=True):
            values[true].append(value)
            if true * value > 0:
                found[true] += abs(value) >= least
    # by the sign of the credit, then by the kind of word
    mass = {sign: {true: sum(max(0.0, sign * value) for value in values[true]) for true in values} for sign in (1, -1)}
    positive, negative = sum(mass[1].values()), sum(mass[-1].values())
    right, wrong = len(values[1]), len(values[-1])
    if not positive + negative or not right + wrong:
        return {}
    shares = {
        "precision": (mass[1][1] + mass[-1][-1], positive + negative),
        "recall": (found[1] + found[-1], right + wrong),
        "recall of right": (found[1], right),
        "recall of wrong": (found[-1], wrong),
        "precision of positive": (mass[1][1], positive),
        "precision of negative": (mass[-1][-1], negative),
        "on irrelevant": (mass[1][0] + mass[-1][0], positive + negative),
    }
    return {name: part / whole for name, (part, whole) in shares.items() if whole} | auc(values[1], values[-1])


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
