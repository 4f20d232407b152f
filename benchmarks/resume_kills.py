"""SIGKILL a recipe at random moments and compare what it ends with to an undisturbed run, byte by byte.

    python benchmarks/resume_kills.py recipes/small/segment_ppo.yaml --kills 10 \
        stages.samples.prompts.limit=64 stages.policy.train.iterations=4

1. run the recipe undisturbed, in a folder of its own, and note how long each stage takes
2. in another folder: wait for a random moment of the work that is left, kill the process group, and again
3. when the recipe is done before it was killed often enough: compare that folder as in 5, go on with a fresh one
4. after the last kill: run what is left, run it once more (nothing to do)
5. compare weights, statistics, answers and logs with the undisturbed run's

A moment is a share of the stages' work, not of the process's life, so that loading libraries is not what gets killed.
Exit code 1 when anything differs, or when the recipe is too quick to be killed.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

UNKILLED = 5
"""Folders in a row that may be done without a kill before this gives up."""


def command(recipe: Path, runs: Path, overrides: list[str]) -> list[str]:
    return [sys.executable, "-m", "fgrl", "run", str(recipe), "--runs", str(runs), "-q", *overrides]


def through(recipe: Path, runs: Path, overrides: list[str]) -> float:
    """Run what is missing; seconds."""
    began = time.monotonic()
    subprocess.run(command(recipe, runs, overrides), check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def working(runs: Path) -> Path | None:
    """The stage that is being worked on."""
    started = (path for path in (runs / "stages").glob("*-*") if not (path / "stage.json").exists())
    return next(iter(sorted(started)), None)


def kill_in(
    recipe: Path, runs: Path, overrides: list[str], shares: dict[str, float], draw: random.Random
) -> str | None:
    """Start; once a stage is at work, kill after a random share of that stage's time. None when it was done before.

    The stage is drawn, too: with a chance of one half the first that is at work is left alone, then the next one ...
    """
    process = subprocess.Popen(command(recipe, runs, overrides), stdout=subprocess.DEVNULL, start_new_session=True)
    spared: set[Path] = set()
    while process.poll() is None:
        stage = working(runs)
        if stage is None or stage in spared:
            time.sleep(0.01)
            continue
        if draw.random() < 0.5:
            spared.add(stage)
            continue
        seconds = draw.uniform(0, shares.get(stage.name, 1.0))
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            found = working(runs)
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            kept = "with" if found is not None and (found / "last.ckpt").exists() else "without"
            return f"{found.name if found else 'between stages'}, {kept} a checkpoint"
    if process.returncode:
        raise SystemExit(f"the run ended by itself with {process.returncode}")
    return None


def products(runs: Path) -> dict[str, str]:
    """sha256 of everything the stages made, and of their logs without clocks."""
    found = {}
    for stage in sorted((runs / "stages").glob("*-*")):
        for path in sorted((stage / "out").rglob("*")):
            if path.is_file() and path.name != "fgrl.json":  # it names the folder of its base
                found[f"{stage.name}/{path.name}"] = hashlib.sha256(path.read_bytes()).hexdigest()
        if (stage / "log.jsonl").exists():
            rows = [json.loads(line) for line in (stage / "log.jsonl").open(encoding="utf-8")]
            kept = [{k: v for k, v in row.items() if k != "time" and not k.startswith("seconds/")} for row in rows]
            found[f"{stage.name}/log"] = hashlib.sha256(json.dumps(kept).encode()).hexdigest()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path, nargs="?", default=Path("recipes/small/segment_ppo.yaml"))
    parser.add_argument("overrides", nargs="*", help="a.b=value")
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument("--folder", type=Path, help="where the runs folders go (default: a temporary one)")
    asked = parser.parse_intermixed_args()
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="resume-kills-"))
    print(f"in {folder}")
    whole, draw = folder / "undisturbed", random.Random(asked.seed)
    print(f"undisturbed: {through(asked.recipe, whole, asked.overrides):.0f} s", flush=True)
    shares = {
        path.parent.name: json.loads(path.read_text())["seconds"] for path in (whole / "stages").glob("*/stage.json")
    }
    kills = folders = unkilled = 0
    different: list[str] = []
    while kills < asked.kills and unkilled < UNKILLED:
        folders += 1
        killed, before = folder / f"killed-{folders}", kills
        while kills < asked.kills:
            where = kill_in(asked.recipe, killed, asked.overrides, shares, draw)
            if where is None:
                break
            kills += 1
            print(f"kill {kills} in {killed.name}: {where}", flush=True)
        print(f"what was left: {through(asked.recipe, killed, asked.overrides):.0f} s")
        print(f"nothing left: {through(asked.recipe, killed, asked.overrides):.1f} s")
        unkilled = unkilled + 1 if kills == before else 0
        one, two = products(whole), products(killed)
        wrong = sorted(name for name in one.keys() | two.keys() if one.get(name) != two.get(name))
        print(
            f"{killed.name}: {kills - before} kills, {len(one)} files and logs compared, {len(wrong)} differ",
            flush=True,
        )
        different += [f"{killed.name}: {name}" for name in wrong]
    print(f"{kills} of {asked.kills} kills in {folders} folders, {len(different)} files or logs differ")
    for name in different:
        print(f"  {name}")
    sys.exit(bool(different) or kills < asked.kills)


if __name__ == "__main__":
    main()
