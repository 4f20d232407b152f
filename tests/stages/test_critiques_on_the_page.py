"""A training with a critic's rewards: its critiques are in its rollouts, in an evaluation's answers, on the page and in the terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from fgrl.cli import app

CLIENT = '''
import json

from fgrl.kinds import Client
from fgrl.registry import register
from fgrl.types import Completion


@register("quoting")
class Quoting(Client):
    """Quotes the beginning of a response as good and its end as poor; one of three responses gets no answer."""

    def complete(self, requests):
        return [self.answer(request.messages[-1].content.partition("Response: ")[2]) for request in requests]

    def answer(self, response):
        if len(response) % 3 == 0:
            return Completion(error="nobody is there")
        said = {"textual_feedback": "A <b>fine</b> start.", "good_spans": [response[:4]], "poor_spans": [response[-4:]]}
        return Completion(text=json.dumps(said))
'''
RECIPE = """
about: "A critic."
imports: [quoting.py]
seed: 1
stages:
  policy:
    name: rl
    prompts: {{name: lines, path: topics.txt}}
    model: {{base: {base}}}
    reward: &critic {{name: critic, client: quoting, prompt: prompt.txt, token_policy: overlap}}
    algorithm: {{name: grpo}}
    rollout: {{batch_size: 12, per_prompt: 2, sampling: {{max_new_tokens: 12, max_prompt_tokens: 48}}}}
    train: {{lr: 1e-3, iterations: 3, batch_size: 12, micro_batch_size: 6, accelerator: cpu}}
    stored_rollouts: 6
    alarms: {{missing: null, empty: null}}
  evaluate:
    name: evaluate
    prompts: {{name: lines, path: topics.txt}}
    models: {{sft: {{base: {base}}}, policy: "${{out:policy}}"}}
    baseline: sft
    rewards: {{critic: *critic}}
    metrics: [length]
    sampling: {{max_new_tokens: 12}}
"""


@pytest.fixture
def recipe(tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "quoting.py").write_text(CLIENT)
    (tmp_path / "prompt.txt").write_text("Prompt: {prompt}\nResponse: {response}")
    (tmp_path / "topics.txt").write_text("\n".join(f"Say something about {word}" for word in "abcdef"))
    path = tmp_path / "r.yaml"
    path.write_text(RECIPE.format(base=json.dumps(str(tiny_model_dir))))
    return path


def fgrl(*arguments: str) -> str:
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, done.output
    return done.stdout


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_critiques_come_with_rollouts_and_answers(recipe: Path, tmp_path: Path) -> None:
    fgrl("run", str(recipe), "--runs", "runs")
    (policy,) = (tmp_path / "runs" / "stages").glob("policy-*")
    (evaluation,) = (tmp_path / "runs" / "stages").glob("evaluate-*")
    rollouts, answers = lines_of(policy / "out" / "rollouts.jsonl"), lines_of(evaluation / "out" / "answers.jsonl")
    assert [line["iteration"] for line in rollouts] == [0] * 6 + [1] * 6 + [2] * 6
    missing = 0
    for line in [*rollouts, *answers]:
        text = line["response"]["text"]
        recorded = line["annotations"]["critic"]
        if not text.strip():
            assert recorded == {}, "a response without text is not criticised"
        elif len(text) % 3 == 0:
            assert recorded is None
            missing += 1
        else:
            assert recorded["critique"] == "A <b>fine</b> start."
            quotes = {text[span["start"] : span["end"]] for span in recorded["spans"]}
            assert quotes <= {text[:4], text[-4:]}
        if "iteration" in line:
            assert ("advantages" in line) == (recorded is not None)
            assert ("score" in line["response"]) == (recorded is not None)
    assert missing > 3
    (page,) = (tmp_path / "runs" / "r").glob("*/report.html")
    text = page.read_text(encoding="utf-8")
    assert 'id="rollouts"' in text
    assert text.count("The critique is missing: no usable answer came back") == missing
    assert text.count("the reward is missing, so the response was not trained on") > 0
    assert "A &lt;b&gt;fine&lt;/b&gt; start." in text
    assert '<span class="mark poor' in text
    assert '<span class="mark good' in text


def test_inspect_prints_them(recipe: Path) -> None:
    text = fgrl("inspect", str(recipe), "--stage", "policy", "-n", "6")
    assert "critique  A <b>fine</b> start." in text
    assert "+ good  " in text
    assert "- poor  " in text
    assert "? the critique is missing" in text
    samples = json.loads(fgrl("inspect", str(recipe), "--stage", "policy", "-n", "6", "--json"))["samples"]
    assert {sample["annotations"][0]["missing"] for sample in samples} == {True, False}
