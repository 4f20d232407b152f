"""The operations that `benchmarks/gpu.py` divides by seconds, by hand and as torch counts them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

SCRIPTS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(SCRIPTS))
    import gpu

    yield gpu
    gpu._LAST.clear()


def test_operations_by_hand(gpu: Any) -> None:
    """One layer, hidden size 2, one head, inner size 3, vocabulary 5, rank 1, one row of one and one token."""
    config = SimpleNamespace(
        hidden_size=2,
        intermediate_size=3,
        num_attention_heads=1,
        num_key_value_heads=1,
        num_hidden_layers=1,
        vocab_size=5,
    )
    layers = 4 * (2 * 2) + 3 * (2 * 3)  # weights of q, k, v, o, and of the three of the multilayer perceptron
    adapters = 4 * (2 + 2) + 3 * (2 + 3)
    frozen, thin, attention, head = 2 * 2 * layers, 2 * 2 * adapters, 4 * 2 * 2 * 2, 2 * 2 * 5
    assert gpu.operations(config, 1, 1, 1, 1) == 2 * frozen + 3 * thin + 3 * attention + 2 * head == 780


@pytest.mark.parametrize(("rows", "prompt", "new"), [(2, 64, 16), (1, 96, 32)])
def test_torch_counts_nearly_as_many(gpu: Any, rows: int, prompt: int, new: int) -> None:
    """It leaves out what the first layer need not hand back, and counts padded chunks of the output layer."""
    from fgrl.rollouts import pad

    model = gpu.made("tiny", "cpu")
    ids = torch.randint(1, 256, (rows, prompt + new), generator=torch.Generator().manual_seed(0)).tolist()
    tokens = pad([row[:prompt] for row in ids], [row[prompt:] for row in ids], model.pad_id, set())
    with FlopCounterMode(display=False) as counter:
        (-model.score(tokens, entropy=True).logp.mean()).backward()
    counted = gpu.operations(model.transformer.config, rows, prompt, new, gpu.RANK)
    assert counter.get_total_flops() == pytest.approx(counted, rel=0.05)


def test_what_the_time_does_not_reach_is_not_run(tmp_path: Path) -> None:
    lines = tmp_path / "gpu.jsonl"
    words = f"--device cpu --shapes tiny --rows 2 --minutes -1 --output {lines}".split()
    subprocess.run(
        [sys.executable, str(SCRIPTS / "gpu.py"), *words], check=True, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    written = [json.loads(line) for line in lines.read_text(encoding="utf-8").splitlines()]
    assert [line["case"] for line in written][:4] == ["draw", "draw", "train", "grpo"]
    assert {line["status"] for line in written} == {"not run"}
