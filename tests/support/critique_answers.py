"""Annotators over answers from a file, for the tests of those that annotate responses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from training_helpers import a_run

from fgrl.components.clients.replay import Replay
from fgrl.components.readers.jsonl import JsonLines
from fgrl.experiments.pipeline import keys
from fgrl.experiments.stages.annotate import AnnotateStage
from fgrl.kinds import Annotator
from fgrl.types import Response, Sample

A = TypeVar("A", bound=Annotator)
PROMPTS = Path(__file__).resolve().parents[2] / "prompts"


def replay(folder: Path, *lines: dict[str, Any]) -> Replay:
    """A client that answers with these lines."""
    file = folder / "answers.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return Replay(answers=str(file))


def asker(kind: type[A], folder: Path, prompt: str, *lines: dict[str, Any], **options: Any) -> A:
    """An annotator with a prompt of this text, whose client answers with these lines."""
    (folder / "prompt.txt").write_text(prompt, encoding="utf-8")
    annotator = kind(client=replay(folder, *lines), prompt=str(folder / "prompt.txt"), **options)
    annotator.setup(a_run(folder))
    return annotator


def sample(*texts: str, **more: Any) -> Sample:
    """A sample with these responses, the first one chosen."""
    known = {"id": "s", "prompt": "Ask.", "responses": [Response(text=text) for text in texts], "chosen": 0}
    return Sample(**(known | more))


def quoted(response: Response) -> list[tuple[str, float]]:
    """The text and the label of each span."""
    return [(response.text[span.start : span.end], span.label) for span in response.spans]


def stage_key(folder: Path, annotator: Annotator) -> str:
    """The key of a stage that annotates with it."""
    (folder / "data.jsonl").write_text('{"id": "1", "prompt": "a"}\n')
    stage = AnnotateStage(data=JsonLines(path=str(folder / "data.jsonl")), annotator=annotator)
    return keys.key(keys.identity(stage, seed=0, upstream={}))
