"""Text from models, data and endpoints reaches the terminal through two functions, which leave nothing raw."""

from __future__ import annotations

import ast
import io
import json
from pathlib import Path

import pytest
import yaml
from fault_server import FaultServer
from import_walk import sources

from fgrl.base.console import Console
from fgrl.base.visible import HIDDEN, quantity
from fgrl.cli import main
from fgrl.commands.shared import show_bug
from fgrl.experiments.pipeline import execute
from fgrl.experiments.recipe import load
from fgrl.types import Sample, write_jsonl

EVIL = "\x1b[2J\x1b]0;owned\x07\u202ereversed\u2066\r\x9b31m\x08"
SHOWN = "␛[2J␛]0;owned␇⟨U+202E⟩reversed"
WRITERS = {"echo", "secho", "print", "print_exc", "print_exception", "write_through"}
STREAMS = {"stdout", "stderr", "__stdout__", "__stderr__"}
ALLOWED = {
    "fgrl.base.console": {"stderr", "print"},
    "fgrl.commands.shared": {"echo", "stdout"},
    "fgrl.pages.report.terminal": {"print"},  # rich: colours of its own; texts go through `visible`
    "fgrl.kinds.functions.calling": {"stderr"},  # what a user's function prints goes there: stdout carries results
    "fgrl.experiments.pipeline.workers": {"stderr"},  # the last line of a rank that srun or torchrun has started
    "fgrl.registry.shielding": {"stderr"},  # what a user's code prints goes there: stdout carries results
    "fgrl.feedback.rules.programs.harness": {
        "stdout",
        "stderr",
    },  # inside the sandbox: it takes them away from the program
    "fgrl.rollouts.serving.guard": {"stderr", "print"},  # into the log of the server that it guards
    "fgrl.feedback.sandbox.runner": {"stdout", "stderr"},  # of untrusted code, in its own process: read by fgrl as data
}
"""What modules may use to write; everything else goes through `Console` and `fgrl.commands.shared.echo`."""


def writers(source: str) -> set[str]:
    """Names in a module's source that write to the terminal."""
    used: set[str] = set()
    own = {
        node.asname or node.name
        for statement in ast.walk(ast.parse(source))
        if isinstance(statement, ast.ImportFrom) and statement.module == "fgrl.commands.shared"
        for node in statement.names
    }
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if name in WRITERS and not (isinstance(node.func, ast.Name) and name in own):
                used.add(name)
        if isinstance(node, ast.Attribute) and node.attr in STREAMS and getattr(node.value, "id", "") == "sys":
            used.add(node.attr)
    return used


def test_only_two_modules_write_to_the_terminal() -> None:
    used = {
        module: names - ALLOWED.get(module, set()) for module, source in sources().items() if (names := writers(source))
    }
    assert {module: names for module, names in used.items() if names} == {}


def test_a_planted_writer_is_noticed() -> None:
    assert writers("import typer\ntyper.echo(1)") == {"echo"}
    assert writers("import sys\nsys.stderr.write('x')") == {"stderr"}
    assert writers("print('x')") == {"print"}
    assert writers("from fgrl.commands.shared import echo\necho('x')") == set()


def assert_harmless(text: str) -> None:
    assert not HIDDEN.search(text), HIDDEN.search(text)


def test_an_endpoints_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ask.txt").write_text("{prompt}", encoding="utf-8")
    write_jsonl(tmp_path / "prompts.jsonl", [Sample(id=str(n), prompt=f"q{n}") for n in range(2)])

    class Evil(FaultServer):
        async def _serve_one(self, headers, body, reader, writer) -> bool:  # type: ignore[no-untyped-def]
            content = json.dumps({"error": {"message": EVIL}}).encode()
            writer.write(b"HTTP/1.1 400 X\r\ncontent-length: %d\r\n\r\n" % len(content) + content)
            await writer.drain()
            return True

    with Evil() as server:
        annotator = {
            "name": "answer",
            "prompt": "ask.txt",
            "client": {"name": "openai", "model": EVIL, "base_url": server.url, "api_key_env": None},
        }
        stage = {"name": "annotate", "data": {"name": "jsonl", "path": "prompts.jsonl"}, "annotator": annotator}
        (tmp_path / "r.yaml").write_text(
            yaml.safe_dump({"about": "x", "stages": {"answered": stage}}), encoding="utf-8"
        )
        stream = io.StringIO()
        ended = execute(load("r.yaml"), tmp_path / "runs", console=Console(stream=stream))
    assert ended.exit == 3
    assert f"HTTP 400: {SHOWN}" in stream.getvalue()
    assert_harmless(stream.getvalue())
    (log,) = (tmp_path / "runs").rglob("run.log")
    assert_harmless(log.read_text(encoding="utf-8"))


def test_a_live_line() -> None:
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    console = Console(stream=stream)
    with console.progress(f"asking {EVIL}", 3) as ticker:
        ticker.advance(1, cost=EVIL)
        console.say(EVIL)
    assert not any(part in stream.getvalue() for part in ("\x1b[2J", "\x1b]0", "\u202e", "\x9b", "\x08"))
    assert SHOWN in stream.getvalue()


def test_recipes_and_mistakes_in_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.excepthook", None)  # `main` sets its own
    for name, text in (("ask.txt", "{prompt}"), ("answers.jsonl", ""), ("p.jsonl", "")):
        (tmp_path / name).write_text(text, encoding="utf-8")
    client = {"name": "replay", "answers": "answers.jsonl"}
    data, annotator = {"name": "jsonl", "path": "p.jsonl"}, {"name": "answer", "prompt": "ask.txt", "client": client}
    recipe = {"about": EVIL, "stages": {"s": {"name": "annotate", "data": data, "annotator": annotator}}}
    (tmp_path / "r.yaml").write_text(yaml.safe_dump(recipe), encoding="utf-8")
    (tmp_path / "wrong.yaml").write_text(yaml.safe_dump({**recipe, EVIL: 1, "seed": EVIL}), encoding="utf-8")
    out = {}
    for words in (
        ["show", "r.yaml"],
        ["show", "r.yaml", "--json"],
        ["validate", "wrong.yaml"],
        ["plan", f"{EVIL}.yaml"],
    ):
        with pytest.raises(SystemExit):
            main(words)
        captured = capsys.readouterr()
        out[words[-1]] = captured.out + captured.err
        assert_harmless(out[words[-1]])
    assert json.loads(out["--json"])["recipe"]["about"] == EVIL
    assert SHOWN[:4] in out["wrong.yaml"]


def test_a_bugs_traceback(capsys: pytest.CaptureFixture) -> None:
    try:
        raise KeyError("x") from ValueError(EVIL)
    except KeyError as error:
        show_bug(type(error), error, error.__traceback__)
    shown = capsys.readouterr().err
    assert SHOWN in shown
    assert_harmless(shown)


def test_one_of_something_has_no_plural() -> None:
    assert [quantity(number, "stage") for number in (0, 1, 2, 1000)] == [
        "0 stages",
        "1 stage",
        "2 stages",
        "1,000 stages",
    ]
