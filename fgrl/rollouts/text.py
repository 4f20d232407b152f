"""Conversion between text and token ids: encoding and cutting of prompts and written responses, decoding of drawn ids,
and the characters of each token.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import accumulate, pairwise
from typing import Any

from fgrl.base import lazy
from fgrl.base.errors import DataError
from fgrl.types import DrawnResponse, Message, Prompt

jinja2 = lazy.load("jinja2")


THINKING = "thinking"
"""Key in the settings of a tokenizer for the marks around a response's thoughts."""
Ids = Prompt | DrawnResponse | Sequence[int]
Tools = Sequence[Mapping[str, Any]]


def ids_of(what: Ids) -> Sequence[int]:
    """Return the token ids of a prompt or a response."""
    return what.token_ids if isinstance(what, Prompt | DrawnResponse) else what


def encode_prompt(
    tokenizer: Any, prompt: str | Sequence[Message], max_tokens: int | None = None, tools: Tools = ()
) -> Prompt:
    """Return a prompt in the form that the model reads, up to the start of the answer.

    With a chat template, a text is one user turn, and the template is rendered directly to ids, including the header of
    the assistant's turn; without one, the text is encoded unchanged. A prompt longer than `max_tokens` loses its
    beginning, except for the beginning-of-sequence token. Raises `DataError` for two beginning-of-sequence tokens in a
    row (every later probability would be wrong), for a chat without a chat template, and for an empty prompt.

    tools: JSON schemas of the tools that the model may call. They are described by the template, or else in the system
    turn.
    """
    turns = [Message(role="user", content=prompt)] if isinstance(prompt, str) else prompt
    if tools and not (tokenizer.chat_template and describes_tools(tokenizer, turns, tools)):
        prompt = turns = with_tools(turns, tools)
        tools = ()
    if isinstance(prompt, str) and not tokenizer.chat_template:
        ids = list(tokenizer(prompt).input_ids)
        if ids and ids[-1] == tokenizer.eos_token_id:  # some tokenizers append an end-of-sequence token
            ids.pop()
    else:
        if not tokenizer.chat_template:
            raise DataError(
                "the prompt is a conversation (a `system` prompt makes it one), but the tokenizer has no chat template: name a file "
                "with one as `chat_template` of the model, or use prompts that are a text"
            )
        ids = list(rendered(tokenizer, turns, tools, tokenize=True))
    bos = tokenizer.bos_token_id
    if bos is not None:
        if ids[:2] == [bos, bos]:
            raise DataError(
                f"the prompt starts with two {tokenizer.bos_token!r}: the text or the chat template writes one and the "
                "tokenizer adds another; remove it from one of them"
            )
        if ids[:1] != [bos] and list(tokenizer("").input_ids[:1]) == [bos]:
            ids = [bos, *ids]
    if not ids:
        raise DataError(f"an empty prompt: {prompt!r}")
    lost = 0
    if max_tokens is not None and len(ids) > max_tokens:
        lost, keep = len(ids) - max_tokens, int(ids[0] == bos and max_tokens > 1)
        ids = ids[:keep] + ids[lost + keep :]
    return Prompt(tuple(ids), turns=turns, template=tokenizer.chat_template, lost=lost)


def rendered(tokenizer: Any, turns: Sequence[Message], tools: Tools = (), *, tokenize: bool = False) -> Any:
    """Return a conversation as the chat template renders it, with the header of the assistant's next turn: as text, or
    with `tokenize` as ids. Raises `DataError` if the template refuses it.
    """
    messages = [{"role": turn.role, "content": turn.content} for turn in turns]
    try:
        return tokenizer.apply_chat_template(
            messages, tools=list(tools) or None, tokenize=tokenize, add_generation_prompt=True, return_dict=False
        )
    except (jinja2.TemplateError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
        roles = ", ".join(turn.role for turn in turns)
        raise DataError(
            f"the chat template refuses a conversation of {roles}: {error}; some templates take no system prompt "
            "(leave `system` out), and most want user and assistant in turn"
        ) from None


CALLING = (
    'To call a tool, write <tool_call>{"name": "NAME", "arguments": {"PARAMETER": VALUE}}</tool_call> and nothing after it. '
    "The answer of the tool follows. When you need no tool, answer without a call. The tools:"
)


def describes_tools(tokenizer: Any, turns: Sequence[Message], tools: Tools) -> bool:
    """Return True if the chat template tells the model about tools, False if it ignores them."""
    return bool(rendered(tokenizer, turns, tools) != rendered(tokenizer, turns))


def with_tools(turns: Sequence[Message], tools: Tools) -> list[Message]:
    """Return a conversation with a system turn that describes tools."""
    described = "\n".join([CALLING, *(_signature(tool.get("function", tool)) for tool in tools)])
    system, rest = ([turns[0].content], turns[1:]) if turns and turns[0].role == "system" else ([], turns)
    return [Message(role="system", content="\n\n".join([*system, described])), *rest]


def _signature(tool: Mapping[str, Any]) -> str:
    """Return a tool in few tokens: `name(word: string, most?: integer): description of the tool. word: description of
    the argument.` A type that has parts is written as its JSON schema.
    """
    schema = tool.get("parameters") or {}
    parameters = {name: dict(about) for name, about in schema.get("properties", {}).items()}
    said = [
        tool.get("description", ""),
        *(f"{name}: {p.pop('description')}" for name, p in parameters.items() if "description" in p),
    ]
    needed = schema.get("required", ())
    types = [f"{name}{'' if name in needed else '?'}: {_type(about)}" for name, about in parameters.items()]
    return f"{tool['name']}({', '.join(types)}): {' '.join(filter(None, said))}"


def _type(schema: Mapping[str, Any]) -> str:
    return str(schema["type"]) if list(schema) == ["type"] else json.dumps(schema, ensure_ascii=False)


def encode_response(tokenizer: Any, text: str, end_id: int) -> list[int]:
    """Return the token ids of a written response, followed by `end_id`."""
    return [*tokenizer(text, add_special_tokens=False).input_ids, end_id]


def cut_response(ids: list[int], max_tokens: int, end_id: int) -> list[int]:
    """Return a written response of at most `max_tokens`: a longer one loses its end, and its last kept token is
    replaced by `end_id` (segment paper, Appendix D).
    """
    return ids if len(ids) <= max_tokens else [*ids[: max_tokens - 1], end_id]


def decode(tokenizer: Any, ids: Ids) -> str:
    """Return the text of a response, without special tokens and without cleanup of spaces. The text of a
    `DrawnResponse` is without its thoughts.
    """
    text = str(tokenizer.decode(list(ids_of(ids)), skip_special_tokens=True, clean_up_tokenization_spaces=False))
    return "".join(text[a:b] for a, b in _answer(tokenizer, ids, text))


def thoughts(tokenizer: Any, response: Sequence[int]) -> str:
    """Return the thoughts of a response (token ids) before its answer."""
    whole, ends = DrawnResponse(list(response), "length"), [0]
    if not _marks(tokenizer, whole):
        return ""
    text = decode(tokenizer, response)
    for part in _answer(tokenizer, whole, text):
        ends += part
    return "".join(text[a:b] for a, b in zip(ends[::2], [*ends[1::2], len(text)], strict=True))


def _marks(tokenizer: Any, ids: Ids) -> Sequence[str]:
    """Return the marks around a response's thoughts; empty if thoughts are not separated."""
    return getattr(tokenizer, "init_kwargs", {}).get(THINKING) or () if isinstance(ids, DrawnResponse) else ()


def _answer(tokenizer: Any, ids: Ids, text: str) -> list[tuple[int, int]]:
    """Return the parts of a text that belong to the answer, outside the marks of thoughts. An end mark without a start
    mark ends the thought before it, because the template may have started the thought.
    """
    marks = _marks(tokenizer, ids)
    if not marks:
        return [(0, len(text))]
    begin, end = map(re.escape, marks)
    thought = re.compile(rf"(?:\A(?:(?!{begin}).)*?|{begin}.*?){end}\s*|{begin}.*", re.DOTALL)
    cuts = [0, *(place for found in thought.finditer(text) for place in found.span()), len(text)]
    return [(a, b) for a, b in zip(cuts[::2], cuts[1::2], strict=True) if a < b]


def token_texts(tokenizer: Any, *parts: Ids) -> list[str]:
    """Return the text of each token, decoded alone, including special tokens."""
    return [tokenizer.decode([token]) for part in parts for token in ids_of(part)]


def pieces(tokenizer: Any, response: DrawnResponse, values: Sequence[float | None]) -> list[str]:
    """Return the characters of each token of a response. A character that several tokens share is in the first of them;
    a special token with a value shows its name.
    """
    placed, result = 0, []
    for token, (start, end), value in zip(response.token_ids, offsets(tokenizer, response), values, strict=True):
        piece = response.text[max(start, placed) : end]
        placed = max(placed, end)
        named = not piece and value and token in tokenizer.all_special_ids
        result.append(tokenizer.decode([token]) if named else piece)
    return result


UNFINISHED = "\ufffd"
"""Character to which a tokenizer decodes bytes that are not (yet) a whole character."""


def offsets(tokenizer: Any, response: Ids) -> list[tuple[int, int]]:
    """Return the characters `start:end` of `decode(tokenizer, response)` that each token covers.

    Tokens that hold parts of one character (an emoji in byte-level vocabularies) all cover it. A special token covers
    nothing, and so do the thoughts of a `DrawnResponse`. Together the tokens cover every character.
    """
    ids = ids_of(response)
    covered = _offsets_by_bytes(tokenizer, ids) or _offsets_by_prefix(tokenizer, ids)
    if not _marks(tokenizer, response):
        return covered
    parts = _answer(tokenizer, response, decode(tokenizer, ids))

    def answered(place: int) -> int:
        return sum(min(place, b) - a for a, b in parts if a < place)

    return [(answered(start), answered(end)) for start, end in covered]


def _offsets_by_bytes(tokenizer: Any, ids: Sequence[int]) -> list[tuple[int, int]] | None:
    """Return offsets computed from each token's bytes in the vocabulary; None if they do not add up to the text."""
    text, special = decode(tokenizer, ids), set(tokenizer.all_special_ids)
    # an id has no name where the model's vocabulary is larger than the tokenizer's, and it says nothing
    names = [
        "" if i in special else name or "" for i, name in zip(ids, tokenizer.convert_ids_to_tokens(ids), strict=True)
    ]
    for read in (_byte_level, _marked_spaces):
        pieces = [read(name) for name in names]
        said = b"".join(pieces).decode(errors="replace")
        if said == f" {text}":  # the mark in front of the first word is no space
            first = next(place for place, piece in enumerate(pieces) if piece)
            pieces[first] = pieces[first][1:]
        elif said != text:
            continue
        character, ends = _characters(b"".join(pieces)), [0, *accumulate(map(len, pieces))]
        return [(character[a], character[b - 1] + 1 if b > a else character[a]) for a, b in pairwise(ends)]
    return None


def _byte_level(token: str) -> bytes:
    """Return the bytes of a token in a byte-level vocabulary, which writes each byte as one character. Other texts
    (added tokens) are encoded unchanged.
    """
    bytes_of = _bytes_of_characters()
    return bytes(map(bytes_of.__getitem__, token)) if bytes_of.keys() >= set(token) else token.encode(errors="replace")


def _marked_spaces(token: str) -> bytes:
    """Return the bytes of a token in a vocabulary of texts with marked spaces, and of bytes such as `<0xE2>` for
    characters without a token.
    """
    byte = re.fullmatch(r"<0x([0-9A-F]{2})>", token)
    return bytes.fromhex(byte[1]) if byte else token.replace("▁", " ").encode(errors="replace")


@cache
def _bytes_of_characters() -> dict[str, int]:
    """Return the byte of each character in byte-level vocabularies: printable Latin-1 stands for itself, the other
    bytes have the characters from 256 on.
    """
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = (byte for byte in range(256) if byte not in printable)
    return {chr(byte): byte for byte in printable} | {chr(256 + i): byte for i, byte in enumerate(others)}


def _characters(data: bytes) -> list[int]:
    """Return the index of the character of `data.decode(errors="replace")` that each byte belongs to, and the number of
    characters.
    """
    places: list[int] = []
    count, rest = 0, data
    while rest:
        try:
            good, bad = rest.decode(), 0
        except UnicodeDecodeError as error:
            good, bad = rest[: error.start].decode(), error.end - error.start
        sizes = [*(len(character.encode()) for character in good), *([bad] if bad else [])]
        for size in sizes:
            places += [count] * size
            count += 1
        rest = rest[sum(sizes) :]
    return [*places, count]


def _offsets_by_prefix(tokenizer: Any, ids: Sequence[int]) -> list[tuple[int, int]]:
    """Return offsets computed by decoding every prefix. This is slower, but works for every tokenizer, and for bytes
    that are not text and that its decoder handles in its own way.

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
    """Return the token ids of a text, without special tokens, and the characters `start:end` of it that each token
    covers.

    The tokenizer's own offsets are used if each token has its own characters. If several tokens share a character
    (bytes), or a token has none (the mark before a first word), the tokenizer's offsets are too wide, and `offsets`
    computes them. The exception is a text that the tokenizer has changed (to another Unicode form, for example), for
    which only the tokenizer knows the offsets.
    """
    encoded = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    ids, given = list(encoded.input_ids), [(start, end) for start, end in encoded.offset_mapping]
    ends = [0, *(end for _start, end in given)]
    simple = all(end == start < stop for end, (start, stop) in zip(ends, given, strict=False)) and ends[-1] == len(text)
    return ids, given if simple or decode(tokenizer, ids) != text else offsets(tokenizer, ids)


def check_same_tokens(model: Any, **others: Any) -> None:
    """Raise `DataError` if the tokenizer of one of `others` (None: it reads text) differs from the model's."""
    own = model.tokenizer.get_vocab()
    for name, tokenizer in others.items():
        if tokenizer is not None and tokenizer.get_vocab() != own:
            raise DataError(
                f"{name.replace('_', ' ')} was trained with another tokenizer than {model.spec.base}, so it would misread "
                "every token id; train it on the same base model"
            )
