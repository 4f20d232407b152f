"""Nouns and verbs of English, by HanTa and the model in its package."""

from __future__ import annotations

import gzip
import pickle
import pickletools
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fgrl.base.errors import Unavailable
from fgrl.feedback.rules import parts_of_speech
from fgrl.feedback.rules.parts_of_speech import content_words

needs_hanta = pytest.mark.skipif(find_spec("HanTa") is None, reason="needs HanTa: pip install 'fgrl[pos]'")


def words(text: str) -> list[str]:
    return [text[start:end] for start, end in content_words(text)]


@needs_hanta
def test_nouns_and_verbs_are_found_where_they_stand() -> None:
    text = "My boss thinks that the unpublished novel will be rejected by a very good editor."
    assert words(text) == ["boss", "thinks", "novel", "will", "be", "rejected", "editor"]
    assert words("He's running quickly to London, isn't he?") == ["'s", "running", "London", "is"]
    assert words("of the and, very quickly!") == []


@needs_hanta
@settings(max_examples=100, deadline=None)
@given(st.text(max_size=40))
def test_any_text_has_places_inside_it_in_order(text: str) -> None:
    places = content_words(text)
    assert places == sorted(places)
    assert all(0 <= start < end <= len(text) for start, end in places)


@needs_hanta
def test_a_word_that_is_no_word_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    tagged: list[str] = []
    real = parts_of_speech._tagger()

    class Spy:
        def tag_sent(self, sentence: list[str]) -> Any:
            tagged.extend(sentence)
            return real.tag_sent(sentence)

    monkeypatch.setattr(parts_of_speech, "_tagger", Spy)
    assert words(f"cats {'ab' * 5000} sleep") == ["cats", "sleep"]
    assert tagged == ["cats", "sleep"]


@needs_hanta
def test_the_model_comes_from_the_package_and_not_from_the_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "morphmodel_en.pgz").write_bytes(pickle.dumps("not a model"))
    monkeypatch.chdir(tmp_path)
    parts_of_speech._tagger.cache_clear()
    assert words("cats sleep") == ["cats", "sleep"]


@needs_hanta
def test_the_model_s_pickle_names_no_code_but_numpy_s_numbers() -> None:
    import HanTa

    folder = Path(str(HanTa.__file__)).parent
    texts: list[str] = []
    named = set()
    for operation, value, _place in pickletools.genops(gzip.decompress((folder / "morphmodel_en.pgz").read_bytes())):
        if operation.name in ("GLOBAL", "INST"):
            named.add(value)
        elif operation.name == "STACK_GLOBAL":
            named.add(" ".join(texts[-2:]))
        elif "UNICODE" in operation.name:
            texts.append(value)
    assert named == {"numpy._core.multiarray scalar", "numpy dtype"}


def test_without_hanta_the_message_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    parts_of_speech._tagger.cache_clear()
    monkeypatch.setattr("fgrl.base.errors.find_spec", lambda package: None)
    with pytest.raises(Unavailable, match=r"token_importance finds nouns and verbs with HanTa, .* 'fgrl\[pos\]'"):
        content_words("cats sleep")
