"""Shares of annotations that people find correct, and agreement between people."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from fgrl.base.errors import DataError
from fgrl.experiments.stages import names
from fgrl.kinds import Run, Stage
from fgrl.measuring import comparison, human_verdicts, span_numbers, span_sets
from fgrl.measuring.human_verdicts import JudgedAnnotation
from fgrl.measuring.observations import Observations, Observed
from fgrl.measuring.span_numbers import MarkedSpan
from fgrl.measuring.span_sets import Labels, SpanSet
from fgrl.measuring.statistics import Measured
from fgrl.registry import File, register
from fgrl.types import Report

HUMAN, ACCURACY = "human", "span_accuracy"
"""Names of metrics."""
COUNTED = ("labels", "version")
"""Settings that change what is counted."""


class JudgedSet(SpanSet):
    """Annotations of one annotator, and people's verdicts on them."""

    verdicts: Annotated[str, File]
    """File of JSON lines, one for each person and annotated response: {"id": "7", "by": "ada", "critique": "correct",
    "spans": ["correct", "incorrect"]}. The spans are in the annotation's order. `response` has the text if a sample has
    several responses.
    """


@register("human_accuracy")
class HumanAccuracyStage(Stage):
    """Shares of critiques and of spans that people find correct, agreement between people, and accuracy by length of
    spans, in words (Tables 16 and 19 of Text2Grad, appendix M). Intervals resample prompts.
    """

    makes = Report

    of: dict[str, JudgedSet] = Field(min_length=1)
    """Annotations, by the names that tables show."""
    labels: dict[str, float] | None = None
    """Names of the labels; null: `positive` and `negative` by their sign, and `zero`."""
    resamples: int = Field(1000, ge=100)
    """Number of bootstrap samples."""

    @model_validator(mode="after")
    def _names(self) -> HumanAccuracyStage:
        names.check("set", self.of, None)
        return self

    def run(self, run: Run) -> dict[str, Any]:
        found: dict[str, list[JudgedAnnotation]] = {}
        summary: dict[str, Any] = {}
        for name, part in self.of.items():
            part.data.setup(run)
            annotations, counts = span_sets.marks(list(islice(part.read(), run.limit)))
            if not annotations:
                raise DataError(f"of.{name}: there are no annotated responses ({counts or 'it has no responses'})")
            verdicts = human_verdicts.read_verdicts(Path(part.verdicts))
            found[name] = human_verdicts.judged(annotations, verdicts, partial=run.limit is not None)
            summary[f"{name}: annotations"] = len(annotations)
            summary[f"{name}: people"] = len(set().union(*(own.people for own in found[name])))
            summary |= {f"{name}: {reason}": count for reason, count in counts.items()}
        spans = (span for own in found.values() for each in own for span in each.marked.spans)
        labels = Labels.of(self.labels, spans)
        numbers = {name: human_verdicts.numbers(own) for name, own in found.items()}
        by_length = {name: _by_length(own, labels) for name, own in found.items()}
        options = {"resamples": self.resamples}
        about = "share of people's verdicts on spans that say correct; lengths in words"
        observed = {
            HUMAN: Observed(numbers, options, depends=COUNTED),
            ACCURACY: Observed(by_length, options, about=about, depends=COUNTED),
        }
        metrics = {name: own.derived() for name, own in observed.items()}
        measured = comparison.write(run.out, None, metrics, observed=Observations(observed))
        return {**summary, "measured": measured}


def _by_length(annotations: list[JudgedAnnotation], labels: Labels) -> dict[str, Measured]:
    spans = [
        MarkedSpan(own.marked.prompt, labels.name(span.label), span_sets.length(span, words), verdict)
        for own in annotations
        for words in [span_sets.units(own.marked.text, "words")]
        for span, votes in zip(own.marked.spans, own.spans, strict=True)
        for verdict in votes.values()
    ]
    return span_numbers.by_length(spans, [own.marked.prompt for own in annotations], list(labels.values))
