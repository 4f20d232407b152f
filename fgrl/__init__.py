"""Declarative experiments in fine-grained reinforcement learning of language models.

    import fgrl

    run = fgrl.run("recipes/quickstart.yaml", {"stages.policy.train.lr": 1e-4}, seed=1)
    run.numbers()                                                   # a pandas DataFrame, with intervals
    policy = run.policy("policy")
    policy.generate("Say something about the sea.")
    run.score("policy", "Say something about the sea.", "It is wide, and deep.").draw()

Authors of components import from here, too: `from fgrl import Reward, Rollout, register`. Everything is imported at
its first use: `import fgrl` itself loads nothing else.
"""

from __future__ import annotations

import importlib as _importlib
from typing import TYPE_CHECKING as _CHECKED

if _CHECKED:
    from fgrl import kinds, types
    from fgrl.base import errors, lazy, ops
    from fgrl.base.errors import DataError, FgrlError, Unavailable, UsageError
    from fgrl.experiments.pipeline.run import scratch_run
    from fgrl.feedback.chains import RuleRewriter
    from fgrl.feedback.llm.asking import Question, answered
    from fgrl.feedback.rules.rule import Forbids, Requires, Rule, broken_at, kept_at
    from fgrl.kinds import *  # noqa: F403
    from fgrl.kinds.specs import LoraSpec, ModelSpec, Sampling
    from fgrl.library import *  # noqa: F403
    from fgrl.measuring.answer import Answer
    from fgrl.measuring.comparison import Comparison, mean
    from fgrl.measuring.statistics import Measured
    from fgrl.registry import File, Folder, FolderOrName, Problems, Settings, Unkeyed, build
    from fgrl.rollouts import encode_prompt, logp_of, pad_prompts, score_with, select
    from fgrl.training.group_relative import GroupRelative
    from fgrl.training.policy_gradient import PolicyGradient
    from fgrl.training.references import ReferencedAlgorithm
    from fgrl.training.turn_relative import TurnRelative
    from fgrl.types import *  # noqa: F403

__version__ = "0.2.0"
_MODULES = {"errors": "base.errors", "kinds": "kinds", "lazy": "base.lazy", "ops": "base.ops", "types": "types"}
"""Modules that are exported, and where they are."""
_NAMES = {
    "base.errors": "DataError FgrlError Unavailable UsageError",
    "measuring.answer": "Answer",
    "measuring.comparison": "Comparison mean",
    "measuring.statistics": "Measured",
    "feedback.chains": "RuleRewriter",
    "feedback.llm.asking": "Question answered",
    "kinds": (
        "ANSWER_NEEDS Accelerator Annotator Asker AtMost Auxiliary AuxiliarySettings Better ChainAttempt ChainCase "
        "Checked Client CorrectedEngine Correction CreditsTokens DrawRequest Drawer Drawing Early Elsewhere Encoded Engine Environment Episode Expected "
        "GIVEN_NEEDS GRADED_NEEDS Inspectable Judge MadeModel Meaning Metric Normalizer Numbers OfflineAlgorithm "
        "OnlineAlgorithm PairBuilder Parcel Peek Planning Purpose REFERENCE_OUTPUTS ROLLOUT_NEEDS Reader "
        "Relevance Reward RewardWrapper Rewriter Run Scope Segmenter ServerGone ServerRefused Serving Stage Stepped Ticker ToDraw TrainsModels Transfer "
        "UNDRAWN Verifier auxiliaries check_needs check_scorer default_engine meaning_in note_step scorers "
        "stated"
    ),
    "library": (
        "FinishedRun FinishedStage FinishedSweep Generated Inspected NewRecipe Policy ScoredText TokenSpan "
        "WrittenReport annotation_stats benchmark catalog check clean compare curves describe doctor elo export "
        "export_annotations frontier import_annotations init inspect list_runs load new open_run plan register report run "
        "schema score sweep table validate"
    ),
    "training.group_relative": "GroupRelative",
    "training.policy_gradient": "PolicyGradient",
    "training.references": "ReferencedAlgorithm",
    "training.turn_relative": "TurnRelative",
    "experiments.pipeline.run": "scratch_run",
    "registry": "File Folder FolderOrName Problems Settings Unkeyed build",
    "rollouts": "encode_prompt logp_of pad_prompts score_with select",
    "feedback.rules.rule": "Forbids Requires Rule broken_at kept_at",
    "kinds.specs": "LoraSpec ModelSpec Sampling",
    "types": (
        "Advantages Aggregation AlarmRecord Annotation Batch Checkpoint Column Completion Criterion DrawnResponse "
        "Feeling Finish Highlight Marked Mean Message Most Number Pair PairVerdict Pairs Product Prompt Record Ref Report "
        "Request Response Rewards Rollout Sample Samples Segmentable Span Stats TensorRows Tokens Turn Usage messages_of of_all_rows "
        "parse_line per_criterion per_criterion_token per_prompt_token per_response per_row per_token read_jsonl write_jsonl"
    ),
}
"""Names of modules, each with what is exported of it."""
_ORIGIN = {name: module for module, names in _NAMES.items() for name in names.split()}
__all__ = ["__version__", *_MODULES, *_ORIGIN]


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return _importlib.import_module(f"{__name__}.{_MODULES[name]}")
    if name not in _ORIGIN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(_importlib.import_module(f"{__name__}.{_ORIGIN[name]}"), name)


def __dir__() -> list[str]:
    return sorted(__all__)
