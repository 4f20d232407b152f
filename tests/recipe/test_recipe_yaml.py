"""YAML as recipes read it: positions, types of plain scalars, and what is refused."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import yaml
from wording import said

from fgrl.experiments.recipe.loading import _Dumper
from fgrl.registry.context import FAILED
from fgrl.registry.problems import Place
from fgrl.registry.tree import Text, parse, scalar


def read(text: str) -> Any:
    tree, problems = parse(Text(text, "x.yaml"))
    assert not problems
    assert tree is not None
    return tree


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5e-7", 5e-7), ("1e3", 1000.0), ("1.", 1.0), (".5", 0.5), ("-1.5E+2", -150.0), ("1_000", "1_000"),
        ("7", 7), ("-7", -7), ("+7", 7), ("0o17", 15), ("017", 17), ("0x1F", 31), ("1:30", "1:30"), ("1e", "1e"),
        ("true", True), ("True", True), ("false", False), ("yes", "yes"), ("no", "no"), ("on", "on"), ("off", "off"), ("y", "y"),
        ("null", None), ("~", None), ("", None), ("Null", None), ("none", "none"), ("None", "None"),
        ("2024-01-01", "2024-01-01"), (".inf", math.inf), ("-.inf", -math.inf), ("inf", "inf"), ("=", "="),
    ],
)  # fmt: skip
def test_plain_scalars_are_yaml_1_2(text: str, value: Any) -> None:
    assert scalar(text) == value
    assert type(scalar(text)) is type(value)
    assert type(read(f"a: {text}").plain()["a"]) is type(value)


def test_not_a_number_is_one_and_huge_numbers_are_no_bomb() -> None:
    assert math.isnan(scalar(".nan"))  # type: ignore[arg-type]
    assert scalar("9" * 5000) == math.inf


@pytest.mark.parametrize("text", ['"5"', "'5'", '"true"', '"null"', '""', "|\n  5"])
def test_quoted_scalars_are_text(text: str) -> None:
    assert isinstance(read(f"a: {text}").plain()["a"], str)


def test_the_place_of_a_value_is_that_of_its_key_or_of_itself_in_a_list() -> None:
    text = "a: 1\nb:\n  - x\n  - {c: 2,  d: [3, 4]}\n"
    places = {path: (tree.place.line, tree.place.column) for path, tree in read(text).leaves()}
    assert places == {
        ("a",): (1, 1), ("b", 0): (3, 5), ("b", 1, "c"): (4, 6), ("b", 1, "d", 0): (4, 17), ("b", 1, "d", 1): (4, 20),
    }  # fmt: skip


def test_aliases_are_read_and_know_where_they_are_used() -> None:
    tree = read("a: &x {b: 1}\nc: *x\n")
    assert tree.plain() == {"a": {"b": 1}, "c": {"b": 1}}


@pytest.mark.parametrize(
    ("text", "line", "column"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, 1),
        ("a: !!int 3\n", 1, 1),
        ("a: !x\n  b: 1\n", 1, 1),
        ("1: a\n", 1, 1),
        ("a: {true: 1}\n", 1, 5),
        ("? [a]\n: b\n", 1, 3),
        ("a: 1\n<<: {b: 1}\n", 2, 1),
        ("a: &x [*x]\n", 1, 4),
        ("a: *x\n", 1, 4),
        ("a: [1, 2\nb: 3\n", 1, 4),
        ("a: {b: [1, 2}\nc: 3\n", 1, 13),
        ('a: "x\nb: "y"\n', 1, 4),
        ('a: 1\nb: "x\n', 2, 4),
        ("a:\n\t- b\n", 2, 1),
        ("a: b: c\n", 1, 5),
        ("a: 1\n---\nb: 2\n", 2, 1),
        ("a: x\x00y\n", 1, 5),
        ("ä: 1\nb: \x07\n", 2, 4),
        ("a: @x\n", 1, 4),
        ("a: %x\n", 1, 4),
    ],
)
def test_what_is_refused_and_where(text: str, line: int, column: int) -> None:
    _, problems = parse(Text(text, "x.yaml"))
    assert len(problems) == 1
    assert problems[0].place is not None
    assert (problems[0].place.line, problems[0].place.column) == (line, column)
    said("validate", f"YAML {text!r}", str(replace(problems[0], place=None)))


def test_a_refused_value_is_marked_so_that_nobody_complains_twice() -> None:
    tree, problems = parse(Text("a: !x 3\nb: 2\n", "x.yaml"))
    assert tree is not None
    assert tree.plain() == {"a": FAILED, "b": 2}
    assert len(problems) == 1


def test_an_excerpt_points_at_the_column_also_in_long_and_wide_lines() -> None:
    def pointed(place: Place) -> str:
        line, caret = place.excerpt()
        return line[caret.index("^") :][:3]

    assert pointed(Place("x", 3, 8, "about: here")) == "her"
    assert pointed(Place("x", 12345, 8, "about: here".replace("here", "here" * 100))) == "her"
    assert pointed(Place("x", 1, 401, "x" * 400 + "end")) == "end"
    assert pointed(Place("x", 1, 2, "\tx y")) == "x y"
    _, caret = Place("x", 1, 6, "你好: x").excerpt()  # each 你 is two columns wide
    assert caret.index("^") - caret.index("|") == 2 + 7
    assert Place("x", 1, 1, "   ").excerpt() == []


@pytest.mark.parametrize(
    "text",
    [
        "5e-7",
        "yes",
        "no",
        "null",
        "~",
        "1",
        "0x1F",
        "1.5",
        "",
        " x",
        "a: b",
        "${out:x}",
        "- a",
        "#",
        "é",
        "a\nb",
        "=",
        "<<",
    ],
)
def test_what_is_written_reads_back_as_the_same_text(text: str) -> None:
    assert read(yaml.dump({"a": text, "b": [text]}, Dumper=_Dumper, allow_unicode=True)).plain() == {
        "a": text,
        "b": [text],
    }


@pytest.mark.parametrize("value", [5e-7, 1e300, 1.0, 3, True, None, [], {}, -0.1])
def test_what_is_written_reads_back_as_the_same_value(value: Any) -> None:
    back = read(yaml.dump({"a": value}, Dumper=_Dumper)).plain()["a"]
    assert back == value
    assert type(back) is type(value)
