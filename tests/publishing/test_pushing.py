"""Uploads are private, explain what is missing before any work, and never change the visibility of a repository."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import huggingface_hub
import pytest
from huggingface_hub.errors import HfHubHTTPError

from fgrl.base.errors import Unavailable, UsageError
from fgrl.exchange.publishing import pushing


class Hub:
    """Stands in for `huggingface_hub.HfApi`."""

    def __init__(self, private: bool | None = None, error: Exception | None = None) -> None:
        self.private, self.error, self.calls = private, error, []

    def repo_exists(self, repo, *, repo_type):
        if self.error is not None:
            raise self.error
        return self.private is not None

    def model_info(self, repo):
        return SimpleNamespace(private=self.private)

    def create_repo(self, repo, **options):
        self.calls.append(("create", repo, options))
        return huggingface_hub.RepoUrl(f"https://huggingface.co/{repo if '/' in repo else f'me/{repo}'}")

    def upload_folder(self, **options):
        if isinstance(self.error, ConnectionError):
            raise self.error
        self.calls.append(("upload", options))


def refused(status: int) -> HfHubHTTPError:
    response = SimpleNamespace(status_code=status, headers={}, request=SimpleNamespace(headers={}))
    return HfHubHTTPError(f"{status} from the hub", response=cast(Any, response))


@pytest.mark.parametrize("public", [False, True])
def test_a_new_repository_is_private_unless_asked(tmp_path, public):
    hub = Hub()
    api = pushing.check("policy", public=public, api=hub)
    assert (
        pushing.push(tmp_path, "policy", public=public, api=api, message="Export") == "https://huggingface.co/me/policy"
    )
    (_, _, created), (_, uploaded) = hub.calls
    assert created == {"private": not public, "repo_type": "model", "exist_ok": True}
    assert uploaded["repo_id"] == "me/policy"
    assert uploaded["folder_path"] == str(tmp_path)
    assert {"adapter_config.json", "chat_template.jinja", "tokenizer*", "recipe.yaml"} <= set(
        uploaded["delete_patterns"]
    )


@pytest.mark.parametrize(
    ("private", "public", "message"),
    [(False, False, r"exists and is public: add --public"), (True, True, r"exists and is private: make it public in its settings")],
)  # fmt: skip
def test_the_visibility_of_an_existing_repository_is_respected(private, public, message):
    hub = Hub(private=private)
    with pytest.raises(UsageError, match=message):
        pushing.check("me/policy", public=public, api=hub)
    assert hub.calls == []
    pushing.check("me/policy", public=not private, api=hub)


def test_a_wrong_name_a_missing_token_and_no_network_have_a_next_step(monkeypatch):
    with pytest.raises(UsageError, match="write the repository as OWNER/NAME"):
        pushing.check("a/b/c", public=False, api=Hub())
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(Unavailable, match="HF_HUB_OFFLINE is set: unset it"):
        pushing.check("me/policy", public=False)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    with pytest.raises(Unavailable, match=r"run `hf auth login`, or set HF_TOKEN"):
        pushing.check("me/policy", public=False)
    monkeypatch.setattr("huggingface_hub.get_token", lambda: "token")
    monkeypatch.setattr("huggingface_hub.HfApi", lambda library_name: Hub(error=ConnectionError("no route")))
    with pytest.raises(Unavailable, match=r"cannot be reached \(ConnectionError: no route\)"):
        pushing.check("me/policy", public=False)


@pytest.mark.parametrize(
    ("status", "message"), [(401, "refuses the token"), (403, "right to write"), (500, "500 from the hub")]
)
def test_what_the_hub_refuses_is_explained(status, message):
    with pytest.raises(Unavailable, match=message):
        pushing.check("me/policy", public=False, api=Hub(error=refused(status)))


def test_a_failed_upload_leaves_the_export_and_says_how_to_go_on(tmp_path):
    hub = Hub()
    hub.error = ConnectionError("reset")
    with pytest.raises(Unavailable, match=rf"The export itself is complete: `hf upload me/policy {tmp_path}`"):
        pushing.push(tmp_path, "me/policy", public=False, api=hub, message="Export")


def test_a_bug_stays_a_bug():
    with pytest.raises(ZeroDivisionError):
        pushing.check("me/policy", public=False, api=Hub(error=ZeroDivisionError()))
