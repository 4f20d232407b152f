"""Recipes with long names, depth, devices and circles of files. Every message is bounded."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from recipe_world import recipe, world  # noqa: F401
from typer.testing import CliRunner

from fgrl.cli import app
from fgrl.experiments.recipe import load
from fgrl.experiments.recipe.interpolation import resolve
from fgrl.registry import Problems
from fgrl.registry.tree import Text, parse

LONG = "x" * 400
MEGABYTE = "y" * 1_000_000
SHORT = "about: x\nstages: {a: {name: draw, shape: ring}}\n"
SCREEN = 8_000
"""Characters of a screen full of text."""


def validated(*words: str) -> str:
    """What `fgrl validate` prints about something wrong."""
    done = CliRunner().invoke(app, ["validate", *words])
    assert done.exit_code == 2, (done.exception, done.output[-500:])
    assert "Traceback" not in done.output
    assert len(done.output) < SCREEN
    return done.output


@pytest.mark.usefixtures("recipe")
@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["child.yaml", f"stages.sketch.note.{LONG}"], "no such recipe"),
        (["child.yaml", f"stages.sketch.{LONG}=1"], "unknown key"),
        (["child.yaml", f"stages.sketch.words={LONG}"], "no such file"),
        (["child.yaml", f"stages.sketch.copies={MEGABYTE}"], "wants int"),
        (["child.yaml", f"stages.sketch.shape={MEGABYTE}"], "unknown shape"),
        (["child.yaml", f"{MEGABYTE}=1"], "unknown key"),
        (["child.yaml", MEGABYTE], "no such recipe"),
        ([f"{LONG}.yaml"], "no such recipe"),
        (["~nobody/x.yaml"], "no such recipe"),
        (["child.yaml", "seed=18446744073709551616"], "wants a number <= 4294967295"),
        (["child.yaml:ngram5"], 'no such recipe; did you mean "child.yaml::ngram5"?'),
        (["child"], 'did you mean "child.yaml"?'),
    ],
    ids=lambda value: str(value)[:40],
)
def test_an_argument_of_any_length_is_refused_in_words(words: list[str], says: str) -> None:
    assert says in " ".join(validated(*words).split())


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("length", [101, 240, 1000])
def test_a_stage_name_that_no_folder_can_have_is_refused(length: int, tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(SHORT.replace("{a:", "{" + "a" * length + ":"), encoding="utf-8")
    assert "cannot be a stage's name; use at most 100 letters" in validated(str(path))


@pytest.mark.usefixtures("recipe")
def test_a_thousand_mistakes_fit_on_a_screen(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    path.write_text(SHORT.replace("shape: ring", ", ".join(f"k{n}: 1" for n in range(1000))), encoding="utf-8")
    done = validated(str(path))
    assert "more\n1,001 problems found; nothing was run." in done


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("what", ["/dev/zero", "/dev/null", "fifo", "/proc/self/mem", "/"])
def test_no_device_is_read(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("fifo")
    Path("r.yaml").write_text(SHORT.replace("about: x\n", f"extends: {what}\nabout: x\n"), encoding="utf-8")
    assert "r.yaml:1:1: extends:" in validated("r.yaml")
    Path("i.yaml").write_text(SHORT.replace("about: x\n", f"about: x\nimports: [{what}]\n"), encoding="utf-8")
    assert validated("i.yaml").startswith("i.yaml:2:11: ")
    validated(what)


@pytest.mark.usefixtures("world")
def test_a_file_that_is_no_recipe_is_not_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "r.yaml"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    assert "is larger than 250,000 bytes" in validated(str(path))


def calls(text: str) -> int:
    """How many functions are called on the way from YAML to plain data."""
    count = 0

    def counted(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        tree, problems = parse(Text(text, "x.yaml"))
        assert tree is not None
        assert not problems
        assert not resolve(tree)[1]
    finally:
        sys.setprofile(None)
    return count


def lines(count: int, line: str) -> str:
    return "".join(line.format(this=n, before=n - 1) for n in range(1, count + 1))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("vars:\n  a0: x\n" + lines(500, "  a{this}: ${{vars.a{before}}}\n"), ""),
        ("vars:\n" + lines(500, "  a{before}: ${{vars.a{this}}}\n") + "  a500: 1\n", "needs more than 100 values"),
        ("vars: {a: '" + "${" * 20_000 + "}" * 20_000 + "'}", "cannot read"),
        ("a: " + "[" * 100_000, "nested more than 40 deep"),
        ("a: " + "{a: " * 10_000, "nested more than 40 deep"),
        ("- " * 50_000, "nested more than 40 deep"),
    ],
    ids=lambda value: value[:40],
)  # fmt: skip
def test_depth_is_bounded(text: str, says: str) -> None:
    tree, problems = parse(Text(text, "x.yaml"))
    if tree is not None:
        problems += resolve(tree)[1]
    assert bool(problems) == bool(says)
    assert says in "\n".join(map(str, problems))


def test_twelve_doublings_and_a_chain_of_sixty_are_resolved() -> None:
    doubled, problems = parse(
        Text("vars:\n  a0: x\n" + lines(12, "  a{this}: ${{vars.a{before}}}${{vars.a{before}}}\n"), "x")
    )
    assert doubled is not None
    assert not problems
    assert resolve(doubled)[0]["vars"]["a12"] == "x" * 4096
    chain, problems = parse(Text("vars:\n" + lines(60, "  a{before}: ${{vars.a{this}}}\n") + "  a60: 7\n", "x"))
    assert chain is not None
    assert not problems
    plain, wrong = resolve(chain)
    assert plain["vars"]["a0"] == 7
    assert not wrong


def test_work_grows_with_the_length_of_a_recipe() -> None:
    """Twice the lines are twice the calls; and a text is split into lines once, not for each of its values."""
    few, many = (calls("vars:\n  a0: 1\n" + lines(count, "  a{this}: ${{vars.a0}}\n")) for count in (300, 600))
    assert many < 2.2 * few
    text = Text("a: 1\n", "x.yaml")
    text.place(0, 0)
    assert text._lines is text._lines


@pytest.mark.usefixtures("world")
def test_a_lattice_of_rows_is_read_in_steps_of_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of 20 levels joins both rows of the level below: 2^20 ways down, 40 rows."""
    monkeypatch.chdir(tmp_path)
    rows = ["l0: {about: x, stages: {a: {copies: 2}}}", "r0: {about: x}"]
    rows += [f"{side}{n}: {{about: x, extends: [l{n - 1}, r{n - 1}]}}" for n in range(1, 20) for side in "lr"]
    Path("r.yaml").write_text(f"{SHORT}rows:\n" + "".join(f"  {row}\n" for row in rows), encoding="utf-8")
    assert load("r.yaml::l19").stages["a"].copies == 2  # type: ignore[attr-defined]


@pytest.mark.usefixtures("world")
@pytest.mark.parametrize("raised", ["KeyboardInterrupt", "SystemExit(0)", "RecursionError", "Exception('z' * 10**6)"])
def test_whatever_an_import_raises_is_told_first_and_with_its_line(
    raised: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(f"x = 1\nraise {raised}\n", encoding="utf-8")
    Path("r.yaml").write_text(
        "about: x\nimports: [mine.py]\nstages: {a: {name: draw, shape: from_mine}}\n", encoding="utf-8"
    )
    printed = validated("r.yaml")
    assert printed.startswith("mine.py:2:1: cannot be imported: ")
    assert 'unknown shape "from_mine"' in printed


@pytest.mark.usefixtures("recipe")
def test_the_nearest_key_is_suggested_although_it_is_set() -> None:
    with pytest.raises(Problems) as refused:
        load("child.yaml", ["stages.sketch.copis=2"])
    hint = refused.value.problems[0].hint or ""
    assert 'did you mean "copies"?' in hint
    assert "choices: shape, pen, words, copies, threads" in hint
    assert '"copies" is set already' in hint


@pytest.mark.usefixtures("recipe")
@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("vars:", "imports: !x [a.py]\nvars:"),
        ("vars:", "imports: [!x a.py]\nvars:"),
        ("extends: parent.yaml", "extends: !x parent.yaml"),
        ("vars:", "rows: {a: {about: x, extends: !x b}}\nvars:"),
        ("    targets: [a, b]", "    targets: [a, !x b]\n    version: !x 1"),
        ("  depth: 3", "  depth: !x 3"),
    ],
)
def test_a_value_that_could_not_be_read_is_told_once(line: str, text: str) -> None:
    child = Path("child.yaml")
    child.write_text(child.read_text(encoding="utf-8").replace(line, text, 1), encoding="utf-8")
    with pytest.raises(Problems) as refused:
        load("child.yaml")
    assert "_Failed" not in str(refused.value)
    assert "a value with problems" not in str(refused.value)
    assert {problem.message for problem in refused.value.problems} == {"YAML tags (!) are not read"}
