"""IFBench's rules on shares and proportions."""

from __future__ import annotations

from pydantic import Field

from fgrl.feedback.rules.rule import Forbids, Rule, broken_in
from fgrl.feedback.rules.sentences import sentences
from fgrl.feedback.rules.text import WORD, ranges
from fgrl.registry import register
from fgrl.types import Span

STOP_WORDS = frozenset(
    "a about above after again against ain all am an and any are aren as at be because been before being below between "  # noqa: SIM905
    "both but by can couldn d did didn do does doesn doing don down during each few for from further had hadn has hasn "
    "have haven having he her here hers herself him himself his how i if in into is isn it its itself just ll m ma me "
    "mightn more most mustn my myself needn no nor not now o of off on once only or other our ours ourselves out over own "
    "re s same shan she should shouldn so some such t than that the their theirs them themselves then there these they "
    "this those through to too under until up ve very was wasn we were weren what when where which while who whom why "
    "will with won wouldn y you your yours yourself yourselves".split()
)
"""English function words, and the remainders of contractions that are cut at their apostrophe. These are the words of
nltk's list (a download) that can occur as runs of letters.
"""


@register("ratio:stop_words")
class StopWords(Forbids):
    """The share of stop words (the, of, and, ...) among all words is at most the given percentage.

    Violations: all stop words.
    """

    percentage: float = Field(ge=0)
    """Maximum percentage of stop words."""

    def keeps(self, response: str) -> bool:
        words = [word.lower() for word in WORD.findall(response)]
        return bool(words) and sum(word in STOP_WORDS for word in words) / len(words) * 100 <= self.percentage

    def faults(self, response: str) -> list[Span]:
        words = ranges(WORD, response)
        return broken_in([word for word in words if response[slice(*word)].lower() in STOP_WORDS], "stop word")


@register("ratio:sentence_type")
class SentenceType(Rule):
    """Twice as many sentences end with a period as with a question mark."""

    def keeps(self, response: str) -> bool:
        return _ending(".", response) == 2 * _ending("?", response)


@register("ratio:sentence_balance")
class SentenceBalance(Rule):
    """As many sentences end with a period as with a question mark, and as with an exclamation mark."""

    def keeps(self, response: str) -> bool:
        return _ending(".", response) == _ending("?", response) == _ending("!", response)


@register("ratio:overlap")
class Overlap(Rule):
    """The share of the response's different character trigrams that also occur in the reference text equals the given
    percentage, within 2%.
    """

    reference_text: str
    """Text to compare with."""
    percentage: float = Field(ge=0, le=100)
    """Required percentage of common trigrams."""

    def keeps(self, response: str) -> bool:
        trigrams = _trigrams(response)
        if not trigrams:
            return False
        overlap = len(trigrams & _trigrams(self.reference_text)) / len(trigrams)
        return self.percentage - 2 <= overlap * 100 <= self.percentage + 2


@register("ratio:sentence_words")
class SentenceWords(Rule):
    """The response consists of three sentences with the same number of characters.

    IFBench's sentence also requires different words, but its checker does not test this, and neither does this rule.
    Violations: sentences beyond the third.
    """

    def keeps(self, response: str) -> bool:
        lengths = [len(sentence.text) for sentence in sentences(response)]
        return len(lengths) == 3 and len(set(lengths)) == 1

    def faults(self, response: str) -> list[Span]:
        return broken_in(sentences(response)[3:], "a fourth sentence")


def _ending(mark: str, response: str) -> int:
    return sum(sentence.text.endswith(mark) for sentence in sentences(response))


def _trigrams(text: str) -> set[str]:
    return {text[at : at + 3] for at in range(len(text) - 2)}
