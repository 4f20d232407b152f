"""The same key has the same result on every day: no clock in chat templates, and no chance in tokenizers."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from patience import HUNG
from pipeline_helpers import environment

from fgrl import models
from fgrl.base.errors import DataError
from fgrl.experiments.pipeline import keys
from fgrl.experiments.recipe import load
from fgrl.feedback.llm.tokens import load_tokenizer
from fgrl.kinds.specs import ModelSpec

LLAMA = (
    "{% if date_string is not defined %}{% if strftime_now is defined %}{% set date_string = strftime_now('%d %b %Y') %}"
    "{% else %}{% set date_string = '26 Jul 2024' %}{% endif %}{% endif %}"
)
TURNS = "{% for turn in messages %}<|{{ turn.role }}|>{{ turn.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}"
DATED = {
    "as Llama 3.2's": LLAMA + "Today: {{ date_string }}\n" + TURNS,
    "the clock alone": "\n {{ strftime_now('%Y-%m-%d') }} {{- strftime_now('|%A %-d') }}\n" + TURNS,
    "in a macro": "{% macro head() %}{{ strftime_now('%d.%m.%y, %H:%M') }}{% endmacro %}{{ head() }}" + TURNS,
}
RECIPE = """
about: "Answers of a model whose prompts had the date, and whose tokens were drawn."
stages:
  answers:
    name: sample
    prompts: {name: lines, path: topics.txt}
    model: model
    per_prompt: 2
    sampling: {max_new_tokens: 6}
"""
ON_A_DAY = """
import datetime, sys
from transformers.utils import chat_template_utils

class Day(datetime.datetime):
    @classmethod
    def now(cls, zone=None):
        return cls.fromisoformat(sys.argv[1])

chat_template_utils.datetime = Day
from fgrl.cli import main
main(["run", "r.yaml", "--runs", sys.argv[2]])
"""


def folder_with(tiny_model_dir: Path, folder: Path, template: str, dropout: float | None = None) -> Path:
    """A tiny model with this template, and with dropout of merges."""
    shutil.copytree(tiny_model_dir, folder)
    (folder / "chat_template.jinja").write_text(template, encoding="utf-8")
    content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
    content["model"]["dropout"] = dropout
    (folder / "tokenizer.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def rendered(spec: ModelSpec, text: str = "Why?") -> str:
    chat = [{"role": "user", "content": text}]
    texts = {
        tokenizer.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
        for tokenizer in (models.read_vocabulary(spec).tokenizer, load_tokenizer(spec))
    }
    assert len(texts) == 1
    return texts.pop()


def test_three_days_and_two_hash_seeds_give_the_same_bytes(tmp_path: Path, tiny_model_dir: Path) -> None:
    folder_with(tiny_model_dir, tmp_path / "model", DATED["as Llama 3.2's"], dropout=0.5)
    (tmp_path / "topics.txt").write_text("rivers and lamps\nbirds and bread\n")
    (tmp_path / "r.yaml").write_text(RECIPE)
    products = []
    for day, seed in (("2025-01-01", "0"), ("2026-11-28T23:59:59", "1"), ("2031-06-30", "0")):
        ended = subprocess.run(
            [sys.executable, "-c", ON_A_DAY, day, f"runs-{day[:4]}"], cwd=tmp_path, capture_output=True, text=True,
            env={**environment(), "PYTHONHASHSEED": seed}, timeout=HUNG, check=False,
        )  # fmt: skip
        assert ended.returncode == 0, ended.stderr
        (stage,) = (tmp_path / f"runs-{day[:4]}" / "stages").glob("answers-*")
        products.append((stage.name, {file.name: file.read_bytes() for file in (stage / "out").rglob("*")}))
    assert products[0] == products[1] == products[2]


@pytest.mark.parametrize("template", DATED)
def test_the_day_is_a_setting(tmp_path: Path, tiny_model_dir: Path, template: str) -> None:
    folder = folder_with(tiny_model_dir, tmp_path / "model", DATED[template])
    heads = {
        "as Llama 3.2's": "Today: {0:%d %b %Y}\n",
        "the clock alone": "\n {0:%Y-%m-%d}|{0:%A} {0.day}",
        "in a macro": "{0:%d.%m.%y}, 00:00",
    }
    for date_string in (None, "01 Mar 2025"):
        day = datetime.strptime(date_string or "26 Jul 2024", "%d %b %Y")
        spec = ModelSpec(base=str(folder), date_string=date_string)
        assert rendered(spec).startswith(heads[template].format(day))
        assert rendered(spec).endswith("<|user|>Why?<|end|><|assistant|>")
    # what is saved keeps the day, and the template as it was
    model = models.load(ModelSpec(base=str(folder), date_string="01 Mar 2025"))
    models.save(model, tmp_path / "saved", about={})
    saved = ModelSpec(base=str(tmp_path / "saved"))
    assert rendered(saved) == rendered(ModelSpec(base=str(folder), date_string="01 Mar 2025"))
    assert models.read_vocabulary(saved).tokenizer.chat_template == DATED[template]


def test_the_day_is_in_the_key_where_a_template_reads_the_clock(
    tmp_path: Path, tiny_model_dir: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    folder_with(tiny_model_dir, tmp_path / "model", TURNS)
    (tmp_path / "topics.txt").write_text("rivers\n")
    (tmp_path / "r.yaml").write_text(RECIPE)

    def settings(*overrides: str) -> Any:
        stage = load("r.yaml", overrides).stages["answers"]
        return keys.identity(stage, seed=0, upstream={})["settings"]["model"]

    before = settings()
    assert "date_string" not in before
    assert settings("stages.answers.model={base: model, date_string: 01 Mar 2025}")["date_string"] == "01 Mar 2025"
    (tmp_path / "model" / "chat_template.jinja").write_text(DATED["the clock alone"])
    assert settings()["base"] != before["base"], "the template is one of the model's files"
    with pytest.raises(Exception, match="does not match format"):
        settings("stages.answers.model={base: model, date_string: 2025-03-01}")


@pytest.mark.parametrize(
    "chance", ["{{ ['a', 'b'] | random }}", "{{ messages|map('random')|list }}", "{{ lipsum(1) }}"]
)
def test_a_template_that_draws_is_refused(tmp_path: Path, tiny_model_dir: Path, chance: str) -> None:
    folder = folder_with(tiny_model_dir, tmp_path / "model", chance + TURNS)
    with pytest.raises(DataError, match="it draws at random"):
        models.read_vocabulary(ModelSpec(base=str(folder)))
    (folder / "chat_template.jinja").write_text("{# lipsum, | random #}a | random lipsum" + TURNS)
    assert rendered(ModelSpec(base=str(folder))).startswith("a | random lipsum<|user|>")


def test_merges_are_not_left_out_by_chance(tmp_path: Path, tiny_model_dir: Path) -> None:
    folder = folder_with(tiny_model_dir, tmp_path / "model", TURNS, dropout=0.5)
    text = "The lamps of the river " * 8
    for read in (
        models.read_vocabulary(ModelSpec(base=str(folder))).tokenizer,
        load_tokenizer(ModelSpec(base=str(folder))),
    ):
        assert len({tuple(read(text).input_ids) for _ in range(20)}) == 1
