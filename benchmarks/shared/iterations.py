"""Online training by hand, one iteration at a time, so that several trainings of one model can take turns in one process."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch

from fgrl.training.online import OnlineRounds
from fgrl.training.rounds import Process

NO_CHANGE = 1e-30
"""A learning rate: every optimizer step is computed, and changes nothing."""


def parse(parser: argparse.ArgumentParser) -> argparse.Namespace:
    """The options of a script, with `--json` and `--processor-time`, which measures all phases by the processor's clock."""
    parser.add_argument(
        "--processor-time", action="store_true",
        help="count seconds of the processor instead of the clock, for a machine that is not idle (with OMP_NUM_THREADS=1)",
    )  # fmt: skip
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    if options.processor_time:
        time.perf_counter = time.process_time
    return options


def train_iteration(rounds: OnlineRounds, number: int, context: Callable[[], Any] = nullcontext) -> dict[str, float]:
    """Seconds of drawing and scoring the responses (`collect`), of the rewards (`score`), of training on them (`train`), and of the whole
    iteration (`step`). context: of all forward passes."""
    started = time.perf_counter()
    optimizer = torch.optim.AdamW(rounds.parameter_groups(), lr=NO_CHANGE)
    loader = rounds.start(number, Process(rank=0, world=1, forward_context=context))
    began = time.perf_counter()
    for place, batch in enumerate(loader):
        with context():
            loss = rounds.loss(batch)[0] / rounds.micro_batches
        loss.backward()
        if (place + 1) % rounds.micro_batches == 0:
            optimizer.step()
            optimizer.zero_grad()
    ended = time.perf_counter()
    return {
        "collect": rounds.metrics["seconds/collect"],
        "score": rounds.metrics["seconds/score"],
        "train": ended - began,
        "step": ended - started,
    }
