"""The small recipes' functions: the file is what its program makes, and its tests tell right programs from wrong ones."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from fgrl.components.annotators.run_tests import RunTests
from fgrl.components.readers.kodcode import KodCode
from fgrl.feedback.sandbox import detect
from fgrl.types import Response

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "recipes" / "small" / "functions.jsonl"


def test_the_file_is_what_its_program_makes(tmp_path: Path) -> None:
    again = tmp_path / "functions.jsonl"
    subprocess.run([sys.executable, str(ROOT / "tools" / "functions.py"), str(again)], check=True, capture_output=True)
    assert again.read_text(encoding="utf-8") == FILE.read_text(encoding="utf-8")


@pytest.mark.skipif(detect().strength == "none", reason="needs a sandbox")
@pytest.mark.parametrize("step", [pytest.param(13, id="some"), pytest.param(1, id="all", marks=pytest.mark.evidence)])
def test_solutions_pass_and_programs_that_return_nothing_fail(step: int) -> None:
    reader = KodCode(path="json", files=[str(FILE)], sandbox={"require": "weak", "seconds": 20})  # type: ignore[arg-type]
    samples = list(reader.read())
    assert len(samples) == 260
    annotator = RunTests()
    annotator.setup(None)
    given = []
    for sample in samples[::step]:
        assert isinstance(sample.reference, str)
        head = sample.reference.partition("\n")[0]
        programs = [sample.reference, f"{head}\n    return None\n"]
        given.append(sample.model_copy(update={"responses": [Response(text=text) for text in programs]}))
    assert [[response.score for response in sample.responses] for sample in annotator.annotate(given)] == [
        [1.0, 0.0] for _ in given
    ]
    assert annotator.counts()["passed without a replay"] == 0
