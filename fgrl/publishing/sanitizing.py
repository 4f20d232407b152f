"""Settings and text that leave this machine: without its paths and without secrets."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from fgrl.llm.secrets import HIDDEN, Scrubber

SHORTEST_SECRET = 8
"""Characters: a shorter value of an environment variable may be an ordinary word."""
_SECRET_NAME = re.compile(
    r"(^|_)(api_?key|secret|password|passwd|authorization|access_token|auth_token|hf_token)$", re.I
)
_TOKEN = re.compile(r"\b(?:hf|ghp|gho|glpat|xoxb)[_-][A-Za-z0-9_-]{16,}")
_IN_URL = re.compile(r"(\w+://)[^/@\s]+@")
_IN_QUERY = re.compile(
    r"([?&](?:[\w.-]*[_.-])?(?:api_?key|key|token|secret|password|passwd|auth|authorization|signature|sig|credential)=)[^&#\s\"'`<>]+",
    re.I,
)
_PART = r"[^\s\"'`,;:()\[\]{}<>|*?/\\]+"
_PATH = re.compile(
    rf"(?<![\w.:/<~-])(?:file://|~)?(?:/{_PART}){{2,}}/?|(?<![\w.])[A-Za-z]:[\\/]{_PART}(?:[\\/]{_PART})+[\\/]?"
)
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")


class Sanitizer:
    """Replaces absolute paths of two parts and more by the names of their files, and secrets by `<key>`.

    Secrets are what looks like one, the values of settings that are named like one, and the values of the environment variables
    that settings (`api_key_env: NAME`) name.

    Args:
        settings: what will be published; the environment variables that it names are looked up here.
        folders: folders of this machine whose path is removed wherever it occurs, besides the home folder, the current folder and
            the folder of temporary files.
    """

    def __init__(self, settings: Any = None, folders: Iterable[Path] = ()) -> None:
        variables = {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", *_environment_names(settings)}
        values = [os.environ[name] for name in sorted(variables) if len(os.environ.get(name, "")) >= SHORTEST_SECRET]
        self._scrubbers = [Scrubber(value) for value in values] or [Scrubber(None)]
        places = {Path.home(), Path.cwd(), Path(tempfile.gettempdir()), *folders}
        whole = {text for place in places for text in (str(place), str(place.resolve())) if len(text) > 2}
        alternatives = "|".join(re.escape(text) for text in sorted(whole, key=len, reverse=True))
        self._places = re.compile(rf"(?<![\w.])(?:{alternatives})(?=/|\b)[^\s\"'`,;:)\]}}]*")

    def text(self, text: str) -> str:
        """Running text: absolute paths, also of other machines, are named by their last part."""
        text = _IN_QUERY.sub(rf"\1{HIDDEN}", _IN_URL.sub(r"\1", text))
        for paths in (self._places, _PATH):
            text = paths.sub(lambda match: last_part(match[0]), text)
        for scrubber in self._scrubbers:
            text = scrubber(text)
        return _TOKEN.sub(HIDDEN, text)

    def value(self, value: Any) -> Any:
        """Settings: mappings, lists and plain values. A text that is an absolute path becomes the name of its file."""
        if isinstance(value, Mapping):
            return {
                self.text(name) if isinstance(name, str) else name: HIDDEN
                if isinstance(name, str) and isinstance(item, str) and item and _SECRET_NAME.search(name)
                else self.value(item)
                for name, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.value(item) for item in value]
        if not isinstance(value, str):
            return value
        return self.text(last_part(value) if is_path(value) else value)


def is_path(text: str) -> bool:
    """Is it, as a whole, an absolute path or one from a home folder? `/` alone and text of several lines are not."""
    return "\n" not in text and len(text) > 1 and (text.startswith(("/", "~/")) or _DRIVE.match(text) is not None)


def last_part(path: str) -> str:
    """The name of the file or folder, of a path of any system."""
    return (PureWindowsPath(path) if _DRIVE.match(path) else PurePosixPath(path)).name


def parts(path: str) -> tuple[str, ...]:
    """The names that follow the root or the home folder, of an absolute path of any system."""
    return (PureWindowsPath(path) if _DRIVE.match(path) else PurePosixPath(path)).parts[1:]


def _environment_names(value: Any) -> Iterator[str]:
    """The values of settings whose name ends in `_env`."""
    if isinstance(value, Mapping):
        yield from (item for name, item in value.items() if isinstance(item, str) and str(name).endswith("_env"))
    if isinstance(value, Mapping | list | tuple):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _environment_names(item)
