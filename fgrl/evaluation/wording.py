"""Texts without what two ways of writing the same answer may differ in."""

from __future__ import annotations

import re
import string

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_DELETED = str.maketrans("", "", string.punctuation)
_SPACED = str.maketrans(dict.fromkeys(string.punctuation + "‘’´", " "))


def squad(text: str) -> str:
    """Lower case, ASCII punctuation deleted, no articles, single spaces: as SQuAD's evaluation (Rajpurkar et al. 2016)
    compares answers."""
    return _without_articles(text.lower().translate(_DELETED))


def triviaqa(text: str) -> str:
    """As `squad`, but punctuation (and ‘ ’ ´) becomes a space, so that `twenty-one` stays two words: as TriviaQA's
    evaluation (Joshi et al. 2017) compares answers."""
    return _without_articles(text.lower().translate(_SPACED))


def _without_articles(text: str) -> str:
    return " ".join(_ARTICLES.sub(" ", text).split())
