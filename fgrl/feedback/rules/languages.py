"""Detection of the language of a text by langdetect: the library that IFEval uses too. Its profiles come with it,
without a download.
"""

from __future__ import annotations

import functools
from typing import Any, Literal

from fgrl.base import lazy
from fgrl.base.errors import Requires

langdetect = lazy.load("langdetect")
exceptions = lazy.load("langdetect.lang_detect_exception")
factories = lazy.load("langdetect.detector_factory")

LANGDETECT = Requires("langdetect", "the rule finds the language of an answer with langdetect", extra="rules")
Language = Literal[
    "af", "ar", "bg", "bn", "ca", "cs", "cy", "da", "de", "el", "en", "es", "et", "fa", "fi", "fr", "gu", "he", "hi", "hr",
    "hu", "id", "it", "ja", "kn", "ko", "lt", "lv", "mk", "ml", "mr", "ne", "nl", "no", "pa", "pl", "pt", "ro", "ru", "sk",
    "sl", "so", "sq", "sv", "sw", "ta", "te", "th", "tl", "tr", "uk", "ur", "vi", "zh-cn", "zh-tw",
]  # fmt: skip
"""The languages that langdetect knows, as ISO 639-1 codes."""


def language_of(text: str) -> str | None:
    """Return the most probable language; None if nothing in the text indicates one (no letters). The result for a text
    is always the same: langdetect draws at random, and here from a fixed seed. Raises `Unavailable` if langdetect is
    not installed.
    """
    LANGDETECT.check()
    try:
        detector = _factory().create()
        detector.append(text)
        return detector.detect()
    except exceptions.LangDetectException as error:
        if error.code != exceptions.ErrorCode.CantDetectError:
            raise
        return None


@functools.cache
def _factory() -> Any:
    factory = factories.DetectorFactory()
    factory.load_profile(factories.PROFILES_DIRECTORY)
    factory.set_seed(0)
    return factory
