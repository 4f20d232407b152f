"""BLEU by sacrebleu, with the signature of its settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from fgrl.base import lazy
from fgrl.base.errors import Requires
from fgrl.kinds import Meaning
from fgrl.measuring.answer import Answer
from fgrl.measuring.comparison import mean
from fgrl.measuring.references import Referenced
from fgrl.measuring.statistics import Measured, of_sums
from fgrl.registry import register

sacrebleu = lazy.load("sacrebleu.metrics")


@register("bleu")
class Bleu(Referenced):
    """BLEU (Papineni et al. 2002) by sacrebleu, 0 to 100 as it prints it.

    The RLA paper reports a mean over samples and the highest score among the references (section 4.2.1), which is
    `aggregate: mean`, the default; it names neither tool nor order. MS MARCO's own evaluation uses BLEU-1 of the
    corpus: `{aggregate: corpus, max_ngram: 1, lowercase: true}` is closest, except for its tokenizer.
    """

    meanings = {
        "bleu": Meaning("overlap with the reference (BLEU)", "higher"),
        "corpus": Meaning("overlap with the references over the corpus (BLEU)", "higher"),
    }

    requires = Requires("sacrebleu", "the metric bleu needs the package sacrebleu", extra="metrics")

    aggregate: Literal["mean", "corpus"] = "mean"
    """`mean`: BLEU of each answer with its best reference (orders that a short answer does not have are left out),
    averaged over answers. `corpus`: BLEU of all answers together, n-grams counted against all references of a prompt;
    its interval recomputes it for each resample of prompts.
    """
    max_ngram: int = Field(4, ge=1, le=4)
    """Longest n-gram."""
    lowercase: bool = False
    """Ignore case."""
    tokenize: Literal["13a", "intl", "char", "zh", "none"] = "13a"
    """Tokenizer of sacrebleu."""

    def numbers(self, answers: Sequence[Answer]) -> dict[str, Measured]:
        scorer = self._scorer(effective_order=True)
        if self.aggregate == "mean":
            best = self.best(answers, lambda response, reference: scorer.sentence_score(response, [reference]).score)
            return {"bleu": mean(answers, best)}
        counts, ids = self._counts(scorer, answers), [answer.id for answer in answers]
        return {"corpus": of_sums(counts, ids, "bleu", {"max_ngram": self.max_ngram})}

    def about(self, answers: Mapping[str, Sequence[Answer]]) -> str:
        """Return sacrebleu's signature; for `mean` it is that of one answer against one reference."""
        scorer = self._scorer(effective_order=self.aggregate == "mean")
        sizes = {len(self.usable(answer.references)) for own in answers.values() for answer in own}
        scorer.num_refs = 1 if self.aggregate == "mean" else sizes.pop() if len(sizes) == 1 else -1
        signature = str(scorer.get_signature())
        kind = "mean of sentence BLEU, best reference" if self.aggregate == "mean" else "corpus BLEU"
        order = "" if self.max_ngram == 4 else f", up to {self.max_ngram}-grams"
        return f"{kind}{order}, {signature}"

    def _scorer(self, effective_order: bool) -> Any:
        return sacrebleu.BLEU(
            lowercase=self.lowercase,
            tokenize=self.tokenize,
            max_ngram_order=self.max_ngram,
            effective_order=effective_order,
            force=True,  # no warning when a text looks tokenized
        )

    def _counts(self, scorer: Any, answers: Sequence[Answer]) -> list[list[int]]:
        """Return for each answer its length, the length of its closest reference, and the matched and total n-grams of
        each order.
        """
        scores = [scorer.sentence_score(answer.text, self.usable(answer.references)) for answer in answers]
        return [[score.sys_len, score.ref_len, *score.counts, *score.totals] for score in scores]
