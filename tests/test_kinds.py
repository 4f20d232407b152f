"""The contracts stay small, and what they declare is what a component defines."""

from __future__ import annotations

import inspect

import pytest
from scratch_registry import scratch

from fgrl import kinds, registry
from fgrl.kinds import Reward
from fgrl.registry import Component, register
from fgrl.types import Rewards, Rollout

MOST_METHODS = 12


def methods(kind: type) -> set[str]:
    """The methods of a contract and of the contracts that it is made of, without those of every component."""
    own = [cls for cls in kind.__mro__ if cls.__module__.startswith(f"{kinds.__name__}.")]
    members = {name: member for cls in own for name, member in vars(cls).items()}
    known = {*dir(Component), "model_post_init"}
    return {
        name for name, member in members.items()
        if name not in known and not name.startswith("__") and not name.startswith("_abc")
        and (inspect.isfunction(member) or isinstance(member, classmethod | staticmethod | property))
    }  # fmt: skip


@pytest.mark.parametrize("name", registry.kinds())
def test_a_contract_has_few_methods(name: str) -> None:
    found = methods(registry.kinds()[name])
    assert 1 <= len(found) <= MOST_METHODS, sorted(found)


def test_every_method_is_counted() -> None:
    assert {"read", "pairs", "identity"} <= methods(kinds.Reader)
    assert {"needs", "asks", "counts", "score"} <= methods(Reward)
    assert len(registry.kinds()) == 18


class Plain(Reward):
    """Scores nothing."""

    def score(self, rollout: Rollout) -> Rewards: ...


def test_a_declaration_that_does_not_fit_is_refused() -> None:
    with scratch():

        class Declares(Plain):
            """Declares what only a `setup` could add."""

            reads_reference = True

        with pytest.raises(TypeError, match=r"Declares .*`reads_reference` is about what `setup` adds .* no `setup`"):
            register("declares")(Declares)

        class WithSetup(Declares):
            """Has one."""

            def setup(self, run: object) -> None: ...

        register("with_setup")(WithSetup)
        register("plain")(Plain)
