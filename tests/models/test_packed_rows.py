"""Rows read without padding: the numbers and gradients of padded rows, or a refusal."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from model_helpers import LORA, stir, tiny, tokens
from test_shared_prompts_families import GPT, LLAMA, MIXED, PLAIN
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from fgrl.base.errors import DataError
from fgrl.models import packed_rows

BUDGET = 10_000
PACKED: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "mistral": LLAMA | {"sliding_window": 5},
    "qwen2": LLAMA | {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
    "qwen3": LLAMA,
    "gemma3_text": LLAMA | MIXED | {"query_pre_attn_scalar": 8},
    "phi3": LLAMA,
    "olmo2": LLAMA,
    "gpt_neox": PLAIN,
    "gpt2": GPT,
}
RUN_TOGETHER: dict[str, dict[str, Any]] = {
    "lfm2": LLAMA | {"layer_types": ["conv", "full_attention"] * 2},
    "qwen3_next": LLAMA | {
        "layer_types": ["linear_attention", "full_attention"] * 2, "num_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16, "linear_num_value_heads": 4,
        "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 8,
    },
    "bloom": {"hidden_size": 32, "n_layer": 3, "n_head": 4},
    "gemma3_text, both ways": LLAMA | {"use_bidirectional_attention": True, "query_pre_attn_scalar": 8},
}  # fmt: skip
"""Whose packed rows are not what they are alone: convolutions, recurrence, biases of the distance, attention to what follows."""


@pytest.fixture
def folder(tmp_path: Path, tiny_model_dir: Path) -> Callable[..., Path]:
    """Makes the folder of a random model with the tokenizer of the tiny one."""
    config = transformers.AutoConfig.from_pretrained(tiny_model_dir)

    def made(name: str, settings: dict[str, Any]) -> Path:
        torch.manual_seed(0)
        ids = {key: getattr(config, key) for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
        ids["vocab_size"] = config.vocab_size + 1  # Qwen's tokenizer adds a token
        own = CONFIG_MAPPING[name.split(",")[0]](**(settings | ids | {"initializer_range": 0.2}))
        transformers.AutoModelForCausalLM.from_config(own).save_pretrained(tmp_path / "model")
        for file in tiny_model_dir.glob("*token*"):
            shutil.copy(file, tmp_path / "model")
        return tmp_path / "model"

    return made


def passes(model: Any, **options: Any) -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    """Log-probabilities, entropies and gradients of three rows of different lengths."""
    model.zero_grad()
    scores = model.score(tokens(), entropy=True, **options)
    (scores.logp.sum() + scores.entropy.sum()).backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    return scores.logp.detach(), scores.entropy.detach(), gradients


def assert_same(model: Any, **options: Any) -> None:
    padded = passes(model, **options)
    model.pack_rows(BUDGET)
    packed = passes(model, **options)
    torch.testing.assert_close(packed[:2], padded[:2], atol=1e-5, rtol=1e-5)
    assert not packed[0][~tokens().mask].any()
    whole = {key: torch.cat([g.flatten() for g in each[2].values()]) for key, each in (("a", padded), ("b", packed))}
    assert padded[2].keys() == packed[2].keys()
    assert float((whole["a"] - whole["b"]).norm()) <= 1e-5 * float(whole["a"].norm())


@pytest.mark.parametrize("name", PACKED)
def test_numbers_and_gradients_are_those_of_padded_rows(name: str, folder: Callable[..., Path]) -> None:
    assert_same(tiny(folder(name, PACKED[name]), trainable=True))


@pytest.mark.parametrize("name", RUN_TOGETHER)
def test_a_model_that_does_not_keep_rows_apart_is_refused(name: str, folder: Callable[..., Path]) -> None:
    model = tiny(folder(name, RUN_TOGETHER[name]), attention="eager" if name == "bloom" else "sdpa")
    with pytest.raises(DataError, match=f"{name.split(',')[0]} model .* without padding"):
        model.pack_rows(BUDGET)
    assert model.packed_tokens is None


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_adapters_recomputed_activations_and_attention(
    attention: str, checkpointing: bool, tiny_model_dir: Path
) -> None:
    lora = LORA.model_copy(update={"dropout": 0.0})
    model = tiny(
        tiny_model_dir, trainable=True, lora=lora, attention=attention, gradient_checkpointing=checkpointing
    ).train()
    stir(model)
    assert_same(model)
    base = model.score(tokens(), adapter=False).logp
    model.packed_tokens = None
    torch.testing.assert_close(model.score(tokens(), adapter=False).logp, base, atol=1e-5, rtol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("head", ["scalar", "token"])
def test_numbers_before_and_behind_tokens(head: str, tiny_model_dir: Path) -> None:
    model, found = tiny(tiny_model_dir, head=head), []
    for budget in (None, BUDGET):
        model.pack_rows(budget)
        found.append((model.values(tokens()), model.rewards(tokens())))
    torch.testing.assert_close(found[1], found[0], atol=1e-5, rtol=1e-5)
    assert not torch.equal(*found[0])


def test_gradients_reach_embeddings_of_padded_rows(tiny_model_dir: Path) -> None:
    model, found = tiny(tiny_model_dir), []
    for budget in (None, BUDGET):
        model.pack_rows(budget)
        embeddings = model.embed(tokens()).requires_grad_()
        states = model.states(tokens(), embeddings=embeddings)
        (states * torch.randn(states.shape, generator=torch.Generator().manual_seed(1))).sum().backward()
        found.append(embeddings.grad)
    assert float((found[1] - found[0]).norm()) <= 1e-5 * float(found[0].norm())


def test_no_padding_and_no_mask_of_all_tokens_goes_through_the_model(
    tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, seen = tiny(tiny_model_dir), []
    model.pack_rows(BUDGET)
    read = model.trunk.forward

    def watched(**given: Any) -> Any:
        seen.append((tuple(given["input_ids"].shape), given["attention_mask"].numel()))
        return read(**given)

    monkeypatch.setattr(model.trunk, "forward", watched)
    model.score(tokens())
    batch = tokens()
    assert seen == [((1, int(batch.mask.sum() + batch.prompt_mask.sum())), 1)]


@pytest.mark.parametrize(
    ("window", "limit", "length"),
    [(None, 64, 8), (5, 64, 13), (60, 64, 64), (64, 64, 8), (262_144, 131_072, 8), (5, None, 13)],
)
def test_rows_of_the_check_are_no_longer_than_it_needs(window: int | None, limit: int | None, length: int) -> None:
    """Some models name a window above their longest input, which no row leaves."""
    config = SimpleNamespace(sliding_window=window, vocab_size=100)
    rows = packed_rows.probe(config, limit, torch.device("cpu"))
    assert rows.prompt_ids.shape[1] + rows.response_ids.shape[1] == length


def test_a_pair_alone_shares_its_beginning_and_more_pairs_are_packed(
    tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, seen = tiny(tiny_model_dir), []
    monkeypatch.setattr(
        model.trunk, "forward", lambda **given: seen.append(given["input_ids"].shape[1]) or read(**given)
    )
    read, begin = type(model.trunk).forward.__get__(model.trunk), [1, 5, 9, 13, 8, 21, 34, 7]
    model.packed_tokens = BUDGET
    for pairs in (1, 2):
        model.score(tokens([begin, begin] * pairs, [[3, 4, 5, 2], [6, 2]] * pairs), pairs=True)
    assert seen == [8 + 4 + 2, 2 * (8 + 4 + 8 + 2)]
