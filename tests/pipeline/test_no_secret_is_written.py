"""Forty planted secrets, and what is written, printed and sent: none of them is in it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from pipeline_helpers import fgrl, fgrl_here, recipe_file
from planted_secrets import MARKS, SETTINGS
from secret_examples import FORMS, made

LEAKY = '''
"""A stage that tells what it knows."""

import logging, os, warnings
from fgrl.kinds import Stage
from fgrl.registry import register
from fgrl.types import Report

@register("leaky")
class Leaky(Stage):
    """Tells every secret of its environment."""
    makes = Report
    uses_torch = False
    fails: bool = False
    """Raise an error that quotes them."""

    def run(self, run):
        known = {name: os.environ[name] for name in sorted(os.environ) if name.startswith("PLANTED_")}
        for value in known.values():
            run.say(f"connecting with {value} now")
            run.console.note(f"noted {value}")
            run.log({f"of {value}": 1.0}, step=0)
            logging.getLogger("a.library").warning("refused: %s", value)
            warnings.warn(value)
        with run.progress(" ".join(known.values()), 1) as ticking:
            ticking.advance(1, last=str(known))
        if self.fails:
            raise RuntimeError(f"401: {known}")
        return {"told": list(known.values()), "by name": known, "count": len(known)}
'''


REWARDS = """
import logging, os, warnings
from pathlib import Path

WORDS = Path(__file__).with_name("words.txt").read_text().splitlines()

def score(completions, api_key_env, fails, log_metric=None, **others):
    known = [os.environ[api_key_env], *WORDS]
    for text in known:
        warnings.warn(f"{text} is old")
        logging.getLogger("a.library").warning("refused: %s", text)
    if fails:
        raise RuntimeError(f"401: {known}")
    log_metric(f"calls with {known[0]}", 1.0)
    return [float(len(each)) for each in completions]
"""
TRAINED = """
about: "A reward that asks a service."
stages:
  policy:
    name: rl
    prompts: {{name: lines, path: topics.txt}}
    model: {{base: {base}, lora: {{r: 2, alpha: 4}}}}
    reward: {{name: function, path: "rewards.py:score", arguments: {{api_key_env: MY_OWN, fails: false}}}}
    algorithm: {{name: grpo, kl_coef: 0.0}}
    rollout: {{batch_size: 4, per_prompt: 2, sampling: {{max_new_tokens: 4, max_prompt_tokens: 16}}}}
    train: {{lr: 1e-2, iterations: 1, batch_size: 4, micro_batch_size: 4, accelerator: cpu}}
track: [tensorboard]
"""


def planted(value: object) -> list[str]:
    """The texts and numbers in settings."""
    if isinstance(value, dict):
        return [text for item in value.values() for text in planted(item)]
    return [text for item in value for text in planted(item)] if isinstance(value, list) else [str(value)]


def left_in(text: str) -> list[str]:
    return [mark for mark in MARKS if mark in text]


def left_below(folder: Path) -> dict[str, list[str]]:
    """The marks in the bytes and the names of all files, by file."""
    found = {}
    for file in folder.rglob("*"):
        marks = left_in(str(file))
        if file.is_file() and not file.is_symlink():
            content = file.read_bytes()
            marks += [mark for mark in MARKS if mark.encode() in content]
        if marks:
            found[str(file)] = marks
    return found


@pytest.mark.parametrize("command", ["validate", "plan", "run"])
def test_a_recipe_that_holds_secrets_is_refused_and_not_quoted(command: str, tmp_path: Path) -> None:
    recipe = recipe_file(tmp_path, "{first: {name: counting, steps: 3}}")
    recipe.write_text(recipe.read_text() + yaml.safe_dump({"vars": SETTINGS}))
    done = fgrl_here(command, recipe, cwd=tmp_path)
    assert done.returncode == 2
    assert left_in(done.stdout + done.stderr) == []
    for name in SETTINGS:
        assert f"vars.{name}" in done.stderr or "... and" in done.stderr
    assert "vars.X-Api-Key: looks like a secret" in done.stderr
    assert "api_key_env: MY_KEY" in done.stderr
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("name", SETTINGS)
def test_each_is_refused_wherever_it_stands(name: str, tmp_path: Path) -> None:
    recipe = recipe_file(tmp_path, "{first: {name: counting, steps: 3}}")
    given = json.dumps(SETTINGS[name])
    done = fgrl_here("run", recipe, f"stages.first.{name}={given}", cwd=tmp_path)
    assert done.returncode == 2
    assert "looks like a secret" in done.stderr
    assert left_in(done.stdout + done.stderr) == []
    assert not (tmp_path / "runs").exists()


def test_a_recipe_that_cannot_be_read_is_quoted_without_its_secret(tmp_path: Path) -> None:
    recipe = tmp_path / "broken.yaml"
    recipe.write_text("about: x\nstages: {first: {name: counting, api_key: planted-01-value, ]}}\n")
    done = fgrl_here("validate", recipe, cwd=tmp_path)
    assert done.returncode == 2
    assert left_in(done.stdout + done.stderr) == []


def test_a_run_tells_nobody_what_its_environment_holds(tmp_path: Path) -> None:
    (tmp_path / "leaky.py").write_text(LEAKY)
    stages = "{fine: {name: leaky}, failing: {name: leaky, fails: true}}"
    recipe = tmp_path / "leaky.yaml"
    recipe.write_text(f"about: A stage that talks.\nimports: [leaky.py]\nstages: {stages}\ntrack: [tensorboard]\n")
    secrets = {f"PLANTED_TOKEN_{number}": value for number, value in enumerate(planted(SETTINGS))}
    done = fgrl("run", recipe, cwd=tmp_path, **secrets)
    assert done.returncode != 0
    assert "connecting with <key> now" in done.stderr
    assert left_in(done.stdout + done.stderr) == []
    (folder,) = (tmp_path / "runs" / "leaky").iterdir()
    record = json.loads((folder / "stages" / "fine" / "stage.json").read_text())
    assert record["summary"]["count"] == len(secrets)
    assert "401" in (folder / "run.log").read_text()
    assert (folder / "report.html").is_file()
    assert (folder / "tensorboard").is_dir()
    assert left_below(tmp_path / "runs") == {}


@pytest.mark.parametrize("fails", ["false", "true"])
def test_a_run_tells_nobody_what_its_settings_name(fails: str, tmp_path: Path, tiny_model_dir: Path) -> None:
    words, examples = ["a plain passphrase", "another-word-of-it"], [made(form) for form in FORMS]
    (tmp_path / "rewards.py").write_text(REWARDS)
    (tmp_path / "words.txt").write_text("\n".join([words[1], *(secret for secret, _ in examples)]))
    (tmp_path / "topics.txt").write_text("rivers\nlamps\nbirds\nbread\n")
    recipe = tmp_path / "r.yaml"
    recipe.write_text(TRAINED.format(base=json.dumps(str(tiny_model_dir))))
    setting = f"stages.policy.reward.arguments.fails={fails}"
    done = fgrl("run", recipe, setting, cwd=tmp_path, MY_OWN=words[0])
    assert (done.returncode == 0) == (fails == "false"), done.stderr
    (folder,) = (tmp_path / "runs" / "r").iterdir()
    assert (folder / "report.html").is_file()
    assert words[1] in (folder / "run.log").read_text(), "which no setting names"
    written = [done.stdout, done.stderr]
    written += [file.read_text(errors="replace") for file in (tmp_path / "runs").rglob("*") if file.is_file()]
    for hidden in (words[0], *(part for _, parts in examples for part in parts)):
        assert [text for text in written if hidden in text.replace("\n", "")] == [], hidden


def test_a_page_about_an_earlier_run_leaves_out_what_that_wrote(tmp_path: Path) -> None:
    recipe = recipe_file(tmp_path, "{first: {name: counting, steps: 3}}")
    assert fgrl_here("run", recipe, cwd=tmp_path).returncode == 0
    (folder,) = (tmp_path / "runs" / "fake").iterdir()
    settings = yaml.safe_load((folder / "recipe.yaml").read_text())
    settings["stages"]["first"]["arguments"] = SETTINGS
    (folder / "recipe.yaml").write_text(yaml.safe_dump(settings, sort_keys=False))
    summary = json.loads((folder / "summary.json").read_text())
    summary["command"] += [f"stages.first.arguments.{name}={value}" for name, value in SETTINGS.items()]
    summary["error"] = f"it failed with {SETTINGS}"
    (folder / "summary.json").write_text(json.dumps(summary))
    with (folder / "run.log").open("a") as log:
        log.write(f"{SETTINGS}\n" + "\n".join(planted(SETTINGS)))
    done = fgrl_here("report", folder, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert left_in((folder / "report.html").read_text()) == []
