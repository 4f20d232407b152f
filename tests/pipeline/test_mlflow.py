"""What a run sends to MLflow, read back from a store in a folder."""

from __future__ import annotations

import getpass
import socket
from pathlib import Path
from typing import Any

import pytest
from pipeline_helpers import HERE, fgrl, fgrl_here, names, recipe_file

from fgrl.experiments.pipeline.tracking import MLFLOW_PARAMETERS

SECRET = "sk-not-for-anybody-4b1f"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """MLflow's client of a store, of which the processes of the test know."""
    mlflow = pytest.importorskip("mlflow", reason="needs mlflow: pip install 'fgrl[mlflow]'")
    environment = {
        "ALLOW_FILE_STORE": "true",
        "DISABLE_TELEMETRY": "true",
        "TRACKING_URI": (tmp_path / "store").as_uri(),
    }
    for name, value in environment.items():
        monkeypatch.setenv(f"MLFLOW_{name}", value)
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    return mlflow.MlflowClient(environment["TRACKING_URI"])


def runs_of(store: Any, experiment: str = "small") -> list[Any]:
    found = store.search_runs([store.get_experiment_by_name(experiment).experiment_id])
    return sorted(found, key=lambda run: run.data.tags["fgrl_run"])


def tracked(folder: Path, stages: str) -> Path:
    recipe = recipe_file(folder, stages)
    recipe.write_text(f"{recipe.read_text()}track: [{{mlflow: {{experiment: small}}}}]\n")
    return recipe


def test_a_run_has_parameters_metrics_steps_and_no_secret(tmp_path: Path, store: Any) -> None:
    table = ", ".join(f"'key @{number}': {number}" for number in range(MLFLOW_PARAMETERS))  # more than a request takes
    recipe = tracked(
        tmp_path,
        f"{{first: {{name: counting, steps: 3, inner: {{table: {{{table}}}}}}}, second: {{name: counting, steps: 2}}}}",
    )
    done = fgrl("run", recipe, "seed=3", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (run,) = runs_of(store)
    (folder,) = (tmp_path / "runs" / "fake").iterdir()
    assert (run.info.status, run.info.run_name) == ("FINISHED", f"fake/{folder.name}")
    assert (run.data.params["seed"], run.data.params["stages.first.steps"]) == ("3", "3")
    assert run.data.params[f"stages.first.inner.table.key _{MLFLOW_PARAMETERS - 1}"] == str(MLFLOW_PARAMETERS - 1)
    for stage, steps in (("first", 3), ("second", 2)):
        history = store.get_metric_history(run.info.run_id, f"{stage}/count")
        assert [(each.step, each.value) for each in history] == [(step, step) for step in range(steps)]
        assert run.data.metrics[f"{stage}/counted"] == steps
    files = [file for file in (tmp_path / "store").rglob("*") if file.is_file() and file.name != "meta.yaml"]
    kept = "".join(file.read_text() for file in files)
    for secret in (SECRET, str(tmp_path), str(HERE), f"\n{getpass.getuser()}\n"):
        assert secret not in kept
    assert not names(kept, socket.gethostname())


def test_a_run_that_failed_is_one_that_failed(tmp_path: Path, store: Any) -> None:
    done = fgrl("run", tracked(tmp_path, "{first: {name: failing, how: data}}"), cwd=tmp_path)
    assert done.returncode == 3
    assert [run.info.status for run in runs_of(store)] == ["FAILED"]


def test_the_points_of_a_sweep_are_runs_with_their_parameters(tmp_path: Path, store: Any) -> None:
    tracked(tmp_path, "{last: {name: descending, steps: 2}}")
    done = fgrl("run", "fake.yaml", "stages.last.level=1.0,3.0", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (sweep,) = (tmp_path / "runs" / "sweeps").iterdir()
    for number, (run, level) in enumerate(zip(runs_of(store), (1.0, 3.0), strict=True), start=1):
        tags = run.data.tags
        assert (tags["fgrl_run"], tags["fgrl_sweep"]) == (f"{sweep.name}-{number}", sweep.name)
        assert (run.data.params["stages.last.level"], run.data.metrics["last/loss"]) == (str(level), level / 2)


def test_without_the_package_the_command_that_installs_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fgrl.base.errors.find_spec", lambda package: None)
    refused = fgrl_here("run", tracked(tmp_path, "{first: {name: counting}}"), cwd=tmp_path)
    assert refused.returncode == 2
    assert "pip install 'fgrl[mlflow]'" in refused.stderr


def test_the_experiment_may_be_an_option_of_the_command(tmp_path: Path, store: Any) -> None:
    done = fgrl("run", recipe_file(tmp_path, "{first: {name: counting, steps: 2}}"), "--mlflow", "small", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (run,) = runs_of(store)
    assert run.data.metrics["first/counted"] == 2
    done = fgrl("run", tmp_path / "fake.yaml", "seed=1,2", "--mlflow", "grid", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [run.data.params["seed"] for run in runs_of(store, "grid")] == ["1", "2"]
