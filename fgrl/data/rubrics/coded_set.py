"""Prompts whose rules may be Python source. The code runs in the sandbox and nowhere else.

Here the source, which VerInstruct (Peng et al. 2025, "VerIF") has beside each criterion, is only looked at as text:
does it ask a language model, and what.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

from fgrl.data.row import BadRow
from fgrl.data.rubrics.demand import CODE_CHECKER, Check, Demand
from fgrl.data.rubrics.rubric_set import RubricSet
from fgrl.data.turns import Prompt, as_one_text
from fgrl.data.values import check_lengths
from fgrl.feedback.sandbox import CheckerSandbox

ASKS = re.compile(r"\bllm_(?:call|score|judge|extract)\b")
"""What VerIF's functions call to ask a language model."""
MARK = re.compile(r"\s*\[(rule|llm)\]\s*", re.IGNORECASE)


class CodedSet(RubricSet):
    """Prompts whose rules may be Python source.

    What a checker returns is taken as Python's `if` takes it, as the authors do. One that raises, takes too long or
    asks for what does not exist is undecided: its verdict is missing.
    """

    sandbox: CheckerSandbox = CheckerSandbox()
    """Where code of the data runs."""
    returns: Literal["truth", "bool"] = "truth"
    """`truth`: whatever Python's `if` takes for true is kept, anything else broken. `bool`: true or false, else
    undecided.
    """

    def coded(
        self, checkers: Sequence[Any], functions: Sequence[Any], prompt: Prompt, texts: Sequence[str] | None = None
    ) -> list[Demand]:
        """Return the criteria of VerIF's columns. Raises `BadRow`.

        checkers: each with a mark, `[rule]` or `[llm]`. functions: the sources, None where there is none.
        texts: the criteria in words, where the data has them.
        """
        check_lengths(checkers=checkers, functions=functions, **({} if texts is None else {"criteria": texts}))
        sources = [source for source in functions if source is not None]
        if not all(isinstance(text, str) for text in (*checkers, *sources)):
            raise BadRow("checkers and functions: wants texts")
        words = list(map(in_words, checkers, functions)) if texts is None else texts
        rows = zip(words, checkers, functions, strict=True)
        return [self._demand(text, checker, source, as_one_text(prompt)) for text, checker, source in rows]

    def _demand(self, text: str, checker: str, source: str | None, instruction: str) -> Demand:
        """Return a checker that is a rule is checked by its source in the sandbox, unless it has none or asks a
        language model.
        """
        if not is_hard(checker, source):
            return Demand(text, hard=False)
        if not source or not source.strip():
            return Demand(text, kind=CODE_CHECKER, why="without its source")
        if asks_a_model(source):
            return Demand(text, kind=CODE_CHECKER, why="it asks a language model")
        return Demand(text, self.check(source, instruction, text), CODE_CHECKER)

    def check(self, source: str, instruction: str, label: str) -> Check:
        """Return the check of a source that defines `check_following(instruction, response)`.

        The authors run it where `re` has been imported, so it is imported here too.
        """
        free = "import re" not in source and "from __future__" not in source
        sandbox = self.sandbox.given()
        return {
            "name": CODE_CHECKER,
            "source": f"import re\n{source}" if free else source,
            "function": "check_following",
            "order": ["instruction", "response"],
            "arguments": {"instruction": instruction},
            "label": label,
            **({} if self.returns == "bool" else {"returns": self.returns}),
            **({"sandbox": sandbox} if sandbox else {}),
        }


def mark(checker: str) -> tuple[Literal["rule", "llm"] | None, str]:
    """`"[rule] Number_Paragraphs"` -> ("rule", "Number_Paragraphs"); None when there is no mark."""
    match = MARK.match(checker)
    if match is None:
        return None, checker.strip()
    return ("rule" if match[1].lower() == "rule" else "llm"), checker[match.end() :].strip()


def is_hard(checker: str, source: str | None) -> bool:
    """Is it a rule? `[rule]` and `[llm]` decide; without a mark it is one unless its source asks a language model."""
    kind, _ = mark(checker)
    return kind == "rule" if kind else bool(source and source.strip()) and not asks_a_model(source)


def asks_a_model(source: str | None) -> bool:
    """Return True if the source asks a language model. For that the sandbox has no network."""
    return ASKS.search(source or "") is not None


def asked_of_model(source: str | None) -> str | None:
    """Return the constraint that a source hands to VerIF's `llm_score` or `llm_judge` as text, the third argument; None
    without one.

    The source is cut into tokens and nothing else.
    """
    tokens = []
    try:
        for token in tokenize.generate_tokens(io.StringIO(source or "").readline):
            tokens.append(token)
    except (tokenize.TokenError, SyntaxError):
        pass  # what came before the place that is no Python is enough, or there is nothing
    calls: list[_Call | None] = []  # what is open: a call that asks, or None for any other bracket
    texts: dict[int, str] = {}
    for place, (before, token) in enumerate(pairwise(tokens)):
        if token.string in ("(", "[", "{"):
            asks = token.string == "(" and before.string in ("llm_score", "llm_judge")
            calls.append(_Call(place) if asks else None)
        elif token.string in (")", "]", "}"):
            if calls and (call := calls.pop()):
                texts[call.place] = call.text()
        elif calls and (call := calls[-1]):
            call.read(token)
    texts |= {call.place: call.text() for call in calls if call}
    return next((text for _, text in sorted(texts.items()) if text), None)


@dataclass
class _Call:
    """A call that asks a language model, read token by token."""

    place: int
    argument: int = 0
    parts: list[str] = field(default_factory=list)
    readable: bool = True

    def read(self, token: tokenize.TokenInfo) -> None:
        self.argument += token.string == ","
        if self.argument == 2 and token.type == tokenize.STRING:
            try:
                value = ast.literal_eval(token.string)  # one token that is a string's text: no code
            except (ValueError, SyntaxError):
                self.readable = False
                return
            self.parts.append(value if isinstance(value, str) else "")

    def text(self) -> str:
        """Return the third argument; "" unless it is text as it stands."""
        return "".join(self.parts).strip() if self.readable else ""


def in_words(checker: str, source: str | None) -> str:
    """Return the criterion for a judge: the checker's words; where it is a bare name (Desired_Writing_Style), what its
    source asks a language model, else the name in words.
    """
    _, text = mark(checker)
    if re.fullmatch(r"\w+", text):
        return asked_of_model(source) or text.replace("_", " ").strip()
    return text
