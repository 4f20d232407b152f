"""A run asks a hub that it cannot reach once."""

from __future__ import annotations

from pathlib import Path

import httpx2
import pytest
import tiny_recipe
from huggingface_hub import close_session, constants
from huggingface_hub.errors import OfflineModeIsEnabled
from huggingface_hub.utils import http_backoff
from pipeline_helpers import fgrl_here

from fgrl.experiments.pipeline.offline import reached_or_off


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[httpx2.Request]:
    """The requests that found no connection, on a machine with an empty cache."""
    requests: list[httpx2.Request] = []

    def refuse(_transport: httpx2.HTTPTransport, request: httpx2.Request) -> httpx2.Response:
        requests.append(request)
        if request.url.path == "/answered":
            return httpx2.Response(200)
        raise httpx2.ConnectError("no route", request=request)

    monkeypatch.setattr(httpx2.HTTPTransport, "handle_request", refuse)
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", lambda _seconds: None)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    close_session()
    return requests


def test_a_run_asks_once_and_says_so_once(tmp_path: Path, tiny_model_dir: Path, asked: list[httpx2.Request]) -> None:
    file = tiny_recipe.write(tmp_path, tiny_model_dir)
    no_model = "stages.reward_model.model.base=somebody/some-model"
    ended = fgrl_here("run", file, "--only", "reward_model", "--runs", tmp_path / "runs", no_model, cwd=tmp_path)
    assert len(asked) == 1
    assert asked[0].extensions["timeout"]["connect"] == 10
    assert ended.returncode == 2
    assert ended.stderr.count("cannot be reached (no route): models and data come from the local cache") == 1
    assert "model somebody/some-model: not in the local cache, and the hub cannot be asked" in ended.stderr
    assert constants.HF_HUB_OFFLINE is False, "the next run of this process may find it"


def test_a_hub_that_has_answered_is_tried_again(asked: list[httpx2.Request]) -> None:
    said: list[str] = []
    with reached_or_off(said.append):
        http_backoff("HEAD", f"{constants.ENDPOINT}/answered")
        with pytest.raises(httpx2.ConnectError):
            http_backoff("HEAD", f"{constants.ENDPOINT}/file")
    assert len(asked) == 1 + 6
    assert said == []


def test_all_later_requests_find_it_switched_off(asked: list[httpx2.Request]) -> None:
    said: list[str] = []
    with reached_or_off(said.append):
        for _ in range(2):
            with pytest.raises(OfflineModeIsEnabled):
                http_backoff("HEAD", f"{constants.ENDPOINT}/file", timeout=3)
    assert len(asked) == 1
    assert len(said) == 1
