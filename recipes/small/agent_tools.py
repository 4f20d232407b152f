"""Two tools, and whether a conversation ends with the right answer."""

from __future__ import annotations

import ast
import json
import operator
from functools import cache
from pathlib import Path
from typing import Any

SIGNS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


def lookup(word: str) -> str:
    """Look up what a word means.

    Args:
        word: The word.
    """
    return meanings()[word.strip().lower()]


def calculate(expression: str) -> str:
    """Calculate with whole numbers.

    Args:
        expression: For example 12 * 7.
    """
    return str(_value(ast.parse(expression.strip(), mode="eval").body))


def _value(node: ast.expr) -> int:
    if isinstance(node, ast.BinOp) and type(node.op) in SIGNS:
        return int(SIGNS[type(node.op)](_value(node.left), _value(node.right)))
    if isinstance(node, ast.Constant) and isinstance(node.value, int) and abs(node.value) < 10**9:
        return node.value
    raise ValueError("wants whole numbers, with +, - or * between them")


@cache
def meanings() -> dict[str, str]:
    """Return the meaning of each word."""
    lines = (Path(__file__).parent / "definitions.jsonl").read_text(encoding="utf-8").splitlines()
    questions = [json.loads(line) for line in lines]
    return {each["question"].split('"')[1]: each["answers"][0] for each in questions}


def right(completions: list[Any], reference: list[str], **kwargs: Any) -> list[float]:
    """Return 1 for a conversation whose last message has the right answer, else 0."""
    said = [" ".join(each[-1]["content"].lower().split()) for each in completions]
    return [float(wanted.lower() in text) for text, wanted in zip(said, reference, strict=True)]
