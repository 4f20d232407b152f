"""Arguments of the functions of `fgrl`: recipes, overrides, the folder of runs; and the state of random generators
around them.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from fgrl import registry
from fgrl.base.errors import UsageError
from fgrl.experiments import recipe
from fgrl.experiments.pipeline.libraries import diverted
from fgrl.registry import Problems
from fgrl.registry.settings import Settings

RUNS = "runs"
"""The default folder of runs, relative to the current directory, as on the command line."""
OVERRIDES = "overrides"
"""Place of a value from Python in error messages."""
Overrides = Mapping[str, Any]


def load_recipe(source: Path | str, texts: Sequence[str] = ()) -> recipe.Recipe:
    """Return the recipe with overrides as on the command line. Raises `Problems`; the place of a mistake in an override
    is "overrides".
    """
    try:
        return recipe.load(source, texts)
    except Problems as problems:
        for problem in problems.problems:
            if problem.place is not None and problem.place.file is None and not problem.place.line:
                problem.place = replace(problem.place, label=OVERRIDES)
        raise


def override_texts(overrides: Overrides | Sequence[str] | None, seed: int | None = None) -> list[str]:
    """Return `a.b=value` for each override, with the value as JSON, which is YAML. Texts in this form stay unchanged.
    Raises `UsageError` for a value that has no such form.
    """
    if isinstance(overrides, Sequence):
        return list(overrides)
    values = dict(overrides or {})
    if seed is not None:
        if "seed" in values:
            raise UsageError("the seed is given twice: as `seed` and among the overrides")
        values["seed"] = seed
    return [f"{key}={_as_text(key, value)}" for key, value in values.items()]


def _as_text(key: str, value: Any) -> str:
    def plain(item: Any) -> Any:
        if isinstance(item, Settings):
            return registry.dump(item, given=True)
        if isinstance(item, Path):
            return str(item)
        if hasattr(item, "item"):  # a number of numpy or torch
            return item.item()
        raise UsageError(
            f"override {key}: wants a number, a text, a list, a mapping, None or a component, got {type(item).__qualname__}"
        )

    try:
        return json.dumps(value, ensure_ascii=False, default=plain, allow_nan=False)
    except ValueError as error:  # NaN, infinity, or a list that contains itself
        raise UsageError(f"override {key}: {error}") from None


@contextmanager
def random_state_kept() -> Iterator[None]:
    """Restore the state of the random generators of Python, NumPy and torch at the end of the block, whatever is seeded
    or drawn inside.
    """
    states: list[tuple[Callable[[Any], Any], Any]] = [(random.setstate, random.getstate())]
    if (numpy := sys.modules.get("numpy")) is not None:
        states.append((numpy.random.set_state, numpy.random.get_state()))
    if (torch := sys.modules.get("torch")) is not None:
        states.append((torch.set_rng_state, torch.get_rng_state()))
        if torch.cuda.is_initialized():
            states.append((torch.cuda.set_rng_state_all, torch.cuda.get_rng_state_all()))
    try:
        yield
    finally:
        for restore, state in states:
            restore(state)


@contextmanager
def libraries_quiet() -> Iterator[None]:
    """Prevent libraries from writing messages or progress bars to the terminal or the notebook inside the block."""
    with diverted(Path(os.devnull), verbose=False):
        yield
