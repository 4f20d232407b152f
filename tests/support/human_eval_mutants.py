"""Programs that differ from HumanEval's canonical solutions by one token."""

from __future__ import annotations

import ast
import io
import random
import tokenize
from collections.abc import Iterator, Mapping
from typing import Any

OTHERS = {
    "+": "-", "-": "+", "*": "+", "//": "/", "/": "//", "%": "*", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=",
    "!=": "==", "and": "or", "or": "and", "True": "False", "False": "True", "0": "1", "1": "2", "2": "3", "min": "max",
    "max": "min", "in": "is", "append": "extend", "sum": "len", "sorted": "list",
}  # fmt: skip
"""Token -> the one that replaces it."""


def mutants(problem: Mapping[str, Any]) -> Iterator[str]:
    """Every completion that differs from the canonical one by one token of `OTHERS` and is still Python."""
    start, solution = problem["prompt"], problem["canonical_solution"]
    lines = (start + solution).splitlines(keepends=True)
    first = start.count("\n") + 1
    for token in tokenize.generate_tokens(io.StringIO(start + solution).readline):
        row, column = token.start
        if row >= first and token.string in OTHERS and token.type in (tokenize.OP, tokenize.NAME, tokenize.NUMBER):
            line = lines[row - 1]
            other = line[:column] + OTHERS[token.string] + line[column + len(token.string) :]
            whole = "".join([*lines[: row - 1], other, *lines[row:]])
            try:
                ast.parse(whole)
            except SyntaxError:
                continue
            yield whole[len(start) :]


def chosen(problems: Mapping[str, Mapping[str, Any]], count: int, seed: int = 0) -> list[tuple[str, str]]:
    """`count` pairs (task_id, completion), of different problems as far as there are some, in a fixed order."""
    draw = random.Random(seed)
    names = sorted(problems, key=lambda name: int(name.partition("/")[2]))
    draw.shuffle(names)
    pairs = [(name, draw.choice(options)) for name in names if (options := list(mutants(problems[name])))]
    return pairs[:count]
