"""Reward functions with mistakes that are noticed when they score, and what the report says."""

from __future__ import annotations

HEAD = "def score(completions, **kwargs):\n"
TOKENS = "def score(completions, completion_ids, **kwargs) -> list[list[float]]:\n"
SPANS = "def score(completions, **kwargs) -> list[list[tuple[int, int, float]]]:\n"

AT_RUN_TIME = {
    "an exception": (HEAD + "    return [1 / len(text[99:]) for text in completions]\n", 2),
    "an exception in a library": (HEAD + "    import json\n    return [json.loads(text) for text in completions]\n", 3),
    "an exception in an async function": ("async " + HEAD + "    raise KeyError('answer')\n", 2),
    "sys.exit": (HEAD + "    raise SystemExit(3)\n", 2),
    "no return": (HEAD + "    [0.0 for text in completions]\n", 1),
    "one number for all": (HEAD + "    return 0.5\n", 2),
    "fewer values": (HEAD + "    return [0.0 for text in completions if text == 'a']\n", 2),
    "a text": (HEAD + "    return ['0.5' for text in completions]\n", 2),
    "a mapping": (HEAD + "    return {text: 0.0 for text in completions}\n", 2),
    "NaN": (HEAD + "    return [float('nan')] * len(completions)\n", 2),
    "infinity": (HEAD + "    return [-float('inf')] * len(completions)\n", 2),
    "numbers of tokens without an annotation": (HEAD + "    return [[0.0] for text in completions]\n", 2),
    "a tensor of numbers of tokens without an annotation": (HEAD + "    import torch\n    return torch.ones(len(completions), 2)\n", 3),
    "a list for a token": (TOKENS + "    return [[[0.0]] * len(ids) for ids in completion_ids]\n", 2),
    "an array of texts": (HEAD + "    import numpy\n    return numpy.array(['1'] * len(completions))\n", 3),
    "full memory": (HEAD + "    raise MemoryError\n", 2),
    "too few numbers of tokens": (TOKENS + "    return [[0.0] for ids in completion_ids]\n", 2),
    "one number in place of tokens": (TOKENS + "    return [0.0 for ids in completion_ids]\n", 2),
    "NaN for a token": (TOKENS + "    return [[float('nan')] * len(ids) for ids in completion_ids]\n", 2),
    "a span behind the text": (SPANS + "    return [[(0, 99, 1.0)] for text in completions]\n", 2),
    "a reversed span": (SPANS + "    return [[(3, 1, 1.0)] for text in completions]\n", 2),
    "a span of fractions": (SPANS + "    return [[(0.5, 1, 1.0)] for text in completions]\n", 2),
    "a span of truth values": (SPANS + "    return [[(False, True, 1.0)] for text in completions]\n", 2),
    "a span with two values": (SPANS + "    import torch\n    return [[(0, 1, torch.ones(2))] for text in completions]\n", 3),
    "a missing column": ("def score(completions, answer):\n    return [0.0] * len(completions)\n", 1),
    "a wrong name of a column": ("def score(completions, anwser):\n    return [0.0] * 2\n", 1),
    "chat messages of a text": (HEAD + "    return [len(answer[0]['content']) for answer in completions]\n", 2),
}  # fmt: skip
"""The function, and the line that the report names. What it says is in tests/wording/run.txt."""
