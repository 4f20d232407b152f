"""`sweeps/small/kl_by_cutoff.yaml`, reduced: real trainings of a small model, one reward model for each cutoff, whatever `--jobs` is."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml
from pipeline_helpers import ROOT, fgrl
from small_sweep import FILE, reduced

from fgrl.experiments import recipe as recipes
from fgrl.runs.results.sweep_records import read_sweep_record

pytestmark = pytest.mark.usefixtures("warm")


def numbers(runs: Path) -> list[Any]:
    (folder,) = (runs / "sweeps").iterdir()
    record = read_sweep_record(folder)
    assert record is not None
    assert all(point.state == "finished" for point in record.points), [point.error for point in record.points]
    assert record.lead is not None
    assert record.lead.difference is not None, record.lead.note
    assert record.lead.difference.low is not None
    return [(point.parameters, point.numbers) for point in record.points]


def test_the_shipped_file_has_4_reward_models_and_16_policies() -> None:
    sweep = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    assert [len(each["values"]) for each in sweep["parameters"].values()] == [4, 4]
    assert recipes.load(ROOT / sweep["command"][2]).stages["policy"].train.iterations == 12


def test_points_share_reward_models_and_the_numbers_do_not_depend_on_jobs(tmp_path: Path) -> None:
    file = reduced(tmp_path)
    for runs, jobs in (("one", 1), ("two", 2)):
        done = fgrl("sweep", file, "--runs", runs, "--jobs", jobs, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        stages = [
            folder.name.partition("-")[0] for folder in (tmp_path / runs / "stages").iterdir() if folder.name[0] != "."
        ]
        assert Counter(stages) == {
            "blank": 1, "start": 1, "reward_model": 2, "calibrate": 2, "policy": 4, "evaluate": 4,
        }  # fmt: skip
    assert numbers(tmp_path / "one") == numbers(tmp_path / "two")
