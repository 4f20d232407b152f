"""Nouns and verbs of an English text, as HanTa tags them (the Hanover tagger, with its model in the package, no
download).

HanTa's model is a pickle that its wheel contains. It is loaded from there and from no other place: by its name alone,
HanTa would take a file of that name in the working folder.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from fgrl.base import lazy
from fgrl.base.errors import Requires
from fgrl.feedback.rules.text import CharRange
from fgrl.feedback.rules.word_tokens import tokens

tagger = lazy.load("HanTa.HanoverTagger")

CONTENT = ("N", "V")
"""First letters of the tags of nouns (NN1, NN2, NP0, ...) and of verbs (VVB, VBZ, VM0, ...) in HanTa's tag set, that of
the British National Corpus. Auxiliaries are verbs.
"""
HANTA = Requires("HanTa", "token_importance finds nouns and verbs with HanTa", extra="pos")
LONGEST = 30
"""Maximum number of characters of a word: HanTa takes the square of a word's length, and no English word is longer."""


def content_words(text: str) -> list[CharRange]:
    """Return the places (start, end) of the nouns and verbs. Raises `Unavailable` if HanTa is not installed."""
    words = [word for word in tokens(text) if len(word.text) <= LONGEST]
    tagged = _tagger().tag_sent([word.text for word in words])
    return [word.where() for word, (_word, _lemma, tag) in zip(words, tagged, strict=True) if tag.startswith(CONTENT)]


@functools.cache
def _tagger() -> Any:
    HANTA.check()
    model = Path(tagger.__file__).with_name("morphmodel_en.pgz")
    return tagger.HanoverTagger(str(model))
