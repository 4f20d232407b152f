"""Some samples with what people and models recorded about their responses."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from fgrl.report.chains import ShownVerdict, is_chain, verdicts
from fgrl.report.escaping import long, turns
from fgrl.report.marks import ShownAnnotation, annotations_of_response
from fgrl.results.reading import mapping

MOST_SAMPLES = 8
MOST_RESPONSES = 4
"""Of a sample."""
MOST_ANNOTATIONS = 4
"""Of a response."""


@dataclass
class AnnotatedResponse:
    title: str
    annotations: list[ShownAnnotation]
    more: int
    """Annotations that are not shown."""
    text: Markup | None = None
    """A response without annotations that was compared with another one."""


@dataclass
class AnnotatedSample:
    turns: list[tuple[str, Markup]]
    responses: list[AnnotatedResponse]
    more: int
    """Annotated responses that are not shown."""
    verdicts: list[ShownVerdict]


def annotated_section(lines: Iterable[Mapping[str, Any]]) -> list[AnnotatedSample]:
    """The first samples that have an annotation with a critique, marked passages or answers, or a comparison with a reason; chains
    are left out. Reads no further than it has to."""
    samples: list[AnnotatedSample] = []
    for line in lines:
        if (sample := _sample(line)) is not None:
            samples.append(sample)
            if len(samples) == MOST_SAMPLES:
                break
    return samples


def _sample(line: Mapping[str, Any]) -> AnnotatedSample | None:
    if is_chain(line):
        return None
    recorded = line.get("responses")
    every = [mapping(response) for response in recorded] if isinstance(recorded, list) else []
    compared = verdicts(line)
    explained = any(verdict.reason for verdict in compared)
    responses = []
    for place, response in enumerate(every):
        annotations = annotations_of_response(response)
        if annotations or explained:
            chosen = ["chosen"] if len(every) > 1 and line.get("chosen") == place else []
            by = [str(response["by"])] if response.get("by") else []
            title = " · ".join(
                [f"response {place + 1} of {len(every)}" if len(every) > 1 else "response", *by, *chosen]
            )
            more = max(0, len(annotations) - MOST_ANNOTATIONS)
            text = None if annotations else long(response.get("text"))
            responses.append(AnnotatedResponse(title, annotations[:MOST_ANNOTATIONS], more, text))
    if not responses:
        return None
    return AnnotatedSample(
        turns(line.get("prompt")), responses[:MOST_RESPONSES], max(0, len(responses) - MOST_RESPONSES), compared
    )
