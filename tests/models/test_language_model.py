"""What the model says of responses, against transformers' own logits and hidden states."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from model_helpers import LORA, PROMPTS, RESPONSES, more_padding, stir, tiny, tokens

from fgrl import models
from fgrl.base.errors import DataError
from fgrl.models import language_model


@pytest.fixture(scope="module")
def gpt2_dir(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random GPT-2: absolute positions, dropout."""
    from transformers import AutoTokenizer, GPT2Config, GPT2LMHeadModel

    tokenizer = AutoTokenizer.from_pretrained(tiny_model_dir)
    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=len(tokenizer),
        n_embd=32,
        n_layer=2,
        n_head=4,
        n_positions=128,
        initializer_range=0.2,
        eos_token_id=2,
        bos_token_id=1,
    )
    folder = tmp_path_factory.mktemp("models") / "tiny-gpt2"
    GPT2LMHeadModel(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(params=["rotary", "absolute"])
def either_dir(request, tiny_model_dir, gpt2_dir) -> Path:
    return tiny_model_dir if request.param == "rotary" else gpt2_dir


def row_by_row(folder: Path) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Log-probability and entropy of each response by transformers alone: one row at a time, no padding."""
    from transformers import AutoModelForCausalLM

    net = AutoModelForCausalLM.from_pretrained(folder).eval()
    rows = []
    for prompt, response in zip(PROMPTS, RESPONSES, strict=True):
        with torch.no_grad():
            logs = net(torch.tensor([prompt + response])).logits[0].log_softmax(1)[len(prompt) - 1 : -1]
        rows.append((logs.gather(1, torch.tensor(response)[:, None]).squeeze(1), -(logs.exp() * logs).sum(1)))
    return rows


def test_scores_are_those_of_the_distribution_each_token_was_drawn_from(either_dir):
    scores = tiny(either_dir).score(tokens(), entropy=True)
    for row, (logp, entropy) in enumerate(row_by_row(either_dir)):
        torch.testing.assert_close(scores.logp[row, : len(logp)], logp, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(scores.entropy[row, : len(logp)], entropy, atol=1e-5, rtol=1e-5)
        assert not scores.logp[row, len(logp) :].any()
        assert not scores.entropy[row, len(logp) :].any()


@pytest.mark.parametrize(("left", "right"), [(5, 0), (0, 4), (3, 2)])
def test_padding_changes_nothing(either_dir, left, right):
    model = tiny(either_dir)
    plain, batch = tokens(), more_padding(tokens(), left, right, pad_id=9)
    width = plain.mask.shape[1]
    torch.testing.assert_close(model.score(batch).logp[:, :width], model.score(plain).logp, atol=1e-5, rtol=1e-5)
    critic = tiny(either_dir, head="scalar")
    for method in (critic.values, critic.rewards):
        torch.testing.assert_close(method(batch)[:, :width], method(plain), atol=1e-5, rtol=1e-5)


def test_what_is_written_in_padding_changes_nothing(either_dir):
    model, plain, other = tiny(either_dir), tokens(), tokens()
    other.prompt_ids[~other.prompt_mask] = 33
    other.response_ids[~other.mask] = 44
    assert torch.equal(model.score(other).logp, model.score(plain).logp)


def test_values_are_read_before_and_rewards_at_a_token(tiny_model_dir):
    from transformers import AutoModel

    model = tiny(tiny_model_dir, head="scalar")
    net = AutoModel.from_pretrained(tiny_model_dir).eval()
    values, rewards = model.values(tokens()), model.rewards(tokens())
    for row, (prompt, response) in enumerate(zip(PROMPTS, RESPONSES, strict=True)):
        with torch.no_grad():
            numbers = net(torch.tensor([prompt + response])).last_hidden_state[0] @ model.number.weight
        end = len(prompt) + len(response)
        torch.testing.assert_close(
            values[row, : len(response)], numbers[len(prompt) - 1 : end - 1], atol=1e-5, rtol=1e-4
        )
        torch.testing.assert_close(rewards[row, : len(response)], numbers[len(prompt) : end], atol=1e-5, rtol=1e-4)


def test_a_value_does_not_see_its_token_and_a_reward_does(tiny_model_dir):
    model, batch, other = tiny(tiny_model_dir, head="scalar"), tokens(), tokens()
    other.response_ids[0, 2] = 99
    changed = model.values(batch)[0] != model.values(other)[0]
    assert changed.tolist() == [False, False, False, True, False, False]
    changed = model.rewards(batch)[0] != model.rewards(other)[0]
    assert changed.tolist() == [False, False, True, True, False, False]


def test_temperature_divides_the_logits(tiny_model_dir):
    model = tiny(tiny_model_dir)
    states = model.states(tokens())
    logits = model.logits(states)
    labels = tokens().response_ids[tokens().mask]
    got = model.score(tokens(), temperature=0.5, entropy=True, entropy_temperature=1.0)
    torch.testing.assert_close(
        got.logp[tokens().mask],
        (logits / 0.5).log_softmax(1).gather(1, labels[:, None]).squeeze(1),
        atol=1e-5,
        rtol=1e-5,
    )
    torch.testing.assert_close(got.entropy, model.score(tokens(), entropy=True).entropy)


def test_every_prompt_needs_a_token(tiny_model_dir):
    with pytest.raises(ValueError, match="every prompt needs a token"):
        tiny(tiny_model_dir).score(tokens([[], [1]], [[5], [6]]))


def test_a_head_refuses_what_it_cannot_say(tiny_model_dir):
    with pytest.raises(TypeError, match="load it with head: scalar"):
        tiny(tiny_model_dir).values(tokens())
    with pytest.raises(TypeError, match="scalar head"):
        tiny(tiny_model_dir, head="scalar").score(tokens())


def test_the_token_head_has_a_bias_and_the_scalar_head_none(tiny_model_dir):
    scalar, token = tiny(tiny_model_dir, head="scalar"), tiny(tiny_model_dir, head="token")
    assert (scalar.head, scalar.number.bias) == ("scalar", None)
    assert (token.head, token.number.bias.item()) == ("token", 0.0)
    assert scalar.number.weight.dtype == torch.float32


# -- adapters ----------------------------------------------------------------------------------------------------------


def test_switching_the_adapter_off_gives_the_base_back_bit_by_bit(tiny_model_dir):
    base, policy = tiny(tiny_model_dir), tiny(tiny_model_dir, lora=LORA, trainable=True)
    stir(policy)
    with torch.no_grad():
        wanted, adapted = base.score(tokens()).logp, policy.score(tokens()).logp
        assert torch.equal(policy.score(tokens(), adapter=False).logp, wanted)
        assert torch.equal(policy.score(tokens()).logp, adapted)
    assert (adapted - wanted).abs().max() > 0.01


@pytest.mark.parametrize("trainable", [True, False])
def test_switching_the_adapter_off_leaves_what_is_trained_as_it_was(tiny_model_dir, tmp_path, trainable):
    model = tiny(tiny_model_dir, lora=LORA, trainable=True)
    if not trainable:
        models.save(model, tmp_path / "adapter", {})
        model = tiny(tmp_path / "adapter")
    before = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    with pytest.raises(RuntimeError, match="inside"), model.adapter_off():
        raise RuntimeError("inside")
    assert {name for name, parameter in model.named_parameters() if parameter.requires_grad} == before
    assert bool(before) == trainable
    assert all("lora_" in name for name in before)


def test_without_an_adapter_there_is_nothing_to_switch_off(tiny_model_dir):
    with pytest.raises(ValueError, match="load the reference separately"):
        tiny(tiny_model_dir).score(tokens(), adapter=False)


def test_the_ratio_is_one_in_evaluation_mode_with_lora_dropout_on(tiny_model_dir):
    policy = tiny(tiny_model_dir, lora=LORA, trainable=True)
    stir(policy)
    with torch.no_grad():
        old = policy.score(tokens()).logp
    assert (policy.score(tokens()).logp - old).abs().max() < 1e-6
    policy.train()
    assert (policy.score(tokens()).logp - old).abs().max() > 1e-3
    policy.eval()
    assert (policy.score(tokens()).logp - old).abs().max() < 1e-6


def test_chunked_kl_against_the_adapter_off_is_the_exact_kl(tiny_model_dir):
    policy, base = tiny(tiny_model_dir, lora=LORA, trainable=True), tiny(tiny_model_dir)
    stir(policy)
    batch = tokens()

    def kl(reference, **options):
        states, others = policy.states(batch), reference.states(batch, **options)
        return models.unflatten(models.chunked_kl(states, policy.logits, others, reference.logits), batch.mask)

    with torch.no_grad():
        p, q = (model.logits(model.states(batch)).log_softmax(1) for model in (policy, base))
        adapter_off = kl(policy, adapter=False)
        torch.testing.assert_close(adapter_off[batch.mask], (p.exp() * (p - q)).sum(1), atol=1e-5, rtol=1e-4)
        assert torch.equal(adapter_off, kl(base))
    assert not adapter_off[~batch.mask].any()


def test_adapting_the_last_blocks_leaves_the_first_without_gradient(either_dir):
    lora = LORA.model_copy(update={"last_blocks": 1})
    model = tiny(either_dir, lora=lora, trainable=True)
    whole = tiny(either_dir, lora=LORA, trainable=True)
    adapted = [name for name, parameter in model.net.named_parameters() if parameter.requires_grad]
    everywhere = [name for name, parameter in whole.net.named_parameters() if parameter.requires_grad]
    assert adapted == [name for name in everywhere if ".1." in name]
    with pytest.raises(DataError, match="last_blocks is 3, but the model has 2"):
        tiny(either_dir, lora=LORA.model_copy(update={"last_blocks": 3}), trainable=True)


def test_an_adapted_output_layer_scores_chunk_by_chunk_too(tiny_model_dir):
    lora = LORA.model_copy(update={"targets": ["q_proj", "lm_head"]})
    model = tiny(tiny_model_dir, lora=lora, trainable=True)
    stir(model)
    labels = tokens().response_ids[tokens().mask]
    logs = model.transformer.get_output_embeddings()(model.states(tokens())).log_softmax(1)
    got = model.score(tokens(), entropy=True, chunk=3)
    torch.testing.assert_close(
        got.logp[tokens().mask], logs.gather(1, labels[:, None]).squeeze(1), atol=1e-5, rtol=1e-5
    )
    got.logp.sum().backward()
    trained = {
        name for name, parameter in model.named_parameters() if parameter.grad is not None and parameter.grad.any()
    }
    assert any("lm_head" in name for name in trained)


# -- types and memory --------------------------------------------------------------------------------------------------


def gradients(model: models.LanguageModel) -> dict[str, torch.Tensor]:
    model.zero_grad()
    scores = model.score(tokens(), entropy=True, chunk=4)
    (scores.logp.sum() + scores.entropy.sum()).backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


@pytest.mark.parametrize("lora", [LORA, None])
@pytest.mark.parametrize("training", [True, False])
def test_checkpointing_gives_the_same_gradients_in_both_modes(either_dir, lora, training):
    plain = tiny(either_dir, lora=lora, trainable=True)
    saving = tiny(either_dir, lora=lora, trainable=True, gradient_checkpointing=True)
    wanted = {}
    for model in (plain, saving):
        stir(model)
        model.load_state_dict(plain.state_dict())
        model.train(training)
        torch.manual_seed(5)  # dropout, in training mode
        wanted[model] = gradients(model)
    assert wanted[plain].keys() == wanted[saving].keys()
    for name, gradient in wanted[plain].items():
        torch.testing.assert_close(wanted[saving][name], gradient, atol=1e-5, rtol=1e-4)
    assert any(gradient.any() for gradient in wanted[plain].values())


def test_checkpointing_runs_every_layer_again(tiny_model_dir):
    model = tiny(tiny_model_dir, trainable=True, gradient_checkpointing=True)
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    for layer in model.trunk.layers:
        layer.mlp.register_forward_pre_hook(count)
    loss = model.score(tokens()).logp.sum()
    forward = calls
    loss.backward()
    assert (forward, calls) == (2, 4)
    with torch.no_grad():
        model.score(tokens())
    assert calls == 6


def test_the_gradient_of_all_weights_is_that_of_the_whole_logits(tiny_model_dir):
    model = tiny(tiny_model_dir, trainable=True)
    got = gradients(model)
    model.zero_grad()
    logs = model.logits(model.states(tokens())).log_softmax(1)
    labels = tokens().response_ids[tokens().mask]
    (logs.gather(1, labels[:, None]).sum() - (logs.exp() * logs).sum()).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(got[name], parameter.grad, atol=1e-4, rtol=1e-3)


def test_bfloat16_autocast_over_float32_weights(tiny_model_dir):
    model = tiny(tiny_model_dir, trainable=True)
    exact = model.score(tokens(), entropy=True)
    with torch.autocast("cpu", torch.bfloat16):
        rough = model.score(tokens(), entropy=True)
        loss = rough.logp.mean()
    loss.backward()
    assert rough.logp.dtype == rough.entropy.dtype == torch.float32
    assert 0 < (rough.logp - exact.logp).abs().max() < 0.3
    assert all(parameter.grad.dtype == torch.float32 for parameter in model.parameters())


def test_bfloat16_weights_keep_adapters_and_heads_in_float32(tiny_model_dir):
    for head in ("lm", "scalar"):
        model = tiny(tiny_model_dir, head=head, dtype="bfloat16", lora=LORA, trainable=True)
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        frozen = [parameter for parameter in model.parameters() if not parameter.requires_grad]
        assert {parameter.dtype for parameter in trained} == {torch.float32}
        assert {parameter.dtype for parameter in frozen} == {torch.bfloat16}
        numbers = model.score(tokens()).logp if head == "lm" else model.values(tokens())
        assert numbers.dtype == torch.float32
        numbers.mean().backward()
        assert all(parameter.grad is not None for parameter in trained)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_adapters_take_bfloat16_as_it_is_and_compute_the_same_bits(tiny_model_dir, checkpointing):
    """Against peft's own way, which turns the input into float32 and leaves it to autocast to turn it back."""
    found = []
    for own in (True, False):
        model = tiny(tiny_model_dir, dtype="bfloat16", lora=LORA, trainable=True, gradient_checkpointing=checkpointing)
        stir(model)
        taken = []
        for name, layer in model.net.named_modules():
            if hasattr(layer, "_cast_input_dtype") and not own:
                del layer._cast_input_dtype
            if ".lora_A." in name:
                layer.register_forward_pre_hook(lambda _layer, given, seen=taken: seen.append(given[0].dtype))
        found.append((model.score(tokens()).logp, gradients(model)))
        assert set(taken) == {torch.bfloat16 if own else torch.float32}
        assert len(taken) == 14 * (3 if checkpointing else 2)
    (logp, mine), (wanted, theirs) = found
    assert torch.equal(logp, wanted)
    assert mine.keys() == theirs.keys()
    assert all(torch.equal(mine[name], gradient) for name, gradient in theirs.items())


def test_without_autocast_adapters_still_turn_their_input_into_their_own_type(tiny_model_dir):
    model = tiny(tiny_model_dir, dtype="bfloat16", lora=LORA, trainable=True)
    layer = model.trunk.layers[0].mlp.up_proj
    assert layer(torch.ones(1, layer.in_features, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_actor_and_critic_have_a_group_each(tiny_model_dir):
    actor, critic = tiny(tiny_model_dir, lora=LORA, trainable=True), tiny(tiny_model_dir, head="scalar", trainable=True)
    both = models.ActorCritic(actor, critic)
    groups = both.parameter_groups(1e-3, 1e-2)
    assert [(group["name"], group["lr"]) for group in groups] == [("actor", 1e-3), ("critic", 1e-2)]
    counted = sum(parameter.numel() for group in groups for parameter in group["params"])
    assert counted == sum(parameter.numel() for parameter in both.parameters() if parameter.requires_grad)
    decayed = both.parameter_groups(1e-3, 1e-2, weight_decay=0.1)
    assert [group["name"] for group in decayed] == ["actor", "critic", "critic_no_decay"]
    assert all(parameter.ndim == 1 for parameter in decayed[2]["params"])
    assert decayed[2]["weight_decay"] == 0.0
    with pytest.raises(ValueError, match="nothing to train in the actor"):
        models.ActorCritic(tiny(tiny_model_dir)).parameter_groups(1e-3)
    with pytest.raises(ValueError, match="learning rate"):
        both.parameter_groups(1e-3)


def used_attention(model) -> list[str]:
    seen = []
    trunk = model.trunk
    trunk.register_forward_pre_hook(lambda module, _inputs: seen.append(module.config._attn_implementation))
    return seen


def test_short_passes_multiply_attention_out(tiny_model_dir, monkeypatch):
    """The same numbers and gradients as the fused kernel's, which is left as it was."""
    model = tiny(tiny_model_dir, lora=LORA, trainable=True)
    stir(model)
    seen, found = used_attention(model), []
    for few in (language_model.FEW_SCORES, 0):
        monkeypatch.setattr(language_model, "FEW_SCORES", few)
        model.zero_grad()
        logp = model.score(tokens()).logp
        logp.sum().backward()
        found.append((logp.detach(), {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}))
    assert seen == ["eager", "sdpa"]
    assert model.trunk.config._attn_implementation == "sdpa"
    (plain, gradients), (fused, others) = found
    torch.testing.assert_close(plain, fused, atol=1e-5, rtol=1e-5)
    assert gradients.keys() == others.keys()
    for name, gradient in gradients.items():
        torch.testing.assert_close(gradient, others[name], atol=2e-4, rtol=1e-4, msg=name)


def test_attention_stays_as_the_recipe_wants_it(tiny_model_dir, monkeypatch):
    checkpointed = tiny(tiny_model_dir, trainable=True, gradient_checkpointing=True)
    seen = used_attention(checkpointed)
    checkpointed.score(tokens()).logp.sum().backward()  # what is computed again has to be the same
    assert set(seen) == {"sdpa"}
    eager = tiny(tiny_model_dir, attention="eager")
    seen = used_attention(eager)
    monkeypatch.setattr(language_model, "FEW_SCORES", 0)
    eager.score(tokens())
    assert seen == ["eager"]


def test_attention_that_is_not_installed_is_replaced_by_that_of_torch(tiny_model_dir, monkeypatch):
    monkeypatch.setattr("fgrl.kinds.specs.find_spec", lambda _name: None)
    asked = tiny(tiny_model_dir, attention="flash_attention_2")
    assert asked.trunk.config._attn_implementation == "sdpa"


def test_more_tokens_than_the_model_has_positions_are_refused(either_dir):
    """Rotary angles continue beyond them without a word, and absolute positions end in an IndexError."""
    model = tiny(either_dir)
    limit = model.max_tokens
    assert limit == (2048 if "llama" in either_dir.name else 128)
    full = tokens([[5] * (limit - 2), [5]], [[7, 2], [7] * 9])
    with torch.no_grad():
        assert model.score(full).logp.isfinite().all(), "padding does not count"
        with pytest.raises(
            DataError, match=rf"reads at most {limit:,} tokens, and a prompt with.* up to {limit + 1:,}: lower"
        ):
            model.score(tokens([[5] * (limit - 1)], [[7, 2]]))
        with pytest.raises(DataError, match="reads at most"):
            tiny(either_dir, head="scalar").rewards(tokens([[5] * limit], [[7, 2]]))


@pytest.mark.parametrize(
    ("rope", "wanted"),
    [
        (None, 100),
        ({"rope_type": "default"}, 100),
        ({"rope_type": "linear", "factor": 4.0}, 400),
        ({"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 25}, 100),
        ({"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 8}, 100),
    ],
)
def test_scaled_rotary_embeddings_have_more_positions(rope, wanted):
    config = SimpleNamespace(max_position_embeddings=100, rope_parameters=rope)
    assert language_model.longest_input(config) == wanted
    assert language_model.longest_input(SimpleNamespace()) is None
