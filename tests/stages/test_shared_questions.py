"""Questions to a model of this machine are shared out over the processes of a stage: the bytes are those of one process, also after a
kill, and what was answered is not asked again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from shared_work import product, ranks_run

from fgrl.components.clients.local import Local
from fgrl.experiments.recipe import load

STAGES = ("preferences", "evaluate", "grade")
TEXTS = [
    "The lamp, lit at night, stands.",
    "No word of it.",
    "A lamp.",
    "Birds sing, they say.",
    "Old mills and bread",
    "It runs past",
]
RIVAL = "a quiet river"


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory, tiny_model_dir: Path) -> Path:
    """Preferences of a model, an evaluation whose reward and metric ask it, and grades of a judge and a relevance."""
    folder = tmp_path_factory.mktemp("recipe")
    spans = [{"start": 0, "end": 4, "label": 1}]
    marked = [
        {
            "id": str(number), "prompt": f"q {number}", "chosen": 0, "rubric": [{"text": "Be kind."}], "meta": {"kept": True},
            "responses": [{"text": text, "annotations": [{"by": "x", "spans": spans}]}, {"text": RIVAL}],
        }
        for number, text in enumerate(TEXTS)
    ]  # fmt: skip
    (folder / "marked.jsonl").write_text("\n".join(map(json.dumps, marked)))
    (folder / "both.txt").write_text("{first} or {second}?")
    marks, base = {"name": "jsonl", "path": "marked.jsonl"}, "${vars.base}"
    client = {"name": "local", "model": base, "max_tokens": 4, "batch_size": 2}
    judge = {"client": client, "prompt": "both.txt"}
    weighed = {"weighting": "logprob", "top_logprobs": 2000}
    preference = {"name": "preference", "verdict": "logprobs", "top_logprobs": 2000}
    stages: dict[str, dict[str, Any]] = {
        "preferences": {"name": "annotate", "data": marks, "annotator": preference | judge},
        "evaluate": {
            "name": "evaluate", "prompts": marks, "models": {"one": base, "other": {"base": base, "dtype": "bfloat16"}}, "baseline": "one",
            "rewards": {"first": {"name": "first_token", "client": client}}, "metrics": ["length", {"name": "win_rate"} | weighed | judge],
            "sampling": {"max_new_tokens": 4, "batch_size": 2, "temperature": 1.0},
        },
        "grade": {
            "name": "grade", "left": marks, "right": {"same": marks}, "policy": base, "relevance": {"weighed": {"name": "weighed", "model": base}},
            "batch_size": 2, "judge": judge | {"tries": 1},
        },
    }  # fmt: skip
    for stage in stages.values():
        stage["devices"] = "${vars.devices}"
    about = {"about": "Questions that are shared out.", "vars": {"base": str(tiny_model_dir), "devices": 1}}
    own = Path(__file__).parents[1] / "support" / "shared_asking.py"
    path = folder / "shared.yaml"
    path.write_text(yaml.safe_dump(about | {"imports": [str(own)], "stages": stages}, sort_keys=False))
    return path


def noting(folder: Path, last: int | None = None) -> Callable[[int], None]:
    """Answers of the model, and weighings, are counted in files. last: rank 1 ends before this batch of answers."""
    share = Local.answer_share

    def disturb(rank: int) -> None:
        os.environ["WEIGHED"] = str(folder / "weighed")

        def noted(self: Local, work: list[Any]) -> Any:
            answered = folder / f"answered-{rank}"
            if rank and last is not None and answered.exists() and len(answered.read_text().split()) >= last:
                os._exit(1)
            found = share(self, work)
            with answered.open("a") as file:
                file.writelines(f"{asked.key}\n" for batch in work for asked in batch)
            return found

        Local.answer_share = noted  # type: ignore[method-assign]

    return disturb


def answered(folder: Path, rank: int) -> list[str]:
    file = folder / f"answered-{rank}"
    return file.read_text().split() if file.exists() else []


@pytest.fixture(scope="module")
def alone(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[dict[str, bytes], set[str]]]:
    """What one process makes, and what it asks."""
    folder = tmp_path_factory.mktemp("alone")
    made = {}
    for stage in STAGES:
        place = folder / stage
        place.mkdir()
        assert ranks_run(recipe, place / "run", stage, 1, noting(place)) == [0], (place / "run" / "said-0").read_text()
        asked = answered(place, 0)
        assert len(set(asked)) == len(asked)
        made[stage] = product(place / "run", stage), set(asked)
    return made


@pytest.mark.parametrize("stage", STAGES)
def test_two_processes_make_the_bytes_of_one_and_each_answers_a_part(
    stage: str, recipe: Path, tmp_path: Path, alone: dict[str, tuple[dict[str, bytes], set[str]]]
) -> None:
    made, asked = alone[stage]
    ended = ranks_run(recipe, tmp_path / "run", stage, 2, noting(tmp_path))
    assert ended == [0, 0], (tmp_path / "run" / "said-0").read_text()
    first, second = answered(tmp_path, 0), answered(tmp_path, 1)
    assert len(second) >= 4
    assert sorted([*first, *second]) == sorted(asked)
    assert product(tmp_path / "run", stage) == made
    assert (tmp_path / "run" / "said-1").read_text() == ""


@pytest.mark.parametrize("stage", ["evaluate", "grade"])
def test_what_was_answered_before_a_process_was_lost_is_kept(
    stage: str, recipe: Path, tmp_path: Path, alone: dict[str, tuple[dict[str, bytes], set[str]]]
) -> None:
    """The second process ends after its first batches; one process goes on, asks what is left, and makes the same."""
    made, asked = alone[stage]
    ended = ranks_run(recipe, tmp_path / "run", stage, 2, noting(tmp_path, last=2))
    assert ended == [8, 1], (tmp_path / "run" / "said-0").read_text()
    kept = set(answered(tmp_path, 1))
    weighed = (tmp_path / "weighed").read_text() if stage == "grade" else ""
    again = tmp_path / "again"
    again.mkdir()
    assert ranks_run(recipe, tmp_path / "run", stage, 1, noting(again)) == [0]
    assert product(tmp_path / "run", stage) == made
    assert kept
    assert set(answered(again, 0)) <= asked - kept
    assert weighed == ("xxx" if stage == "grade" else "")
    assert not (again / "weighed").exists()


def test_an_endpoint_needs_no_more_processes(recipe: Path) -> None:
    endpoint = "{name: openai, model: m, base_url: 'http://127.0.0.1:1/v1', api_key_env: null}"
    changes = [f"stages.preferences.annotator.client={endpoint}", "vars.devices=2"]
    stages = load(recipe, changes).stages
    assert {name: stage.processes() for name, stage in stages.items()} == {"preferences": 1, "evaluate": 2, "grade": 2}
    assert stages["preferences"].warnings() == [
        "devices is 2, and one process is enough: servers or an endpoint do the work, or no model does"
    ]
