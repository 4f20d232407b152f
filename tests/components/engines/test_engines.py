"""Sampling: the distribution drawn from, independence of batches, ends, and agreement with transformers' `generate`."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest
import torch

from fgrl import models
from fgrl.base.errors import DataError
from fgrl.components.engines.hf import HF
from fgrl.kinds import DrawRequest
from fgrl.kinds.specs import LoraSpec, ModelSpec, Sampling
from fgrl.models.decoding import copies
from fgrl.models.decoding.draw import _first_above, draw, uniforms
from fgrl.rollouts import sample
from fgrl.types import Prompt

PROMPTS = [[1, 20, 30, 40], [1, 50], [1, 60, 61, 62, 63, 64, 65], [1, 20, 30, 40], [1, 77, 78]]


@pytest.fixture(scope="module")
def mistral_dir(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Mistral whose layers see a window of 4 tokens."""
    from transformers import AutoTokenizer, MistralConfig, MistralForCausalLM

    tokenizer = AutoTokenizer.from_pretrained(tiny_model_dir)
    torch.manual_seed(0)
    config = MistralConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        sliding_window=4,
        initializer_range=0.2,
        eos_token_id=2,
        bos_token_id=1,
        pad_token_id=0,
    )
    folder = tmp_path_factory.mktemp("models") / "tiny-mistral"
    MistralForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def gpt2_dir(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

    tokenizer = AutoTokenizer.from_pretrained(tiny_model_dir)
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("models") / "tiny-gpt2"
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=64,
        initializer_range=0.2,
        eos_token_id=2,
        bos_token_id=1,
    )
    GPT2LMHeadModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def model(tiny_model_dir) -> models.LanguageModel:
    return models.load(ModelSpec(base=str(tiny_model_dir)))


@pytest.fixture
def policy(tiny_model_dir) -> models.LanguageModel:
    torch.manual_seed(0)
    policy = models.load(ModelSpec(base=str(tiny_model_dir), lora=LoraSpec(r=4, dropout=0.5)), trainable=True)
    generator = torch.Generator().manual_seed(1)
    for name, parameter in policy.net.named_parameters():
        if "lora_B" in name:
            parameter.data.copy_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return policy


def asked(prompts: list[list[int]]) -> list[Prompt]:
    return [Prompt(tuple(ids)) for ids in prompts]


def generate(model, prompts=PROMPTS, rows=None, seed=0, fold=False, **sampling) -> list[list[int]]:
    settings = Sampling(**{"max_new_tokens": 12, **sampling})
    drawn = sample(model, HF(fold=fold).open(model), asked(prompts), settings, seed=seed, rows=rows)
    return [each.token_ids for each in drawn]


# -- one draw ----------------------------------------------------------------------------------------------------------


def shares(logits: torch.Tensor, count: int = 20_000, **options) -> torch.Tensor:
    """How often each token is drawn for uniforms on an even grid: within 1/count of its probability."""
    grid = (torch.arange(count, dtype=torch.float64) + 0.5) / count
    return (
        draw(logits.repeat(count, 1), grid, **{"temperature": 1.0, **options}).bincount(minlength=len(logits)) / count
    )


@pytest.mark.parametrize("size", [3, 255, 256, 257, 1000])
@pytest.mark.parametrize("temperature", [1.0, 0.5, 2.0])
def test_tokens_are_drawn_as_often_as_they_are_probable(size, temperature):
    logits = torch.randn(size, generator=torch.Generator().manual_seed(0)) * 2
    wanted = torch.softmax(logits.double() / temperature, 0)
    torch.testing.assert_close(shares(logits, temperature=temperature).double(), wanted, atol=2e-4, rtol=0)


@pytest.mark.parametrize(
    ("top_p", "top_k"), [(0.9, 0), (0.5, 0), (1.0, 5), (0.8, 5), (0.05, 0), (1.0, 1), (0.99, 1000)]
)
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_truncation_keeps_what_transformers_keeps(top_p, top_k, temperature):
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    logits = torch.randn(600, generator=torch.Generator().manual_seed(4)) * 1.5
    kept = TemperatureLogitsWarper(temperature)(None, logits[None]) if temperature != 1 else logits[None]
    kept = TopKLogitsWarper(top_k)(None, kept) if top_k else kept
    kept = TopPLogitsWarper(top_p)(None, kept) if top_p < 1 else kept
    got = shares(logits, top_p=top_p, top_k=top_k, temperature=temperature)
    torch.testing.assert_close(got.double(), kept[0].double().softmax(0), atol=2e-4, rtol=0)


def test_extreme_uniforms_never_draw_an_impossible_token():
    logits = torch.tensor([-torch.inf, 1.0, -torch.inf, 0.0, -torch.inf])
    for options in ({}, {"top_p": 0.99}, {"top_k": 4}):
        low = draw(logits[None].clone(), torch.zeros(1, dtype=torch.float64), temperature=1.0, **options)
        high = draw(logits[None].clone(), torch.full((1,), 1 - 2**-53, dtype=torch.float64), temperature=1.0, **options)
        assert (int(low), int(high)) == (1, 3)


def test_rounding_past_the_end_takes_the_last_possible_token():
    weights = torch.tensor([[0.0, 0.25, 0.5, 0.0]], dtype=torch.float64)
    for target, place in ((0.0, 1), (0.24, 1), (0.25, 2), (0.75, 2), (9.0, 2)):
        assert int(_first_above(weights, torch.tensor([target], dtype=torch.float64))[0]) == place


def test_streams_belong_to_rows_and_seeds():
    whole = uniforms(7, [0, 5, 2], 9)
    assert torch.equal(uniforms(7, [5], 4)[0], whole[1, :4])
    assert not torch.equal(uniforms(8, [5], 9)[0], whole[1])
    assert uniforms(-1, [2**70], 1).shape == (1, 1)
    assert 0 <= whole.min() <= whole.max() < 1
    many = uniforms(0, list(range(1000)), 2)
    assert abs(float(many.mean()) - 0.5) < 0.02
    assert abs(float(torch.corrcoef(many.t())[0, 1])) < 0.1


# -- whole responses ---------------------------------------------------------------------------------------------------


def by_transformers(model, prompt: list[int], sampling: dict) -> list[int]:
    ids = torch.tensor([prompt])
    whole = model.transformer.generate(
        ids,
        attention_mask=torch.ones_like(ids),
        do_sample=False,
        eos_token_id=sorted(model.eos_ids),
        pad_token_id=0,
        **sampling,
    )
    return whole[0, len(prompt) :].tolist()


@pytest.mark.parametrize("which", ["tiny_model_dir", "gpt2_dir", "mistral_dir"])
def test_greedy_answers_are_those_of_transformers(which, request):
    """Rotary and absolute positions, whole and sliding attention; left padding, shared prompts, shrinking batches."""
    model = models.load(ModelSpec(base=str(request.getfixturevalue(which))))
    prompts = [[1, *range(20 + 3 * n, 21 + 4 * n)] for n in range(12)]
    wanted = [by_transformers(model, prompt, {"max_new_tokens": 20}) for prompt in prompts]
    got = generate(model, [*prompts, *prompts], temperature=0.0, max_new_tokens=20)
    assert got == [*wanted, *wanted]


def test_neither_order_nor_batches_nor_neighbours_change_what_is_drawn(model):
    wanted = generate(model)
    assert wanted[0] != wanted[3], "rows of one prompt have streams of their own"
    for size in (1, 2, 3):
        assert generate(model, batch_size=size) == wanted
    order = [4, 2, 0, 3, 1]
    assert generate(model, [PROMPTS[row] for row in order], rows=order) == [wanted[row] for row in order]
    assert generate(model, PROMPTS[2:3], rows=[2]) == wanted[2:3]
    assert generate(model, seed=1) != wanted


def test_responses_end_with_one_of_several_ends_or_at_the_limit(model):
    drawn = generate(model, [[1, 20]] * 300, max_new_tokens=30, temperature=1.5, batch_size=300)
    ends = [response[-1] for response in drawn]
    assert set(ends) >= model.eos_ids, "both ends occur"
    assert any(end not in model.eos_ids for end in ends), "and some responses are cut off"
    for response in drawn:
        assert not model.eos_ids & set(response[:-1])
        assert len(response) == 30 or response[-1] in model.eos_ids


def test_shrinking_the_batch_changes_nothing(model, monkeypatch):
    wanted = generate(model, [[1, 20]] * 40, max_new_tokens=30, temperature=1.5)
    assert len({len(response) for response in wanted}) > 3
    for share in (0.0, 1.0):
        monkeypatch.setattr("fgrl.components.engines.hf.SHRINK", share)
        assert generate(model, [[1, 20]] * 40, max_new_tokens=30, temperature=1.5) == wanted


def test_no_end_before_the_least_length(model):
    free = generate(model, [[1, 20]] * 400, temperature=1.5, batch_size=400)
    assert min(map(len, free)) < 5
    held = generate(model, [[1, 20]] * 400, temperature=1.5, batch_size=400, min_new_tokens=5)
    assert min(map(len, held)) == 6, "five other tokens, then the end"


def test_drawn_tokens_follow_the_model(model):
    """First tokens of many draws against the model's distribution: a chi-square over its probable tokens."""
    count = 4000
    drawn = torch.tensor(
        [r[0] for r in generate(model, [[1, 20, 30]] * count, max_new_tokens=1, temperature=0.8, batch_size=count)]
    )
    from fgrl.rollouts import pad

    p = (model.logits(model.states(pad([[1, 20, 30]], [[5]], 0, {2}))) / 0.8).softmax(1)[0].detach()
    likely = p > 0.005
    seen = torch.bincount(drawn, minlength=len(p))[likely]
    expected = p[likely] * count
    statistic = float(((seen - expected) ** 2 / expected).sum())
    degrees = int(likely.sum())
    assert degrees > 20
    assert statistic < degrees + 4 * (2 * degrees) ** 0.5


def test_row_numbers_must_fit(model):
    with pytest.raises(ValueError, match="shorter"):
        generate(model, rows=[0, 1])


def test_training_mode_comes_back_and_dropout_is_off_meanwhile(policy):
    wanted = generate(policy)
    policy.train()
    policy.number = None
    modes = {name: module.training for name, module in policy.named_modules()}
    assert generate(policy) == wanted
    assert {name: module.training for name, module in policy.named_modules()} == modes


def test_an_adapter_on_a_bfloat16_base_decodes_with_the_precision_that_scores(tiny_model_dir, monkeypatch):
    torch.manual_seed(0)
    policy = models.load(ModelSpec(base=str(tiny_model_dir), dtype="bfloat16", lora=LoraSpec(r=4)), trainable=True)
    seen = []
    layer = policy.trunk.layers[0].mlp.up_proj.lora_A["default"]
    layer.register_forward_hook(lambda module, given, made: seen.append(made.dtype))
    generate(policy, max_new_tokens=2, fold=False)
    assert set(seen) == {torch.bfloat16}


# -- weights for decoding ----------------------------------------------------------------------------------------------


def test_a_folded_adapter_samples_as_the_adapter_does(policy, model):
    wanted = generate(policy, fold=False, temperature=1.0)
    assert generate(policy, fold=True, temperature=1.0) == wanted
    assert generate(model) != wanted


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_folding_works_in_low_precision(steady_model_dir, dtype):
    torch.manual_seed(0)
    policy = models.load(ModelSpec(base=str(steady_model_dir), dtype=dtype, lora=LoraSpec(r=4)), trainable=True)
    for name, parameter in policy.net.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    with torch.autocast("cpu", torch.bfloat16):
        apart, folded = generate(policy, [[1, 20]] * 50), generate(policy, [[1, 20]] * 50, fold=True)
        with policy.adapter_off():
            without = generate(policy, [[1, 20]] * 50)
    agree = lambda others: sum(a[0] == b[0] for a, b in zip(apart, others, strict=True))  # noqa: E731
    assert agree(folded) > 25 > 2 * agree(without)


def test_folding_writes_nothing_into_the_model(policy):
    before = {name: value.clone() for name, value in policy.state_dict().items()}
    with copies.decoding_weights(policy, 0) as count:
        assert count == 14
    generate(policy, fold=True)
    assert all(torch.equal(value, before[name]) for name, value in policy.state_dict().items())
    assert not [module for module in policy.modules() if "forward" in vars(module)]


def test_an_adapter_that_is_switched_off_stays_off(policy, model):
    with policy.adapter_off():
        assert generate(policy) == generate(model)


def test_autocast_converts_each_weight_once(model):
    with torch.autocast("cpu", torch.bfloat16), copies.decoding_weights(model, 0) as count:
        assert count == 15  # 2 layers of 7, and the output layer
        assert model.output_layer.forward.args[0].dtype == torch.bfloat16
    with copies.decoding_weights(model, 0) as count:
        assert count == 0


def test_rounding_at_random_keeps_the_mean_and_moves_to_a_neighbour():
    noise = torch.Generator().manual_seed(0)
    x = torch.tensor([1.0 + 2**-9, -1.0 - 2**-10, 0.3, 1.0, 0.0])
    rounded = torch.stack([copies.round_stochastically(x, noise) for _ in range(4000)]).float()
    torch.testing.assert_close(rounded.mean(0), x, atol=3e-4, rtol=0)
    assert set(rounded[:, 0].tolist()) == {1.0, 1.0 + 2**-7}
    assert set(rounded[:, 3].tolist()) == {1.0}
    assert set(rounded[:, 4].tolist()) == {0.0}


def test_folding_into_bfloat16_keeps_small_steps_in_the_mean(tiny_model_dir):
    torch.manual_seed(0)
    policy = models.load(ModelSpec(base=str(tiny_model_dir), dtype="bfloat16", lora=LoraSpec(r=4)), trainable=True)
    layer = policy.trunk.layers[0].mlp.up_proj
    generator = torch.Generator().manual_seed(1)
    layer.lora_B["default"].weight.data.copy_(torch.randn(64, 4, generator=generator) * 1e-4)
    step = (layer.lora_B["default"].weight @ layer.lora_A["default"].weight * layer.scaling["default"]).detach()
    base = layer.base_layer.weight.float()
    nearest = ((base + step).to(torch.bfloat16).float() - base).detach()
    moved = torch.zeros_like(base)
    for seed in range(200):
        with copies.decoding_weights(policy, seed):
            moved += (layer.forward.args[0].float() - base).detach() / 200
    slope = lambda x: float((x * step).sum() / (step * step).sum())  # noqa: E731
    assert slope(nearest) < 0.7, "rounding to the nearest loses part of the adapter here"
    assert abs(slope(moved) - 1) < 0.1


def test_responses_that_may_grow_beyond_the_models_positions_are_refused(gpt2_dir: Path) -> None:
    model = models.load(ModelSpec(base=str(gpt2_dir)))
    sampling = Sampling(max_new_tokens=60)
    drawer = HF().open(model)
    assert len(sample(model, drawer, asked([[1, 20, 30, 40]]), sampling, seed=0)[0]) <= 60
    with pytest.raises(DataError, match=r"reads at most 64 tokens.* up to 65: lower `max_prompt_tokens`"):
        sample(model, drawer, asked([[1], [1, 20, 30, 40, 50]]), sampling, seed=0)


# -- requests of different kinds ---------------------------------------------------------------------------------------


def requests_of_all_kinds() -> list[DrawRequest]:
    settings: list[dict[str, Any]] = [
        {"max_new_tokens": 3}, {"max_new_tokens": 12}, {"max_new_tokens": 12, "min_new_tokens": 9}, {"max_new_tokens": 7, "min_new_tokens": 7},
        {"max_new_tokens": 12, "temperature": 0.0}, {"max_new_tokens": 9, "temperature": 2.0}, {"max_new_tokens": 12, "top_k": 5},
    ]  # fmt: skip
    return [
        DrawRequest(prompt, Sampling(**setting), seed, row)
        for row, (prompt, setting, seed) in enumerate(product(asked(PROMPTS), settings, range(6)))
    ]


def test_each_response_is_what_it_is_alone(model) -> None:
    """Whatever the other requests ask for: limits, temperatures, seeds."""
    requests = requests_of_all_kinds()
    with HF().open(model) as drawer:
        drawn = drawer.draw(requests)
        assert drawn[::7] == [drawer.draw([request])[0] for request in requests[::7]]
        assert drawn == drawer.draw(requests[::-1])[::-1]
    for request, each in zip(requests, drawn, strict=True):
        ended = each.token_ids[-1] in model.eos_ids
        assert each.finish == ("end" if ended else "length")
        assert not any(token in model.eos_ids for token in each.token_ids[:-1])
        assert request.sampling.min_new_tokens < len(each.token_ids) + (not ended)
        assert len(each.token_ids) == request.sampling.max_new_tokens or ended
    assert {each.finish for each in drawn} == {"end", "length"}


def test_responses_come_as_they_finish_and_requests_as_they_are_asked(policy) -> None:
    limits = [2, 12, 5]
    first, second = (
        [DrawRequest(prompt, Sampling(max_new_tokens=limit, min_new_tokens=limit), seed, row)
         for row, (prompt, limit) in enumerate(product(asked(PROMPTS), limits))]
        for seed in (0, 1)
    )  # fmt: skip
    for fold in (False, True):
        with HF(fold=fold).open(policy) as drawer:
            alone = drawer.draw([*first, *second])
            policy.train()
            drawing, given = drawer.drawing(), {}
            assert drawing.submit(first) == range(len(first))
            for number, response in drawing:
                assert torch.is_grad_enabled()
                assert policy.training
                given[number] = response
                if len(given) in (1, 2):
                    half = second[: len(second) // 2] if len(given) == 1 else second[len(second) // 2 :]
                    drawing.submit(half)
            policy.eval()
        assert [given[number] for number in range(len(alone))] == alone
        order = [len(given[number]) for number in given if number < len(first)]
        assert order == sorted(order), "short responses of a batch come before long ones"
        assert list(drawing) == []


def test_a_stream_has_the_tokens_of_the_response(policy) -> None:
    request = DrawRequest(asked(PROMPTS)[0], Sampling(max_new_tokens=12), 0, 0)
    for fold in (False, True):
        drawer = HF(fold=fold).open(policy)
        (drawn,) = drawer.draw([request])
        policy.train()
        tokens = drawer.stream(request)
        first = next(tokens)
        assert torch.is_grad_enabled()
        assert policy.training
        assert [first, *tokens] == drawn.token_ids
        policy.eval()


def test_a_stream_that_nobody_reads_on_ends(model) -> None:
    tokens = HF().open(model).stream(DrawRequest(asked(PROMPTS)[0], Sampling(max_new_tokens=200), 0, 0))
    next(tokens)
    tokens.close()
    assert list(tokens) == []


def test_responses_name_the_version_of_the_weights(model, policy) -> None:
    drawer = HF().open(model)
    request = DrawRequest(asked(PROMPTS)[0], Sampling(max_new_tokens=2), 0, 0)
    assert drawer.draw([request])[0].version == 0
    drawer.take(model, 7)
    assert drawer.draw([request])[0].version == 7
    with pytest.raises(ValueError, match="the model that it was opened with"):
        drawer.take(policy, 8)
    assert drawer.draw([]) == []
