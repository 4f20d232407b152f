"""The verifier of docs/how-to/write-a-verifier.md, as a reader would make it: the file, the recipe's import, the criterion."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from scratch_registry import scratch
from typer.testing import CliRunner

from fgrl.cli import app
from fgrl.components.annotators.mark_by_rules import MarkByRules
from fgrl.kinds import Verifier
from fgrl.registry import build, import_file
from fgrl.types import Sample

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "write-a-verifier.md"


def block(language: str) -> str:
    found = re.search(rf"^```{language}\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found, language
    return found[1]


@pytest.fixture
def stars(tmp_path: Path) -> Path:
    path = tmp_path / "stars.py"
    path.write_text(block("python"), encoding="utf-8")
    return path


def test_the_page_s_verifier_works(stars: Path) -> None:
    with scratch():
        import_file(stars)
        rule = build(Verifier, {"name": "stars:count", "count": 3})
        assert [rule.check(text) for text in ("***", "a * b * c *", "**", "****", "  ", "")] == [
            True,
            True,
            *[False] * 4,
        ]
        assert [span.start for span in rule.violations("*a*b*c*") or []] == [6]
        assert rule.violations("**") is None
        (sample,) = MarkByRules().annotate(
            [Sample.model_validate({**json.loads(block("json")), "responses": [{"text": "é🎉* *, *"}]})]
        )
        assert [sample.chosen_response.text[span.start : span.end] for span in sample.chosen_response.spans] == [
            "*",
            "*",
            "*",
        ]
        assert sample.meta["scope"] == "positive"


def test_it_is_explained(stars: Path) -> None:
    with scratch():
        shown = CliRunner().invoke(app, ["show", "stars:count", "--import", str(stars)])
    assert "Exactly so many stars" in shown.output
