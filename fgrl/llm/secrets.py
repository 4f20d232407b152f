"""Text from an endpoint: the key is kept out of everything that is written or printed."""

from __future__ import annotations

import base64
import json
import re
from urllib.parse import quote

HIDDEN = "<key>"
SHOWN = 400
"""Characters of a foreign message that are repeated."""
_LOOKS_LIKE_A_KEY = re.compile(r"\b(?:sk-[\w*.-]{6,}|Bearer\s+[\w*.~+/=-]{6,})", re.IGNORECASE)


class Scrubber:
    """Replaces a secret, and what looks like one, in any text."""

    def __init__(self, secret: str | None) -> None:
        self._forms: list[str] = []
        if secret:
            forms = {secret, quote(secret, safe=""), json.dumps(secret)[1:-1], repr(secret)[1:-1]}
            forms |= {base64.b64encode(text.encode()).decode() for text in (secret, f":{secret}", f"Bearer {secret}")}
            self._forms = sorted(forms, key=len, reverse=True)

    def own(self, text: str) -> str:
        """Without the secret itself: for answers, whose other words are data."""
        for form in self._forms:
            text = text.replace(form, HIDDEN)
        return text

    def __call__(self, text: str) -> str:
        """Without the secret, and without anything that looks like a key: for messages of other people's code."""
        return _LOOKS_LIKE_A_KEY.sub(HIDDEN, self.own(text))

    def line(self, text: str) -> str:
        """The same, shortened and on one line."""
        return self(" ".join(without_lone_surrogates(text).split()))[:SHOWN]


def without_lone_surrogates(text: str) -> str:
    """Half a surrogate pair, which JSON can write and no file can hold, becomes the replacement character."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
