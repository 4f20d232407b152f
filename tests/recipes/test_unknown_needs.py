"""A component that needs something that nothing computes is refused when the recipe is validated."""

from __future__ import annotations

from pathlib import Path

import pytest
from scratch_registry import scratch_imports
from wording import said

from fgrl.base.errors import UnknownNeed
from fgrl.experiments.recipe import load
from fgrl.kinds import check_needs
from fgrl.registry import Problems

ROOT = Path(__file__).resolve().parents[2]
SOURCE = '''\
from typing import Any, ClassVar

from fgrl.components.algorithms.ppo import PPO
from fgrl.measuring.comparison import Compared
from fgrl.kinds import Metric, Relevance, Reward, Segmenter
from fgrl.registry import register


@register("needy_ppo")
class NeedyPPO(PPO):
    """PPO that reads the policy's entropy under a wrong name."""

    def needs(self) -> frozenset[str]:
        return super().needs() | {"entropies"}


@register("needy_reward")
class NeedyReward(Reward):
    """A reward that reads the reference's entropy under a wrong name."""

    def needs(self) -> frozenset[str]:
        return frozenset({"ref_entropi"})

    def score(self, rollout: Any) -> Any: ...


@register("needy_relevance")
class NeedyRelevance(Relevance):
    """A relevance that reads hidden states."""

    def needs(self) -> frozenset[str]:
        return frozenset({"hidden_states"})

    def weigh(self, rollout: Any, checked: Any) -> Any: ...


@register("needy_segmenter")
class NeedySegmenter(Segmenter):
    """A segmenter that reads logits."""

    needs: ClassVar[frozenset[str]] = frozenset({"logits"})

    def starts(self, view: Any) -> Any: ...


@register("needy_metric")
class NeedyMetric(Metric):
    """A metric that reads values."""

    def needs(self) -> frozenset[str]:
        return frozenset({"values"})

    def measure(self, answers: Any, *, baseline: Any = None) -> Any: ...
'''


@pytest.mark.parametrize(
    "override",
    [
        "stages.policy.algorithm=needy_ppo",
        "stages.policy.reward=needy_reward",
        "stages.evaluate.rewards.segment=needy_reward",
        "stages.policy.reward={name: rubric, relevance: needy_relevance}",
        "stages.reward_model.algorithm.segmenter=needy_segmenter",
        "stages.evaluate.metrics=[needy_metric]",
    ],
)  # fmt: skip
def test_a_need_that_nothing_computes_is_refused(override: str, tmp_path: Path) -> None:
    (tmp_path / "needy.py").write_text(SOURCE, encoding="utf-8")
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        f"extends: {ROOT}/recipes/small/segment_ppo.yaml\nabout: x\nimports: [needy.py]\n", encoding="utf-8"
    )
    with scratch_imports():
        assert load(recipe).stages
        with pytest.raises(Problems) as refused:
            load(recipe, [override])
    said("validate", f"needs {override}", str(refused.value))
    assert str(refused.value).startswith(f"command line: {override.partition('=')[0]}")


def test_a_need_that_is_known_only_after_setup_is_refused_with_exit_code_2() -> None:
    from fgrl.components.algorithms.ppo import PPO

    with pytest.raises(UnknownNeed, match='"hidden_states", which nothing computes') as refused:
        check_needs(PPO(), {"old_logp", "hidden_states"})
    assert refused.value.exit_code == 2
