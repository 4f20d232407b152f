"""Annotation of samples with scores, verdicts, critiques or spans."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Annotated, Any

from pydantic import Field

from fgrl.base.errors import DataError
from fgrl.experiments.stages import counting, sizes
from fgrl.feedback.llm import estimating
from fgrl.kinds import Annotator, Expected, Peek, Reader, Run, Stage, stated
from fgrl.kinds.reader import expected
from fgrl.registry import Unkeyed, register
from fgrl.types import Sample, Samples, write_jsonl

FAILED = "failed.jsonl"
"""File beside the samples with the samples that the annotator left out because they failed (`Annotator.failed`)."""

SLICE = 1000
"""Number of samples in memory at once if each is annotated independently."""


@register("annotate")
class AnnotateStage(Stage):
    """Annotation of every sample by an annotator."""

    makes = Samples

    data: Reader
    """Reader of the samples to annotate."""
    annotator: Annotator
    """Annotator that adds to the samples."""
    max_missing: Annotated[float, Unkeyed] = Field(0.25, ge=0, le=1)
    """Maximum share of questions to a language model without a usable answer, or of cases for which a rule fails. If
    more fail, the stage stops unfinished, so that the same command asks them again.
    """
    devices: Annotated[int, Unkeyed] = Field(1, ge=1, le=100_000)
    """Number of processes that share the questions to a `local` model, one per device. It must be 1 if no such model is
    asked. The result is the same as with one process.
    """

    def processes(self) -> int:
        """Return `devices` if a model of this machine is asked: each process answers a part of the questions."""
        return super().processes() if counting.local_clients(self.annotator) else 1

    def run(self, run: Run) -> dict[str, Any]:
        self.setup(run)
        samples, size = islice(self.data.read(), run.limit), SLICE if self.annotator.by_samples() else None
        read, counts = 0, dict[str, Any]()

        def annotated() -> Iterator[Sample]:
            nonlocal read, counts
            while part := list(islice(samples, size)):
                read += len(part)
                yield from self.annotator.annotate(part)
                own = self.annotator.counts()
                counts = {n: counts.get(n, 0) + own.get(n, 0) for n in (*counts, *own)} if counts else dict(own)

        if run.rank:  # it asks what rank 0 asks, and answers its part
            return {"samples": sum(1 for _ in annotated())}
        made = write_jsonl(run.out / "samples.jsonl", annotated())
        failed = self.annotator.failed()
        if failed:
            write_jsonl(run.out / FAILED, failed)
        if not made:
            where = f" ({run.out / FAILED} has those that failed)" if failed else ""
            raise DataError(f"no samples are left of {read}{where}: {counts}")
        self._check_missing(counts, made, len(failed))
        return {"samples": made, **counts}

    def _check_missing(self, counts: Mapping[str, Any], made: int, failed: int) -> None:
        asked = "questions" in counts
        wanted, done = (counts["questions"], counts["answered"]) if asked else (made + failed, made)
        if not wanted or (done and wanted - done <= self.max_missing * wanted):
            return
        problem, step = f"{failed:,} of {wanted:,} cases failed", f"Change the rule ({FAILED} has what failed)"
        if asked:
            problem = f"{wanted - done:,} of {wanted:,} questions got no answer that can be used"
            step = "Run the same command to ask them again"
        raise DataError(
            f"{problem}: {counts}. {step}; `max_missing` ({self.max_missing:g}) sets how many may be missing"
        )

    def expects(self, peek: Peek) -> Expected | None:
        given = self._given(peek)
        return None if given is None else stated(self.annotator, "makes_at_most", given, given)

    def work(self, peek: Peek) -> Iterator[counting.Work]:
        """Yield the work of local models that answer the annotator's questions, one answer about each response."""
        most = max((part.max_prompt_tokens for part in counting.local_clients(self.annotator)), default=0)
        if most:
            given = counting.texts(self.data, peek, most, most)
            tokens, devices = given.prompt + given.response, self.processes()
            yield from counting.answering(self.annotator, given.rows, tokens, peek, devices=devices)

    def _given(self, peek: Peek) -> Expected | None:
        """Return an upper bound on the annotator's input."""
        given = expected(self.data, peek)
        return None if given is None else given.after(0, peek.limit)

    def estimate(self, peek: Peek) -> dict[str, Any]:
        """Return the number of "calls" to a language model, exact if the data is there, else an upper bound; and the
        memory of a model of this machine that answers them.
        """
        client = self.annotator.asked_client()
        if client is None:
            return {}
        memory: dict[str, Any] = {}
        for asked in counting.local_clients(self.annotator):
            memory |= sizes.drawing({"answers": asked.model}, counting.limits_of(asked), asked.engine, peek)

        def exactly() -> dict[str, Any] | None:
            self.data.setup(peek)
            client.look(peek)
            samples = list(islice(self.data.read(), peek.limit))
            return estimating.bill([(client, estimating.known(client, self.annotator.asks(samples), peek))])

        calls = estimating.section(exactly)["calls"]
        given = None if "calls" in calls else self._given(peek)
        most = None if given is None else stated(self.annotator, "asks_at_most", given)
        return memory | {"calls": calls if most is None else {"at most": most, **calls}}
