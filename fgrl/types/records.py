"""Records that are read and written as text: samples, pairs, requests, and the folders that stages leave behind."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from fgrl.base.errors import DataError
from fgrl.base.files import write_lines
from fgrl.base.references import Product


class Record(BaseModel):
    """A line of JSON, or a part of one."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy with other values. A name that is not a field is a TypeError, since pydantic would store it
        silently.
        """
        for name in update or ():
            if name not in type(self).model_fields:
                raise TypeError(f"{type(self).__name__} has no field {name!r}: {', '.join(type(self).model_fields)}")
        return super().model_copy(update=update, deep=deep)


class AlarmRecord(Record):
    """An alarm of a training that has gone off: the time in which a metric was outside its bounds."""

    name: str
    """Name of the metric."""
    since: int
    """Iteration in which it went off, from 0."""
    value: float | None
    """Value of the metric at that iteration; None if it was not finite."""
    bound: str
    """Bound that the metric violated, in words."""
    until: int | None = None
    """Iteration in which the metric was back in its bounds; None if it was not by the end."""


class Message(Record):
    """One turn of a chat."""

    role: str
    content: str


class Span(Record):
    """A marked passage of a response."""

    model_config = ConfigDict(allow_inf_nan=False)

    start: int = Field(ge=0)
    """First character, in code points of the response's text."""
    end: int = Field(ge=0)
    """Position after the last character."""
    label: float = 1.0
    """+1 good, -1 poor; any number is allowed."""
    weight: float = 1.0
    """Weight of the span relative to other spans."""
    reasons: list[str] = []
    """Ids of the reasons that were ticked."""
    note: str | None = None
    """Free text about the span."""
    id: str | None = None
    """Identifier of the span within its response."""
    answered_by: int | None = Field(None, ge=0)
    """Place of the response that addresses this span, in a chain of rewrites: its index among the sample's
    responses.
    """

    @model_validator(mode="after")
    def _in_order(self) -> Span:
        if self.end < self.start:
            raise ValueError(f"the span ends at {self.end}, before its start {self.start}")
        return self


class Annotation(Record):
    """Record of one person or one model about one response."""

    by: str = ""
    """The person or the model; empty if unknown."""
    spans: list[Span] = []
    """Marked passages, in the order of marking."""
    critique: str | None = None
    """A comment on the whole response."""
    answers: dict[str, Any] = {}
    """Answers to questions about the whole response, by question."""
    seconds: float | None = Field(None, ge=0, allow_inf_nan=False)
    """Time in seconds for which the annotator was active; None if it was not measured."""


class Response(Record):
    """A response to a prompt: drawn from a model, given by the data, or written by a person."""

    text: str
    """The response without special tokens."""
    finished: bool | None = None
    """True if it ended by itself, False if the length limit cut it, None if it is unknown."""
    score: float | None = Field(None, allow_inf_nan=False)
    """Score from an annotator; None if it is missing."""
    by: str | None = None
    """Model or person that wrote it; None if it is unknown."""
    annotations: list[Annotation] = []
    """Annotations, one for each person or model that annotated the response."""
    meta: dict[str, Any] = {}
    """Any further facts about the response."""

    @model_validator(mode="after")
    def _spans_inside(self) -> Response:
        for span in self.spans:
            if span.end > len(self.text):
                counted = "; was it counted in bytes?" if span.end <= len(self.text.encode()) else ""
                raise ValueError(f"a span ends at {span.end}, but the text has {len(self.text)} characters{counted}")
        return self

    @property
    def spans(self) -> list[Span]:
        """Spans of all annotations, in their order."""
        return [span for annotation in self.annotations for span in annotation.spans]


class PairVerdict(Record):
    """Verdict of a person, a model or a rule on which of two responses is better."""

    first: int = Field(ge=0)
    """Place of the first response among the sample's responses."""
    second: int = Field(ge=0)
    """Place of the second response among the sample's responses."""
    verdict: Literal["first", "second", "tie"] | None
    """The better response; None if the verdict is missing."""
    reason: str | None = None
    """Reason for the verdict, in free text."""
    by: str = ""
    """Person or model that decided; empty if unknown."""
    p: float | None = Field(None, ge=0, le=1)
    """Probability that the first response is better; None if it is unknown."""
    agree: bool | None = None
    """True if both orders of presentation gave the same verdict; None if one of them is missing or was not asked."""


class Criterion(Record):
    """A demand on a response. `check` names a verifier; None means that a judge decides."""

    text: str
    check: dict[str, Any] | None = None


def has_turns(prompt: str | list[Message]) -> str | list[Message]:
    """Return the prompt unchanged. Raises ValueError for a conversation without a turn."""
    if prompt == []:
        raise ValueError("the prompt has no turn")
    return prompt


Prompt = Annotated[str | list[Message], AfterValidator(has_turns)]


class Sample(Record):
    """A prompt and the facts known about it: responses, their annotations, and which of them are preferred.

    One structure holds K responses drawn from a model, the two responses of an annotation page, and a chain of rewrites
    (in order, the last one chosen).
    """

    id: str
    prompt: Prompt
    """Prompt: a text, or the turns of a conversation."""
    reference: str | list[str] | None = None
    """Right answer according to the data; a list has alternatives."""
    rubric: list[Criterion] = []
    """Demands on a response."""
    responses: list[Response] = []
    """Responses to the prompt."""
    chosen: int | None = Field(None, ge=0)
    """Place of the response that answers the prompt: supervised finetuning trains on it, annotators mark it. None if no
    response was selected.
    """
    verdicts: list[PairVerdict] | None = None
    """Comparisons of two responses each; None if none was made."""
    meta: dict[str, Any] = {}
    """Any further facts about the prompt."""

    @model_validator(mode="after")
    def _places(self) -> Sample:
        places = [("chosen", self.chosen)]
        for number, verdict in enumerate(self.verdicts or []):
            places += [(f"verdicts.{number}.first", verdict.first), (f"verdicts.{number}.second", verdict.second)]
            if verdict.first == verdict.second:
                raise ValueError(f"verdicts.{number}: it compares response {verdict.first} with itself")
        for number, response in enumerate(self.responses):
            places += [(f"answered_by of a span of responses.{number}", span.answered_by) for span in response.spans]
        for name, place in places:
            if place is not None and place >= len(self.responses):
                raise ValueError(f"{name}: there is no response {place}; the sample has {len(self.responses)}")
        return self

    @property
    def chosen_response(self) -> Response | None:
        """The chosen response, or else the only one; None if there is no response. Raises `DataError` if there are
        several and none is chosen.
        """
        if self.chosen is not None:
            return self.responses[self.chosen]
        if len(self.responses) > 1:
            raise DataError(
                f"sample {self.id} has {len(self.responses)} responses of which none is chosen, and one is needed: "
                "`chosen` is the place of the response to take"
            )
        return self.responses[0] if self.responses else None

    def with_chosen(self, response: Response) -> Sample:
        """Return a copy that is answered by `response`: it replaces the response that was chosen before, or else is
        added after the others.
        """
        place = len(self.responses) if self.chosen is None else self.chosen
        responses = [*self.responses[:place], response, *self.responses[place + 1 :]]
        return self.model_copy(update={"responses": responses, "chosen": place})

    def with_scores(self, scores: Sequence[float | None]) -> Sample:
        """Return a copy with a score for each response, in their order. Raises ValueError if the numbers of scores and
        responses differ.
        """
        pairs = zip(self.responses, scores, strict=True)
        return self.model_copy(
            update={"responses": [response.model_copy(update={"score": score}) for response, score in pairs]}
        )

    def only_with(self, response: Response, **changes: Any) -> Sample:
        """Return a copy that has `response` alone, as the chosen one, and no verdicts; `changes` are other fields."""
        return self.model_copy(update={"responses": [response], "chosen": 0, "verdicts": None, **changes})


class Pair(Record):
    """Two responses to one prompt, of which the first is preferred."""

    id: str
    prompt: Prompt
    chosen: str
    rejected: str
    meta: dict[str, Any] = {}


class Request(Record):
    """A question to a language model. A field that is None takes the client's own setting."""

    messages: list[Message]
    sample: int = 0
    """Number of the answer, from several to the same question; part of the cache key."""
    json_schema: dict[str, Any] | None = None
    """JSON schema of the answer, for endpoints that can constrain a model's output to a schema."""
    max_tokens: int | None = None
    temperature: float | None = None
    logprobs: int = 0
    """Number of most probable first tokens to return with their log-probabilities."""
    about: str = ""
    """Id of the sample that the request is about, for lists of failures; not a part of the cache key."""


class Usage(Record):
    """Tokens and cost of an answer."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float | None = None
    """Cost in USD; None if the model's price is unknown. 0 only if nothing is charged."""


class Completion(Record):
    """Answer to a request, or the reason why there is none."""

    text: str = ""
    finish: str | None = None
    """Reason for the end in the endpoint's words: "stop", "length", ..."""
    usage: Usage = Usage()
    cached: bool = False
    """True if the answer comes from the cache: nothing was asked and nothing spent."""
    logprobs: dict[str, float] | None = None
    """Log-probabilities (nats) of the most probable first tokens, if they were requested and the endpoint returns
    them.
    """
    error: str | None = None
    """Reason why there is no answer. Such a request is missing and counted, never taken for an answer."""


R = TypeVar("R", bound=Record)


def write_jsonl(path: Path, records: Iterable[Record]) -> int:
    """Write records, one per line; the file appears under its name only when it is complete. Return the number of
    records.
    """
    return write_lines(path, (record.model_dump_json(exclude_defaults=True) for record in records))


def parse_line(line: str, record: type[R], where: str, hint: str = "") -> R:
    """Return one line of JSON as a record; a line that does not fit raises `DataError` with its place."""
    try:
        return record.model_validate_json(line)
    except ValidationError as error:
        what = error.errors()[0]
        place = "".join(f"{part}." for part in what["loc"]).rstrip(".")
        raise DataError(
            f"{where}: {place}{': ' * bool(place)}{what['msg']} (wanted one {record.__name__} a line{hint})"
        ) from None


def read_jsonl(path: Path, record: type[R]) -> Iterator[R]:
    """Yield the records of a file; a line that does not fit raises `DataError` with its place."""
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            yield parse_line(line, record, f"{path}:{number}")


# -- products of stages ------------------------------------------------------------------------------------------------


class Samples(Product):
    """Product with samples: `samples.jsonl`."""

    def read(self) -> Iterator[Sample]:
        return read_jsonl(self.path / "samples.jsonl", Sample)


class Pairs(Product):
    """Product with pairs: `pairs.jsonl`."""

    def read(self) -> Iterator[Pair]:
        return read_jsonl(self.path / "pairs.jsonl", Pair)


class Checkpoint(Product):
    """Product with a model: safetensors weights (or an adapter), the tokenizer, and `fgrl.json`, which tells how it was
    made.
    """

    def about(self) -> dict[str, Any]:
        """Return the content of `fgrl.json`. Raises `DataError` if it is broken."""
        try:
            return _read_object(self.path / "fgrl.json")
        except ValueError as error:
            raise DataError(f"model {self.path}: fgrl.json: it is not JSON ({error}); run its stage again") from None


class Stats(Product):
    """Product with a fitted normalizer: `stats.json`, and the points of the fit."""

    def read(self) -> dict[str, Any]:
        return _read_object(self.path / "stats.json")


class Report(Product):
    """Product with measured numbers: `metrics.json`, and `answers.jsonl`."""

    def read(self) -> dict[str, Any]:
        return _read_object(self.path / "metrics.json")


def _read_object(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content
