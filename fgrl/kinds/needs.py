"""What components may ask of rollouts and answers."""

from __future__ import annotations

from collections.abc import Collection

from fgrl.errors import UnknownNeed
from fgrl.registry import Component, alternatives, name_of

ROLLOUT_NEEDS = frozenset(
    {"old_logp", "entropy", "ref_logp", "ref_entropy", "ref_kl", "values", "offsets", "text", "policy"}
)
"""What algorithms and rewards may ask a rollout for. "policy" is the model that drew the responses: `Rollout.policy`."""


REFERENCE_OUTPUTS = frozenset({"ref_logp", "ref_entropy", "ref_kl"})
"""Those that the reference computes."""


GIVEN_NEEDS = ROLLOUT_NEEDS - {"policy", "entropy"}
"""What rewards may ask of responses that were not drawn in the same stage: which model drew them, and at which temperature, is not known
there. "ref_entropy" is the reference's, at temperature 1."""


GRADED_NEEDS = frozenset({"offsets", "text"})
"""What relevances may ask of the responses that a stage `grade` reads."""


ANSWER_NEEDS = frozenset({"logp", "ref_logp", "kl", "offsets"})
"""What metrics may ask of an answer."""


def check_needs(
    component: Component, needs: Collection[str], known: Collection[str] = ROLLOUT_NEEDS, field: str | None = None
) -> None:
    """Raise `UnknownNeed` unless everything that a component needs can be computed for it. field: which holds it."""
    for need in sorted(set(needs) - set(known)):
        kind, name = name_of(component)
        where = f"{field}: " if field else ""
        hint = alternatives(need, sorted(known))
        raise UnknownNeed(f'{where}the {kind} {name} needs "{need}", which nothing computes; {hint}')
