"""Prompts whose rules may be Python source. The code runs in the sandbox and nowhere else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from fgrl.data.row import BadRow
from fgrl.data.rubrics.demand import Demand
from fgrl.data.rubrics.rubric_set import RubricSet
from fgrl.data.rubrics.values import check_lengths
from fgrl.data.rubrics.verinstruct import is_hard, verinstruct_criteria
from fgrl.data.turns import Prompt, as_one_text
from fgrl.rules.code import CODE_CHECKER
from fgrl.sandbox import CheckerSandbox


class CodedSet(RubricSet):
    """Prompts whose rules may be Python source.

    What a checker returns is taken as Python's `if` takes it, as the authors do. One that raises, takes too long or asks for
    what does not exist is undecided: its verdict is missing.
    """

    sandbox: CheckerSandbox = CheckerSandbox()
    """Where code of the data runs."""
    returns: Literal["truth", "bool"] = "truth"
    """`truth`: whatever Python's `if` takes for true is kept, anything else broken. `bool`: true or false, else undecided."""

    def coded(
        self, checkers: Sequence[Any], functions: Sequence[Any], prompt: Prompt, texts: Sequence[str] | None = None
    ) -> list[Demand]:
        """The criteria of VerIF's columns. Raises `BadRow`.

        checkers: each with a mark, `[rule]` or `[llm]`. functions: the sources, None where there is none.
        texts: the criteria in words, where the data has them.
        """
        check_lengths(checkers=checkers, functions=functions, **({} if texts is None else {"criteria": texts}))
        sources = [source for source in functions if source is not None]
        if not all(isinstance(text, str) for text in (*checkers, *sources)):
            raise BadRow("checkers and functions: wants texts")
        criteria = verinstruct_criteria(
            checkers, functions, as_one_text(prompt), texts, self.returns, self.sandbox.given()
        )
        return [
            Demand(
                criterion.text,
                criterion.check,
                CODE_CHECKER if hard else "",
                hard=hard,
                why="" if criterion.check else _why(source),
            )
            for criterion, hard, source in zip(criteria, map(is_hard, checkers, functions), functions, strict=True)
        ]


def _why(source: str | None) -> str:
    return "it asks a language model" if source and source.strip() else "without its source"
