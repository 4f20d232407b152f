"""Padding before a prompt sees a token where kernels need that, and nothing else changes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from model_helpers import more_padding, tiny, tokens

from fgrl.models import attention_masks, language_model


@pytest.fixture
def masks(monkeypatch: pytest.MonkeyPatch) -> list[torch.Tensor]:
    """The masks of all fused attention."""
    seen: list[torch.Tensor] = []
    attention = torch.nn.functional.scaled_dot_product_attention

    def recorded(query, key, value, attn_mask=None, **options):
        seen.append(attn_mask)
        return attention(query, key, value, attn_mask, **options)

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", recorded)
    monkeypatch.setattr(language_model, "FEW_SCORES", 0)
    return seen


def gradients(folder: Path) -> dict[str, torch.Tensor]:
    model = tiny(folder, trainable=True)
    model.score(more_padding(tokens(), 5, 2, pad_id=9)).logp.sum().backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


def test_padding_sees_a_token_on_a_gpu_and_the_gradient_stays(
    tiny_model_dir: Path, masks: list[torch.Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = gradients(tiny_model_dir)
    assert not all(mask.any(-1).all() for mask in masks)
    masks.clear()
    monkeypatch.setattr(attention_masks, "DEVICES", ("cpu",))
    other = gradients(tiny_model_dir)
    assert masks
    assert all(mask.any(-1).all() for mask in masks)
    for name, gradient in plain.items():
        torch.testing.assert_close(other[name], gradient, atol=1e-5, rtol=1e-5)


def test_what_sees_a_token_keeps_its_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_masks, "DEVICES", ("cpu",))
    attended = torch.tensor([[False, False, True, True]])
    mask = attention_masks.sdpa_mask(batch_size=1, q_length=4, kv_length=4, attention_mask=attended)
    assert mask is not None
    assert mask[0, 0].long().tolist() == [[1, 1, 1, 1], [1, 1, 1, 1], [0, 0, 1, 0], [0, 0, 1, 1]]
    assert (
        attention_masks.sdpa_mask(batch_size=1, q_length=4, kv_length=4, attention_mask=torch.ones(1, 4).bool()) is None
    )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("length", [64, 192, 320])
def test_gradients_are_finite_for_each_length_on_a_gpu(tiny_model_dir: Path, length: int) -> None:
    model = tiny(tiny_model_dir, trainable=True, dtype="bfloat16").to("cuda")
    short = tokens()
    batch = more_padding(short, length - short.prompt_ids.shape[1] - short.response_ids.shape[1], 0, pad_id=9)
    model.score(batch.to("cuda")).logp.sum().backward()
    assert all(bool(parameter.grad.isfinite().all()) for parameter in model.parameters())
