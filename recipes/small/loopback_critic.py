"""A critic that is a program, behind an OpenAI-compatible endpoint on loopback: it stands in for GPT-4o in the small recipes.

    imports: [loopback_critic.py]
    annotator: {name: dual_feedback, client: {name: loopback_critic, prompt: ...}, prompt: ..., ...}

The client starts the endpoint when it has something to ask and stops it when the answers are there. The requests take the way of
every other endpoint: the openai library, HTTP, retries, ledger, limits, and a cache whose keys do not contain the port. The same
request always gets the same answer.

What the critic thinks of a text (a summary, an answer):
- good: phrases that the request supports: names in the code that is summarized, words of the passages that a question is about
- neutral: function words, Python's keywords, words of instructions, words of the question itself, words of which the request supports a part,
  and general words (file, list, create) that it does not support
- poor: other phrases that it does not support, words that are repeated, everything after the first sentence, a text that is too short

Everything follows from the request and the text, which is all that the model that learns these critiques gets to see. The best text is
not an empty one: a supported word earns something, and a text of fewer than `min_words` words, those of the question not counted, is poor as a
whole. Of a program it thinks what its tests report: see `of_program`.
"""

from __future__ import annotations

import hashlib
import http.server
import json
import keyword
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, field_validator

from fgrl.components.clients.openai import OpenAI
from fgrl.feedback.critic import PLACEHOLDERS
from fgrl.feedback.llm.desk import Call, Desk
from fgrl.feedback.llm.prices import Price
from fgrl.feedback.templates import Prompt, read_prompt
from fgrl.registry import File, Unkeyed, register
from fgrl.types import Request

LONGEST_PHRASE = 4
"""Words."""
MOST_PHRASES = 4
"""Of each label: the first ones of the text."""
_FUNCTION_WORDS = """
a about all also an and any are as at be been being but by can could did do does for from had has have how if in into is it its may
more most no nor not of off on once one only onto or other our out over own same shall should so some such than that the their them
then there these they this those through to too under until up upon used using was we were what when where whether which while who
will with within without would you your
"""
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
_INSTRUCTIONS = """
answer answers assistant class code direct example explanation following found function given helpful mean means meaning method noun one
passage passages prompt python question reply request rests result results search self sentence short summarize summary text value web
word words write
"""
NEUTRAL_WORDS = frozenset([*_INSTRUCTIONS.split(), *(word.lower() for word in keyword.kwlist)])
"""Words that say nothing about the material, although the request has them."""
_GENERAL = """
add after associated based before between bytes call called change character check command construct contain containing convert
corresponding create current currently data date delete determine directory display each element end event exception exist existing file
first format get give identifier including indicating initialize input instance integer internal item items last line link list load
make mapping member message mode modify module name new next number object open operation order otherwise output parameter part path
perform point position print process provide queue raise read remove represent representation representing run second send sequence
server set single size source special specified start state stop store string support take test thing time tuple two type update use
used using variable whole
"""
GENERAL_WORDS = frozenset(_GENERAL.split())
"""Words that describe much code and many things; a text may use them where the request does not."""
QUESTION = "Question:"
"""What follows it in a request is asked, and is no material."""
_WORD = re.compile(r"[^\W_]+(?:[_'.-]*[^\W_]+)*")
_SENTENCE_END = re.compile(r"[.!?](?=\s+\S)|\n+(?=\s*\S)")


# -- what it thinks ------------------------------------------------------------------------------------------------------


@dataclass
class Critique:
    """The critique's text and the quotes of a text, by label."""

    text: str
    quotes: dict[str, list[str]] = field(default_factory=dict)

    def as_json(self, keys: Sequence[str]) -> str:
        """Of the keys that the request's schema asks for; the critique's text has a key that ends in `_feedback`."""
        answer = {key: self.text if key.endswith("feedback") else self.quotes.get(key, []) for key in keys}
        return json.dumps(answer, ensure_ascii=False)


def stem(word: str) -> str:
    """A rough stem: returns, returned and returning are one word."""
    word = word.lower()
    for ending, replacement, shortest in (
        ("ies", "y", 5), ("sses", "ss", 5), ("ing", "", 6), ("ed", "", 5), ("es", "", 5), ("s", "", 4), ("e", "", 4),
    ):  # fmt: skip
        if word.endswith(ending) and len(word) >= shortest and not word.endswith("ss"):
            return word.removesuffix(ending) + replacement
    return word


def parts(word: str) -> list[str]:
    """Stems of the parts of a word: `_parse_fileName` has parse, file, name."""
    return [stem(part) for part in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_a-zA-Z]+", word)]


_NEUTRAL_STEMS = frozenset(stem(word) for word in NEUTRAL_WORDS)
_GENERAL_STEMS = frozenset(stem(word) for word in GENERAL_WORDS)


def vocabulary(text: str) -> frozenset[str]:
    return frozenset(part for word in _WORD.findall(text) for part in parts(word))


@dataclass
class Word:
    start: int
    end: int
    label: Literal["good", "neutral", "unsupported", "repeated", "superfluous"]
    is_content: bool


def of_text(request: str, text: str, min_words: int) -> Critique:
    """The critique of a summary or an answer. Its text always has the same form, which a small model learns soon. The quotes are
    exact, and each one's first occurrence in the text is the one that is meant."""
    before, _, after = request.rpartition(QUESTION)
    material, asked = (before, vocabulary(after)) if before else (request, frozenset())
    words = _labelled(text, vocabulary(material), asked)
    if sum(not set(parts(text[word.start : word.end])) <= asked for word in words) < min_words:
        whole = [text.strip()] if text.strip() else []
        return Critique("Right: nothing. Wrong: it is too short.", {"good_spans": [], "poor_spans": whole})
    good = _phrases(text, words, "good")
    wrong = {label: _phrases(text, words, label) for label in ("unsupported", "repeated", "superfluous")}
    poor = [quote for quotes in wrong.values() for quote in quotes]
    reasons = [f"{', '.join(quotes)} ({label})" for label, quotes in wrong.items() if quotes]
    return Critique(
        f"Right: {', '.join(good) or 'nothing'}. Wrong: {', '.join(reasons) or 'nothing'}.",
        {"good_spans": good, "poor_spans": poor},
    )


def _labelled(text: str, material: frozenset[str], asked: frozenset[str]) -> list[Word]:
    first_end = _SENTENCE_END.search(text.strip())
    offset = len(text) - len(text.lstrip())
    until = len(text) if first_end is None else offset + first_end.start()
    seen: set[str] = set()
    words = []
    for match in _WORD.finditer(text):
        own = set(parts(match[0]))
        is_content = match[0].lower() not in FUNCTION_WORDS
        is_material = is_content and own and not own <= _NEUTRAL_STEMS | asked
        known = sum(_known(part, material) for part in own)
        label: Any = "neutral"
        if match.start() > until:
            label = "superfluous"
        elif is_material and own <= seen:
            label = "repeated"
        elif is_material and known == len(own):
            label = "good"
        elif is_material and not known and not own <= _GENERAL_STEMS:
            label = "unsupported"
        if is_content:
            seen |= own
        words.append(Word(match.start(), match.end(), label, is_content))
    return words


def _known(part: str, vocabulary: frozenset[str]) -> bool:
    """Is it a word of the vocabulary, or does the vocabulary have an abbreviation of it (addr, config)?"""
    return part in vocabulary or any(part[:size] in vocabulary for size in range(3, len(part)))


def _phrases(text: str, words: Sequence[Word], label: str) -> list[str]:
    """Phrases of neighbouring words of one label, with the function words between them; the first `MOST_PHRASES`."""
    quotes: list[str] = []
    at = 0
    while at < len(words) and len(quotes) < MOST_PHRASES:
        if words[at].label != label:
            at += 1
            continue
        end = last = at
        while end + 1 < len(words) and end + 1 - at < LONGEST_PHRASE:
            end += 1
            if words[end].label == label:
                last = end
            elif words[end].is_content:
                break
        if (quote := _unique(text, words, at, last)) is not None:
            quotes.append(quote)
        at = last + 1
    return quotes


def _unique(text: str, words: Sequence[Word], first: int, last: int) -> str | None:
    """The phrase, with words before it until it occurs nowhere earlier in the text; None if that takes too many."""
    for start in range(first, max(first - LONGEST_PHRASE, 0) - 1, -1):
        quote = text[words[start].start : words[last].end]
        if text.find(quote) == words[start].start:
            return quote
    return None


def of_program(program: str, passed: bool, report: str) -> Critique:
    """The critique of a program by its tests: wrong are the lines of it that their report quotes, or, where it quotes none, what the
    program returns, or else its statements, or else all of it; to improve are lines that only print or do nothing."""
    lines = [line.strip() for line in program.splitlines()]
    idle = [line for line in lines if line in ("pass", "...") or line.startswith("print(")]
    improvable = list(dict.fromkeys(idle))[:MOST_PHRASES]
    if passed:
        return Critique("All tests pass.", {"wrong_code": [], "improvement_code": improvable})
    quoted = {line.strip() for line in report.splitlines()}
    wrong = [line for line in lines if len(line) > 3 and line in quoted]
    wrong = wrong or [line for line in lines if line.startswith(("return", "yield"))]
    wrong = wrong or [line for line in lines if line and not line.startswith(("#", "```", "def ", "import ", "from "))]
    wrong = wrong or [line for line in lines if line]
    reason = next((line.strip() for line in reversed(report.splitlines()) if line.strip()), "no report")
    kept = list(dict.fromkeys(wrong))[:MOST_PHRASES]
    return Critique(
        f"The tests fail: {reason[:80]}",
        {"wrong_code": kept, "improvement_code": [line for line in improvable if line not in kept]},
    )


# -- the endpoint --------------------------------------------------------------------------------------------------------


@contextmanager
def endpoint(answer: Callable[[dict[str, Any]], str]) -> Iterator[str]:
    """An OpenAI-compatible endpoint on a free port of 127.0.0.1; its address. `answer` gets a request's body; its `ValueError` is
    sent as HTTP 400. After the block nothing listens and no thread is left."""

    class Handler(http.server.BaseHTTPRequestHandler):
        timeout = 10

        def do_POST(self) -> None:
            try:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                self._send(200, completion(body, answer(body)))
            except ValueError as error:
                self._send(400, {"error": {"message": str(error), "code": "unreadable"}})

        def _send(self, status: int, content: Mapping[str, Any]) -> None:
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Nothing is printed: the ledger has every call."""

    class Server(http.server.ThreadingHTTPServer):
        daemon_threads = False  # `server_close` waits for those that still answer
        request_queue_size = 1024

    server = Server(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), name="loopback-critic")
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def completion(body: Mapping[str, Any], text: str) -> dict[str, Any]:
    """A chat completion. Tokens are counted as words, which are free."""
    asked, answered = (len(part.split()) for part in (str(body["messages"]), text))
    return {
        "id": "critique",
        "object": "chat.completion",
        "created": 0,
        "model": body["model"],
        "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": asked, "completion_tokens": answered, "total_tokens": asked + answered},
    }


@lru_cache(maxsize=8)
def _pattern(turn: str) -> re.Pattern[str]:
    """A turn of a prompt file as an expression that finds what its placeholders were replaced by."""
    pieces = re.split(r"\{(" + "|".join(PLACEHOLDERS) + r")\}", turn)
    seen: set[str] = set()
    for at in range(1, len(pieces), 2):
        name = pieces[at]
        pieces[at] = f"(?P={name})" if name in seen else f"(?P<{name}>.*?)"
        seen.add(name)
    pieces[::2] = map(re.escape, pieces[::2])
    return re.compile("".join(pieces), re.DOTALL)


def values(prompt: Prompt, messages: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """What the placeholders of the prompt file were replaced by in a request. Raises `ValueError` if the request was not made of
    the file."""
    read: dict[str, str] = {}
    for (role, turn), message in zip(prompt.turns, messages, strict=False):
        match = _pattern(turn).fullmatch(message["content"])
        if match is None or message["role"] != role:
            raise ValueError(f"the request was not made of {Path(prompt.path).name}")
        read |= match.groupdict()
    return read


# -- the client ----------------------------------------------------------------------------------------------------------


@register("loopback_critic")
class LoopbackCritic(OpenAI):
    """Asks a program that criticizes texts by the request for them, and programs by their tests, as an endpoint is asked."""

    model: str = "critic-that-is-a-program"
    """The model's name in requests and in the ledger."""
    api_key_env: str | None = None
    """No key is needed."""
    prices: Annotated[Annotated[str, File] | Price | None, Unkeyed] = Price(prompt=0, completion=0)
    """Its tokens are free."""
    prompt: Annotated[str, File]
    """The prompt file of the annotator, reward or metric that asks: the critic reads from a request what its placeholders were
    replaced by."""
    about: Literal["text", "program"] = "text"
    """What is criticized."""
    min_words: int = Field(4, ge=0)
    """Shorter texts are poor as a whole."""

    @field_validator("base_url")
    @classmethod
    def _no_address(cls, value: str | None) -> str | None:
        if value is not None:
            raise ValueError("the critic starts its own endpoint: leave base_url out")
        return value

    def identity(self) -> dict[str, Any]:
        """Without the port. The program is part of it: another program gives other answers."""
        program = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]
        return {"client": "loopback_critic", "model": self.model, "endpoint": "loopback", "program": program}

    def parameters(self, request: Request) -> dict[str, Any]:
        template = hashlib.sha256(Path(self.prompt).read_bytes()).hexdigest()[:16]
        own = {"about": self.about, "min_words": self.min_words, "prompt": template}
        return super().parameters(request) | own

    def put(self, calls: Sequence[Call], desk: Desk) -> None:
        template = read_prompt(self.prompt, PLACEHOLDERS)
        with endpoint(lambda body: self.answer(template, body)) as address:
            self._endpoint = self.endpoint(address)
            super().put(calls, desk)

    def answer(self, template: Prompt, body: Mapping[str, Any]) -> str:
        """The critique that a request asks for. Raises `ValueError` if the request cannot be read."""
        given = values(template, body["messages"])
        if self.about == "program":
            passed = {"Passed: yes": True, "Passed: no": False}.get(given.get("outcome", ""))
            if passed is None:
                raise ValueError("the request does not contain whether the program passed its tests")
            critique = of_program(given["response"], passed, given.get("tests", ""))
            keys = ["code_feedback", "wrong_code", "improvement_code"]
        else:
            critique = of_text(given["prompt"], given["response"], self.min_words)
            keys = ["textual_feedback", "good_spans", "poor_spans"]
        schema = body.get("response_format", {}).get("json_schema", {}).get("schema", {})
        return critique.as_json(list(schema.get("properties", keys)))
