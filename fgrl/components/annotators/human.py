"""Annotations by people, attached to the annotated responses (Text2Grad, appendix I.1, "human feedback")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from pydantic import Field, PrivateAttr, model_validator

from fgrl.base.errors import DataError
from fgrl.data.text_file import numbered_lines, parse_row
from fgrl.feedback.quotes import Located
from fgrl.feedback.quoting import Quotes, QuoteSearch
from fgrl.feedback.response_annotator import NamedAnnotator, annotated, with_matches, with_responses
from fgrl.kinds import Run
from fgrl.registry import File, register
from fgrl.types import Annotation, PairVerdict, Record, Response, Sample, Span, parse_line


class ShortLine(Record):
    """Fields of a short line besides its lists of quotes."""

    id: str
    response: str | None = None
    by: str | None = None
    critique: str | None = None
    seconds: float | None = Field(None, ge=0, allow_inf_nan=False)
    quotes: dict[str, list[str]] = {}


class Mismatch(Exception):
    """Error for a part of the file that matches nothing in the data. The arguments are the name of its count and the
    reason.
    """


@register("human")
class HumanAnnotations(QuoteSearch, NamedAnnotator):
    """Attaches annotations of people, from a file or from a column of the data.

    Each line of the file is one JSON object, in one of two forms. The first form is a sample's record
    (`docs/how-to/records.md`) with annotated responses: its annotations belong to the responses with the same text in
    the sample with the same id. The second is a short form, whose quotes become spans like the quotes of a language
    model:

        {"id": "7", "good": ["by the sea"], "poor": [], "critique": "Vivid.", "by": "ada", "response": "the text"}

    Only `id` is required; without `response` the line refers to the chosen response. Existing annotations of responses
    are kept. `meta.matches` of the response records how the quotes of a short line were found.
    """

    keeps_responses = True

    version = 2

    path: Annotated[str | None, File] = None
    """File of annotations: JSON lines in UTF-8."""
    column: str | None = None
    """Entry of a sample's `meta` with a person's comment on its chosen response, in place of a file, e.g. `feedback` of
    SLF5K. The comment becomes the critique.
    """
    labels: dict[str, float] = Field({"good": 1.0, "poor": -1.0}, min_length=1)
    """Lists of quotes in a short line, with the label of the spans in each list."""
    verdicts: bool = False
    """Also attach the comparisons in the file's records. They replace earlier comparisons of the same two responses by
    the same person.
    """
    refuse: bool = True
    """Stop with an error if an annotation belongs to no response, or a quote is not found. If false, leave it out and
    count it. (In a quick trial with `--limit`, annotations of samples that were not read are only counted.)
    """

    _partial: bool = PrivateAttr(False)

    @model_validator(mode="after")
    def _one_source(self) -> HumanAnnotations:
        if (self.path is None) == (self.column is None):
            raise ValueError("needs either `path`, a file of annotations, or `column`, an entry of the samples' meta")
        if fixed := sorted(set(self.labels) & set(ShortLine.model_fields)):
            raise ValueError(f"labels.{fixed[0]}: a short line has this key already; give the list another name")
        if self.verdicts and self.path is None:
            raise ValueError("verdicts: comparisons come from a file of records; set `path`")
        return self

    def setup(self, run: Run) -> None:
        self._partial = run.limit is not None

    def annotate(self, samples: Sequence[Sample]) -> list[Sample]:
        """Attach the annotations. Raise `DataError` with the line for invalid or unmatched annotations (the latter with
        `refuse`), and for two annotations of one response by the same person.

        Counts: numbers of attached `annotations`, of annotated `responses`, and of `verdicts`; matches of quotes; and
        unmatched parts.
        """
        changes = _Changes(samples)
        located = Located()
        self._counted = {"annotations": 0}
        if self.column is not None:
            self._read_column(samples, changes)
        else:
            assert self.path is not None
            for number, line in numbered_lines(self.path):
                self._read_line(line, f"{self.path}:{number}", number, changes, located)
        self._counted["responses"] = len(changes.changed)
        if located.quotes:
            self._counted |= located.counts()
        return changes.with_verdicts(with_responses(samples, changes.changed))

    def _read_column(self, samples: Sequence[Sample], changes: _Changes) -> None:
        for owner, sample in enumerate(samples):
            written = sample.meta.get(self.column or "")
            if written is None or not str(written).strip():
                self._count("samples without it")
                continue
            try:
                place = changes.place(owner, None)
            except Mismatch as problem:
                self._mismatch(f"sample {sample.id}", problem)
                continue
            annotation = Annotation(by=self.annotator_name, critique=str(written))
            changes.add(owner, place, annotation, f"sample {sample.id}")
            self._count("annotations")

    def _read_line(self, line: str, where: str, number: int, changes: _Changes, located: Located) -> None:
        row = parse_row(line, str(self.path), number)
        try:
            if "prompt" in row or "responses" in row:
                self._read_record(parse_line(line, Sample, where), where, changes)
            else:
                self._read_short(row, where, changes, located)
        except Mismatch as problem:
            self._mismatch(where, problem)

    def _read_record(self, record: Sample, where: str, changes: _Changes) -> None:
        owner = changes.owner(record.id)
        for index, response in enumerate(record.responses):
            if not response.annotations:
                continue
            try:
                place = changes.place(owner, response.text, index)
            except Mismatch as problem:
                self._mismatch(where, problem)
                continue
            shift = _leading_space(changes.response(owner, place).text) - _leading_space(response.text)
            for annotation in response.annotations:
                by = annotation.by or self.annotator_name
                moved = [_moved(span, shift) for span in annotation.spans]
                changes.add(owner, place, annotation.model_copy(update={"by": by, "spans": moved}), where)
                self._count("annotations")
        for verdict in (record.verdicts or []) if self.verdicts else []:
            self._read_verdict(record, verdict, owner, where, changes)

    def _read_verdict(self, record: Sample, verdict: PairVerdict, owner: int, where: str, changes: _Changes) -> None:
        try:
            first, second = (
                changes.place(owner, record.responses[place].text, place) for place in (verdict.first, verdict.second)
            )
        except Mismatch as problem:
            self._mismatch(where, problem)
            return
        by = verdict.by or self.annotator_name
        changes.compare(owner, verdict.model_copy(update={"first": first, "second": second, "by": by}), where)
        self._count("verdicts")

    def _read_short(self, row: Mapping[str, Any], where: str, changes: _Changes, located: Located) -> None:
        line = self._short_line(row, where)
        owner = changes.owner(line.id)
        place = changes.place(owner, line.response)
        response = changes.response(owner, place)
        quotes = {name: self.quotes_of(response.text) for name in self.labels}
        for name, own in quotes.items():
            own.take(line.quotes.get(name, []))
            self._refuse_lost(own, where)
            located.add(matches for _quote, matches in own.located)
        annotation = Annotation(
            by=line.by or self.annotator_name,
            critique=line.critique,
            seconds=line.seconds,
            spans=[span for name, own in quotes.items() for span in own.spans(self.labels[name])],
        )
        records = [{"list": name, **entry} for name, own in quotes.items() for entry in own.records()]
        changes.add(owner, place, annotation, where, **with_matches(response, annotation.by, records))
        self._count("annotations")

    def _short_line(self, row: Mapping[str, Any], where: str) -> ShortLine:
        quotes = {name: value for name, value in row.items() if name in self.labels}
        rest = {name: value for name, value in row.items() if name not in self.labels}
        number = rest.get("id")
        known = {"id": str(number)} if isinstance(number, int) and not isinstance(number, bool) else {}
        try:
            return ShortLine.model_validate({**rest, **known, "quotes": quotes})
        except ValueError as problem:
            first = problem.errors()[0]  # type: ignore[attr-defined]
            place = ".".join(str(part) for part in first["loc"])
            wanted = ", ".join([*list(ShortLine.model_fields)[:-1], *self.labels])
            raise DataError(f"{where}: {place}: {first['msg']} (a short line has: {wanted})") from None

    def _refuse_lost(self, quotes: Quotes, where: str) -> None:
        lost = next((quote for quote, matches in quotes.located if not matches), None)
        if lost is not None and self.refuse:
            raise DataError(
                f"{where}: the quote {lost[:80]!r} is not in the response; `refuse: false` leaves such quotes out"
            )

    def _mismatch(self, where: str, problem: Mismatch) -> None:
        name, reason = problem.args
        if self.refuse and not (self._partial and name == UNKNOWN):
            raise DataError(f"{where}: {reason}; `refuse: false` leaves such annotations out")
        self._count(name)

    def _count(self, name: str) -> None:
        self._counted[name] = self._counted.get(name, 0) + 1


UNKNOWN = "of unknown samples"


def _leading_space(text: str) -> int:
    """Return the number of white-space characters at the beginning of a text."""
    return len(text) - len(text.lstrip())


def _moved(span: Span, shift: int) -> Span:
    """Return a span of a record, shifted for the different amount of white space at the beginning of the text in the
    data.
    """
    if not shift:
        return span
    return span.model_copy(update={"start": max(0, span.start + shift), "end": max(0, span.end + shift)})


class _Changes:
    """Responses by their place in the data, and the responses that got annotations."""

    def __init__(self, samples: Sequence[Sample]) -> None:
        self.samples = samples
        self.owners = {sample.id: owner for owner, sample in enumerate(samples)}
        self.changed: dict[tuple[int, int], Response] = {}
        self.added: set[tuple[int, int, str]] = set()
        self.verdicts: dict[tuple[int, frozenset[int], str], PairVerdict] = {}
        """Verdicts by sample, its two responses, and person."""

    def owner(self, name: str) -> int:
        if name not in self.owners:
            raise Mismatch(UNKNOWN, f"the data have no sample {name!r}")
        return self.owners[name]

    def place(self, owner: int, text: str | None, index: int = 0) -> int:
        """Return the place of the response with this text, ignoring white space at its ends; without a text, of the
        chosen or only response. If several have the same text, take the response at `index`, or else the first.
        """
        sample = self.samples[owner]
        if text is not None:
            for alike in (lambda other: other == text, lambda other: other.strip() == text.strip()):
                places = [place for place, response in enumerate(sample.responses) if alike(response.text)]
                if places:
                    return index if index in places else places[0]
            raise Mismatch("of unknown responses", f"sample {sample.id!r} has no response {text[:60]!r}")
        if sample.chosen is None and len(sample.responses) != 1:
            reason = f"it names no response, and sample {sample.id!r} has {len(sample.responses)}, none chosen"
            raise Mismatch("of unknown responses", reason)
        return sample.chosen or 0

    def response(self, owner: int, place: int) -> Response:
        return self.changed.get((owner, place), self.samples[owner].responses[place])

    def add(self, owner: int, place: int, annotation: Annotation, where: str, **meta: Any) -> None:
        key = (owner, place, annotation.by)
        if key in self.added:
            raise DataError(f"{where}: a second annotation by {annotation.by!r} of one response; keep one of them")
        self.added.add(key)
        response = self.response(owner, place)
        if any(span.end > len(response.text) for span in annotation.spans):
            raise DataError(f"{where}: a span of {annotation.by!r} ends behind the response's last character")
        self.changed[owner, place] = annotated(response, annotation, **meta)

    def compare(self, owner: int, verdict: PairVerdict, where: str) -> None:
        if verdict.first == verdict.second:
            raise DataError(f"{where}: {verdict.by!r} compares two responses that are one in the data")
        key = (owner, frozenset((verdict.first, verdict.second)), verdict.by)
        if key in self.verdicts:
            raise DataError(f"{where}: a second verdict by {verdict.by!r} on the same two responses; keep one of them")
        self.verdicts[key] = verdict

    def with_verdicts(self, samples: Sequence[Sample]) -> list[Sample]:
        """Return copies of the samples with the comparisons."""
        new: dict[int, list[PairVerdict]] = {}
        for (owner, _pair, _by), verdict in self.verdicts.items():
            new.setdefault(owner, []).append(verdict)
        return [
            sample.model_copy(update={"verdicts": [*self._kept(owner, sample), *new[owner]]})
            if owner in new
            else sample
            for owner, sample in enumerate(samples)
        ]

    def _kept(self, owner: int, sample: Sample) -> list[PairVerdict]:
        keys = set(self.verdicts)
        return [own for own in sample.verdicts or [] if (owner, frozenset((own.first, own.second)), own.by) not in keys]
