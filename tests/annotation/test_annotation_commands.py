"""`fgrl annotate export`, `import` and `stats` at the command line: JSON, notes, and mistakes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from annotated_samples import annotated
from typer.testing import CliRunner, Result

from fgrl.base.errors import DataError, UsageError
from fgrl.cli import app
from fgrl.feedback.page_settings import load_settings
from fgrl.pages.annotation.store import Store
from fgrl.registry import Problems
from fgrl.types import Annotation, Response, Sample, read_jsonl, write_jsonl


def fgrl(*words: object) -> Result:
    return CliRunner().invoke(app, ["annotate", *map(str, words)], catch_exceptions=False)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Two annotated samples."""
    write_jsonl(tmp_path / "annotated.jsonl", [annotated("1"), annotated("2")])
    return tmp_path / "annotated.jsonl"


@pytest.fixture
def store(tmp_path: Path, file: Path) -> Path:
    """A store of them."""
    path = tmp_path / "page.sqlite"
    assert "(new): " in fgrl("import", file, "--store", path).stdout
    return path


def test_import_export_and_stats_as_json(store: Path, file: Path, tmp_path: Path) -> None:
    assert json.loads(fgrl("import", file, "--store", store, "--json").stdout) == {
        "place": str(store), "items": 2, "skipped": 0, "revisions": 24, "added": 0, "created": False
    }  # fmt: skip
    out = tmp_path / "new" / "tasks.json"
    told = json.loads(fgrl("export", store, out, "--format", "label-studio", "--json").stdout)
    assert told["files"] == [str(out), str(out.with_suffix(".xml"))]
    assert (told["items"], told["annotated"]) == (2, 2)
    assert told["skipped"] == 0
    numbers = json.loads(fgrl("stats", store, "--json").stdout)
    assert (numbers["works"], numbers["total"]["likes"], numbers["domains"]["Yelp"]["annotations"]) == (4, 4, 8)


def test_times_of_two_stores_stand_below_each_other(store: Path, tmp_path: Path) -> None:
    only = tmp_path / "only.sqlite"
    samples = [Sample(id="1", prompt="p", responses=[Response(text="a"), Response(text="b")])]
    with Store.create(only, samples, load_settings("retrieval_ab"), ["Ada"]) as own:
        own.append("1", "Ada", "time", "t", {"seconds": 30.0}, 0)
        own.append("1", "Ada", "verdict", "", {"better": 0, "reason": "r"}, 0)
    lines = fgrl("stats", store, only).stdout.splitlines()
    assert [line.split()[0] for line in lines if line.startswith(("  full", "  A/B only"))] == ["full", "A/B"]


def test_what_is_skipped_is_one_line_on_stderr(file: Path, tmp_path: Path) -> None:
    assert fgrl("export", file, tmp_path / "t.json", "--format", "label-studio").stderr.splitlines() == [
        "2 items, 2 of them with annotations"
    ]
    critique = Annotation(by="critic", critique="Short.")
    write_jsonl(file, [annotated(responses=[Response(text="a", annotations=[critique])], verdicts=None)])
    result = fgrl("export", file, tmp_path / "t.json", "--format", "label-studio")
    (line,) = [line for line in result.stderr.splitlines() if line.startswith("skipped: ")]
    assert line.startswith("skipped: 1 ")
    assert result.stdout.splitlines() == [str(tmp_path / "t.json"), str(tmp_path / "t.xml")]


def test_label_studio_into_a_file(store: Path, tmp_path: Path) -> None:
    fgrl("export", store, tmp_path / "t.json", "--format", "label-studio")
    fgrl("import", tmp_path / "t.json", "--out", tmp_path / "deep" / "back.jsonl")
    (first, _second) = read_jsonl(tmp_path / "deep" / "back.jsonl", Sample)
    assert first.responses[0].annotations[0].spans == annotated().responses[0].annotations[0].spans


def test_the_calls_in_python_do_the_same(store: Path, tmp_path: Path) -> None:
    import fgrl as library

    exported = library.export_annotations(store, tmp_path / "t.json", format="label-studio")
    assert (exported.files, exported.items) == ([tmp_path / "t.json", tmp_path / "t.xml"], 2)
    made = library.import_annotations(tmp_path / "t.json", store=tmp_path / "new.sqlite")
    assert (made.place, made.created, made.items, made.added) == (tmp_path / "new.sqlite", True, 2, made.revisions)
    assert (
        library.annotation_stats(tmp_path / "new.sqlite").total.likes == library.annotation_stats([store]).total.likes
    )
    with pytest.raises(UsageError, match="either --store"):
        library.import_annotations(tmp_path / "t.json")


@pytest.mark.parametrize(
    ("words", "error", "wanted"),
    [
        (["import", "F"], UsageError, "either --store"),
        (["import", "F", "--store", "S", "--out", "x"], UsageError, "either --store"),
        (["import", "S", "--out", "x"], UsageError, "is a store; `fgrl annotate export` comes first"),
        (["import", "F", "--store", "S", "--settings", "retrieval"], UsageError, "exists and has its own"),
        (["import", "F", "--store", "new.sqlite", "--settings", "retrievel"], Problems, 'did you mean "retrieval"?'),
        (["import", "missing.jsonl", "--out", "x"], DataError, "wants a store or a JSONL file"),
        (["export", "F", "x", "--finished"], UsageError, "needs a store"),
        (["export", "S", "S"], UsageError, "is the file that is read"),
        (["export", "F", "F"], UsageError, "is the file that is read"),
        (["export", "F", "S"], UsageError, "is a store of annotations, which is never overwritten"),
        (["import", "F", "--out", "F"], UsageError, "is the file that is read"),
        (["import", "F", "--out", "S"], UsageError, "is a store of annotations, which is never overwritten"),
        (["export", "F", "S", "--format", "label-studio"], UsageError, "is a store of annotations"),
        (["export", "S", "tasks.xml", "--format", "label-studio"], UsageError, "the tasks are JSON"),
        (["stats", "missing.sqlite"], DataError, "wants a store or a JSONL file"),
    ],
)
def test_mistakes(
    store: Path, file: Path, words: list[str], error: type[Exception], wanted: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    named = {"F": str(file), "S": str(store)}
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(error) as raised:
        fgrl(*(named.get(word, word) for word in words))
    assert wanted in str(raised.value)
    assert {name: (tmp_path / name).read_bytes() for name in before} == before


def test_a_labeling_configuration_replaces_no_store_and_no_source(store: Path, file: Path, tmp_path: Path) -> None:
    named = {"a": store.rename(tmp_path / "a.xml"), "b": file.rename(tmp_path / "b.xml")}
    for name, wanted in (("a", "is a store of annotations"), ("b", "is the file that is read")):
        before = named[name].read_bytes()
        with pytest.raises(UsageError, match=wanted):
            fgrl("export", named["b"], tmp_path / f"{name}.json", "--format", "label-studio")
        assert named[name].read_bytes() == before
        assert not (tmp_path / f"{name}.json").exists()


def test_a_store_and_its_copy_are_two_sources_and_a_store_named_twice_is_one(store: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.jsonl"
    fgrl("export", store, copy)
    one = json.loads(fgrl("stats", store, "--json").stdout)
    assert json.loads(fgrl("stats", store, store, "--json").stdout) == one
    both = json.loads(fgrl("stats", store, copy, "--json").stdout)
    for name in ("items", "works"):
        assert both[name] == 2 * one[name]
    assert both["total"]["responses"] == 2 * one["total"]["responses"]
    assert both["agreement"]["pairs"] == 2 * one["agreement"]["pairs"], "nobody is compared with herself"
    assert (both["preference"]["raters"], both["preference"]["items"]) == ({"2": 4}, 4)


def test_nothing_to_count(tmp_path: Path) -> None:
    write_jsonl(tmp_path / "bare.jsonl", [Sample(id="1", prompt="p", responses=[Response(text="a")])])
    with pytest.raises(DataError, match="nobody has annotated anything yet"):
        fgrl("stats", tmp_path / "bare.jsonl")
