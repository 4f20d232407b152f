"""Results of the tests of a prompt on its responses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fgrl.base.errors import DataError
from fgrl.feedback.rules.criterion_rules import UsesRules
from fgrl.feedback.rules.programs.testing import ProgramOutcome, ProgramTests
from fgrl.kinds import Annotator, Expected
from fgrl.registry import register
from fgrl.types import Response, Sample


@register("run_tests")
class RunTests(UsesRules, Annotator):
    """Runs the program in every response on the tests of its prompt, in the sandbox (`code:tests` of the rubric).

    A response that passes has the score 1, a response that fails 0. A response without a verdict has no score and is
    counted. A prompt without any verdict is dropped and counted. A response's `meta.tests` is `{"passed": true | false
    | null, "detail": the first error}`, which prompts about programs show. With the pair builder `all_ranked` and
    `ties: drop` every passing response of a prompt is preferred to every failing one.
    """

    keeps_responses = True

    def annotate(self, samples: Sequence[Sample]) -> list[Sample]:
        """Return the annotated samples. Counts: responses by outcome, the number of prompts with both passing and
        failing responses, and the number of dropped prompts.
        """
        seen: Counter[str] = Counter()
        annotated = []
        for sample in samples:
            tests = self._tests(sample)
            responses = [self._tested(tests, response, seen) for response in sample.responses]
            annotated.append(sample.model_copy(update={"responses": responses}))
        both = sum(len({response.score for response in sample.responses} & {0.0, 1.0}) == 2 for sample in annotated)
        kept = [sample for sample in annotated if not sample.responses or _has_verdict(sample)]
        self._counted = {
            "passed": seen["passed"], "failed": seen["failed"], "without a verdict": seen["missing"],
            "passed without a replay": seen["unreplayed"], "prompts with both": both, "dropped": len(annotated) - len(kept),
        }  # fmt: skip
        return kept

    def asks_at_most(self, expected: Expected) -> int:
        return 0

    def _tests(self, sample: Sample) -> list[ProgramTests]:
        rules = [self._rules.get(criterion, sample.id) for criterion in sample.rubric]
        tests = [rule for rule in rules if isinstance(rule, ProgramTests)]
        if not tests:
            raise DataError(
                f"sample {sample.id} has no tests: read problems with kodcode, human_eval or mbpp, or give the prompt a criterion "
                'whose check is {"name": "code:tests", "tests": ..., "format": ...}'
            )
        return tests

    def _tested(self, tests: Sequence[ProgramTests], response: Response, seen: Counter[str]) -> Response:
        outcomes = [own.tested(response.text) for own in tests]
        outcome = _together(outcomes)
        seen["missing" if outcome.passed is None else "passed" if outcome.passed else "failed"] += 1
        seen["unreplayed"] += bool(outcome.passed) and not all(own.replayed for own in outcomes)
        score = None if outcome.passed is None else float(outcome.passed)
        known = {"passed": outcome.passed, "detail": outcome.detail}
        return response.model_copy(update={"score": score, "meta": response.meta | {"tests": known}})


def _has_verdict(sample: Sample) -> bool:
    return any(response.score is not None for response in sample.responses)


def _together(outcomes: Sequence[ProgramOutcome]) -> ProgramOutcome:
    """Combine several sets of tests: the first that failed, else the first without a verdict, else a pass."""
    order = {False: 0, None: 1, True: 2}
    return min(outcomes, key=lambda outcome: order[outcome.passed])
