"""Conversion of MulDimIF's constraints (Ye et al. 2025), which are sentences, into rules.

A constraint is [category, kind, sentence]. The authors' checkers look for numbers and words in the sentence and ignore
the rest of it; here a sentence becomes a rule only if all of it is understood and it is about the whole response: the
number of words or sentences, keywords in quotation marks, the last punctuation mark, upper or lower case throughout.
All other constraints, such as tables, headings, JSON and XML, are left to the judge. Words and sentences are counted as
in IFEval's rules. This does not work for a text without spaces between words, so length constraints of Chinese prompts
are left to the judge as well.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from fgrl.data.row import BadRow, short
from fgrl.data.rubrics.demand import Check, Demand
from fgrl.data.values import as_list, check_lengths

NUMBERS = {
    "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "eleven": 11,
    "twelve": 12, "fifteen": 15, "twenty": 20, "thirty": 30, "fifty": 50,
}  # fmt: skip
A_NUMBER = rf"(\d[\d,]{{0,8}}|{'|'.join(NUMBERS)})"
LEAD = r"(?:(?:and|while|also|additionally|furthermore|finally|lastly),? )?(?:(?:please )?(?:make sure|ensure|ensuring)(?: that)? )?"
WHO = r"(?:the |your |it |)(?:(?:entire|whole|full|overall) )?(?:answer|response|output|text|reply|)\s?"
MUST = r"(?:(?:must|should|shall|has to|needs to|is to) )?"
HOLDS = r"(?:(?:be|is|contain|contains|have|has|include|includes|consist of|consists of|be composed of|be made up of|comprise|use) )?"
WHY = r"(?:,? (?:to|in order to|ensuring|providing|maintaining|adhering to|as this is|making)\b(?P<why>.*))?"
"""Pattern of a purpose at the end of a constraint, which must ask for nothing more (`_plain`)."""
HOW = rf"{LEAD}{WHO}{MUST}(?:also )?"
LENGTHS = {
    rf"{HOW}{HOLDS}(?:at least|a minimum of|no (?:fewer|less) than|not (?:fewer|less) than):? {A_NUMBER} UNIT": lambda n, _: (n, None),
    rf"{HOW}{HOLDS}more than {A_NUMBER} UNIT": lambda n, _: (n + 1, None),
    rf"{HOW}{HOLDS}(?:at most|a maximum of|no (?:more|longer) than|not more than|limited to|up to):? {A_NUMBER} UNIT": lambda n, _: (0, n),
    rf"{HOW}(?:not exceed|does not exceed|not exceeding|exceed no more than) {A_NUMBER} UNIT": lambda n, _: (0, n),
    rf"{HOW}{HOLDS}(?:fewer|less) than {A_NUMBER} UNIT": lambda n, _: (0, n - 1),
    rf"{HOW}{HOLDS}exactly:? {A_NUMBER} UNIT": lambda n, _: (n, n),
    rf"{HOW}{HOLDS}(?:between |range:? |a range of |from )?{A_NUMBER}(?: ?[-–] ?| to | and ){A_NUMBER} UNIT": lambda low, high: (low, high),
}  # fmt: skip
QUOTED = r"'[^']+'|\"[^\"]+\"|“[^”]+”|‘[^’]+’"
KEYWORDS = (
    rf"{HOW}(?:include|includes|contain|contains|use|uses|mention|mentions|incorporate|incorporates) "
    rf"(?:the |all of the |both )?(?:following )?(?:keyword|term|word|phrase)s?:? (?P<listed>(?:{QUOTED})(?:(?:, and |, | and )(?:{QUOTED}))*)"
)
INCLUDED = (
    rf"{LEAD}(?:the )?(?:keyword|term|word|phrase)s? (?P<listed>(?:{QUOTED})(?:(?:, and |, | and )(?:{QUOTED}))*) "
    r"(?:must|should) be (?:included|used|mentioned)(?: in (?:the|your) (?:answer|response|output|text))?"
)
MARKS = {"a period": ".", "a full stop": ".", "a question mark": "?", "an exclamation mark": "!", "an exclamation point": "!",
         "a semicolon": ";"}  # fmt: skip
MARK = rf"({'|'.join(MARKS)})"
ENDINGS = (
    rf"ending punctuation:? (?:must be )?{MARK}",
    rf"{HOW}(?:end|ends|conclude|concludes|finish|finishes) with {MARK}",
)
UPPER = rf"{HOW}(?:be |is )?(?:(?:provided|written|presented|given) )?(?:in )?(?:all )?(?:all[- ])?upper ?case(?: letters)?(?: only)?"
LOWER = UPPER.replace("upper", "lower")
TITLE = (
    rf"{HOW}(?:use |uses )?capitali[sz]ed letters for each word",
    rf"{HOW}capitali[sz]e (?:the first letter of )?(?:each|every) word",
    r"each word (?:in (?:the|your) (?:answer|response|output|text) )?must be capitali[sz]ed",
)
CHINESE = re.compile(r"[\u3400-\u9fff]")


def constraints(
    value: Any, prompt: str, judged: Sequence[str] = (), texts: Sequence[str] | None = None
) -> list[Demand]:
    """Return constraints [category, kind, sentence] as demands; they are counted as category_kind. Raises `BadRow`.
    texts: the constraints in other words, if the data has them (HiR-16K).
    """
    items = as_list(value, "constraints")
    if texts is not None:
        check_lengths(criteria=texts, constraints=items)
    demands = []
    for place, constraint in enumerate(items):
        if not _is_constraint(constraint):
            raise BadRow(f"constraint {short(constraint)}: wants [category, kind, sentence]")
        category, name, sentence = constraint
        kind = f"{category}_{name}"
        check = None if kind in judged else check_of(constraint, prompt)
        demands.append(Demand(sentence.strip() if texts is None else texts[place], check, kind))
    return demands


def _is_constraint(value: Any) -> bool:
    if not isinstance(value, Sequence) or len(value) != 3:
        return False
    return all(isinstance(part, str) and part.strip() for part in value)


def check_of(constraint: Sequence[str], prompt: str = "") -> Check | None:
    """Return the check of a constraint [category, kind, sentence]; None leaves it to the judge. prompt: the prompt of
    the constraint; a Chinese prompt has no rules for length.
    """
    _, _, sentence = constraint
    text = re.sub(r"\s+", " ", sentence).strip()
    if re.fullmatch(r'"+[^"]*"*|[^"]*"', text):  # around the sentence, not around its last keyword
        text = text.strip('"')
    text = text.rstrip(".").strip()
    topic = "_".join(constraint[:2]).lower()
    if "keyword" in topic:
        return _keywords(text)
    if "word" in topic or "sentence" in topic:
        if CHINESE.search(prompt + sentence):
            return None
        return _length(text, "sentence" if "sentence" in topic else "word")
    if "punctuation" in topic:
        ending = _match(ENDINGS, text)
        return None if ending is None else {"name": "end:last_characters", "characters": MARKS[ending[1].lower()]}
    if topic.startswith("language_english"):
        return _case(text)
    return None


def _length(text: str, unit: str) -> Check | None:
    for pattern, bounds in LENGTHS.items():
        match = _match((pattern.replace("UNIT", rf"{unit}s?(?: long| in length)?"),), text)
        if match is None:
            continue
        numbers = [_number(part) for part in match.groups() if part and (part[0].isdigit() or part.lower() in NUMBERS)]
        low, high = bounds(numbers[0], numbers[-1])
        if (high is None and low < 1) or (high is not None and high < max(low, 1)):
            return None  # nothing is asked, or nothing could do it
        return _words(low, high) if unit == "word" else _sentences(low, high)
    return None


def _words(low: int, high: int | None) -> Check:
    if high is None:
        return {"name": "length_constraints:number_words", "relation": "at least", "num_words": low}
    if low == 0:
        return {"name": "length_constraints:number_words", "relation": "less than", "num_words": high + 1}
    return {"name": "count:word_count_range", "min_words": low, "max_words": high}


def _sentences(low: int, high: int | None) -> Check:
    name = "length_constraints:number_sentences"
    rules: list[Check] = []
    if low > 0 or high is None:
        rules.append({"name": name, "relation": "at least", "num_sentences": low})
    if high is not None:
        rules.append({"name": name, "relation": "less than", "num_sentences": high + 1})
    return rules[0] if len(rules) == 1 else {"name": "all_of", "rules": rules}


def _keywords(text: str) -> Check | None:
    match = _match((KEYWORDS, INCLUDED), text)
    if match is None:
        return None
    words = [quoted[1:-1].strip() for quoted in re.findall(QUOTED, match["listed"])]
    return {"name": "keywords:existence", "keywords": words} if all(words) else None


def _case(text: str) -> Check | None:
    if _match((UPPER,), text):
        return {"name": "change_case:english_capital", "detect_language": False}
    if _match((LOWER,), text):
        return {"name": "change_case:english_lowercase", "detect_language": False}
    return {"name": "case:capitalized_words"} if _match(TITLE, text) else None


def _match(patterns: Sequence[str], text: str) -> re.Match[str] | None:
    for pattern in patterns:
        match = re.fullmatch(pattern + WHY, text, re.IGNORECASE)
        if match and _plain(match["why"] or ""):
            return match
    return None


def _plain(why: str) -> bool:
    """Return True if a purpose asks for nothing more."""
    return not re.search(
        r"\d|['\"]|\b(?:must|should|include|contain|use|each|every|and (?:it|the|end|be))\b", why, re.IGNORECASE
    )


def _number(text: str) -> int:
    return NUMBERS.get(text.lower()) or int(text.replace(",", ""))
