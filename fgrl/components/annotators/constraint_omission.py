"""Negatives by constraint omission: answers to a prompt from which one criterion was withheld ("Rubrics to Tokens",
section 4.1 and appendix C.4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, PrivateAttr

from fgrl.feedback.negatives import RUBRIC, beside, drawn, listed, negative, told
from fgrl.kinds import Annotator, Client, Run, Verifier
from fgrl.llm.asking import Asked, Question, ask, spent, tally
from fgrl.llm.reading import read_answer
from fgrl.quotes import locate
from fgrl.registry import File, register
from fgrl.rules.criterion_rules import CriterionRules
from fgrl.templates import Prompt, as_text, read_prompt
from fgrl.types import Request, Sample

KNOWN = ("prompt", "rubric")
"""What the prompt may say."""


@dataclass(frozen=True)
class _Case:
    """A sample and the criterion that is withheld."""

    owner: int
    """Which sample it is."""
    sample: Sample
    number: int
    rule: Verifier | None


@register("constraint_omission")
class ConstraintOmission(Annotator):
    """A language model, or the policy itself (client `local`), answers prompts of whose rubric one criterion is withheld, so
    that it probably breaks it.

    The question is `meta.question`, or else the prompt, without the withheld criterion where it stands there word for word.
    Every answer becomes a sample of its own; `meta` says `negative`, `broken` (the withheld criterion), `from` and `certain` (a
    rule says that it is broken). An answer that keeps the criterion all the same is drawn again, without a word about
    why, then dropped and counted.
    """

    client: Client
    """Who answers."""
    prompt: Annotated[str, File]
    """Prompt file; it says {prompt}, and may say {rubric}, the criteria that are left: `prompts/answer_rubric.txt`."""
    per_sample: int | None = Field(1, ge=1)
    """How many criteria of a sample to withhold, one an answer; which ones is drawn. Null withholds each."""
    draws: int = Field(2, ge=1)
    """How often an answer is drawn in all while a rule says that the criterion is kept."""
    rubric: RUBRIC = "whole"
    """Give a negative the whole rubric, or only the criterion that was withheld."""
    keep_originals: bool = True
    """Put out the samples that were given, too, before their negatives."""
    seed: int = Field(0, ge=0)
    """Other seeds withhold other criteria."""
    max_tokens: int | None = Field(4096, ge=1)
    """Length limit of an answer; null is the client's own."""
    temperature: float | None = Field(None, ge=0)
    """Of the model that answers; null is the client's own. Without any, a second draw is like the first."""

    _run: Any = PrivateAttr(None)
    _counts: dict[str, Any] = PrivateAttr(default_factory=dict)

    def setup(self, run: Run) -> None:
        self._run = run
        self.client.setup(run)

    def annotate(self, samples: Sequence[Sample]) -> list[Sample]:
        prompt, (plan, skipped) = self._template(), self._plan(samples)
        made: dict[int, Sample] = {}
        counts: Counter[str] = Counter()
        last: dict[int, Asked[str]] = {}
        pending = list(range(len(plan)))
        for draw in range(self.draws):
            if not pending:
                break
            asked = ask(self.client, [self._question(prompt, plan[place], draw) for place in pending], tries=1)
            counts["drawn again"] += len(pending) if draw else 0
            last |= zip(pending, asked, strict=True)
            outcomes = {place: self._told(plan[place], last[place]) for place in pending}
            for place, known in outcomes.items():
                if known in ("broken", "unknown"):
                    made[place] = self._negative(plan[place], last[place].value or "", certain=known == "broken")
            pending = [place for place, known in outcomes.items() if known in ("kept", "undecided")]
        counts["kept all the same"] = sum(self._told(plan[place], last[place]) == "kept" for place in pending)
        counts["undecided"] = len(pending) - counts["kept all the same"]
        self._counts = {
            "negatives": len(made),
            "certain": sum(one.meta["certain"] for one in made.values()),
            "cut from the prompt": sum(map(_stood_there, plan)),
            **{name: count for name, count in counts.items() if count},
            **tally(list(last.values())),
            **spent(self.client),
            **skipped,
        }
        found: list[list[Sample]] = [[] for _ in samples]
        for place in sorted(made):
            found[plan[place].owner].append(made[place])
        return beside(samples, found, originals=self.keep_originals)

    def asks(self, given: Sequence[Sample]) -> list[Request]:
        prompt = self._template()
        return [self._question(prompt, case, 0).request for case in self._plan(given)[0]]

    def counts(self) -> dict[str, Any]:
        """How many `negatives`, of how many a rule is `certain`; how many withheld criteria stood in the question and were `cut
        from the prompt` (where none did, it must not have said them); answers that were `drawn again`, and those dropped in the end
        because the criterion was `kept all the same` or `undecided`; what became of the questions (of the last draw)."""
        return self._counts

    # ------------------------------------------------------------------------------------------------------------------

    def _template(self) -> Prompt:
        return read_prompt(self.prompt, KNOWN, ("prompt",))

    def _plan(self, samples: Sequence[Sample]) -> tuple[list[_Case], dict[str, int]]:
        rules = CriterionRules(self._run)
        plan = []
        for owner, sample in enumerate(samples):
            numbers = list(range(len(sample.rubric)))
            for number in drawn(numbers, self.per_sample, self.seed, sample.id):
                plan.append(_Case(owner, sample, number, rules.get(sample.rubric[number], sample.id)))
        bare = sum(not sample.rubric for sample in samples)
        return plan, {"without a rubric": bare} if bare else {}

    def _question(self, prompt: Prompt, case: _Case, draw: int) -> Question[str]:
        withheld = case.sample.rubric[case.number].text
        left = [one for number, one in enumerate(case.sample.rubric) if number != case.number]
        values = {"prompt": without(question_of(case.sample), withheld), "rubric": listed(left)}
        return Question(
            prompt.fill(values), read_answer, sample=draw, max_tokens=self.max_tokens, temperature=self.temperature
        )

    def _told(self, case: _Case, asked: Asked[str]) -> str:
        return "failed" if asked.value is None else told(case.rule, asked.value)

    def _negative(self, case: _Case, answer: str, *, certain: bool) -> Sample:
        return negative(
            case.sample, answer, case.number, "constraint_omission",
            made_of=case.sample.id, rubric=self.rubric, certain=certain,
        )  # fmt: skip


def _stood_there(case: _Case) -> bool:
    question = question_of(case.sample)
    return without(question, case.sample.rubric[case.number].text) != question


def question_of(sample: Sample) -> str:
    """What is asked: `meta.question`, which has no criteria in it, or else the prompt."""
    asked = sample.meta.get("question")
    return asked if isinstance(asked, str) else as_text(sample.prompt)


def without(text: str, words: str) -> str:
    """The text without the words wherever they stand in it (but for white space, quote marks and the like)."""
    kept, at = [], 0
    for match in locate(words.strip(), text, "all"):
        if match.start >= at:
            kept.append(text[at : match.start].rstrip(" "))
            at = match.end
    return "".join([*kept, text[at:]]) if kept else text
