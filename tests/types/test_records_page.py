"""The lines in `docs/how-to/records.md` are what is read and written."""

from __future__ import annotations

import json
import re
from pathlib import Path

from fgrl.measuring.answer import Answer
from fgrl.types import Response, Sample

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "how-to" / "records.md").read_text(encoding="utf-8")


def test_the_lines_of_the_page_are_read_and_written_as_they_stand() -> None:
    sample, answer = (json.loads(block) for block in re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL))
    assert json.loads(Sample.model_validate(sample).model_dump_json(exclude_defaults=True)) == drop_defaults(sample)
    read = Answer.model_validate(answer)
    assert json.loads(read.model_dump_json(exclude_defaults=True)) == answer
    assert [read.text[start:end] for start, end in read.offsets] == [*read.tokens[:-1], ""]


def drop_defaults(line: dict) -> dict:
    """The label of a good span is not written."""
    (annotation,) = line["responses"][0]["annotations"]
    for span in annotation["spans"]:
        if span["label"] == 1:
            del span["label"]
    return line


def test_the_line_by_hand_is_complete() -> None:
    line = re.search(r'`(\{"id": "1".*?\})`', PAGE)
    assert line is not None
    sample = Sample.model_validate_json(line[1])
    assert sample.chosen_response == Response(text="Because.")
