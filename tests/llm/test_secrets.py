"""Keys are kept out of everything that is written or printed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from client_helpers import a_run

from fgrl.base.errors import Unavailable
from fgrl.base.sanitizing import HIDDEN, Scrubber
from fgrl.components.clients.openai import OpenAI

KEY = "sk-proj-Abc/123+xyz=="


@pytest.mark.parametrize(
    "text",
    [f"Bearer {KEY}", f"key: {KEY}!", repr({"Authorization": f"Bearer {KEY}"}), "sk-proj-Abc/123%2Bxyz%3D%3D",
     "sk-proj-Abc%2F123%2Bxyz%3D%3D", f"token={KEY} again {KEY}", "Incorrect API key provided: sk-proj-********wxyz."],
)  # fmt: skip
def test_a_key_is_scrubbed_in_every_form(text: str) -> None:
    scrubbed = Scrubber(KEY)(text)
    assert HIDDEN in scrubbed
    assert "Abc" not in scrubbed
    assert "wxyz" not in scrubbed


def test_answers_lose_the_key_and_nothing_else() -> None:
    assert Scrubber(KEY).own(f"Bearer of news, sk-other-key, {KEY}") == f"Bearer of news, sk-other-key, {HIDDEN}"
    assert Scrubber(None).own("text") == "text"


def test_a_missing_key_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_KEY", raising=False)
    with pytest.raises(Unavailable, match=r"environment variable MY_KEY is not set"):
        OpenAI(model="m", api_key_env="MY_KEY").setup(a_run(tmp_path))
    monkeypatch.setenv("MY_KEY", "sk-with space")
    with pytest.raises(Unavailable, match="spaces or characters that no key has") as caught:
        OpenAI(model="m", api_key_env="MY_KEY").setup(a_run(tmp_path))
    assert "sk-with" not in str(caught.value)
    assert os.environ["MY_KEY"] == "sk-with space"
