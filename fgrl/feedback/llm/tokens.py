"""The number of tokens in a request's prompt: counted by a tokenizer, estimated, and an upper bound.

Endpoints do not report which tokenizer they use, and the usual ones are downloads. The estimate counts words, digits
and signs as byte-pair tokenizers of 50,000 to 200,000 tokens split English: within about 10% for prose, less exact for
code and other languages.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

from fgrl.base import lazy
from fgrl.kinds.specs import ModelSpec
from fgrl.types import Message, Ref, Request

pretrained = lazy.load("fgrl.models.pretrained")
sources = lazy.load("fgrl.models.sources")

TOKENS_PER_MESSAGE = 4
"""Tokens that a chat template adds to a message, approximately."""
TOKENS_PER_MESSAGE_AT_MOST = 16
_PIECES = re.compile(r"([^\W\d_]+)|(\d+)|(\s*\n\s*)|([^\w\s]|_)|(\s{2,})")


def estimate(request: Request) -> int:
    """Return the estimated number of tokens of the prompt, without a tokenizer."""
    prompt = sum(of_text(message.content) + TOKENS_PER_MESSAGE for message in request.messages)
    return prompt + (0 if request.json_schema is None else of_text(json.dumps(request.json_schema)))


def at_most(request: Request) -> int:
    """Return an upper bound: no byte-level tokenizer makes more tokens than bytes."""
    prompt = sum(len(message.content.encode()) + TOKENS_PER_MESSAGE_AT_MOST for message in request.messages)
    schema = 0 if request.json_schema is None else len(json.dumps(request.json_schema).encode())
    return prompt + schema + TOKENS_PER_MESSAGE_AT_MOST


def count(request: Request, tokenizer: str) -> int:
    """Return the number of tokens of the prompt that the tokenizer of a model (hub id, folder or packaged name) makes
    of it.
    """
    return _count_rendered(tokenizer, tuple((message.role, message.content) for message in request.messages))


@lru_cache(maxsize=65536)
def _count_rendered(tokenizer: str, messages: tuple[tuple[str, str], ...]) -> int:
    loaded = load_tokenizer(ModelSpec(base=tokenizer))
    if loaded.chat_template is None:
        return sum(len(loaded.encode(text, add_special_tokens=False)) + TOKENS_PER_MESSAGE for _role, text in messages)
    chat = [Message(role=role, content=text).model_dump() for role, text in messages]
    rendered = loaded.apply_chat_template(chat, add_generation_prompt=True, tokenize=False)
    return len(loaded.encode(rendered, add_special_tokens=False))


def load_tokenizer(model: ModelSpec, resolve: Callable[[Ref[Any]], Path] | None = None) -> Any:
    """Return the tokenizer of a model, for counting only, without its weights; `resolve` maps `${out:stage}` to a
    folder.
    """
    source = sources.locate(model, resolve)
    return _cached(source.name, source.revision, model.templating)


@lru_cache(maxsize=4)
def _cached(*named: Any) -> Any:
    return pretrained.token_counter_of(*named)


def of_text(text: str) -> int:
    """Return the estimated number of tokens of a text, without a tokenizer."""
    return sum(_tokens_of_piece(*match.groups()) for match in _PIECES.finditer(text))


def _tokens_of_piece(
    word: str | None, digits: str | None, newlines: str | None, sign: str | None, spaces: str | None
) -> int:
    if word:
        if word.isascii():
            return 1 if len(word) <= 8 else math.ceil(len(word) / 6)
        return max(1, math.ceil(len(word.encode()) / 3))
    if digits:
        return math.ceil(len(digits) / 2)
    return 1 if newlines or sign or spaces else 0
