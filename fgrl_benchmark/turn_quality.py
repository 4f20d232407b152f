"""Place of a method's credit over turns, compared with the value of the moves: from the advantages of stored
rollouts.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

from fgrl_benchmark.credit_quality import auc


def quality_of_turns(file: Path, iteration: int = 0) -> dict[str, float]:
    """Return `measured_turns` of the conversations of an iteration; {} if none is stored."""
    if not file.is_file():
        return {}
    lines = (json.loads(line) for line in file.open(encoding="utf-8"))
    return measured_turns(line for line in lines if line["iteration"] == iteration and line.get("advantages"))


def measured_turns(lines: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return the numbers of stored conversations; a share of nothing is left out. The advantage of a turn is the mean over its tokens.

    sign: the share of turns whose advantage has the sign of the move's value. auc: probability that a turn with a good
    move has a higher advantage than a turn with a bad move. useless: the share of the positive advantages that is on
    moves that never change anything.
    """
    good, bad, useless = [], [], []
    for line in lines:
        for number, turn in enumerate(line["turns"]):
            own = [value or 0.0 for value, at in zip(line["advantages"], line["turn"], strict=True) if at == number]
            advantage = fmean(own)
            if turn["numbers"]["worth"]:
                (good if turn["numbers"]["worth"] > 0 else bad).append(advantage)
            if turn["numbers"]["useless"]:
                useless.append(advantage)
    found = auc(good, bad)
    if good or bad:
        found["sign"] = (sum(value > 0 for value in good) + sum(value < 0 for value in bad)) / len(good + bad)
    if positive := sum(max(0.0, value) for value in good + bad):
        found["useless"] = sum(max(0.0, value) for value in useless) / positive
    return found
