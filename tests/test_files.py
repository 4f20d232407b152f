"""Files are complete or absent, whatever interrupts their writing; digests that stand in cache keys do not change."""

from __future__ import annotations

import hashlib
import json

import pytest

from fgrl import registry
from fgrl.base import errors, files, seeds
from fgrl.experiments import recipe
from fgrl.experiments.pipeline import keys
from fgrl.kinds import Reader
from fgrl.models.digests import digest_of_folder


def hidden(folder):
    return [path.name for path in folder.iterdir() if path.name.startswith(".")]


def test_a_file_takes_its_name_when_it_is_complete(tmp_path):
    path = tmp_path / "numbers.bin"
    with files.atomically(path) as partial:
        partial.write_bytes(b"12")
        assert not path.exists()
        assert partial.parent == tmp_path
    assert path.read_bytes() == b"12"
    assert not hidden(tmp_path)


def test_an_error_leaves_the_file_of_before(tmp_path):
    path = tmp_path / "numbers.json"
    files.write_json(path, [1, 2])

    def lines():
        yield "3"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.write_lines(path, lines())
    assert json.loads(path.read_text()) == [1, 2]
    assert not hidden(tmp_path)


def test_the_content_is_on_the_disk_before_it_has_the_name(tmp_path, monkeypatch):
    path = tmp_path / "numbers.json"
    synced = []
    monkeypatch.setattr(files.os, "fsync", lambda _number: synced.append(path.exists()))
    files.write_json(path, [1, 2])
    assert synced == [False]


def test_a_folder_replaces_the_folder_of_before(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "old.txt").write_text("old")
    with files.atomically(folder) as partial:
        partial.mkdir()
        (partial / "new.txt").write_text("new")
        assert (folder / "old.txt").exists()
    assert [path.name for path in folder.iterdir()] == ["new.txt"]
    assert not hidden(tmp_path)


def test_what_a_killed_process_left_is_no_hindrance(tmp_path, monkeypatch):
    monkeypatch.setattr(files.os, "getpid", lambda: 123)
    (tmp_path / f".numbers.json.{files.MACHINE}.123.partial").write_text('{"lo')
    files.write_json(tmp_path / "numbers.json", 1)
    assert (tmp_path / "numbers.json").read_text() == "1\n"
    assert not hidden(tmp_path)


def test_text_keeps_its_line_ends(tmp_path):
    files.write_text(tmp_path / "table.csv", "a\r\nb\n")
    assert (tmp_path / "table.csv").read_bytes() == b"a\r\nb\n"


def test_lines_are_counted(tmp_path):
    assert files.write_json_lines(tmp_path / "rows.jsonl", [{"a": "ä"}, 1]) == 2
    assert (tmp_path / "rows.jsonl").read_text(encoding="utf-8") == '{"a": "ä"}\n1\n'


def test_text_that_utf8_cannot_encode_is_written_as_an_escape(tmp_path):
    files.write_json(tmp_path / "answer.json", "half \ud83d")
    assert json.loads((tmp_path / "answer.json").read_text(encoding="utf-8")) == "half \ud83d"


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "data"
    (root / "b").mkdir(parents=True)
    (root / ".hidden").mkdir()
    (root / "b" / "two.txt").write_text("2")
    (root / "a.txt").write_text("1")
    (root / ".hidden" / "lock").write_text("0")
    return root


def sha256(text):
    return hashlib.sha256(text.encode()).hexdigest()


def test_digests_of_folders_have_the_format_that_keys_were_made_with(folder):
    """Changing one of them would compute every stage that reads a folder again."""
    one, two, hidden_one = sha256("1"), sha256("2"), sha256("0")
    assert keys.sha256(folder) == sha256(f".hidden/lock:{hidden_one}\na.txt:{one}\nb/two.txt:{two}\n")
    assert digest_of_folder(folder) == sha256(f"a.txt\0{one}\nb/two.txt\0{two}\n")
    recipe.know_components()
    entries = [(".hidden/lock", "0"), ("a.txt", "1"), ("b/two.txt", "2")]
    parts = [f"{name}\0{1}\0".encode() + hashlib.sha256(text.encode()).digest() for name, text in entries]
    assert registry.build(
        Reader, {"name": "hf", "path": str(folder), "format": "prompts", "columns": {"prompt": "p"}}
    ).identity() == {"folder": hashlib.sha256(b"".join(parts)).hexdigest()}


def test_a_file_that_is_gone_before_it_is_hashed_is_named(tmp_path):
    (tmp_path / "a.txt").write_text("a")

    def entry(_name, file):
        file.unlink()
        return file.read_bytes()

    with pytest.raises(errors.DataError, match=r"a\.txt: No such file"):
        files.sha256_of_folder(tmp_path, entry)


def test_a_folder_with_too_many_files_is_no_data_set(tmp_path, monkeypatch):
    """A mistake in a path that would hash a whole disk."""
    (tmp_path / "inside").mkdir()
    for name in ("a.jsonl", "b.jsonl", "inside/c.jsonl"):
        (tmp_path / name).write_text("{}\n")
    assert not files.has_more_files(tmp_path, 4)
    assert files.has_more_files(tmp_path, 3)
    recipe.know_components()
    of = {"name": "hf", "path": str(tmp_path), "format": "prompts"}
    registry.build(Reader, of)
    monkeypatch.setattr("fgrl.data.hub.MOST_FILES", 3)
    with pytest.raises(registry.Problems, match="more than 3 files"):
        registry.build(Reader, of)


def test_derived_seeds_are_the_numbers_that_finished_runs_used():
    assert seeds.of_round(7, 3) == 7_000_024
    assert seeds.of_turn(7, 0) == 7
    assert seeds.of_turn(7, 2) == 2_000_013


SCORE = '"""Scores."""\n\ndef score(text):\n    """Length  # of it."""\n    return len("# no comment\\n")\n'


@pytest.mark.parametrize(
    "same",
    [
        "#!/usr/bin/env python\n# why\n" + SCORE,
        SCORE.replace("\n\n", "\n"),
        SCORE.replace("score(text):", "score(text):   # a comment\n    # another one\n\n"),
        SCORE + "\n# the end",
        "\ufeff" + SCORE,
    ],
)
def test_comments_and_blank_lines_of_a_python_file_do_not_decide(same: str) -> None:
    assert files.sha256_of_code(same.encode()) == files.sha256_of_code(SCORE.encode())


@pytest.mark.parametrize(
    "other",
    [
        SCORE.replace("Scores", "Scores of"),  # a docstring may be read
        SCORE.replace("# no", "#  no"),
        SCORE.replace("  # of it", ""),
        SCORE.replace("return", "return 1 +"),
        SCORE.replace('"""Scores."""', '"""Scores.\n"""'),
        SCORE.replace('"""Scores."""', '"""Scores.\n\n"""'),
    ],
)
def test_everything_else_of_a_python_file_decides(other: str) -> None:
    assert files.sha256_of_code(other.encode()) != files.sha256_of_code(SCORE.encode())


def test_blank_lines_inside_a_text_decide() -> None:
    texts = [
        'X = """a\nb"""',
        'X = """a\n\nb"""',
        'X = """a\n# b"""',
        'X = """a\n # b"""',
        "X = f'''{1}\n\nb'''",
        "X = f'''{1}\nb'''",
    ]
    assert len({files.sha256_of_code(text.encode()) for text in texts}) == len(texts)


@pytest.mark.parametrize(
    "content",
    [
        b"def f(:\n  # one\n",
        b"# -*- coding: latin-1 -*-\nX = '\xe9'  # one\n",
        b"X = '\xe9'  # one\n",
        b"X = 1 \0 # one\n",
    ],
)
def test_a_file_that_cannot_be_read_as_python_in_utf8_is_taken_as_it_is(content: bytes) -> None:
    assert files.sha256_of_code(content) == hashlib.sha256(content).hexdigest()
    assert files.sha256_of_code(content.replace(b"one", b"two")) != files.sha256_of_code(content)
