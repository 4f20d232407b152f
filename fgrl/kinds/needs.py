"""Values that stages compute for components: fields of rollouts, and parts of answers."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, ClassVar, Protocol, runtime_checkable

from fgrl.base.errors import UnknownNeed
from fgrl.registry import Component, alternatives, name_of

ROLLOUT_NEEDS = frozenset(
    {"old_logp", "entropy", "ref_logp", "ref_entropy", "ref_kl", "values", "offsets", "text", "policy"}
)
"""Fields of a rollout that a stage can fill. "policy" is the model that drew the responses: `Rollout.policy`."""


REFERENCE_OUTPUTS = frozenset({"ref_logp", "ref_entropy", "ref_kl"})
"""Fields that the reference computes."""


GIVEN_NEEDS = ROLLOUT_NEEDS - {"policy", "entropy"}
"""Fields that can be computed for responses that were not drawn in the same stage, where the model that drew them and
its temperature are unknown. "ref_entropy" is the reference's, at temperature 1.
"""


GRADED_NEEDS = frozenset({"offsets", "text"})
"""Fields that can be computed for the responses that a stage `grade` reads."""


ANSWER_NEEDS = frozenset({"logp", "ref_logp", "kl", "offsets"})
"""Parts of an answer that an evaluation can compute for metrics."""


class Needing(Component):
    """A component for which a stage fills fields of a rollout."""

    reads_reference: ClassVar[bool] = False
    """True if `setup` may add outputs of the reference to `needs`: an `rl` stage then loads the reference, and its plan
    counts it.
    """

    def needs(self) -> frozenset[str]:
        """Return the fields of `Rollout` to fill, from `ROLLOUT_NEEDS`. Read when a recipe is checked, and again after
        `setup`.
        """
        return frozenset()

    @classmethod
    def contradiction(cls) -> str | None:
        if cls.reads_reference and cls.setup is Component.setup:
            return "`reads_reference` is about what `setup` adds to `needs`, and it has no `setup`: use `needs` alone"
        return None


@runtime_checkable
class Divisible(Protocol):
    """A reward or a relevance with frozen models of which each process of a training may hold a part."""

    def divisible_models(self) -> Sequence[Any]:
        """Return these models. The component reads them only in `fgrl.rollouts.in_micro_batches`, as `readers`, and
        equally often in all processes. They are known after `setup`.
        """


def check_needs(
    component: Component, needs: Collection[str], known: Collection[str] = ROLLOUT_NEEDS, field: str | None = None
) -> None:
    """Raise `UnknownNeed` unless everything that a component needs can be computed.

    field: the field that holds the component.
    """
    for need in sorted(set(needs) - set(known)):
        kind, name = name_of(component)
        where = f"{field}: " if field else ""
        hint = alternatives(need, sorted(known))
        raise UnknownNeed(f'{where}the {kind} {name} needs "{need}", which nothing computes; {hint}')
