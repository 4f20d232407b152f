"""A reward that asks for the policy, in an evaluation: each answer is credited with the model that drew it, and with no other."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import tiny_recipe
from scratch_registry import scratch
from tiny_recipe import a_run
from training_helpers import tiny

from fgrl import rollouts
from fgrl.base.errors import DataError, PolicyNotLent
from fgrl.experiments.pipeline import execute
from fgrl.experiments.recipe import load
from fgrl.kinds.specs import ModelSpec
from fgrl.measuring.answer import read_answers
from fgrl.measuring.attributing import as_rollout
from fgrl.registry import Problems, outside
from fgrl.rollouts import passes

SOURCE = '''\
import torch

from fgrl.kinds import Relevance, Reward
from fgrl.registry import register
from fgrl.types import Rewards

KEPT, KEPT_MODELS = [], []


@register("own_words")
class OwnWords(Reward):
    """How probable the policy finds each token of its own continuation from the second token on."""

    remembers: str = "nothing"
    """Credit with the first policy that this file ever saw, or with its model."""

    def needs(self):
        return frozenset({"policy"})

    def score(self, rollout):
        KEPT.append(rollout.policy)
        KEPT_MODELS.append(rollout.policy.model)
        policy = KEPT[0] if self.remembers == "the policy" else rollout.policy
        rows = range(len(rollout.mask))
        whole = policy.completed([(row, 1) for row in rows], 1)
        if self.remembers == "the model":
            logp = KEPT_MODELS[0].score(whole).logp.sum(dim=1)
        else:
            logp = policy.score(whole).logp.sum(dim=1)
        token = torch.where(rollout.mask, rollout.policy.score(rollout, entropy=True).entropy, 0.0)
        return Rewards(logp, token, rollout.mask)


@register("own_entropy")
class OwnEntropy(Reward):
    """A reward that reads the entropies of the policy."""

    def needs(self):
        return frozenset({"entropy"})

    def score(self, rollout):
        return Rewards(rollout.filled("entropy").sum(dim=1), rollout.entropy, rollout.mask)


@register("by_policy")
class ByPolicy(Relevance):
    """A relevance that asks for the policy."""

    def needs(self):
        return frozenset({"policy"})

    def weigh(self, rollout, checked): ...
'''
LESS = (
    "stages.reward_model=null", "stages.calibrate=null", "stages.policy.train.iterations=1",
    "stages.policy.algorithm={name: grpo}", "stages.policy.rollout.per_prompt=2", "stages.policy.reward=own_words",
    "stages.policy.train.warmup=0.0", "stages.evaluate.rewards={own: own_words}", "stages.evaluate.sampling.temperature=0.7",
)  # fmt: skip


@pytest.fixture
def recipe(tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(outside, "_imported", {})
    monkeypatch.setattr("fgrl.experiments.recipe.loading._by_recipes", set())
    path = tiny_recipe.write(tmp_path / "recipe", tiny_model_dir)
    (path.parent / "own_words.py").write_text(SOURCE, encoding="utf-8")
    path.write_text(path.read_text() + "imports: [own_words.py]\n")
    return path


def answers_of(runs: Path) -> tuple[bytes, Path]:
    (folder,) = (runs / "stages").glob("evaluate-*")
    return (folder / "out" / "answers.jsonl").read_bytes(), folder


def test_the_same_key_gives_the_same_bytes_whether_the_policy_was_cached(recipe: Path, tmp_path: Path) -> None:
    with scratch():
        assert execute(load(recipe, [*LESS]), tmp_path / "together").exit == 0
        assert execute(load(recipe, [*LESS, "stages.evaluate=null"]), tmp_path / "apart").exit == 0
        assert execute(load(recipe, [*LESS]), tmp_path / "apart").exit == 0
    (together, folder), (apart, other) = answers_of(tmp_path / "together"), answers_of(tmp_path / "apart")
    assert folder.name == other.name
    assert together == apart
    # the product names the two models
    names = json.loads((folder / "out" / "answered_by.json").read_text())
    assert names.keys() == {"sft", "policy"}
    assert names["sft"].startswith("folder:")
    assert names["policy"] != names["sft"]
    # and an answer's reward is that of the model which drew it
    answers = read_answers(folder / "out" / "answers.jsonl")
    assert [answer.rewards["own"] for answer in answers["sft"]] != [
        answer.rewards["own"] for answer in answers["policy"]
    ]


def test_another_model_is_refused(
    recipe: Path, tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scratch():
        stage = load(recipe, LESS).stages["evaluate"]
        again = ModelSpec(base=str(tiny_model_dir), dtype="bfloat16")
        stage = stage.model_copy(update={"models": {"sft": ModelSpec(base=str(tiny_model_dir)), "again": again}})
        # 1. a component that remembers the model of the answers before
        for number, remembered in enumerate(("the policy", "the model")):
            stage.rewards["own"].remembers = remembered
            with pytest.raises(PolicyNotLent, match="the policy sft was lent for responses that are scored already"):
                stage.run(a_run(tmp_path / f"remembered-{number}"))
        stage.rewards["own"].remembers = "nothing"
        # 2. answers that a killed process left, of another model
        run = a_run(tmp_path / "killed")
        identity = passes.identity
        identities: list[str] = []
        monkeypatch.setattr(
            passes, "identity", lambda spec, run: identities.append(identity(spec, run)) or identities[-1]
        )
        stage.run(run)
        assert len(identities) == 2, "the files of each model are read once"
        for name, recorded in zip(("sft", "again"), identities, strict=True):
            assert json.loads((run.dir / f"answers-{name}.answered_by.json").read_text()) == recorded
        (run.dir / "answers-sft.answered_by.json").write_text('"another"')
        with pytest.raises(
            PolicyNotLent, match=r"answers-sft.jsonl: these answers were credited with another model \(another\)"
        ):
            stage.run(run)
        (run.dir / "answers-sft.answered_by.json").unlink()
        with pytest.raises(PolicyNotLent, match="not recorded"):
            stage.run(run)
        # 3. a run that loads other weights than the recipe names
        run = a_run(tmp_path / "planted")
        shutil.copytree(tiny_model_dir, tmp_path / "other")
        (tmp_path / "other" / "more").write_text("x")
        monkeypatch.setattr(run, "model", lambda spec, **_more: tiny(tmp_path / "other"))
        with pytest.raises(PolicyNotLent, match=r"sft: the recipe names .* and the model that answers is .*other"):
            stage.run(run)
        assert not (run.dir / "answers-sft.jsonl").exists()
        assert not (run.dir / "answers-sft.answered_by.json").exists()


def test_stages_that_do_not_draw_the_responses_refuse_such_components(recipe: Path) -> None:
    grade = "{name: grade, left: {name: jsonl, path: PAIRS}, policy: '${vars.base}', relevance: {x: by_policy}}"
    grade = grade.replace("PAIRS", str(recipe.with_name("pairs.jsonl")))
    rubric = "{name: rubric, relevance: by_policy}"
    with scratch():
        for override, kind in (
            ("stages.calibrate.reward=own_words", "reward own_words"),
            (f"stages.calibrate.reward={rubric}", "relevance by_policy"),
            (f"stages.grade={grade}", "relevance by_policy"),
        ):
            with pytest.raises(Problems, match=f'{kind} needs "policy" of the responses, which this stage reads'):
                load(recipe, [override])
        assert load(recipe, [f"stages.policy.reward={rubric}"]).stages
        with pytest.raises(
            Problems, match='reward own_entropy needs "entropy" of the responses, which this stage reads'
        ):
            load(recipe, ["stages.calibrate.reward=own_entropy"])
        assert load(recipe, ["stages.policy.reward=own_entropy", "stages.evaluate.rewards={own: own_entropy}"]).stages


@pytest.mark.parametrize("need", ["policy", "entropy"])
def test_responses_of_an_unknown_policy_have_no_such_field(need: str, tiny_model_dir: Path) -> None:
    model = tiny(tiny_model_dir)
    rows = [rollouts.given(model, [1, 10], [20, 2])]
    with pytest.raises(DataError, match="These responses were not drawn here"):
        as_rollout(rows, model, needs=frozenset({need}), reference=None)
    drawn = as_rollout(rows, model, needs=frozenset({"ref_entropy"}), reference=model)
    assert drawn.ref_entropy.shape == (1, 2)
