"""What components may ask of rollouts and answers."""

from __future__ import annotations

from collections.abc import Collection
from typing import ClassVar

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


class Needing(Component):
    """A component for which a stage fills fields of a rollout."""

    reads_reference: ClassVar[bool] = False
    """Declares that `setup` may add outputs of the reference to `needs`: then an `rl` stage loads the reference, and its plan counts it."""

    def needs(self) -> frozenset[str]:
        """Fields of `Rollout` to fill, of `ROLLOUT_NEEDS`, e.g. "ref_entropy", "offsets". Read when a recipe is checked, and again after
        `setup`."""
        return frozenset()

    @classmethod
    def contradiction(cls) -> str | None:
        if cls.reads_reference and cls.setup is Component.setup:
            return "`reads_reference` is about what `setup` adds to `needs`, and it has no `setup`: name the fields in `needs`"
        return None


def check_needs(
    component: Component, needs: Collection[str], known: Collection[str] = ROLLOUT_NEEDS, field: str | None = None
) -> None:
    """Raise `UnknownNeed` unless everything that a component needs can be computed for it. field: which holds it."""
    for need in sorted(set(needs) - set(known)):
        kind, name = name_of(component)
        where = f"{field}: " if field else ""
        hint = alternatives(need, sorted(known))
        raise UnknownNeed(f'{where}the {kind} {name} needs "{need}", which nothing computes; {hint}')
