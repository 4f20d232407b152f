"""Upload an exported folder to the Hugging Face hub: private, unless it is asked to be public."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from fgrl.base import lazy
from fgrl.base.errors import Unavailable, UsageError

huggingface_hub = lazy.load("huggingface_hub")
hub_utils = lazy.load("huggingface_hub.utils")
hub_errors = lazy.load("huggingface_hub.errors")
hub_constants = lazy.load("huggingface_hub.constants")

REPLACED = [
    "*.safetensors", "*.safetensors.index.json", "adapter_config.json", "config.json", "generation_config.json", "recipe.yaml",
    "chat_template.jinja", "additional_chat_templates/*", "tokenizer*", "special_tokens_map.json", "added_tokens.json",
    "vocab.json", "merges.txt",
]  # fmt: skip
"""Files of an earlier export in the same repository: files that are not written again are deleted there, so that an old
adapter or chat template is not loaded with new weights. The repository's history keeps them.
"""


def check(repo: str, *, public: bool, api: Any = None) -> Any:
    """Look, before any work is done, whether an upload can succeed. Returns the client that `push` uses.

    Raises `UsageError` for a name that no repository can have, and for a repository of the other visibility;
    `Unavailable` without a token or without the hub, with the next step.
    """
    try:
        hub_utils.validate_repo_id(repo)
    except hub_errors.HFValidationError as error:
        raise UsageError(f"--push {repo}: {error}; write the repository as OWNER/NAME") from None
    if api is None:
        if hub_constants.HF_HUB_OFFLINE:
            raise Unavailable("--push needs the network, and HF_HUB_OFFLINE is set: unset it, or export without --push")
        if huggingface_hub.get_token() is None:
            raise Unavailable(
                "--push needs a token of the Hugging Face hub with the right to write: run `hf auth login`, or set HF_TOKEN (make one at "
                "https://huggingface.co/settings/tokens)"
            )
        api = huggingface_hub.HfApi(library_name="fgrl")
    try:
        private = api.model_info(repo).private if api.repo_exists(repo, repo_type="model") else None
    except Exception as error:
        raise _explained(error, repo) from error
    if private is False and not public:
        raise UsageError(
            f"--push {repo}: the repository exists and is public: add --public, or name another repository"
        )
    if private is True and public:
        raise UsageError(
            f"--push {repo}: the repository exists and is private: make it public in its settings on the hub, or leave --public out"
        )
    return api


def push(folder: Path, repo: str, *, public: bool, api: Any, message: str) -> str:
    """Upload an exported folder. Returns the address of the repository."""
    try:
        made = api.create_repo(repo, private=not public, repo_type="model", exist_ok=True)
        api.upload_folder(
            repo_id=made.repo_id,
            folder_path=str(folder),
            repo_type="model",
            commit_message=message,
            delete_patterns=REPLACED,
        )
    except Exception as error:
        raise _explained(error, repo, folder) from error
    return str(made)


def _explained(error: Exception, repo: str, folder: Path | None = None) -> Exception:
    """Return an error of the hub or of the network with a next step; any other error is a bug and is returned
    unchanged.
    """
    if not isinstance(error, OSError) and not type(error).__module__.startswith("http"):
        return error
    written = "" if folder is None else f" The export itself is complete: `hf upload {repo} {folder}` uploads it."
    status = getattr(getattr(error, "response", None), "status_code", None)
    if status in (401, 403):
        what = (
            f"the hub refuses the token ({status}): it needs the right to write to this owner's repositories "
            "(https://huggingface.co/settings/tokens)"
        )
    elif status is not None:
        what = f"the hub answered: {' '.join(str(error).split()) or status}"
    else:
        what = f"the hub cannot be reached ({type(error).__name__}: {error})"
    return Unavailable(f"--push {repo}: {what}.{written}")
