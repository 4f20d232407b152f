"""Perplexity under a scorer, against transformers' own cross-entropy."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from answer_helpers import answer_of

from fgrl.base.console import Console
from fgrl.experiments.pipeline.run import scratch_run
from fgrl.registry import Problems, build

TEXTS = ["The lamp is lit at night.", "No.", "", "A door, a lamp, and a very long road to the sea."]


def measured(folder: Path, tmp_path: Path, texts: list[str], **settings: Any) -> dict[str, Any]:
    metric = build("metric", {"name": "perplexity", "scorer": str(folder), "batch_size": 2} | settings)
    answers = [answer_of(str(n), f"What is {n}?", text) for n, text in enumerate(texts)]
    with scratch_run("evaluate", cache=tmp_path, seed=0, accelerator="cpu", products={}, console=Console()) as run:
        metric.setup(run)
        found: dict[str, Any] = metric.measure({"m": answers})["perplexity"]
    return found


def likelihoods(folder: Path, texts: list[str], *, prompt: bool) -> list[tuple[float, int]]:
    """(negative log-likelihood in nats, tokens) of each text that has tokens, by transformers' loss."""
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder).eval()
    rows = []
    for number, text in enumerate(texts):
        turns = [{"role": "user", "content": f"What is {number}?"}]
        before = (
            list(tokenizer.apply_chat_template(turns, add_generation_prompt=True, return_dict=False))
            if prompt
            else [tokenizer.bos_token_id]
        )
        own = tokenizer(text, add_special_tokens=False).input_ids
        if own:
            ids = torch.tensor([before + own])
            labels = torch.tensor([[-100] * len(before) + own])
            with torch.no_grad():
                rows.append((float(model(input_ids=ids, labels=labels).loss) * len(own), len(own)))
    return rows


@pytest.mark.parametrize("given", ["nothing", "prompt"])
def test_transformers_gives_the_same(tiny_model_dir: Path, tmp_path: Path, given: str) -> None:
    found = measured(tiny_model_dir, tmp_path, TEXTS, given=given)
    rows = likelihoods(tiny_model_dir, TEXTS, prompt=given == "prompt")
    assert len(rows) == 3, "the empty answer is left out"
    per_token = math.exp(sum(nats for nats, _ in rows) / sum(count for _, count in rows))
    assert found["m"]["per_token"]["mean"] == pytest.approx(per_token, rel=1e-4)
    assert found["m"]["nats_per_token"]["mean"] == pytest.approx(math.log(per_token), rel=1e-4)
    per_answer = sum(math.exp(nats / count) for nats, count in rows) / 3
    assert found["m"]["per_answer"]["mean"] == pytest.approx(per_answer, rel=1e-4)
    assert found["m"]["per_token"]["n"] == 3
    assert str(tiny_model_dir) in found["about"]


def test_one_answer_has_one_perplexity(tiny_model_dir: Path, tmp_path: Path) -> None:
    found = measured(tiny_model_dir, tmp_path, TEXTS[:1])["m"]
    assert found["per_token"]["mean"] == pytest.approx(found["per_answer"]["mean"])


def test_a_long_answer_is_cut_and_counted(tiny_model_dir: Path, tmp_path: Path) -> None:
    found = measured(tiny_model_dir, tmp_path, [TEXTS[0], "x"], max_tokens=4)["m"]
    assert found["cut"]["mean"] == 0.5
    with pytest.raises(Problems, match="max_prompt_tokens"):
        build("metric", {"name": "perplexity", "scorer": str(tiny_model_dir), "given": "prompt", "max_tokens": 8})
