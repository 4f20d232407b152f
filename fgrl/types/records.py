"""What is read and written as text: samples, pairs, requests, and the folders that stages leave behind."""

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
        """Return a copy with other values. A name that is no field is a TypeError: pydantic would store it unseen."""
        for name in update or ():
            if name not in type(self).model_fields:
                raise TypeError(f"{type(self).__name__} has no field {name!r}: {', '.join(type(self).model_fields)}")
        return super().model_copy(update=update, deep=deep)


class AlarmRecord(Record):
    """An alarm of a training that has gone off: a metric that left its bounds, from then until it was back in them."""

    name: str
    """The metric."""
    since: int
    """The iteration in which it went off, from 0."""
    value: float | None
    """The metric then; None: it was not finite."""
    bound: str
    """The bound that it broke, in words."""
    until: int | None = None
    """The iteration in which the metric was back; None: it was not, by the end."""


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
    """The position after the last character."""
    label: float = 1.0
    """+1 good, -1 poor; any number is allowed."""
    weight: float = 1.0
    """How much the span counts beside others."""
    reasons: list[str] = []
    """The reasons that were ticked."""
    note: str | None = None
    """What was written about it in free text."""
    id: str | None = None
    """Identifies it within its response."""
    answered_by: int | None = Field(None, ge=0)
    """In a chain of rewrites, the place among the sample's responses of the one that addresses this span."""

    @model_validator(mode="after")
    def _in_order(self) -> Span:
        if self.end < self.start:
            raise ValueError(f"the span ends at {self.end}, before its start {self.start}")
        return self


class Annotation(Record):
    """What one person or one model recorded about one response."""

    by: str = ""
    """The person or the model; empty: unknown."""
    spans: list[Span] = []
    """Marked passages, in the order of marking."""
    critique: str | None = None
    """A comment on the whole response."""
    answers: dict[str, Any] = {}
    """Answers to questions about the whole response, by question."""
    seconds: float | None = Field(None, ge=0, allow_inf_nan=False)
    """How long the annotator was active; None: not measured."""


class Response(Record):
    """A response to a prompt: drawn from a model, given by the data, or written by a person."""

    text: str
    """The response without special tokens."""
    finished: bool | None = None
    """True: it ended by itself; False: the length limit cut it; None: unknown."""
    score: float | None = Field(None, allow_inf_nan=False)
    """What an annotator scored it; None: missing."""
    by: str | None = None
    """The model or the person that wrote it; None: unknown."""
    annotations: list[Annotation] = []
    """One for each person or model that annotated it."""
    meta: dict[str, Any] = {}
    """Anything else that is known about it."""

    @model_validator(mode="after")
    def _spans_inside(self) -> Response:
        for span in self.spans:
            if span.end > len(self.text):
                counted = "; was it counted in bytes?" if span.end <= len(self.text.encode()) else ""
                raise ValueError(f"a span ends at {span.end}, but the text has {len(self.text)} characters{counted}")
        return self

    @property
    def spans(self) -> list[Span]:
        """The spans of all annotations, in their order."""
        return [span for annotation in self.annotations for span in annotation.spans]


class PairVerdict(Record):
    """Which of two responses is better, decided by a person, a model or a rule."""

    first: int = Field(ge=0)
    """Place of a response among the sample's responses."""
    second: int = Field(ge=0)
    """Place of the other one."""
    verdict: Literal["first", "second", "tie"] | None
    """The better one; None: missing."""
    reason: str | None = None
    """Why, in free text."""
    by: str = ""
    """The person or the model that decided; empty: unknown."""
    p: float | None = Field(None, ge=0, le=1)
    """Probability that the first is better; None: not known."""
    agree: bool | None = None
    """Did both orders of presentation give the same verdict? None: one is missing or was not asked for."""


class Criterion(Record):
    """One demand on a response; `check` names a verifier, None means that a judge decides."""

    text: str
    check: dict[str, Any] | None = None


def has_turns(prompt: str | list[Message]) -> str | list[Message]:
    """Return the prompt as it is. Raises ValueError for a conversation without a turn."""
    if prompt == []:
        raise ValueError("the prompt has no turn")
    return prompt


Prompt = Annotated[str | list[Message], AfterValidator(has_turns)]


class Sample(Record):
    """A prompt and what is known about it: responses, what was annotated on them, which of them are preferred.

    One structure holds K responses drawn from a model, the two responses of an annotation page, and a chain of rewrites
    (in order, the last one chosen).
    """

    id: str
    prompt: Prompt
    """A text, or the turns of a conversation."""
    reference: str | list[str] | None = None
    """What the data consider right; several are alternatives."""
    rubric: list[Criterion] = []
    """The demands on a response."""
    responses: list[Response] = []
    """Responses to the prompt."""
    chosen: int | None = Field(None, ge=0)
    """Place of the response that answers the prompt: supervised finetuning trains on it, annotators mark it. None: no
    response was singled out."""
    verdicts: list[PairVerdict] | None = None
    """Comparisons of two responses each; None: nobody compared them."""
    meta: dict[str, Any] = {}
    """Anything else that is known about the prompt."""

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
        """The chosen response, or else the only one; None where there is none.

        Raises `DataError` where there are several of which none is chosen.
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
        """Return a copy that is answered by `response`: it takes the place of the response that was chosen before, or
        else comes after the others.
        """
        place = len(self.responses) if self.chosen is None else self.chosen
        responses = [*self.responses[:place], response, *self.responses[place + 1 :]]
        return self.model_copy(update={"responses": responses, "chosen": place})

    def with_scores(self, scores: Sequence[float | None]) -> Sample:
        """Return a copy with a score for each response, in their order. Raises ValueError when there are more or
        fewer.
        """
        pairs = zip(self.responses, scores, strict=True)
        return self.model_copy(
            update={"responses": [response.model_copy(update={"score": score}) for response, score in pairs]}
        )

    def only_with(self, response: Response, **changes: Any) -> Sample:
        """Return a copy that has `response` alone, as the chosen one, and no verdicts; `changes` are other fields."""
        return self.model_copy(update={"responses": [response], "chosen": 0, "verdicts": None, **changes})


class Pair(Record):
    """Two responses to one prompt, the first preferred."""

    id: str
    prompt: Prompt
    chosen: str
    rejected: str
    meta: dict[str, Any] = {}


class Request(Record):
    """One question to a language model. What is None is the client's own setting."""

    messages: list[Message]
    sample: int = 0
    """Which of several answers to the same question; part of what it is cached by."""
    json_schema: dict[str, Any] | None = None
    """The JSON schema that the answer is to fit, for endpoints that can hold a model to one."""
    max_tokens: int | None = None
    temperature: float | None = None
    logprobs: int = 0
    """Ask for this many most probable first tokens with their log-probabilities."""
    about: str = ""
    """Id of the sample that it is about, for lists of failures; no part of what it is cached by."""


class Usage(Record):
    """What an answer took."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    usd: float | None = None
    """None: the model's price is not known. 0 only where nothing is charged."""


class Completion(Record):
    """The answer to a request, or why there is none."""

    text: str = ""
    finish: str | None = None
    """As the endpoint calls it: "stop", "length", ..."""
    usage: Usage = Usage()
    cached: bool = False
    """It was answered before; nothing was asked and nothing spent."""
    logprobs: dict[str, float] | None = None
    """Log-probabilities (nats) of the most probable first tokens, where they were asked for and the endpoint gives
    them.
    """
    error: str | None = None
    """Why there is no answer. Such a request is missing and counted, never taken for an answer."""


R = TypeVar("R", bound=Record)


def write_jsonl(path: Path, records: Iterable[Record]) -> int:
    """Write records, one a line, finished by rename. Returns how many."""
    return write_lines(path, (record.model_dump_json(exclude_defaults=True) for record in records))


def parse_line(line: str, record: type[R], where: str, hint: str = "") -> R:
    """One line of JSON as a record; one that does not fit raises `DataError` with its place."""
    try:
        return record.model_validate_json(line)
    except ValidationError as error:
        what = error.errors()[0]
        place = "".join(f"{part}." for part in what["loc"]).rstrip(".")
        raise DataError(
            f"{where}: {place}{': ' * bool(place)}{what['msg']} (wanted one {record.__name__} a line{hint})"
        ) from None


def read_jsonl(path: Path, record: type[R]) -> Iterator[R]:
    """Read records back; a line that does not fit raises `DataError` with its place."""
    with path.open(encoding="utf-8") as file:
        for number, line in enumerate(file, start=1):
            yield parse_line(line, record, f"{path}:{number}")


# -- products of stages ------------------------------------------------------------------------------------------------


class Samples(Product):
    """`samples.jsonl`."""

    def read(self) -> Iterator[Sample]:
        return read_jsonl(self.path / "samples.jsonl", Sample)


class Pairs(Product):
    """`pairs.jsonl`."""

    def read(self) -> Iterator[Pair]:
        return read_jsonl(self.path / "pairs.jsonl", Pair)


class Checkpoint(Product):
    """A model: safetensors weights (or an adapter), the tokenizer, and `fgrl.json`, which says how it was made."""

    def about(self) -> dict[str, Any]:
        """Return the content of `fgrl.json`. Raises `DataError` for a broken one."""
        try:
            return _read_object(self.path / "fgrl.json")
        except ValueError as error:
            raise DataError(f"model {self.path}: fgrl.json: it is not JSON ({error}); run its stage again") from None


class Stats(Product):
    """A fitted normalizer: `stats.json`, and the points it was fitted on."""

    def read(self) -> dict[str, Any]:
        return _read_object(self.path / "stats.json")


class Report(Product):
    """Measured numbers: `metrics.json`, and `answers.jsonl`."""

    def read(self) -> dict[str, Any]:
        return _read_object(self.path / "metrics.json")


def _read_object(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content
