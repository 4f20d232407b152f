"""The table of what the papers' recipes cost is what a plan calculates."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


def tool() -> Any:
    spec = importlib.util.spec_from_file_location("recipe_costs", ROOT / "tools" / "recipe_costs.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_is_that_of_the_plans() -> None:
    page = (ROOT / "docs" / "how-to" / "plan-costs.md").read_text(encoding="utf-8")
    assert tool().table() in page, "run `python tools/recipe_costs.py` and put its table into the page"
