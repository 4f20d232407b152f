"""The first screen of the page: what was trained and where, its main curve, one pair of answers, and tables that scroll."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from fake_runs import fake_run, write_json, write_lines
from pages import HOSTILE, assert_safe, change, page, stage

RECIPE = """seed: 7
stages:
  reward_model: {name: finetune, algorithm: bradley_terry, model: {base: tiny-llama, head: scalar}}
  policy: {name: rl, algorithm: {name: ppo, kl_coef: 0.01}, model: {base: "${out:reward_model}"}}
  evaluate: {name: evaluate, models: {policy: "${out:policy}"}}
"""


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = fake_run(tmp_path, prompts=4, points=10, steps=30)
    (folder / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    change(folder / "environment.json", platform="Linux-6.1", cores=2)
    return folder


def first_screen(run: Path) -> tuple[str, str]:
    """What is above the links to the sections, and its words."""
    text, parsed = page(run)
    assert_safe(text, parsed)
    above = text[text.index("<header>") : text.index("<nav")]
    return above, re.sub(r"\s+", " ", re.sub("<[^>]*>", " ", above).replace("&nbsp;", " "))


def test_it_says_what_was_trained_and_where(run: Path) -> None:
    _, words = first_screen(run)
    assert "reward_model bradley_terry on tiny-llama, 30 steps" in words
    assert "policy ppo on the model of reward_model, 14 iterations" in words
    assert "evaluate " not in words.partition("seed 7")[0].partition("policy ppo")[2]
    assert "seed 7 Linux-6.1, 2 cores" in words


def test_a_training_that_has_not_ended_shows_its_steps_so_far(run: Path) -> None:
    write_lines(stage(run, "policy") / "log.jsonl", [{"step": step, "reward": 1.0} for step in range(5)])
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    summary["stages"]["policy"]["summary"] = {}
    write_json(run / "summary.json", summary)
    assert "policy ppo on the model of reward_model, 5 steps so far" in first_screen(run)[1]


def test_it_has_the_curve_of_what_the_last_training_was_evaluated_by_or_of_its_reward(run: Path) -> None:
    rows = [{"step": step, "loss": 1.0, "reward": float(step)} for step in range(4)]
    write_lines(stage(run, "policy") / "log.jsonl", rows)
    above, _ = first_screen(run)
    assert re.findall(r'<figcaption><span title="(.*?)"', above) == ["reward"]
    assert above.count('<svg class="plot"') == 1
    ends = {"held_out/rule.kept": 0.5, "held_out/rule.kept/low": 0.4, "held_out/rule.kept/high": 0.6}
    write_lines(stage(run, "policy") / "log.jsonl", [*rows, {"step": 3} | ends])
    assert re.findall(r'<figcaption><span title="(.*?)"', first_screen(run)[0]) == ["held_out/rule.kept"]


def test_it_has_one_pair_of_answers(run: Path) -> None:
    lines = [
        {"model": model, "sample": {"id": id, "prompt": f"Why {id}?"}, "response": {"text": f"{model} says {id}.", "finished": True}}
        for model, id in (("policy", "a"), ("sft", "b"), ("policy", "b"), ("policy", "c"), ("sft", "c"))
    ]  # fmt: skip
    write_lines(stage(run, "evaluate") / "out" / "answers.jsonl", lines)
    _, words = first_screen(run)
    assert "Answers before and after prompt Why b? before sft says b. after policy says b." in words
    assert "Why c?" not in words
    write_lines(stage(run, "evaluate") / "out" / "answers.jsonl", lines[:1])
    assert "Answers before and after" not in first_screen(run)[1]


def test_nothing_of_it_runs(run: Path) -> None:
    for text in HOSTILE:
        escaped = text.encode("utf-8", "replace").decode().replace("\x00", "").replace("'", "''")
        quoted = "".join(character for character in escaped if character.isprintable())
        recipe = (
            f"seed: 1\nstages:\n  policy: {{name: rl, algorithm: {{name: '{quoted}'}}, model: {{base: '{quoted}'}}}}\n"
        )
        (run / "recipe.yaml").write_text(recipe, encoding="utf-8")
        change(run / "environment.json", platform=quoted)
        first_screen(run)


def test_broken_settings_leave_facts_out(run: Path) -> None:
    (run / "recipe.yaml").write_text(
        "seed: [1]\nstages: {policy: {algorithm: [3], model: 4}, x: {algorithm: {}}}\n", encoding="utf-8"
    )
    write_json(run / "environment.json", {"platform": None, "cores": "many"})
    first_screen(run)


class Tables(HTMLParser):
    """Tables that stand in no element that scrolls, and how many there are."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[bool] = []
        self.count, self.fixed = 0, 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.count += 1
            self.fixed += not any(self.open)
        if tag == "div":
            self.open.append("scroll" in (dict(attrs).get("class") or "").split())

    def handle_endtag(self, tag: str) -> None:
        if tag == "div":
            self.open.pop()


def test_every_table_scrolls_in_itself_and_keeps_its_first_column(run: Path) -> None:
    text, _ = page(run)
    found = Tables(text)
    assert found.count >= 3
    assert found.fixed == 0
    css = text.partition("</style>")[0]
    assert re.search(r"\.scroll \{[^}]*overflow-x: auto", css)
    assert re.search(r"\.scroll tbody th \{[^}]*position: sticky", css)
