"""How probable a model finds a text behind a part of a response, against transformers' logits."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from model_helpers import tiny

from fgrl import rollouts
from fgrl.kinds import default_engine
from fgrl.kinds.specs import Sampling
from fgrl.types import Sample

PROMPTS = [Sample(id=name, prompt=name) for name in ("The river", "A lamp stands on the table", "Bread")]
PLACES = [(0, 0), (0, 5), (1, 3), (2, 8), (1, 0)]
TEXTS = ["water", " the old mill", "light", "a", " butter and salt"]


@pytest.mark.parametrize("micro_batch_size", [1, 2, 16])
def test_the_mean_is_that_of_the_text_alone(micro_batch_size: int, tiny_model_dir: Path) -> None:
    model = tiny(tiny_model_dir)
    rollout = rollouts.collect(
        model,
        None,
        PROMPTS,
        Sampling(max_new_tokens=8, temperature=0.7),
        default_engine().open(model),
        frozenset(),
        seed=4,
    )
    found = rollouts.logp_of(rollout, model, PLACES, TEXTS, after="So:", micro_batch_size=micro_batch_size)
    encode = lambda text: model.tokenizer(text, add_special_tokens=False).input_ids  # noqa: E731
    wanted = []
    for (row, position), text in zip(PLACES, TEXTS, strict=True):
        prompt = rollout.prompt_ids[row][rollout.prompt_mask[row]].tolist()
        before = [*prompt, *rollout.response_ids[row, :position].tolist(), *encode("So:")]
        ids = encode(text)
        with torch.no_grad():
            logits = model.net(torch.tensor([[*before, *ids]])).logits[0, len(before) - 1 : -1].float()
        wanted.append(float(logits.log_softmax(1)[range(len(ids)), ids].mean()))
    assert found.tolist() == pytest.approx(wanted, abs=2e-5)
    assert len({len(encode(text)) for text in TEXTS}) > 2
    assert not found.requires_grad


def test_a_text_needs_tokens(tiny_model_dir: Path) -> None:
    model = tiny(tiny_model_dir)
    rollout = rollouts.collect(
        model, None, PROMPTS[:1], Sampling(max_new_tokens=2), default_engine().open(model), frozenset()
    )
    with pytest.raises(ValueError, match="without tokens"):
        rollouts.logp_of(rollout, model, [(0, 1), (0, 0)], ["a", ""])
