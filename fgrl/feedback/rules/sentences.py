r"""Division into sentences, in the two ways in which IFEval and IFBench count them.

`sentences` follows IFBench's own splitter, which is made of substitutions: some periods are set aside (titles,
decimals, web addresses, initials, dots in a row), every other `.`, `?` and `!` ends a sentence, and a closing quotation
mark after one is pulled into the sentence, before the mark. Here the same decisions are taken on a text that keeps the
original places of its characters.

`prose` stands for the trained tokenizer (punkt) that IFEval loads from nltk's data, which is a download: a sentence
ends at marks that white space or the end follows, unless they belong to an abbreviation. docs/how-to/verifiers.md lists
where the two may differ.
"""

from __future__ import annotations

import re

from fgrl.feedback.rules.text import CharRange, View, trimmed

ASIDE = "\ue000"
"""Character that replaces a period that ends no sentence, while the substitutions run."""
STARTERS = r"(?:Mr|Mrs|Ms|Dr|Prof|Capt|Cpt|Lt|He\s|She\s|It\s|They\s|Their\s|Our\s|We\s|But\s|However\s|That\s|This\s|Wherever)"
COMPANIES = "(?:Inc|Ltd|Jr|Sr|Co)"

_STEPS: list[tuple[str, bool]] = [
    # a pattern whose periods are set aside; does a sentence end behind it?
    (r"(?:Mr|St|Mrs|Ms|Dr)\.", False),
    (r"\.(?=com|net|org|io|gov|edu|me)", False),
    (r"[0-9]\.[0-9]", False),
    (r"\.{2,}", True),
    (r"Ph\.D\.", False),
]
_INITIAL = re.compile(r"\s(?P<period>[A-Za-z]\.)(?= )")
_ACRONYM = re.compile(r"[A-Z]\.[A-Z]\.(?:[A-Z]\.)?(?P<next> " + STARTERS + ")")
_LATER_STEPS = [
    r"[A-Za-z]\.[A-Za-z]\.[A-Za-z]\.",
    r"[A-Za-z]\.[A-Za-z]\.",
]
_COMPANY_THEN_STARTER = re.compile(" " + COMPANIES + r"\.(?P<next> " + STARTERS + ")")
_LAST_STEPS = [" " + COMPANIES + r"\.", r" [A-Za-z]\."]


def sentences(text: str) -> list[View]:
    """Return the sentences as IFBench splits them, each without the white space around it.

    A sentence's text may have its closing quotation mark before the period (`"no".` of `"no."`), and lacks the period
    of a company that ends it ("Acme Inc. It grew"), as there. A sentence between two ends may be empty.
    """
    padded = " " + text.replace("\n", " ") + "  "
    work, stops, lost = _set_aside(padded)
    padded = "".join(" " if now == " " else before for before, now in zip(padded, work, strict=True))
    result: list[View] = []
    current: list[int] = []
    for place in _quotes_inside(work):
        if place not in lost:
            current.append(place)
        if work[place] in ".?!" or place in stops:
            result.append(_sentence(padded, current))
            current = []
        if work[place] in ".?!" and place in stops:
            result.append(_sentence(padded, []))
    last = _sentence(padded, current)
    return [*result, last] if last.text else result


def _set_aside(text: str) -> tuple[str, set[int], set[int]]:
    """Return three results: the text with `ASIDE` for periods that end nothing and a space for any white space before
    an initial; the characters behind which a sentence ends nevertheless; the periods that get lost.
    """
    stops: set[int] = set()
    lost: set[int] = set()

    def run(pattern: str | re.Pattern[str], stop: bool = False) -> None:
        nonlocal text

        def aside(match: re.Match[str]) -> str:
            if stop:
                stops.add(_before_next(match))
            return match.group().replace(".", ASIDE)

        text = re.sub(pattern, aside, text)

    for pattern, stop in _STEPS:
        run(pattern, stop)
    text = _INITIAL.sub(lambda match: " " + match["period"].replace(".", ASIDE), text)
    stops.update(_before_next(match) for match in _ACRONYM.finditer(text))
    for pattern in _LATER_STEPS:
        run(pattern)
    lost.update(_before_next(match) for match in _COMPANY_THEN_STARTER.finditer(text))
    run(_COMPANY_THEN_STARTER, stop=True)
    for pattern in _LAST_STEPS:
        run(pattern)
    return text, stops, lost


def _before_next(match: re.Match[str]) -> int:
    """Return the last character before the word that begins the next sentence."""
    return (match.start("next") if "next" in match.re.groupindex else match.end()) - 1


def _quotes_inside(text: str) -> list[int]:
    """Return the order of the characters after each closing quotation mark is swapped with the end mark before it."""
    order = list(range(len(text)))
    for mark, quote in ((".", "”"), (".", '"'), ("!", '"'), ("?", '"')):
        index = 0
        while index + 1 < len(order):
            if text[order[index]] == mark and text[order[index + 1]] == quote:
                order[index], order[index + 1] = order[index + 1], order[index]
                index += 2
            else:
                index += 1
    return order


def _sentence(padded: str, places: list[int]) -> View:
    return View("".join(padded[place] for place in places), tuple(place - 1 for place in places)).stripped()


# -- prose ---------------------------------------------------------------------------------------------------------------

_END = re.compile(r"(?<![.?!])[.?!]++[\"'”’»)\]}*]*+(?=\s|$)")
_NEXT = re.compile(r"\s*+(\S?)")
_INSIDE = "mr mrs ms dr prof rev hon st capt cpt lt col gen sgt gov sen rep pres mt vs fig figs e.g i.e eg ie cf ca"
_ANYWHERE = (
    "sr jr ft etc al approx dept est inc ltd co corp bros no nos vol vols pp ed eds a.m p.m u.s u.k u.n ph.d m.d b.a m.a d.c "
    "jan feb mar apr jun jul aug sep sept oct nov dec"
)
_NEVER_LAST = frozenset(_INSIDE.split())
_ABBREVIATIONS = frozenset(_ANYWHERE.split()) | _NEVER_LAST
_CLOSING = "\"'”’»)]}*"


def prose(text: str) -> list[CharRange]:
    """Return the sentences as places in the text.

    A sentence ends with `.`, `?` or `!` (and closing quotes or brackets) before white space or the end. It does not end
    at an abbreviation, unless the abbreviation may end a sentence ("etc.") and a capital follows. It does not end at an
    initial ("J. Smith"), nor at dots or a number before a lower-case word. So the number of a list item ("1. First") is
    a sentence, as it is for punkt. The text after the last end is a sentence too.
    """
    result = []
    start = 0
    for match in _END.finditer(text):
        if _ends(text, match):
            result.append((start, match.end()))
            start = match.end()
    result.append((start, len(text)))
    return [place for place in (trimmed(text, bounds) for bounds in result) if place[0] < place[1]]


def final_periods(text: str) -> set[int]:
    """Return the characters that are the single period at the end of a sentence."""
    result = set()
    for start, end in prose(text):
        last = start + len(text[start:end].rstrip("\"'”’»)]} ")) - 1
        if last >= start and text[last] == "." and (last == 0 or text[last - 1] != "."):
            result.add(last)
    return result


def _next(text: str, at: int) -> str:
    """Return the first character from `at` on that is no white space; "" at the end."""
    match = _NEXT.match(text, at)
    return match[1] if match else ""


def _ends(text: str, match: re.Match[str]) -> bool:
    marks = match.group().rstrip(_CLOSING)
    rest = _next(text, match.end())
    follows = rest.lstrip(_CLOSING)
    if not marks.startswith(".") or len(marks.strip(".")) > 0:
        return True
    if len(marks) > 1:
        return not follows.islower()
    before = text[max(0, match.start() - 40) : match.start()]
    word = "" if not before or before[-1].isspace() else before.split()[-1].lstrip("\"'“‘([{*_")
    if re.fullmatch(r"\d+", word):
        return not follows.islower()
    if re.fullmatch(r"[A-Z]", word) and word != "I" and rest:
        return False
    if word.lower() in _ABBREVIATIONS and rest:
        return word.lower() not in _NEVER_LAST and follows.isupper()
    return True
