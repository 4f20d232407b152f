"""A method of somebody's own is ranked in the credit benchmark, and what it sends in is checked."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from scratch_registry import scratch_imports
from typer.testing import CliRunner

import fgrl
from fgrl import DataError, UsageError
from fgrl.base.console import Console
from fgrl.base.errors import Stopped, UserCodeError
from fgrl.cli import app
from fgrl_benchmark import benchmark, checking, commands, own_method, ranking, sheet, standing, tables
from fgrl_benchmark.own_method import bring
from fgrl_benchmark.sheet import TEST, TUNE, read, sheet_of

WRAPPER = '''
from dataclasses import replace
from pydantic import Field
from fgrl import RewardWrapper, register


@register("late")
class Late(RewardWrapper):
    """Another reward of whole answers, spread with weights that grow towards the end."""

    exponent: float = Field(1.0, ge=0)
    """1: the weights grow linearly."""

    def on_tokens(self):
        return True

    def score(self, rollout):
        rewards = self.reward.scored(rollout)
        weights = rollout.mask * rollout.mask.float().cumsum(dim=1) ** self.exponent
        weights = weights / weights.sum(dim=1, keepdim=True).clamp(min=1e-9)
        return replace(rewards, token=weights * rewards.response[:, None], credit_mask=rollout.mask)
'''
ALGORITHM = '''
from fgrl import GroupRelative, register


@register("plain")
class Plain(GroupRelative):
    """Group-relative, as it is."""
'''
OF_TURNS = '''
import torch
from fgrl import TurnRelative, register


@register("last_turn")
class LastTurn(TurnRelative):
    """The reward of each turn as it is."""

    def of_turns(self, earned, reached, rollout, rewards):
        return torch.where(reached, earned, 0.0), {}
'''
LOSS = '''
from pydantic import Field
from fgrl import OfflineAlgorithm, register
from fgrl.components.algorithms.dpo import DPO


@register("own_loss")
class OwnLoss(DPO):
    """A loss on pairs."""
'''
ROOT = Path(__file__).resolve().parents[2]
FILES = {"late": WRAPPER, "plain": ALGORITHM, "last_turn": OF_TURNS, "own_loss": LOSS}


@pytest.fixture(autouse=True)
def _forgetful(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    with scratch_imports():
        yield


def here(name: str, **more: str) -> Path:
    file = Path(f"{name}.py")
    file.write_text(FILES[name], encoding="utf-8")
    return file


@pytest.mark.parametrize(
    ("name", "world", "knob", "rates", "settings"),
    [
        ("late", "words", {}, [], ['reward: {name: late, reward: "${vars.scalar}"}']),
        ("plain", "words", {}, [], ["reward: {credit: even}", 'algorithm: {name: plain, aggregate: token_mean, kl_coef: "${vars.kl}"}']),
        ("last_turn", "turns", {}, [], ["reward: environment", "algorithm: {name: last_turn}"]),
        ("own_loss", "words", {"stages.policy.algorithm.beta": [0.1, 1.0]}, [2e-5, 1e-4, 5e-4], ["algorithm: {name: own_loss}"]),
    ],
)  # fmt: skip
def test_a_python_file_is_a_method(
    name: str, world: str, knob: dict, rates: list, settings: list[str], tiny_model_dir: Path
) -> None:
    """Its recipe, which is written beside it, is that of the other methods but for the component."""
    method = bring(str(here(name)))
    assert (method.name, method.world.name, method.knob, method.rates) == (name, world, knob, rates)
    written = Path(f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    assert [line.strip() for line in written[written.index("  policy:") + 1 :]] == settings
    assert set(method.files()) == {f"{name}.py", f"{name}.yaml"}
    assert fgrl.validate(f"{name}.yaml", {"vars.start": str(tiny_model_dir)}).stages == ["policy", "evaluate"]
    trials = ranking.tuning(method)
    assert len(trials) == (18 if world == "turns" else 12)
    assert len({item.point.key for item in trials}) == len(trials)
    assert bring(f"{name}.py") == method, "a recipe that is there already is used again"


def test_a_recipe_is_a_method() -> None:
    here("late")
    text = 'about: "x"\nextends: fgrl_benchmark:task.yaml\nimports: [late.py]\nrows:\n  early:\n    about: "Weights that fall."\n'
    text += '    stages: {policy: {reward: {name: late, reward: "${vars.scalar}"}}}\n'
    Path("mine.yaml").write_text(text, encoding="utf-8")
    method = bring("mine.yaml::early", told="pairs", knob="exponent=0.5,2", overrides=["vars.iterations=6"])
    assert (method.name, method.about, method.told) == ("early", "Weights that fall.", "pairs")
    assert method.knob == {"stages.policy.reward.exponent": [0.5, 2]}
    (item, *_) = ranking.tuning(method)
    assert benchmark.overrides(item.point, item.plan) == {
        "vars.split": "validation", "vars.task": "opposites", "vars.words": 24, "vars.iterations": 6, "vars.lr": 2.5e-4,
        "stages.policy.reward.exponent": 0.5,
    }  # fmt: skip
    assert bring("mine.yaml::early", name="other").name == "other"
    vine = bring("fgrl_benchmark:task.yaml::vine", name="my_vine", knob="k=2,4")
    assert vine.folder == Path.cwd()
    assert vine.files() == {"task.yaml": benchmark_digest()}


def test_a_recipe_of_a_package_is_named_by_it(tiny_model_dir: Path) -> None:
    done = CliRunner().invoke(app, ["validate", "fgrl_benchmark:task.yaml::vine", f"vars.start={tiny_model_dir}"])
    assert done.exit_code == 0
    assert done.output.startswith(f"{benchmark.HERE / 'task.yaml'}::vine: ok, 2 stages: policy, evaluate\n")
    done = CliRunner().invoke(app, ["validate", "no_such_package:task.yaml"])
    assert done.exit_code == 2
    assert "no_such_package:task.yaml: no such recipe" in done.output


def benchmark_digest() -> str:
    from fgrl.base.files import sha256_of_file

    return sha256_of_file(benchmark.HERE / "task.yaml")


@pytest.mark.parametrize(
    ("text", "given", "said"),
    [
        (None, {}, r"own\.py: no such file; a method is a Python file, or a recipe"),
        ("x = 1\n", {}, "registers no component"),
        (WRAPPER + ALGORITHM, {}, "has late, plain: choose one with --name"),
        (WRAPPER, {"name": "lat"}, 'no component "lat"; did you mean "late"'),
        (WRAPPER.replace('"late"', '"vine"'), {}, "vine is a method of the benchmark: choose another name"),
        (WRAPPER, {"knob": "exponent=1"}, "wants NAME=VALUE,VALUE with two different values; names: .*exponent"),
        (WRAPPER, {"knob": "exponnent=1,2"}, "wants NAME=VALUE,VALUE"),
        (OF_TURNS, {"knob": "clip=0.1,0.3"}, "over turns only learning rates are tuned"),
    ],
)  # fmt: skip
def test_what_is_no_method_is_refused_with_the_next_step(text: str | None, given: dict, said: str) -> None:
    if text is not None:
        Path("own.py").write_text(text, encoding="utf-8")
    with pytest.raises(UsageError, match=said):
        bring("own.py", **given)


def test_other_recipes_are_refused() -> None:
    with pytest.raises(
        UsageError, match=r"quickstart\.yaml has no task .* begins with `extends: fgrl_benchmark:task\.yaml`"
    ):
        bring(str(ROOT / "recipes" / "quickstart.yaml"))
    here("late")
    Path("late.yaml").write_text("about: mine\n", encoding="utf-8")
    with pytest.raises(UsageError, match=r"late\.yaml is there, and is not the recipe that would be written"):
        bring("late.py")


def line_of(point: benchmark.Point, plan: dict, runs: str) -> dict[str, Any]:
    """What a run would give: the best rate is 5e-4, the better exponent 3; the same for every call."""
    right = (
        0.5
        + (point.settings.get("vars.lr") == 5e-4) * 0.2
        + point.settings.get("stages.policy.reward.exponent", 0) / 100
    )
    right += {"even": 0.1}.get(point.method, 0) + (point.seed % 7) / 100
    return {
        "key": point.key, "method": point.method, "task": point.task, "seed": point.seed, "settings": dict(point.settings),
        "start.right": 0.4, "policy.right": round(right, 5), "policy.kl": 1.0, "precision": 0.5, "recall": 0.5, "auc": 0.6, "sign": 0.6,
        "drawn": 100.0, "read": 0.0, "processor seconds": 12.0, "seconds before": 0, "distinct": 0.5,
    }  # fmt: skip


class Inline(Executor):
    """Runs at once, in this process."""

    def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Future:
        future: Future = Future()
        try:
            future.set_result(function(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@pytest.fixture
def no_training(monkeypatch: pytest.MonkeyPatch) -> list[benchmark.Point]:
    """No model is trained: lines are those of `line_of`. Returns the runs that were asked for."""
    asked = []

    def result(point: benchmark.Point, plan: dict, runs: str) -> dict[str, Any]:
        asked.append(point)
        return line_of(point, plan, runs)

    @contextmanager
    def workers(jobs: int, start: str, runs: str) -> Iterator[Executor]:
        ranking._begin(start, runs)
        yield Inline()

    monkeypatch.setattr(ranking.benchmark, "result", result)
    monkeypatch.setattr(ranking, "workers", workers)
    monkeypatch.setattr(ranking, "started", lambda *_: "start")
    monkeypatch.setattr(fgrl, "validate", lambda *_: None)
    return asked


def ranked(word: str = "late.py", **given: Any) -> standing.Standing:
    options: dict[str, Any] = {
        "name": None,
        "told": "outcome",
        "knob": "exponent=1,3",
        "turns": False,
        "overrides": [],
        "again": False,
    }
    return commands.rank(word, **options | given, runs="runs", jobs=2, console=Console(stream=StringIO()))  # fmt: skip


def test_six_trials_choose_the_settings_of_five_seeds(no_training: list[benchmark.Point]) -> None:
    here("late")
    place = ranked()
    best = {"vars.lr": 5e-4, "stages.policy.reward.exponent": 3}
    tests = read(Path("late.jsonl")).of(TEST)
    assert [line["settings"] for line in tests] == [best] * 10
    assert {(line["task"], line["seed"]) for line in tests} == {
        (task, seed) for task in ("opposites", "code") for seed in range(1000, 1005)
    }
    assert (len(no_training), len(place.sheet.of(TUNE)), len(place.sheet.of("reference"))) == (24, 12, 2)
    again = ranked()
    assert len(no_training) == 24, "what has a line is not run again"
    assert again.sheet.lines == place.sheet.lines


def test_a_changed_method_begins_anew_only_where_that_is_asked_for(no_training: list[benchmark.Point]) -> None:
    here("late")
    ranked()
    Path("late.py").write_text(WRAPPER.replace("1e-9", "1e-8"), encoding="utf-8")
    with pytest.raises(
        UsageError, match=r"late.jsonl has 24 runs of late as it was before: files changed since; --again deletes them"
    ):
        ranked()
    ranked(again=True)
    assert len(no_training) == 48
    ranked(told="pairs")
    assert read(Path("late.jsonl")).about["told"] == "pairs"
    assert len(no_training) == 48, "what it is told changes no run"


def test_a_trial_that_training_stopped_is_not_chosen(no_training: list, monkeypatch: pytest.MonkeyPatch) -> None:
    here("late")

    def result(point: benchmark.Point, plan: dict, runs: str) -> dict[str, Any]:
        if point.settings.get("vars.lr") == 5e-4:
            raise Stopped("the loss is not finite\nan example")
        return line_of(point, plan, runs)

    monkeypatch.setattr(ranking.benchmark, "result", result)
    place = ranked()
    assert {line["settings"]["vars.lr"] for line in place.sheet.of(TEST)} <= {2.5e-4, 1e-3}
    assert place.sheet.stopped(TUNE) == 4
    assert "4 runs of the tuning were stopped" in place.ended()

    def none(*_: Any) -> dict[str, Any]:
        raise Stopped("the loss is not finite")

    monkeypatch.setattr(ranking.benchmark, "result", none)
    with pytest.raises(Stopped, match="late: no trial on opposites came to its end: the loss is not finite"):
        ranked(again=True)


def test_the_place_of_a_method(no_training: list) -> None:
    """Among those that are told the same; its line is that of the page's table, from the committed lines of the others."""
    here("late")
    place = ranked()
    rivals = place.rivals()
    gains = [sum(place.gain(name)) / 5 for name in rivals]
    assert gains == sorted(gains, reverse=True)
    assert {"late", "even", "grpo", "vine", "gtpo"} <= set(rivals)
    assert not {"oracle", "rtt", "even_24", "random"} & set(rivals), "told something else, or more iterations"
    known = benchmark.lines("test")
    even = {(line["task"], line["seed"]): line["policy.right"] for line in known if line["method"] == "even"}
    own = {(line["task"], line["seed"]): line["policy.right"] for line in place.sheet.of(TEST)}
    assert place.gain("late") == pytest.approx(
        [sum(own[task, seed] - even[task, seed] for task in ("opposites", "code")) / 2 for seed in range(1000, 1005)]
    )
    others = [name for names in place.apart().values() for name in names]
    assert sorted(others) == sorted(set(rivals) - {"late"})
    shown = standing.text_of(place)
    assert "| outcome     | `late`" in shown
    assert f"place: {rivals.index('late') + 1} of {len(rivals)} that are told the same (outcome)" in shown
    assert "lr 0.0005, exponent 3" in shown
    assert "12.0 s of one core for a run, even 12.0 here; 4.8 minutes for all; 100 tokens drawn" in shown
    assert "even on this machine: code 0.660, " in shown
    told = fgrl.benchmark("late.py", knob="exponent=1,3", progress=False)
    assert told["figure"] == str(Path("late.svg").resolve())
    assert json.loads(json.dumps(told)) == told
    assert told["place"] == rivals.index("late") + 1


def test_the_figure_has_the_method(no_training: list) -> None:
    here("late")
    drawn = commands.draw(ranked())
    assert drawn is not None
    text = drawn.read_text(encoding="utf-8")
    assert {name for name in ("late", "vine", "grpo", "drop", "precision", "AUC") if f">{name}<" not in text} == set()
    here("last_turn")
    place = ranked("last_turn.py", knob="")
    assert len(place.sheet.of(TUNE)) == 18
    assert {line["task"] for line in place.sheet.lines} == {"lookup", "halves"}
    drawn = commands.draw(place)
    assert drawn is not None


def test_lines_that_are_sent_in_are_checked(no_training: list, monkeypatch: pytest.MonkeyPatch) -> None:
    here("late")
    ranked()

    def found() -> list[tuple[bool, str]]:
        every = checking.check(Path("late.jsonl"), runs="runs", jobs=1, console=Console(stream=StringIO()))
        return [(finding.held, finding.text) for finding in every]

    assert [held for held, _ in found()] == [True] * 5
    assert len(no_training) == 24 + 2, "one seed of both tasks"

    def other(point: benchmark.Point, plan: dict, runs: str) -> dict[str, Any]:
        line = line_of(point, plan, runs)
        return line | {"policy.right": line["policy.right"] + (0.01 if point.task == "code" else 0.5)}

    monkeypatch.setattr(ranking.benchmark, "result", other)
    assert {text.partition(",")[0]: held for held, text in found()[3:]} == {"opposites": False, "code": True}
    lines = Path("late.jsonl").read_text(encoding="utf-8").splitlines()
    Path("late.jsonl").write_text("\n".join(lines[:-1]) + "\n", encoding="utf-8")
    assert (False, "phase test has 9 of its 10 runs; missing: 1, others: 0") in found()
    Path("late.py").write_text(WRAPPER.replace("1e-9", "1e-8"), encoding="utf-8")
    assert found()[0] == (False, "files changed since")
    for text in ("", "{}\n", "no json", json.dumps({"method": "x"})):
        Path("x.jsonl").write_text(text, encoding="utf-8")
        with pytest.raises(DataError, match=r"x\.jsonl: no file of lines that `fgrl benchmark` wrote"):
            list(checking.check(Path("x.jsonl"), runs="runs", jobs=1, console=Console(stream=StringIO())))


def test_what_was_sent_in_is_whole() -> None:
    """The files of `fgrl_benchmark/sent` are those of the method that ran, and no run is missing."""
    for each in sheet.sent():
        lacks = [finding.text for finding in checking.whole(each, checking.method_of(each)) if not finding.held]
        assert not lacks, (each.file.name, lacks)


def test_pages_show_the_lines_of_what_was_sent_in(capsys: pytest.CaptureFixture[str]) -> None:
    """After a pull request: paste what `tables.py sent` prints into the page of the kind of task."""
    tables.sent()
    pages = [ROOT / "docs" / f"{name}.md" for name in ("credit-benchmark", "credit-benchmark-turns")]
    shown = {line for page in pages for line in page.read_text(encoding="utf-8").splitlines()}
    assert [line for line in capsys.readouterr().out.splitlines() if line not in shown] == []


def test_a_method_that_was_sent_in_is_one_of_the_others(
    no_training: list, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    here("late")
    ranked()
    (tmp_path / "sent").mkdir()
    for suffix in ("py", "yaml", "jsonl"):
        Path(f"late.{suffix}").rename(tmp_path / "sent" / f"late.{suffix}")
    monkeypatch.setattr(sheet, "SENT", tmp_path / "sent")
    test_what_was_sent_in_is_whole()
    Path("other.py").write_text(WRAPPER.replace('"late"', '"other"'), encoding="utf-8")
    place = ranked("other.py")
    assert {"late", "other"} <= set(place.rivals())
    assert place.gain("other", "late") == [0.0] * 5
    tables.sent()
    assert [line.split("|")[2].strip() for line in capsys.readouterr().out.splitlines()] == [
        "method",
        "--------",
        "`late`",
    ]


def test_the_command(no_training: list, monkeypatch: pytest.MonkeyPatch) -> None:
    def said(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(app, ["benchmark", *words])
        return done.exit_code, done.output if done.exception is None or done.exit_code else str(done.exception)

    here("late")
    code, text = said("late.py", "--knob", "exponent=1,3")
    assert code == 0, text
    assert f"lines: {Path('late.jsonl').resolve()}" in text
    assert Path("late.svg").is_file()
    code, text = said("--check", "late.jsonl")
    assert (code, text.count("ok: ")) == (0, 5)
    changed = Path("late.jsonl").read_text(encoding="utf-8").replace('"policy.right": 0.7', '"policy.right": 0.3')
    Path("late.jsonl").write_text(changed, encoding="utf-8")
    code, text = said("--check", "late.jsonl", "--json")
    assert (code, {each["held"] for each in json.loads(text)["findings"]}) == (7, {True, False})
    with pytest.raises(UsageError, match="name a method"):
        CliRunner().invoke(app, ["benchmark", "--told", "x"], catch_exceptions=False)
    monkeypatch.setattr(ranking.benchmark, "result", lambda *_: (_ for _ in ()).throw(UserCodeError("late.py:3: no")))
    with pytest.raises(UserCodeError):
        CliRunner().invoke(app, ["benchmark", "late.py", "--again", "--knob", "exponent=1,3"], catch_exceptions=False)


def test_a_run_in_a_process_of_its_own_gives_a_line(tiny_start: str) -> None:
    here("late")
    method = bring("late.py")
    lines = sheet_of(method)
    fewer = {
        "vars.iterations": 1, "vars.lr": 1e-3, "stages.policy.rollout.batch_size": 8, "stages.policy.train.batch_size": 8,
        "stages.policy.train.micro_batch_size": 8, "stages.policy.evaluate": None, "stages.evaluate.prompts.count": 4,
    }  # fmt: skip
    item = ranking.Item(TEST, benchmark.Point("late", "opposites", 7, fewer), method.plan("test"))
    with ranking.workers(1, tiny_start, "runs") as pool:
        ranking.do([item], lines, pool, Console(stream=StringIO()), "late")
    (line,) = read(Path("late.jsonl")).lines
    assert (line["phase"], line["key"], line["threads"]) == (TEST, item.point.key, 1)
    assert {"policy.right", "auc", "drawn", "processor seconds"} <= line.keys()


@pytest.fixture
def tiny_start(tmp_path_factory: pytest.TempPathFactory) -> str:
    smaller = {"stages.blank": {"name": "small_language_model", "hidden": 16, "layers": 1}}
    smaller |= {"stages.start.data.count": 4, "stages.start.train.epochs": 1}
    made = fgrl.run(
        benchmark.HERE / "start.yaml", smaller, runs=tmp_path_factory.mktemp("start"), progress=False, page=False
    )
    return str(made.stage("start").product)


def test_own_names_are_checked() -> None:
    here("late")
    bring("late.py")
    with pytest.raises(UsageError, match='"a b" cannot be the name of a method'):
        bring("late.yaml", name="a b")
    assert own_method.bring("late.yaml", name="b").name == "b"
