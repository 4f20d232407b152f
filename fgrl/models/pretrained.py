"""Loading of saved models and tokenizers, without running code beside them.

Every weight is loaded by `pretrained_model` (or `sentence_encoder`, which uses it). Weights that are missing, unused,
of another shape or not finite are refused. Adapters and heads are checked with the same messages by `refuse_others`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import huggingface_hub

from fgrl.base import lazy
from fgrl.base.errors import DataError, FgrlError, Unavailable
from fgrl.kinds.specs import DAY, PLAIN, Templating
from fgrl.models import folders
from fgrl.registry.problems import did_you_mean

if TYPE_CHECKING:
    from fgrl.models import finite
else:
    finite = lazy.load("fgrl.models.finite")

jinja2 = lazy.load("jinja2")

SHORT_NAMES: set[str] = set()
"""Names of packaged models, added by the module that finds them."""
_HINT = "a hub id needs the network or a filled cache; a folder would be found by its path"
UNUSED = ("pooler.",)
"""Prefixes of parts of encoders that fgrl never uses, and that many models do not have: they may be missing."""
PROBE = "Rain fell on the hills all night."
"""Text with which a tokenizer and a chat template are tried."""
REPORTING: Mapping[str, Any] = {"output_loading_info": True, "ignore_mismatched_sizes": True}
"""Options with which transformers reports what it found in the files; without the second it raises an error for wrong
shapes that does not name them.
"""
TODAY = "26 Jul 2024"
"""Date that templates use as today if no `date_string` is set."""
VARIABLES = "template_variables"
"""Key in the settings of a tokenizer for further variables of templates."""
CLOCK = (
    "{%- macro strftime_now(format) -%}{%- set ns = namespace(text=format) -%}{%- for code, text in fgrl_clock.items() -%}"
    "{%- set ns.text = ns.text.replace(code, text) -%}{%- endfor -%}{{ ns.text }}{%- endmacro +%}"
)
"""Text before a template that reads the clock: it replaces transformers' own function."""
CHANCE = re.compile(r"\| random\b|\bmap \( .random\b|\blipsum\b")
"""Random functions in the words of a template's code, with a space between them."""


def pretrained(auto: Any, name: str | Path, **options: Any) -> Any:
    """Return `auto.from_pretrained(name, ...)`, where `auto` is a class of transformers without weights.

    Raises `Unavailable` for a model of the hub that cannot be reached, `DataError` for a folder without a model, for a
    model that cannot be read, and for a model whose class transformers does not know, because it contains the class as
    code (`auto_map` in its config). If transformers knows the class, that class loads the weights.
    """
    file = {"AutoTokenizer": "tokenizer.json", "GenerationConfig": "generation_config.json"}.get(
        auto.__name__, "config.json"
    )
    with reading(name, file):
        if Path(name).is_dir():
            folders.read_settings(Path(name))
        return auto.from_pretrained(name, trust_remote_code=False, **options)


def pretrained_model(auto: Any, name: str | Path, *, unused: tuple[str, ...] = UNUSED, **options: Any) -> Any:
    """Return a model with its weights, none of which is random: see `pretrained`.

    `DataError` names weights that are missing, unused, of another shape, or not finite. Weights that are tied to others
    may be missing, and so may the parts that `unused` names. If only the trunk is read (`AutoModel`), the weights of a
    head are ignored.
    """
    if "gguf_file" not in options:
        options["use_safetensors"] = True
        if Path(name).is_dir():
            folders.read_settings(Path(name))
            folders.check_weights(Path(name))
    with reading(name, "config.json"):
        net, found = auto.from_pretrained(name, trust_remote_code=False, **REPORTING, **options)
    _refuse(net, found, name, unused)
    refuse_others(name, infinite=finite.non_finite(net))
    return net


def _refuse(net: Any, found: Mapping[str, Any], name: str | Path, unused: tuple[str, ...]) -> None:
    """Raise `DataError` for the problems that transformers found in the files of a model."""
    parts = {part for part, _module in net.named_children()}
    trunk = net.base_model is net  # no head of its own: those beside it are another task's
    refuse_others(
        name,
        missing=[key for key in found["missing_keys"] if not any(f".{part}" in f".{key}" for part in unused)],
        unexpected=[
            key for key in found["unexpected_keys"]
            if not trunk or key.split(".")[0] in parts or key.startswith(f"{net.base_model_prefix}.")
        ],
        misshapen={key: (tuple(has), tuple(wants)) for key, has, wants in found["mismatched_keys"]},
    )  # fmt: skip


def refuse_others(
    name: str | Path,
    *,
    missing: Iterable[str] = (),
    unexpected: Iterable[str] = (),
    misshapen: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]] | None = None,
    infinite: Iterable[str] = (),
    what: str = "its architecture",
) -> None:
    """Raise `DataError` if weights are missing, unused, of another shape, or not finite.

    misshapen: names with the shape in the file and the shape that `what` needs.
    """
    problems = []
    if missing := list(missing):
        problems.append(f"it has no weights for {len(missing):,} tensors of {what}: {folders.some(missing)}")
    if unexpected := list(unexpected):
        problems.append(f"it has {len(unexpected):,} tensors that {what} does not use: {folders.some(unexpected)}")
    if misshapen:
        first = min(misshapen)
        has, wants = map(list, misshapen[first])
        others = f" (and {len(misshapen) - 1:,} more)" if len(misshapen) > 1 else ""
        problems.append(f"{first} is {has} in its files, and {wants} by {what}{others}")
    if infinite := list(infinite):
        problems.append(
            f"{len(infinite):,} of its tensors are not finite (NaN or infinite numbers): {folders.some(infinite)}"
        )
    if problems:
        raise DataError(
            f"model {name}: {'; '.join(problems)}. Nothing takes the place of wrong weights: {folders.AGAIN}"
        )


def tokenizer_of(name: str, revision: str | None, templating: Templating = PLAIN) -> Any:
    """Return the tokenizer of a model. A text has the same tokens on every day and at every call."""
    import transformers  # not lazily: transformers replaces its own module, which breaks `lazy.load` for everybody

    if (Path(name) / "config.json").is_file():  # read by AutoTokenizer, too: a mistake in it is told by its own name
        pretrained(transformers.AutoConfig, name)
    return _tried(pretrained(transformers.AutoTokenizer, name, revision=revision), name, templating)


def token_counter_of(name: str, revision: str | None, templating: Templating = PLAIN) -> Any:
    """Return a tokenizer that only counts: the same tokens as `tokenizer_of`, without the seconds that importing torch
    takes.

    It reads `tokenizer.json`. For a model without this file, or on the hub and not in the cache yet, `tokenizer_of` is
    used. Raises `Unavailable` at once if the hub is switched off and the cache has no such file.
    """
    file = _tokenizer_file(name, revision)
    if file is None:
        return tokenizer_of(name, revision, templating)
    import transformers  # not lazily, see `tokenizer_of`

    return _tried(pretrained(transformers.PreTrainedTokenizerFast, file.parent), name, templating)


def _tokenizer_file(name: str, revision: str | None) -> Path | None:
    if Path(name).is_dir():
        file = Path(name) / "tokenizer.json"
        return file if file.is_file() else None
    cached = huggingface_hub.try_to_load_from_cache(name, "tokenizer.json", revision=revision)
    if isinstance(cached, str):
        return Path(cached)
    if cached is None and huggingface_hub.is_offline_mode():
        raise Unavailable(
            f"model {name}: its tokenizer is not in the cache, and the hub is switched off ({_HINT}{did_you_mean(name, SHORT_NAMES)})"
        )
    return None


def _tried(tokenizer: Any, name: str, templating: Templating) -> Any:
    """Return the tokenizer with its template, after a trial of both: a template is a program, and so is a normalizer."""
    chat_template, date_string, variables, thinking = templating
    place = f"model {name}" if chat_template is None else f"{chat_template}, the chat_template of model {name}"
    if chat_template is not None:
        with reading(name, chat_template):
            tokenizer.chat_template = Path(chat_template).read_text(encoding="utf-8")
    if date_string is not None:
        tokenizer.init_kwargs["date_string"] = date_string  # saved with it
    if variables:
        tokenizer.init_kwargs[VARIABLES] = dict(variables)
    if thinking:
        tokenizer.init_kwargs["thinking"] = list(thinking)
    tokenizer.apply_chat_template = partial(_rendered, tokenizer.apply_chat_template, tokenizer)
    model = getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None)
    for chance in ("dropout", "alpha"):  # of merges, and of pieces
        if getattr(model, chance, None) is not None:
            setattr(model, chance, None)
    with reading(name, "the chat template" if chat_template is None else chat_template):
        problem = _problem_of_template(tokenizer) if tokenizer.chat_template else ""
    if problem:
        raise DataError(f"{place}: the chat template cannot be used: {problem}; correct it, or {folders.AGAIN}")
    return tokenizer


def _rendered(render: Any, tokenizer: Any, conversation: Any, **options: Any) -> Any:
    """Return the result of `apply_chat_template`, on one fixed day, with the variables of the recipe."""
    template = tokenizer.get_chat_template(options.pop("chat_template", None), options.get("tools"))
    options = tokenizer.init_kwargs.get(VARIABLES, {}) | options
    options["date_string"] = today = tokenizer.init_kwargs.get("date_string", TODAY)
    if "strftime_now" in template:
        codes = [f"%{flag}{code}" for flag in ("-", "") for code in "aAbBcdHIjmMpSUwWxXyYZ"]
        day = datetime.strptime(today, DAY)
        options["fgrl_clock"] = {code: day.strftime(code) for code in codes}
        template = CLOCK + template
    return render(conversation, chat_template=template, **options)


def _problem_of_template(tokenizer: Any) -> str:
    """Return the problem of the prompts that a chat template makes of one and of two turns; "" if there is none."""
    given = tokenizer.chat_template
    for template in given.values() if isinstance(given, dict) else [given]:
        code = [text for _, kind, text in jinja2.Environment().lex(template) if kind in ("operator", "name", "string")]
        if chance := CHANCE.search(" ".join(code)):
            return f"it draws at random ({chance.group()}), so that a prompt would be another one at each call"
    for turns in (["user"], ["user", "assistant"]):
        chat = [{"role": role, "content": PROBE} for role in turns]
        if PROBE not in tokenizer.apply_chat_template(chat, add_generation_prompt=len(turns) == 1, tokenize=False):
            return "what the user says is not in the prompt"
    return ""


def sentence_encoder(name: str, **options: Any) -> Any:
    """Return a model of sentence-transformers, with the weights of its folder (see `pretrained_model`). Raises
    `DataError` for a model with its own classes.
    """
    import sentence_transformers

    if Path(name).is_dir():
        _check_encoder(Path(name))
    with reading(name, "modules.json"):
        encoder = sentence_transformers.SentenceTransformer(
            name, trust_remote_code=False, model_kwargs={"use_safetensors": True}, **options
        )
    if not Path(name).is_dir():
        cached = huggingface_hub.try_to_load_from_cache(name, "modules.json", revision=options.get("revision"))
        if isinstance(cached, str):
            _check_encoder(Path(cached).parent)
    refuse_others(name, infinite=finite.non_finite(encoder))
    return encoder


def _check_encoder(folder: Path) -> None:
    """Check the parts of a sentence encoder: the transformer, and the folders of weights of others."""
    import transformers

    alone = {"path": "", "type": "sentence_transformers.models.Transformer"}
    for module in folders.read_settings(folder).get("modules.json", [alone]):
        kind, part = str(module["type"]), folder / module["path"]
        if not kind.startswith("sentence_transformers."):
            why = f"the module {kind} can only be read by running code that comes with it, which fgrl never does"
            raise folders.refusal(folder / "modules.json", why)
        if kind.endswith(".Transformer"):
            pretrained_model(transformers.AutoModel, part, unused=(*UNUSED, "decoder."), device_map="meta")
        elif any(part.glob("*.bin")) or any(part.glob("*.safetensors")):
            folders.check_weights(part)


@contextmanager
def reading(name: str | Path, file: str) -> Iterator[None]:
    """Suppress progress bars and reports, and convert errors of a library to `DataError` or `Unavailable`. `file` is
    the file that it reads.
    """
    with no_progress_bars():
        try:
            yield
        except (FgrlError, MemoryError):
            raise
        except ImportError as error:
            raise Unavailable(f"model {name}: {_short(error)}") from error
        except OSError as error:
            if Path(name).is_dir():
                raise DataError(f"model {name}: {file}: {_short(error)}; {folders.AGAIN}") from error
            unasked = isinstance(error.__cause__, huggingface_hub.errors.LocalEntryNotFoundError)
            why = "not in the local cache, and the hub cannot be asked" if unasked else _short(error)
            raise Unavailable(f"model {name}: {why} ({_HINT}{did_you_mean(str(name), SHORT_NAMES)})") from error
        except Exception as error:
            if type(error).__name__ == "OutOfMemoryError":  # of torch, which this does not import
                raise
            if "trust_remote_code" in str(error):
                raise DataError(
                    f"model {name}: it can only be read by running code that comes with it, which fgrl never does: take a model "
                    "of an architecture that transformers knows, or save this one as such a model"
                ) from error
            raise DataError(
                f"model {name}: {file} cannot be used: {type(error).__name__}: {_short(error)}; {folders.AGAIN}"
            ) from error


def _short(error: BaseException) -> str:
    """Return the message of a library in one line of limited length."""
    text = " ".join(str(error).split())
    return text if len(text) <= 300 else f"{text[:300]} ..."


@contextmanager
def no_progress_bars() -> Iterator[None]:
    """Suppress transformers' progress bars and its reports on missing weights inside the context: `refuse_others` has
    better messages.
    """
    import transformers

    logging = transformers.utils.logging
    shown, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity(logging.CRITICAL)
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()
