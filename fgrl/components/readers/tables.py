"""Questions with answers, and claims with labels, in your own table."""

from __future__ import annotations

from fgrl.data.questions.answered import AnsweredQuestions
from fgrl.data.questions.claims import LabelledClaims
from fgrl.registry import register


@register("questions")
class Questions(AnsweredQuestions):
    """Reader for a table with the columns `question`, `answers` (a text or a list) and, for {context}, `context`
    (likewise).

    `{name: questions, path: json, files: [questions.jsonl], prompt: ../prompts/rla_answer.txt}`
    """


@register("claims")
class Claims(LabelledClaims):
    """Reader for a table with the columns `claim` and `label`.

    The files that UniLC released (Zhang et al. 2023) can be read directly: `{name: claims, path: json, files:
    [hsd_claims.jsonl]}`, and the file of Climate-FEVER with `columns: {label: claim_label}`. UniLC uses only the rows
    with the label SUPPORTS or REFUTES, and so do the defaults here.
    """
