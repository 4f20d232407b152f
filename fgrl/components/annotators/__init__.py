"""What adds scores, verdicts, critiques and spans to samples."""

from fgrl.components.annotators import (
    answer,
    constraint_omission,
    cross_entropy,
    dense_token,
    dual_feedback,
    human,
    improvement_chain,
    mark_by_llm,
    mark_by_rules,
    minimal_modification,
    preference,
    prm,
    queries,
    refine,
    rubric_score,
    run_tests,
    similarity,
    validate_spans,
)
