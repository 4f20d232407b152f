"""`report.html`: safe, whole in itself, the same every time, and there for broken runs too."""

from __future__ import annotations

import json
import math
import random
import re
import shutil
from pathlib import Path

import pytest
from fake_runs import answer, fake_run, stats, write_json, write_lines
from pages import HOSTILE, assert_safe, change, page, stage

from fgrl.pages.report.page import MOST_CURVES


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return fake_run(tmp_path_factory.mktemp("finished"))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return fake_run(tmp_path, prompts=4, points=10, steps=30)


def test_whole_in_itself(finished: Path) -> None:
    text, parsed = page(finished)
    assert_safe(text, parsed)
    assert "http:" not in text
    assert "https:" not in text
    policy = next(a["content"] for tag, a in parsed.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert "default-src 'none'" in (policy or "")
    assert "script-src" not in (policy or "")
    assert len(text) < 2_000_000


def test_shows_what_was_measured(finished: Path) -> None:
    text, parsed = page(finished)
    words = " ".join(parsed.text)
    for wanted in ("0.16", "0.58", "+0.42", "0.28 to 0.56", "excludes 0", "includes 0", "no positives"):
        assert wanted in words, wanted
    for id in ("results", "answers", "curves", "normalizer", "stages", "recipe"):
        assert [tag for tag, attributes in parsed.tags if attributes.get("id") == id], id
        assert f'href="#{id}"' in text
    assert "0.770 ln p + 0.470" in words
    assert "The first 24 of 30 prompts" in words
    joined = "".join(parsed.text)
    joined = joined[joined.index("The first 24 of 30 prompts") :]
    assert 0 < joined.index("Lighthouses are") < joined.index("Many people")  # the baseline is on the left
    plots = [attributes for tag, attributes in parsed.tags if attributes.get("class") == "plot"]
    # the first screen, curves of the reward model, of the policy, mean and deviation
    assert len(plots) == 1 + 4 + 13 + 2
    assert all(attributes["aria-label"] for attributes in plots)


def test_segments_and_colours(tmp_path: Path) -> None:
    folder = fake_run(tmp_path, prompts=1, points=3, steps=3)
    line = {
        "model": "sft", "sample": {"id": "a", "prompt": "p"}, "response": {"text": "ab c", "finished": True},
        "tokens": ["a", "b", " c", "</s>"],
        "token_rewards": {"r": [1.0, 1.0, -2.0, None]}, "segments": {"r": [0, 0, 1, -1]},
    }  # fmt: skip
    write_lines(stage(folder, "evaluate") / "out" / "answers.jsonl", [line])
    text, _ = page(folder)
    drawn = re.search(r'<p class="text layer layer-0"[^>]*>(.*?)</p>', text, re.DOTALL)
    assert drawn
    assert re.findall(r'<span class="seg (\w+)"', drawn[1]) == ["p5", "n5"]
    assert re.findall(r'<i class="t (\w*)[^"]*"', drawn[1]) == ["p2", "p2", "n5", "end"]
    assert re.sub("<sub>.*?</sub>|<[^>]*>", "", drawn[1]) == "ab c&lt;/s&gt;"
    assert re.findall("<sub>(.*?)</sub>", drawn[1]) == ["+2", "−2"]
    assert 'title="token 3 of 4 · reward −2 · segment 2"' in drawn[1]


def test_rewards_without_segments_have_no_controls_for_them(tmp_path: Path) -> None:
    folder = fake_run(tmp_path, prompts=1, points=3, steps=3)
    line = {
        "model": "sft", "sample": {"id": "a", "prompt": "p"}, "response": {"text": "ab", "finished": True}, "tokens": ["a", "b"],
        "token_rewards": {"r": [1.0, -1.0]},
    }  # fmt: skip
    for segments, expected in (({}, False), ({"r": [-1, -1]}, False), ({"r": [0, 1]}, True)):
        write_lines(stage(folder, "evaluate") / "out" / "answers.jsonl", [line | {"segments": segments}])
        text, _ = page(folder)
        assert ("<legend>Colour</legend>" in text) == ("Brackets are segments" in text) == expected
        assert 'title="token 1 of 2 · reward +1' in text


def test_follows_the_browser(finished: Path) -> None:
    text, _ = page(finished)
    assert '<meta name="color-scheme" content="light dark">' in text
    light, dark = text.split("@media (prefers-color-scheme: dark)")
    names = set(re.findall(r"(--[\w]+): #", light))
    assert {"--bg", "--ink", "--p5", "--n5", "--grid"} <= names
    assert names == set(re.findall(r"(--[\w]+): #", dark))
    body = text[text.index("<body>") :]
    assert not re.search(r"#[0-9a-fA-F]{6}\b", body)  # plots take their colours from the stylesheet


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_contrast(finished: Path) -> None:
    text, _ = page(finished)
    for theme in text.split("@media (prefers-color-scheme: dark)"):
        colours: dict[str, str] = {}
        for name, colour in re.findall(r"(--\w+): (#\w{6})", theme):
            colours.setdefault(name, colour)
        pairs = [("--ink", f"--{side}{level}") for side in "np" for level in range(1, 6)]
        pairs += [(front, back) for front in ("--ink", "--muted", "--accent", "--good", "--warn", "--bad")
                  for back in ("--bg", "--surface")]  # fmt: skip
        for front, back in pairs:
            low, high = sorted((luminance(colours[front]), luminance(colours[back])))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (front, back)


def test_same_bytes_for_the_same_folder(finished: Path) -> None:
    assert page(finished)[0] == page(finished)[0]


def test_escapes_everything(run: Path) -> None:
    nasty = " ".join(HOSTILE)
    for id, text in enumerate(HOSTILE):
        hostile = run / "recipe.yaml"
        hostile.write_text(f"about: {json.dumps(text)}\nstages: {{}}\n", encoding="utf-8", errors="replace")
        line = answer(random.Random(0), text, str(id), text, "x") | {
            "tokens": [text, text], "response": {"text": text, "finished": True},
            "token_rewards": {text: [1.0, -1.0]}, "segments": {text: [0, 1]},
        }  # fmt: skip
        write_lines(stage(run, "evaluate") / "out" / "answers.jsonl", [line, line | {"model": "sft"}])
        write_json(
            stage(run, "evaluate") / "out" / "metrics.json",
            {
                "metrics": {text: {text: {text: {"mean": 1, "low": 0, "high": 2, "n": 3, "note": text}}}},
                "baseline": text,
            },
        )
        write_lines(stage(run, "policy") / "log.jsonl", [{"step": 0, text: 1.0}, {"step": 1, text: 2.0}])
        write_json(
            stage(run, "calibrate") / "out" / "stats.json",
            {"normalizer": text, text: text, "points": [{"p": 0.5, "mean": 1, "std": 1, "count": text}]},
        )
        change(run / "environment.json", **{"nested": {text: [text, {text: text}]}})
        write_json(run / "origins.json", {text: text})
        summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
        folders = {name: told["dir"] for name, told in summary["stages"].items()}
        summary |= {"recipe": text, "about": nasty, "command": [text], "started": text, "exit": 1, "error": text}
        for name in folders:
            summary["stages"][name] |= {"kind": text, "key": text, "summary": {text: text}}
        write_json(run / "summary.json", summary)
        (run / "run.log").write_text(text + "\n", encoding="utf-8", errors="replace")
        html, parsed = page(run)
        assert_safe(html, parsed)
        assert not set(re.findall(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200f\u2028-\u202e\u2066-\u2069\ufeff]", html))
        assert "1337" not in html  # 7 * 191 as jinja2 would have it
        if "<" not in text and "\u202e" not in text and "\x00" not in text and "\u2028" not in text and id != 10:
            assert text in "".join(parsed.text)
    assert "⟨U+202E⟩" in html
    assert "␀" in html
    assert "␛[31m" in html


@pytest.mark.parametrize(
    "missing",
    ["summary.json", "recipe.yaml", "environment.json", "origins.json", "out", "log.jsonl", "stages", "everything"],
)
def test_missing_parts(run: Path, missing: str) -> None:
    if missing == "stages":
        shutil.rmtree(run.parent.parent / "stages")
    elif missing == "everything":
        shutil.rmtree(run.parent.parent / "stages")
        for file in run.iterdir():
            file.unlink()
    elif missing in ("out", "log.jsonl"):
        for name in ("calibrate", "policy", "evaluate"):
            target = stage(run, name) / missing
            shutil.rmtree(target, ignore_errors=True)
            target.unlink(missing_ok=True)
    else:
        (run / missing).unlink()
    text, parsed = page(run)
    assert_safe(text, parsed)
    words = " ".join(parsed.text)
    assert "small-segment_ppo" in words
    if missing in ("summary.json", "everything"):
        assert "This run has not finished" in words
        assert "summary.json cannot be read" in words
    if missing == "stages":
        assert "policy: its folder does not exist" in words


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "null", "\x00\xff", '{"stages": 3}', '{"stages": {"x": 4}, "exit": "a"}']
)
def test_broken_files(run: Path, text: str) -> None:
    evaluate, calibrate = (stage(run, name) / "out" for name in ("evaluate", "calibrate"))
    for path in (
        evaluate / "metrics.json",
        evaluate / "answers.jsonl",
        calibrate / "stats.json",
        run / "environment.json",
    ):
        path.write_text(text, encoding="utf-8")
    assert_safe(*page(run))
    for name in ("summary.json", "recipe.yaml", "origins.json"):
        (run / name).write_text(text, encoding="utf-8")
    assert_safe(*page(run))


@pytest.mark.parametrize(
    "report",
    [
        {"metrics": []},
        {"metrics": {"m": 3}},
        {"metrics": {"m": {"sft": 0.5, "policy": {"mean": 0.7, "low": None, "high": 1}}}, "baseline": 3},
        {"metrics": {"m": {"sft": {"a": "text", "b": None, "c": {"mean": float("nan")}}, "differences": None}}},
        {"metrics": {"m": {"sft": {"a": {"mean": 1e300, "low": -1e300, "high": 1e308}}, "differences": {"sft": 3}}}},
    ],
)
def test_odd_metrics(run: Path, report: dict) -> None:
    write_json(stage(run, "evaluate") / "out" / "metrics.json", report)
    assert_safe(*page(run))


def test_says_where_a_run_stopped(run: Path) -> None:
    (stage(run, "policy") / "stage.json").unlink()
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    del summary["stages"]["evaluate"]
    write_json(run / "summary.json", summary | {"exit": 5, "error": "answers are 4 tokens long on average"})
    (run / "run.log").write_text("first line\nlast line\n", encoding="utf-8")
    words = " ".join(page(run)[1].text)
    assert "failed, exit code 5" in words
    assert "This run failed in stage “policy”" in words
    assert "answers are 4 tokens long" in words
    assert "last line" in words
    assert "not started" in words  # evaluate, which the recipe has and the summary does not


def test_stages_that_nobody_asked_for(run: Path) -> None:
    summary = json.loads((run / "summary.json").read_text(encoding="utf-8"))
    del summary["stages"]["evaluate"]
    write_json(run / "summary.json", summary)
    words = " ".join(page(run)[1].text)
    assert "not asked for" in words
    assert "This run" not in words


def test_numbers_that_are_none(run: Path) -> None:
    log = stage(run, "policy") / "log.jsonl"
    rows = ['{"step": 0, "loss": NaN, "kl": Infinity, "only": null, "huge": 1e300, "text": "x", "yes": true}']
    rows += [f'{{"step": {step}, "loss": {step}, "kl": -Infinity, "huge": {10**400}}}' for step in range(1, 4)]
    log.write_text("\n".join([*rows, '{"step": 4, "lo']), encoding="utf-8")
    text, parsed = page(run)
    assert_safe(text, parsed)
    words = " ".join(parsed.text)
    assert "1 value not finite" in words
    assert "4 values not finite" in words
    assert "1 line of log.jsonl could not be read" in words
    labels = [a["aria-label"] for _, a in parsed.tags if a.get("class") == "plot"]
    assert "loss: from 1 to 3 in 3 values" in labels
    assert "only: no finite value" in labels
    assert not {"text: no finite value", "yes: no finite value"} & set(labels)
    assert "nan" not in re.sub("<title>.*?</title>", "", text[text.index("<svg") :]).lower().split()


def test_one_step_and_equal_values(run: Path) -> None:
    write_lines(stage(run, "policy") / "log.jsonl", [{"step": 0, "kl": 0.0}])
    write_lines(stage(run, "reward_model") / "log.jsonl", [{"step": s, "loss": 2.0} for s in range(50)])
    assert_safe(*page(run))


def test_long_runs_stay_small(run: Path) -> None:
    rows = [{"step": s, **{f"metric {m}": (s * 7919 % 101) * m for m in range(80)}} for s in range(2000)]
    write_lines(stage(run, "policy") / "log.jsonl", rows)
    text, parsed = page(run)
    assert len(text) < 2_000_000
    shown = [1 for _, a in parsed.tags if (a.get("aria-label") or "").startswith("metric")]
    assert len(shown) == 1 + MOST_CURVES  # one of them on the first screen, too
    assert "Not drawn: " in " ".join(parsed.text)


def test_empty_answers_and_odd_tokens(run: Path) -> None:
    rows = [
        {"model": "sft", "sample": {"id": "1", "prompt": [{"role": "user", "content": "hi"}]},
         "response": {"text": "", "finished": True}, "tokens": ["</s>"],
         "token_rewards": {"segment": [None]}, "segments": {"segment": [-1]}},
        {"model": "policy", "sample": {"id": "1", "prompt": "hi"}, "response": {"text": "", "finished": False}},
        {"model": "sft", "sample": {"id": "2", "prompt": ""}, "response": {"text": "👩‍👩‍👧 é שלום 日本", "finished": False},
         "tokens": ["👩‍", "", "👩‍👧", " é", " שלום", "日", "本"], "kl": 0.75,
         "token_rewards": {"segment": [1, 2]}, "segments": {"segment": [0, 0, 1, 1, 2, 2, 3]}},
        {"model": "sft", "id": "3", "token_rewards": 3, "segments": [1], "tokens": "abc"},
        {},
    ]  # fmt: skip
    write_lines(stage(run, "evaluate") / "out" / "answers.jsonl", rows)
    text, parsed = page(run)
    assert_safe(text, parsed)
    words = " ".join(parsed.text)
    assert "cut off" in words
    assert re.search(r"sft\s+empty", words)
    assert "no answer to this prompt" in words
    assert "👩‍👧" in words  # joiners of emoji stay
    assert "שלום" in words
    assert "user" in words
    assert "0.750" in words
    assert "2 lines of answers.jsonl could not be read" in words


def test_answers_file_without_lines(run: Path) -> None:
    (stage(run, "evaluate") / "out" / "answers.jsonl").write_text("", encoding="utf-8")
    assert "The evaluation has no answers" in " ".join(page(run)[1].text)


@pytest.mark.parametrize(
    "fit",
    [
        {"normalizer": "global", "mean": 1.0, "std": 2.0, "min_std": 0.001, "rewards": 4},
        {"normalizer": "none"},
        {"normalizer": "location", "w_mean": 0.0, "b_mean": 1.0, "w_std": 0.0, "b_std": 1.0, "min_std": 0.1,
         "points": [{"p": 1.0, "mean": 1.0, "std": 1.0, "count": 3, "used": True}], "note": "one location only"},
        {"normalizer": "location", "points": [{"p": 0, "mean": None}, 3, {"p": -1, "mean": 2, "std": 2}]},
    ],
)  # fmt: skip
def test_normalizers(run: Path, fit: dict) -> None:
    write_json(stage(run, "calibrate") / "out" / "stats.json", fit)
    text, parsed = page(run)
    assert_safe(text, parsed)
    words = " ".join(parsed.text)
    assert fit["normalizer"] in words
    assert fit.get("note", "") in words


def test_fit_is_drawn_where_it_is(run: Path) -> None:
    """The line passes through points that lie on it."""
    fit = stats(random.Random(0), 5)
    for point in fit["points"]:
        point["mean"] = 0.77 * math.log(point["p"]) + 0.47
    write_json(stage(run, "calibrate") / "out" / "stats.json", fit)
    text, _ = page(run)
    plot = re.search(r'<svg class="plot"[^>]*aria-label="mean of segment.*?</svg>', text, re.DOTALL)
    assert plot
    main = re.search(r'<g class="main"><path [^>]*\bd="([^"]*)"', plot[0])
    assert main
    line = [float(part) for part in re.findall(r"[\d.]+", main[1])]
    spots = list(zip(line[::2], line[1::2], strict=True))
    circles = re.findall(r'\bd="([^"]*) z"', plot[0].partition('<g class="bin">')[2].partition("</g>")[0])
    assert len(circles) == sum(point["used"] for point in fit["points"])
    for circle in circles:
        ends = [float(part) for part in re.findall(r"[\d.]+", circle)]
        x, y = ((min(own) + max(own)) / 2 for own in (ends[::2], ends[1::2]))
        after = next(i for i, spot in enumerate(spots) if spot[0] >= float(x) - 0.11)
        (x0, y0), (x1, y1) = spots[max(0, after - 1)], spots[after]
        share = 0.0 if x1 == x0 else (float(x) - x0) / (x1 - x0)
        assert y0 + share * (y1 - y0) == pytest.approx(float(y), abs=1.0)
