"""The page on troubleshooting quotes messages that fgrl writes, and has every exit code."""

from __future__ import annotations

import ast
import re

from doc_blocks import ROOT

from fgrl.base import errors

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")


def written() -> list[str]:
    """Every text in the code, the parts of an f-string joined by `...` where it puts a value; and every line of tests/wording."""
    wording = sorted((ROOT / "tests" / "wording").glob("*.txt"))
    texts = [line for file in wording for line in file.read_text(encoding="utf-8").splitlines()]
    for file in sorted((ROOT / "fgrl").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                texts.append("".join(part.value if isinstance(part, ast.Constant) else "..." for part in node.values))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return texts


def quoted() -> list[str]:
    """The messages of the page's tables of messages."""
    tables = re.findall(r"^\| message \|.*?\n\n", PAGE, re.MULTILINE | re.DOTALL)
    return [cell for table in tables for cell in re.findall(r"^\| `(.+?)` \|", table, re.MULTILINE)]


def test_every_message_is_one_of_the_code() -> None:
    texts, messages = written(), quoted()
    assert len(messages) > 20
    unknown = [
        message
        for message in messages
        if not any(re.search(".*".join(map(re.escape, message.split("..."))), text) for text in texts)
    ]
    assert unknown == []


def test_every_exit_code_is_there() -> None:
    classes = [cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, errors.FgrlError)]
    codes = {cls.exit_code for cls in classes} | {errors.DONE, errors.POINT_FAILED, errors.INTERRUPTED}
    assert {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)} == codes
