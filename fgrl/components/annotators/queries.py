"""Queries that a document could answer, written by a language model (CH-Wang et al. 2025, section 3)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fgrl.feedback.asking_annotator import AskingAnnotator
from fgrl.feedback.llm.asking import Parsed, Question, ask, parse_json, summary
from fgrl.feedback.rules.text import CHUNK
from fgrl.feedback.templates import Prompt, as_text
from fgrl.kinds import Expected
from fgrl.registry import register
from fgrl.types import Sample


class QueryList(BaseModel):
    """Answer with a list of queries."""

    model_config = ConfigDict(extra="forbid")

    queries: list[str]

    @model_validator(mode="before")
    @classmethod
    def _bare_list(cls, value: Any) -> Any:
        return {"queries": value} if isinstance(value, list) else value


@register("queries")
class Queries(AskingAnnotator):
    """A language model invents queries about a document; each query becomes the prompt of a separate sample.

    The document is the entry of a sample's `meta` that `document` names, or else the prompt. A new sample has the id of
    the document's sample with the query's number, the document in that entry of `meta`, and otherwise only the `meta`
    of the document's sample. An answer with a number of queries other than `count`, with an empty query or with a
    repeated query is requested again with the reason. After that, the document has no queries and is counted. The
    prompt file contains {document}, and may contain {count}: `prompts/queries_from_document.txt`.
    """

    version = 2

    placeholders: ClassVar[tuple[str, ...]] = ("document", "count")
    required: ClassVar[tuple[str, ...]] = ("document",)

    count: int = Field(5, ge=1)
    """Number of queries for each document."""
    document: str = "document"
    """Entry of `meta` that holds the document."""
    max_words: int | None = Field(None, ge=1)
    """Maximum number of words of a document; null accepts any length."""
    longer: Literal["drop", "cut"] = "drop"
    """Treatment of a document with more words than `max_words`: leave it out and count it, or keep its first
    `max_words` words.
    """
    max_tokens: int | None = Field(2048, ge=1)

    def annotate(self, samples: Sequence[Sample]) -> list[Sample]:
        """Return the queries. Counts: the numbers of `queries` and of `documents`, `documents without queries` because
        no answer could be used, the outcomes of the questions, and documents that were `empty`, `too long` or `cut`.
        """
        template, (cases, skipped) = self.template(), self.cases(samples)
        asked = ask(self.client, [self.question(template, case) for case in cases], self.tries)
        written = [
            self._sample(case, number, query)
            for case, answer in zip(cases, asked, strict=True)
            for number, query in enumerate(answer.value or ())
        ]
        documents = sum(answer.value is not None for answer in asked)
        self._counted = {
            "queries": len(written),
            "documents": documents,
            "documents without queries": len(cases) - documents,
            **summary(self.client, asked),
            **skipped,
        }
        return written

    def cases(self, samples: Sequence[Sample]) -> tuple[list[Sample], dict[str, int]]:
        cases: list[Sample] = []
        skipped = {"empty documents": 0, "documents that are too long": 0, "documents that were cut": 0}
        for sample in samples:
            text = self._document(sample)
            ends = [word.end() for word in CHUNK.finditer(text)]
            too_long = self.max_words is not None and len(ends) > self.max_words
            skipped["empty documents"] += not ends
            skipped["documents that are too long"] += too_long and self.longer == "drop"
            skipped["documents that were cut"] += too_long and self.longer == "cut"
            if not ends or (too_long and self.longer == "drop"):
                continue
            kept = text[: ends[self.max_words - 1]] if too_long and self.max_words else text
            cases.append(sample.model_copy(update={"meta": {**sample.meta, self.document: kept}}))
        return cases, {name: count for name, count in skipped.items() if count}

    def question(self, template: Prompt, case: Sample) -> Question[list[str]]:
        values = {"document": self._document(case), "count": str(self.count)}
        schema = queries_schema(self.count)
        return Question(self.request(template, values, json_schema=schema, about=case.id), self._read)

    def asks_at_most(self, expected: Expected) -> int | None:
        return expected.samples

    def makes_at_most(self, expected: Expected) -> Expected:
        return Expected(expected.samples * self.count, 0)

    def _document(self, sample: Sample) -> str:
        return str(sample.meta.get(self.document) or as_text(sample.prompt))

    def _read(self, answer: str) -> Parsed[list[str]]:
        parsed = parse_json(answer, QueryList, "it declines to write queries")
        queries = [query.strip() for query in parsed.value.queries]
        if len(queries) != self.count:
            raise ValueError(f"it has {len(queries)} queries, and {self.count} are wanted")
        if not all(queries):
            raise ValueError("a query is empty")
        if len({query.casefold() for query in queries}) < len(queries):
            raise ValueError("two queries are the same")
        return Parsed(queries, parsed.repaired)

    def _sample(self, case: Sample, number: int, query: str) -> Sample:
        return Sample(id=f"{case.id}/{number}", prompt=query, meta=case.meta)


def queries_schema(count: int) -> dict[str, Any]:
    """Return the JSON schema of an answer with this number of queries."""
    queries = {"type": "array", "items": {"type": "string"}, "minItems": count, "maxItems": count}
    return {
        "title": "queries",
        "type": "object",
        "properties": {"queries": queries},
        "required": ["queries"],
        "additionalProperties": False,
    }
