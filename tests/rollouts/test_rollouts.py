"""Encoding, offsets, padding, and what `collect` fills."""

from __future__ import annotations

import copy
from dataclasses import fields

import pytest
import torch
from conftest import train_tokenizer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fgrl import models, rollouts
from fgrl.base.errors import DataError
from fgrl.components.engines.hf import HF
from fgrl.kinds.specs import LoraSpec, ModelSpec, Sampling
from fgrl.types import Message, Rollout, Sample


def metaspace_tokenizer():
    """A sentencepiece-like tokenizer: words start with a mark, the first mark is dropped when decoding, bytes as a last resort."""
    from tokenizers import Tokenizer, decoders, models, normalizers
    from transformers import PreTrainedTokenizerFast

    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces += ["▁", "▁the", "▁sea", "s", "e", "a", "t", "h", ",", "▁a", "▁and", "é"]
    bpe = models.BPE(
        vocab={piece: index for index, piece in enumerate(pieces)},
        merges=[],
        unk_token="<unk>",
        fuse_unk=True,
        byte_fallback=True,
    )
    tokenizer = Tokenizer(bpe)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<s>", eos_token="</s>")


TOKENIZERS = {"bytes": train_tokenizer(), "metaspace": metaspace_tokenizer()}


@pytest.fixture(scope="module")
def model(tiny_model_dir) -> models.LanguageModel:
    return models.load(ModelSpec(base=str(tiny_model_dir)))


@pytest.fixture(scope="module")
def policy(tiny_model_dir) -> models.LanguageModel:
    """A LoRA policy whose adapter does something."""
    torch.manual_seed(0)
    policy = models.load(ModelSpec(base=str(tiny_model_dir), lora=LoraSpec(r=4)), trainable=True)
    generator = torch.Generator().manual_seed(1)
    for name, parameter in policy.net.named_parameters():
        if "lora_B" in name:
            parameter.data.copy_(torch.randn(parameter.shape, generator=generator) * 0.2)
    return policy


# -- prompts -----------------------------------------------------------------------------------------------------------

BODY = "{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}\n{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"
TEMPLATES = {
    "writes one": "{{ bos_token }}" + BODY,
    "writes none": BODY,
    "bos opens every turn": BODY.replace("[{{", "<s>[{{").replace("[assistant]", "<s>[assistant]"),
}


def with_bos(adds: bool, template: str | None):
    """A byte-level tokenizer that adds a beginning-of-sequence token to what it encodes, or does not."""
    from tokenizers.processors import TemplateProcessing

    tokenizer = train_tokenizer()
    tokenizer.chat_template = template
    if adds:
        tokenizer.backend_tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return tokenizer


@pytest.mark.parametrize("adds", [True, False])
@pytest.mark.parametrize("template", list(TEMPLATES))
def test_a_prompt_begins_with_one_bos_and_never_with_two(template, adds):
    tokenizer = with_bos(adds, TEMPLATES[template])
    ids = list(rollouts.encode_prompt(tokenizer, "the sea").token_ids)
    assert ids[:2].count(1) == (0 if template == "writes none" and not adds else 1)
    assert tokenizer.decode(ids).endswith("[assistant]")


def test_two_bos_are_refused():
    doubled = with_bos(False, "{{ bos_token }}{{ bos_token }}" + BODY)
    with pytest.raises(DataError, match="starts with two '<s>'"):
        rollouts.encode_prompt(doubled, "the sea")
    with pytest.raises(DataError, match="starts with two '<s>'"):
        rollouts.encode_prompt(with_bos(True, None), "<s>the sea")


def test_text_is_one_user_turn_of_a_chat():
    tokenizer = train_tokenizer()
    turn = Message(role="user", content="the sea")
    prompt = rollouts.encode_prompt(tokenizer, "the sea")
    assert prompt == rollouts.encode_prompt(tokenizer, [turn])
    assert (prompt.turns, prompt.template, prompt.lost) == ([turn], tokenizer.chat_template, 0)
    assert tokenizer.decode(prompt.token_ids) == "<s><|user|>\nthe sea\n<|assistant|>\n"


def test_without_a_template_text_is_encoded_as_it_is():
    tokenizer = with_bos(True, None)
    prompt = rollouts.encode_prompt(tokenizer, "the sea")
    assert prompt.token_ids == (1, *tokenizer("the sea", add_special_tokens=False).input_ids)
    assert prompt.template is None
    with pytest.raises(DataError, match="no chat template"):
        rollouts.encode_prompt(tokenizer, [Message(role="user", content="the sea")])
    with pytest.raises(DataError, match="an empty prompt"):
        rollouts.encode_prompt(with_bos(False, None), "")


def test_a_long_prompt_loses_its_beginning_but_not_its_bos():
    tokenizer = train_tokenizer()
    whole = rollouts.encode_prompt(tokenizer, "the river runs past the old mill")
    cut = rollouts.encode_prompt(tokenizer, "the river runs past the old mill", max_tokens=8)
    assert cut.token_ids == (1, *whole.token_ids[-7:])
    assert cut.lost == len(whole) - 8
    assert rollouts.encode_prompt(tokenizer, "the river", max_tokens=len(whole)) == rollouts.encode_prompt(
        tokenizer, "the river"
    )


def test_a_response_is_closed_and_cut_on_the_right():
    tokenizer = train_tokenizer()
    text = "Bread, butter and a little salt"
    ids = tokenizer(text, add_special_tokens=False).input_ids
    closed = rollouts.encode_response(tokenizer, text, 2)
    assert closed == [*ids, 2]
    assert rollouts.cut_response(closed, len(ids) + 1, 2) == closed
    assert rollouts.cut_response(closed, 4, 2) == [*ids[:3], 2]
    assert rollouts.encode_response(tokenizer, "", 2) == [2]


# -- offsets -----------------------------------------------------------------------------------------------------------


def covered(tokenizer, ids: list[int]) -> str:
    """Checks what must hold of any offsets; returns the text."""
    text, spans = rollouts.decode(tokenizer, ids), rollouts.offsets(tokenizer, ids)
    assert len(spans) == len(ids)
    assert all(0 <= start <= end <= len(text) for start, end in spans)
    assert [start for start, _ in spans] == sorted(start for start, _ in spans)
    assert {place for start, end in spans for place in range(start, end)} == set(range(len(text)))
    return text


@pytest.mark.parametrize("kind", list(TOKENIZERS))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.differing_executors])
@given(text=st.text(st.sampled_from("the sea, ands é你好🎉👨‍👩‍👧\n\u0301ﬁ  "), max_size=30))
def test_each_token_covers_its_own_characters_of_any_text(kind, text):
    tokenizer = TOKENIZERS[kind]
    ids = [*tokenizer(text, add_special_tokens=False).input_ids, tokenizer.eos_token_id]
    decoded, spans = covered(tokenizer, ids), rollouts.offsets(tokenizer, ids)
    assert spans[-1] == (len(decoded), len(decoded))
    if kind == "bytes":
        assert decoded == text
        for token, (start, end) in zip(
            ids[:-1], spans, strict=False
        ):  # a token's bytes lie inside its characters' bytes
            piece = tokenizer.backend_tokenizer.id_to_token(token)
            assert as_bytes(piece) in text[start:end].encode()
            assert len(text[start:end].encode()) < len(as_bytes(piece)) + 7


def as_bytes(piece: str) -> bytes:
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    table = {character: byte for byte, character in bytes_to_unicode().items()}
    return bytes(table[character] for character in piece)


@pytest.mark.parametrize("kind", list(TOKENIZERS))
@settings(max_examples=150, deadline=None)
@given(ids=st.lists(st.integers(0, 270), max_size=25))
def test_any_sampled_tokens_have_offsets_even_broken_characters(kind, ids):
    covered(TOKENIZERS[kind], ids)


def test_tokens_of_one_emoji_all_cover_it():
    tokenizer = TOKENIZERS["metaspace"]
    ids = tokenizer("a 🎉, é", add_special_tokens=False).input_ids
    assert rollouts.decode(tokenizer, ids) == "a 🎉, é"
    assert rollouts.offsets(tokenizer, ids) == [(0, 0), (0, 1), (1, 2), *[(2, 3)] * 4, (3, 4), (4, 5), (5, 6)]


def test_the_slow_way_agrees_with_the_fast_one():
    tokenizer = TOKENIZERS["bytes"]
    ids = tokenizer("Zwölf 你好 🎉 sea, 🎉", add_special_tokens=False).input_ids
    assert rollouts.text._offsets_by_prefix(tokenizer, ids) == rollouts.text._offsets_by_bytes(tokenizer, ids)


# -- tensors -----------------------------------------------------------------------------------------------------------


def test_padding_goes_left_of_prompts_and_right_of_responses():
    tokens = rollouts.pad([[5], [6, 7]], [[8, 2], [2]], pad_id=2, eos_ids={2, 3})
    assert tokens.prompt_ids.tolist() == [[2, 5], [6, 7]]
    assert tokens.prompt_mask.tolist() == [[False, True], [True, True]]
    assert tokens.response_ids.tolist() == [[8, 2], [2, 2]]
    assert tokens.mask.tolist() == [[True, True], [True, False]]
    assert tokens.eos.tolist() == [[False, True], [True, False]]  # the padding with the same id is not marked


def test_a_response_that_was_cut_off_has_no_eos():
    tokens = rollouts.pad([[5]] * 3, [[8, 9], [3, 9], [8, 3]], pad_id=0, eos_ids={2, 3})
    assert tokens.eos.tolist() == [[False, False], [False, False], [False, True]]


def test_rows_come_back_in_their_order_from_batches_by_length():
    tokens = rollouts.pad([[1] * n for n in (3, 1, 5, 2)], [[10 + n] * n for n in (1, 4, 2, 3)], pad_id=0, eos_ids={2})
    seen = []

    def ids(part):
        seen.append((part.prompt_ids.shape[1], part.response_ids.shape[1]))
        return {"ids": part.response_ids * part.mask}

    got = rollouts.in_micro_batches(tokens, ids, micro_batch_size=2)["ids"]
    assert torch.equal(got, tokens.response_ids * tokens.mask)
    assert seen == [(5, 4), (3, 3)]  # each batch is as wide as its own longest prompt and response


# -- collect -----------------------------------------------------------------------------------------------------------

PROMPTS = [Sample(id=str(n), prompt=text) for n, text in enumerate(["the sea", "a lamp on the table", "birds"])]
SAMPLING = Sampling(max_new_tokens=7)
EVERYTHING = frozenset({"old_logp", "ref_logp", "ref_entropy", "ref_kl", "values", "offsets"})


def collect(model, reference=None, needs=EVERYTHING, sampling=SAMPLING, **options) -> Rollout:
    return rollouts.collect(
        model, reference, PROMPTS, sampling, HF().open(model), needs, per_prompt=2, seed=3, **options
    )


@pytest.fixture(scope="module")
def critic(tiny_model_dir):
    torch.manual_seed(0)
    return models.load(ModelSpec(base=str(tiny_model_dir)), head="scalar")


def test_only_what_is_needed_is_filled(policy, critic):
    optional = {"old_logp", "ref_logp", "ref_entropy", "ref_kl", "values", "offsets", "entropy"}
    of_the_policy = {"row", "lent_policy"}
    of_the_drawing = {"no_end", "drawn_logp", "drawn_version", "turn", "written"}
    given = {field.name for field in fields(Rollout) if "None" in str(field.type)}
    of_conversations = {"turns", "turn_reward", "terminated", "end_value", "lost"}
    assert optional == given - of_the_policy - of_the_drawing - of_conversations
    for needs in (frozenset(), frozenset({"ref_entropy"}), frozenset({"ref_kl"}), frozenset({"old_logp", "values"})):
        rollout = collect(policy, needs=needs, critic=critic)
        assert {name for name in optional if getattr(rollout, name) is not None} == needs


def test_fields_are_what_separate_passes_say(policy, critic, model):
    rollout = collect(policy, critic=critic)
    assert rollout.group.tolist() == [0, 0, 1, 1, 2, 2]
    assert [sample.id for sample in rollout.samples] == ["0", "0", "1", "1", "2", "2"]
    with torch.no_grad():
        base = model.score(rollout, entropy=True)
        p, q = (net.logits(net.states(rollout)).log_softmax(1) for net in (policy, model))
        wanted = {
            "old_logp": policy.score(rollout).logp,
            "ref_logp": base.logp,
            "ref_entropy": base.entropy,
            "ref_kl": models.unflatten((p.exp() * (p - q)).sum(1), rollout.mask),
            "values": critic.values(rollout),
        }
    for name, value in wanted.items():
        torch.testing.assert_close(getattr(rollout, name), value, atol=1e-5, rtol=1e-4, msg=name)
    assert (rollout.old_logp - rollout.ref_logp).abs().max() > 0.05
    for row, text in enumerate(rollout.texts):
        ids = rollout.response_ids[row][rollout.mask[row]].tolist()
        assert text == rollouts.decode(policy.tokenizer, ids)
        assert rollout.offsets[row] == rollouts.offsets(policy.tokenizer, ids)


def test_a_separate_reference_is_the_adapter_off(policy, critic, model):
    apart, off = collect(policy, model, critic=critic), collect(policy, None, critic=critic)
    for name in ("ref_logp", "ref_entropy", "ref_kl"):
        torch.testing.assert_close(getattr(apart, name), getattr(off, name), atol=1e-5, rtol=1e-4)


def test_scoring_knows_no_dropout_and_leaves_the_mode_as_it_was(tiny_model_dir):
    torch.manual_seed(0)
    policy = models.load(ModelSpec(base=str(tiny_model_dir), lora=LoraSpec(r=4, dropout=0.5)), trainable=True)
    for name, parameter in policy.net.named_parameters():
        if "lora_B" in name:
            torch.nn.init.constant_(parameter, 0.1)
    calm = collect(policy, needs=frozenset({"old_logp"}))
    policy.train()
    policy.trunk.layers[0].eval()
    modes = [module.training for module in policy.modules()]
    assert torch.equal(collect(policy, needs=frozenset({"old_logp"})).old_logp, calm.old_logp)
    assert [module.training for module in policy.modules()] == modes


@pytest.mark.parametrize("micro_batch_size", [1, 4, 100])
def test_micro_batches_change_nothing(policy, critic, micro_batch_size):
    one = collect(policy, critic=critic, micro_batch_size=micro_batch_size)
    other = collect(policy, critic=critic, micro_batch_size=3)
    assert torch.equal(one.response_ids, other.response_ids)
    for name in ("old_logp", "ref_logp", "ref_entropy", "ref_kl", "values"):
        torch.testing.assert_close(getattr(one, name), getattr(other, name), atol=1e-5, rtol=1e-4)


def passes(model, monkeypatch) -> list[None]:
    """Return a list that grows with each pass of a model from now on."""
    calls, hidden = [], model.hidden

    def counted(*args, **options):
        calls.append(None)
        return hidden(*args, **options)

    monkeypatch.setattr(model, "hidden", counted)
    return calls


def test_reference_scores_come_from_one_forward(policy, monkeypatch):
    rows = len(PROMPTS) * 2
    tokens = collect(policy, needs=frozenset())
    calls = passes(policy, monkeypatch)
    rollouts.score(policy, None, tokens, frozenset({"ref_logp", "ref_entropy"}), micro_batch_size=rows)
    assert len(calls) == 1
    rollouts.score(policy, None, tokens, EVERYTHING - {"values", "offsets"}, micro_batch_size=rows)
    assert len(calls) == 3


def test_a_model_that_is_its_own_reference_reads_once(policy, monkeypatch):
    rows, needs = len(PROMPTS) * 2, EVERYTHING - {"values", "offsets"}
    tokens = collect(policy, needs=frozenset())
    twin = copy.deepcopy(policy)
    apart = rollouts.score(policy, twin, tokens, needs, micro_batch_size=rows)
    calls = passes(policy, monkeypatch)
    same = rollouts.score(policy, policy, tokens, needs, micro_batch_size=rows)
    assert len(calls) == 1
    assert same.keys() == apart.keys()
    assert all(torch.equal(same[name], apart[name]) for name in same)
    alone = rollouts.score(policy, policy, tokens, frozenset({"ref_kl"}), micro_batch_size=rows)
    assert len(calls) == 1
    assert torch.equal(alone["ref_kl"], apart["ref_kl"])


def test_temperature_is_exact_and_the_reference_entropy_is_at_one(policy, model):
    rollout = collect(policy, needs=EVERYTHING - {"values"}, sampling=SAMPLING.model_copy(update={"temperature": 0.6}))
    with torch.no_grad():
        torch.testing.assert_close(rollout.old_logp, policy.score(rollout, temperature=0.6).logp, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(rollout.ref_logp, model.score(rollout, temperature=0.6).logp, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(
            rollout.ref_entropy, model.score(rollout, entropy=True).entropy, atol=1e-5, rtol=1e-4
        )


@pytest.mark.parametrize("setting", [{"top_p": 0.9}, {"top_k": 5}, {"temperature": 0.0}])
def test_log_probabilities_that_would_be_inexact_are_refused(policy, setting):
    sampling = SAMPLING.model_copy(update=setting)
    with pytest.raises(ValueError, match=f"sampling with {next(iter(setting))}"):
        collect(policy, needs=frozenset({"old_logp"}), sampling=sampling)
    assert collect(policy, needs=frozenset({"ref_entropy"}), sampling=sampling).ref_entropy is not None


def test_truncated_sampling_may_be_allowed_and_log_probabilities_stay_those_of_the_whole_distribution(policy):
    """As the release of "Rubrics to Tokens" trains: top_p and top_k draw, the log-probabilities know nothing of them."""
    sampling = SAMPLING.model_copy(update={"top_p": 0.5, "top_k": 3, "truncated": True})
    rollout = collect(policy, needs=frozenset({"old_logp"}), sampling=sampling)
    with torch.no_grad():
        whole = policy.score(rollout, temperature=sampling.temperature).logp
    torch.testing.assert_close(rollout.old_logp, whole, atol=1e-5, rtol=1e-4)
    with pytest.raises(ValueError, match="another distribution"):
        collect(policy, needs=frozenset({"old_logp"}), sampling=sampling.model_copy(update={"temperature": 0.0}))


def test_what_is_missing_is_named(model):
    with pytest.raises(ValueError, match="there is no critic"):
        collect(model, needs=frozenset({"values"}))
    with pytest.raises(ValueError, match="the reference is needed"):
        collect(model, needs=frozenset({"ref_logp"}))
    with pytest.raises(ValueError, match="a rollout has no logits"):
        collect(model, needs=frozenset({"logits"}))


def test_rows_have_their_own_random_streams(model):
    whole = collect(model, needs=frozenset())
    later = rollouts.collect(
        model, None, PROMPTS[1:], SAMPLING, HF().open(model), frozenset(), per_prompt=2, seed=3, first=1
    )
    assert whole.texts[2:] == later.texts
    assert whole.texts[0] != whole.texts[1]
    assert collect(model, needs=frozenset()).texts == whole.texts
