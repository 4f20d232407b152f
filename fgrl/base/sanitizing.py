"""Removal of secrets, and of paths of this machine, from text and data that is written, printed or sent. No other
module does this.

A secret is recognized by its name (`api_key`, `X-Api-Key`, `apiToken`), by its form (`AKIA...`, a PEM block, a JSON web
token: `secret_forms.txt`), or by its value. Known values are those of environment variables whose names look like
secrets or that a setting names (`api_key_env: MY_KEY`), and values that were found before (`remember`).

`hide` is for text and `hide_in` for settings. `secrets_in` names the secrets that a recipe must not contain.
`Sanitizer` is for text and settings that leave this machine. The data of a run (samples, responses) is not sanitized,
because it is the training data.
"""

from __future__ import annotations

import base64
import json
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any
from urllib.parse import quote

from fgrl.base.visible import without_lone_surrogates

HIDDEN = "<key>"
SHOWN = 400
"""Maximum number of characters of a foreign message that are repeated."""
SHORTEST = 6
"""Minimum length in characters of a found value that is hidden wherever its characters occur. A shorter value is hidden
only in its own place.
"""
SHORTEST_OF_ENVIRONMENT = 8
"""Minimum length in characters of the value of an environment variable. A shorter value may be an ordinary word."""

# -- names -------------------------------------------------------------------------------------------------------------

_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")
_SURE = re.compile(
    r" (?:pass ?(?:word|wd|phrase|code|key)s?|secrets?|(?:client|app|api)secrets?|credentials?|creds|cookies?|(?:proxy )?authorization|bearer|jwts?"
    r"|(?:api|access|private|secret|signing|encryption|auth|account|storage|ssh|deploy|master|service|subscription|hmac|wandb|license) ?keys?"
    r"|(?:api|auth|access|bearer|refresh|bot|csrf|xsrf|oauth|hub) ?tokens?|session ?id|connection ?string) "
)
"""Words that mark the name of a secret, at any position in the name."""
_LAST = re.compile(r"\w (?:pwd|auth) $|^ auth $")
"""Words that mark the name of a secret only at its end."""
_TOKEN = re.compile(
    r"(?<! pad)(?<! eos)(?<! bos)(?<! unk)(?<! sep)(?<! cls)(?<! mask)(?<! end)(?<! start)(?<! stop)(?<! special)(?<! image)"
    r"(?<! first)(?<! last)(?<! next)(?<! new)(?<! prompt)(?<! response)(?<! think)(?<! added)(?<! max)(?<! min)(?<! total)(?<! per) tokens? $"
)
"""`token` at the end of a name indicates a secret, unless the rest of the name or the value belongs to a tokenizer."""
_NO_VALUE = re.compile(
    r" (?:env|file|files|path|folder|dir|url|name|names|field|column|columns|policy|length|count|counts|prefix|type|kind) $"
)
"""Endings of names whose value only describes a secret, such as its location."""
_NAMES_A_VARIABLE = re.compile(r"(?:^|[._-])env(?:_?vars?)?$|[a-z]Env(?:Vars?)?$")
"""Names of settings whose values are names of environment variables: `api_key_env`."""
_OPAQUE = re.compile(r"(?=.*\d)[\w.~+/=*:-]{8,}")
"""Values of `token` that are secrets: neither words nor tokens of a tokenizer (`<|end|>`, `[PAD]`)."""


@lru_cache(maxsize=4096)
def _kind_of_name(name: str) -> str:
    """Return "sure", "token" or "" for the name of a setting, an option, a header or a variable. Only the last part of
    a dotted name counts.
    """
    words = [word.lower() for word in _WORD.findall(name.rpartition(".")[2])]
    while words and words[-1].isdigit():
        words.pop()
    text = f" {' '.join(words)} "
    if _NO_VALUE.search(text):
        return ""
    return "sure" if _SURE.search(text) or _LAST.search(text) else "token" if _TOKEN.search(text) else ""


def names_secret(name: str, value: str) -> bool:
    """Return True if a setting of this name with this value is a secret."""
    kind = _kind_of_name(name) if value and value != HIDDEN and not value.startswith("${") else ""
    return kind == "sure" or (kind == "token" and _OPAQUE.fullmatch(value) is not None)


# -- forms -------------------------------------------------------------------------------------------------------------

_PRIVATE_KEY = (
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----(?:(?:.|\n)*?-----END [A-Z0-9 ]*PRIVATE KEY(?: BLOCK)?-----|.*)"
)
_FORMS = Path(__file__).with_name("secret_forms.txt")
_BEGINS = r"(?:(?<![A-Za-z0-9]{0})|(?<=\\[nrt]{0})|(?<=%[0-9A-F][0-9A-F]{0}))"
"""Start of a secret form: not inside another word, but possibly after an escaped line break or character."""


@cache
def _forms() -> list[tuple[str, str]]:
    """Return the patterns of secrets, each with a fixed part of it. The fixed part is searched first, because texts are
    long and secrets are rare.
    """
    forms = [("-----BEGIN", _PRIVATE_KEY)]
    for line in _FORMS.read_text(encoding="utf-8").splitlines():
        part, _, rest = line.partition(" ")
        if part and not part.startswith("#"):
            own, first = re.escape(part), _BEGINS.format("")
            if "@" in rest:
                forms.append((part, ("" if rest.startswith("@") else first) + rest.replace("@", own)))
            else:  # the part first: it is found much faster
                forms.append((part, own + _BEGINS.format(own) + rest))
    return forms


_BEARER = re.compile(r"\b(?:Bearer|Basic)\s+(?=[\w.~+/=*-]*\d)[\w.~+/=*-]{8,}", re.IGNORECASE)
_IN_URL = re.compile(r"(\b\w{2,20}://)(?:[^/@\s:\"'<>]*:[^/@\s\"'<>]+|[^/@\s\"'<>]{16,})@")
_HINT = r"(?:pass|pwd|secret|token|key|cred|cookie|auth|bearer|session|jwt|connection)"
_VALUE = r"\[[^\]\n]*\]|\"(?:[^\"\\\n]|\\.)*\"|'[^'\n]*'|[^\s,;&}\])\"'<>#]+"
_ASSIGNED = re.compile(
    rf"(?<![\w.-])(?P<name>(?P<dash>--?)?(?=[\w.-]{{0,200}}{_HINT})[\w.-]{{1,240}})"
    rf"(?P<between>[\"']?\s?(?:=>?|:)\s?|(?(dash)(?:\s+|[\"']?,\s*[\"']?)|(?!)))(?P<value>{_VALUE})",
    re.IGNORECASE,
)
"""Assignments `name=value`, `name: value`, `"name": "value"`, and `--name value` of a command."""
_HEADER = re.compile(r"(?:^|[^a-z])(?:authorization|cookie)$", re.IGNORECASE)
"""Names whose value extends to the end of the line."""


_PROSE = re.compile(
    r"(?:a|bool|bytes|cannot|float|holds|int|is|it|looks|missing|must|needs|no|none|not|nothing|null|see|str|the|this|unknown|wants|was)",
    re.IGNORECASE,
)
"""Words that continue a sentence about a setting, as in `password: wants str`, and names of types."""
_IN_A_SENTENCE = re.compile(r"\w \Z")
_WORDS_AFTER = re.compile(r"[^,;}\])\n\"']*")
_REST_OF_LINE = re.compile(r"[^\n\"'{}]*")


def _assignments_hidden(text: str) -> str:
    pieces, at = [], 0
    while (found := _ASSIGNED.search(text, at)) is not None:
        start = found.start("value")
        hidden, end = _assigned(found) or ("", start)  # what stands behind another name may be an assignment, too
        pieces += [text[at:start], hidden]
        at = end
    return "".join([*pieces, text[at:]])


def _assigned(found: re.Match[str]) -> tuple[str, int] | None:
    """Return the replacement of the secret in an assignment and the end of the secret; None if the value is not a
    secret.
    """
    name, between, value = found["name"], found["between"], found["value"]
    quoted, listed = value[0] in "\"'", value[0] == "["
    bare = value[1:-1] if quoted else value
    values = re.findall(r"[^\s,\"'\[\]]+", value) if listed else [bare]
    sure = _kind_of_name(name) == "sure"
    if not any(names_secret(name, each) for each in values) or (found["dash"] and value[0] == "-"):
        return None
    if listed:
        return f"[{HIDDEN}]", found.end()
    if quoted:
        return f"{value[0]}{HIDDEN}{value[0]}", found.end()
    words_after = between.endswith(": ")
    if not _OPAQUE.fullmatch(bare):
        sentence = words_after and _IN_A_SENTENCE.search(found.string[max(found.start() - 2, 0) : found.start()])
        if sentence or (re.search("[=:]", between) and (_PROSE.fullmatch(bare) or "(" in bare)):
            return None
    if _HEADER.search(name):
        return HIDDEN, _end(_REST_OF_LINE, found)
    return HIDDEN, _end(_WORDS_AFTER, found) if words_after and sure and not _OPAQUE.fullmatch(bare) else found.end()


def _end(pattern: re.Pattern[str], found: re.Match[str]) -> int:
    after = pattern.match(found.string, found.end())
    return found.end() if after is None else after.end()


def _forms_hidden(text: str) -> str:
    """Return text without strings that have the form of a secret, and without values that follow the name of a secret."""
    return _assignments_hidden(_plain_forms_hidden(text))


def _plain_forms_hidden(text: str) -> str:
    for part, form in _forms():
        if part in text:
            text = re.sub(form, HIDDEN, text)
    if "://" in text:
        text = _IN_URL.sub(r"\1", text)
    if any(word in text for word in ("earer ", "EARER ", "asic ")):
        text = _BEARER.sub(HIDDEN, text)
    return text


# -- values that are known ---------------------------------------------------------------------------------------------

_found: set[str] = set()
_variables: set[str] = set()
"""Names of environment variables that are mentioned in settings."""


def remember(settings: Any) -> None:
    """Hide the secrets in these settings, and in the environment variables that they name, wherever they occur from now
    on.

    From a text that only contains a secret, such as a prompt, only a private key is remembered, not the other words.
    """
    remember_variables(settings)
    for _path, value, named in _secrets(settings):
        whole = named or not re.search(r"\s", value)
        values = [value] if whole else [key[0] for key in re.finditer(_PRIVATE_KEY, value)]
        lines = [line for each in values for line in (each, *each.splitlines()) if not line.startswith("-----BEGIN")]
        _found.update(line for line in lines if len(line) >= SHORTEST)


def remember_variables(settings: Any) -> None:
    """Hide the values of the environment variables that settings name (`api_key_env: NAME`) from now on."""
    if isinstance(settings, Mapping):
        for name, value in settings.items():
            if _NAMES_A_VARIABLE.search(str(name)):
                named = value if isinstance(value, list | tuple) else [value]
                _variables.update(each for each in named if isinstance(each, str))
    if isinstance(settings, Mapping | list | tuple):
        for item in settings.values() if isinstance(settings, Mapping) else settings:
            remember_variables(item)


def _written(secret: str) -> set[str]:
    """Return the encodings in which a secret may occur: unchanged, in an address, in JSON, in HTML, in Python, in
    base64.
    """
    forms = {secret, quote(secret, safe=""), json.dumps(secret)[1:-1], repr(secret)[1:-1]}
    forms.add(
        secret.replace("&", "&amp;")
        .replace("<", "&lt;")
        .replace(">", "&gt;")
        .replace('"', "&#34;")
        .replace("'", "&#39;")
    )
    return forms | {
        base64.b64encode(text.encode("utf-8", "surrogateescape")).decode()
        for text in (secret, f":{secret}", f"Bearer {secret}")
    }


@lru_cache(maxsize=16)
def _all_written(values: frozenset[str]) -> list[str]:
    """Return all encodings, the longest first, because one may be a part of another."""
    return sorted({form for value in values for form in _written(value)}, key=len, reverse=True)


def _known() -> frozenset[str]:
    """Return the values of environment variables that are named like secrets or that settings name, and the values that
    were found before.
    """
    environment = {
        value
        for name, value in os.environ.items()
        if len(value) >= SHORTEST_OF_ENVIRONMENT and _kind_of_name(name) and not is_path(value)
    }
    named = {value for name in _variables if len(value := os.environ.get(name, "").strip()) >= SHORTEST}
    return frozenset(environment | named | _found)


def _known_hidden(text: str) -> str:
    return _without_forms(text, _all_written(_known()))


def _without_forms(text: str, forms: Iterable[str]) -> str:
    for form in forms:
        text = text.replace(form, HIDDEN)
    return text


# -- text and settings -------------------------------------------------------------------------------------------------


def hide(text: str) -> str:
    """Return text without secrets, for output that is printed, logged, or shown on a page."""
    return _forms_hidden(_known_hidden(text))


def hide_on_page(text: str) -> str:
    """Return a whole page of a report without secrets. Markup separates names from values there, so only known values
    and plain forms are hidden.
    """
    return _plain_forms_hidden(_known_hidden(text))


def hide_in(value: Any) -> Any:
    """Return settings and records without secrets: mappings, lists and plain values."""
    forms = _all_written(_known())  # once: a record has thousands of texts
    return _without(value, lambda text: _forms_hidden(_without_forms(text, forms)))


def secrets_in(settings: Any) -> Iterator[tuple[str | int, ...]]:
    """Yield the paths of the secrets in settings, which a recipe must not contain. They are found by name or by form,
    never by the values of the environment.
    """
    yield from dict.fromkeys(path for path, _value, _named in _secrets(settings))


def _secrets(
    value: Any, path: tuple[str | int, ...] = (), *, inside: str = ""
) -> Iterator[tuple[tuple[str | int, ...], str, bool]]:
    """Yield (path, text, whether its name identifies it) of every secret; `inside` is the nearest enclosing name of a
    secret.
    """
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _secrets(item, (*path, name), inside=_inside(name, inside))
    elif isinstance(value, list | tuple):
        for index, item in enumerate(value):
            yield from _secrets(item, (*path, index), inside=_of_option(value, index) or inside)
    elif isinstance(value, str):
        named = bool(inside) and names_secret(inside, value)
        if named or _forms_hidden(value) != value:
            yield path, value, named
    elif isinstance(value, int) and not isinstance(value, bool) and inside and _kind_of_name(inside) == "sure":
        yield path, str(value), True


def _inside(name: object, inside: str) -> str:
    """Return the name that makes an entry of a mapping a secret. Below a name that is surely a secret, every entry is
    one.
    """
    if not isinstance(name, str) or _NO_VALUE.search(f" {name} "):
        return ""
    return name if _kind_of_name(name) else inside if _kind_of_name(inside) == "sure" else ""


def _of_option(items: list[Any] | tuple[Any, ...], index: int) -> str:
    """Return the name of the option to which an item of a command line belongs as its value: `["--password", "x"]`."""
    before = items[index - 1] if index else None
    option = isinstance(before, str) and before.startswith("--") and "=" not in before
    return str(before).lstrip("-") if option and _kind_of_name(str(before).lstrip("-")) else ""


def _without(value: Any, text: Any, inside: str = "") -> Any:
    """Return `value` with secrets hidden by their names, and with `text` applied to every text and every name."""
    if isinstance(value, Mapping):
        return {
            text(name) if isinstance(name, str) else name: _without(item, text, _inside(name, inside))
            for name, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_without(item, text, _of_option(value, index) or inside) for index, item in enumerate(value)]
    if not isinstance(value, str):
        return value
    return HIDDEN if inside and names_secret(inside, value) else text(value)


# -- what leaves this machine ------------------------------------------------------------------------------------------

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

    Args:
        settings: Settings that will be published.
        folders: Folders of this machine whose path is removed wherever it occurs, besides the home folder, the current folder and
            the folder of temporary files.

    """

    def __init__(self, settings: Any = None, folders: Iterable[Path] = ()) -> None:
        remember_variables(settings)
        places = {Path.home(), Path.cwd(), Path(tempfile.gettempdir()), *folders}
        whole = {text for place in places for text in (str(place), str(place.resolve())) if len(text) > 2}
        alternatives = "|".join(re.escape(text) for text in sorted(whole, key=len, reverse=True))
        self._places = re.compile(rf"(?<![\w.])(?:{alternatives})(?=/|\b)[^\s\"'`,;:)\]}}]*")

    def text(self, text: str) -> str:
        """Return running text in which every absolute path, even of another machine, is replaced by its last part."""
        text = _IN_QUERY.sub(rf"\1{HIDDEN}", hide(text))
        for paths in (self._places, _PATH):
            text = paths.sub(lambda match: last_part(match[0]), text)
        return text

    def value(self, value: Any) -> Any:
        """Return settings (mappings, lists and plain values) in which every text that is an absolute path is replaced
        by the name of its file.
        """
        return _without(value, lambda text: self.text(last_part(text) if is_path(text) else text))


def is_path(text: str) -> bool:
    """Return True if the whole text is an absolute path or a path from a home folder. False for `/` alone and for text
    of several lines.
    """
    return "\n" not in text and len(text) > 1 and (text.startswith(("/", "~/")) or _DRIVE.match(text) is not None)


def last_part(path: str) -> str:
    """Return the name of the file or folder at the end of a path of any operating system."""
    return (PureWindowsPath(path) if _DRIVE.match(path) else PurePosixPath(path)).name


def parts(path: str) -> tuple[str, ...]:
    """Return the names after the root or the home folder in an absolute path of any operating system."""
    return (PureWindowsPath(path) if _DRIVE.match(path) else PurePosixPath(path)).parts[1:]


# -- text from an endpoint ---------------------------------------------------------------------------------------------


class Scrubber:
    """Removes the key of one endpoint, however short or unusual, from the endpoint's answers."""

    def __init__(self, secret: str | None) -> None:
        self._forms = _all_written(frozenset([secret])) if secret else []

    def own(self, text: str) -> str:
        """Return text without the key itself, for answers, whose other words are data."""
        return _without_forms(text, self._forms)

    def __call__(self, text: str) -> str:
        """Return text without the key and without any string that looks like one, for messages of other people's code."""
        return hide(self.own(text))

    def line(self, text: str) -> str:
        """Return text without the key and without any string that looks like one, shortened and on one line."""
        return self(" ".join(without_lone_surrogates(text).split()))[:SHOWN]
