"""`fgrl new` for every kind: what it writes passes its own test, and can be shown and named in a recipe."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from pipeline_helpers import environment, fgrl_here

from fgrl import registry
from fgrl.library.new_component import component_kinds as kinds


def test_there_is_a_template_for_every_kind() -> None:
    assert set(kinds()) == set(registry.kinds())
    assert len(kinds()) >= 13


def test_what_new_writes_passes_its_test_and_explains_itself(tmp_path: Path) -> None:
    for kind in kinds():
        done = fgrl_here("new", kind, f"my_{kind}", "--json", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["files"] == [f"my_{kind}.py", f"test_my_{kind}.py"]
    tests = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--color=no", f"--rootdir={tmp_path}"],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert tests.returncode == 0, tests.stdout + tests.stderr
    style = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--isolated", "--line-length=120", "--select=E,F,W,B,UP,SIM", str(tmp_path)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert style.returncode == 0, style.stdout
    imports = [word for kind in kinds() for word in ("--import", f"my_{kind}.py")]
    assert '"higher"' in (tmp_path / "my_metric.py").read_text(), "a metric says which side is better"
    for kind in ("segmenter", "stage", "metric"):
        shown = fgrl_here("show", kind, f"my_{kind}", *imports, cwd=tmp_path)
        assert shown.returncode == 0, shown.stderr
        assert f"my_{kind}.py:" in shown.stdout
    listed = json.loads(fgrl_here("list", "--json", *imports, cwd=tmp_path).stdout)
    assert all(f"my_{kind}" in [one["name"] for one in listed[kind]] for kind in kinds())


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text("precious")
    done = fgrl_here("new", "verifier", "mine", cwd=tmp_path)
    assert done.returncode == 2
    assert "test_mine.py is already there; nothing was written" in done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["test_mine.py"]
    assert fgrl_here("new", "segmenter", "entropy", cwd=tmp_path).returncode == 2, "the name is taken"


def test_a_new_segmenter_in_a_recipe(tmp_path: Path) -> None:
    assert fgrl_here("new", "segmenter", "every-third", cwd=tmp_path).returncode == 0
    parent = Path(__file__).resolve().parents[2] / "recipes" / "small" / "segment_ppo.yaml"
    recipe = tmp_path / "mine.yaml"
    recipe.write_text(
        f'about: "A segmenter of mine."\nextends: "{parent}"\nimports: [every_third.py]\n'
        "stages: {reward_model: {algorithm: {segmenter: {name: every-third, every: 4}}}}\n"
    )
    done = fgrl_here("plan", recipe, "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    before = json.loads(done.stdout)["stages"]
    code = (tmp_path / "every_third.py").read_text()
    (tmp_path / "every_third.py").write_text(code + "\n# a comment decides nothing\n")
    assert json.loads(fgrl_here("plan", recipe, "--json", cwd=tmp_path).stdout)["stages"] == before
    (tmp_path / "every_third.py").write_text(code + "\nCHANGED = True\n")
    after = json.loads(fgrl_here("plan", recipe, "--json", cwd=tmp_path).stdout)["stages"]
    changed = [name for name in before if before[name]["key"] != after[name]["key"]]
    assert changed == ["reward_model", "calibrate", "policy", "evaluate"]
