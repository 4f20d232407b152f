"""Improvement chains written by a language model (CH-Wang et al. 2025, section 3 and appendix A)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from fgrl.feedback.chain_answers import read_passage, read_steps, read_text, steps_schema
from fgrl.feedback.chain_checks import BrokenStep, replaced, with_ends_of
from fgrl.feedback.chain_tags import TagMistake, TagNames, read_tags, tag_names, write_tags
from fgrl.feedback.llm.asking import Asked, Question, ask
from fgrl.feedback.llm.prompted import Prompted
from fgrl.feedback.llm.reading import Refused, declines
from fgrl.feedback.templates import NONE, Prompt, as_text, read_prompt
from fgrl.kinds import ChainAttempt, ChainCase, Rewriter
from fgrl.registry import register
from fgrl.types import Marked, Request, Sample

BAD_TAGS = "tags that cannot be read"
NO_STEPS = "steps that cannot be read"
DECLINED = "declined"
TRUNCATED = "cut off"
NO_ANSWER = "no answer"
NO_PASSAGE = "no words in the passage"


@register("model")
class ModelRewriter(Prompted, Rewriter):
    """A language model rewrites the response. By default it writes the whole chain in one answer, as in the paper.

    It sees the response with numbered tags, `<dislike id='1'>...</dislike id='1'>`, and the reasons of each highlight.
    After a step the tags of the addressed passage are gone and all others are still there; the texts of the chain have
    no tags.

    The prompt file contains {response} (with its tags) and {reasons}, and may contain {query}, {document}, {like} and
    {dislike} (the names of the tags: others than these words where a text contains such tags itself), {count} (the
    number of steps) and {id} (with `steps_per_call: one`, the dislike to address), {passage} and {reason} (its text,
    and the reason for the dislike): `prompts/improvement_chain.txt` for `all`, `prompts/improvement_step.txt` for
    `one`, `prompts/improvement_passage.txt` for `writes: passage`, which has to contain {passage} alone.
    """

    placeholders: ClassVar[tuple[str, ...]] = (
        "query", "document", "response", "reasons", "like", "dislike", "count", "id", "passage", "reason"
    )  # fmt: skip
    required: ClassVar[tuple[str, ...]] = ("response", "reasons")

    steps_per_call: Literal["all", "one"] = "all"
    """Number of steps per answer. `all`: the whole chain in one answer (JSON with a list of steps, as
    `fgrl.feedback.chain_answers` reads it). `one`: each step in a separate answer, which is only the edited text.
    """
    writes: Literal["response", "passage"] = "response"
    """Content of an answer, with `steps_per_call: one`. `response`: the whole edited response with its tags, as in the
    paper. `passage`: only the replacement of the disliked passage, for models that cannot copy a long text with tags.
    The text around the passage then cannot change.
    """
    document: str = "document"
    """Entry of a sample's `meta` with the knowledge source."""
    tries: int = Field(1, ge=1)
    """Maximum number of times a question is asked within one attempt. From the second time on, the question contains
    the answer and its problem. 1: an answer that fails the check is discarded, as in the paper, and the next attempt
    starts anew.
    """
    max_tokens: int | None = Field(8192, ge=1)

    @model_validator(mode="after")
    def _passages_one_by_one(self) -> ModelRewriter:
        if self.writes == "passage" and self.steps_per_call == "all":
            raise ValueError("writes: passage goes with `steps_per_call: one`: each answer is one passage")
        return self

    def template(self) -> Prompt:
        if self.writes == "passage":
            return read_prompt(self.prompt, self.placeholders, ("passage",))
        return super().template()

    def about(self) -> dict[str, Any]:
        more = {"writes": self.writes} if self.writes == "passage" else {}
        return {**super().about(), "steps_per_call": self.steps_per_call, **more}

    def attempt(self, cases: Sequence[ChainCase], number: int) -> list[ChainAttempt]:
        template = self.template()
        if self.steps_per_call == "all":
            return self._asked(template, [_Reading(case) for case in cases], number)
        readings = [_Reading(case) for case in cases]
        done: dict[int, ChainAttempt] = {}
        while len(done) < len(readings):
            if self.writes == "passage":
                for place, reading in enumerate(readings):
                    if place not in done and reading.passage_is_blank:
                        done[place] = reading.without_passage()
            going = [place for place in range(len(readings)) if place not in done]
            outcomes = self._asked(template, [readings[place] for place in going], number)
            for place, outcome in zip(going, outcomes, strict=True):
                if outcome.problem is not None or len(outcome.steps) == readings[place].case.steps:
                    done[place] = outcome
        return [done[place] for place in range(len(readings))]

    def asks(self, given: Sequence[ChainCase]) -> list[Request]:
        """Return the requests of the first attempt. With `steps_per_call: one`, later steps are counted with the text
        before the first step.
        """
        template = self.template()
        return [
            self._request(template, _Reading(case), step, number=0)
            for case in given
            for step in range(1, 1 + (case.steps if self.steps_per_call == "one" else 1))
        ]

    def _asked(self, template: Prompt, readings: Sequence[_Reading], number: int) -> list[ChainAttempt]:
        questions = [
            Question(self._request(template, reading, len(reading.steps) + 1, number), self._read(reading))
            for reading in readings
        ]
        asked = ask(self.client, questions, self.tries)
        return [reading.outcome(answer) for reading, answer in zip(readings, asked, strict=True)]

    def _read(self, reading: _Reading) -> Callable[[str], list[Marked]]:
        if self.steps_per_call == "all":
            return reading.read_chain
        return reading.read_step if self.writes == "response" else reading.read_passage

    def _request(self, template: Prompt, reading: _Reading, step: int, number: int) -> Request:
        """Return the question about the next step (or about the whole chain). number: number of the attempt."""
        case, names = reading.case, reading.names(self.document)
        left = Marked.of(
            reading.current.text,
            (one for one in reading.current.highlights if one.feeling == "like" or one.number >= step),
        )
        values = {
            "query": query(case.sample),
            "document": document(case.sample, self.document),
            "response": write_tags(left, names),
            "reasons": _reasons(left, case, names),
            "like": names["like"],
            "dislike": names["dislike"],
            "count": str(case.steps),
            "id": str(step),
            "passage": left.text[slice(*left.disliked(step).place)],
            "reason": case.explanations["dislike", step],
        }
        schema = steps_schema(case.steps) if self.steps_per_call == "all" else None
        return self.request(template, values, sample=number, json_schema=schema, about=case.sample.id)


class _Reading:
    """Reader of the answers about one chain, which keeps the steps that passed the check."""

    def __init__(self, case: ChainCase) -> None:
        self.case = case
        self.steps: list[Marked] = []
        self.problem = ""
        """Problem of the last answer that failed the check."""
        self._names: TagNames | None = None

    @property
    def current(self) -> Marked:
        """Return the text that the next step changes."""
        return self.steps[-1] if self.steps else self.case.original

    @property
    def passage_is_blank(self) -> bool:
        """Return True if the next passage has no words: white space was marked, or the steps before left nothing."""
        place = self.current.disliked(len(self.steps) + 1).place
        return not self.current.text[slice(*place)].strip()

    def without_passage(self) -> ChainAttempt:
        """Return the failed attempt for a passage of which nothing is left to rewrite."""
        detail = f"step {len(self.steps) + 1}: the passage has no words that could be replaced"
        return ChainAttempt(problem=NO_PASSAGE, detail=detail, answer=self.current.text)

    def names(self, document_entry: str) -> TagNames:
        """Return names of tags that do not occur in the texts that the model sees."""
        if self._names is None:
            shown = (query(self.case.sample), document(self.case.sample, document_entry), self.case.original.text)
            self._names = tag_names(*shown)
        return self._names

    def read_chain(self, answer: str) -> list[Marked]:
        """Return all steps of an answer. Raise ValueError for the first step that fails the check."""
        self.problem = NO_STEPS
        texts = read_steps(answer, self.case.steps)
        steps: list[Marked] = []
        for text in texts:
            steps.append(self._checked(text, steps[-1] if steps else self.case.original, len(steps) + 1))
        self.steps = steps
        return steps

    def read_step(self, answer: str) -> list[Marked]:
        """Return the steps so far and the step in the answer. Raise ValueError if it fails the check, and `Refused` if
        it then also reads as a refusal: a valid response may contain an apology.
        """
        self.problem = NO_STEPS
        try:
            self.steps.append(self._checked(read_text(answer), self.current, len(self.steps) + 1))
        except ValueError:
            if declines(answer) and not declines(self.current.text):
                raise Refused("it declines to rewrite") from None
            raise
        return self.steps

    def read_passage(self, answer: str) -> list[Marked]:
        """Return the steps so far and a step in which the answer replaces the passage. Raise ValueError if it fails the
        check.
        """
        self.problem = NO_STEPS
        if declines(answer) and not declines(self.current.text):
            raise Refused("it declines to rewrite")
        before, number = self.current, len(self.steps) + 1
        start, end = before.disliked(number).place
        new = read_passage(answer, before.text[start:end])
        self.steps.append(self._checked(replaced(before, number, start, end, new), before, number))
        return self.steps

    def _checked(self, text: str | Marked, before: Marked, number: int) -> Marked:
        assert self._names is not None
        try:
            after = with_ends_of(before.text, read_tags(text, self._names)) if isinstance(text, str) else text
            self.case.check(before, after, number)
        except BrokenStep as broken:
            self.problem = broken.problem
            raise ValueError(f"step {number}: {broken}") from None
        except TagMistake as mistake:
            self.problem = BAD_TAGS
            raise ValueError(f"step {number}: {mistake}") from None
        return after

    def outcome(self, asked: Asked[list[Marked]]) -> ChainAttempt:
        if asked.failure is None:
            return ChainAttempt(list(self.steps))
        problems = {"error": NO_ANSWER, "refused": DECLINED, "truncated": TRUNCATED}
        return ChainAttempt(
            problem=problems.get(asked.failure, self.problem),
            detail=asked.reason or "",
            answer=asked.completion.text or None,
            answered=asked.failure != "error",
        )


def query(sample: Sample) -> str:
    """Return the user's request: `meta.question` if the prompt contains more than that, or else the prompt."""
    return str(sample.meta.get("question") or as_text(sample.prompt))


def document(sample: Sample, entry: str) -> str:
    """Return the knowledge source of a sample, "(none)" without one."""
    return str(sample.meta.get(entry) or NONE)


def _reasons(marked: Marked, case: ChainCase, names: TagNames) -> str:
    """Return one JSON object per line for each highlight: the name of its tag, its id, and the reason for it."""
    ordered = sorted(marked.highlights, key=lambda one: (one.feeling != "dislike", one.number))
    lines = (
        {"tag": names[one.feeling], "id": one.number, "explanation": case.explanations[one.key]} for one in ordered
    )
    return "\n".join(json.dumps(line, ensure_ascii=False) for line in lines) or NONE
