"""An exported folder loads without fgrl and is the stage's model; nothing is overwritten; nothing of this machine is in it."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import peft
import pytest
import torch
import transformers
from planted_secrets import MARKS, SETTINGS
from trained_stages import evaluate, train
from typer.testing import CliRunner

from fgrl import models
from fgrl.base.errors import DataError, UsageError
from fgrl.cli import app
from fgrl.exchange.publishing import agreement, exporting, provenance
from fgrl.exchange.publishing.exporting import Options
from fgrl.kinds.specs import LoraSpec, ModelSpec
from fgrl.models.sources import Source

IDS = torch.tensor([[1, 20, 30, 40, 70, 71]])


def logits(net) -> torch.Tensor:
    with torch.no_grad():
        return net.eval()(input_ids=IDS).logits.float()


def of_stage(folder: Path) -> torch.Tensor:
    return logits(models.load(ModelSpec(base=str(folder / "out"), dtype="float32", quantize="none")).net)


def text_of(folder: Path) -> str:
    files = [
        file
        for file in folder.rglob("*")
        if file.is_file() and file.suffix != ".safetensors" and file.name != "tokenizer.json"
    ]
    return "\n".join(file.read_text(encoding="utf-8") for file in files)


@pytest.fixture(scope="module")
def policy(tiny_model_dir, tmp_path_factory) -> Path:
    runs = tmp_path_factory.mktemp("world") / "runs"
    made = train(runs, "policy", tiny_model_dir)
    evaluate(runs, made)
    return made


def test_an_adapter_on_a_folder_is_merged_and_loads_with_transformers_alone(policy, tmp_path):
    said: list[str] = []
    exported = exporting.export(policy / "out", tmp_path / "out", provenance.read(policy), say=said.append)
    assert (exported.form, exported.loads, exported.dtype) == ("weights", "AutoModelForCausalLM", "float32")
    assert "is the folder tiny-llama of this machine" in said[0]
    plain = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    torch.testing.assert_close(logits(plain), of_stage(policy), atol=1e-4, rtol=1e-4)
    chat = transformers.pipeline("text-generation", model=str(tmp_path / "out"))
    answer = chat([{"role": "user", "content": "Why do birds sing?"}], max_new_tokens=8, do_sample=False)
    assert answer[0]["generated_text"][-1]["role"] == "assistant"
    ends = plain.generation_config.eos_token_id
    assert set(ends) == models.load(ModelSpec(base=str(policy / "out"))).eos_ids
    assert exported.check.same_answers == exported.check.prompts == 3
    assert not (tmp_path / "out" / "adapter_config.json").exists()


def test_nothing_of_this_machine_is_in_an_export(policy, tmp_path, tiny_model_dir, monkeypatch):
    monkeypatch.setenv("HF_TOKEN", "hf_averysecretvalue")
    exporting.export(
        policy / "out", tmp_path / "deep" / "out", provenance.read(policy, about="Uses hf_averysecretvalue.")
    )
    written = text_of(tmp_path / "deep" / "out")
    for place in (tmp_path, tiny_model_dir, policy, Path.home(), Path.cwd()):
        assert str(place) not in written
    assert "hf_averysecretvalue" not in written
    assert "rows.jsonl" in written


def test_no_secret_of_an_earlier_recipe_is_in_an_export(tiny_model_dir, tmp_path):
    sft = train(
        tmp_path / "runs", "sft", tiny_model_dir, settings={"arguments": SETTINGS, "rest": list(SETTINGS.values())}
    )
    history = provenance.read(sft, about=f"It logs in with {SETTINGS['password']} and {SETTINGS['third']}.")
    exporting.export(sft / "out", tmp_path / "out", history)
    left = {
        file.name: [mark for mark in MARKS if mark != "73519025" and mark.encode() in file.read_bytes()]
        for file in (tmp_path / "out").rglob("*")
        if file.is_file()
    }
    assert {name: marks for name, marks in left.items() if marks} == {}
    assert "logs in with <key> and <key>" in (tmp_path / "out" / "README.md").read_text()


def test_adapters_on_an_adapter_become_one_model(tiny_model_dir, tmp_path):
    runs = tmp_path / "runs"
    first = train(runs, "sft", tiny_model_dir)
    second = train(runs, "policy", first / "out", upstream={"sft": first})
    exported = exporting.export(second / "out", tmp_path / "out", provenance.read(second))
    assert "last of 2 stacked adapters" in exported.why
    assert exported.base is not None
    assert exported.base.name == tiny_model_dir.name
    shutil.rmtree(runs)
    plain = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert plain.num_parameters() == models.load(ModelSpec(base=str(tiny_model_dir))).transformer.num_parameters()


def test_the_merged_stack_has_the_logits_of_the_stage(tiny_model_dir, tmp_path):
    runs = tmp_path / "runs"
    first = train(runs, "sft", tiny_model_dir, lora=None)
    second = train(runs, "policy", first / "out", upstream={"sft": first}, lora=LoraSpec(r=2, last_blocks=1))
    exported = exporting.export(second / "out", tmp_path / "out", provenance.read(second))
    assert "model of another stage" in exported.why
    assert exported.base is not None
    assert exported.base.name == tiny_model_dir.name
    plain = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    torch.testing.assert_close(logits(plain), of_stage(second), atol=1e-4, rtol=1e-4)


def test_a_fully_trained_model_keeps_its_weights(tiny_model_dir, tmp_path):
    made = train(tmp_path / "runs", "policy", tiny_model_dir, lora=None)
    exported = exporting.export(made / "out", tmp_path / "out", provenance.read(made))
    assert (exported.form, exported.why) == ("weights", "")
    plain = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    torch.testing.assert_close(logits(plain), of_stage(made), atol=1e-6, rtol=1e-6)


def test_an_adapter_whose_base_is_on_the_hub_is_exported_alone(policy, tmp_path, tiny_model_dir):
    """Also one of an earlier version of fgrl, whose configuration named neither base nor task."""
    policy = Path(shutil.copytree(policy.parent, tmp_path / "stages")) / policy.name
    old = policy / "out" / "adapter_config.json"
    config = json.loads(old.read_text()) | {"base_model_name_or_path": None, "task_type": None}
    old.write_text(json.dumps(config))
    exported = exporting.export(policy / "out", tmp_path / "out", provenance.read(policy), Options(base="owner/tiny"))
    assert (exported.form, exported.loads) == ("adapter", "AutoPeftModelForCausalLM")
    config = json.loads((tmp_path / "out" / "adapter_config.json").read_text())
    assert (config["base_model_name_or_path"], config["task_type"]) == ("owner/tiny", "CAUSAL_LM")
    base = transformers.AutoModelForCausalLM.from_pretrained(tiny_model_dir)
    together = peft.PeftModel.from_pretrained(base, tmp_path / "out")
    torch.testing.assert_close(logits(together), of_stage(policy), atol=1e-4, rtol=1e-4)
    assert "library_name: peft" in (tmp_path / "out" / "README.md").read_text()
    with pytest.raises(UsageError, match="add --merge"):
        exporting.export(policy / "out", tmp_path / "other", None, Options(base="owner/tiny", dtype="bfloat16"))
    assert (
        exporting.export(policy / "out", tmp_path / "whole", None, Options(base="owner/tiny", merge=True)).form
        == "weights"
    )


def test_a_type_that_keeps_the_training_is_written_and_one_that_loses_it_is_refused(tiny_model_dir, tmp_path):
    strong = train(tmp_path / "a", "policy", tiny_model_dir, dtype="bfloat16")
    exported = exporting.export(strong / "out", tmp_path / "out", provenance.read(strong))
    assert exported.dtype == "bfloat16"
    plain = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert plain.dtype == torch.bfloat16
    assert exported.check.kl is not None
    assert 0 < exported.check.kl < exported.check.kl_of_training  # type: ignore[operator]
    faint = train(tmp_path / "b", "policy", tiny_model_dir, dtype="bfloat16", size=1e-4)
    with pytest.raises(DataError, match=r"would lose what the training changed.*leave --dtype out"):
        exporting.export(faint / "out", tmp_path / "faint", None, Options(dtype="bfloat16"))
    assert not (tmp_path / "faint").exists()
    said: list[str] = []
    kept = exporting.export(faint / "out", tmp_path / "faint", say=said.append)
    assert kept.dtype == "float32"
    assert kept.check.kl < 1e-6  # type: ignore[operator]
    assert [line for line in said if line.endswith(": the weights are written in float32")]


def test_what_rounding_costs_is_measured_on_the_model_and_has_no_fixed_bound(tiny_model_dir, tmp_path, monkeypatch):
    """Weights so large that rounding them to bfloat16 moves the distributions far."""
    coarse = train(tmp_path, "policy", tiny_model_dir, dtype="bfloat16", size=20.0)
    merged: list[torch.dtype] = []
    round_merged = agreement.round_merged

    def watched(answers, model, dtype):
        merged.extend({weight.dtype for weight in model.parameters()})
        return round_merged(answers, model, dtype)

    monkeypatch.setattr(agreement, "round_merged", watched)
    done = CliRunner().invoke(app, ["export", str(coarse), str(tmp_path / "out"), "--merge"])
    assert done.exit_code == 0, done.output
    assert merged == [torch.float32], "it was compared with the stage's model before it was rounded"
    kept = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "out")
    assert kept.dtype == torch.bfloat16
    printed = re.search(r"KL ([\d.e-]+) nats per token", done.output)
    assert printed is not None, done.output
    assert float(printed[1]) > 0.02


def test_a_merge_that_is_another_model_is_refused_before_it_is_rounded(policy, tmp_path, monkeypatch):
    load = models.load

    def other(spec, **options):
        loaded = load(spec, **options)
        if options.get("trainable"):
            next(loaded.parameters()).data[:] += 0.5
        return loaded

    monkeypatch.setattr(exporting.models, "load", other)
    with pytest.raises(DataError, match="not the stage's: their next-token distributions differ"):
        exporting.export(policy / "out", tmp_path / "out", None, Options(dtype="bfloat16"))
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_the_stages_model_is_refused(policy, tmp_path, monkeypatch):
    write = exporting._write_weights

    def other(model, folder, *rest):
        written = write(model, folder, *rest)
        net = transformers.AutoModelForCausalLM.from_pretrained(folder)
        net.model.layers[0].mlp.up_proj.weight.data[0] += 0.5
        net.save_pretrained(folder)
        return written

    monkeypatch.setattr(exporting, "_write_weights", other)
    with pytest.raises(DataError, match="not the stage's: their next-token distributions differ"):
        exporting.export(policy / "out", tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_only_an_earlier_export_is_replaced_and_only_on_request(policy, tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "thesis.tex").write_text("years of work")
    for force in (False, True):
        with pytest.raises(UsageError, match="is not empty, and it is not an earlier export"):
            exporting.check_target(own, force=force)
    (tmp_path / "empty").mkdir()
    exporting.check_target(tmp_path / "empty", force=False)
    with pytest.raises(UsageError, match="is a file"):
        exporting.check_target(own / "thesis.tex", force=True)
    (own / exporting.MARKER).write_text("{}")
    with pytest.raises(UsageError, match="add --force"):
        exporting.export(policy / "out", own)
    with pytest.raises(UsageError, match=r"did not write.*: thesis\.tex; move them away"):
        exporting.export(policy / "out", own, None, Options(force=True))
    (own / "thesis.tex").unlink()
    exporting.export(policy / "out", own, None, Options(force=True))
    exporting.check_target(own, force=True)
    (own / ".git").mkdir()
    (own / ".git" / "HEAD").write_text("ref: refs/heads/main\n")
    with pytest.raises(UsageError, match=r"\.git/HEAD"):
        exporting.check_target(own, force=True)
    (tmp_path / "link").symlink_to(own)
    with pytest.raises(UsageError, match="is a link"):
        exporting.check_target(tmp_path / "link", force=True)


@pytest.mark.parametrize("base", ["/srv/models/tiny", "./tiny", "~/tiny", "a/b/c", "owner/ti ny"])
def test_a_base_that_is_no_id_of_the_hub_is_refused(tmp_path, base):
    with pytest.raises(UsageError, match=r"wants the id of a model on the hub \(OWNER/NAME\), not a folder"):
        exporting.export(tmp_path / "stage", tmp_path / "out", None, Options(base=base))


def test_paths_of_other_machines_are_cut_from_configurations(tmp_path):
    written = {
        "name_or_path": "/gone/people/ann/tiny",
        "tokens": ["/no_think", "/", "</s>"],
        "auto_map": "C:\\ann\\tiny",
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(written))
    exporting._without_paths(tmp_path)
    cleaned = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert cleaned == {"name_or_path": "tiny", "tokens": ["/no_think", "/", "</s>"], "auto_map": "tiny"}


# -- number heads ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("head", "loads"), [("scalar", "SequenceClassification"), ("token", "TokenClassification")])
def test_a_number_head_becomes_transformers_own_model(tiny_model_dir, tmp_path, head, loads):
    made = train(
        tmp_path / "runs",
        "reward_model",
        tiny_model_dir,
        head=head,
        about={"segmenter": {"name": "bandit"}, "aggregate": "mean"},
    )
    exported = exporting.export(made / "out", tmp_path / "out", provenance.read(made))
    assert exported.loads == f"AutoModelFor{loads}"
    net = getattr(transformers, exported.loads).from_pretrained(tmp_path / "out").eval()
    own = models.load(ModelSpec(base=str(made / "out")), head=head)
    from fgrl.rollouts import pad

    with torch.no_grad():
        wanted = own.rewards(pad([IDS[0, :3].tolist()], [IDS[0, 3:].tolist()], own.pad_id, own.eos_ids))[0]
        got = net(input_ids=IDS).logits[0]
    torch.testing.assert_close(got[0] if head == "scalar" else got[-1, 0], wanted[-1], atol=1e-5, rtol=1e-5)
    card = (tmp_path / "out" / "README.md").read_text()
    assert ("every segment (segmenter `bandit`)" in card) == (head == "scalar")


def test_a_padded_batch_is_read_at_each_texts_end_where_padding_is_the_end_token(tiny_model_dir, tmp_path):
    """As in SmolLM2, whose padding token ends answers."""
    base = shutil.copytree(tiny_model_dir, tmp_path / "base")
    tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    tokenizer.pad_token = "<|end|>"
    tokenizer.save_pretrained(base)
    made = train(tmp_path / "runs", "reward_model", base, head="scalar")
    exporting.export(made / "out", tmp_path / "out")
    net = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "out").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    texts = ["The river<|end|>", "A lamp stands on the table<|end|>"]
    with torch.no_grad():
        both = net(**tokenizer(texts, padding=True, return_tensors="pt")).logits
        alone = torch.cat([net(**tokenizer(text, return_tensors="pt")).logits for text in texts])
    torch.testing.assert_close(both, alone, atol=1e-5, rtol=1e-5)


def test_a_reward_adapter_on_a_hub_model_has_its_head_beside_it(tiny_model_dir, tmp_path):
    made = train(tmp_path / "runs", "reward_model", tiny_model_dir, head="scalar")
    exported = exporting.export(made / "out", tmp_path / "out", None, Options(base="owner/tiny"))
    assert (exported.form, exported.loads) == ("adapter", "AutoPeftModelForFeatureExtraction")
    assert (tmp_path / "out" / "head.safetensors").is_file()
    assert "last_hidden_state @ weight" in (tmp_path / "out" / "README.md").read_text()
    answers = agreement.of_stage(made / "out", "scalar")
    answers.numbers[0] += 1.0
    with pytest.raises(DataError, match="their rewards differ by"):
        agreement.compare(answers, tmp_path / "out", "scalar", Source(str(tiny_model_dir), local=True))


def test_an_architecture_without_such_a_head_is_refused_with_the_way_out(tiny_model_dir, tmp_path, monkeypatch):
    made = train(tmp_path / "runs", "reward_model", tiny_model_dir, head="scalar")

    def none(config, *, trust_remote_code):
        raise ValueError("Unrecognized configuration class")

    monkeypatch.setattr(transformers.AutoModelForSequenceClassification, "from_config", none)
    with pytest.raises(UsageError, match=r"no SequenceClassification model of the architecture llama.*without --merge"):
        exporting.export(made / "out", tmp_path / "out")
