"""Reward and metric functions of function_rewards.yaml: sentences of at least eight words without a comma."""

import re

ENOUGH = 8


def comma_tokens(completions, completion_tokens, **kwargs) -> list[list[float]]:
    """A number per token: -1 for a comma. The last token gets +1 where there are enough words, else -1."""
    return [
        [-float("," in token) for token in tokens[:-1]] + [_long_enough(text) - float("," in tokens[-1])]
        for text, tokens in zip(completions, completion_tokens, strict=True)
    ]


def comma_spans(completions, **kwargs) -> list[list[tuple[int, int, float]]]:
    """Scored spans: -1 for a comma with the word before it. The last word gets +1 where there are enough words, else -1."""
    return [
        [(place.start(), place.end(), -1.0) for place in re.finditer(r"\w*,", text)]
        + [(place.start(), place.end(), _long_enough(text)) for place in re.finditer(r"\w+\W*$", text)]
        for text in completions
    ]


def no_comma(completions, **kwargs) -> list[float]:
    """Measured on held-out prompts: 1 for an answer without a comma and with enough words, else 0."""
    return [float("," not in text and _long_enough(text) > 0) for text in completions]


def commas(completions, **kwargs) -> list[float]:
    """Measured on held-out prompts: commas per 100 words."""
    return [100.0 * text.count(",") / max(len(text.split()), 1) for text in completions]


def _long_enough(text: str) -> float:
    return 1.0 if len(text.split()) >= ENOUGH else -1.0
