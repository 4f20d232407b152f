"""From plain data to components, and the words for what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from recipe_world import Draw, Group, Judge, Pen, Ring, Shape, Square, Train, world  # noqa: F401

from fgrl.registry import Component, Context, Problems, build
from fgrl.types import Checkpoint, Ref, Samples

pytestmark = pytest.mark.usefixtures("world")


def told(what: Any, node: Any, **context: Any) -> str:
    """The problems of a build, without the last line."""
    with pytest.raises(Problems) as caught:
        build(what, node, context=Context(**context) if context else None)
    return "\n".join(str(caught.value).splitlines()[:-1])


def test_a_bare_string_is_a_name_with_defaults() -> None:
    assert build(Shape, "ring") == Ring()
    assert build("shape", "ring") == Ring()


def test_name_picks_and_the_rest_are_fields() -> None:
    assert build(Shape, {"name": "square", "side": 2, "label": "a"}) == Square(side=2.0, label="a")


def test_components_nest_in_lists_and_mappings() -> None:
    built = build(Shape, {"name": "group", "shapes": ["ring", {"name": "square", "side": 1}], "named": {"a": "ring"}})
    assert built == Group(shapes=[Ring(), Square(side=1.0)], named={"a": Ring()})


def test_a_concrete_slot_needs_no_name_and_takes_no_other() -> None:
    assert build(Square, {"side": 1}) == Square(side=1.0)
    assert told(Square, {"name": "ring"}).startswith('name: unknown shape "ring"')


def test_built_parts_pass_through() -> None:
    ring = Ring()
    assert build(Group, {"name": "group", "shapes": [ring]}).shapes[0] is ring


def test_settings_with_a_validator_for_bare_values_take_them() -> None:
    assert build(Draw, {"name": "draw", "shape": "ring", "pen": "blue"}).pen == Pen(colour="blue")
    assert build(Pen, "blue") == Pen(colour="blue")


def test_an_integer_is_fine_for_a_float_and_only_there() -> None:
    assert build(Square, {"side": 2}).side == 2.0
    assert told(Draw, {"name": "draw", "shape": "ring", "copies": 1.5}).startswith("copies: wants int, got float 1.5\n")
    assert told(Draw, {"name": "draw", "shape": "ring", "copies": True}).startswith(
        "copies: wants int, got bool true\n"
    )
    assert told(Draw, {"name": "draw", "shape": "ring", "threads": "2"}).startswith('threads: wants int, got str "2"')


def test_references_are_found_and_collected_with_what_they_need() -> None:
    context = Context()
    data = {"name": "train", "data": "${out:a}", "base": "${out: b }", "lr": 1}
    built = build(Train, data, path=("stages", "x"), context=context)
    assert (built.data, built.base) == (Ref("a"), Ref("b"))
    assert [(found.path, found.ref.stage, found.products) for found in context.refs] == [
        (("stages", "x", "data"), "a", (Samples,)),
        (("stages", "x", "base"), "b", (Checkpoint,)),
    ]
    judge = build(Judge, {"name": "judge", "models": {"m": "${out:a}"}}, context=context)
    assert judge.models == {"m": Ref("a")}
    assert len(context.refs) == 3


def test_a_file_is_made_absolute_and_looked_for(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("x")
    data = {"name": "draw", "shape": "ring", "words": "words.txt"}
    built = build(Draw, data, context=Context(folder=lambda path: tmp_path))
    assert built.words == data["words"] == str(tmp_path / "words.txt")
    text = told(Draw, {"name": "draw", "shape": "ring", "words": "word.txt"}, folder=lambda path: tmp_path)
    assert text == f'words: no such file: {tmp_path / "word.txt"}\n    = did you mean "words.txt"?'


def test_a_null_that_drops_brings_back_the_default() -> None:
    data = {"name": "draw", "shape": "ring", "copies": None, "words": None}
    built = build(Draw, data, context=Context(dropped=lambda path: True))
    assert (built.copies, built.words) == (1, None)
    assert "copies" not in data
    assert told(Draw, {"name": "draw", "shape": "ring", "copies": None}).startswith("copies: wants int, got null\n")


def test_the_version_that_dump_writes_is_read_back() -> None:
    assert build(Shape, {"name": "ring", "version": 1}) == Ring()
    assert told(Shape, {"name": "ring", "version": 2}) == 'version: wants version 2 of shape "ring", this is version 1'


def test_every_problem_is_told_at_once() -> None:
    data = {"name": "draw", "shape": {"name": "group", "shapes": ["rng", {"name": "square", "side": -1, "lable": "x"}]},
            "pen": {"colour": "grean", "width": 0}, "copies": "many", "treads": 2}  # fmt: skip
    with pytest.raises(Problems) as caught:
        build(Draw, data)
    assert sorted(".".join(map(str, problem.path)) for problem in caught.value.problems) == [
        "copies", "pen.colour", "pen.width", "shape.shapes.0", "shape.shapes.1.lable", "shape.shapes.1.side", "treads",
    ]  # fmt: skip
    assert str(caught.value).endswith("7 problems found; nothing was run.")


MESSAGES = [
    (Shape, "rng", 'unknown shape "rng"\n    = did you mean "ring"?  choices: group, ring, square  (fgrl list shape)'),
    (Shape, "draw", 'unknown shape "draw"; "draw" is a stage\n    = choices: group, ring, square  (fgrl list shape)'),
    (Shape, 3, "wants a shape, got int 3\n    = choices: group, ring, square  (fgrl list shape)"),
    (Shape, {}, "has no name; wants a shape: {name: ...}\n    = choices: group, ring, square  (fgrl list shape)"),
    (Shape, {"nmae": "ring"}, 'nmae: unknown key "nmae"\n    = did you mean "name: ring"?'),
    (Shape, {"name": 3}, "name: wants the name of a shape, got int 3\n    = choices: group, ring, square  (fgrl list shape)"),
    (Shape, {"name": "square"}, "side: missing; wants float\n    = Length of a side.  (fgrl show shape square)"),
    (Shape, {"name": "square", "sid": 1},
     'sid: unknown key "sid" of shape "square"\n    = did you mean "side"?  choices: side, label  (fgrl show shape square)'),
    (Shape, {"name": "square", "side": "1e-3"},
     'side: wants float, got str "1e-3"\n    = write 1e-3, without quotes, commas or underscores\n    = Length of a side.  (fgrl show shape square)'),
    (Shape, {"name": "square", "side": "10_000"},
     'side: wants float, got str "10_000"\n    = write 10000, without quotes, commas or underscores\n    = Length of a side.  (fgrl show shape square)'),
    (Shape, {"name": "square", "side": float("nan")}, "side: wants a finite number, got nan\n    = Length of a side.  (fgrl show shape square)"),
    (Shape, {"name": "square", "side": 0}, "side: wants a number > 0, got 0\n    = Length of a side.  (fgrl show shape square)"),
    (Shape, {"name": "square", "side": 1, "label": 5}, "label: wants str or null, got int 5\n    = Written into it.  (fgrl show shape square)"),
    (Shape, {"name": "ring", "inner": 5}, "inner: inner 5 must be smaller than outer 2"),
    (Shape, {"name": "group"},
     "shapes: missing; wants list of shape\n    = Drawn in this order.  (fgrl show shape group)"),
    (Shape, {"name": "group", "shapes": []}, "shapes: wants at least 1 item, got 0\n    = Drawn in this order.  (fgrl show shape group)"),
    (Shape, {"name": "group", "shapes": "ring"}, 'shapes: wants list of shape, got str "ring"\n    = write [ring]\n    = Drawn in this order.  (fgrl show shape group)'),
    (Shape, {"name": "group", "shapes": ["ring", 7]},
     "shapes[1]: wants a shape, got int 7\n    = choices: group, ring, square  (fgrl list shape)"),
    (Draw, {"name": "draw"}, "shape: missing; wants a shape: {name: ...}\n    = choices: group, ring, square  (fgrl list shape)"),
    (Draw, {"name": "draw", "shape": "ring", "pen": {"colour": "grean"}},
     'pen.colour: wants one of red, green, blue, got "grean"\n    = did you mean "green"?\n    = Of the ink.  (fgrl show draw.pen)'),
    (Draw, {"name": "draw", "shape": "ring", "pen": {"color": "red"}},
     'pen.color: unknown key "color" of Pen\n    = did you mean "colour"?  choices: colour, width  (fgrl show draw.pen)'),
    (Draw, {"name": "draw", "shape": "ring", "pen": 3}, "pen: wants Pen {}, got int 3\n    = choices: colour, width"),
    (Draw, {"name": "draw", "shape": "ring", "copies": "${out:a}"},
     "copies: no place for a reference to a stage: wants int, got ${out:a}"),
    (Draw, {"name": "draw", "shape": "ring", "words": ""}, 'words: wants a file, got str ""'),
    (Draw, {"name": "draw", "shape": "ring", "words": 3}, "words: wants file or null, got int 3\n    = A file of words to write below.  (fgrl show stage draw)"),
    (Train, {"name": "train", "data": "a", "lr": 1},
     'data: wants ${out:stage} of a stage that makes Samples, got str "a"'),
    (Train, {"name": "train", "data": "x${out:a}", "lr": 1},
     'data: "x${out:a}": ${out:stage} stands alone, it cannot be part of a text'),
    (Train, {"name": "train", "data": "${out:a}", "lr": 1, "shuffle": "yes"},
     'shuffle: wants bool, got str "yes"\n    = write true\n    = Mix the drawings.  (fgrl show stage train)'),
    (Train, {"name": "train", "data": "${out:a}", "lr": 1, "betas": [0.9, "b"]}, 'betas[1]: wants float, got str "b"\n    = Decay rates.  (fgrl show stage train)'),
    (Train, {"name": "train", "data": "${out:a}", "lr": 1, "betas": [0.9]}, "betas: wants at least 2 items, got 1\n    = Decay rates.  (fgrl show stage train)"),
    (Train, {"name": "train", "data": "${out:a}", "lr": 1, "base": 5},
     "base: wants str or ${out:stage} of a stage that makes Checkpoint, got int 5\n    = What to begin with.  (fgrl show stage train)"),
    (Train, {"name": "train", "data": "${out:a}", "lr": 1, "note": {"a": ["${out:a}"]}},
     "note.a[0]: no place for a reference to a stage: ${out:a}"),
    (Judge, {"name": "judge", "models": {"a": "${out:a}"}, "targets": [1]}, "targets[0]: wants str, got int 1\n    = What to compare.  (fgrl show stage judge)"),
    (Judge, {"name": "judge", "models": {"a": "${out:a}"}, "targets": "al"}, 'targets: wants list of str or all, got str "al"\n    = What to compare.  (fgrl show stage judge)'),
    (Judge, {"name": "judge", "models": {}}, "models: wants at least 1 item, got 0\n    = By name.  (fgrl show stage judge)"),
    (Judge, {"name": "judge", "models": ["${out:a}"]}, "models: wants mapping of ${out:stage} of a stage that makes Checkpoint, got a list\n"
     "    = write entries, name: value, without the dashes or brackets of a list"),
]  # fmt: skip


@pytest.mark.parametrize(("what", "node", "message"), MESSAGES, ids=lambda value: str(value)[:40])
def test_a_mistake_in_words(what: type[Component], node: Any, message: str) -> None:
    assert told(what, node) == message


def test_a_stage_s_name_where_a_reference_is_wanted() -> None:
    data = {"name": "train", "data": "sketch", "lr": 1, "base": "sketch"}
    assert told(Train, data, stages=["sketch"]) == (
        'data: "sketch" is a stage of this recipe\n    = write ${out:sketch}\n'
        'base: "sketch" is a stage of this recipe\n    = write ${out:sketch}; a folder of that name is ./sketch'
    )


def test_a_bug_in_a_validator_is_no_user_s_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    class Buggy(Pen):
        """Fails."""

        def model_post_init(self, context: Any) -> None:
            raise AttributeError("a bug")

    with pytest.raises(AttributeError, match="a bug"):
        build(Buggy, {})
