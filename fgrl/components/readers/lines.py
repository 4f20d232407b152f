"""Reader for a text file with one prompt per line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from pydantic import field_validator

from fgrl.base.errors import DataError
from fgrl.data.sliced_reader import SlicedReader
from fgrl.data.system_prompt import SystemPrompt
from fgrl.data.text_file import numbered_lines
from fgrl.registry import File, register
from fgrl.types import Sample


@register("lines")
class Lines(SlicedReader, SystemPrompt):
    """A prompt for each line of a text file, inserted into a template.

    Empty lines and lines that start with `#` are skipped. A repeated line is an error: it could end up both in the
    training set and in the held-out set.
    """

    path: Annotated[str, File]
    """Path of the file, in UTF-8."""
    template: str = "Write one or two sentences about {line}."
    """Template of the prompt; `{line}` is replaced by the line. Other braces are kept."""

    @field_validator("template")
    @classmethod
    def _has_line(cls, template: str) -> str:
        if "{line}" not in template:
            raise ValueError("wants {line} somewhere in the template")
        return template

    def read(self) -> Iterator[Sample]:
        lines = self._lines()
        name = Path(self.path).stem
        for row in self.chosen(len(lines), self.path):
            line = lines[row]
            prompt = self.template.replace("{line}", line)
            yield self.with_system(Sample(id=f"{name}:{row}", prompt=prompt, meta={"line": line}))

    def _lines(self) -> list[str]:
        """Return the lines that are prompts."""
        seen: dict[str, int] = {}
        for number, raw in numbered_lines(self.path):
            line = raw.strip()
            if line.startswith("#"):
                continue
            if line in seen:
                raise DataError(f"{self.path}:{number}: {line!r} is already in line {seen[line]}: remove one of them")
            seen[line] = number
        return list(seen)
