"""Token ids as text, and the characters of the text that each token covers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def decode(tokenizer: Any, ids: Sequence[int]) -> str:
    """The text of a response, without special tokens and without tidying of spaces."""
    return tokenizer.decode(list(ids), skip_special_tokens=True, clean_up_tokenization_spaces=False)


def token_texts(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """Each token decoded alone, special tokens too."""
    return [tokenizer.decode([token]) for token in ids]


UNFINISHED = "\ufffd"
"""What a tokenizer decodes bytes to that are not (yet) a whole character."""


def offsets(tokenizer: Any, ids: Sequence[int]) -> list[tuple[int, int]]:
    """Characters `start:end` of `decode(tokenizer, ids)` that each token covers.

    Tokens that hold parts of one character (an emoji in byte-level vocabularies) all cover it. A special token covers
    nothing. Together the tokens cover every character.
    """
    return _offsets_by_window(tokenizer, ids) or _offsets_by_prefix(tokenizer, ids)


def _offsets_by_window(tokenizer: Any, ids: Sequence[int]) -> list[tuple[int, int]] | None:
    """Decode a few tokens at a time; None when the pieces do not add up to the whole text."""
    spans: list[tuple[int, int]] = []
    before = start = 0  # ids[before:start] is context, ids[start:] is not yet placed
    placed = stable = 0  # characters of the text up to `start`, and up to the last whole character
    pieces: list[str] = []
    for index in range(len(ids)):
        context = decode(tokenizer, ids[before:start])
        piece = decode(tokenizer, ids[before : index + 1])
        if not piece.startswith(context):
            return None
        piece = piece[len(context) :]
        last, unfinished = index + 1 == len(ids), piece.endswith(UNFINISHED)
        whole = placed + len(piece if last else piece.rstrip(UNFINISHED))
        spans.append((stable, max(stable, whole) + (unfinished and not last)))
        stable = max(stable, whole)
        if last or not unfinished:
            pieces.append(piece)
            placed += len(piece)
            before, start = start, index + 1
    return spans if "".join(pieces) == decode(tokenizer, ids) else None


def _offsets_by_prefix(tokenizer: Any, ids: Sequence[int]) -> list[tuple[int, int]]:
    """Decode every prefix: slower, but correct for tokenizers whose text depends on tokens far before.

    (With byte fallback, one byte of an unfinished character makes every byte token before it unreadable.)
    """
    text = decode(tokenizer, ids)
    spans, stable = [], 0
    for index in range(len(ids)):
        prefix = decode(tokenizer, ids[: index + 1])
        whole = len(text) if index + 1 == len(ids) else _common_length(prefix.rstrip(UNFINISHED), text)
        started = max(stable, whole) + prefix.endswith(UNFINISHED)
        spans.append((stable, min(started, len(text))))
        stable = max(stable, whole)
    return spans


def _common_length(a: str, b: str) -> int:
    return next((index for index, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


def encode_text(tokenizer: Any, text: str) -> tuple[list[int], list[tuple[int, int]]]:
    """Token ids of a text, without special tokens, and the characters `start:end` of it that each token covers.

    The tokenizer's own offsets are used where each token has characters of its own. Where several tokens share a
    character (bytes), or a token has none (the mark before a first word), the tokenizer's offsets are too wide: then
    `offsets` computes them, unless the tokenizer has changed the text (to another Unicode form, for example), whose
    offsets only the tokenizer knows.
    """
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    ids, given = list(encoded.input_ids), [(start, end) for start, end in encoded.offset_mapping]
    ends = [0, *(end for _start, end in given)]
    simple = all(end == start < stop for end, (start, stop) in zip(ends, given, strict=False)) and ends[-1] == len(text)
    return ids, given if simple or decode(tokenizer, ids) != text else offsets(tokenizer, ids)
