"""The engine `paged`: responses of the model as it is, and nothing that stays behind them."""

from __future__ import annotations

import gc
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from model_helpers import LORA, stir, tiny
from talks import Talk

from fgrl import models, rollouts
from fgrl.base import stops
from fgrl.base.errors import DataError, EngineFailed, UsageError
from fgrl.experiments.stages.rl import RolloutSettings
from fgrl.kinds import Drawer, DrawRequest, Engine
from fgrl.kinds.specs import Sampling
from fgrl.registry import build
from fgrl.rollouts.conversing import Conversing
from fgrl.types import DrawnResponse, Prompt, Sample

PROMPTS = [[1, 20 + row, 30, 40, 50] * (1 + row % 3) for row in range(6)]


def requests(prompts: Sequence[Sequence[int]] = PROMPTS, *, seed: int = 7, **sampling: Any) -> list[DrawRequest]:
    settings = Sampling(**{"max_new_tokens": 12, **sampling})
    return [DrawRequest(Prompt(tuple(ids)), settings, seed, row) for row, ids in enumerate(prompts)]


def opened(model: models.LanguageModel, **settings: Any) -> Drawer:
    return build(Engine, {"name": "paged", **settings}).open(model)


def far(
    model: models.LanguageModel, asked: Sequence[DrawRequest], drawn: Sequence[DrawnResponse], *, mean: bool = False
) -> float:
    """The largest (or mean) difference between the log-probabilities of an engine and those of the model."""
    tokens = rollouts.pad(
        [list(one.prompt.token_ids) for one in asked], [each.token_ids for each in drawn], model.pad_id, model.eos_ids
    )
    with torch.no_grad():
        own = model.score(tokens, temperature=asked[0].sampling.temperature or 1.0).logp
    assert [len(each.token_logp or ()) for each in drawn] == tokens.mask.sum(1).tolist()
    given = torch.tensor([value for each in drawn for value in each.token_logp or ()])
    differences = (given - own[tokens.mask]).abs()
    return float(differences.mean() if mean else differences.max())


@pytest.fixture(scope="module")
def model(tiny_model_dir: Path) -> models.LanguageModel:
    return tiny(tiny_model_dir)


@pytest.fixture(scope="module")
def drawer(model: models.LanguageModel) -> Drawer:
    return opened(model)


# -- what is drawn -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sampling", [{}, {"temperature": 0.6}, {"temperature": 0.0}, {"batch_size": 2}, {"max_new_tokens": 70}], ids=str
)
def test_log_probabilities_are_those_of_the_model(
    sampling: dict[str, Any], model: models.LanguageModel, drawer: Drawer
) -> None:
    asked = requests(**sampling)
    drawn = drawer.draw(asked)
    assert far(model, asked, drawn) < 1e-5
    for one, each in zip(asked, drawn, strict=True):
        assert each.finish == ("end" if each.token_ids[-1] in model.eos_ids else "length")
        assert not model.eos_ids & set(each.token_ids[:-1])
        assert each.finish == "end" or len(each.token_ids) == one.sampling.max_new_tokens
    if sampling == {"temperature": 0.0}:
        exact = build(Engine, "hf").open(model).draw(asked)
        assert [each.token_ids for each in drawn] == [each.token_ids for each in exact]


def test_truncated_distributions(model: models.LanguageModel, drawer: Drawer) -> None:
    """A token is one of the two most probable, with its share of what those two have."""
    asked = requests(top_k=2)
    for one, each in zip(asked, drawer.draw(asked), strict=True):
        ids = [*one.prompt.token_ids, *each.token_ids]
        with torch.no_grad():
            logits = model.transformer(torch.tensor([ids])).logits[0, len(one.prompt) - 1 : -1]
        best = logits.topk(2).values.log_softmax(1)
        given = torch.tensor(each.token_logp)
        assert float((given[:, None] - best).abs().min(1).values.max()) < 1e-5


def test_the_same_requests_give_the_same_responses_and_another_seed_others(drawer: Drawer) -> None:
    one, again, other = (drawer.draw(requests(seed=seed)) for seed in (7, 7, 8))
    assert [each.token_ids for each in one] == [each.token_ids for each in again]
    assert [each.token_ids for each in one] != [each.token_ids for each in other]


def test_a_response_is_complete_behind_a_stop_string(model: models.LanguageModel, drawer: Drawer) -> None:
    asked = requests(stop=["e", "a"], max_new_tokens=40)
    drawn = drawer.draw(asked)
    early = [each for each in drawn if each.finish == "early"]
    assert early
    for each in early:
        texts = [
            rollouts.decode(model.tokenizer, each.token_ids[:end])
            for end in (len(each.token_ids) - 1, len(each.token_ids))
        ]
        assert ["e" in text or "a" in text for text in texts] == [False, True]
    assert far(model, asked, drawn) < 1e-5


def test_adapters_and_new_weights_in_place(tiny_model_dir: Path) -> None:
    model = tiny(tiny_model_dir, lora=LORA, trainable=True).train()
    stir(model, 0.3)
    found = []
    with opened(model) as drawer:
        for version in (3, 4):
            drawer.take(model, version)
            asked = requests()
            drawn = drawer.draw(asked)
            assert {each.version for each in drawn} == {version}
            assert model.training
            with models.evaluating(model):
                assert far(model, asked, drawn) < 1e-5
                with model.adapter_off():
                    assert far(model, asked, drawn) > 0.01
            found.append(drawn)
            with torch.no_grad():
                for parameter in model.parameters():
                    if parameter.requires_grad:
                        parameter.mul_(1.5)
    assert found[0] != found[1]


def test_float32_weights_are_rounded_where_the_training_multiplies_in_bfloat16(tiny_model_dir: Path) -> None:
    model = tiny(tiny_model_dir, lora=LORA, trainable=True)
    stir(model, 0.3)
    own = {name: (parameter, parameter.detach().clone()) for name, parameter in model.named_parameters()}
    seen: set[torch.dtype] = set()
    model.trunk.register_forward_pre_hook(lambda trunk, _: seen.update(each.dtype for each in trunk.parameters()))
    asked = requests()
    with torch.autocast("cpu", torch.bfloat16):
        drawer = opened(model)
        drawer.draw(asked[:1])
        seen.clear()
        drawn = drawer.draw(asked)
        assert seen == {torch.bfloat16}
        assert 1e-5 < far(model, asked, drawn, mean=True) < 0.1
    now = dict(model.named_parameters())
    assert all(now[name] is parameter and torch.equal(parameter, copy) for name, (parameter, copy) in own.items())
    seen.clear()
    exact = drawer.draw(asked)
    assert seen == {torch.float32}
    assert far(model, asked, exact) < 1e-5


# -- as they come ------------------------------------------------------------------------------------------------------


def test_requests_that_come_later(model: models.LanguageModel, drawer: Drawer) -> None:
    """Other temperatures, and responses that are longer than those before, which the cache was made for."""
    drawing = drawer.drawing()
    asked = [*requests(PROMPTS[:2]), *requests(PROMPTS[2:4], temperature=0.5)]
    drawing.submit(asked)
    drawn = {}
    for number, response in drawing:
        drawn[number] = response
        if len(drawn) == 1:
            more = [*requests(PROMPTS[4:5]), *requests(PROMPTS[5:], max_new_tokens=100)]
            assert drawing.submit(more) == range(4, 6)
            asked += more
    assert sorted(drawn) == list(range(6))
    for number, one in enumerate(asked):
        assert far(model, [one], [drawn[number]]) < 1e-5
    drawing.submit(asked[:1])
    assert [number for number, _ in drawing] == [6]


def test_conversations(model: models.LanguageModel, drawer: Drawer) -> None:
    samples = [Sample(id=str(number), prompt=f"Say {number}") for number in range(3)]
    sampling = Sampling(max_new_tokens=160, max_prompt_tokens=64)
    talk = Talk(max_turn_tokens=8)
    asked = rollouts.requests(model.tokenizer, samples, sampling, 2, seed=0, converses=True)
    drawn = Conversing(drawer, talk, model).draw(asked)
    assert len(drawn) == 6
    for each in drawn:
        assert len(each.turns) == 3
        assert len(each.token_logp or ()) == len(each.token_ids)


# -- what stays --------------------------------------------------------------------------------------------------------


def tensors() -> list[torch.Tensor]:
    gc.collect()
    return [each for each in gc.get_objects() if isinstance(each, torch.Tensor)]


def test_the_cache_has_a_bound_and_is_freed(tiny_model_dir: Path) -> None:
    """In a cache for two of six responses some are read again, and none changes its law."""
    model = tiny(tiny_model_dir).train()
    page = 2 * 2 * 2 * 8 * 4 * 32  # keys and values, layers, heads, numbers of four bytes, tokens
    bound = 8 * page
    passes, largest = [], []

    def look(*_given: Any) -> None:
        passes.append(None)
        if len(passes) % 20 == 0:
            largest.append(
                max(
                    each.nbytes
                    for each in gc.get_objects()
                    if isinstance(each, torch.Tensor) and each.dtype == torch.uint8
                )
            )

    drawer = opened(model, cache_gib=bound / 2**30)
    asked = requests(max_new_tokens=70)
    drawer.draw(asked)
    state, before = (
        torch.get_rng_state(),
        (len(tensors()), threading.active_count(), model.transformer.config._attn_implementation),
    )
    hook = model.trunk.register_forward_pre_hook(look)
    drawn = drawer.draw(asked)
    hook.remove()
    assert page < max(largest) <= bound
    with models.evaluating(model):
        assert far(model, asked, drawn) < 1e-5
    assert torch.equal(torch.get_rng_state(), state)
    del drawn
    assert (len(tensors()), threading.active_count(), model.transformer.config._attn_implementation) == before
    assert before[2] == "sdpa"
    assert all(part.training for part in model.modules())


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_twenty_updates_keep_nothing(attention: str, tiny_model_dir: Path) -> None:
    model = tiny(tiny_model_dir, lora=LORA, trainable=True, attention=attention)
    optimizer = torch.optim.SGD([parameter for parameter in model.parameters() if parameter.requires_grad], lr=0.1)
    drawer, kept, last = opened(model), [], 19 if attention == "sdpa" else 2
    for number in range(last + 1):
        drawer.take(model, number)
        asked = requests(PROMPTS[:2], seed=number, max_new_tokens=3)
        drawn = drawer.draw(asked)
        drawer.rest()
        assert far(model, asked, drawn) < 1e-5
        assert model.transformer.config._attn_implementation == attention
        tokens = rollouts.pad(PROMPTS[:2], [each.token_ids for each in drawn], model.pad_id, model.eos_ids)
        (-model.score(tokens).logp.sum()).backward()
        optimizer.step()
        optimizer.zero_grad()
        del tokens
        if number in (1, last):
            kept.append((len(tensors()), sum(each.nbytes for each in tensors()), threading.active_count()))
    assert kept[0] == kept[1]


def test_a_drawing_that_is_given_up_is_ended_by_the_drawer(tiny_model_dir: Path) -> None:
    model = tiny(tiny_model_dir, attention="eager")
    drawer = opened(model)
    drawer.draw(requests())
    before = threading.active_count()
    for end in (drawer.rest, drawer.close):
        drawing = drawer.drawing()
        drawing.submit(requests(max_new_tokens=2) + requests(max_new_tokens=500))
        responses = iter(drawing)
        next(responses)
        assert threading.active_count() == before + 1
        assert model.transformer.config._attn_implementation == "paged|eager"
        end()
        assert threading.active_count() == before
        assert model.transformer.config._attn_implementation == "eager"
    assert len(drawer.draw(requests())) == len(PROMPTS)


def test_a_fault_and_a_stop_end_the_thread(tiny_model_dir: Path) -> None:
    model = tiny(tiny_model_dir, attention="eager")
    drawer = opened(model)
    drawer.draw(requests())
    before = threading.active_count()

    def fault(*_given: Any) -> None:
        raise RuntimeError("a fault of the hardware")

    hook = model.trunk.register_forward_pre_hook(fault)
    with pytest.raises(EngineFailed, match="a fault of the hardware"):
        drawer.draw(requests())
    hook.remove()
    main = threading.get_ident()
    hook = model.trunk.register_forward_pre_hook(lambda *_given: stops.ask(main))
    try:
        with pytest.raises(KeyboardInterrupt):
            drawer.draw(requests())
    finally:
        hook.remove()
        stops.forget(main)
    assert threading.active_count() == before
    assert model.transformer.config._attn_implementation == "eager"


# -- what is refused ---------------------------------------------------------------------------------------------------


def test_a_least_number_of_tokens_is_refused(drawer: Drawer) -> None:
    with pytest.raises(UsageError, match=r"min_new_tokens: .* hf"):
        drawer.draw(requests(min_new_tokens=2))
    with pytest.raises(ValueError, match=r"sampling\.min_new_tokens: .* hf"):
        RolloutSettings(
            batch_size=4, sampling=Sampling(max_new_tokens=4, min_new_tokens=2), engine=build(Engine, "paged")
        )


def test_a_part_of_the_weights_is_refused(tiny_model_dir: Path) -> None:
    model = tiny(tiny_model_dir)
    model.sharded = True
    with pytest.raises(UsageError, match="whole model"):
        opened(model).draw(requests())


def test_a_cache_without_room_for_one_response_is_refused(tiny_model_dir: Path) -> None:
    drawer = opened(tiny(tiny_model_dir), cache_gib=1e-6)
    with pytest.raises(UsageError, match="cache_gib: "):
        drawer.draw(requests())


OTHERS: dict[str, dict[str, Any]] = {
    "lfm2": {
        "layer_types": ["conv", "full_attention"],
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 64,
    },
    "bloom": {"n_layer": 2, "n_head": 4},
}
"""Convolutions, and biases of the distance that continuous batching leaves out without a word."""


@pytest.mark.parametrize("name", OTHERS)
def test_models_that_it_would_not_draw_from_as_they_are(name: str, tiny_model_dir: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    own = transformers.AutoConfig.from_pretrained(tiny_model_dir)
    ids = {key: getattr(own, key) for key in ("bos_token_id", "eos_token_id", "pad_token_id", "vocab_size")}
    config = transformers.AutoConfig.for_model(name, hidden_size=32, initializer_range=0.2, **OTHERS[name], **ids)
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / name)
    for file in tiny_model_dir.glob("*token*"):
        shutil.copy(file, tmp_path / name)
    model = tiny(tmp_path / name, attention="eager")
    with pytest.raises(DataError, match=f"cannot draw from a {name} model .* hf"):
        opened(model).draw(requests())
    assert model.transformer.config._attn_implementation == "eager"
