"""The package if-verifiable, which carries the official checkers of IFEval and IFBench, made to run without a network."""

from __future__ import annotations

import logging
from typing import Any

import pytest

nltk = pytest.importorskip("nltk", reason="needs nltk")
nltk.download = lambda *args, **kwargs: False  # importing the official IFBench asks for data at once
langdetect = pytest.importorskip("langdetect", reason="needs langdetect")
pytest.importorskip("if_verifiable", reason="needs if-verifiable")

from if_verifiable.ifbench.instructions_registry import INSTRUCTION_DICT as IFBENCH  # noqa: E402
from if_verifiable.ifeval.instructions_registry import INSTRUCTION_DICT as IFEVAL  # noqa: E402

langdetect.DetectorFactory.seed = 0  # the official checker draws anew each time
logging.getLogger().addFilter(lambda record: "Unable to detect language" not in record.getMessage())

NEEDS_DATA = {
    "length_constraints:number_sentences": "needs nltk's punkt: the official checker downloads it",
    "change_case:capital_word_frequency": "needs nltk's punkt: the official checker downloads it",
    "ratio:stop_words": "needs nltk's stop words: the official checker downloads them",
    "words:start_verb": "needs nltk's tagger: the official checker downloads it",
    "words:keywords_specific_position": "needs nltk's punkt: the official checker downloads it",
    "words:words_position": "needs nltk's punkt: the official checker downloads it",
    "format:title_case": "needs nltk's punkt: the official checker downloads it",
}
CHECKERS = {**IFEVAL, **IFBENCH}


def official(name: str, kwargs: dict[str, Any], response: str) -> bool:
    """The official strict verdict; an empty answer fails, as its scoring loop has it."""
    checker = CHECKERS[name](name)
    checker.build_description(**kwargs)
    return bool(response.strip()) and bool(checker.check_following(response))
