"""What a judge says of two answers, read strictly: one label, or nothing."""

from __future__ import annotations

import re
from typing import Literal

from fgrl.llm.reading import Refused, declines, read_verdict

Scale = Literal[3, 5]

_LABEL = re.compile(r"\[\[\s*([^\[\]]*?)\s*\]\]")
LABELS: dict[Scale, dict[str, int]] = {
    3: {"1": 1, "tie": 0, "2": -1},
    5: {"1>>2": 2, "1>2": 1, "1=2": 0, "2>1": -1, "2>>1": -2},
}
"""Labels of each scale, and how much better they call the answer shown first."""


def read_label(text: str, scale: Scale = 3) -> int:
    """How much better the answer shown first is: -2 to 2, by the one label in double brackets, as in `[[1]]`.

    On the scale of three the answer may also be nothing but 1, 2 or tie. A label twice is one label; two different labels
    are none.

    Raises `Refused` for an answer without a label that declines to judge, ValueError for any other.
    """
    found = {label.lower().replace(" ", "") for label in _LABEL.findall(text)}
    known = LABELS[scale]
    if len(found) == 1 and (label := next(iter(found))) in known:
        return known[label]
    wanted = ", ".join(f"[[{label}]]" for label in known)
    if found:
        said = ", ".join(f"[[{label}]]" for label in sorted(found))
        raise ValueError(f"it says {said}: wants one of {wanted}, and no other")
    if scale == 3:
        return {"first": 1, "tie": 0, "second": -1}[read_verdict(text)]
    if declines(text):
        raise Refused("it declines to judge")
    raise ValueError(f"there is no verdict in it: wants one of {wanted} at its end")
