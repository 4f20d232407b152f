"""Names of what a stage compares, as they stand in tables."""

from __future__ import annotations

import re
from collections.abc import Collection

from fgrl.measuring.number_names import NOT_MODELS
from fgrl.registry.problems import unknown


def check(what: str, names: Collection[str], baseline: str | None) -> None:
    """Raise ValueError for a name that tables use for something else, and for a baseline that is none of the names."""
    for name in names:
        if name in NOT_MODELS or not re.fullmatch(r"\w[\w.-]*", name):
            raise ValueError(
                f"{name!r} cannot be a {what}'s name: use letters, digits and _ - . (not `differences`, not `about`)"
            )
    if baseline is not None and baseline not in names:
        raise ValueError(f"baseline: {unknown(what, baseline, list(names))}")
