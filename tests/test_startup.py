"""What `import fgrl` and every `--help` load: modules, because a test of seconds would depend on the machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from import_walk import ROOT
from patience import HUNG
from test_imports import HEAVY

SLOW = [*HEAVY, "pydantic", "pydantic_core", "yaml", "jinja2", "markupsafe", "rich", "asyncio", "sqlite3", "filelock", "regex",
        "http", "email", "multiprocessing", "concurrent", "fgrl.components", "fgrl.kinds", "fgrl.experiments.pipeline.planning",
        "fgrl.experiments.recipe.loading", "fgrl.registry.names", "fgrl.experiments.stages", "fgrl.types.records"]  # fmt: skip
"""Modules that take long to load, beside those that nothing light may load at all."""

HELP = """
import contextlib, io, json, sys
import fgrl.cli, typer.main
loaded, seen = {}, set()
def note(name):
    new = {module for module in SLOW if module in sys.modules} - seen
    loaded[name] = sorted(new)
    seen.update(new)
note("import fgrl.cli")
def visit(command, words):
    with contextlib.redirect_stdout(io.StringIO()) as shown:
        try:
            whole.main([*words, "--help"], prog_name="fgrl", standalone_mode=False)
        except SystemExit:
            pass
    assert "Usage" in shown.getvalue() or "usage" in shown.getvalue(), words
    note(" ".join(words))
    for name, inner in getattr(command, "commands", {}).items():
        visit(inner, [*words, name])
whole = typer.main.get_command(fgrl.cli.app)
visit(whole, [])
print(json.dumps(loaded))
"""


def in_a_fresh_process(code: str, cwd: Path) -> object:
    """The last line that the code prints, as JSON. `SLOW` is defined in it."""
    done = subprocess.run(
        [sys.executable, "-c", f"SLOW = {SLOW!r}\n{code}"],
        capture_output=True, text=True, cwd=cwd, env={**os.environ, "PYTHONPATH": str(ROOT)}, check=False, timeout=HUNG,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_import_fgrl_loads_nothing_else(tmp_path: Path) -> None:
    code = """
import sys, json
before = set(sys.modules)
import fgrl
dir(fgrl), fgrl.__version__
print(json.dumps(sorted(name for name in set(sys.modules) - before if name.startswith("fgrl") or name in SLOW)))
"""
    assert in_a_fresh_process(code, tmp_path) == ["fgrl"]


def test_no_help_of_any_command_loads_a_slow_module(tmp_path: Path) -> None:
    loaded = in_a_fresh_process(HELP, tmp_path)
    assert isinstance(loaded, dict)
    assert {"", "run", "plan", "validate", "show", "annotate", "annotate export"} <= set(loaded)
    assert loaded["import fgrl.cli"] == loaded[""] == []
    assert {name: modules for name, modules in loaded.items() if modules} == {}


def test_the_check_sees_a_slow_module(tmp_path: Path) -> None:
    loaded = in_a_fresh_process(f"import pydantic\n{HELP}", tmp_path)
    assert isinstance(loaded, dict)
    assert "pydantic" in loaded["import fgrl.cli"]
