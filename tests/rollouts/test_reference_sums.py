"""The reference's numbers, shared out over processes: each pair read once, and known everywhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from patience import HUNG

from fgrl import rollouts
from fgrl.rollouts.reference_sums import digest, units_of

pytestmark = pytest.mark.usefixtures("warm")

SUPPORT = Path(__file__).resolve().parents[1] / "support"
PROCESS = """
import json, sys
from pathlib import Path
import torch
from training_helpers import a_run
from fgrl import rollouts
from fgrl.rollouts.reference_sums import ReferenceSums

folder, rank, limit = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meet-{limit}", rank=rank, world_size=2)
units = [rollouts.pad([[1, 5]] * 2, [[7 + i, 8], [9, 10 + i, 2]], 0, {2}) for i in range(limit)]
read = []

def compute(unit):
    read.append(int(unit.response_ids[0, 0]) - 7)
    return unit.response_ids.double().sum(1) / 7

sums = ReferenceSums()
sums.fill(units, compute, "float32", folder / "sums.safetensors", a_run(folder / str(rank), rank=rank), rank, 2)
again = [sums.of(unit, lambda: 1 / 0, "float32").tolist() for unit in units]
print(json.dumps({"read": read, "sums": again}))
"""


def two_processes(folder: Path, limit: int) -> list[dict[str, list[float]]]:
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(SUPPORT), str(SUPPORT.parents[1])])}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(folder), str(rank), str(limit)], stdout=subprocess.PIPE, text=True,
            env=environment,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        return [json.loads(process.communicate(timeout=HUNG)[0].splitlines()[-1]) for process in processes]
    finally:
        for process in processes:
            process.kill()


def test_two_processes_read_each_pair_once_and_know_all(tmp_path: Path) -> None:
    first, second = two_processes(tmp_path, 5)
    assert sorted(first["read"] + second["read"]) == [0, 1, 2, 3, 4]
    assert first["read"]
    assert second["read"]
    assert first["sums"] == second["sums"] == [[(15 + i) / 7, (21 + i) / 7] for i in range(5)]
    (tmp_path / "meet-5").unlink(missing_ok=True)
    again = two_processes(tmp_path, 5)
    assert [process["read"] for process in again] == [[], []], "they read the file"
    assert [process["sums"] for process in again] == [first["sums"]] * 2


def test_units_are_named_by_their_tokens_and_not_by_the_padding_of_their_batch() -> None:
    batch = rollouts.pad([[1, 5], [1, 5], [1], [1]], [[7], [8, 2], [3, 4, 5, 6], [9]], 0, {2})
    first, second = units_of(batch, 2)
    assert first.response_ids.shape == (2, 2)
    assert second.prompt_ids.shape == (2, 1)
    assert digest(first) == digest(rollouts.pad([[1, 5], [1, 5]], [[7], [8, 2]], 0, {2}))
    moved = rollouts.pad([[1, 5], [1, 5, 8]], [[7], [2]], 0, {2})
    assert digest(moved) != digest(first), "the border between prompt and response counts"
    assert torch.equal(first.mask, torch.tensor([[True, False], [True, True]]))
