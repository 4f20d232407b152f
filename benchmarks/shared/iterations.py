"""Online training by hand, one iteration at a time, so that several trainings of one model can take turns in one process."""

from __future__ import annotations

import time
from contextlib import nullcontext

import torch

from fgrl.modules.online import OnlineRounds
from fgrl.modules.rounds import Process

NO_CHANGE = 1e-30
"""A learning rate: every optimizer step is computed, and changes nothing."""


def train_iteration(rounds: OnlineRounds, number: int) -> dict[str, float]:
    """Seconds of drawing and scoring the responses (`collect`), of the rewards (`score`), of training on them (`train`), and of the whole
    iteration (`step`)."""
    started = time.perf_counter()
    optimizer = torch.optim.AdamW(rounds.parameter_groups(), lr=NO_CHANGE)
    loader = rounds.start(number, Process(rank=0, world=1, forward_context=nullcontext))
    began = time.perf_counter()
    for place, batch in enumerate(loader):
        (rounds.loss(batch)[0] / rounds.micro_batches).backward()
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
