"""Words and marks as IFEval's and IFBench's word tokenizer (nltk's `word_tokenize`) cuts them, without its trained
data.

nltk first splits sentences with punkt, a download, then cuts each by rules. Here the rules are written anew, and
`fgrl.feedback.rules.sentences.prose` finds the sentences. Sentences matter for one decision: a period is a separate
token only at the end of a sentence.
"""

from __future__ import annotations

import re

from fgrl.feedback.rules.sentences import final_periods
from fgrl.feedback.rules.text import View, whole

FINAL = "\ue000"
"""Character that replaces the period at the end of a sentence."""
MARK = r"[\[\](){}<>;@#$%&?!*\"“”„«»‘’\u2012-\u2015" + FINAL + "]"
CLITIC = r"(?:n't|N'T|'(?:ll|LL|re|RE|ve|VE|[sSmMdD])?)"
BREAK = rf"(?:\s|$|{MARK}|`|\.{{2}}|--|[:,](?!\d))"
TOKEN = re.compile(
    rf"\.{{2,}}|--|``?|''|(?<!\w)'(?=\w)(?!{CLITIC}{BREAK})|{MARK}|[:,](?!\d)"
    rf"|(?<=[^\s']){CLITIC}(?={BREAK})"
    rf"|(?:(?!{BREAK})\S)(?:(?!{BREAK}|{CLITIC}{BREAK})\S)*"
    r"|\S"
)
TWO_IN_ONE = {
    "cannot": 3,
    "gimme": 3,
    "gonna": 3,
    "gotta": 3,
    "lemme": 3,
    "wanna": 3,
    "more'n": 4,
    "'tis": 2,
    "'twas": 2,
}
"""Words that are cut in two, and the place of the cut."""


def tokens(text: str) -> list[View]:
    """Return the words, clitics ("do" and "n't") and marks, from left to right; a hyphenated word is one token."""
    ends = final_periods(text)
    marked = "".join(FINAL if index in ends else character for index, character in enumerate(text))
    view = whole(text)
    result = []
    for match in TOKEN.finditer(marked):
        start, end = match.span()
        cut = TWO_IN_ONE.get(match.group().lower())
        if cut is not None:
            result.append(view.part(start, start + cut))
            start += cut
        result.append(view.part(start, end))
    return result
