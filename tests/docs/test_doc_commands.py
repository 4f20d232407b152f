"""Commands of the README and of `docs/`: the cheap ones run, of the others the options, recipes and overrides are checked."""

from __future__ import annotations

import json
import re
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from doc_blocks import ROOT, Command, commands, lines_of_shell
from fake_runs import fake_run
from scratch_registry import scratch_imports
from typer.testing import CliRunner

from fgrl.cli import app
from fgrl.commands.shared import named_and_overrides, overrides
from fgrl.experiments import recipe as recipes
from fgrl.experiments.recipe.sweeps import split
from fgrl.experiments.recipe.tables import is_table_file
from fgrl.registry import Problems

CHEAP = ("launch", "list", "new", "plan", "schema", "show", "validate")
"""Commands that load no model. All others are parsed, and their recipes validated with the overrides."""
OVER_RUNS = ("clean", "doctor", "runs", "watch")
"""Commands in blocks that run over a small folder of runs."""
FOLLOWED = {
    "docs/tutorial.md": "tests/docs/test_tutorial.py",
    "docs/how-to/credit.md": "tests/docs/test_credit_page.py",
    "docs/how-to/start-from-your-data.md": "tests/docs/test_followed_pages.py",
    "docs/how-to/annotate.md": "tests/annotation/test_annotate_page.py",
    "docs/how-to/sweeps.md": "tests/docs/test_sweeps_page.py",
    "docs/how-to/annotation-files.md": "tests/annotation/test_annotate_page.py",
}
"""Pages whose blocks a test of their own follows from top to bottom."""
README_TEST = "the test of the README's first commands runs it (make docs)"
POLICY_TEST = "the test of the page runs it after a small quickstart (make docs)"
TRAINS = "it trains for minutes or hours: parsed, and its recipes validated with the same overrides"
OWN_RECIPE = "recipe.yaml stands for a recipe of the reader: parsed"
NOT_HERE = {
    ("README.md", "fgrl init grpo"): README_TEST,
    ("README.md", "fgrl inspect recipe.yaml"): README_TEST,
    ("README.md", "fgrl run recipe.yaml"): README_TEST,
    ("README.md", "fgrl export recipe.yaml"): README_TEST,
    ("README.md", "fgrl run recipes/segment_ppo_phi3.yaml"): TRAINS,
    ("README.md", "fgrl table recipes/small/segment_ppo.yaml"): "it shows trainings of minutes: parsed, and its recipes validated",
    ("README.md", "fgrl compare"): TRAINS,
    ("docs/command-line.md", "fgrl compare"): TRAINS,
    ("docs/contributing/index.md", "fgrl run"): TRAINS,
    ("docs/credit/weighted_dpo.md", "fgrl compare"): TRAINS,
    ("docs/how-to/elo.md", "fgrl run recipe.yaml"): OWN_RECIPE,
    ("docs/how-to/elo.md", "fgrl elo recipe.yaml"): OWN_RECIPE,
    ("docs/how-to/elo.md", "fgrl annotate serve"): "it serves a page until Ctrl-C: parsed",
    ("docs/how-to/elo.md", "fgrl annotate export"): "it needs the verdicts of people: parsed",
    ("docs/how-to/elo.md", "fgrl elo people.jsonl"): "it needs the verdicts of people: parsed",
    ("docs/how-to/follow-a-run.md", "fgrl run"): TRAINS,
    ("docs/how-to/judged-evaluation.md", "fgrl run"): TRAINS,
    ("docs/how-to/judged-evaluation.md", "fgrl frontier"): "it shows trainings of hours: parsed",
    ("docs/how-to/reward-functions.md", "fgrl compare"): TRAINS,
    ("docs/how-to/train-with-vllm.md", "fgrl run"): TRAINS,
    ("docs/how-to/train-with-vllm.md", "fgrl compare"): TRAINS,
    ("docs/how-to/use-a-policy.md", "fgrl export"): POLICY_TEST,
    ("docs/how-to/write-a-component.md", "fgrl check"): "own.py stands for a file of the reader: parsed",
    ("docs/choosing.md", "fgrl init"): "rows.jsonl and my-model stand for those of the reader: parsed; tests/starting runs it",
    ("docs/how-to/engines.md", "fgrl check"): "own.py stands for a file of the reader: parsed",
    ("docs/how-to/environments.md", "fgrl run recipes/small/agent.yaml"): TRAINS,
    ("docs/how-to/environments.md", "fgrl compare"): TRAINS,
    ("docs/how-to/environments.md", "fgrl check"): "guess.py stands for a file of the reader: parsed",
    ("docs/how-to/use-a-policy.md", "fgrl chat"): POLICY_TEST,
    ("docs/text2grad-lists.md", "fgrl compare"): TRAINS,
    ("docs/text2grad-lists.md", "fgrl run"): TRAINS,
    ("docs/text2grad-lists.md", "fgrl curves"): "it reads runs of hours: parsed",
    ("docs/papers/span_feedback.md", "fgrl run"): TRAINS,
    ("docs/papers/span_feedback.md", "fgrl annotate export"): "it needs the annotations of people: parsed",
    ("docs/papers/span_feedback.md", "fgrl elo"): "it shows trainings of minutes: parsed, and its recipe validated",
}  # fmt: skip
"""(page, how the command begins): why the tests of this file do not run it."""
PLACEHOLDER = re.compile(r"(?<![\w.])(?:\[?[A-Z][A-Z\d_]*\]?(?:::[A-Z]+)?(?:\.\.\.)?|\.\.\.)(?![\w.])|<\w+>")
"""Words that stand for something: `RECIPE`, `S1`, `[KIND]`, `R...`."""
SHIPPED = ("recipes/", "sweeps/", "examples/")

everything = [command for command in commands() if len(command.words) > 1]
in_blocks = {command.words: command for command in everything if not command.inline}
unique = list({command.words: command for command in everything}.values())


def is_form(command: Command) -> bool:
    """It shows the form of a command, as `fgrl show [KIND] NAME`, and cannot be run as it stands."""
    return any(PLACEHOLDER.fullmatch(word) for word in command.words[1:]) or any(
        PLACEHOLDER.search(word) for word in command.words[1:] if "=" not in word
    )


def parsed(words: tuple[str, ...], *, inline: bool = False) -> None:
    """Raises the command line's own error for an unknown command or option."""
    command: Any = typer.main.get_command(app)
    arguments = [word.strip("[]") for word in words[1:]]
    if arguments[0].startswith("-"):  # an option of fgrl itself, which would take effect at once
        assert arguments[0] in {name for parameter in command.params for name in parameter.opts}, arguments[0]
        return
    context = None
    while hasattr(command, "get_command") and arguments and not arguments[0].startswith("-"):
        name = arguments.pop(0)
        inner = command.get_command(context, name)
        assert inner is not None, f"there is no command {name}"
        command = inner
    try:
        context = command.make_context(command.name, arguments)
    except Exception as error:
        if inline and type(error).__name__ in ("MissingParameter", "NoArgsIsHelpError"):
            return  # a sentence that names the command and an option
        raise
    _, extra = named_and_overrides(
        [*context.args, *(word for value in context.params.values() for word in listed(value))]
    )
    if command.name not in ("list", "show", "new"):
        overrides([word for word in extra if word.startswith("-") or "=" in word], context)


def listed(value: object) -> list[str]:
    return [word for word in value if isinstance(word, str)] if isinstance(value, list | tuple) else []


def recipes_of(command: Command) -> list[str]:
    if command.words[1] == "sweep":
        return []  # a sweep file, which the test of its page reads
    named, _ = named_and_overrides(command.words[1:])
    named = [word for word in named if re.search(r"\.ya?ml(::|$)", word) and word.startswith(SHIPPED)]
    return [word for word in named if not is_table_file(ROOT / word)]


def table_files_of(command: Command) -> list[str]:
    return [word for word in command.words[2:] if is_table_file(ROOT / word)]


def overrides_of(command: Command) -> tuple[str, ...]:
    _, extra = named_and_overrides(command.words[1:])
    return tuple(word for word in extra if "=" in word)


def first_value(override: str) -> str:
    """`a=1` of the quick grid `a=1,2`."""
    values = split(override)
    return override if len(values) == 1 else f"{override.partition('=')[0]}={json.dumps(values[0])}"


@cache
def loaded(address: str, extra: tuple[str, ...]) -> None:
    """Validates. Files of the user that the page makes are created empty."""
    for expanded in recipes.expand(Path(address)):
        try:
            recipes.load(expanded, extra)
        except Problems as problems:
            if not problems.needs:  # a recipe that waits for a variable is right
                raise


@pytest.fixture
def workplace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that looks like the checkout, without its `runs/`."""
    for name in ("recipes", "prompts", "sweeps", "tasks", "examples", "fgrl", "docs", "machines"):
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_pages_have_commands() -> None:
    assert len(unique) > 60
    assert {"README.md", "docs/command-line.md", "docs/how-to/elo.md"} <= {command.page for command in everything}
    assert sum(is_cheap(command) for command in unique) > 12


def test_the_page_of_the_command_line_has_every_command() -> None:
    known: Any = typer.main.get_command(app)
    assert set(known.commands) <= {command.words[1] for command in everything if command.page == "docs/command-line.md"}


def is_cheap(command: Command) -> bool:
    mentioned = command.inline and len(command.words) == 2 and command.words[1] not in ("list", "schema")
    return command.words[1] in CHEAP and not is_form(command) and not mentioned and not reads_file_of_the_page(command)


def is_over_runs(command: Command) -> bool:
    return command.words[1] in OVER_RUNS and not command.inline and not is_form(command) and not table_files_of(command)


def reads_file_of_the_page(command: Command) -> bool:
    """It names a file that the reader makes while following the page."""
    files = [word.partition("::")[0] for word in command.words[2:] if "=" not in word]
    return any(re.search(r"\.(ya?ml|py|jsonl|sqlite)$", file) and not (ROOT / file).exists() for file in files)


@pytest.mark.parametrize("command", unique, ids=str)
def test_the_command_line_knows_the_command_and_its_options(command: Command) -> None:
    if command.words[1] != "COMMAND":
        parsed(command.words, inline=command.inline)


@pytest.mark.parametrize("command", [command for command in unique if recipes_of(command)], ids=str)
def test_recipes_of_commands_are_valid_with_the_overrides(command: Command, workplace: Path) -> None:
    for word in overrides_of(command):
        value = word.split("=", 1)[1]
        if re.fullmatch(r"\w+\.jsonl", value):
            (workplace / value).write_text('{"id": "1", "prompt": "Why?"}\n', encoding="utf-8")
    for address in recipes_of(command):
        loaded(address, tuple(first_value(word) for word in overrides_of(command) if "$" not in word))


@pytest.mark.parametrize("command", [command for command in unique if table_files_of(command)], ids=str)
def test_a_table_file_of_a_command_is_printed(command: Command, workplace: Path) -> None:
    """Without `--run`, which trains."""
    for word in overrides_of(command):
        (workplace / word.split("=", 1)[1]).write_text('{"id": "1", "prompt": "Why?"}\n', encoding="utf-8")
    done = CliRunner().invoke(app, [word for word in command.words[1:] if word != "--run"])
    assert done.exit_code == 0, (done.output, done.exception)
    assert "ours: " in done.output


@pytest.mark.parametrize("command", [command for command in unique if is_cheap(command)], ids=str)
def test_a_cheap_command_runs(command: Command, workplace: Path) -> None:
    with scratch_imports():
        done = CliRunner().invoke(app, list(command.words[1:]))
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert done.exit_code == 0, done.output
    assert done.output


@pytest.mark.parametrize("command", [command for command in in_blocks.values() if is_over_runs(command)], ids=str)
def test_a_command_runs_over_a_folder_of_runs(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = fake_run(tmp_path)
    other = shutil.copytree(run, tmp_path / "runs" / "small-rtt" / run.name, symlinks=True)
    summary = other / "summary.json"
    summary.write_text(summary.read_text(encoding="utf-8").replace("small-segment_ppo", "small-rtt"), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, list(command.words[1:]))
    assert done.exit_code == 0, (done.output, done.exception)
    assert done.output.strip()
    assert run.exists(), "nothing is deleted without a confirmation"


def test_each_command_of_a_block_runs_or_is_listed_with_the_reason() -> None:
    """Here, in the test of its page, or not at all, and then the reason is in `NOT_HERE`."""
    listed_here = {
        command: reason_not_here(command) for command in everything if not command.inline and not is_form(command)
    }
    neither = [
        str(command)
        for command, reason in listed_here.items()
        if reason is None
        and not (is_cheap(command) or is_over_runs(command) or command.page in FOLLOWED or table_files_of(command))
    ]
    assert neither == []
    unused = set(NOT_HERE) - set(listed_here.values())
    assert unused == set(), "reasons for commands that no page has"
    for page, test in FOLLOWED.items():
        assert Path(page).name in (ROOT / test).read_text(encoding="utf-8")


def test_a_command_that_is_neither_run_nor_listed_is_noticed() -> None:
    unlisted = Command("README.md", 1, ("fgrl", "run", "other.yaml"), inline=False)
    assert reason_not_here(unlisted) is None
    assert not is_cheap(unlisted)
    assert not is_over_runs(unlisted)


def reason_not_here(command: Command) -> tuple[str, str] | None:
    """The longest entry of `NOT_HERE` that the command begins with."""
    line = " ".join(command.words)
    entries = [key for key in NOT_HERE if command.page == key[0] and line.startswith(key[1])]
    return max(entries, key=lambda key: len(key[1]), default=None)


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("fgrl rnu R", "no command rnu"),
        ("fgrl run R --onyl policy", "no such option"),
        ("fgrl table R --numbr x", "no such option|No such option"),
        ("fgrl annotate export a b --formt x", "No such option"),
    ],
)
def test_a_wrong_command_is_noticed(line: str, wrong: str) -> None:
    with pytest.raises(Exception, match=wrong):
        parsed(tuple(line.split()))


def test_lines_of_a_block_are_taken_apart() -> None:
    text = "$ fgrl run a.yaml   # a comment\nfor kl in 1 2; do fgrl run R a.b=$kl; done\nfgrl list && fgrl show ppo \\\n  --json\n"
    assert [line for line in lines_of_shell(text) if line.startswith("fgrl")] == [
        "fgrl run a.yaml", "fgrl run R a.b=$kl", "fgrl list", "fgrl show ppo    --json",
    ]  # fmt: skip


def test_forms_are_told_from_commands() -> None:
    def command(line: str) -> Command:
        return Command("x", 1, tuple(line.split()), inline=False)

    assert all(
        is_form(command(line)) for line in ("fgrl show [KIND] NAME", "fgrl table S1 S2 ...", "fgrl validate R...")
    )
    assert not any(is_form(command(line)) for line in ("fgrl show ppo", "fgrl doctor", "fgrl curves A.yaml B.yaml"))
