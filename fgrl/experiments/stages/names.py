"""Names of the models or sets that a stage compares, as tables show them."""

from __future__ import annotations

import re
from collections.abc import Collection

from fgrl.measuring.number_names import NOT_MODELS
from fgrl.registry.problems import unknown


def check(what: str, names: Collection[str], baseline: str | None) -> None:
    """Raise ValueError for a name that has another meaning in tables, and for a baseline that is not one of the names."""
    for name in names:
        if name in NOT_MODELS or not re.fullmatch(r"\w[\w.-]*", name):
            raise ValueError(
                f"{name!r} cannot be a {what}'s name: use letters, digits and _ - . (not `differences`, not `about`)"
            )
    if baseline is not None and baseline not in names:
        raise ValueError(f"baseline: {unknown(what, baseline, list(names))}")
