"""Code blocks and commands of the README and the pages below `docs/`."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHELL = ("", "sh", "bash", "shell", "console")
FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>[\w-]*)[^\n`]*\n(?P<text>.*?)^(?P=indent)```", re.MULTILINE | re.DOTALL
)
INLINE = re.compile(r"(?<!`)`(fgrl [^`\n]+)`(?!`)")


def pages() -> list[Path]:
    return [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@dataclass(frozen=True)
class Block:
    page: str
    line: int
    """Of the fence, from 1."""
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


@dataclass(frozen=True)
class Command:
    page: str
    line: int
    words: tuple[str, ...]
    """As a shell splits them, beginning with `fgrl`."""
    inline: bool
    """Part of a sentence or a table, not of a block."""

    def __str__(self) -> str:
        return f"{self.page}:{self.line} {' '.join(self.words)}"


def blocks_of(page: Path) -> list[Block]:
    text, name = page.read_text(encoding="utf-8"), page.relative_to(ROOT).as_posix()
    return [
        Block(
            name, text.count("\n", 0, match.start()) + 1, match["language"], unindented(match["text"], match["indent"])
        )
        for match in FENCE.finditer(text)
    ]


def blocks(*languages: str) -> list[Block]:
    return [block for page in pages() for block in blocks_of(page) if block.language in languages]


def unindented(text: str, indent: str) -> str:
    return "".join(line.removeprefix(indent) for line in text.splitlines(keepends=True))


def lines_of_shell(text: str) -> list[str]:
    """The commands of a block: without comments and prompts, continued lines joined, `&&`, `;` and loops taken apart."""
    commands = []
    for line in text.replace("\\\n", " ").splitlines():
        line = re.sub(r"(^|\s)#\s.*$", "", line.removeprefix("$ ")).strip()
        commands += [part.strip() for part in re.split(r"&&|;\s*(?:do\s)?", line) if part.strip()]
    return commands


def commands_of(page: Path) -> list[Command]:
    """Commands that begin with `fgrl`, of blocks and of sentences."""
    name, commands = page.relative_to(ROOT).as_posix(), []
    for block in blocks_of(page):
        if block.language in SHELL:
            commands += [
                Command(name, block.line, tuple(shlex.split(line)), inline=False)
                for line in lines_of_shell(block.text)
                if re.match(r"fgrl\s", line)
            ]
    text = FENCE.sub(lambda match: "\n" * match[0].count("\n"), page.read_text(encoding="utf-8"))
    for match in INLINE.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        commands += [
            Command(name, line, tuple(shlex.split(part)), inline=True)
            for part in lines_of_shell(match[1])
            if part.startswith("fgrl ")
        ]
    return commands


def commands() -> list[Command]:
    return [command for page in pages() for command in commands_of(page)]
