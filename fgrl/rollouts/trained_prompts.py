"""Prompts that a model was trained on, stored as hashes beside its weights, so that an evaluation can tell which
prompts the model has seen.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from array import array
from collections.abc import Iterable
from pathlib import Path

from fgrl.base.files import atomically
from fgrl.types import Message

FILE = "trained_on.u64"


def digest(prompt: str | list[Message]) -> int:
    """Return eight bytes of a hash of the prompt's text, or of its turns."""
    return _hashed(prompt if isinstance(prompt, str) else json.dumps([[turn.role, turn.content] for turn in prompt]))


def normalized_digest(prompt: str | list[Message]) -> int:
    """Return eight bytes of a hash of the prompt without parts that seldom make a different prompt: the system prompt,
    case, runs of white space, compatible forms of one character in Unicode, punctuation at the end. A text equals a
    conversation of one user turn.
    """
    turns = [("user", prompt)] if isinstance(prompt, str) else [(turn.role, turn.content) for turn in prompt]
    plain = [[role, _normalized(text)] for role, text in turns if role != "system"]
    return _hashed("normalized" + json.dumps(plain))


def digests(prompt: str | list[Message]) -> tuple[int, int]:
    """Return the hashes of a prompt that a model's folder stores: `digest` and `normalized_digest`."""
    return digest(prompt), normalized_digest(prompt)


def _normalized(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split()).rstrip(".,;:!?\u2026 ")


def _hashed(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest())


def write(folder: Path, digests: Iterable[int], start: Path | None) -> None:
    """Add the file to a model's folder; `start` is the folder of the model from which its training began."""
    known = {*digests, *(read(start) if start is not None else ())}
    with atomically(folder / FILE) as partial:
        partial.write_bytes(array("Q", sorted(known)).tobytes())


def read(folder: Path) -> frozenset[int]:
    """Return the digests in a model's folder, or an empty set if it has none."""
    file = folder / FILE
    digests = array("Q")
    if file.is_file():
        digests.frombytes(file.read_bytes())
    return frozenset(digests)
