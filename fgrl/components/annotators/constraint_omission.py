"""Negatives by constraint omission: answers to a prompt from which one criterion was withheld ("Rubrics to Tokens",
section 4.1 and appendix C.4).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from fgrl.feedback.llm.asking import Asked, Question, ask, summary
from fgrl.feedback.llm.reading import read_answer
from fgrl.feedback.negatives import NegativeMaker, Target, draw, listed
from fgrl.feedback.quotes import locate
from fgrl.feedback.rules.criterion_rules import CriterionRules
from fgrl.feedback.templates import Prompt, as_text
from fgrl.registry import register
from fgrl.types import Sample

HOW = "constraint_omission"


@register(HOW)
class ConstraintOmission(NegativeMaker):
    """A language model, or the policy itself (client `local`), answers prompts without one criterion of their rubric,
    so that the answer probably violates this criterion.

    The question is `meta.question`, or else the prompt. The withheld criterion is removed from it if it occurs there
    word for word. Every answer becomes a separate sample; `meta` contains `negative`, `broken` (the withheld
    criterion), `from` and `certain` (true if a rule decided that the criterion is violated). An answer that satisfies
    the criterion nevertheless is drawn again, without the reason, and finally dropped and counted. The prompt file
    contains {prompt}, and may contain {rubric}, the remaining criteria: `prompts/answer_rubric.txt`.
    """

    version = 2

    placeholders: ClassVar[tuple[str, ...]] = ("prompt", "rubric")
    required: ClassVar[tuple[str, ...]] = ("prompt",)

    per_sample: int | None = Field(1, ge=1)
    """Number of criteria to withhold per sample, one per answer, drawn at random; null withholds each criterion."""
    draws: int = Field(2, ge=1)
    """Maximum number of draws of an answer while a rule decides that the criterion is satisfied. At temperature 0 a
    second draw equals the first.
    """
    tries: int = Field(1, ge=1)

    def annotate(self, samples: Sequence[Sample]) -> list[Sample]:
        """Return the new samples: 1. draw answers until the criterion is violated, 2. make samples, 3. count.

        Counts: the number of `negatives`, and of those for which a rule is `certain`; the number of withheld criteria
        that occurred in the question and were `cut from the prompt` (if this is 0, the questions must not contain
        criteria); answers that were `drawn again`, and those finally dropped because the criterion was `kept all the
        same` or `undecided`; the outcomes of the questions (of the last draw).
        """
        template, (targets, skipped) = self.template(), self.cases(samples)
        # 1.
        last: dict[int, Asked[str]] = {}
        statuses: dict[int, str] = {}
        drawn_again = 0
        pending = list(range(len(targets)))
        for number in range(self.draws):
            if not pending:
                break
            drawn_again += len(pending) if number else 0
            asked = ask(self.client, [self.question(template, targets[place], number) for place in pending], self.tries)
            for place, answer in zip(pending, asked, strict=True):
                last[place] = answer
                statuses[place] = "failed" if answer.value is None else targets[place].status(answer.value)
            pending = [place for place in pending if statuses[place] in ("kept", "undecided")]
        # 2.
        negatives = [
            (targets[place], self.negative(targets[place], last[place].value or "", HOW, certain=known == "broken"))
            for place, known in sorted(statuses.items())
            if known in ("broken", "unknown")
        ]
        # 3.
        decided = list(statuses.values())
        draws = {
            "drawn again": drawn_again,
            "kept all the same": decided.count("kept"),
            "undecided": decided.count("undecided"),
        }
        self._counted = {
            "negatives": len(negatives),
            "certain": decided.count("broken"),
            "cut from the prompt": sum(map(_stands_in_the_question, targets)),
            **{name: count for name, count in draws.items() if count},
            **summary(self.client, list(last.values())),
            **skipped,
        }
        return self.with_originals(samples, negatives)

    def cases(self, samples: Sequence[Sample]) -> tuple[list[Target], dict[str, int]]:
        rules = CriterionRules(self._run)
        targets = [
            Target(owner, sample, number, rules.get(sample.rubric[number], sample.id), made_of=sample.id)
            for owner, sample in enumerate(samples)
            for number in draw(range(len(sample.rubric)), self.per_sample, self.seed, sample.id)
        ]
        bare = sum(not sample.rubric for sample in samples)
        return targets, {"without a rubric": bare} if bare else {}

    def question(self, template: Prompt, case: Target, draw: int = 0) -> Question[str]:
        remaining = [criterion for number, criterion in enumerate(case.sample.rubric) if number != case.number]
        values = {"prompt": without(question_of(case.sample), case.criterion.text), "rubric": listed(remaining)}
        return Question(self.request(template, values, sample=draw, about=case.sample.id), read_answer)


def _stands_in_the_question(target: Target) -> bool:
    question = question_of(target.sample)
    return without(question, target.criterion.text) != question


def question_of(sample: Sample) -> str:
    """Return the question: `meta.question`, which contains no criteria, or else the prompt."""
    asked = sample.meta.get("question")
    return asked if isinstance(asked, str) else as_text(sample.prompt)


def without(text: str, words: str) -> str:
    """Return the text without all occurrences of the words, ignoring white space, quotation marks and the like."""
    kept, at = [], 0
    for match in locate(words.strip(), text, "all"):
        if match.start >= at:
            kept.append(text[at : match.start].rstrip(" "))
            at = match.end
    return "".join([*kept, text[at:]]) if kept else text
