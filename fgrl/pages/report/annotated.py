"""Some samples with the annotations of people and models on their responses."""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from fgrl.pages.report.chains import is_chain, verdicts
from fgrl.pages.report.drawing import Drawing, Exchange, ShownAnswer
from fgrl.pages.report.escaping import turns
from fgrl.pages.report.marked_tokens import MarkedTokens, recorded
from fgrl.types import Sample

MOST_SAMPLES = 8
MOST_RESPONSES = 4
"""Maximum number of responses per sample."""
MOST_ANNOTATIONS = 4
"""Maximum number of annotations per response."""


def annotated_section(samples: Iterable[Sample]) -> list[Exchange]:
    """Return the first samples that have an annotation with a critique, marked passages or answers, or a comparison
    with a reason; chains are left out. No more samples than necessary are read.
    """
    return list(itertools.islice(filter(None, map(_shown, samples)), MOST_SAMPLES))


def _shown(sample: Sample) -> Exchange | None:
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
            more = len(annotations) - MOST_ANNOTATIONS
            notes = [f"{more} more annotations"] if more > 0 else []
            item = MarkedTokens("", [], [], text=response.text, annotations=annotations[:MOST_ANNOTATIONS])
            drawing = Drawing.of([item], [(None, None)])
            responses.append(ShownAnswer(" · ".join(filter(None, title)), drawing, notes=notes))
    if not responses:
        return None
    more = max(0, len(responses) - MOST_RESPONSES)
    return Exchange(turns(sample.prompt), responses[:MOST_RESPONSES], comparisons=compared, more=more)
