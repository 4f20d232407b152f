"""An exported policy writes the same greedy tokens in a Python that cannot import fgrl."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from patience import HUNG
from trained_stages import train

from fgrl import models, rollouts
from fgrl.exchange.publishing import exporting, provenance
from fgrl.exchange.publishing.exporting import Options
from fgrl.kinds import default_engine
from fgrl.kinds.specs import ModelSpec, Sampling

QUESTIONS = ("Write one or two sentences about the sea.", "What is two plus three?")
TOKENS = 24

ELSEWHERE = """
import json, sys

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "fgrl":
            raise ImportError("there is no fgrl here")

sys.meta_path.insert(0, Absent())
try:
    import fgrl
except ImportError:
    pass
else:
    raise SystemExit("fgrl can be imported")

import torch, transformers
exported, stage, questions, tokens = json.loads(sys.argv[1])
tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
chats = [[{"role": "user", "content": question}] for question in questions]


def answers(model):
    result = []
    for chat in chats:
        batch = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
        with torch.no_grad():
            written = model.generate(**batch, max_new_tokens=tokens, do_sample=False)
        result.append(written[0, batch["input_ids"].shape[1] :].tolist())
    return result


from peft import AutoPeftModelForCausalLM

pipe = transformers.pipeline("text-generation", model=exported, dtype=torch.float32)
texts = [pipe(chat, max_new_tokens=tokens, do_sample=False)[0]["generated_text"][-1]["content"] for chat in chats]
print(json.dumps({
    "AutoModelForCausalLM": answers(transformers.AutoModelForCausalLM.from_pretrained(exported, dtype=torch.float32)),
    "AutoPeftModelForCausalLM": answers(AutoPeftModelForCausalLM.from_pretrained(stage, dtype=torch.float32)),
    "pipeline": texts,
}))
"""


@pytest.mark.evidence
@pytest.mark.smollm2
def test_greedy_tokens_are_the_same_without_fgrl(smollm2_dir: Path, tmp_path: Path) -> None:
    made = train(tmp_path / "runs", "policy", "smollm2-135m-instruct", dtype="bfloat16", size=0.05)
    exported = exporting.export(made / "out", tmp_path / "out", provenance.read(made), Options(dtype="float32"))
    assert exported.check.same_answers == exported.check.prompts
    model = models.load(ModelSpec(base=str(made / "out"), dtype="float32"))
    prompts = [rollouts.encode_prompt(model.tokenizer, question) for question in QUESTIONS]
    sampling = Sampling(max_new_tokens=TOKENS, temperature=0)
    expected = [
        each.token_ids for each in rollouts.sample(model, default_engine().open(model), prompts, sampling, seed=0)
    ]
    base = models.load(ModelSpec(base="smollm2-135m-instruct", dtype="float32"))
    assert expected != [
        each.token_ids for each in rollouts.sample(base, default_engine().open(base), prompts, sampling, seed=0)
    ], "the adapter changes the answers"
    argument = json.dumps([str(tmp_path / "out"), str(made / "out"), QUESTIONS, TOKENS])
    done = subprocess.run(
        [sys.executable, "-I", "-c", ELSEWHERE, argument], cwd=tmp_path, capture_output=True, text=True, timeout=HUNG, check=False
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout.splitlines()[-1])
    texts = [rollouts.decode(model.tokenizer, ids) for ids in expected]
    assert answers == {"AutoModelForCausalLM": expected, "AutoPeftModelForCausalLM": expected, "pipeline": texts}
