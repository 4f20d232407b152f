"""`docs/how-to/annotate.md` and `annotation-files.md`, followed from the samples to the pairs: files, commands and recipes as they stand there."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from fgrl.cli import app
from fgrl.experiments.recipe import load
from fgrl.feedback.page_settings import (
    Attribute,
    Group,
    PageModes,
    PageSettings,
    Question,
    Reasons,
    load_settings,
    shipped,
)
from fgrl.pages.annotation import serving
from fgrl.pages.annotation.store import Store
from fgrl.types import Pair, Sample, read_jsonl

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "how-to" / "annotate.md").read_text(encoding="utf-8")
FILES = (ROOT / "docs" / "how-to" / "annotation-files.md").read_text(encoding="utf-8")


def blocks(kind: str, page: str = PAGE) -> list[str]:
    """The fenced blocks of a language; empty: those without one, which are commands."""
    fences = re.findall(r"^```(\w*)\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    return [text for language, text in fences if language == kind]


COMMANDS = [line for block in blocks("") for line in block.splitlines()]


def fgrl(line: str) -> str:
    """Run a command of the page; what it printed."""
    name, *words = shlex.split(line)
    assert name == "fgrl"
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def the(start: str) -> str:
    """The command of the page that begins like this."""
    (line,) = {command for command in COMMANDS if command.startswith(start)}
    return line


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a newcomer works, after section 3: both annotators have finished both items."""
    monkeypatch.chdir(tmp_path)
    (items,) = blocks("json")
    (tmp_path / "try.jsonl").write_text(items, encoding="utf-8")
    words = shlex.split(the("fgrl annotate serve try.jsonl"))
    given = dict(zip(words[4::2], words[5::2], strict=True))
    opened = serving.open_store(
        Path(given["--store"]), Path(words[3]), None, given["--annotators"].split(","), overlap=int(given["--overlap"])
    )
    with opened.store as store:
        work(store)
    return tmp_path


def work(store: Store) -> None:
    """What ann and ben do."""
    marks = [
        ("ann", "q1", 0, "It faces the garden and is quiet.", 1, ["useful_fact"]),
        ("ann", "q1", 1, "It depends on your budget, too.", -1, ["repeats_itself", "generic"]),
        ("ben", "q1", 1, "There are many rooms.", -1, ["adds_nothing"]),
        ("ben", "q1", 1, "It depends on what you need.", -1, ["generic"]),
        ("ben", "q2", 0, "until May", -1, ["lacks_depth"]),
    ]
    seconds = {("ann", "q1"): 312.5, ("ann", "q2"): 201.0, ("ben", "q1"): 290.0, ("ben", "q2"): 95.5}
    verdicts = {("ann", "q1"): 0, ("ann", "q2"): 1, ("ben", "q1"): 0, ("ben", "q2"): None}
    for name in store.annotators:
        item = store.offer(name)
        while item is not None:
            for number, (by, about, place, quote, label, reasons) in enumerate(marks):
                if (by, about) == (name, item):
                    start = store.sample(item).responses[place].text.index(quote)
                    body = {"place": place, "start": start, "end": start + len(quote), "quote": quote, "label": label}
                    store.save(item, name, "span", f"s{number}", {**body, "reasons": reasons, "note": ""}, 0)
            store.save(item, name, "verdict", "", {"better": verdicts[name, item], "reason": "I would use it."}, 0)
            store.save(item, name, "time", "t", {"seconds": seconds[name, item]}, 0)
            store.save(item, name, "done", "", {"done": True}, 0)
            item = store.offer(name, item)


def test_the_numbers_of_the_page(folder: Path) -> None:
    (table,) = blocks("text")
    printed = fgrl(the("fgrl annotate stats try.sqlite"))
    assert printed.startswith(table)
    assert "Fleiss' kappa" in printed
    assert json.loads(fgrl("fgrl annotate stats try.sqlite --json"))["total"]["dislikes"] == 4


def test_from_the_store_to_pairs(folder: Path) -> None:
    fgrl(the("fgrl annotate export try.sqlite annotated.jsonl"))
    judged, chains = (block for block in blocks("yaml") if "builder:" in block)
    Path("pairs.yaml").write_text(judged + chains, encoding="utf-8")
    fgrl("fgrl run pairs.yaml")
    made = {file.parts[2].rsplit("-", 1)[0]: list(read_jsonl(file, Pair)) for file in Path("runs").rglob("pairs.jsonl")}
    assert [pair.chosen.split()[0] for pair in made["preferred"]] == ["Book", "Book", "The"], "a tie is no pair"
    assert [pair.id for pair in made["stepwise"]] == ["q1/1/ann#0", "q2/0/ben#0"], "one annotation of each response"
    last = made["stepwise"][-1]
    assert (last.rejected, "until May" in last.chosen) == ("It decided to close the bridge until May.", False)


def test_a_copy_and_label_studio(folder: Path) -> None:
    fgrl(the("fgrl annotate export try.sqlite annotated.jsonl"))
    assert "new" in fgrl(the("fgrl annotate import annotated.jsonl"))
    fgrl("fgrl annotate export again.sqlite again.jsonl")
    assert Path("again.jsonl").read_bytes() == Path("annotated.jsonl").read_bytes()
    for block in blocks("", FILES):
        for line in block.splitlines():
            fgrl(line.replace("page.sqlite", "try.sqlite"))
    assert Path("tasks.xml").is_file()
    one, other = (list(read_jsonl(Path(name), Sample)) for name in ("annotated.jsonl", "from_label_studio.jsonl"))
    assert [sample.verdicts for sample in one] == [sample.verdicts for sample in other]
    assert sum(len(response.spans) for sample in other for response in sample.responses) == 5


def test_the_recipe_for_items_can_be_built(folder: Path) -> None:
    Path("prompts.jsonl").write_text('{"id": "1", "prompt": "p"}\n')
    Path("items.yaml").write_text(blocks("yaml")[0])
    assert load("items.yaml").stages["draw"].per_prompt == 2


def test_the_settings_of_the_page_can_be_loaded(tmp_path: Path) -> None:
    own = [block for block in blocks("yaml") if "stages:" not in block and not block.startswith("  ")]
    assert len(own) == 2
    for number, block in enumerate(own):
        (tmp_path / f"{number}.yaml").write_text(block, encoding="utf-8")
        assert load_settings(tmp_path / f"{number}.yaml").title == yaml.safe_load(block)["title"]
    names = PAGE.partition("| name | page |")[2].partition("Your own settings")[0]
    assert set(re.findall(r"^\| `(\w+)` \|", names, re.MULTILINE)) == set(shipped())


def test_every_setting_is_in_the_table() -> None:
    rows = "\n".join(re.findall(r"^\| `.*\|$", PAGE, re.MULTILINE))
    named = set(re.findall(r"`([\w.]+)`", rows))
    assert set(PageSettings.model_fields) - {"modes"} <= named
    assert {f"modes.{name}" for name in PageModes.model_fields} <= named
    assert {*Question.model_fields, *Reasons.model_fields, *Group.model_fields, *Attribute.model_fields} <= named


def test_the_line_of_the_format_is_read_and_written_as_it_stands(tmp_path: Path) -> None:
    (line,) = blocks("json", FILES)
    sample = Sample.model_validate_json(line)
    written = json.loads(sample.model_dump_json(exclude_defaults=True))
    given = json.loads(line)
    for response in given["responses"]:
        for annotation in response["annotations"]:
            for span in annotation.get("spans", []):
                if span["label"] == 1:
                    del span["label"]
    assert written == given
    first = sample.responses[0]
    assert [first.text[one.start : one.end] for one in first.spans] == ["It is quiet.", "Book the room at the back."]
    taxonomy = load_settings("retrieval")
    for one in first.spans:
        assert taxonomy.wrong_span(one.label, one.reasons, one.note or "") is None
    assert taxonomy.wrong_answers(first.annotations[0].answers) is None
    assert sample.meta["annotation"]["page"] == taxonomy.modes.model_dump(mode="json")
