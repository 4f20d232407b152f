"""Questions whose answers are read by a program: asked, read, and retried if the answer cannot be used.

Every component that asks a language model goes through `ask`. Its questions go to the client in rounds, all open ones
at once; questions whose answers `parse` rejects are retried with the reason. A question that is not answered in the end
has a named failure, never a value.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ValidationError

from fgrl.base import lazy
from fgrl.feedback.llm import json_object
from fgrl.feedback.llm.reading import Refused, declines, strip_fences
from fgrl.kinds import Client
from fgrl.types import Completion, Message, Request

json_repair = lazy.load("json_repair")
together = lazy.load("fgrl.feedback.llm.together")

V = TypeVar("V")
V_co = TypeVar("V_co", covariant=True)
M = TypeVar("M", bound=BaseModel)

SPENT = ("calls", "prompt_tokens", "completion_tokens", "usd")
AGAIN = "That answer cannot be used: {reason}. Answer once more, in exactly the form that was asked for."
EMPTY = "(nothing)"
"""Text that stands for an empty answer in a retry: endpoints refuse empty turns."""
WITHHELD = ("content_filter", "refusal")
"""Finish reasons of endpoints for answers that they withheld."""


@dataclass(frozen=True)
class Parsed(Generic[V_co]):
    """The value of an answer, and whether its text had to be repaired to get it."""

    value: V_co
    repaired: bool = False


@dataclass(frozen=True)
class Question(Generic[V]):
    """A request, and the function that reads its answer."""

    request: Request
    """Request of the first round."""
    parse: Callable[[str], V | Parsed[V]]
    """Function that returns the value of an answer's text, in a `Parsed` if the text may have been repaired. It raises
    ValueError (or `Refused`) with a reason that the model can act on.
    """
    allow_truncated: bool = False
    """If True, also read an answer that was cut off at its length limit; otherwise it counts as a failed try."""


@dataclass(frozen=True)
class Asked(Generic[V]):
    """The outcome of a question. Exactly one of `value` (unless `parse` gives None) and `failure` is set."""

    value: V | None
    failure: str | None
    """Kind of failure: "error" (the client got no answer), "refused", "truncated" or "unreadable"."""
    tries: int
    completion: Completion
    """Completion of the last try."""
    reason: str | None = None
    """Reason for the failure, in words."""
    repaired: bool = False
    """True if the answer's text had to be repaired (see `Parsed`)."""


def answered(client: Client, question: Question[V], tries: int = 2) -> V:
    """Return the value of a question that the thread of an environment asks. Raises `ConnectionError` if it has no
    value: the conversation is then counted as missing.
    """
    (asked,) = ask(client, [question], tries, alone=True)
    if asked.failure is not None:
        raise ConnectionError(f"the model that the environment asks: {asked.failure}: {asked.reason}")
    return asked.value  # type: ignore[return-value]  # None is a value where `parse` gives it


def ask(client: Client, questions: Sequence[Question[V]], tries: int = 2, *, alone: bool = False) -> list[Asked[V]]:
    """Return the outcome of each question, in order. alone: only this process asks, independently of the other ranks.

    1. all open questions go to the client in one `complete` (in a stage of several processes every rank has to call `ask`,
       with the same questions; see `fgrl.feedback.llm.together`)
    2. a question whose answer was cut off at its length limit or rejected by `parse` is retried with the answer and the
       reason appended, up to `tries` times in all; an `error` and an answer that the endpoint withheld are not: the client
       has retried them already

    Raises `OverBudget` from the client; all answers until then are in the client's cache.
    """
    if tries < 1:
        raise ValueError(f"tries is {tries}: a question is asked at least once")
    requests = [question.request for question in questions]
    if not alone:
        together.same_requests(requests)
    done: dict[int, Asked[V]] = {}
    for number in range(1, tries + 1):
        places = [place for place in range(len(questions)) if place not in done]
        if not places:
            break
        open_ones = [requests[place] for place in places]
        answers = client.complete_alone(open_ones) if alone else together.complete(client, open_ones)
        for place, answer in zip(places, answers, strict=True):
            outcome = _read(questions[place], answer, number)
            if outcome.failure in (None, "error") or _withheld(answer) or number == tries:
                done[place] = outcome
                if outcome.failure not in (None, "error"):  # what got no answer is in the client's list already
                    client.reject(requests[place], f"{outcome.failure}: {outcome.reason}")
            else:
                requests[place] = _retried(requests[place], answer.text, outcome.reason or "")
    return [done[place] for place in range(len(questions))]


def _read(question: Question[V], answer: Completion, number: int) -> Asked[V]:
    def failed(failure: str, reason: str) -> Asked[V]:
        return Asked(None, failure, number, answer, reason)

    if answer.error is not None:
        return failed("error", answer.error)
    if _withheld(answer):
        return failed("refused", f"the endpoint withheld the answer ({answer.finish})")
    if answer.finish == "length" and not question.allow_truncated:
        return failed("truncated", "it was cut off at the length limit")
    try:
        parsed = question.parse(answer.text)
    except Refused as problem:
        return failed("refused", str(problem))
    except ValueError as problem:
        return failed("unreadable", str(problem))
    whole = parsed if isinstance(parsed, Parsed) else Parsed(parsed)
    return Asked(whole.value, None, number, answer, repaired=whole.repaired)


def _withheld(answer: Completion) -> bool:
    return answer.finish in WITHHELD


def _retried(request: Request, answer: str, reason: str) -> Request:
    turns = [
        Message(role="assistant", content=answer if answer.strip() else EMPTY),
        Message(role="user", content=AGAIN.format(reason=reason.rstrip(". "))),
    ]
    return request.model_copy(update={"messages": [*request.messages, *turns]})


FAILURES = {"refused": ("refused",), "unparsed": ("unreadable", "truncated"), "failed": ("error",)}
"""Three kinds of missing judgements, with the failures that belong to each kind."""


def missing(asked: Sequence[Asked[Any]]) -> dict[str, int]:
    """Return the number of questions without a value, by kind of `FAILURES`."""
    return {kind: sum(outcome.failure in names for outcome in asked) for kind, names in FAILURES.items()}


def summary(client: Client, asked: Sequence[Asked[Any]]) -> dict[str, Any]:
    """Return what a stage's summary reports: the `tally` of the questions, and what the client used in this stage:
    `calls`, `prompt tokens`, `completion tokens` and `usd` ("unknown" if the price is not known). The use is left out
    if the client does not count it.
    """
    counts = client.counts()
    return tally(asked) | {name.replace("_", " "): counts[name] for name in SPENT if name in counts}


def tally(asked: Sequence[Asked[Any]]) -> dict[str, int]:
    """Return the counts for a stage's summary: `questions`, `answered`, `cached`, `asked again`, `repaired`, `failed`,
    and `failed: <failure>` for each kind of failure that occurred.
    """
    failures = Counter(outcome.failure for outcome in asked if outcome.failure is not None)
    return {
        "questions": len(asked),
        "answered": len(asked) - failures.total(),
        "cached": sum(outcome.completion.cached for outcome in asked),
        "asked again": sum(outcome.tries > 1 for outcome in asked),
        "repaired": sum(outcome.repaired for outcome in asked),
        "failed": failures.total(),
        **{f"failed: {failure}": count for failure, count in sorted(failures.items())},
    }


# -- JSON --------------------------------------------------------------------------------------------------------------


def parse_json(text: str, model: type[M], declined: str = "it declines to answer") -> Parsed[M]:
    """Return the JSON of an answer as a `model`, for `Question.parse`.

    A fence around it is removed. Other text around it is passed over (`repaired`): of the JSON objects in the text
    exactly one has to fit the model. Invalid JSON is repaired by json-repair (`repaired`), from the first brace on that
    a key follows; valid JSON that does not fit the model is left as it is. Raises ValueError, and nothing else, with a
    reason that the model can act on; `Refused` with the reason `declined` for text that begins by declining to answer.
    """
    try:
        return _parse_json(text, model)
    except ValueError:
        if declines(text):
            raise Refused(declined) from None
        raise


def _parse_json(text: str, model: type[M]) -> Parsed[M]:
    # 1. the text, or what is in its first fence, is the JSON
    whole, mistakes = text.strip(), None
    for part in dict.fromkeys((whole, strip_fences(text))):
        try:
            return Parsed(model.model_validate_json(part))
        except ValidationError as problem:
            if problem.errors(include_url=False)[0]["type"] != "json_invalid":
                mistakes = _mistakes(problem)
                if part == whole or whole.startswith("```"):
                    raise ValueError(mistakes) from None
    # 2. one JSON object among other text fits; line breaks inside strings are allowed
    fitting = _fitting_objects(text, model)
    if len(fitting) > 1:
        raise ValueError(f"it has {len(fitting)} different JSON objects of the form that was asked for: write one")
    if fitting:
        return Parsed(fitting[0], repaired=True)
    if mistakes is not None:
        raise ValueError(mistakes)
    # 3. invalid JSON is repaired
    try:
        repaired = json_repair.loads(_from_object(text) or strip_fences(text))
    except (ValueError, RecursionError):
        repaired = ""
    if not isinstance(repaired, dict | list):
        raise ValueError("there is no JSON in it")
    try:
        return Parsed(model.model_validate(repaired), repaired=True)
    except ValidationError as problem:
        raise ValueError(_mistakes(problem)) from None


def _fitting_objects(text: str, model: type[M]) -> list[M]:
    """Return the different JSON objects of a text that fit the model."""
    fitting: list[M] = []
    for start, end in json_object.objects(text):
        try:
            value = model.model_validate_json(json.dumps(json.loads(text[start:end], strict=False)))
        except (ValidationError, ValueError):
            continue
        if value not in fitting:
            fitting.append(value)
    return fitting


_OPENING = re.compile(r"\{\s*[\"'\u201c]")
"""An opening brace with the quotation mark of a first key."""


def _from_object(text: str) -> str:
    """Return the text from the first brace that is followed by a key to the last brace; empty if there is no such
    brace.
    """
    opening, end = _OPENING.search(text), text.rfind("}") + 1
    if opening is None:
        return ""
    return text[opening.start() : end if end > opening.start() else len(text)]


def _mistakes(problem: ValidationError) -> str:
    """Return the first few mistakes, each with its place."""
    errors = problem.errors(include_url=False, include_input=False)
    shown = [f"{'.'.join(map(str, error['loc'])) or 'the JSON'}: {error['msg']}" for error in errors[:3]]
    more = f" and {len(errors) - 3} more mistakes" if len(errors) > 3 else ""
    return "it does not fit: " + "; ".join(shown) + more
