"""Prompts whose rules may be Python source. The code runs in the sandbox and nowhere else.

Here the source, which VerInstruct (Peng et al. 2025, "VerIF") has beside each criterion, is only read as text: to find
out whether it asks a language model, and the question.
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
"""Names of the functions with which VerIF's code asks a language model."""
MARK = re.compile(r"\s*\[(rule|llm)\]\s*", re.IGNORECASE)


class CodedSet(RubricSet):
    """Reader of prompts whose rules may be Python source.

    The return value of a checker counts as in Python's `if`, as in the authors' code. A checker that raises, takes too
    long or needs something that does not exist is undecided: its verdict is missing.
    """

    sandbox: CheckerSandbox = CheckerSandbox()
    """Sandbox in which code of the data runs."""
    returns: Literal["truth", "bool"] = "truth"
    """Meaning of a return value. `truth`: the criterion is satisfied by any value that is true in Python's `if`, else
    violated. `bool`: true or false; any other value is undecided.
    """

    def coded(
        self, checkers: Sequence[Any], functions: Sequence[Any], prompt: Prompt, texts: Sequence[str] | None = None
    ) -> list[Demand]:
        """Return the criteria of VerIF's columns. Raises `BadRow`.

        checkers: each with a mark, `[rule]` or `[llm]`. functions: the sources, None for a missing source. texts: the
        criteria in words, if the data has them.
        """
        check_lengths(checkers=checkers, functions=functions, **({} if texts is None else {"criteria": texts}))
        sources = [source for source in functions if source is not None]
        if not all(isinstance(text, str) for text in (*checkers, *sources)):
            raise BadRow("checkers and functions: wants texts")
        words = list(map(in_words, checkers, functions)) if texts is None else texts
        rows = zip(words, checkers, functions, strict=True)
        return [self._demand(text, checker, source, as_one_text(prompt)) for text, checker, source in rows]

    def _demand(self, text: str, checker: str, source: str | None, instruction: str) -> Demand:
        """Return the criterion of a checker. A rule is checked by its source in the sandbox, unless it has no source or
        asks a language model.
        """
        if not is_hard(checker, source):
            return Demand(text, hard=False)
        if not source or not source.strip():
            return Demand(text, kind=CODE_CHECKER, why="without its source")
        if asks_a_model(source):
            return Demand(text, kind=CODE_CHECKER, why="it asks a language model")
        return Demand(text, self.check(source, instruction, text), CODE_CHECKER)

    def check(self, source: str, instruction: str, label: str) -> Check:
        """Return the check for a source that defines `check_following(instruction, response)`.

        The authors' code imports `re` before it runs the source, so `re` is imported here too.
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
    """Return the mark and the name: `"[rule] Number_Paragraphs"` -> ("rule", "Number_Paragraphs"). The mark is None if
    there is none.
    """
    match = MARK.match(checker)
    if match is None:
        return None, checker.strip()
    return ("rule" if match[1].lower() == "rule" else "llm"), checker[match.end() :].strip()


def is_hard(checker: str, source: str | None) -> bool:
    """Return True if the checker is a rule. `[rule]` and `[llm]` decide; without a mark, it is a rule unless its source
    asks a language model.
    """
    kind, _ = mark(checker)
    return kind == "rule" if kind else bool(source and source.strip()) and not asks_a_model(source)


def asks_a_model(source: str | None) -> bool:
    """Return True if the source asks a language model. The sandbox has no network for that."""
    return ASKS.search(source or "") is not None


def asked_of_model(source: str | None) -> str | None:
    """Return the constraint that a source passes to VerIF's `llm_score` or `llm_judge` as text, the third argument;
    None if there is none. The source is only tokenized.
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
        """Return the third argument; "" unless it is a literal text."""
        return "".join(self.parts).strip() if self.readable else ""


def in_words(checker: str, source: str | None) -> str:
    """Return the criterion in words for a judge: the checker's words. If they are a bare name (Desired_Writing_Style),
    the question that its source asks a language model, else the words of the name.
    """
    _, text = mark(checker)
    if re.fullmatch(r"\w+", text):
        return asked_of_model(source) or text.replace("_", " ").strip()
    return text
