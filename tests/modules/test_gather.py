"""Rollouts of two processes put together: every column, also one that only a user's reward declares, reaches each loss."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import torch
from column_records import records
from torch import multiprocessing
from torch.distributed import destroy_process_group, init_process_group

from fgrl.training import gather
from fgrl.training.steps import Step, StepLoader
from fgrl.training.units import RolloutUnits

SIZES = [(2, 5, 1), (4, 1, 3), (1, 3, 2), (3, 2, 1), (2, 4, 3)]
"""Prompt tokens, response tokens and criteria of each response; the first process holds three of them."""
MISSING = 1


def in_one_process(rank: int, port: int, folder: Path) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    init_process_group("gloo", rank=rank, world_size=2)
    try:
        rollout, rewards, _advantages = records(SIZES[:3] if rank == 0 else SIZES[3:], first=0 if rank == 0 else 3)
        if rank == 0:
            rewards.response[MISSING] = float("nan")
        rollout, rewards = gather.everywhere(rollout, rewards, world=2)
        rollout, rewards, dropped = gather.drop_missing(rollout, rewards)
        units = RolloutUnits(rollout, rewards, pad_id=9)
        batches = list(StepLoader(units, [Step([0, 1, 2, 3])], micro_batches=2, rank=rank, world=2))
        seen = [(batch.mask, batch.prompt_mask, dict(batch.columns)) for batch in batches]
        torch.save(
            {
                "dropped": dropped, "group": rollout.group, "notes": rewards.notes, "seen": seen,
                "critiques": [annotation and annotation.critique for annotation in rewards.annotations],
            },
            folder / f"{rank}.pt",
        )  # fmt: skip
    finally:
        destroy_process_group()


def test_every_column_reaches_the_losses_of_two_processes(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    multiprocessing.spawn(in_one_process, args=(port, tmp_path), nprocs=2)
    ranks = [torch.load(tmp_path / f"{rank}.pt") for rank in (0, 1)]
    left = [n for n in range(len(SIZES)) if n != MISSING]
    for rank in ranks:
        assert rank["dropped"] == 1
        assert rank["group"].tolist() == left, "groups go on from rank to rank"
        assert rank["notes"] == [f"note {n}" for n in left]
        assert rank["critiques"] == [f"critique {n}" if n % 3 else None for n in left]
    seen = []
    for mask, prompt_mask, columns in [batch for rank in ranks for batch in rank["seen"]]:
        assert {"weight", "kind", "prompt_weight", "difficulty", "credit_mask", "segment_ids"} <= columns.keys()
        for row, number in enumerate(columns["response"].int().tolist()):
            prompt, length, criteria = SIZES[number]
            seen.append(number)
            assert columns["difficulty"][row] == 2 * number
            assert int(mask[row].sum()) == length
            assert columns["weight"][row][mask[row]].tolist() == [100.0 * number + t + 0.5 for t in range(length)]
            assert set(columns["weight"][row][~mask[row]].tolist()) <= {1.0}
            assert columns["kind"][row][mask[row]].tolist() == [100 * number + t + 3 for t in range(length)]
            assert set(columns["kind"][row][~mask[row]].tolist()) <= {-7}
            assert columns["segment_ids"][row][mask[row]].tolist() == [100 * number + t for t in range(length)]
            assert set(columns["segment_ids"][row][~mask[row]].tolist()) <= {-1}
            real = columns["prompt_weight"][row][prompt_mask[row]].tolist()
            assert real == [100.0 * number - t for t in range(prompt, 0, -1)]
            assert columns["verdict"][row].isnan().tolist() == [c >= criteria for c in range(3)]
    assert sorted(seen) == left, "each response is in the loss of one process"
