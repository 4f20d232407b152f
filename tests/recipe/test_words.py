"""What has run is found by settings, without a plan: of a folder no key is computed, no data and no code of stages is opened."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from import_walk import ROOT
from patience import HUNG
from pipeline_helpers import fgrl_here, recipe_file

from fgrl.experiments.pipeline import keys, planning
from fgrl.library.named import _moved
from fgrl.runs.folders import Runs

STAGES = (
    "{first: {name: counting, steps: 3, words: words.txt}, second: {name: counting, source: '${out:first}'}, "
    "evaluate: {name: measuring, value: 0.5, of: '${out:second}'}}"
)
REFUSED = ("experiments", "training", "models", "components", "kinds", "data", "rollouts")
"""Rooms that printing the numbers of a folder does not need."""
BLOCKED = f"""
import sys
class Refusing:
    def find_spec(self, name, path=None, target=None):
        parts = name.split(".")
        if parts[0] in ("torch", "transformers", "lightning") or (parts[0] == "fgrl" and parts[1:2] and parts[1] in {REFUSED}):
            raise ImportError(f"{{name}} is blocked")
sys.meta_path.insert(0, Refusing())
from fgrl.cli import main
try:
    main(sys.argv[1:])
finally:
    print(sum(name.split(".")[0] == "fgrl" for name in sys.modules), file=sys.stderr)
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recipe that has run, with a file."""
    folder = tmp_path_factory.mktemp("ran")
    (folder / "words.txt").write_text("one\n")
    os.utime(folder / "words.txt", (0, 0))
    recipe_file(folder, STAGES)
    assert fgrl_here("run", "fake.yaml", "-q", cwd=folder).returncode == 0
    return folder


@pytest.fixture
def world(ran: Path, tmp_path: Path) -> Path:
    """A copy, in which a test may change everything; the file lies there as it was."""
    folder = tmp_path / "world"
    shutil.copytree(ran, folder, symlinks=True)
    return folder


@pytest.fixture
def unplanned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planning and computing a key fail."""
    for module, name in ((planning, "plan"), (keys, "identity"), (keys, "key"), (keys, "sha256")):
        monkeypatch.setattr(module, name, lambda *_, **__: pytest.fail("a key was computed"))


def table(folder: Path, *words: str) -> tuple[float | None, str]:
    """The policy's number, and what is said on stderr."""
    done = fgrl_here("table", "fake.yaml", *words, "--json", cwd=folder)
    assert done.returncode == 0, done.stderr
    (rows,) = json.loads(done.stdout)["recipes"].values()
    return (rows and next(row["mean"] for row in rows if row["model"] == "policy")), done.stderr


def made_with(runs: Path, words: Path) -> None:
    """Let the run have read its words there."""
    for file in runs.rglob("recipe.yaml"):
        file.write_text(re.sub(r"words: \S+", f"words: {words}", file.read_text()))


def blocked(*words: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", BLOCKED, *map(str, words)],
        capture_output=True, text=True, cwd=cwd, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False, timeout=HUNG,
    )  # fmt: skip


def test_a_table_of_a_folder_works_without_experiments_training_and_models(ran: Path) -> None:
    (run,) = (ran / "runs" / "fake").iterdir()
    for source in (run, run.parent):
        done = blocked("table", source, cwd=ran)
        assert done.returncode == 0, done.stderr
        assert "0.50 [0.40 to 0.60]" in done.stdout
        assert int(done.stderr.splitlines()[-1]) <= 80, "modules of fgrl"
        done = blocked("compare", source, source, cwd=ran)
        assert done.returncode == 0, done.stderr
        assert "no setting differs" in done.stdout
        assert int(done.stderr.splitlines()[-1]) <= 80, "modules of fgrl"
    assert "is blocked" in blocked("table", "fake.yaml", cwd=ran).stderr, "the check sees what a recipe loads"


def test_a_recipe_is_found_by_its_settings_and_nothing_is_planned(ran: Path, unplanned: None) -> None:
    assert table(ran) == (0.5, "")
    for command in (["frontier", "fake.yaml", "--x", "rule.share", "--y", "rule.share"], ["compare", "fake.yaml", "fake.yaml"],
                    ["curves", "fake.yaml", "--metric", "count", "--stage", "first"], ["report", "fake.yaml"],
                    ["report", "fake.yaml", "seed=0"]):  # fmt: skip
        done = fgrl_here(*command, cwd=ran)
        assert (done.returncode, "note" in done.stderr) == (0, False), (command, done.stderr)


@pytest.mark.parametrize(
    "same", ["stages.first.pause=0.1", "stages.second.inner.rate=0.5", "stages.evaluate.value=0.50", "about=Another"]
)
def test_defaults_and_what_changes_no_result_do_not_matter(ran: Path, same: str) -> None:
    assert table(ran, same)[0] == 0.5


@pytest.mark.parametrize(
    "other", ["seed=1", "stages.first.steps=4", "stages.second.inner.rate=0.4", "stages.evaluate.value=0.6"]
)
def test_other_settings_have_not_run(ran: Path, other: str) -> None:
    """Also those of a stage before the evaluation."""
    assert table(ran, other)[0] is None


def test_a_stage_of_a_run_with_other_settings_further_on_counts(ran: Path) -> None:
    done = fgrl_here(
        "curves", "fake.yaml", "stages.evaluate.value=0.6", "--metric", "count", "--stage", "first", cwd=ran
    )
    assert done.returncode == 0, done.stderr


def test_files_that_have_changed_since_are_named_with_the_date(world: Path) -> None:
    (world / "words.txt").write_text("two\n")
    (made,) = {json.loads(file.read_text())["made"][:10] for file in world.glob("runs/stages/first-*/stage.json")}
    made_with(world / "runs", world / "words.txt")
    os.utime(world / "words.txt", (4e9, 4e9))
    number, said = table(world)
    assert number == 0.5
    assert f"files have changed since {made} (words.txt)" in said
    os.utime(world / "words.txt", (0, 0))
    assert table(world) == (0.5, "")


def test_the_newest_of_runs_that_read_different_files_is_taken(world: Path) -> None:
    assert table(world) == (0.5, ""), "a copy of the file elsewhere is the same file"
    (world / "words.txt").write_text("two\n")
    os.utime(world / "words.txt", (0, 0))
    assert fgrl_here("run", "fake.yaml", "-q", cwd=world).returncode == 0
    number, said = table(world)
    assert number == 0.5
    assert "note" not in said, "the older run read a file elsewhere, which is another one by now"
    (world / "words.txt").write_text("three\n")
    os.utime(world / "words.txt", (0, 0))
    assert fgrl_here("run", "fake.yaml", "-q", cwd=world).returncode == 0
    assert "runs with these settings have read different files: the newest is shown" in table(world)[1]
    newest = max(
        (world / "runs" / "stages").glob("evaluate-*"), key=lambda folder: (folder / "stage.json").stat().st_mtime
    )
    report = json.loads((newest / "out" / "metrics.json").read_text())
    assert table(world)[0] == report["metrics"]["rule"]["policy"]["share"]["mean"]
    shutil.rmtree(newest)
    assert table(world)[0] is None, "the older evaluation was made with the product of another stage"


def test_a_trial_and_a_stage_of_another_version_do_not_count(world: Path) -> None:
    for file in (world / "runs" / "stages").glob("evaluate-*/stage.json"):
        kept = file.read_text()
        for change in ({"limit": 3}, {"settings": {"name": "measuring", "version": 2}}):
            record = json.loads(kept)
            record["identity"] |= change
            file.write_text(json.dumps(record))
            assert table(world)[0] is None
        file.write_text(kept)
    assert table(world)[0] == 0.5


def test_a_project_that_was_moved_keeps_what_has_run(world: Path) -> None:
    moved = world.rename(world.parent / "moved")
    made_with(moved / "runs", world / "words.txt")
    assert table(moved) == (0.5, "")
    assert table(moved, f"stages.first.words={moved / 'fake.yaml'}")[0] is None


def test_imported_code_that_has_changed_since_is_named(world: Path) -> None:
    own = world / "own.py"
    own.write_text((ROOT / "tests" / "support" / "fake_stages.py").read_text().replace('"counting"', '"counting2"').replace(
        '"failing"', '"failing2"').replace('"measuring"', '"measuring2"').replace('"descending"', '"descending2"'))  # fmt: skip
    (world / "fake.yaml").write_text(
        'about: "Own code."\nimports: [own.py]\nstages: {evaluate: {name: measuring2, value: 0.25}}\n'
    )
    os.utime(own, (0, 0))
    assert fgrl_here("run", "fake.yaml", "-q", cwd=world).returncode == 0
    assert table(world) == (0.25, "")
    own.write_text(own.read_text() + "\n\nLATER = 1\n")
    number, said = table(world)
    assert number == 0.25
    assert "files have changed since" in said
    assert "(own.py)" in said


def test_a_file_of_the_same_name_elsewhere_is_the_same_with_the_same_bytes(tmp_path: Path) -> None:
    for folder, text in (("a", "x"), ("b", "x"), ("c", "y")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "r.py").write_text(text)
    for behind in ("", ":score"):
        place = {folder: f"{tmp_path}/{folder}/r.py{behind}" for folder in "abcd"}
        assert _moved({"path": [place["a"]]}, {"path": [place["b"]]}) == {"path": [place["b"]]}
        assert _moved(place["a"], place["c"]) == place["a"], "another content"
        assert _moved(place["d"], place["c"]) == place["c"], "gone from there"
        assert _moved(place["a"], place["d"]) == place["a"]
        assert _moved(place["a"], f"{tmp_path}/b/r.py:other") == place["a"]
    assert _moved("/help", "/x/help") == "/help"


def test_of_two_runs_of_one_second_the_one_that_was_changed_last_is_the_newest(tmp_path: Path) -> None:
    stamp = "20260501T093000Z"
    for number, name in enumerate((f"{stamp}-ffff0000", f"{stamp}-0000ffff", "20260501T092959Z-aaaaaaaa")):
        (tmp_path / "r" / name).mkdir(parents=True)
        os.utime(tmp_path / "r" / name, (number, number))
    found = [folder.name for folder in Runs(tmp_path).invocations("r")]
    assert found == [f"{stamp}-0000ffff", f"{stamp}-ffff0000", "20260501T092959Z-aaaaaaaa"]
