"""The table of what the papers' recipes cost is what a plan calculates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import script_files

ROOT = Path(__file__).resolve().parents[2]


def tool() -> Any:
    return script_files.loaded(ROOT / "tools" / "recipe_costs.py")


def test_the_table_is_that_of_the_plans() -> None:
    page = (ROOT / "docs" / "how-to" / "plan-costs.md").read_text(encoding="utf-8")
    assert tool().table() in page, "run `python tools/recipe_costs.py` and put its table into the page"
