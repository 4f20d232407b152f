"""`table`, `compare`, `frontier` and `report` take the same sources and call a number the same."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from test_cli_compare import KEPT, fgrl, recipe, write_world

from fgrl.cli import main

NAME = "rule.punctuation:no_comma"
METRICS = (
    "[length, {name: rule, rule: {name: all_of, rules: ['punctuation:no_comma',"
    " {name: 'length_constraints:number_words', relation: at least, num_words: 1}]}}]"
)
SHARE = {who: [sum(kept) / len(kept) for kept in seeds] for who, seeds in KEPT.items()}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both recipes, run with two seeds each."""
    folder = tmp_path_factory.mktemp("ran")
    write_world(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for who in KEPT:
            recipe(folder, who, metrics=METRICS)
            for seed in (0, 2):
                done = fgrl("run", f"{who}.yaml", f"seed={seed}", "-q")
                assert done.exit_code == 0, (done.output, done.exception)
    return folder


@pytest.fixture
def runs(ran: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What nobody changes."""
    monkeypatch.chdir(ran)
    return ran / "runs"


@pytest.fixture
def own_runs(ran: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy, for a test that changes it."""
    shutil.copytree(ran, tmp_path / "world", symlinks=True)
    monkeypatch.chdir(tmp_path / "world")
    return tmp_path / "world" / "runs"


def read(*words: object) -> dict[str, Any]:
    done = fgrl(*words, "--json")
    assert done.exit_code == 0, (done.output, done.exception)
    return json.loads(done.stdout)


def table(*words: object) -> dict[str, float | None]:
    """The policy's share by recipe; None where nothing has run."""
    recipes = read("table", *words, "--number", NAME)["recipes"]
    return {
        name: rows and next(row["mean"] for row in rows if row["model"] == "policy") for name, rows in recipes.items()
    }


def compared(*words: object) -> dict[str, dict[str, float]]:
    """The policy's share by recipe and seed."""
    (number,) = read("compare", *words, "--number", NAME)["stages"]["evaluate"]["numbers"]
    return {name: one["seeds"] for name, one in number["recipes"].items()}


def points(*words: object) -> list[tuple[str, str, float]]:
    data = read("frontier", *words, "--x", "length.words", "--y", NAME, "--model", "policy")
    return [(point["series"], point["settings"], point["y"]["mean"]) for point in data["points"]]


def run_of(runs: Path, who: str, seed: int) -> Path:
    (folder,) = [
        folder for folder in (runs / who).glob("*Z-*") if f"seed: {seed}\n" in (folder / "recipe.yaml").read_text()
    ]
    return folder


def test_a_recipe_with_an_override(runs: Path) -> None:
    words = ("plain.yaml", "fine.yaml", "seed=2")
    assert table(*words) == pytest.approx({"plain": SHARE["plain"][2], "fine": SHARE["fine"][2]})
    assert compared(*words) == {who: {"2": pytest.approx(SHARE[who][2])} for who in KEPT}
    assert points(*words) == [(who, "", pytest.approx(SHARE[who][2])) for who in KEPT]
    assert table("plain.yaml", "vars.who=fine") == {"plain": pytest.approx(SHARE["fine"][0])}
    assert table("plain.yaml", "seed=1") == {"plain": None}


def test_several_seeds(runs: Path) -> None:
    words = ("plain.yaml", "fine.yaml", "--seeds", "0,2")
    by_seed = {f"{who} seed {seed}": SHARE[who][seed] for who in KEPT for seed in (0, 2)}
    measured = {re.sub(r", .*", "", name): value for name, value in table(*words).items()}
    assert measured == pytest.approx(by_seed)
    assert compared(*words) == {who: {str(seed): pytest.approx(SHARE[who][seed]) for seed in (0, 2)} for who in KEPT}
    assert sorted(y for _, _, y in points(*words)) == pytest.approx(sorted(by_seed.values()))


def test_a_folder_of_a_run_and_a_folder_of_runs(runs: Path) -> None:
    one, other = run_of(runs, "plain", 0), run_of(runs, "fine", 0)
    assert table(one, other) == pytest.approx({who: SHARE[who][0] for who in KEPT})
    assert compared(one, other) == {who: {"0": pytest.approx(SHARE[who][0])} for who in KEPT}
    assert points(one, other) == [(who, "", pytest.approx(SHARE[who][0])) for who in KEPT]
    folders = (runs / "plain", runs / "fine")
    assert len(table(*folders)) == len(points(*folders)) == 4
    by_seed = {who: {str(seed): pytest.approx(SHARE[who][seed]) for seed in (0, 2)} for who in KEPT}
    assert compared(*folders) == compared(runs / "plain", "fine.yaml", "--seeds", "0,2") == by_seed
    assert compared(*folders, "--seeds", "2") == {who: {"2": pytest.approx(SHARE[who][2])} for who in KEPT}
    assert list(table(*folders, "--seeds", "2").values()) == pytest.approx([SHARE[who][2] for who in KEPT])


def test_what_is_compared_of_folders_is_paired(runs: Path) -> None:
    words = [[runs / "plain", runs / "fine"], ["plain.yaml", "fine.yaml", "--seeds", "0,2"]]
    of_folders, of_recipes = (read("compare", *each) for each in words)
    assert of_folders["stages"] == of_recipes["stages"]
    assert of_folders["settings"] == of_recipes["settings"] != []
    number = of_folders["stages"]["evaluate"]["numbers"][0]
    assert number["observed"]


def test_a_run_that_this_version_cannot_build_keeps_its_numbers(own_runs: Path) -> None:
    one = run_of(own_runs, "plain", 0)
    text = (one / "recipe.yaml").read_text()
    (one / "recipe.yaml").write_text(text.replace("name: evaluate", "name: evaluate\n    forgotten: 1"))
    assert table(one) == {"plain": pytest.approx(SHARE["plain"][0])}
    (number,) = read("compare", one, run_of(own_runs, "fine", 0), "--number", NAME)["stages"]["evaluate"]["numbers"]
    assert number["observed"]
    assert number["differences"]["fine"]["over_prompts"]["low"] is not None
    assert number["differences"]["fine"]["over_seeds"]["mean"] == pytest.approx(SHARE["fine"][0] - SHARE["plain"][0])


def without_observations(folder: Path) -> None:
    """As an earlier version of fgrl left it."""
    out = (folder / "stages" / "evaluate" / "out").resolve()
    report, record = (json.loads(file.read_text()) for file in (out / "metrics.json", out.parent / "stage.json"))
    del report["observations"]
    (out / "metrics.json").write_text(json.dumps(report))
    (out / "observations.jsonl").unlink()
    record["files"] = {}
    (out.parent / "stage.json").write_text(json.dumps(record))


def test_a_run_of_an_earlier_version_has_its_means_and_it_is_said_why_it_has_no_intervals(own_runs: Path) -> None:
    one, other = run_of(own_runs, "plain", 0), run_of(own_runs, "fine", 0)
    without_observations(one)
    assert table(one) == {"plain": pytest.approx(SHARE["plain"][0])}
    found = read("compare", one, other, "--number", NAME)["stages"]["evaluate"]
    assert found["notes"] == ["not all runs recorded their prompts: whether these are the same is not checked"]
    (number,) = found["numbers"]
    assert number["why_recorded"] == "no observations: it was measured by an earlier version of fgrl"
    change = number["differences"]["fine"]
    assert change["over_prompts"] is None
    assert change["over_seeds"]["mean"] == pytest.approx(SHARE["fine"][0] - SHARE["plain"][0])
    said = fgrl("compare", one, other, "--number", NAME).stdout
    assert f"- {NAME}: no paired interval over prompts, only the recorded means: no observations: it was" in said


def test_what_has_not_run_in_a_folder_is_listed(own_runs: Path) -> None:
    one = run_of(own_runs, "plain", 0)
    summary = json.loads((one / "summary.json").read_text())
    stage = one / summary["stages"]["evaluate"]["dir"]
    stage = stage if stage.is_dir() else next((own_runs / "stages").glob(f"*-{summary['stages']['evaluate']['key']}"))
    (stage / "stage.json").unlink()
    summary["stages"]["evaluate"]["cached"] = False
    (one / "summary.json").write_text(json.dumps(summary))
    assert table(one, own_runs / "fine")["plain"] is None
    data = read("compare", own_runs / "plain", own_runs / "fine")
    assert data["missing"] == [{"recipe": "plain", "seed": "0", "stages": ["evaluate"], "command": ""}]
    assert "- plain, seed 0: evaluate\n" in fgrl("compare", own_runs / "plain", own_runs / "fine").stdout + "\n"


@pytest.mark.parametrize(
    ("checksums", "words"),
    [(True, "out/metrics.json has 1 bytes instead of "), (False, "out: metrics.json is not JSON")],
)
def test_a_damaged_file_is_named(
    own_runs: Path, capsys: pytest.CaptureFixture[str], checksums: bool, words: str
) -> None:
    for file in (own_runs / "stages").glob("evaluate-*/out/metrics.json"):
        file.write_text("{")
        if not checksums:
            record = json.loads((file.parents[1] / "stage.json").read_text())
            record["files"] = {}
            (file.parents[1] / "stage.json").write_text(json.dumps(record))
    for command in (["table", "plain.yaml"], ["frontier", "plain.yaml", "--y", "rule.kept"]):
        with pytest.raises(SystemExit) as left:
            main(command)
        assert left.value.code == 3
        assert words in capsys.readouterr().err


def test_a_number_is_called_the_same_everywhere(runs: Path) -> None:
    names = {row["number"] for row in read("table", "fine.yaml")["recipes"]["fine"]}
    assert {"rule.kept", NAME, "length.words"} <= names
    assert NAME in fgrl("table", "fine.yaml").stdout
    numbers = read("compare", "plain.yaml", "fine.yaml")["stages"]["evaluate"]["numbers"]
    assert {one["number"] for one in numbers} <= names
    assert f"\n  {NAME}  " in fgrl("compare", "plain.yaml", "fine.yaml").stdout
    data = read("frontier", "plain.yaml", "fine.yaml", "--x", "length: words", "--y", "no comma")
    assert (data["x"], data["y"]) == ("length.words", NAME)
    page = (run_of(runs, "fine", 0) / "report.html").read_text()
    assert f">{NAME}" in page
    out = run_of(runs, "fine", 0) / "stages" / "evaluate" / "out" / "metrics.json"
    assert NAME.partition(".")[2] in json.loads(out.read_text())["metrics"]["rule"]["policy"]


@pytest.mark.parametrize("spelling", ["rule: punctuation:no comma", "no_comma", "NO COMMA", NAME])
def test_other_spellings_are_understood(runs: Path, spelling: str) -> None:
    for words in (["table", "fine.yaml"], ["compare", "plain.yaml", "fine.yaml"]):
        assert NAME in fgrl(*words, "--number", spelling).stdout
        assert "rule.kept" not in fgrl(*words, "--number", spelling).stdout
    assert read("frontier", "fine.yaml", "--x", "words", "--y", spelling)["y"] == NAME


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["table", "fine.yaml", "--number", "rule.kep"], None),
        (["table", "fine.yaml", "--number", "rul.kept"], 'did you mean "rule.kept"?'),
        (["frontier", "fine.yaml", "--y", "rule.kpt"], 'did you mean "rule.kept"?'),
        (["table", "runs/fine", "seed=2"], "overrides are for recipes"),
        (["table", "runs/fine", "--seeds", "7"], "runs/fine has no run with seed 7; it has 0, 2"),
        (["table", "runs"], "runs contains no runs"),
        (["table", "fine.yam"], 'did you mean "fine.yaml"'),
        (["report", "fine.yaml", "vars.who=plain"], "it has not run: fgrl run fine.yaml vars.who=plain"),
    ],
)
def test_mistakes(runs: Path, words: list[str], message: str | None, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(words)
    assert left.value.code == (2 if message else 0)
    assert (message or "") in re.sub(r"[\s│]+", " ", capsys.readouterr().err)


def test_runs_of_one_seed_with_other_settings_are_not_one_recipe(
    own_runs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fgrl("run", "fine.yaml", "vars.who=plain", "-q").exit_code == 0
    with pytest.raises(SystemExit) as left:
        main(["compare", "plain.yaml", str(own_runs / "fine")])
    assert left.value.code == 2
    assert "runs with seed 0 and different settings" in capsys.readouterr().err


def test_reports_of_an_override_a_seed_and_a_folder(own_runs: Path) -> None:
    seeds = [run_of(own_runs, "fine", seed) for seed in (0, 2)]
    for folder in seeds:
        (folder / "report.html").unlink()
    assert Path(read("report", "fine.yaml", "seed=2")["folder"]).resolve() == seeds[1].resolve()
    assert not (seeds[0] / "report.html").exists()
    written = read("report", "fine.yaml", "--seeds", "0,2")["reports"]
    assert [Path(each["report"]).resolve() for each in written] == [
        (folder / "report.html").resolve() for folder in seeds
    ]
    shown = fgrl("report", seeds[0])
    assert shown.stdout == f"{seeds[0] / 'report.html'}\n"
    questions = read("report", seeds[0])["verdict"]["questions"]
    assert [each["question"] for each in questions] == ["Did it learn?", "Does it have side effects?"]
    assert all(f"{each['question']} {each['reply']}" in shown.stderr for each in questions)
    assert len(fgrl("report", own_runs / "fine").stdout.splitlines()) == 2
