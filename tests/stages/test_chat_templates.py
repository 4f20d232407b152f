"""Models without a chat template, and one that the recipe names."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from training_helpers import a_run

from fgrl import models, rollouts
from fgrl.components.clients.local import Local
from fgrl.feedback.llm.tokens import load_tokenizer
from fgrl.kinds.specs import ModelSpec
from fgrl.types import Message, Request

TEMPLATE = "{% for m in messages %}[{{ m.role }}] {{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}[answer] {% endif %}"


@pytest.fixture
def plain(tiny_model_dir: Path, tmp_path: Path) -> Path:
    """The tiny model as a base model: its tokenizer has no chat template."""
    folder = shutil.copytree(tiny_model_dir, tmp_path / "base")
    (folder / "chat_template.jinja").unlink()
    return folder


@pytest.fixture
def template(tmp_path: Path) -> Path:
    file = tmp_path / "chat.jinja"
    file.write_text(TEMPLATE)
    return file


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> tuple[Any, list[str]]:
    """A run, and what it says."""
    run, lines = a_run(tmp_path / "stage"), []
    monkeypatch.setattr(run, "say", lambda line: None if "a new one starts from" in line else lines.append(line))
    return run, lines


def test_a_model_without_a_template_is_named_once(
    plain: Path, tiny_model_dir: Path, said: tuple[Any, list[str]]
) -> None:
    run, lines = said
    run.model(ModelSpec(base=str(plain)), head="token")
    run.model(ModelSpec(base=str(tiny_model_dir)))
    assert lines == [], "a discriminator reads plain text, and the other model has a template"
    run.model(ModelSpec(base=str(plain)), trainable=True)
    run.model(ModelSpec(base=str(plain), dtype="bfloat16"), head="scalar")
    (line,) = lines
    assert line.startswith(f"warning: {plain} has no chat template, so prompts are given to it as plain text")
    assert "`chat_template`" in line


def test_a_template_of_the_recipe_is_used_and_saved(
    plain: Path, template: Path, tmp_path: Path, said: tuple[Any, list[str]]
) -> None:
    run, lines = said
    spec = ModelSpec(base=str(plain), chat_template=str(template))
    model = run.model(spec)
    assert lines == []
    text = "[user] Why?<|end|>[answer] "
    assert model.tokenizer.decode(rollouts.encode_prompt(model.tokenizer, "Why?").token_ids).removeprefix("<s>") == text
    assert load_tokenizer(spec).chat_template == TEMPLATE
    assert model.tokenizer.decode([model.end_id]) == "<|end|>"
    models.save(model, tmp_path / "saved", {})
    again = models.load(ModelSpec(base=str(tmp_path / "saved")))
    assert again.tokenizer.chat_template == TEMPLATE
    assert run.model(ModelSpec(base=str(plain))).tokenizer.chat_template is None


def test_answers_are_kept_by_the_template_that_asked(plain: Path, template: Path, tmp_path: Path) -> None:
    def parameters(**spec: str) -> dict[str, Any]:
        client = Local(model=ModelSpec(base=str(plain), **spec), max_tokens=2)
        return client.parameters(Request(messages=[Message(role="user", content="Why?")]))

    without, first = parameters(), parameters(chat_template=str(template))
    assert "chat_template" not in without, "answers that were kept before are found"
    template.write_text(TEMPLATE.replace("answer", "reply"))
    assert len({str(p) for p in (without, first, parameters(chat_template=str(template)))}) == 3
