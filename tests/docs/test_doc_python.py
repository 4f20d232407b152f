"""Python of the README and of `docs/`: every block compiles, those that need nothing else run, and results are as they state."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest
from doc_blocks import Block, blocks
from fake_runs import fake_run
from scratch_registry import scratch

found = blocks("python", "py")
LITERAL = re.compile(r"\s#\s(True|False|None|-?\d+(?:\.\d+)?|'[^']*'|\"[^\"]*\")(?![\w.])")
SLOW = ("report.write(",)
"""Text in blocks that run in `make docs`."""
NOT_RUN: dict[tuple[str, str], str] = {
    ("docs/how-to/from-trl.md", ""): "the test of the pages on other toolkits runs it",
    ("docs/how-to/from-verl.md", ""): "the test of the pages on other toolkits runs it",
    ("docs/tutorial.md", ""): "the tutorial is followed from top to bottom by its own test",
    ("docs/how-to/use-a-policy.md", 'model="my-policy"'): "tests of the export load a folder in this way",
    ("docs/how-to/python.md", "fgrl.run("): "tests/library runs a small recipe in this way",
    ("docs/how-to/python.md", "fgrl.load("): "tests/library loads a policy in this way",
}
"""(page, text in the block): where it runs instead, or why it cannot run."""


def why_not_run(block: Block) -> str | None:
    return next((why for (page, text), why in NOT_RUN.items() if page == block.page and text in block.text), None)


def test_the_pages_have_python() -> None:
    assert len(found) >= 6
    unused = [key for key in NOT_RUN if not any(block.page == key[0] and key[1] in block.text for block in found)]
    assert unused == []


@pytest.mark.parametrize("block", found, ids=str)
def test_a_block_compiles(block: Block) -> None:
    compile(block.text, str(block), "exec")


def cases() -> list[Any]:
    """Blocks that run, the slow ones marked."""
    return [
        pytest.param(block, marks=[pytest.mark.docs] if any(text in block.text for text in SLOW) else [], id=str(block))
        for block in found
        if why_not_run(block) is None
    ]


@pytest.mark.parametrize("block", cases())
def test_a_block_runs_and_gives_what_it_states(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "block", "folder": fake_run(tmp_path) if "folder" in block.text else None}
    with scratch():
        run(block, names)


def run(block: Block, names: dict[str, Any]) -> None:
    """Statement by statement; the value of an expression is compared with a literal in the comment behind it."""
    lines = block.text.splitlines()
    for statement in ast.parse(block.text).body:
        if not isinstance(statement, ast.Expr):
            exec(compile(ast.Module([statement], []), str(block), "exec", dont_inherit=True), names)
            continue
        value = eval(compile(ast.Expression(statement.value), str(block), "eval", dont_inherit=True), names)
        if stated := LITERAL.search(lines[(statement.end_lineno or 1) - 1][statement.end_col_offset or 0 :]):
            assert value == ast.literal_eval(stated[1]), ast.unparse(statement)


def test_a_wrong_result_is_noticed() -> None:
    with pytest.raises(AssertionError, match=r"1 \+ 1"):
        run(Block("x", 1, "python", "1 + 1  # 3: not so\n"), {})
    run(Block("x", 1, "python", "a = 1\na + 1  # 2, of course\na  # anything else\n"), {})
