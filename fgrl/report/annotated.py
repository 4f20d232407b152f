"""Some samples with what people and models recorded about their responses."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup

from fgrl.report.chains import is_chain, verdicts
from fgrl.report.drawing import Drawing
from fgrl.report.escaping import turns
from fgrl.report.marked_tokens import MarkedTokens, recorded
from fgrl.types import Sample

MOST_SAMPLES = 8
MOST_RESPONSES = 4
"""Per sample."""
MOST_ANNOTATIONS = 4
"""Per response."""


@dataclass
class AnnotatedResponse:
    """A response with its marks, as the page shows it."""

    title: str
    drawing: Drawing
    more: int
    """Annotations that are not shown."""


@dataclass
class AnnotatedSample:
    """A sample with its annotated responses, as the page shows it."""

    turns: list[tuple[str, Markup]]
    responses: list[AnnotatedResponse]
    more: int
    """Annotated responses that are not shown."""
    verdicts: list[tuple[str, Markup | None]]
    """Comparisons of responses in words, with the reason."""


def annotated_section(samples: Iterable[Sample]) -> list[AnnotatedSample]:
    """Return the first samples that have an annotation with a critique, marked passages or answers, or a comparison
    with a reason; chains are left out. Reads no further than it has to.
    """
    return list(itertools.islice(filter(None, map(_shown, samples)), MOST_SAMPLES))


def _shown(sample: Sample) -> AnnotatedSample | None:
    if is_chain(sample):
        return None
    every, compared = sample.responses, verdicts(sample)
    explained = any(reason for _words, reason in compared)
    responses = []
    for place, response in enumerate(every):
        annotations = recorded(response)
        if annotations or explained:
            several = len(every) > 1
            title = [f"response {place + 1} of {len(every)}" if several else "response", response.by or ""]
            title += ["chosen"] if several and sample.chosen == place else []
            more = max(0, len(annotations) - MOST_ANNOTATIONS)
            item = MarkedTokens("", [], [], text=response.text, annotations=annotations[:MOST_ANNOTATIONS])
            drawing = Drawing.of([item], [(None, None)])
            responses.append(AnnotatedResponse(" · ".join(filter(None, title)), drawing, more))
    if not responses:
        return None
    more = max(0, len(responses) - MOST_RESPONSES)
    return AnnotatedSample(turns(sample.prompt), responses[:MOST_RESPONSES], more, compared)
