"""Reading saved models and tokenizers, without running code that lies beside them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import huggingface_hub

from fgrl.errors import DataError, Unavailable

_HINT = "a hub id needs the network or a filled cache; a folder would be found by its path"


def pretrained(auto: Any, name: str | Path, **options: Any) -> Any:
    """`auto.from_pretrained(name, ...)`, where `auto` is a class of transformers.

    Raises `Unavailable` for a model of the hub that cannot be reached, `DataError` for a folder without a model, and for a
    model whose class transformers does not know, because it brings the class along as code (`auto_map` in its config). Where
    transformers knows the class, the weights load by it.
    """
    with _own_code_refused(name):
        try:
            return auto.from_pretrained(name, trust_remote_code=False, **options)
        except OSError as error:
            first = str(error).strip().splitlines()[0]
            if Path(name).is_dir():
                raise DataError(f"model {name}: {first}") from error
            raise Unavailable(f"model {name}: {first} ({_HINT})") from error


def tokenizer_of(name: str, revision: str | None, chat_template: str | None = None) -> Any:
    """The tokenizer of a model; `chat_template` is a file with the template to use instead of the tokenizer's."""
    import transformers  # not lazily: transformers replaces its own module, which breaks `lazy.load` for everybody

    return _with_template(pretrained(transformers.AutoTokenizer, name, revision=revision), chat_template)


def token_counter_of(name: str, revision: str | None, chat_template: str | None = None) -> Any:
    """A tokenizer that only counts: the same tokens as `tokenizer_of`, without the seconds that importing torch takes.

    Reads `tokenizer.json`. A model without this file, or of the hub and not in the cache yet, is read by `tokenizer_of`.
    Raises `Unavailable` at once where the hub is switched off and the cache has no such file.
    """
    file = _tokenizer_file(name, revision)
    if file is None:
        return tokenizer_of(name, revision, chat_template)
    import transformers  # not lazily, see `tokenizer_of`

    return _with_template(pretrained(transformers.PreTrainedTokenizerFast, file.parent), chat_template)


def _tokenizer_file(name: str, revision: str | None) -> Path | None:
    if Path(name).is_dir():
        file = Path(name) / "tokenizer.json"
        return file if file.is_file() else None
    cached = huggingface_hub.try_to_load_from_cache(name, "tokenizer.json", revision=revision)
    if isinstance(cached, str):
        return Path(cached)
    if cached is None and huggingface_hub.is_offline_mode():
        raise Unavailable(f"model {name}: its tokenizer is not in the cache, and the hub is switched off ({_HINT})")
    return None


def _with_template(tokenizer: Any, chat_template: str | None) -> Any:
    if chat_template is not None:
        tokenizer.chat_template = Path(chat_template).read_text(encoding="utf-8")
    return tokenizer


def sentence_encoder(name: str, **options: Any) -> Any:
    """A model of sentence-transformers. Raises `DataError` for one that brings its own classes."""
    import sentence_transformers

    with _own_code_refused(name):
        return sentence_transformers.SentenceTransformer(name, trust_remote_code=False, **options)


@contextmanager
def _own_code_refused(name: str | Path) -> Iterator[None]:
    """No progress bars inside. The libraries' advice to trust the code becomes a `DataError`."""
    with no_progress_bars():
        try:
            yield
        except ValueError as error:
            if "trust_remote_code" not in str(error):
                raise
            raise DataError(
                f"model {name}: it can only be read by running code that comes with it, which fgrl never does: take a model "
                "of an architecture that transformers knows, or save this one as such a model"
            ) from error


@contextmanager
def no_progress_bars() -> Iterator[None]:
    """Inside, transformers shows no progress bars."""
    import transformers

    logging = transformers.utils.logging
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()
