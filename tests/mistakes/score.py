"""Score what `fgrl` says about the mistakes of this folder, all in one process: `python tests/mistakes/score.py`.

Each file has mistakes of one kind. A mistake is made in a folder of `worlds.yaml`, where everything is right:

    name      what the user did
    world     which folder (default: rl)
    edit      by file, texts that are replaced; each occurs once
    files     files that are written; `encoding` says how, where it is not UTF-8
    command   what the user types (default: fgrl validate recipe.yaml)
    exit      the exit code, or a list of codes that would be right (default: 2)
    place     what the message must name. `FILE: TEXT` is the line of FILE with this text, and must be the first line of that
              file that is named
    cause     words that must be in the message
    next      words of the next step that must be in the message

`place`, `cause` and `next` are lists of which all must be found; a list in such a list has alternatives. A word ends where it
ends in the message, unless it ends with `*`. Excerpts of the user's file do not count as words of the message. A mistake
counts if place, cause and next step are found, the exit code is right, there is no traceback, and the message is no longer
than a screen.

The corpus was written before any message was changed for it: then 53 of 150 counted.

`python tests/mistakes/score.py WORD...` shows what is said about the mistakes whose names contain a word.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

HERE = Path(__file__).parent
SCREEN = 40
"""Lines of a message."""
EXCERPT = re.compile(r"^ *(\d+ *)?\|.*$", re.MULTILINE)


@dataclass
class Mistake:
    """What a user did, and what a helpful message says."""

    theme: str
    name: str
    place: Any
    cause: list[Any]
    next: list[Any]
    world: str = "rl"
    command: str = "fgrl validate recipe.yaml"
    exit: Any = 2
    edit: dict[str, dict[str, str]] | None = None
    files: dict[str, str] | None = None
    encoding: dict[str, str] | None = None

    def make(self, folder: Path) -> None:
        """Write the folder with the mistake in it."""
        texts = dict(_worlds()[self.world]) | (self.files or {})
        for file, changes in (self.edit or {}).items():
            for old, new in changes.items():
                if texts[file].count(old) != 1:
                    raise ValueError(f"{self.name}: {old!r} occurs {texts[file].count(old)} times in {file}")
                texts[file] = texts[file].replace(old, new)
        for file, text in texts.items():
            path = folder / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode((self.encoding or {}).get(file, "utf-8")))

    def lacking(self, said: str, code: int, folder: Path) -> list[str]:
        """Return what the message lacks: nothing where it counts."""
        lacks = []
        codes = self.exit if isinstance(self.exit, list) else [self.exit]
        if code not in codes:
            lacks.append(f"exit code {code}, not {self.exit}")
        if "Traceback (most recent call last)" in said:
            lacks.append("a traceback")
        if said.count("\n") > SCREEN:
            lacks.append(f"{said.count(chr(10))} lines")
        words = " ".join(EXCERPT.sub(" ", said).split())
        places = self.place if isinstance(self.place, list) else [self.place]
        lacks += [f"place: {one}" for one in places if not _any(one, lambda item: self._names(item, words, folder))]
        for part in ("cause", "next"):
            lacks += [f"{part}: {one}" for one in getattr(self, part) if not _any(one, lambda item: _has(words, item))]
        return lacks

    def _names(self, place: str, words: str, folder: Path) -> bool:
        file, colon, text = place.partition(": ")
        if not colon:
            return _has(words, place)
        lines = (folder / file).read_bytes().decode((self.encoding or {}).get(file, "utf-8"))
        assert lines.count(text) >= 1, f"{self.name}: {text!r} is not in {file}"
        number = lines[: lines.index(text)].count("\n") + 1 + (len(text) - len(text.lstrip("\n")))
        named = re.search(rf"{re.escape(file)}\W{{1,4}}(?:line )?(\d+)|line (\d+) of \W?{re.escape(file)}", words)
        return named is not None and int(named[1] or named[2]) == number


def _any(item: Any, found: Any) -> bool:
    return any(found(one) for one in item) if isinstance(item, list) else found(item)


def _has(words: str, item: str) -> bool:
    begin = r"(?<!\w)" if item[0].isalnum() else ""
    end = r"(?!\w)" if item[-1].isalnum() else ""
    return re.search(begin + re.escape(item.removesuffix("*")) + end, words, re.IGNORECASE) is not None


def _worlds() -> dict[str, dict[str, str]]:
    return yaml.safe_load((HERE / "worlds.yaml").read_text(encoding="utf-8"))


def mistakes(folder: str = ".") -> list[Mistake]:
    """Return the corpus; `later`: mistakes that were found after its score was fixed, of which all must count."""
    files = [file for file in sorted((HERE / folder).glob("*.yaml")) if file.name != "worlds.yaml"]
    return [Mistake(file.stem, **entry) for file in files for entry in yaml.safe_load(file.read_text(encoding="utf-8"))]


def say(command: str, folder: Path) -> tuple[str, int]:
    """Return what a command prints in a folder, and its exit code."""
    from fgrl.cli import main

    said = io.StringIO()
    program, *arguments = shlex.split(command)
    assert program == "fgrl"
    code: Any = 0
    hook, argv = sys.excepthook, sys.argv
    with contextlib.chdir(folder), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        sys.argv = ["fgrl", *arguments]
        try:
            main(arguments)
        except SystemExit as end:
            code = end.code
        except BaseException as bug:
            said.write(f"Traceback (most recent call last)\n{bug!r}\n")
            code = 1
        finally:
            sys.excepthook, sys.argv = hook, argv
    return said.getvalue(), code if isinstance(code, int) else 1


@contextlib.contextmanager
def as_a_user(model: Path) -> Iterator[Path]:
    """A folder for the mistakes, without what would differ between machines."""
    before = dict(os.environ)
    os.environ.update(
        COLUMNS="150", NO_COLOR="1", HF_HUB_OFFLINE="1", CUDA_VISIBLE_DEVICES="", TOKENIZERS_PARALLELISM="false"
    )
    os.environ.pop("OPENAI_API_KEY", None)
    folder = Path(tempfile.mkdtemp())
    try:
        (folder / "model").symlink_to(model)
        yield folder
    finally:
        shutil.rmtree(folder)
        os.environ.clear()
        os.environ.update(before)


def judge(mistake: Mistake, home: Path, number: int) -> tuple[list[str], str]:
    """Return what the message lacks, and the message."""
    folder = home / str(number)
    folder.mkdir()
    (folder / "model").symlink_to(home / "model")
    mistake.make(folder)
    said, code = say(mistake.command, folder)
    return mistake.lacking(said, code, folder), f"{said}exit code {code}"


def score(model: Path, words: list[str]) -> int:
    """Print the score and return the number of mistakes that count."""
    chosen = [one for one in mistakes() if not words or any(word in f"{one.theme}: {one.name}" for word in words)]
    good, by_theme = 0, {}
    with as_a_user(model) as home:
        for number, mistake in enumerate(chosen):
            lacks, said = judge(mistake, home, number)
            good += not lacks
            of = by_theme.setdefault(mistake.theme, [0, 0])
            of[0] += not lacks
            of[1] += 1
            if lacks or words:
                print(f"{'- ' if lacks else '+ '}{mistake.theme}: {mistake.name}: {'; '.join(lacks)}")
            if words:
                print("\n".join(f"      {line}" for line in said.splitlines()), "\n")
    for theme, (right, all_) in by_theme.items():
        print(f"{theme:14} {right:3} of {all_}")
    print(f"{good} of {len(chosen)}")
    return good


if __name__ == "__main__":
    sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent), str(HERE.parent / "support")]
    from conftest import tiny_model

    with tempfile.TemporaryDirectory() as place:
        score(tiny_model(Path(place) / "tiny", 0), sys.argv[1:])
