"""Shipped recipes with random mistakes, through `fgrl plan`: refused in words with exit code 2, or planned. Never a traceback.

The first cases run with every `make test`, all of `CASES` with `make evidence`. Case number n is always the same.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import random
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fgrl.cli import main
from fgrl.experiments.recipe import load
from fgrl.experiments.recipe.interpolation import resolve
from fgrl.registry.problems import Key
from fgrl.registry.tree import Tree

ROOT = Path(__file__).resolve().parents[2]
CASES, IN_EVERY_TEST = 10_000, 120
SCREEN = 8_000
"""Characters of a full screen: the most that a refusal prints."""
SECONDS = 5.0
"""What the slowest case may take; reported by `make evidence`, while the code bounds work and not time."""

RECIPES = (
    "recipes/small/segment_ppo.yaml", "recipes/small/rtt.yaml", "recipes/small/rla.yaml", "recipes/quickstart.yaml",
    "recipes/small/rtt.yaml::dpo", "recipes/small/segment_ppo.yaml::ngram5", "recipes/segment_ppo_phi3.yaml",
)  # fmt: skip

NUMBERS = ["0", "-1", "1", "2", "0.5", "1e-30", "1e30", "-1e30", "1e308", "1e999", ".inf", "-.inf", ".nan", "9" * 30, "-" + "9" * 400,
           "1.5", "0x7fffffffffffffff", "4294967296", "18446744073709551616"]  # fmt: skip
MILD = ["1", "2", "8", "16", "64", "0.1", "0.5", "1e-4", "true", "false", "null"]
TEXTS = ['""', '"  "', "x", "x" * 300, "y" * 100_000, '"\\0"', '"\\x1b[2J"', '"\\u202e"', "😀", "../../..", ".", "/", "/dev/null", "/dev/zero",
         "/dev/stdin", "~nobody/x", "a/b/c/d", "owner/never-downloaded", "con:aux", "*", "::", "a.yaml::b", "${vars}", "${stages}",
         "${vars.sft}", "${vars.sft}${vars.sft}", "${out:policy}", "${out:nowhere}", "${", "${}", "${..}", "${.x}",
         "${oc.env:HOME}", "\\${x}", "lm", "scalar", "token", "mean", "entropy", "ppo", "dpo", "no", "=", "<<"]  # fmt: skip
SHAPES = ["null", "[]", "{}", "[[]]", "[1, 2]", "[2, 2]", "[a, a]", "{a: b}", "{name: x}", "{name: ngram, n: 0}", "{base: x}", "true", "false",
          "[" * 60 + "]" * 60, "{a: " * 60 + "x" + "}" * 60, "[" + "x, " * 3000 + "]", "!!int 3", "*a", "&a [*a]", "- a", "'", '"', "{", "%"]  # fmt: skip
BOMBS = [
    "".join(f"  a{n}: ${{vars.a{n + 1}}}\n" for n in range(400)) + "  a400: 1\n",
    "  a0: ${vars.a0}\n",
    "  a0: " + "${" * 3000 + "}" * 3000 + "\n",
    "".join(f"  a{n}: {n}\n" for n in range(10_000)),
    "  a0: [" + "[" * 5000 + "\n",
    "  a0: '" + "z" * 300_000 + "'\n",
]  # fmt: skip
HEADS = ["/dev/zero", "/dev/null", "fifo", "/proc/self/mem", ".", "nowhere.yaml", "self", "[self, self]", "loop.yaml", "7", "''",
         '"\\0"', "x" * 5000, "base.yaml:row", "base.yaml::row", "base.yaml::*", "[]", "{}", "null"]  # fmt: skip


@pytest.fixture(scope="module")
def copies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of everything that the recipes read, with a few traps beside it; the current directory while a test runs."""
    folder = tmp_path_factory.mktemp("copies") / "far" / "below" / "other" / "files"  # a path like ../.. is tried, too
    for name in ("recipes", "prompts"):
        shutil.copytree(ROOT / name, folder / name)
    os.mkfifo(folder / "fifo")
    (folder / "loop.yaml").write_text("extends: case.yaml\nabout: x\n", encoding="utf-8")
    before = Path.cwd()
    os.chdir(folder)
    yield folder
    os.chdir(before)


def leaves(value: Any, path: Key = ()) -> Iterator[Key]:
    yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from leaves(item, (*path, key))


def settings_of(folder: Path) -> dict[str, list[Key]]:
    """The places of all settings of each recipe that mistakes are made in."""
    return {name: [path for path in leaves(load(folder / name).data) if len(path) > 1] for name in RECIPES}


def mistaken(random_: random.Random, path: Key) -> str:
    """The place of a setting, mostly as it is."""
    parts = [str(part) for part in path]
    change = random_.random()
    if change < 0.1:
        parts[-1] = parts[-1][:-1] + "x"
    elif change < 0.15:
        parts.append(random_.choice(["name", "0", "99", "x" * random_.choice([1, 300, 5000]), ""]))
    elif change < 0.2:
        parts.pop(random_.randrange(len(parts)))
    elif change < 0.25:
        parts[random_.randrange(len(parts))] = random_.choice(
            ["vars", "stages", "model", "train", "reward", "*", "-1", "ä"]
        )
    return ".".join(parts)


def value(random_: random.Random) -> str:
    return random_.choice(random_.choice([NUMBERS, MILD, MILD, TEXTS, SHAPES]))


def edited(random_: random.Random, text: str) -> str:
    """A file with one to three lines changed, doubled, moved, dropped, indented or cut."""
    lines = text.splitlines()
    for _ in range(random_.randint(1, 3)):
        at = random_.randrange(len(lines))
        line = lines[at]
        match random_.randrange(7):
            case 0:
                lines[at] = f"{line.partition(':')[0]}: {value(random_)}"
            case 1:
                lines.insert(at, line)
            case 2:
                lines.insert(random_.randrange(len(lines)), lines.pop(at))
            case 3:
                lines[at] = " " * random_.randint(0, 8) + line.lstrip()
            case 4:
                lines[at] = line[: random_.randint(0, len(line))]
            case 5 if len(lines) > 1:
                del lines[at]
            case _:
                place = random_.randint(0, len(line))
                lines[at] = (
                    line[:place] + chr(random_.choice([*range(32, 127), 0, 7, 9, 27, 0x2028, 0x1F600])) + line[place:]
                )
    return "\n".join(lines) + "\n"


def arguments(number: int, folder: Path, settings: dict[str, list[Key]]) -> list[str]:
    """What case `number` asks `fgrl plan` for."""
    random_ = random.Random(number)
    name = random_.choice(RECIPES)
    overrides = []
    for _ in range(random_.choice([1, 1, 1, 1, 2, 3])):
        overrides.append(f"{mistaken(random_, random_.choice(settings[name]))}={value(random_)}")
    kind = random_.random()
    if kind < 0.6:
        return [name, *overrides]
    file, separator, row = name.partition("::")
    case = folder / Path(file).parent / "case.yaml"
    if kind < 0.85:
        text = edited(random_, (folder / file).read_text(encoding="utf-8"))
    elif kind < 0.93:
        text = f"extends: {Path(file).name}\nabout: x\nvars:\n{random_.choice(BOMBS)}"
    else:
        head = random_.choice(HEADS).replace("self", "case.yaml").replace("base.yaml", Path(file).name)
        case = folder / "case.yaml"
        text = (
            f"extends: {head}\nabout: x\n{random_.choice(['', 'imports: [/dev/zero]', 'imports: [.]', 'seed: -1'])}\n"
        )
    case.write_text(text, encoding="utf-8", errors="surrogatepass")
    return [f"{case.relative_to(folder)}{separator}{row}", *(overrides if kind > 0.9 else [])]


def outcome(words: list[str]) -> tuple[int, str]:
    """Exit code of `fgrl plan`, and what it says; an exception that is no exit is a bug and not caught."""
    printed, told = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(told), pytest.raises(SystemExit) as left:
        main(["plan", *words, "--runs", "no-such-runs"])
    return int(left.value.code or 0), told.getvalue() if left.value.code else printed.getvalue()


def check(numbers: range, folder: Path) -> tuple[Counter[int], float]:
    """How often each exit code came, and the processor seconds of the slowest case."""
    settings = settings_of(folder)
    codes: Counter[int] = Counter()
    slowest = 0.0
    for number in numbers:
        words = arguments(number, folder, settings)
        shown = f"case {number}: {json.dumps(words)[:600]}"
        begun = time.process_time()
        try:
            code, told = outcome(words)
        except Exception as error:
            raise AssertionError(f"{shown}: {type(error).__name__}: {error}") from error
        slowest = max(slowest, time.process_time() - begun)
        codes[code] += 1
        assert code in (0, 2), f"{shown}: exit code {code}: {told[:1000]}"
        if code == 2:
            assert len(told) <= SCREEN, f"{shown}: {len(told)} characters: {told[:500]}"
            assert re.search(r"^(command line|[^\n]+:\d+:\d+|\S+|fgrl): |Error: ", told, re.MULTILINE), (
                f"{shown}: {told[:500]}"
            )
            assert "Traceback" not in told
    return codes, slowest


def test_a_mutated_recipe_is_refused_in_words_or_planned(copies: Path) -> None:
    codes, _ = check(range(IN_EVERY_TEST), copies)
    assert codes[0] >= IN_EVERY_TEST // 20, "hardly any case is accepted: the mistakes are too coarse to test planning"
    assert codes[2] >= IN_EVERY_TEST // 5


@pytest.mark.evidence
def test_ten_thousand_mutated_recipes(copies: Path, capsys: pytest.CaptureFixture[str]) -> None:
    codes, slowest = check(range(CASES), copies)
    with capsys.disabled():
        print(f"\n{CASES} mutated recipes: {codes[2]} refused, {codes[0]} planned; the slowest took {slowest:.2f} s")
    assert sum(codes.values()) == CASES


def test_the_resolver_and_the_tree_agree_on_a_copied_mapping() -> None:
    """What mutated recipes rarely reach: a mapping that is copied twice is two mappings."""
    place = Tree("x", None).place  # type: ignore[arg-type]
    tree = Tree({"a": Tree({"k": Tree(1, place)}, place), "b": Tree("${vars.m}", place), "vars": Tree({"m": Tree({"x": Tree(1, place)}, place)}, place)}, place)  # fmt: skip
    plain, problems = resolve(tree)
    assert not problems
    assert plain["b"] == plain["vars"]["m"]
    assert plain["b"] is not plain["vars"]["m"]
