"""Negatives by minimal modification: a response that keeps a criterion, changed as little as it takes to break it
("Rubrics to Tokens", section 4.1 and appendix C.4)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field, PrivateAttr

from fgrl import lazy
from fgrl.feedback.marks import responses
from fgrl.feedback.negatives import RUBRIC, beside, drawn, negative, told
from fgrl.kinds import Annotator, Client, Run, Verifier
from fgrl.llm.asking import Asked, Question, Refused, ask, spent, tally
from fgrl.llm.reading import declines
from fgrl.registry import File, register
from fgrl.rules.criterion_rules import CriterionRules
from fgrl.templates import Prompt, as_text, read_prompt
from fgrl.types import Request, Sample

distance = lazy.load("rapidfuzz.distance")

KNOWN = ("prompt", "criterion", "response")
"""What a rewriter's prompt may say."""
KEPT, UNDECIDED = "it still keeps the rule", "whether it breaks the rule cannot be told"
UNCHANGED, TOO_FAR = "it is the response as it was", "it changes too much"
REASONS = {KEPT: "still kept", UNDECIDED: "undecided", UNCHANGED: "unchanged", TOO_FAR: "changed too much"}
"""Why a rewrite is no use, and what the summary calls it."""


@dataclass(frozen=True)
class _Case:
    """A response, and a criterion that it keeps as far as is known."""

    owner: int
    """Which sample it is of."""
    sample: Sample
    response: str
    made_of: str
    number: int
    rule: Verifier | None


@register("minimal_modification")
class MinimalModification(Annotator):
    """A language model rewrites responses so that each breaks one criterion of its rubric, with the smallest edits.

    Every rewrite becomes a sample of its own; `meta` says `negative`, `broken` (the criterion), `from`, `certain` (a rule
    says that it is broken) and `change` (the share of characters that changed). Where the criterion has a rule, a response
    that breaks it already is not rewritten, and a rewrite that does not break it is asked for again, then dropped and
    counted. Of a response that is a negative already, the criterion that it was made to break counts as broken.
    """

    client: Client
    """Who rewrites."""
    prompt: Annotated[str, File]
    """Prompt file; it says {criterion} and {response}, and may say {prompt}: `prompts/rewrite_minimal.txt`."""
    per_response: int | None = Field(1, ge=1)
    """How many criteria of a response to break, one a rewrite; which ones is drawn. Null breaks each."""
    max_change: float = Field(0.5, gt=0, le=1)
    """Greatest share of characters that may change (normalised Levenshtein distance)."""
    rubric: RUBRIC = "whole"
    """Give a negative the whole rubric, or only the criterion that it breaks."""
    keep_originals: bool = True
    """Put out the samples that were given, too, before their negatives."""
    seed: int = Field(0, ge=0)
    """Other seeds draw other criteria."""
    tries: int = Field(2, ge=1)
    """How often a rewrite is asked for in all when it cannot be used."""
    max_tokens: int | None = Field(4096, ge=1)
    """Length limit of a rewrite; null is the client's own."""
    temperature: float | None = Field(None, ge=0)
    """Of the rewriter; null is the client's own."""

    _run: Any = PrivateAttr(None)
    _counts: dict[str, Any] = PrivateAttr(default_factory=dict)

    def setup(self, run: Run) -> None:
        self._run = run
        self.client.setup(run)

    def annotate(self, samples: Sequence[Sample]) -> list[Sample]:
        prompt, (plan, skipped) = self._template(), self._plan(samples)
        asked = ask(self.client, [self._question(prompt, case) for case in plan], self.tries)
        made: list[list[Sample]] = [[] for _ in samples]
        for case, answer in zip(plan, asked, strict=True):
            if answer.value is not None:
                made[case.owner].append(self._negative(case, answer.value))
        self._counts = {
            "negatives": sum(map(len, made)),
            "certain": sum(one.meta["certain"] for some in made for one in some),
            **why(asked, REASONS),
            **tally(asked),
            **spent(self.client),
            **skipped,
        }
        return beside(samples, made, originals=self.keep_originals)

    def asks(self, given: Sequence[Sample]) -> list[Request]:
        prompt = self._template()
        return [self._question(prompt, case).request for case in self._plan(given)[0]]

    def counts(self) -> dict[str, Any]:
        """How many `negatives`, of how many a rule is `certain`; why rewrites were no use; what became of the questions; and
        criteria that were `broken already` or `undecided already`."""
        return self._counts

    # ------------------------------------------------------------------------------------------------------------------

    def _template(self) -> Prompt:
        return read_prompt(self.prompt, KNOWN, ("criterion", "response"))

    def _plan(self, samples: Sequence[Sample]) -> tuple[list[_Case], dict[str, int]]:
        rules = CriterionRules(self._run)
        plan: list[_Case] = []
        skipped: Counter[str] = Counter()
        for owner, sample in enumerate(samples):
            own = [rules.get(criterion, sample.id) for criterion in sample.rubric]
            before = sample.meta.get("broken") if "negative" in sample.meta else None  # it is a negative itself
            skipped["without a rubric"] += not own
            for place, text in responses(sample):
                if not text.strip():
                    skipped["empty responses"] += 1
                    continue
                now = [told(rule, text) for rule in own]
                for number in range(len(now)):
                    if now[number] == "unknown" and before == sample.rubric[number].text:
                        now[number] = "broken"
                skipped["broken already"] += now.count("broken")
                skipped["undecided already"] += now.count("undecided")
                usable = [number for number, known in enumerate(now) if known in ("kept", "unknown")]
                made_of = f"{sample.id}/{place}"
                for number in drawn(usable, self.per_response, self.seed, made_of):
                    plan.append(_Case(owner, sample, text, made_of, number, own[number]))
        return plan, {name: count for name, count in skipped.items() if count}

    def _question(self, prompt: Prompt, case: _Case) -> Question[str]:
        def read(text: str) -> str:
            return self._rewrite(case, text.strip())

        values = {
            "prompt": as_text(case.sample.prompt),
            "criterion": case.sample.rubric[case.number].text,
            "response": case.response,
        }
        return Question(prompt.fill(values), read, max_tokens=self.max_tokens, temperature=self.temperature)

    def _rewrite(self, case: _Case, text: str) -> str:
        """The rewrite, when it can be used; else raises ValueError with the reason."""
        if not text:
            raise ValueError("it is empty")
        if declines(text) and not declines(case.response):
            raise Refused("it declines to rewrite")
        if text == case.response.strip():
            raise ValueError(UNCHANGED)
        changed = change(case.response, text)
        if changed > self.max_change:
            raise ValueError(f"{TOO_FAR}: {changed:.0%} of it, and {self.max_change:.0%} is allowed")
        known = told(case.rule, text)
        if known in ("kept", "undecided"):
            raise ValueError(KEPT if known == "kept" else UNDECIDED)
        return text

    def _negative(self, case: _Case, text: str) -> Sample:
        return negative(
            case.sample, text, case.number, "minimal_modification",
            made_of=case.made_of, rubric=self.rubric, certain=case.rule is not None,
            change=round(change(case.response, text), 4),
        )  # fmt: skip


def change(before: str, after: str) -> float:
    """Share of characters that changed: Levenshtein distance over the longer length, without white space at the ends."""
    return float(distance.Levenshtein.normalized_distance(before.strip(), after.strip()))


def why(asked: Sequence[Asked[Any]], reasons: dict[str, str]) -> dict[str, int]:
    """Counts of failures by the beginning of their reason."""
    found = Counter(name for one in asked for reason, name in reasons.items() if (one.reason or "").startswith(reason))
    return {name: found[name] for name in reasons.values() if found[name]}
