"""What is in a component: for keys, for the graph, and for people."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import pytest
from recipe_world import Draw, Group, Pen, Ring, Square, Train, world  # noqa: F401

from fgrl.registry import File, Settings, Unkeyed, build, describe, dump, undocumented, walk
from fgrl.registry.docstrings import field_help, source
from fgrl.types import Ref

pytestmark = pytest.mark.usefixtures("world")

DRAW = Draw(
    shape=Group(shapes=[Ring(), Square(side=1.0)], named={"a": Ring(outer=3.0)}), words="/w/words.txt", threads=8
)


def test_walk_gives_settings_references_and_files_with_their_paths() -> None:
    assert list(walk(DRAW)) == [
        (("shape",), DRAW.shape),
        (("shape", "shapes", 0), Ring()),
        (("shape", "shapes", 1), Square(side=1.0)),
        (("shape", "named", "a"), Ring(outer=3.0)),
        (("pen",), Pen()),
        (("words",), Path("/w/words.txt")),
    ]
    train = Train(data=Ref("a"), base=Ref("b"), lr=1.0)
    assert list(walk(train)) == [(("data",), Ref("a")), (("base",), Ref("b"))]
    assert list(walk(Train(data=Ref("a"), base="hub/model", lr=1.0))) == [(("data",), Ref("a"))]


class Files(Settings):
    """Files in all places."""

    many: list[Annotated[str, File]] = []
    """In a list."""
    named: dict[str, Annotated[str | None, File]] = {}
    """In a mapping."""
    hidden: Annotated[str, File, Unkeyed] = "x"
    """Counts for nothing."""


def test_files_in_lists_and_mappings_are_found_and_unkeyed_ones_are_not() -> None:
    files = Files(many=["/a"], named={"x": "/b", "y": None})
    assert list(walk(files)) == [(("many", 0), Path("/a")), (("named", "x"), Path("/b"))]
    assert dump(files) == {"many": ["/a"], "named": {"x": "/b", "y": None}}


class Referring(Settings):
    """Its file refers to others."""

    number: int = 2

    def behind(self) -> list[str]:
        return ["a.txt 1"] if self.number % 2 else []


def test_what_a_file_refers_to_counts() -> None:
    assert dump(Referring(), for_key=True) == {}
    assert dump(Referring(number=3), for_key=True) == {"behind": ["a.txt 1"], "number": 3}
    assert dump(Referring(number=3)) == {"number": 3}


def test_dump_has_names_versions_and_defaults_but_nothing_unkeyed() -> None:
    assert dump(DRAW) == {
        "name": "draw", "version": 1,
        "shape": {"name": "group", "version": 1,
                  "shapes": [{"name": "ring", "version": 1, "outer": 2.0, "inner": 1.0},
                             {"name": "square", "version": 1, "side": 1.0, "label": None}],
                  "named": {"a": {"name": "ring", "version": 1, "outer": 3.0, "inner": 1.0}}},
        "pen": {"colour": "red", "width": 1.0}, "words": "/w/words.txt", "copies": 1,
    }  # fmt: skip


def test_dump_goes_through_json_and_back() -> None:
    train = Train(data=Ref("a"), base=Ref("b"), lr=1e-7, note={"x": [1, None]})
    assert build(Train, json.loads(json.dumps(dump(train)))) == train
    group = Group(shapes=[Ring(), Square(side=1.0)])
    assert build("shape", json.loads(json.dumps(dump(group)))) == group


def test_the_docstring_under_a_field_is_its_help_also_in_a_subclass() -> None:
    class Child(Pen):
        """A pen."""

        tip: str = "fine"
        """Its point;
        on two lines."""
        plain: int = 1

    assert field_help(Child, "tip") == "Its point; on two lines."
    assert field_help(Child, "colour") == "Of the ink."
    assert undocumented(Child) == ["plain"]
    file, line = source(Child).rsplit(":", 1)
    assert Path(file).name == "test_walking.py"
    assert Path(__file__).read_text().splitlines()[int(line) - 1].strip() == "class Child(Pen):"


def test_describe_says_everything_about_the_fields() -> None:
    about = describe("stage", "draw")
    assert {key: about[key] for key in ("kind", "name", "version", "doc")} == {
        "kind": "stage", "name": "draw", "version": 1, "doc": "Draws a shape.",
    }  # fmt: skip
    assert about["source"].split(":")[0].endswith("recipe_world.py")
    fields: dict[str, Any] = {field["name"]: field for field in about["fields"]}
    assert list(fields) == ["shape", "pen", "words", "copies", "threads"]
    assert fields["shape"] == {
        "name": "shape", "type": "shape", "required": True, "default": None, "bounds": "", "help": "What to draw.", "keyed": True,
    }  # fmt: skip
    assert (fields["copies"]["default"], fields["copies"]["bounds"], fields["copies"]["type"]) == ("1", ">= 1", "int")
    assert (fields["words"]["default"], fields["words"]["type"]) == ("null", "file or null")
    assert fields["threads"]["keyed"] is False
    assert [inner["name"] for inner in fields["pen"]["fields"]] == ["colour", "width"]
    assert fields["pen"]["default"] == "{}"
    assert about["example"] == "stages:\n  my_draw:\n    name: draw\n    shape: {...}"
    assert describe("shape", "square")["example"] == "shape: {name: square, side: ...}"
    assert describe("shape", "ring")["example"] == "shape: ring"
    assert describe("stage", "train")["example"].splitlines()[3] == '    data: "${out:stage}"'
    json.dumps(about)
