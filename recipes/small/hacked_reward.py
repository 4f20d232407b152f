"""The reward of hacked.yaml, which has a loophole."""


def brief(completions, **kwargs) -> list[float]:
    """Meant to favour concise answers: minus one point for every ten words. One word, or none, is best of all."""
    return [-len(text.split()) / 10 for text in completions]
