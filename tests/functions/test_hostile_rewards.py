"""`fgrl run` with hostile reward functions, each in a fork of this process, which has loaded everything."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from forks import command
from hostile_rewards import CHANGES, HARMLESS, OTHER_CODES, PLAIN, WRONG, Case
from tiny_recipe import weights

RECIPE = """
about: "A hostile reward."
seed: 3
stages:
  policy:
    name: rl
    prompts: {{name: lines, path: topics.txt}}
    model: {{base: {base}, lora: {{r: 4, alpha: 8, dropout: 0.3}}}}
    reward: {{name: function, path: rewards.py:score}}
    algorithm: {{name: grpo, kl_coef: 0.0}}
    rollout: {{batch_size: 4, per_prompt: 2, sampling: {{max_new_tokens: 6, max_prompt_tokens: 16}}}}
    train: {{lr: 1e-2, iterations: 2, batch_size: 4, micro_batch_size: 4, accelerator: cpu, warmup: 0.0}}
"""


@dataclass
class Ran:
    """How `fgrl run` ended in a fork."""

    folder: Path
    code: int
    said: str

    @property
    def done(self) -> list[Path]:
        return list(self.folder.glob("runs/stages/*/stage.json"))


@pytest.fixture(scope="module")
def run(tiny_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Ran]:
    base = json.dumps(str(tiny_model_dir))

    def ran(source: str) -> Ran:
        folder = tmp_path_factory.mktemp("hostile")
        (folder / "recipe.yaml").write_text(RECIPE.format(base=base), encoding="utf-8")
        (folder / "topics.txt").write_text("rivers\nlamps\nbirds\nbread\n", encoding="utf-8")
        (folder / "rewards.py").write_text(source, encoding="utf-8")

        return Ran(folder, *command(folder, "run", "recipe.yaml"))

    return ran


@pytest.fixture(scope="module")
def plain(run: Callable[[str], Ran]) -> dict[str, str]:
    """What is trained with a friendly function."""
    ran = run(Case(PLAIN, "").source())
    assert ran.code == 0, ran.said
    return weights(ran.done[0].parent / "out")


def test_there_are_more_than_sixty() -> None:
    assert len(WRONG) + len(OTHER_CODES) + len(CHANGES) + len(HARMLESS) > 60


@pytest.mark.parametrize("name", WRONG)
def test_a_hostile_function_is_reported_at_its_line(name: str, run: Callable[[str], Ran]) -> None:
    case = WRONG[name]
    ran = run(case.source())
    assert ran.code == 7, ran.said
    (reported,) = [line for line in ran.said.splitlines() if line.startswith("rewards.py:")]
    assert reported.startswith(f"rewards.py:{case.reported_line}: score "), ran.said
    assert case.says in reported
    assert "Traceback" not in ran.said
    assert not ran.done


def test_no_reward_at_all_comes_with_an_example(run: Callable[[str], Ran]) -> None:
    said = run(WRONG["no reward at all"].source()).said
    assert "Did it learn" not in said, "nothing is concluded of a run that failed"
    assert said.splitlines()[-1].startswith(
        "not finished (exit code 7): the same command continues; log and report: runs/"
    )
    assert re.search(
        r"\n    = for example '.*', the answer to 'Write one or two sentences about rivers[.]'\n    = correct it", said
    ), said


@pytest.mark.parametrize("name", OTHER_CODES)
def test_it_ends_with_a_documented_code(name: str, run: Callable[[str], Ran]) -> None:
    case, code = OTHER_CODES[name]
    ran = run(case.source())
    assert ran.code == code, ran.said
    assert case.says in ran.said
    assert "Traceback" not in ran.said
    assert not ran.done


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_the_whole_process_stops_the_run(name: str, run: Callable[[str], Ran]) -> None:
    before, changed = CHANGES[name]
    ran = run(Case(f"{before}\n{PLAIN}", "").source())
    assert ran.code == 7, ran.said
    assert f"rewards.py:score changed {changed} of the whole process" in ran.said
    assert "Traceback" not in ran.said
    assert not ran.done


@pytest.mark.parametrize("name", HARMLESS)
def test_what_does_not_matter_changes_no_weight(name: str, run: Callable[[str], Ran], plain: dict[str, str]) -> None:
    ran = run(Case(f"{HARMLESS[name]}\n{PLAIN}", "").source())
    assert ran.code == 0, ran.said
    assert weights(ran.done[0].parent / "out") == plain
    assert "Traceback" not in ran.said
