"""`fgrl.load` and `fgrl.score`: from the name of a model or a recipe to the model, or to a scored text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from fgrl.library.finished_runs import FinishedRun, FinishedStage, open_run
from fgrl.library.inputs import RUNS, Overrides, load_recipe, override_texts
from fgrl.library.named import NamedRecipe
from fgrl.library.policies import Policy, Prompt, load_model
from fgrl.library.scored_texts import ScoredText
from fgrl.library.scoring import score_text
from fgrl.runs.folders import Runs
from fgrl.runs.run import Run
from fgrl.runs.stage import Stage
from fgrl.types import Criterion, Sample


def load(
    source: Path | str | FinishedStage | FinishedRun,
    *,
    step: int | None = None,
    revision: str | None = None,
    dtype: Literal["auto", "float32", "bfloat16"] | None = None,
    device: str | None = None,
) -> Policy:
    """Load a language model that a stage trained or chose, or any other language model.

    source: the folder of a stage or of its product, a stage of a run, a run with one language model, a folder of a
    model, or a hub id, of which `revision` is a commit, tag or branch. step: step of the model, for a training that
    kept the models of several steps. dtype: type of the weights; None: the type of the training; "auto": bfloat16 if
    the device multiplies it natively. device: None is the GPU if there is one.

    Raises `UsageError` for a source that contains no model, `DataError` for a model that cannot be loaded as a language
    model.
    """
    if isinstance(source, FinishedRun):
        return source.policy(step=step, dtype=dtype, device=device)
    place = source.product if isinstance(source, FinishedStage) else Path(source)
    if Run(place).has_record:
        return open_run(place).policy(step=step, dtype=dtype, device=device)
    if Stage(place).has_record:
        place = place / "out"
    name = place if place.is_dir() else str(source)
    return load_model(name, step=step, revision=revision, dtype=dtype, device=device)


def score(
    source: Path | str | FinishedRun,
    stage: str,
    prompt: Prompt | Sample,
    answer: str,
    *,
    reward: str | None = None,
    reference: str | list[str] | None = None,
    rubric: Sequence[str | Mapping[str, Any] | Criterion] = (),
    meta: Mapping[str, Any] | None = None,
    ended: bool = True,
    overrides: Overrides | None = None,
    runs: Path | str = RUNS,
) -> ScoredText:
    """Score a text with the reward of a stage: the reward of each token, of each segment and of the whole text.

    source: a recipe, the folder of a run, or a result of `fgrl.run`. stage: a stage with a reward, such as `rl`, or
    with several, such as `evaluate`; then `reward` names one of its `rewards`. prompt: a text, the turns of a chat, or
    a sample with everything that the reward reads; otherwise `reference`, `rubric` and `meta` have the values that the
    prompt's row of data would have. ended: True if the answer ends with an end-of-sequence token. overrides, runs:
    overrides and folder of runs, for a recipe.

    The stages on whose products the reward depends must have run. The text is tokenized for the model that the training
    starts from, or that the evaluation compares with. Nothing is written except by components into the cache.

    Raises `UsageError` for a stage without a reward or with unfinished dependencies, `DataError` for a prompt without
    the fields that the reward reads.
    """
    done: Run
    if isinstance(source, FinishedRun):
        done = source
    elif Path(source).is_dir():
        done = open_run(source)
    else:
        texts = override_texts(overrides)
        done = NamedRecipe(load_recipe(source, texts), texts, Runs(Path(runs)))
    return score_text(
        done, stage, prompt, answer, reward=reward, reference=reference, rubric=rubric, meta=meta, ended=ended
    )
