"""What a run sends to Weights & Biases, read back from the file that W&B writes offline."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pipeline_helpers import HERE, fgrl, names, recipe_file

BLOCK, WHOLE, LAST = 32 * 1024, 1, 4
SECRET = "sk-not-for-anybody-4b1f"


def records(file: Path) -> Iterator[Any]:
    """The records of a `.wandb` file: a 7-byte header, then blocks of 32 KiB with fragments of (checksum, length, kind, bytes)."""
    wandb_internal = pytest.importorskip(
        "wandb.proto.wandb_internal_pb2", reason="needs wandb: pip install 'fgrl[wandb]'"
    )
    content, at, whole = file.read_bytes(), 7, b""
    assert content[:4] == b":W&B"
    while at + 7 <= len(content):
        if BLOCK - at % BLOCK < 7:
            at += BLOCK - at % BLOCK
            continue
        _checksum, length, kind = struct.unpack_from("<IHB", content, at)
        whole += content[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (WHOLE, LAST):
            yield wandb_internal.Record.FromString(whole)
            whole = b""


def offline_run(file: Path) -> SimpleNamespace:
    """What W&B kept of a run: `about`, `config`, `history` (rows), `summary`, exit `code`, and the `text` of all its files."""
    run = SimpleNamespace(config={}, history=[], summary={}, code=None, about=None, text="", sent="")

    def items(listed: Any) -> dict[str, Any]:
        return {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in listed}

    for record in records(file):
        run.sent += str(record)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            run.about = record.run
            run.config |= items(record.run.config.update)
        elif kind == "config":
            run.config |= items(record.config.update)
        elif kind == "history":
            run.history.append({name: value for name, value in items(record.history.item).items() if name[0] != "_"})
        elif kind == "summary":
            run.summary |= items(record.summary.update)
        elif kind == "exit":
            run.code = record.exit.exit_code
    others = [each for each in file.parent.parent.rglob("*") if each.is_file() and each.suffix != ".wandb"]
    run.sent += "".join(each.read_text(errors="replace") for each in others if each.parent.name == "files")
    run.text += run.sent + "".join(each.read_text(errors="replace") for each in others)
    return run


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The environment of a run that W&B keeps on this machine, with secrets in it."""
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        monkeypatch.delenv(name)
    folders = {name: str(tmp_path / "wandb") for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR")}
    secrets = dict.fromkeys(("WANDB_API_KEY", "OPENAI_API_KEY", "HF_TOKEN"), SECRET)
    return {"WANDB_MODE": "offline", **folders, **secrets}


def test_an_offline_run_has_config_metrics_steps_and_no_secret(tmp_path: Path, offline: dict[str, str]) -> None:
    pytest.importorskip("wandb", reason="needs wandb: pip install 'fgrl[wandb]'")
    recipe = recipe_file(tmp_path, "{first: {name: counting, steps: 3}, second: {name: counting, steps: 2}}")
    recipe.write_text(f"{recipe.read_text()}track: [{{wandb: {{project: large, tags: [a], group: g}}}}]\n")
    # as the agent of a sweep starts it: with its run's id, and `--key=value`
    overrides = ["--seed=3", "--stages.first.steps=4"]
    done = fgrl("run", recipe, "--wandb", "small", *overrides, cwd=tmp_path, WANDB_RUN_ID="of-the-agent", **offline)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "runs" / "fake").iterdir()
    runs = [offline_run(file) for file in sorted(folder.rglob("*.wandb"))]
    assert len(runs) == 2, "W&B keeps one file for each stage; the run's id makes them one W&B run"
    for run in runs:
        assert (run.about.project, list(run.about.tags), run.about.run_group) == ("small", ["a"], "g")
        assert (run.about.run_id, run.about.display_name) == ("of-the-agent", f"fake/{folder.name}")
        assert (run.config["seed"], run.config["stages"]["first"]["steps"], run.code) == (3, 4, 0)
        assert SECRET not in run.text
        for place in (str(tmp_path), str(Path.home()), str(HERE), socket.gethostname()):
            assert not names(run.sent, place)
        assert run.config["imports"] == ["fake_stages.py"]
    logged = {
        name: [row for run in runs for row in run.history if f"{name}/step" in row] for name in ("first", "second")
    }
    assert logged == {
        "first": [{"first/step": step, "first/count": step} for step in range(4)],
        "second": [{"second/step": step, "second/count": step} for step in range(2)],
    }
    summaries = {name: value for run in runs for name, value in run.summary.items()}
    assert (summaries["first/counted"], summaries["second/counted"]) == (4, 2), "what the stages summarize"
    assert SECRET not in done.stdout + done.stderr
    assert set(tmp_path.rglob("*.wandb")) == set(folder.rglob("*.wandb")), "nothing outside of the run's folder"


def test_the_points_of_a_sweep_are_a_group_whose_charts_find_parameters_and_numbers(
    tmp_path: Path, offline: dict[str, str]
) -> None:
    """W&B's parallel coordinates and importance read the config by a parameter's name, and the summary by a number's."""
    pytest.importorskip("wandb", reason="needs wandb: pip install 'fgrl[wandb]'")
    recipe_file(tmp_path, "{first: {name: counting, steps: 2}, last: {name: descending, steps: 2, of: '${out:first}'}}")
    (tmp_path / "s.yaml").write_text(
        'program: fgrl\ncommand: ["${program}", run, fake.yaml, --wandb, of-the-agent, "${args_no_hyphens}"]\n'
        "method: grid\nmetric: {name: last/loss, goal: minimize}\n"
        "parameters: {stages.last.level: {values: [1.0, 3.0]}, seed: {value: 4}}\n"
    )
    quiet = fgrl("sweep", "s.yaml", "--runs", "without", cwd=tmp_path, **offline)
    assert quiet.returncode == 0, quiet.stderr
    assert not list(tmp_path.rglob("*.wandb")), "the project in the command is for W&B's agent"
    done = fgrl("sweep", "s.yaml", "--wandb", "small", cwd=tmp_path, **offline)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "runs" / "sweeps").iterdir()
    runs = [offline_run(file) for file in sorted(tmp_path.rglob("*.wandb"))]
    assert {(run.about.project, run.about.run_group) for run in runs} == {("small", folder.name)}
    points = {run.about.run_id: run for run in runs if "stages.last.level" in run.config}
    assert set(points) == {f"{folder.name}-1", f"{folder.name}-2"}
    for number, level in ((1, 1.0), (2, 3.0)):
        run = points[f"{folder.name}-{number}"]
        assert run.config["stages.last.level"] == level == run.config["stages"]["last"]["level"]
        assert run.config["seed"] == 4
        assert run.config["sweep"] == {"id": folder.name, "point": number}
        assert run.summary["last/loss"] == level / 2
        assert SECRET not in run.text
    shared = [run for run in runs if run not in points.values()]
    assert len(shared) == 1, "the stage that both points need"
    assert shared[0].summary["first/counted"] == 2
