"""A text scored with the reward of a recipe's stage, as a training or an evaluation scores it."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fgrl import registry
from fgrl.base import lazy
from fgrl.base.errors import UsageError
from fgrl.experiments.pipeline import changed_rewards
from fgrl.experiments.pipeline.run import Run, scratch_run
from fgrl.kinds import Reward, Stage, check_needs
from fgrl.kinds.specs import ModelSpec
from fgrl.library import named
from fgrl.library.inputs import libraries_quiet, random_state_kept
from fgrl.library.policies import Prompt, as_prompt, checked, encoded
from fgrl.library.scored_texts import ScoredText, of_answer
from fgrl.registry.problems import unknown
from fgrl.types import Criterion, Sample

if TYPE_CHECKING:
    from fgrl.experiments.recipe import Recipe
    from fgrl.runs.run import Run as RunOnDisk
answering = lazy.load("fgrl.measuring.answering")
attributing = lazy.load("fgrl.measuring.attributing")
models = lazy.load("fgrl.models")
rollouts = lazy.load("fgrl.rollouts")

NAME = "text"
"""Name of the model that wrote a scored text, in the text's record."""


def score_text(
    finished: RunOnDisk,
    stage: str,
    prompt: Prompt | Sample,
    answer: str,
    *,
    reward: str | None = None,
    reference: str | list[str] | None = None,
    rubric: Sequence[str | Mapping[str, Any] | Criterion] = (),
    meta: Mapping[str, Any] | None = None,
    ended: bool = True,
) -> ScoredText:
    """Return the scored text; see `fgrl.score`."""
    recipe = _recipe(finished, stage)
    built = recipe.built_anew(stage)
    rewards = rewards_of(built)
    if not rewards:
        raise UsageError(f"stage {stage} ({registry.name_of(built)[1]}) has no reward")
    if reward is not None and reward not in rewards:
        raise UsageError(unknown("reward", reward, list(rewards)))
    if reward is None and len(rewards) > 1:
        raise UsageError(f"stage {stage} has several rewards: name one of {', '.join(rewards)} as `reward`")
    name = reward or next(iter(rewards))
    chosen = rewards[name]
    _warn_of_changes(finished, stage, built, chosen)
    sample = _sample(prompt, reference, rubric, meta)
    products = {name: finished.finished[name].out for name in recipe.graph()[stage]}
    made_with = {"cache": finished.runs.cache, "seed": finished.seed, "accelerator": built.accelerator()}
    with random_state_kept(), libraries_quiet(), scratch_run(stage, products=products, **made_with) as run:
        run.cache.mkdir(parents=True, exist_ok=True)
        run.seed_libraries()
        chosen.setup(run)
        check_needs(chosen, chosen.needs())
        chosen.check_prompts([sample])
        return of_answer(_scored(built, name, chosen, sample, answer, ended, run), name)


def rewards_of(stage: Stage) -> dict[str, Reward]:
    """Return the rewards that a stage names itself: `reward`, or its `rewards` by their names. Rewards inside another
    reward are not included.
    """
    rewards: dict[str, Reward] = {}
    for path, value in registry.walk(stage):
        if isinstance(value, Reward) and (len(path) == 1 or path[:-1] == ("rewards",)):
            rewards[str(path[-1])] = value
    return rewards


def _scored(stage: Stage, name: str, reward: Reward, sample: Sample, answer: str, ended: bool, run: Run) -> Any:
    """Return the answer's record. The model's weights are loaded only if the reward needs them."""
    spec, needs = _reference(stage), reward.needs() | {"offsets"}
    model = run.model(spec) if attributing.of_a_model(needs) else models.read_vocabulary(spec, run.path)
    rollouts.check_same_tokens(model, reward=reward.tokenizer())
    written = encoded(model, sample, answer, finished=ended)
    rollout = attributing.as_rollout([written], model, needs=needs, reference=model, samples=[sample])
    scored = {name: reward.score(rollout)}
    return answering.recorded(NAME, sample, written, rollout, 0, scored, model.tokenizer)


def _reference(stage: Stage) -> ModelSpec:
    """Return the model that tokenizes the text and computes the fields that the reward needs: the model that a training
    starts from, or that an evaluation compares with.
    """
    named = getattr(stage, "models", None)
    model = getattr(stage, "model", None)
    if isinstance(named, Mapping) and named:
        model = named[getattr(stage, "likelihoods_of", None) or next(iter(named))]
    if not isinstance(model, ModelSpec):
        raise UsageError(f"the stage {registry.name_of(stage)[1]} names no language model whose tokens could be scored")
    return model.frozen()


def _recipe(finished: RunOnDisk, stage: str) -> Recipe:
    recipe = named.built(finished)
    if recipe is None:
        raise UsageError(
            f"this version of fgrl cannot build {finished.folder / 'recipe.yaml'}, or it uses a component that is not "
            "registered here"
        )
    if stage not in recipe.stages:
        raise UsageError(unknown("stage", stage, list(recipe.stages)))
    if missing := [name for name in recipe.graph()[stage] if name not in finished.finished]:
        raise UsageError(f"stage {stage} needs {', '.join(missing)}, which has not run yet: run the recipe first")
    return recipe


def _warn_of_changes(finished: RunOnDisk, stage: str, built: Stage, reward: Reward) -> None:
    """Print a warning that names the files of a reward that have changed since the stage was made."""
    record = finished.stages[stage].found
    if record is None:
        return
    path = next(path for path, value in registry.walk(built) if value is reward)
    if changed := changed_rewards.changed_files(reward, record.identity, path):
        warnings.warn(changed_rewards.warning(stage, changed), stacklevel=4)


def _sample(
    prompt: Prompt | Sample,
    reference: str | list[str] | None,
    rubric: Sequence[str | Mapping[str, Any] | Criterion],
    meta: Mapping[str, Any] | None,
) -> Sample:
    if isinstance(prompt, Sample):
        if reference is not None or rubric or meta is not None:
            raise UsageError(
                "the prompt is a sample, which has its own reference, rubric and meta: leave these arguments out"
            )
        return prompt
    criteria = [{"text": criterion} if isinstance(criterion, str) else criterion for criterion in rubric]
    return checked(
        Sample, id="0", prompt=as_prompt(prompt), reference=reference, rubric=criteria, meta=dict(meta or {})
    )
