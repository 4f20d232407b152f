"""Questions with answers in a table of your own."""

from __future__ import annotations

from fgrl.data.questions.answered import AnsweredQuestions
from fgrl.registry import register


@register("questions")
class Questions(AnsweredQuestions):
    """A table with the columns `question`, `answers` (a text or a list) and, for {context}, `context` (likewise).

    `{name: questions, path: json, files: [questions.jsonl], prompt: ../prompts/rla_answer.txt}`
    """
