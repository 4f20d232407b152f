"""What a user's reward function returns for a few rows of the data."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fgrl.base.console import shown
from fgrl.base.errors import UserCodeError
from fgrl.kinds.functions import Caller, Texts
from fgrl.kinds.functions.returned import Returned, checked
from fgrl.types import Sample

ROWS = 3
STAND_IN = "This is an answer of one short sentence."
"""The answer to a row that has none."""


def tried(path: str, rows: Sequence[Sample]) -> tuple[bool, str]:
    """Call `/.../FILE.py:FUNCTION` with the answers of a few rows: return True if it scores tokens or spans, and what it
    returned, in a sentence. Raises `UserCodeError` for a result that does not fit
    its annotation; a function that cannot run here, as one that needs a server, is reported in the text.
    """
    caller = Caller([path], allowed=("numbers", "tokens", "spans"), arguments={}, form="as_prompt")
    kind, name = caller.kinds[0], caller.names[0]
    samples = rows[:ROWS]
    written = [_answer(sample) for sample in samples]
    texts = [text or STAND_IN for text in written]
    about = f"{len(samples)} rows" if all(written) else f"{len(samples)} rows and the answer {STAND_IN!r}"
    words = [[match.span() for match in re.finditer(r"\s*\S+", text)] for text in texts]
    given = Texts(samples, texts, [list(range(len(own))) for own in words], words, logs=True)
    try:
        (value,) = caller.values(given)
    except UserCodeError as error:
        said = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
        return kind != "numbers", f"the reward {name} could not be tried on {about}: {said}"
    result = checked(caller.functions()[0], kind, value, texts, [len(own) for own in words])
    return kind != "numbers", f"the reward {name} returned for {about}: {_in_words(result)}"


def _answer(sample: Sample) -> str:
    """Return the answer that a row has; "" where it has none."""
    known = sample.reference if isinstance(sample.reference, str) else None
    meta = [value for name, value in sample.meta.items() if name in ("answer", "response", "completion", "solution")]
    return known or next((value for value in meta if isinstance(value, str) and value.strip()), "")


def _in_words(result: Returned) -> str:
    if result.kind == "numbers":
        return "one number per answer (" + ", ".join("None" if x is None else shown(x) for x in result.numbers) + ")"
    counts = [0 if own is None else len(own) for own in (result.tokens if result.kind == "tokens" else result.spans)]
    what = "a number per token" if result.kind == "tokens" else "spans"
    return f"{what} ({', '.join(map(str, counts))} of them)"
