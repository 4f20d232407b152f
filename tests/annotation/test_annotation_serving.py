"""`fgrl annotate serve`: creating and resuming a store, links, and what goes wrong at the start."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import socket
import sqlite3
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from annotation_clients import Client, ServerProcess
from annotation_stores import samples, settings
from patience import HUNG

from fgrl.base.errors import DataError, Unavailable, UsageError
from fgrl.cli import main
from fgrl.pages.annotation import serving
from fgrl.pages.annotation import store as stores
from fgrl.pages.annotation.access import Address
from fgrl.pages.annotation.store import Store
from fgrl.types import write_jsonl

pytest.importorskip("uvicorn", reason="needs uvicorn")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    write_jsonl(tmp_path / "samples.jsonl", samples(3))
    return tmp_path / "samples.jsonl"


def page_yaml(folder: Path, **changes: Any) -> str:
    path = folder / f"page{len(changes)}.yaml"
    path.write_text(settings(**changes).model_dump_json())  # JSON is YAML
    return str(path)


def test_a_store_is_created_and_resumed(file: Path, tmp_path: Path) -> None:
    path = tmp_path / "new" / "page.sqlite"
    opened = serving.open_store(path, file, page_yaml(tmp_path), ["ann", " ben "], overlap=2, each=1, seed=9)
    store = opened.store
    assert (store.annotators, store.overlap, store.each, store.seed, len(store.items)) == (["ann", "ben"], 2, 1, 9, 3)
    assert store.settings == settings()
    links = serving.issue_links(store, Address("127.0.0.1", 8347))
    assert list(links) == ["ann", "ben"]
    assert links["ann"].startswith("http://127.0.0.1:8347/enter/")
    store.close()
    again = serving.open_store(path, None, page_yaml(tmp_path, title="Other"), ["ben", "cleo"], overlap=2)
    assert again.store.annotators == ["ann", "ben", "cleo"]
    assert any("settings differ" in note for note in again.notes)
    assert "new annotators: cleo" in again.notes
    assert list(serving.issue_links(again.store, Address("127.0.0.1", 1))) == ["cleo"]
    again.store.close()


def test_samples_of_a_file_and_of_a_stage_are_the_same_samples(file: Path, tmp_path: Path) -> None:
    with Store.create(tmp_path / "page.sqlite", samples(3), settings()) as store:
        store.check_samples(serving.read_samples(file))
        store.check_samples(serving.read_samples(tmp_path))


def test_what_cannot_change_is_named(file: Path, tmp_path: Path) -> None:
    path = tmp_path / "page.sqlite"
    serving.open_store(path, file, None, ["ann"], overlap=1).store.close()
    for name, words in (("overlap", "--overlap 1"), ("each", "--each 1"), ("seed", "--seed 0")):
        with pytest.raises(UsageError, match=words):
            serving.open_store(path, file, None, [], **{name: 7})
    write_jsonl(file, samples(2))
    with pytest.raises(DataError, match="other samples"):
        serving.open_store(path, file, None, [])
    assert serving.open_store(path, None, None, []).store.annotators == ["ann"]


def test_a_new_store_needs_samples_and_annotators(file: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="name the samples"):
        serving.open_store(tmp_path / "page.sqlite", None, None, ["ann"])
    with pytest.raises(UsageError, match="--annotators ann,ben"):
        serving.open_store(tmp_path / "page.sqlite", file, None, [])
    with pytest.raises(DataError, match="no samples here"):
        serving.open_store(tmp_path / "page.sqlite", tmp_path / "none.jsonl", None, ["ann"])
    (tmp_path / "latin.jsonl").write_bytes(b'{"id": "\xe9"}\n')
    with pytest.raises(DataError, match="not UTF-8"):
        serving.open_store(tmp_path / "page.sqlite", tmp_path / "latin.jsonl", None, ["ann"])
    assert not (tmp_path / "page.sqlite").exists()


CREATE_AND_DIE = """
import os, signal, sys
from pathlib import Path
from fgrl.pages.annotation import serving, store

class Death:
    def __format__(self, _how):
        os.kill(os.getpid(), signal.SIGKILL)

store.APPLICATION = Death()
serving.open_store(Path(sys.argv[1]), Path(sys.argv[2]), None, ["ann"])
"""


def test_a_store_whose_creation_was_killed_is_created_again(tmp_path: Path) -> None:
    (tmp_path / "page.sqlite").touch()
    write_jsonl(tmp_path / "samples.jsonl", samples(3, ("long " * 600_000, "x")))
    words = [sys.executable, "-c", CREATE_AND_DIE, str(tmp_path / "page.sqlite"), str(tmp_path / "samples.jsonl")]
    died = subprocess.run(words, check=False, env=dict(os.environ), timeout=HUNG)
    assert died.returncode == -signal.SIGKILL
    assert (tmp_path / "page.sqlite-journal").exists()
    assert (tmp_path / "page.sqlite").stat().st_size > 0
    opened = serving.open_store(tmp_path / "page.sqlite", tmp_path / "samples.jsonl", None, ["ann"])
    assert len(opened.store.items) == 3


@pytest.mark.parametrize("url", ["annotate.example.org", "ftp://x", "https://x/path", "https://", "https://x?y"])
def test_public_addresses_are_checked(url: str) -> None:
    with pytest.raises(UsageError, match="--public-url"):
        serving.checked_public(url)
    assert serving.checked_public("https://Annotate.example.org/") == "https://annotate.example.org"


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    with pytest.raises(SystemExit) as end:
        main(["annotate", "serve", *words])
    assert isinstance(end.value.code, int)
    return end.value.code, capsys.readouterr().err


def test_mistakes_at_the_start_end_with_one_message_and_their_code(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "run", lambda *_: None)
    new = ["--store", str(tmp_path / "page.sqlite"), "--annotators", "ann", "--port", "0"]
    assert run(capsys, str(file), *new)[0] == 0

    taken = socket.socket()
    with taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, words = run(capsys, *new[:4], "--port", str(taken.getsockname()[1]))
    assert (code, "is in use" in words, "--port" in words, words.count("\n")) == (2, True, True, 1)

    assert run(capsys, *new, "--host", "no.such.host.invalid")[0] == 2
    assert run(capsys, *new, "--annotators", " , ")[0] == 2
    assert run(capsys, *new, "--settings", "no_such_settings")[0] == 2
    assert run(capsys, str(file), *new, "--overlap", "2")[0] == 2

    foreign = tmp_path / "foreign"
    foreign.write_text("This is a letter.\n" * 400)
    code, words = run(capsys, str(file), "--store", str(foreign), "--annotators", "ann", "--port", "0")
    assert (code, "no store of annotations" in words, words.count("\n")) == (3, True, 1)
    code, words = run(capsys, str(file), "--store", str(file / "page.sqlite"), "--annotators", "ann", "--port", "0")
    assert (code, words.startswith("fgrl: disk: "), words.count("\n")) == (6, True, 1)


def test_a_locked_a_newer_and_a_store_on_a_full_disk_end_with_one_message_and_their_code(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "run", lambda *_: None)
    monkeypatch.setattr(stores, "WAIT", 0.05)
    path = tmp_path / "page.sqlite"
    new = [str(file), "--store", str(path), "--annotators", "ann", "--port", "0"]
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, hard))
    try:
        code, words = run(capsys, *new)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (code, words.startswith("fgrl: disk: "), "make room" in words, words.count("\n")) == (6, True, True, 1)
    assert run(capsys, *new)[0] == 0, "with room it starts"

    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    code, words = run(capsys, *new, "--new-links", "ann")
    assert (code, "another program" in words) == (3, True)
    other.execute("ROLLBACK")
    other.execute("PRAGMA user_version = 2")
    other.close()
    code, words = run(capsys, *new)
    assert (code, "newer version" in words, words.count("\n")) == (3, True, 1)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("fgrl.base.errors.find_spec", lambda package: None if package == "uvicorn" else package)
    with pytest.raises(Unavailable, match=r"pip install 'fgrl\[annotate\]'"):
        serving.need_packages()


def test_links_are_printed_for_people(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serving, "run", lambda *_: None)
    words = ["annotate", "serve", str(file), "--store", str(tmp_path / "page.sqlite"), "--port", "0"]
    with pytest.raises(SystemExit):
        main([*words, "--annotators", "ann,<b>ben</b>"])
    printed = capsys.readouterr()
    ann, ben = printed.out.splitlines()
    assert ann.startswith("ann  http://127.0.0.1:")
    assert ben.startswith("<b>ben</b>  http://127.0.0.1:")
    assert "everything that was acknowledged" in printed.err
    (own,) = re.findall(r"your own page, .*: (http\S+)", printed.err)
    assert re.fullmatch(r"http://127.0.0.1:\d+/manage/[\w-]{43}", own)
    with pytest.raises(SystemExit):
        main([*words, "--annotators", "cleo", "--host", "0.0.0.0"])
    printed = capsys.readouterr()
    assert [line.split()[0] for line in printed.out.splitlines()] == ["cleo"]
    assert "stay valid for ann, <b>ben</b>" in printed.err
    assert "without encryption" in printed.err
    with pytest.raises(SystemExit):
        main([*words, "--new-links", "all", "--json"])
    printed_json = json.loads(capsys.readouterr().out)
    assert list(printed_json["links"]) == ["ann", "<b>ben</b>", "cleo"]
    assert "/manage/" in printed_json["manager"]
    assert printed_json["manager"] != own, "each start has another one"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["Ctrl-C", "SIGTERM"])
def test_a_real_server_answers_and_ends_cleanly(file: Path, tmp_path: Path, number: int) -> None:
    server = ServerProcess(tmp_path / "page.sqlite", file, "--annotators", "ann")
    try:
        client = Client(server.port, server.links["ann"])
        status, answer = client.ask("POST", "/api/items/next", {})
        assert (status, answer["item"]["id"]) == (200, "1")
        with pytest.raises(urllib.error.HTTPError) as missing:
            urllib.request.urlopen(f"http://127.0.0.1:{server.port}/static/none")
        assert missing.value.code == 404
        assert "uvicorn" not in missing.value.headers.get("server", "")
        assert missing.value.headers["cache-control"] == "no-store"
    finally:
        server.process.send_signal(number)
        assert server.process.wait(timeout=HUNG) == 0
    assert "everything that was acknowledged" in server.log.read_text()
    assert "Traceback" not in server.log.read_text()
    with Store(tmp_path / "page.sqlite") as store:
        assert [own.kind for own in store.revisions()] == ["order"]


def test_starting_loads_no_model_library(file: Path, tmp_path: Path) -> None:
    code = (
        "import sys\nfrom fgrl.pages.annotation import serving\nserving.run = lambda *_: None\nfrom fgrl.cli import main\n"
        "try:\n    main(sys.argv[1:])\nexcept SystemExit:\n    pass\n"
        "print([name for name in ('torch', 'transformers', 'numpy', 'datasets') if name in sys.modules], file=sys.stderr)"
    )
    words = [
        "annotate",
        "serve",
        str(file),
        "--store",
        str(tmp_path / "p.sqlite"),
        "--annotators",
        "ann",
        "--port",
        "0",
    ]
    done = subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        check=True,
        env=dict(os.environ),
        timeout=HUNG,
    )
    assert done.stderr.splitlines()[-1] == "[]"
