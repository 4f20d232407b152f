"""`${vars.x}`, `${stages.a.b}` and `${out:stage}`."""

from __future__ import annotations

from typing import Any

import pytest

from fgrl.experiments.recipe.interpolation import alone, mentions, origin, resolve, source
from fgrl.registry.context import FAILED
from fgrl.registry.tree import Text, Tree, parse


def tree(text: str) -> Tree:
    found, problems = parse(Text(text, "x.yaml"))
    assert found is not None
    assert not problems
    return found


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${vars.n}", 5), ("${vars.f}", 5e-7), ("${vars.b}", True), ("${vars.list}", [1, 2]), ("${vars.map}", {"k": 5}),
        ("n-${vars.n}", "n-5"), ("${vars.n}${vars.n}", "55"), ("${vars.list[1]}", 2), ("${vars.list.1}", 2), ("${ vars.n }", 5),
        ("${vars.map.k}", 5), ("${stages.s.x}", 7), ("${stages.s.null_}", None), ("${seed}", 3), ("${vars.again}", 5),
        ("${.x}", 7), ("${vars.${vars.which}}", 5), ("$5", "$5"), ("a ${", None), (r"\${vars.n}", "${vars.n}"),
        ("${out:s}", "${out:s}"), ("${out:${vars.which}}", "${out:n}"), ("${vars.out}", "${out:s}"), ("${ out : s }", "${out:s}"),
        ("${vars.dotted}", "z"), ("${vars.odd}", "a.b/c?"),
        (r"\\${vars.n}", r"\${vars.n}"), ("\\${vars.n}-${vars.n}\\", "${vars.n}-5\\"),
        ("''${vars.n}: {[\\", "'5: {[\\"),
    ],
)  # fmt: skip
def test_what_a_text_becomes(text: str, value: Any) -> None:
    quoted = "'" + text + "'"
    recipe = tree(
        "vars: {n: 5, f: 5e-7, b: true, list: [1, 2], map: {k: '${vars.n}'}, again: '${vars.n}', which: n, out: '${out:s}',\n"
        f"  dotted: z, odd: 'a.b/c?'}}\nseed: 3\nstages:\n  s: {{x: 7, null_: null, y: {quoted}}}\n"
    )
    plain, problems = resolve(recipe)
    if text == "a ${":
        assert [problem.message for problem in problems] == ['cannot read "a ${"']
        assert plain["stages"]["s"]["y"] is FAILED
        return
    assert not problems
    assert plain["stages"]["s"]["y"] == value
    assert type(plain["stages"]["s"]["y"]) is type(value)


@pytest.mark.parametrize(
    ("text", "path", "message", "hint"),
    [
        ("vars: {n: 1}\nseed: ${vars.m}", "seed", 'unknown "${vars.m}"', "choices: vars.n"),
        ("vars: {cutoff: 1}\nseed: ${vars.cutof}", "seed", 'unknown "${vars.cutof}"',
         'did you mean "vars.cutoff"?  choices: vars.cutoff'),
        ("seed: ${vars.m}", "seed", 'unknown "${vars.m}"', "the recipe has no vars"),
        ("vars: {n: 1}\nseed: ${n}", "seed", 'unknown "${n}"', 'did you mean "${vars.n}"?'),
        ("vars: {n: 1}\nseed: ${vars.n.x}", "seed", 'unknown "${vars.n.x}"', "vars.n is 1, there is nothing inside"),
        ("seed: ${oc.env:HOME}", "seed", "unknown ${oc.env:...}", "a recipe knows ${vars.x}, ${stages.a.b} and ${out:stage}"),
        ("seed: ${env:HOME}", "seed", "unknown ${env:...}", "a recipe knows ${vars.x}, ${stages.a.b} and ${out:stage}"),
        ("vars: {n: null}\nseed: ${vars.n}", "vars.n", "has no value: set it with vars.n=...", "needed by seed"),
        ("vars: {n: '???'}\nseed: ${vars.n}", "vars.n", "has no value: set it with vars.n=...", "needed by seed"),
        ("stages: {a: {x: null, y: 'x${stages.a.x}'}}", "stages.a.y", '"x${stages.a.x}": stages.a.x is null, it has no text', None),
        ("vars: {a: '${vars.b}', b: '${vars.c}', c: '${vars.a}'}", "vars.a",
         "refers to itself: vars.a -> vars.b -> vars.c -> vars.a", None),
        ("stages: {a: {b: '${stages.a}'}}", "stages.a.b", "refers to itself: stages.a.b -> stages.a.b", None),
        ("vars: '${vars}'", "vars", "refers to itself: vars -> vars", None),
    ],
)  # fmt: skip
def test_what_cannot_be_resolved_is_told_once(text: str, path: str, message: str, hint: str | None) -> None:
    _, problems = resolve(tree(text))
    assert [(".".join(map(str, problem.path)), problem.message, problem.hint) for problem in problems] == [
        (path, message, hint)
    ]
    assert problems[0].place is not None


def test_what_needs_something_broken_is_broken_in_silence() -> None:
    plain, problems = resolve(tree("vars: {a: '${vars.nothing}', b: '${vars.a}'}\nseed: '${vars.b}'\nabout: x\n"))
    assert [problem.path for problem in problems] == [("vars", "a")]
    assert plain == {"vars": {"a": FAILED, "b": FAILED}, "seed": FAILED, "about": "x"}


def test_a_variable_without_value_is_told_once_for_all_that_need_it() -> None:
    _, problems = resolve(
        tree("vars: {sft: null}\nstages: {a: {m: '${vars.sft}'}, b: {m: '${vars.sft}/x'}, c: '${stages.a.m}'}")
    )
    assert [(problem.path, problem.hint, problem.needs) for problem in problems] == [
        (("vars", "sft"), "needed by stages.a.m and 1 more", "vars.sft")
    ]


def test_each_use_of_a_mapping_is_a_copy_of_its_own() -> None:
    plain, _ = resolve(tree("vars: {map: {k: [1]}}\nstages: {a: '${vars.map}', b: '${vars.map}'}\n"))
    plain["stages"]["a"]["k"].append(2)
    assert plain["stages"]["b"] == plain["vars"]["map"] == {"k": [1]}


def test_the_origin_of_a_value_is_followed_through_copies() -> None:
    recipe = tree("vars: {n: 5, m: '${vars.n}'}\nstages:\n  a: {x: '${vars.m}', y: 'a${vars.n}'}\n  b: '${stages.a}'\n")
    assert origin(recipe, ("stages", "a", "x")).value == 5
    assert origin(recipe, ("stages", "b", "x")).value == 5
    assert origin(recipe, ("stages", "a", "y")).value == "a${vars.n}"


def test_reading_a_text_for_what_it_mentions() -> None:
    assert mentions("${vars.a}-${stages.s.l[0]}-${out:x}-${.y}-\\${vars.z}") == [("vars", "a"), ("stages", "s", "l", 0)]
    assert mentions("${out:${vars.a}}") == [("vars", "a")]
    assert alone(" ${vars.a} ") == ("vars", "a")
    assert alone("x${vars.a}") is alone("${out:a}") is alone(5) is None


def test_the_source_of_a_value_behind_interpolations_and_what_it_lacks() -> None:
    recipe = tree("vars: {m: {a: {b: 1}, gone: null}}\nstages: {s: {x: '${vars.m}', y: '${stages.s.x}'}}\n")
    assert source(recipe, ("stages", "s", "y", "a", "b"))[0].value == 1
    found, rest = source(recipe, ("stages", "s", "y", "gone"))
    assert (found.value, rest) == (None, ())
    assert source(recipe, ("stages", "s", "y", "a", "c"))[1] == ("c",)


def test_what_is_nested_too_deeply_is_a_problem_of_the_recipe() -> None:
    plain, (problem,) = resolve(tree(f"vars: {{n: 5}}\nabout: '{'${' * 200}vars.n{'}' * 200}'\n"))
    assert plain["about"] is FAILED
    assert problem.path == ("about",)
