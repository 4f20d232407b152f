"""Prompts read once, in many architectures of transformers: the states of rows read whole, or not shared at all."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from fgrl import rollouts
from fgrl.models import shared_prompts

LLAMA: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 128, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2,
}  # fmt: skip
GPT: dict[str, Any] = {
    "vocab_size": 64, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64, "n_inner": 48, "pad_token_id": 0,
    "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
PLAIN: dict[str, Any] = {
    "vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 48,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
MIXED = {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"] * 2}
GEMMA3 = LLAMA | MIXED | {"query_pre_attn_scalar": 8}
LONGROPE = {
    "rope_type": "longrope", "rope_theta": 10_000.0, "short_factor": [1.0] * 4, "long_factor": [4.0] * 4,
    "original_max_position_embeddings": 12,
}  # fmt: skip

SHARED = {
    "llama": LLAMA,
    "mistral": LLAMA | {"sliding_window": 5},
    "qwen2": LLAMA | {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1},
    "qwen3": LLAMA,
    "gemma2": LLAMA | {"sliding_window": 5, "query_pre_attn_scalar": 8},
    "gemma3_text": GEMMA3,
    "cohere2": LLAMA | MIXED,
    "phi3": LLAMA,
    "gpt2": GPT,
    "gptj": GPT | {"rotary_dim": 4},
    "gpt_neox": PLAIN,
    "opt": {k: v for k, v in PLAIN.items() if k != "intermediate_size"} | {"ffn_dim": 48, "word_embed_proj_dim": 32},
    "bloom": {"vocab_size": 64, "hidden_size": 32, "n_layer": 3, "n_head": 4},
}
WHOLE = {
    "bert": PLAIN,
    "roberta": PLAIN,
    "modernbert": PLAIN | {"cls_token_id": 1, "sep_token_id": 2},
    "gemma3_text, both ways": GEMMA3 | {"use_bidirectional_attention": True},
    "phi3, longrope": LLAMA | {"original_max_position_embeddings": 12, "rope_parameters": LONGROPE},
    "openai-gpt": GPT,
    "rwkv": {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2, "attention_hidden_size": 32},
    "mamba": {"vocab_size": 64, "hidden_size": 32, "num_hidden_layers": 2},
}


def trunk(name: str, settings: dict[str, Any]) -> Any:
    torch.manual_seed(0)
    config = CONFIG_MAPPING[name.split(",")[0]](**settings)
    return transformers.AutoModel.from_config(config).eval()


@pytest.mark.parametrize("name", SHARED)
@torch.no_grad()
def test_states_are_those_of_rows_read_whole(name: str) -> None:
    net = trunk(name, SHARED[name])
    assert shared_prompts.can_share(net)
    long, short = [5, 6, 7, 8, 9, 10, 11, 12, 13, 14], [20, 21, 22, 23]
    tokens = rollouts.pad(
        [long, long, short, short, long],
        [[3, 4, 5, 2, 9, 8], [7], [6, 6, 9], [1], [8, 9, 10, 11, 12, 2]],
        pad_id=0,
        eos_ids={2},
    )
    mask = torch.cat([tokens.prompt_mask, tokens.mask], 1)
    inputs = {
        "input_ids": torch.cat([tokens.prompt_ids, tokens.response_ids], 1),
        "attention_mask": mask.long(),
    }
    if name not in ("bloom", "opt"):
        inputs["position_ids"] = (mask.long().cumsum(1) - 1).clamp_min(0)
    first, place = shared_prompts.distinct_prompts(tokens)
    shared = shared_prompts.states_after(net, inputs, len(long), first, place)
    whole = net(**inputs, use_cache=False).last_hidden_state[:, len(long) - 1 :]
    real = torch.cat([tokens.prompt_mask[:, -1:], tokens.mask], 1)
    torch.testing.assert_close(shared[real], whole[real], atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("name", WHOLE)
def test_where_a_part_does_not_stand_for_the_whole_rows_are_read_whole(name: str) -> None:
    assert not shared_prompts.can_share(trunk(name, WHOLE[name]))
