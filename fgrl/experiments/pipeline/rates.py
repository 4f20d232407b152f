"""Rates of this machine, measured in a few seconds and given as a card, which `fgrl plan` uses."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from fgrl.experiments.pipeline import machine

WIDTH, ROWS, LAYERS = 512, 256, 16
"""Width and rows of the matrix products that are timed, and layers of the model that is timed: its weights do not fit into the
cache of a CPU.
"""
STEPPED = 32
"""Rows of a decoding step."""
NARROW = 64
"""Width of a model whose matrix products take no time compared with sending its operations to the device."""
REPEATED, LEAST = 5, 0.5
"""Minimum number of repetitions, and minimum seconds of all together. The shortest time counts, because other processes
may compute at the same time.
"""


def measure() -> dict[str, Any]:
    """Return the fields of a card for the first GPU, or without a GPU for this CPU with torch's number of threads."""
    gpu = torch.cuda.is_available()
    name = torch.cuda.get_device_name() if gpu else f"CPU, {torch.get_num_threads()} threads"
    device = torch.device("cuda" if gpu else "cpu")
    memory = torch.cuda.get_device_properties(0).total_memory / 2**30 if gpu else machine.memory() or 0.0
    products = {kind: _product(kind, device) for kind in (torch.float32, torch.bfloat16)}
    faster = max(products, key=products.__getitem__)
    model = _model(WIDTH, faster, device)
    tokens = torch.zeros(4, ROWS // 4, dtype=torch.long, device=device)
    linear = [layer.weight for layer in model.modules() if isinstance(layer, torch.nn.Linear)]
    work = 2 * ROWS * sum(weight.numel() for weight in linear)
    passed = work / _shortest(lambda: _passed(model, tokens), device)
    trained = 3 * work / _shortest(lambda: model(tokens, use_cache=False).logits.float().sum().backward(), device)
    one, several = (_shortest(partial(_passed, model, tokens.reshape(-1, 1)[:rows]), device) for rows in (1, STEPPED))
    stepped = work * (STEPPED - 1) / ROWS / max(several - one, 1e-6)
    narrow = _model(NARROW, torch.float32, device)
    sent = _shortest(lambda: _passed(narrow, tokens[:1, :1]), device)
    weights, row = (torch.ones(rows, 8 * WIDTH, device=device) for rows in (8 * WIDTH, 1))
    bandwidth = weights.nbytes / _shortest(lambda: row @ weights.T, device)
    read = sum(weight.nbytes for weight in linear) / max(one - sent, 1e-6)
    found = {
        "memory": memory, "tflops": products[torch.bfloat16] / 1e12, "tflops_float32": products[torch.float32] / 1e12,
        "bandwidth": bandwidth / 1e9, "reading": min(1.0, read / bandwidth),
        "passing": min(1.0, passed / products[faster]), "training": min(1.0, trained / products[faster]),
        "stepping": min(1.0, stepped / products[faster]), "layer": sent / LAYERS,
    }  # fmt: skip
    named = {"name": name, "usd": 0.0, "reserved": 2.0 if gpu else 0.5, "overlaps": gpu}
    return named | {field: float(f"{value:.3g}") for field, value in found.items()}


def _product(kind: torch.dtype, device: torch.device) -> float:
    """Return the operations per second of matrix products of this type."""
    left, right = (torch.ones(rows, WIDTH, dtype=kind, device=device) for rows in (ROWS, WIDTH))
    return 2 * ROWS * WIDTH**2 / _shortest(lambda: left @ right.T, device)


def _model(width: int, kind: torch.dtype, device: torch.device) -> Any:
    config = LlamaConfig(
        hidden_size=width, intermediate_size=3 * width, num_hidden_layers=LAYERS, num_attention_heads=width // 32,
        vocab_size=WIDTH,
    )  # fmt: skip
    with device:
        return AutoModelForCausalLM.from_config(config, dtype=kind, trust_remote_code=False)


@torch.no_grad()
def _passed(model: Any, tokens: torch.Tensor) -> None:
    model(tokens, use_cache=False)


def _shortest(compute: Callable[[], Any], device: torch.device) -> float:
    """Return the seconds of the fastest of several calls, not counting the first."""
    start, seconds = time.perf_counter(), list[float]()
    while len(seconds) <= REPEATED or time.perf_counter() - start < LEAST:
        began = time.perf_counter()
        compute()
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - began)
    return min(seconds[1:])
