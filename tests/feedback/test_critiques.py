"""The JSON of a critique, written and read: never a guess, never an exception, no quote lost in silence."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from fgrl.base.errors import DataError
from fgrl.feedback.critiques import Critique, CritiqueFormat, read_critique, write_critique
from fgrl.feedback.llm.asking import Parsed
from fgrl.feedback.llm.reading import Refused
from fgrl.feedback.quoting import QuoteSearch
from fgrl.types import Annotation, Span

FORM = CritiqueFormat()
CODE = CritiqueFormat(text="code_feedback", labels={"wrong_code": -1.0, "improvement_code": 0.0})
SPANS = CritiqueFormat(text=None)
EXACT = QuoteSearch(fuzzy=None)
SEA = "the sea, the sea"


def read(
    output: str, response: str = SEA, form: CritiqueFormat = FORM, search: QuoteSearch = EXACT
) -> Parsed[Critique]:
    return read_critique(output, response, form, search)


def critique(good: Any = (), poor: Any = (), text: Any = "fine", **more: Any) -> str:
    return json.dumps({"textual_feedback": text, "good_spans": good, "poor_spans": poor, **more})


def places(parsed: Parsed[Critique]) -> list[tuple[int, int, float]]:
    return [(span.start, span.end, span.label) for span in parsed.value.annotation.spans]


# -- the format --------------------------------------------------------------------------------------------------------


def test_the_schema_requires_every_key_and_allows_no_other() -> None:
    schema = CODE.json_schema()
    assert schema["required"] == ["code_feedback", "wrong_code", "improvement_code"]
    assert schema["additionalProperties"] is False
    assert list(SPANS.json_schema()["properties"]) == ["good_spans", "poor_spans"]


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"text": "good_spans"}, "needs a different name"),
        ({"text": ""}, "needs a different name"),
        ({"labels": {"good": 1.0, "great": 1.0}}, "the same label"),
        ({"labels": {}}, "at least 1"),
    ],
)
def test_a_format_in_which_a_span_could_mean_two_things_is_refused(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        CritiqueFormat(**settings)


# -- writing -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [FORM, SPANS], ids=["critique", "spans alone"])
def test_what_is_written_reads_back_the_same(form: CritiqueFormat) -> None:
    text = 'Über "Meer" \U0001f30a\n\tund \\n, und Meer.'
    spans = [Span(start=0, end=11), Span(start=24, end=28), Span(start=12, end=13, label=-1.0)]
    annotation = Annotation(critique=None if form.text is None else 'Sehr "gut" \u2026', spans=spans)
    parsed = read(write_critique(annotation, text, form), text, form)
    assert not parsed.repaired
    assert parsed.value.annotation.critique == annotation.critique
    assert places(parsed)[0] == (0, 11, 1.0)
    assert places(parsed)[-1] == (12, 13, -1.0)


def test_the_object_has_its_keys_in_the_order_of_the_format_and_quotes_in_the_order_of_the_text() -> None:
    annotation = Annotation(critique="ok", spans=[Span(start=9, end=16), Span(start=0, end=3)])
    assert write_critique(annotation, SEA, FORM) == (
        '{"textual_feedback": "ok", "good_spans": ["the", "the sea"], "poor_spans": []}'
    )


def test_neutral_spans_are_left_out_unless_there_is_a_list_for_them() -> None:
    annotation = Annotation(critique="ok", spans=[Span(start=0, end=3, label=0.0)])
    assert json.loads(write_critique(annotation, SEA, FORM))["good_spans"] == []
    assert json.loads(write_critique(annotation, SEA, CODE))["improvement_code"] == ["the"]


def test_what_the_format_cannot_express_is_an_error_with_the_next_step() -> None:
    with pytest.raises(
        DataError, match=r"label 0.5, and no list of the format is for it: good_spans: 1, poor_spans: -1"
    ):
        write_critique(Annotation(critique="ok", spans=[Span(start=0, end=3, label=0.5)]), SEA, FORM)
    with pytest.raises(DataError, match="has no critique: set `text: null`"):
        write_critique(Annotation(), SEA, FORM)


# -- reading -----------------------------------------------------------------------------------------------------------


def test_quotes_become_spans_with_their_list_s_label() -> None:
    parsed = read(critique(["sea", "sea"], ["the sea"]))
    assert places(parsed) == [(4, 7, 1.0), (13, 16, 1.0), (0, 7, -1.0)]
    assert parsed.value.annotation.critique == "fine"
    assert not parsed.repaired
    assert places(read(critique(["sea"]), search=QuoteSearch(occurrence="all"))) == [(4, 7, 1.0), (13, 16, 1.0)]


def test_an_object_without_a_quote_is_a_critique_without_spans() -> None:
    parsed = read(critique())
    assert parsed.value.annotation == Annotation(critique="fine")
    assert parsed.value.records() == []


def test_a_quote_that_is_not_there_loses_only_itself_and_is_on_record() -> None:
    parsed = read(critique(["sea", "land"], ["THE SEA"]), search=QuoteSearch(ignore_case=True))
    assert places(parsed) == [(4, 7, 1.0), (0, 7, -1.0)]
    assert parsed.value.records() == [
        {"list": "good_spans", "quote": "sea", "kind": "exact", "score": 1.0, "start": 4, "end": 7},
        {"list": "good_spans", "quote": "land", "kind": None},
        {"list": "poor_spans", "quote": "THE SEA", "kind": "normalised", "score": 1.0, "start": 0, "end": 7},
    ]


@pytest.mark.parametrize("wrap", ["```json\n{}\n```", "```\n{}", "\n {} \n"])
def test_a_fence_and_white_space_around_the_object_are_no_repair(wrap: str) -> None:
    parsed = read(wrap.replace("{}", critique(["sea"])))
    assert places(parsed) == [(4, 7, 1.0)]
    assert not parsed.repaired


@pytest.mark.parametrize(
    "output",
    [
        critique(["sea"]).replace("]", "],", 1).replace("],,", "],"),
        critique(["sea"])[:-1] + ",}",
        critique(["sea"]).replace('"', "'"),
        critique(["sea"]).replace('["sea"]', "[\u201csea\u201d]").replace("fine", "a\nb"),
        f"Here it is: {critique(['sea'])} Good luck!",
        critique(["sea"], text="x").replace('"x"', '"he says "the sea" twice"'),
    ],
)
def test_what_json_repair_can_read_is_counted_as_repaired_unless_it_was_valid(output: str) -> None:
    parsed = read(output)
    assert places(parsed) == [(4, 7, 1.0)]
    assert parsed.repaired != _is_json(output)


@pytest.mark.parametrize(
    "output",
    [
        f"{critique(['sea'])}\nI marked [one] passage.",
        f"The {{json}} that you asked for: {critique(['sea'])}",
        f"The {{json}} that you asked for:\n```json\n{critique(['sea'])[:-1]},}}\n```\nDone.",
        critique(["sea"], text="Write\n```python\nreturn 1\n```\ninstead."),
        critique(["sea"], text="Write\n```python\nreturn 1\n```\ninstead.").replace("\\n", "\n"),
        f"```json\n{critique(['sea'], text='Write `{}`.')}\n```\nAs [asked].".replace(
            "`{}`", "\n```\nreturn {}\n```\n"
        ),
    ],
    ids=["text after", "braces before", "braces before, invalid", "fence inside", "fence inside, line breaks", "both"],
)
def test_an_object_is_read_among_other_text_and_with_a_fence_inside(output: str) -> None:
    assert places(read(output)) == [(4, 7, 1.0)]


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(
    ("output", "why"),
    [
        ("", "no JSON"),
        ("It is fine.", "no JSON"),
        ("[" * 50_000, "no JSON"),
        ('{"a":' * 50_000, "no JSON"),
        (critique(text=None), "textual_feedback: Input should be a valid string"),
        (critique("sea"), "good_spans: Input should be a valid (list|array)"),
        (critique(["sea", 3]), "good_spans.1: Input should be a valid string"),
        (critique([["sea"]]), "good_spans.0: Input should be a valid string"),
        (critique([{"span": "sea"}]), "good_spans.0: Input should be a valid string"),
        (critique(None), "good_spans: Input should be a valid (list|array)"),
        (critique(score=3), "score: Extra inputs are not permitted"),
        (critique().replace("poor_spans", "bad_spans"), "poor_spans: Field required"),
        (f"[{critique()}]", "does not fit"),
        (critique() + critique(), "more than once"),
        (critique(["sea"])[:-1] + ', "good_spans": []}', "good_spans is there more than once"),
        (critique(["sea"])[:-1] + ", 'good_spans': [],}", "good_spans is there more than once"),
        (critique(["sea"], ["the"])[:-1], "does not close"),
        (critique(["sea"], ["the"])[:-4], "does not close"),
        (critique(["sea"])[: critique(["sea"]).rindex("]")], "does not close"),
        (critique(text="\ud800"), "half of a character"),
    ],
)
def test_what_does_not_fit_is_a_failure_with_its_reason(output: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read(output)


def test_declining_is_told_from_what_cannot_be_read() -> None:
    with pytest.raises(Refused, match="declines to criticise"):
        read("I'm sorry, I cannot criticise this.")


def test_a_quote_that_repair_has_made_up_is_not_searched_for() -> None:
    """json-repair reads the bare word `the` as a text."""
    parsed = read('{"textual_feedback": "x", "good_spans": [the, "sea"], "poor_spans": [],}')
    assert parsed.repaired
    assert places(parsed) == [(4, 7, 1.0)]
    assert {"list": "good_spans", "quote": "the", "kind": None} in parsed.value.records()


# -- 10,000 mutated outputs --------------------------------------------------------------------------------------------

RESPONSES = [
    "My boss says the manuscript may be rejected; the manuscript is 200 pages long.",
    'def area(r):\n    """Of a circle."""\n    return 3.14 * r * r  # {"r": [1]}\n',
    "Gr\u00fc\u00dfe aus K\u00f6ln \U0001f469\u200d\U0001f680, \u4f60\u597d\uff0c\u4e16\u754c. It\u2019s \u201cgood\u201d, isn't it?",
    "a, b: [c] {d} \\n \"e\" 'f' // g /* h */ a, b",
]
JUNK = [
    '"',
    "'",
    "\\",
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    "\n",
    "\x00",
    "\ud800",
    "```",
    "null",
    "3",
    "\\u00e9",
    "\\ud83d",
    "\u201c",
    "//",
]
Mutation = Callable[[random.Random, str], str]


def _cut(draw: random.Random, text: str) -> str:
    start, end = sorted(draw.choices(range(len(text) + 1), k=2))
    return text[:start] + text[min(end, start + draw.randint(1, 12)) :]


def _insert(draw: random.Random, text: str) -> str:
    place = draw.randint(0, len(text))
    return text[:place] + draw.choice(JUNK) + text[place:]


def _repeat(draw: random.Random, text: str) -> str:
    start, end = sorted(draw.choices(range(len(text) + 1), k=2))
    return text[:end] + text[start:]


def _swap(draw: random.Random, text: str) -> str:
    mark = draw.choice("\"',:[]{}")
    return text.replace(mark, draw.choice(JUNK), draw.randint(1, 3))


def _truncate(draw: random.Random, text: str) -> str:
    return text[: draw.randint(0, len(text))]


def _surround(draw: random.Random, text: str) -> str:
    return draw.choice(["```json\n{}\n```", "Sure! {}", "{} Hope it helps.", "[{}]", "<b>{}</b>", "```\n{}"]).replace(
        "{}", text
    )


def _other_values(draw: random.Random, text: str) -> str:
    return text.replace(
        "[", draw.choice(["[1, ", "[null, ", '[["x"], ', '[{"a": "b"}, ', "[true,", '["",', '["a", "b",']), 1
    )


MUTATIONS: list[Mutation] = [_cut, _insert, _repeat, _swap, _truncate, _surround, _other_values]


def outputs(count: int, seed: int) -> Iterator[tuple[str, str, CritiqueFormat]]:
    """(output, response, format): a sound critique with passages of the response, then none to three mutations."""
    draw = random.Random(seed)
    for _ in range(count):
        response, form = draw.choice(RESPONSES), draw.choice([FORM, CODE, SPANS])
        spans = []
        for label in draw.choices(list(form.labels.values()), k=draw.randint(0, 4)):
            start = draw.randrange(len(response))
            spans.append(Span(start=start, end=min(len(response), start + draw.randint(1, 20)), label=label))
        comment = draw.choice(["Good.", 'It says "good_spans": [].', response[:30], "a\nb \u2026 {}"])
        text = write_critique(Annotation(critique=comment, spans=spans), response, form)
        for mutation in draw.choices(MUTATIONS, k=draw.randint(0, 3)):
            text = mutation(draw, text)
        yield text, response, form


def sound(text: str, form: CritiqueFormat) -> dict[str, Any] | None:
    """The object if the text is valid JSON of the format, by the standard library alone; None for anything else."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        if len({key for key, _value in pairs}) < len(pairs):
            raise ValueError
        return dict(pairs)

    try:
        value = json.loads(text, object_pairs_hook=once)
        text.encode()
        json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or set(value) != {*form.labels, form.text} - {None}:
        return None
    lists = [value[key] for key in form.labels]
    texts = [value[form.text]] if form.text is not None else []
    if not all(isinstance(part, list) for part in lists):
        return None
    return (
        value if all(isinstance(part, str) for part in [*texts, *(quote for part in lists for quote in part)]) else None
    )


def strings(text: str) -> set[str]:
    """Everything between two quotation marks of a text, as it stands and with JSON's escapes resolved."""
    marks = [place for place, character in enumerate(text) if character in "\"'\u201c\u201d"]
    between = {text[i + 1 : j] for number, i in enumerate(marks) for j in marks[number + 1 :]}
    resolved = set()
    for part in between:
        try:
            resolved.add(json.loads(f'"{part}"', strict=False))
        except ValueError:
            resolved.add(part.replace("\\'", "'"))
    return between | resolved


def check(text: str, response: str, form: CritiqueFormat, search: QuoteSearch) -> str:
    """What became of an output: "valid", "repaired" or "failed"; asserts what holds for each."""
    value = sound(text, form)
    try:
        parsed = read(text, response, form, search)
    except ValueError:  # and no other exception
        assert value is None
        return "failed"
    found = parsed.value
    quoted = {key: [quote for quote, _places in own.located] for key, own in found.quotes.items()}
    if value is not None:
        assert not parsed.repaired
        assert quoted == {key: value[key] for key in form.labels}
        for own in found.quotes.values():
            assert all(matches for quote, matches in own.located if quote.strip() and quote in response)
    located = [(quote, match) for own in found.quotes.values() for quote, places in own.located for match in places]
    whole = strings(text) if located else set()
    for quote, match in located:
        assert quote in whole
        if match.kind == "exact":
            assert response[match.start : match.end] == quote
    assert {(match.start, match.end) for _quote, match in located} == {
        (span.start, span.end) for span in found.annotation.spans
    }
    found.annotation.model_dump_json()
    return "repaired" if parsed.repaired else "valid"


@pytest.mark.parametrize(
    ("count", "search"),
    [(2_000, EXACT), pytest.param(8_000, QuoteSearch(occurrence="all"), marks=pytest.mark.evidence)],
    ids=["2,000 exact", "8,000 fuzzy, all places"],
)
def test_ten_thousand_mutated_outputs(count: int, search: QuoteSearch) -> None:
    outcomes = [check(*case, search) for case in outputs(count, seed=count)]
    shares = {name: outcomes.count(name) / len(outcomes) for name in ("valid", "repaired", "failed")}
    assert all(share > 0.05 for share in shares.values()), shares
