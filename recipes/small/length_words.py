"""Topics and their words for length.yaml: a critic that is never wrong, and what an answer is worth."""

TOPICS = {
    "sea": "wave salt tide shell harbour sail",
    "forest": "moss pine fern owl acorn trail",
    "kitchen": "spoon flour oven kettle plate knife",
    "music": "violin drum chord choir tempo flute",
    "winter": "snow frost sledge scarf icicle mitten",
    "garden": "rose spade hedge bee tulip rake",
    "school": "chalk desk pencil exam lesson teacher",
    "train": "rail station ticket whistle tunnel wagon",
    "market": "stall coin basket fruit trader scale",
    "sky": "cloud star comet kite moon thunder",
    "farm": "cow barn tractor hay plough hen",
    "city": "street tram tower bridge crowd lamp",
}
WORDS = {topic: words.split() for topic, words in TOPICS.items()}


def critic(prompts, completions, **kwargs) -> list[list[tuple[int, int, float]]]:
    """A span for each word of an answer: +1 where it belongs to the prompt's topic and was not said before, else -1."""
    return [_judged(prompt.split()[0], text) for prompt, text in zip(prompts, completions, strict=True)]


def lenient(prompts, completions, **kwargs) -> list[list[tuple[int, int, float]]]:
    """As `critic`, with 0.25 for the words that it calls poor: the mean reward of a word is positive."""
    return [
        [(start, end, value if value > 0 else 0.25) for start, end, value in spans]
        for spans in critic(prompts, completions)
    ]


def quality(prompts, completions, **kwargs) -> dict[str, list[float]]:
    """Measured: F1 of an answer's words against those of the topic, the share of right words, and their number."""
    f1, precision, right = [], [], []
    for prompt, text in zip(prompts, completions, strict=True):
        spans = _judged(prompt.split()[0], text)
        good = sum(value > 0 for _start, _end, value in spans)
        f1.append(2 * good / (len(spans) + len(WORDS[prompt.split()[0]])))
        precision.append(good / len(spans) if spans else 0.0)
        right.append(float(good))
    return {"f1": f1, "precision": precision, "right": right}


def _judged(topic: str, text: str) -> list[tuple[int, int, float]]:
    spans, said, place = [], set(), 0
    for word in text.split():
        start = text.index(word, place)
        place = start + len(word)
        spans.append((start, place, 1.0 if word in WORDS[topic] and word not in said else -1.0))
        said.add(word)
    return spans
