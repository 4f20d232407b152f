"""A model's answer as the steps of an improvement chain.

The paper does not state how the steps in one answer were separated. Only these forms are read:

- JSON, alone, in a fence or with text around it: `{"steps": [{"id": 1, "response": "..."}, ...]}`, also with `text` for
  `response`, as a list without `steps`, or as a list of texts;
- headings: a line for each step that has `Step 1`, `Step 2`, ... and no other word.

JSON is not repaired: with quotation marks inside a text, the result of a repair would be a guess.
"""

from __future__ import annotations

import json
import re
from typing import Any

from fgrl.feedback.llm.json_object import first_object
from fgrl.feedback.llm.reading import Refused, declines

TEXTS = ("response", "text")
"""Keys that may hold the text of a step."""
QUOTED = ('""', "\u201c\u201d", "''")
"""Quotation marks that models put around an answer."""
_FENCE = re.compile(r"\s*```[^\n`]*\n(.*?)\n?[ \t]*```\s*", re.DOTALL)
_HEADING = re.compile(
    r"^[ \t]*[#*_]*[ \t]*step[ \t]+([0-9]{1,4})[ \t]*[:.]?[ \t]*[*_]*[:.]?[ \t]*$", re.IGNORECASE | re.MULTILINE
)


def steps_schema(count: int) -> dict[str, Any]:
    """Return the JSON schema of an answer with this many steps."""
    step = {
        "type": "object",
        "properties": {"id": {"type": "integer"}, "response": {"type": "string"}},
        "required": ["id", "response"],
        "additionalProperties": False,
    }
    return {
        "title": "chain",
        "type": "object",
        "properties": {"steps": {"type": "array", "items": step, "minItems": count, "maxItems": count}},
        "required": ["steps"],
        "additionalProperties": False,
    }


def read_steps(answer: str, count: int) -> list[str]:
    """Return the text of each of `count` steps, in order.

    Raises ValueError, with a reason that a model can act on, for an answer in an unknown form, with more or fewer
    steps, or with steps in another order. Raises `Refused` for an answer that declines.
    """
    value = _json(answer)
    texts = _by_headings(answer) if value is None else _of_json(value)
    if texts is None:
        if declines(answer):
            raise Refused("it declines to rewrite")
        raise ValueError('it is no JSON object {"steps": [...]}')
    if len(texts) != count:
        raise ValueError(f"it has {len(texts)} steps for {count} disliked passages: there has to be one step for each")
    return texts


def read_text(answer: str) -> str:
    """Return the text of a step that is a separate answer, without the fence if one encloses all of it. Raises
    ValueError for an empty answer, `Refused` for an answer that declines.
    """
    fence = _FENCE.fullmatch(answer)
    text = fence[1] if fence else answer
    if not text.strip():
        raise ValueError("it is empty")
    return text


def read_passage(answer: str, passage: str) -> str:
    """Return the text that replaces a passage: the answer without a fence, white space and quotation marks around all
    of it, unless the passage has such marks itself. White space at the passage's own ends stays.

    Raises ValueError for an empty answer, and for an answer of several paragraphs where the passage is in one: such an
    answer contains more than the passage.
    """
    text = read_text(answer).strip()
    quoted = len(text) > 1 and text[0] + text[-1] in QUOTED and not {text[0], text[-1]} & set(text[1:-1])
    if quoted and not {text[0], text[-1]} & set(passage):
        text = text[1:-1].strip()
    if not text:
        raise ValueError("it is empty")
    if "\n" in text and "\n" not in passage.strip():
        raise ValueError("it has several lines, and the passage has one: answer with the new passage alone")
    body = passage.strip()
    return passage[: passage.index(body)] + text + passage[passage.index(body) + len(body) :] if body else text


def _json(answer: str) -> Any:
    """Return the JSON of an answer: an object or a list; None if there is none."""
    fence = _FENCE.fullmatch(answer)
    place = first_object(answer)
    for text in (answer, fence[1] if fence else None, answer[slice(*place)] if place else None):
        try:
            value = None if text is None else json.loads(text, strict=False)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict | list):
            return value
    return None


def _of_json(value: Any) -> list[str]:
    steps = value.get("steps") if isinstance(value, dict) else value
    if not isinstance(steps, list):
        raise ValueError('the JSON has no list "steps"')
    return [_step_text(step, number) for number, step in enumerate(steps, start=1)]


def _step_text(step: Any, number: int) -> str:
    if isinstance(step, str):
        return step
    texts = [step[key] for key in TEXTS if isinstance(step.get(key), str)] if isinstance(step, dict) else []
    if len(texts) != 1:
        raise ValueError(f'step {number} is no object {{"id": {number}, "response": "..."}}')
    if step.get("id", number) != number:
        raise ValueError(f"step {number} has the id {step['id']!r}: dislikes are addressed in the order of their ids")
    text: str = texts[0]
    return text


def _by_headings(answer: str) -> list[str] | None:
    """Return the text below each heading; None unless the headings are exactly 1, 2, 3, ..."""
    found = list(_HEADING.finditer(answer))
    if not found or [int(heading[1]) for heading in found] != list(range(1, len(found) + 1)):
        return None
    ends = [*(heading.start() for heading in found[1:]), len(answer)]
    return [answer[heading.end() : end].strip() for heading, end in zip(found, ends, strict=True)]
