"""What metrics declare about their numbers."""

from __future__ import annotations

from pathlib import Path

import pytest

from fgrl import registry
from fgrl.experiments.recipe import know_components
from fgrl.kinds import Meaning, Metric, meaning_in

know_components()
METRICS = [
    name
    for name in registry.names("metric")
    if registry.get("metric", name).__module__.startswith("fgrl.") and name != "function"  # a user's own numbers
]


@pytest.mark.parametrize("name", METRICS)
def test_every_metric_of_the_catalogue_explains_its_numbers(name: str) -> None:
    metric = registry.get("metric", name)
    assert issubclass(metric, Metric)
    assert metric.meanings
    assert metric.purpose in ("goal", "reward", "symptom")
    if metric.purpose == "goal":
        assert any(meaning.better for meaning in metric.meanings.values())


def test_a_function_says_which_side_is_better_in_the_recipe(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def long_words(completions, **kwargs):\n    return [1.0 for _ in completions]\n")
    node = {"name": "function", "path": f"{tmp_path}/mine.py:long_words"}
    assert registry.build(Metric, node).meaning("long_words") is None
    declared = registry.build(Metric, node | {"better": "lower"})
    assert declared.meaning("long_words") == Meaning("long words", "lower")


def test_a_name_before_a_pattern_and_the_first_pattern_that_fits() -> None:
    meanings = {
        "a*": Meaning("begins with a: {number}", "lower"),
        "*": Meaning("any"),
        "ab": Meaning("exactly", "higher"),
    }
    assert meaning_in(meanings, "ab") == Meaning("exactly", "higher")
    assert meaning_in(meanings, "a:b_c") == Meaning("begins with a: a: b c", "lower")
    assert meaning_in(meanings, "x") == Meaning("any")
    assert meaning_in({}, "x") is None
