"""From candidates of two models to preferences by tests, through the stages of a recipe; hostile programs are among them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from fgrl.cli import app
from fgrl.components.annotators.run_tests import RunTests
from fgrl.experiments.recipe import load
from fgrl.feedback.sandbox import detect
from fgrl.kinds import Reader
from fgrl.registry import Context, build
from fgrl.types import Criterion, Pair, Response, Sample, read_jsonl, write_jsonl

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "how-to" / "code.md").read_text(encoding="utf-8")
RIGHT = "def double(x):\n    return 2 * x\n"
TESTS = "from solution import double\n\ndef test_double():\n    assert double(2) == 4\n    assert double('a') == 'aa'\n"

HOSTILE = {
    "network": "import socket\nsocket.create_connection(('127.0.0.1', 80), 2)\n",
    "files": "open('/etc/passwd').read()\n",
    "write": "open('/usr/lib/x', 'w')\n",
    "processes": "import os\nwhile True:\n    os.fork()\n",
    "threads": "import threading\nwhile True:\n    threading.Thread(target=int).start()\n",
    "kill": "import os\nos.kill(os.getppid(), 9)\n",
    "kill all": "import os\nos.kill(-1, 9)\n",
    "memory": "x = []\nwhile True:\n    x.append(bytearray(1 << 20))\n",
    "disk": "for n in range(10 ** 6):\n    open(str(n), 'wb').write(bytes(1 << 20))\n",
    "output": "import os\nwhile True:\n    os.write(2, b'x' * 1000)\n",
    "endless": "while True:\n    pass\n",
    "deaf": "import signal, time\nfor n in range(1, 65):\n    try:\n        signal.signal(n, signal.SIG_IGN)\n    except (OSError, ValueError):\n        pass\nwhile True:\n    time.sleep(1)\n",
    "crash": "import ctypes\nctypes.string_at(0)\n",
    "environment": "import os\nassert os.environ['API_KEY'] == 'hunter2'\n",
    "leaves a file": "open('left', 'w').write('x')\nimport os\nos.chmod('.', 0)\nraise SystemExit(0)\n",
    "recursion": "import sys\nsys.setrecursionlimit(10 ** 9)\ndef f():\n    f()\nf()\n",
}  # fmt: skip
"""Attempts of the sandbox's own tests, in the place where a program is."""

strong = pytest.mark.skipif(detect().strength != "strong", reason=f"needs a strong sandbox: {detect().lacks}")


def problem(id: str, *programs: str, tests: str = TESTS, **sandbox: Any) -> Sample:
    check = {"name": "code:tests", "format": "pytest_functions", "tests": tests}
    return Sample(
        id=id,
        prompt="Double it.",
        rubric=[Criterion(text="passes", check=check | ({"sandbox": sandbox} if sandbox else {}))],
        responses=[Response(text=program) for program in programs],
    )


def scores(*samples: Sample) -> list[list[float | None]]:
    annotator = RunTests()
    annotator.setup(None)
    return [[response.score for response in sample.responses] for sample in annotator.annotate(samples)]


ENDLESS = ("endless", "deaf", "recursion")


def limits(name: str) -> dict[str, Any]:
    """Little time only for what uses all of it: a busy machine may need some for the others."""
    return {"seconds": 1 if name in ENDLESS else 20, "memory_mb": 256, "folder_mb": 2}


@strong
def test_hostile_programs_are_contained_and_the_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each attempt, when the program is loaded and when it is called, followed by the right program."""
    monkeypatch.setenv("API_KEY", "hunter2")
    called = {
        name: "def double(x):\n" + "".join(f"    {line}\n" for line in source.splitlines()) + "    return 2 * x\n"
        for name, source in HOSTILE.items()
    }
    samples = []
    for name, source in HOSTILE.items():
        samples.append(problem(name, source + RIGHT, called[name], **limits(name)))
        samples.append(problem(f"{name}, then", RIGHT, **limits("")))
    assert dict(zip([sample.id for sample in samples], scores(*samples), strict=True)) == {
        sample.id: [1.0] if sample.id.endswith(", then") else [0.0, 0.0] for sample in samples
    }


@strong
def test_hostile_tests_are_contained_and_the_run_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "hunter2")
    samples = []
    for name, source in HOSTILE.items():
        body = "".join(f"    {line}\n" for line in source.splitlines())
        samples.append(problem(name, RIGHT, tests=f"def test_attempt():\n{body}", **limits(name)))
        samples.append(problem(f"{name}, then", RIGHT, **limits("")))
    assert scores(*samples) == [[0.0], [1.0]] * len(HOSTILE)


RECIPE = """
about: Programs of two models, tested.
stages:
  policy: {name: annotate, data: {name: jsonl, path: policy.jsonl}, annotator: run_tests}
  strong: {name: annotate, data: {name: jsonl, path: strong.jsonl}, annotator: run_tests}
  tested: {name: annotate, data: {name: merged, of: {policy: "${out:policy}", strong: "${out:strong}"}}, annotator: run_tests}
  pairs: {name: pair, data: {name: samples, of: "${out:tested}"}, builder: {name: all_ranked, ties: drop}}
"""


@strong
def test_passing_programs_of_any_model_are_preferred(tmp_path: Path) -> None:
    wrong = "def double(x):\n    return x\n"
    write_jsonl(tmp_path / "policy.jsonl", [problem("1", wrong, "import os\nos._exit(0)"), problem("2", RIGHT)])
    write_jsonl(tmp_path / "strong.jsonl", [problem("1", f"```python\n{RIGHT}```"), problem("2", RIGHT)])
    (tmp_path / "recipe.yaml").write_text(RECIPE, encoding="utf-8")
    done = CliRunner().invoke(app, ["run", str(tmp_path / "recipe.yaml"), "--runs", str(tmp_path / "runs")])
    assert done.exit_code == 0, done.output
    (folder,) = (tmp_path / "runs" / "stages").glob("pairs-*")
    pairs = list(read_jsonl(folder / "out" / "pairs.jsonl", Pair))
    assert [(pair.chosen, pair.rejected) for pair in pairs] == [
        (f"```python\n{RIGHT}```", wrong), (f"```python\n{RIGHT}```", "import os\nos._exit(0)"),
    ]  # fmt: skip
    (folder,) = (tmp_path / "runs" / "stages").glob("tested-*")
    first = next(iter(read_jsonl(folder / "out" / "samples.jsonl", Sample)))
    assert [response.by for response in first.responses] == ["policy", "policy", "strong"]
    assert [response.meta["tests"]["passed"] for response in first.responses] == [False, False, True]


def test_the_recipe_on_the_page_is_one(tmp_path: Path) -> None:
    (text,) = re.findall(r"```yaml\n(about:.*?)```", PAGE, re.DOTALL)
    (tmp_path / "recipe.yaml").write_text(text.replace("../prompts", str(ROOT / "prompts")), encoding="utf-8")
    assert load(tmp_path / "recipe.yaml", []).graph() == {
        "candidates": [], "strong": [], "tested": ["candidates", "strong"], "pairs": ["tested"],
    }  # fmt: skip


@pytest.mark.parametrize("fragment", re.findall(r"`(\{name: (?:kodcode|human_eval|mbpp).*?\})` \|", PAGE))
def test_the_readers_on_the_page_can_be_built(fragment: str) -> None:
    build(Reader, yaml.safe_load(fragment), context=Context(folder=lambda path: ROOT / "recipes"))
