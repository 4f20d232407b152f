"""Find what a message suggests, and try it: the text that a user would type next.

A suggestion is `did you mean "X"`, `write X`, `set KEY=VALUE`, or a command (`fgrl show rl.train`). It is applied in the folder
of the mistake. It works if the complaint is gone and no other mistake of the same kind has taken its place.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from score import Mistake, say

MEANT = re.compile(r'[Dd]id you mean(?: "([^"]+)"|:? ((?!")[^?\n]+?)\??)(?:$|[?,]| at | of )', re.MULTILINE)
WRITTEN = re.compile(r"\bwrite (?:- )?([^\s`].*?)(?=, in |, for |, without |: text that| \(|; |  |$)", re.MULTILINE)
SET = re.compile(r"\bset ([a-z_.]+=[\w./-]+|[a-z_.]+ to [\w./-]+)")
COMMAND = re.compile(r"(?<![\w/-])fgrl (?:[a-z]+)(?: (?:--?)?[^\s`();,]+)*(?=[\s`();,]|$)", re.MULTILINE)
IN_PROSE = re.compile(r"^(it |`|entries|a list|paths |them |@|one for each)")
"""What `write` says in a sentence, for a person and not for a program."""
HEAD = re.compile(
    r"^(?P<file>[^\s:]+\.yaml):(?P<line>\d+):(?P<column>\d+): (?P<said>.*)$|^command line: (?P<typed>.*)$"
)
WRONG = re.compile(r"unknown|not YAML|duplicate|no such|neither an option|No such|has no name|no place|curly|no space")
"""Complaints that a suggestion must not lead to."""


@dataclass
class Complaint:
    """One mistake of a message."""

    said: str
    hint: str
    file: str | None = None
    line: int = 0
    column: int = 0
    typed: str = ""
    """The override, of a mistake on the command line."""

    @property
    def path(self) -> list[str | int]:
        dotted = self.said.partition(": ")[0] if re.match(r"[\w.\[\]-]+: ", self.said) else ""
        return [int(part) if part.isdigit() else part for part in re.findall(r"[^.\[\]]+", dotted)]

    @property
    def words(self) -> list[str]:
        """Texts of the complaint that may be the mistake."""
        return [
            match[0].strip("\"':")
            for match in re.finditer(r"[\"']\S+?[\"']|(?<=: )[^\s:]+$|(?<=model )\S+:", self.said)
        ]


def complaints(said: str) -> list[Complaint]:
    """Return the problems of a message; one without a place where it has none."""
    found: list[Complaint] = []
    for line in said.splitlines():
        if head := HEAD.match(line):
            text = head["typed"] if head["file"] is None else head["said"]
            found.append(Complaint(text, "", head["file"], int(head["line"] or 0), int(head["column"] or 0)))
        elif found and line.startswith("    = "):
            found[-1].hint += line[6:] + "\n"
        elif found and not found[-1].file and (typed := re.match(r" *\| (\S.*)$", line)) and "^" not in typed[1]:
            found[-1].typed = typed[1]
    return found or [Complaint(said, said)]


def commands(said: str) -> list[str]:
    """Return the commands that a message names. Words in capitals stand for something else."""
    help_of_click = re.compile(r"^(Usage: |Try ').*$", re.MULTILINE)
    return [match[0].rstrip(".:") for match in COMMAND.finditer(help_of_click.sub("", said))]


def quick(command: str) -> str:
    """Return a command that says what this one would, and computes nothing."""
    return f"{command} --dry-run" if command.startswith("fgrl run ") else command


def failures(mistake: Mistake, folder: Path, said: str) -> Iterator[str]:
    """Yield each suggestion of a message that does not work, with what came of it."""
    for command in commands(said):
        if "RECIPE" not in command and "DIR" not in command and not re.match("fgrl (init|compare|sweep)", command):
            after, code = say(quick(command), folder)
            if code and WRONG.search(after):
                yield f"{command}: {after}"
    before = complaints(said)
    for complaint in before:
        text = f"{complaint.said}\n{complaint.hint}"
        meant = [match[1] or match[2] for match in MEANT.finditer(text)]
        written = [match[1] for match in WRITTEN.finditer(text) if not IN_PROSE.match(match[1])]
        tries = [*meant, *written, *SET.findall(text)]
        for suggestion in tries:
            if suggestion.startswith("fgrl ") or (suggestion.startswith("{") and not complaint.file):
                continue
            results = list(_applied(mistake, folder, complaint, suggestion))
            if not any(_helps(complaint, before, after) for after in results):
                yield f"{suggestion!r} for {complaint.said.strip()[-200:]!r}: {results[:1]}"


def _helps(complaint: Complaint, before: list[Complaint], after: str) -> bool:
    left = complaints(after)
    known = [one.said for one in before]
    return complaint.said not in [one.said for one in left] and not any(
        WRONG.search(one.said) and one.said not in known for one in left
    )


def _applied(mistake: Mistake, folder: Path, complaint: Complaint, suggestion: str) -> Iterator[str]:
    """Yield what is said after each way to apply a suggestion."""
    for command in _retyped(mistake.command, complaint, suggestion):
        yield say(quick(command), folder)[0]
    for file in [folder / complaint.file] if complaint.file else sorted(folder.glob("*.*")):
        text = file.read_text(encoding="utf-8")
        for changed in _rewritten(text, complaint, suggestion):
            file.write_text(changed, encoding="utf-8")
            yield say(mistake.command, folder)[0]
        file.write_text(text, encoding="utf-8")


def _retyped(command: str, complaint: Complaint, suggestion: str) -> Iterator[str]:
    words = shlex.split(command)
    if re.fullmatch(r"[a-z_.]+=\S+", suggestion) and SET.search(complaint.said):
        yield shlex.join([*words, suggestion])
    for start in range(2, len(words)):
        for end in range(start + 1, min(start + 4, len(words) + 1)):
            yield shlex.join([*words[:start], suggestion, *words[end:]])
        for wrong in complaint.words:
            if wrong in words[start]:  # a row, a value
                yield shlex.join([*words[:start], words[start].replace(wrong, suggestion), *words[start + 1 :]])


def _rewritten(text: str, complaint: Complaint, suggestion: str) -> Iterator[str]:
    if " to " in suggestion and "\nstages:" in text:
        key, _, value = suggestion.partition(" to ")
        for stage in yaml.safe_load(text)["stages"]:
            yield _dumped(yaml.safe_load(text), ["stages", stage, *key.split(".")], value)
    if not complaint.file:
        yield from (text.replace(wrong, suggestion) for wrong in complaint.words if wrong in text)
        return
    lines = text.splitlines(keepends=True)
    line, start = lines[complaint.line - 1], complaint.column - 1
    key = re.search(r'unknown key "([^"]+)"', complaint.said)
    if "is set already" in complaint.hint and key:
        yield text.replace(line, "", 1)
    if key and "." in suggestion:
        data = yaml.safe_load(text)
        stage, value = complaint.path[:2], _taken(data, complaint.path)
        yield _dumped(
            data,
            [*(stage if len(complaint.path) > 1 else ["stages", next(iter(data["stages"]))]), *suggestion.split(".")],
            value,
        )
    for wrong in [key[1]] if key else complaint.words:
        if wrong in line[start:]:
            lines[complaint.line - 1] = line[:start] + line[start:].replace(wrong, suggestion, 1)
            yield "".join(lines)
    if complaint.path and (not key or re.match(r"\w+: ", suggestion)):
        try:
            data = yaml.safe_load(text)
            path = complaint.path
            if re.match(r"\w+: ", suggestion):  # another entry of the same mapping
                _taken(data, path)
                path.pop()
            yield _dumped(data, path, yaml.safe_load(suggestion))
        except (yaml.YAMLError, LookupError, TypeError):
            pass
    for wrong in (
        r"“.*”",
        re.escape(suggestion.replace(": ", ":")),
        re.escape(suggestion.strip('"')),
        re.escape(suggestion.rstrip(":")) + "$",
        r"-\w.*",
    ):
        if found := re.search(wrong, line.rstrip("\n")):
            dash = "- " if wrong.startswith("-") else ""
            lines[complaint.line - 1] = line[: found.start()] + dash + suggestion + line[found.end() :]
            yield "".join(lines)


def _taken(data: Any, path: list[str | int]) -> Any:
    for part in path[:-1]:
        data = data[part]
    return data.pop(path[-1])


def _dumped(data: Any, path: list[str | int], value: Any) -> str:
    inside = data
    for part in path[:-1]:
        inner = inside[part] if not isinstance(inside, dict) else inside.setdefault(part, {})
        if isinstance(inner, str):  # a bare text stands for settings
            inside[part] = value
            break
        inside = inner
    else:
        if isinstance(value, dict) and "name" in value and path[-1] == "name":
            inside.update(value)
        else:
            inside[path[-1]] = value
    return yaml.safe_dump(data, sort_keys=False)
