"""After the installation a newcomer finds the command `fgrl`."""

from __future__ import annotations

import subprocess

import pytest
from doc_blocks import ROOT

ACTIVATE = ". .venv/bin/activate"


@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_the_page_activates_the_environment(page: str) -> None:
    assert any(line.startswith(ACTIVATE) for line in (ROOT / page).read_text(encoding="utf-8").splitlines()[:20])


@pytest.mark.parametrize("target", ["install", "quickstart"])
def test_make_ends_with_the_next_step(target: str) -> None:
    # without the messages that a make started by another make adds, nor the environment that it uses
    command = ["make", "--no-print-directory", "-n", target, "VENV=.venv"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert ACTIVATE in done.stdout.splitlines()[-1]
