"""Measures of the credit benchmark for answers."""

from __future__ import annotations

from credit_tasks import task


def quality(prompts, completions, name, parts, fillers, **kwargs) -> dict[str, list[float]]:
    """Return the share of right words among those that matter, and whether all are right."""
    kind = task(name, parts, fillers)
    expected = parts * kind.words_that_matter
    right = [
        sum(value > 0 for value in kind.judge(prompt, text)) / expected
        for prompt, text in zip(prompts, completions, strict=True)
    ]
    return {"right": right, "solved": [float(share == 1) for share in right]}
