"""Reward functions with mistakes that are noticed when they score, and what the report says."""

from __future__ import annotations

HEAD = "def score(completions, **kwargs):\n"
TOKENS = "def score(completions, completion_ids, **kwargs) -> list[list[float]]:\n"
SPANS = "def score(completions, **kwargs) -> list[list[tuple[int, int, float]]]:\n"

AT_RUN_TIME = {
    "an exception": (HEAD + "    return [1 / len(text[99:]) for text in completions]\n", 2, "raised ZeroDivisionError: division by zero", "called with 2"),
    "an exception in a library": (HEAD + "    import json\n    return [json.loads(text) for text in completions]\n", 3, "raised JSONDecodeError", "raised in json/"),
    "an exception in an async function": ("async " + HEAD + "    raise KeyError('answer')\n", 2, "raised KeyError", "completions are texts"),
    "sys.exit": (HEAD + "    raise SystemExit(3)\n", 2, "raised SystemExit: 3", ""),
    "no return": (HEAD + "    [0.0 for text in completions]\n", 1, "returned None", "end the function with `return`"),
    "one number for all": (HEAD + "    return 0.5\n", 2, "returned 0.5 (float)", "2 numbers, one per completion"),
    "fewer values": (HEAD + "    return [0.0 for text in completions if text == 'a']\n", 2, "returned 1 values for 2 completions", "do not filter"),
    "a text": (HEAD + "    return ['0.5' for text in completions]\n", 2, "returned '0.5' (str) for completion 0", "float(text)"),
    "a mapping": (HEAD + "    return {text: 0.0 for text in completions}\n", 2, "returned a dict with the keys", "list[float]"),
    "NaN": (HEAD + "    return [float('nan')] * len(completions)\n", 2, "returned nan for completion 0", "return None"),
    "infinity": (HEAD + "    return [-float('inf')] * len(completions)\n", 2, "returned -inf for completion 0", "finite"),
    "a tensor on a graph": (HEAD + "    import torch\n    return torch.ones(2, requires_grad=True)\n", 3, "part of an autograd graph", "detach()"),
    "numbers of tokens without an annotation": (HEAD + "    return [[0.0] for text in completions]\n", 2, "returned a list of 1 float for completion 0", "-> list[list[float]]"),
    "too few numbers of tokens": (TOKENS + "    return [[0.0] for ids in completion_ids]\n", 2, "returned 1 numbers for completion 0, which has", "end-of-sequence"),
    "one number in place of tokens": (TOKENS + "    return [0.0 for ids in completion_ids]\n", 2, "returned 0.0 (float) for completion 0", "list[list[float]]"),
    "NaN for a token": (TOKENS + "    return [[float('nan')] * len(ids) for ids in completion_ids]\n", 2, "returned nan for token 0 of completion 0", "None"),
    "a span behind the text": (SPANS + "    return [[(0, 99, 1.0)] for text in completions]\n", 2, "a span that ends at 99 of completion 0, whose text has", "code points"),
    "a reversed span": (SPANS + "    return [[(3, 1, 1.0)] for text in completions]\n", 2, "which does not end after its start", "code points"),
    "a span of fractions": (SPANS + "    return [[(0.5, 1, 1.0)] for text in completions]\n", 2, "not a whole number", "code points"),
    "a missing column": ("def score(completions, answer):\n    return [0.0] * len(completions)\n", 1, "needs the argument 'answer'", "columns: {meta: [answer]}"),
    "a wrong name of a column": ("def score(completions, anwser):\n    return [0.0] * 2\n", 1, "needs the argument 'anwser'", ""),
    "chat messages of a text": (HEAD + "    return [len(answer[0]['content']) for answer in completions]\n", 2, "raised TypeError", "`completions: messages`"),
}  # fmt: skip
"""The function, the line that the report names, and what it says about the mistake and about the next step."""
