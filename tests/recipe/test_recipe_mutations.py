"""Mistakes that people make in recipes, by the hundred: each must be told, at its line, and never as a traceback.

The words are in tests/wording/validate.txt.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recipe_world import CHILD, PARENT, recipe, world  # noqa: F401
from wording import said

from fgrl.cli import main
from fgrl.experiments.recipe import load
from fgrl.registry import Problems

FILES = {"parent.yaml": PARENT, "child.yaml": CHILD}


@dataclass(frozen=True)
class Mistake:
    """A changed recipe, and the lines of the file that a message may point at; 0 is the command line."""

    title: str
    file: str
    text: str
    lines: frozenset[int]
    overrides: tuple[str, ...] = ()
    others: dict[str, str] = field(default_factory=dict, hash=False)
    also: frozenset[str] = frozenset()
    """Further places "file:line" that follow from the mistake."""

    def __str__(self) -> str:
        return self.title


def key_lines(text: str) -> Iterator[tuple[int, str, str, str]]:
    """(number from 1, indentation with dash, key, value) of each line that has a key."""
    for number, line in enumerate(text.splitlines(), start=1):
        match = re.match(r"^([ -]*)(\w+):\s*(.*)$", line)
        if match:
            yield number, match[1], match[2], match[3]


def swap(text: str, number: int, line: str | None) -> str:
    """With a line replaced; None takes it out."""
    lines = text.splitlines()
    lines[number - 1 : number] = [] if line is None else line.splitlines()
    return "\n".join(lines) + "\n"


def block(text: str, number: int) -> list[int]:
    """A line and the lines below that are indented deeper."""
    lines = text.splitlines()
    depth = len(lines[number - 1]) - len(lines[number - 1].lstrip(" -"))
    end = number
    while end < len(lines) and len(lines[end]) - len(lines[end].lstrip(" -")) > depth:
        end += 1
    return list(range(number, end + 1))


def parent_line(text: str, number: int) -> int:
    """The line of the mapping that a line is in; for an item of a list, of the item's first key."""
    lines = text.splitlines()
    depth = len(lines[number - 1]) - len(lines[number - 1].lstrip(" "))
    for above in range(number - 1, 0, -1):
        line = lines[above - 1]
        indented = len(line) - len(line.lstrip(" "))
        if indented < depth:
            return above
    return 1


# Keys whose names are free: the mistake is then seen where the name is used.
FREE = {"size", "rate", "depth", "sketch", "model", "second", "verdict", "first", "other", "big", "why"}
# What each value takes; a wrong value is one that is not in the list.
TYPES = {
    "about": "str", "seed": "int", "name": "name", "side": "float", "colour": "literal", "width": "float",
    "words": "file", "copies": "int", "data": "ref", "lr": "float", "shuffle": "bool", "outer": "float",
    "label": "str?", "base": "str|ref", "betas": "floats", "strategy": "literal", "first": "ref", "other": "ref",
    "targets": "strs", "shape": "shape", "pen": "pen", "shapes": "shapes", "named": "dict", "models": "dict", "note": "dict",
    "extends": "file", "vars": "dict", "stages": "dict", "sketch": "stage", "model": "stage", "second": "stage",
    "verdict": "stage", "big": "shape",
}  # fmt: skip
WRONG = {
    "str": ["7", "[1]", "{a: 1}", "true", ""],
    "str?": ["7", "[1]", "true"],
    "int": ["1.5", "-4", "some", "[1]", '"4"', "yes"],
    "name": ["nothing_like_it", "7", "[a]", "{a: b}", ""],
    "float": ["fast", "[1.0]", "{a: 1}", "true", "-1.0", '"0.5"', ".nan", "1e-3x"],
    "literal": ["grean", "7", "[red]"],
    "file": ["wrods.txt", "7", "[1]"],
    "ref": ["sketch", '"${out:nowhere}"', '"${out:verdict}"', "7", "[a]", '"x ${out:sketch}"'],
    "str|ref": ['"${out:nowhere}"', '"${out:verdict}"', "7", "second"],
    "bool": ["yes", "1", "off", '"true"'],
    "floats": ["0.9", "[0.9]", "[0.9, a]", "[0.9, 0.9, 0.9]", "[]"],
    "strs": ["7", "some", "[1, 2]", "[a, {b: c}]"],
    "shape": ["7", "[ring]", "hexagon", "{side: 1}", "{name: squar}"],
    "stage": ["7", "[draw]", "drow", "{copies: 1}", "{name: draw}"],
    "pen": ["7", "[red]", "{color: red}"],
    "shapes": ["ring", "7", "[]", "[ring, hexagon]", "[7]", "{name: ring}"],
    "dict": ["7", "[a]", "some"],
}


ANYWHERE_IN_CHILD = frozenset(f"child.yaml:{number}" for number, *_ in key_lines(CHILD))
REPLACED = range(9, 12)  # the child has another shape in place of these lines of the parent


def misspelled() -> Iterator[Mistake]:
    """A letter is missing in a key."""
    for file, text in FILES.items():
        for number, before, key, value in key_lines(text):
            if key in FREE or (file == "parent.yaml" and number in REPLACED[1:]):
                continue
            changed = swap(text, number, f"{before}{key[:-2]}{key[-1]}x: {value}")
            lines = {number}
            if key in ("name", "data", "lr", "models", "shapes", "side"):
                lines.add(parent_line(text, number))
            also = ANYWHERE_IN_CHILD if (file, number) in [("child.yaml", 8), ("parent.yaml", 8)] else frozenset()
            yield Mistake(f"{file}:{number} {key} misspelled", file, changed, frozenset(lines), also=also)


def wrong_values() -> Iterator[Mistake]:
    """A value of a wrong type, out of bounds, or of a wrong name."""
    for file, text in FILES.items():
        for number, before, key, value in key_lines(text):
            if key not in TYPES or (file == "parent.yaml" and number in REPLACED):
                continue
            for wrong in WRONG[TYPES[key]]:
                if (file, key, wrong) in FINE:
                    continue
                whole = block(text, number) if not value else [number]
                changed = text
                for extra in reversed(whole[1:]):
                    changed = swap(changed, extra, None)
                changed = swap(changed, number, f"{before}{key}: {wrong}")
                also: frozenset[str] = frozenset()
                if (file, key) == ("parent.yaml", "sketch") or wrong == "{name: draw}":
                    also = ANYWHERE_IN_CHILD  # the child changes a part of it, or refers to it
                elif (file, key) == ("parent.yaml", "name") and number == 8:
                    also = ANYWHERE_IN_CHILD
                yield Mistake(f"{file}:{number} {key}: {wrong}", file, changed, frozenset({number}), also=also)


# Wrong elsewhere, right there: laid over the parent these are whole.
FINE = {
    ("child.yaml", "sketch", "{copies: 1}"), ("child.yaml", "sketch", "{name: draw}"), ("child.yaml", "shape", "{side: 1}"),
    ("parent.yaml", "sketch", "{name: draw}"),
}  # fmt: skip


def missing() -> Iterator[Mistake]:
    """A required key is not there."""
    for file, text in FILES.items():
        for number, _, key, value in key_lines(text):
            required = {"about", "data", "lr"} | ({"name", "models", "shapes"} if file == "child.yaml" else set())
            if (
                key not in required
                or (file, number) == ("child.yaml", 8)
                or (key == "name" and text.splitlines()[number - 1].lstrip().startswith("-"))
            ):
                continue
            changed = text
            for extra in reversed(block(text, number) if not value else [number]):
                changed = swap(changed, extra, None)
            lines = {parent_line(text, number), number} if key == "about" else {parent_line(text, number)}
            yield Mistake(f"{file}:{number} {key} missing", file, changed, frozenset(lines))


def duplicates() -> Iterator[Mistake]:
    """The same key twice."""
    for file, text in FILES.items():
        for number, before, key, value in key_lines(text):
            line = f"{before}{key}: {value}"
            if not value:
                continue
            changed = swap(text, number, f"{line}\n{before.replace('-', ' ')}{key}: {value}")
            yield Mistake(f"{file}:{number} {key} twice", file, changed, frozenset({number + 1}))


def references() -> Iterator[Mistake]:
    """Stages that need each other, or themselves."""
    sketch = CHILD.replace('base: "${out:model}"', 'base: "${out:second}"')
    yield Mistake("a stage needs itself", "child.yaml", sketch, frozenset({21}))
    circle = PARENT.replace("    shuffle: true", '    base: "${out:second}"')
    yield Mistake("two stages in a circle", "parent.yaml", circle, frozenset({21}))
    for number, text in ((2, "${vars.size}"), (3, "${vars.rate}"), (17, "${vars.depth}")):
        file, whole = ("child.yaml", CHILD) if number == 17 else ("parent.yaml", PARENT)
        for wrong in (
            "${vars.nothing}",
            "${vars}",
            "${nothing}",
            "${oc.env:HOME}",
            "${vars.",
            "${stages.nowhere.lr}",
            "${}",
        ):
            changed = whole.replace(text, wrong)
            line = next(n for n, one in enumerate(changed.splitlines(), start=1) if one not in whole.splitlines())
            if file == "parent.yaml" and number == 2:
                # the child replaces the shape, so nobody reads this value
                changed = whole.replace("copies: 4", f'copies: "{wrong}"')
                line = next(n for n, one in enumerate(changed.splitlines(), start=1) if f'copies: "{wrong}"' in one)
            own = {"child.yaml": {4}, "parent.yaml": set()}[file]  # the variable is then unused
            yield Mistake(f"{file}:{line} {wrong}", file, changed, frozenset({line} | own))
    both = CHILD.replace("depth: 3", 'depth: "${vars.rate}"')
    round_ = PARENT.replace("rate: 1e-3", 'rate: "${vars.depth}"')
    yield Mistake(
        "variables in a circle",
        "child.yaml",
        both,
        frozenset({4}),
        others={"parent.yaml": round_},
        also=frozenset({"parent.yaml:5"}),
    )
    yield Mistake("variable without value", "child.yaml", CHILD.replace("depth: 3", "depth:"), frozenset({4}))
    yield Mistake(
        "variable nobody uses", "child.yaml", CHILD.replace("depth: 3", "depth: 3\n  dept: 4"), frozenset({5})
    )


def overrides() -> Iterator[Mistake]:
    """Mistakes on the command line."""
    wrong = [
        "stages.sketch.copies=1.5", "stages.sketch.copies=0", "stages.sketch.copies=many", "stages.sketch.copies=[1]",
        "stages.sketch.copy=2", "stages.sketsh.copies=2", "stages.sketsh=null", "stages.sketch.shape.name=hexagon",
        "stages.sketch.shape=hexagon", "stages.sketch.shape.shapes.0=hexagon", "stages.sketch.shape.shapes.5=ring",
        "stages.sketch.shape.shapes.x=ring", "stages.sketch.shape.shapes[1].side=-1", "stages.sketch.shape.shapes[1].sid=1",
        "stages.sketch.shape.shapes.0.outr=3", "stages.sketch.shape.shapes=[]", "stages.sketch.pen=purple",
        "stages.sketch.pen.colour=purple", "stages.sketch.pen.color=red", "stages.sketch.pen.width=0",
        "stages.sketch.words=nowhere.txt", "stages.sketch.words=7", "stages.model.lr=fast", "stages.model.lr=0",
        "stages.model.data=${out:nowhere}", "stages.model.data=${out:verdict}", "stages.model.data=sketch",
        "stages.model.shuffle=yes", "stages.model.betas=[0.9]", "stages.model.betas.1=x", "stages.model.strategy=ddpp",
        "stages.model.base=7", "stages.model.lr.x=7", "stages.second.betas=0.9", "stages.verdict.models.third=${out:sketch}",
        "stages.verdict.models=null", "stages.verdict.targets=some", "vars.siz=1", "vars.size.x=1", "vars=7", "size=3",
        "seed=-1", "seed=1.5", "seed=x", "sed=1", "stage.sketch.copies=1", "about=null", "about=", "extends=other.yaml",
        "imports=[x.py]", "stages=null", "stages=[]", "stages.new={copies: 1}", "stages.new.copies=1", "stages.new=7",
        "stages.new={name: drawing}", "copies", "=3", "..=3", "stages..copies=3", "stages.sketch.copies=",
        "stages.model.betas=[1, ", "stages.model.betas={", "stages.sketch.copies=a: b: c", "stages.sketch.pen={width: x}",
        "stages.sketch.copies=!!int 3", "stages.sketch.copies=*a", "stages.model.lr=${vars.nothing}", "stages.model.lr=${",
        "stages.sketch.threads=many", "stages.sketch.shape={name: ring, inner: 9}", "stages.sketch.note=1",
    ]  # fmt: skip
    for argument in wrong:
        yield Mistake(f"override {argument}", "child.yaml", CHILD, frozenset({0}), (argument,))


def broken() -> Iterator[Mistake]:
    """What is no YAML, no recipe, or not there."""
    for number in (12, 17, 20, 21, 22, 30):
        for what, change in (
            ("a bracket", lambda line: line + " ["),
            ("a quote", lambda line: line + ' "'),
            ("a tab", lambda line: "\t" + line),
            ("a colon", lambda line: line + " : : x"),
            ("an alias", lambda line: line.split(":")[0] + ": *nobody"),
            ("a tag", lambda line: line.split(":")[0] + ": !thing 3"),
            ("a control character", lambda line: line + "\x07"),
        ):
            line = CHILD.splitlines()[number - 1]
            lines = frozenset({number} if what != "a tab" else {number, number + 1})
            yield Mistake(f"child.yaml:{number} {what}", "child.yaml", swap(CHILD, number, change(line)), lines)
    for number, text in ((9, "      shapes: ["), (14, "      named: {"), (23, "    betas: [0.9, 0.99"), (18, '  "second:'),
                         (24, "    strategy: 'auto"), (29, '    models: "')):  # fmt: skip
        yield Mistake(f"child.yaml:{number} left open", "child.yaml", swap(CHILD, number, text), frozenset({number}))
    for title, text in {
        "empty": "", "comment": "# nothing\n", "a list": "- a\n", "text": "hello\n", "a number": "7\n",
        "no stages": "about: x\n", "null stages": "about: x\nstages:\n", "a list of stages": "about: x\nstages: []\n",
        "no stage": "about: x\nstages: {}\n", "a null stage": "about: x\nstages: {a: null}\n",
        "a text of stages": "about: x\nstages: draw\n", "two documents": "about: x\n---\nabout: y\n",
        "number keys": "about: x\nstages: {1: {name: draw, shape: ring}}\n", "a stage's odd name": "about: x\nstages: {a b: {name: draw, shape: ring}}\n",
        "list keys": "about: x\nstages: {[a]: 1}\n", "merge keys": "about: x\nstages: {<<: {a: b}}\n",
        "jinja": "about: x\nseed: {{ seed }}\n", "own alias": "about: x\nstages: &a {b: *a}\n",
        "empty about": "about: '  '\nstages: {a: {name: draw, shape: ring}}\n",
        "deep": "about: x\nstages: " + "[" * 200 + "]" * 200 + "\n",
        "very deep": "about: x\nstages: " + "[" * 3000 + "\n",
    }.items():  # fmt: skip
        lines = frozenset(range(1, 4))
        yield Mistake(title, "child.yaml", text, lines)
    for title, text in (
        ("no parent", CHILD.replace("parent.yaml", "parnt.yaml")),
        ("itself", CHILD.replace("parent.yaml", "child.yaml")),
        ("a folder", CHILD.replace("parent.yaml", ".")),
        ("null", CHILD.replace("parent.yaml", "")),
        ("a nul", CHILD.replace("parent.yaml", '"a\\0b"')),
        ("a mapping", CHILD.replace("parent.yaml", "{a: b}")),
        ("a list", CHILD.replace("parent.yaml", "[parent.yaml]")),
    ):
        yield Mistake(f"extends {title}", "child.yaml", text, frozenset({1}))
    registers = "from fgrl.registry import register\nfrom recipe_world import Shape\n\n\n"
    for title, value, module, place in (
        ("missing", "[nowhere.py]", "", ""),
        ("text", "mine.py", "", ""),
        ("number", "[7]", "", ""),
        ("folder", "[.]", "", ""),
        ("syntax", "[mine.py]", "x = 1\ny = = 2\n", "mine.py:2"),
        ("raises", "[mine.py]", "def f():\n    return 1 / 0\n\nf()\n", "mine.py:2"),
        ("exits", "[mine.py]", "import sys\nsys.exit(3)\n", "mine.py:2"),
        ("misses a package", "[mine.py]", "import no_such_package\n", "mine.py:1"),
        ("takes a name", "[mine.py]", registers +
         "@register('ring')\nclass Mine(Shape):\n    '''Mine.'''\n\n    def area(self):\n        return 1\n", "mine.py:5"),
        ("leaves open", "[mine.py]", registers + "@register('mine')\nclass Mine(Shape):\n    '''Mine.'''\n", "mine.py:5"),
        ("has no help", "[mine.py]", registers +
         "@register('mine')\nclass Mine(Shape):\n    '''Mine.'''\n    x: int = 1\n\n    def area(self):\n        return 1\n", "mine.py:5"),
    ):  # fmt: skip
        text, also = CHILD.replace("vars:", f"imports: {value}\nvars:"), frozenset({place} if place else ())
        lines = frozenset(() if place else {3})
        yield Mistake(f"imports {title}", "child.yaml", text, lines, others={"mine.py": module}, also=also)


GROUPS: list[Callable[[], Iterator[Mistake]]] = [
    misspelled, wrong_values, missing, duplicates, references, overrides, broken,
]  # fmt: skip
MISTAKES = [mistake for group in GROUPS for mistake in group()]


def test_there_are_hundreds_of_different_mistakes() -> None:
    assert len({(m.text, m.overrides, m.title) for m in MISTAKES}) == len(MISTAKES) >= 300
    for mistake in MISTAKES:
        assert mistake.overrides or FILES[mistake.file] != mistake.text


def test_the_recipe_itself_is_right(recipe: Path) -> None:  # noqa: F811
    assert list(load(recipe).stages) == ["sketch", "model", "second", "verdict"]


@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_a_mistake_is_told_at_its_line(
    mistake: Mistake,
    recipe: Path,  # noqa: F811
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, text in {mistake.file: mistake.text, **mistake.others}.items():
        Path(name).write_text(text, encoding="utf-8")
    with pytest.raises(Problems) as caught:
        load(recipe, mistake.overrides)
    told = str(caught.value)
    problems = caught.value.problems
    assert told.endswith(f"{len(problems)} problem{'s' * (len(problems) != 1)} found; nothing was run.")
    assert "Traceback" not in told
    said("validate", str(mistake), "\n".join(str(replace(problem, place=None)) for problem in problems))
    right = {f"{mistake.file}:{line}" for line in mistake.lines} | mistake.also
    with pytest.raises(SystemExit) as left:
        main(["validate", str(recipe), *mistake.overrides])
    assert left.value.code == (0 if caught.value.needs else 2)  # what only waits for a variable is no mistake
    assert "Traceback" not in capsys.readouterr().err
    for problem in problems:
        assert problem.message
        assert problem.place is not None, problem
        if mistake.lines == {0}:
            assert problem.place.label == "command line", told
        elif right:
            assert f"{problem.place.label}:{problem.place.line}" in right, told


def check_loads_or_tells(path: Path, *overrides: str) -> None:
    """No exception but `Problems`, each with a place; and what loads can be written and loaded again."""
    told = None
    try:
        loaded = load(path, overrides)
    except Problems as problems:
        told = problems
    if told is not None:
        assert told.problems
        assert all(problem.place is not None for problem in told.problems)
        assert "nothing was run." in str(told)
        return
    Path("again.yaml").write_text(loaded.to_yaml(), encoding="utf-8")
    assert load("again.yaml").stages == loaded.stages


VALUES = st.sampled_from(
    ["", "7", "-1", "1.5", "yes", "null", "~", "[]", "{}", "[1, 2]", "{a: b}", "{name: ring}", "ring", "'", '"', "*x", "&x y",
     "!t 1", "|", ">", "- a", "? x", "${vars.size}", '"${vars.size}"', '"${out:sketch}"', '"${out:${vars.size}}"',
     '"${stages.sketch}"', '"${stages}"', '"${.lr}"', '"${..}"', '"${vars"', '"\\\\${vars.size}"', "<<", "=", '"\\0"', "\t",
     "\u2028", "😀", "1e999", ".inf", "0x_", "9" * 5000, "2024-01-01", "!!python/name:os.system x", "%"]
)  # fmt: skip


@settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)
@given(data=st.data())
def test_no_edit_of_a_recipe_gives_anything_but_problems(data: st.DataObject, recipe: Path) -> None:  # noqa: F811
    """Lines changed, doubled, taken out, moved, indented, cut: a recipe loads or gives `Problems`."""
    for name, text in FILES.items():
        lines = text.splitlines()
        for _ in range(data.draw(st.integers(0, 3))):
            number = data.draw(st.integers(0, len(lines) - 1))
            edit = data.draw(st.sampled_from(["value", "double", "drop", "move", "indent", "cut", "letter", "insert"]))
            line = lines[number]
            if edit == "value":
                lines[number] = line.split(":")[0] + ": " + data.draw(VALUES)
            elif edit == "double":
                lines.insert(number, line)
            elif edit == "drop" and len(lines) > 1:
                del lines[number]
            elif edit == "move":
                lines.insert(data.draw(st.integers(0, len(lines) - 1)), lines.pop(number))
            elif edit == "indent":
                lines[number] = " " * data.draw(st.integers(0, 9)) + line.lstrip()
            elif edit == "cut":
                lines[number] = line[: data.draw(st.integers(0, len(line)))]
            elif edit == "letter":
                at = data.draw(st.integers(0, len(line)))
                lines[number] = line[:at] + data.draw(st.characters(codec="utf-8")) + line[at:]
            else:
                lines.insert(number, data.draw(VALUES))
        Path(name).write_text("\n".join(lines), encoding="utf-8", newline="")
    check_loads_or_tells(recipe)


@settings(
    max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)
@given(
    path=st.lists(
        st.sampled_from(["stages", "vars", "sketch", "model", "shape", "shapes", "0", "1", "pen", "lr", "name", "named", "x", "", "[0]"]),
        max_size=6,
    ),
    value=VALUES,
)  # fmt: skip
def test_no_override_gives_anything_but_problems(path: list[str], value: str, recipe: Path) -> None:  # noqa: F811
    check_loads_or_tells(recipe, ".".join(path) + "=" + value)


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True
)
@given(content=st.binary(max_size=80))
def test_no_file_of_any_bytes_gives_anything_but_problems(content: bytes, recipe: Path) -> None:  # noqa: F811
    recipe.write_bytes(content)
    with pytest.raises(Problems):
        load(recipe)
