"""Mistakes of the user's code in a stage of two processes: `fgrl run` reports each once."""

from __future__ import annotations

import io
import json
import os
from contextlib import chdir, redirect_stderr, redirect_stdout
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import tiny_recipe
from conftest import train_tokenizer
from forks import forked
from function_helpers import component, rollout_of, write
from pipeline_helpers import fgrl
from torch import distributed
from user_mistakes import AT_RUN_TIME
from wording import said

from fgrl.base.errors import UserCodeError
from fgrl.experiments.pipeline import workers
from fgrl.experiments.pipeline.endings import RankFailed, ending
from fgrl.training import gather

pytestmark = pytest.mark.usefixtures("warm")

TWO = (
    "vars.devices=2", "vars.strategy=ddp", "stages.reward_model=null", "stages.calibrate=null", "stages.evaluate=null",
    "stages.policy.reward={name: function, path: rewards.py:score}", "stages.policy.algorithm={name: grpo, kl_coef: 0.0}",
    "stages.policy.rollout.per_prompt=3", "stages.policy.train.iterations=2",
)  # fmt: skip
ON_RANK = "import os\n\ndef score(completions, **kwargs):\n    second = os.environ.get('LOCAL_RANK') == '1'\n"
MISTAKES = {
    "in both": ("def score(completions, **kwargs):\n    return [text.missing for text in completions]\n", 2, "score raised AttributeError"),
    "in the second alone": (ON_RANK + "    return [1 / (not second) for text in completions]\n", 5, "score raised ZeroDivisionError"),
    "a wrong value in the second alone": (ON_RANK + "    return [0.0] * (len(completions) - second)\n", 5, "returned 5 values for 6"),
}  # fmt: skip


RUNS_ALWAYS = "in the second alone"
"""The others are evidence: each starts three processes."""


@pytest.mark.parametrize(
    "mistake",
    [pytest.param(name, marks=[] if name == RUNS_ALWAYS else [pytest.mark.evidence]) for name in MISTAKES],
)
def test_a_mistake_is_reported_once(mistake: str, tmp_path: Path, tiny_model_dir: Path) -> None:
    source, line, problem = MISTAKES[mistake]
    recipe = tiny_recipe.write(tmp_path, tiny_model_dir)
    (tmp_path / "rewards.py").write_text(source, encoding="utf-8")
    ran = fgrl("run", recipe, "--runs", tmp_path / "runs", *TWO, cwd=tmp_path)
    assert ran.returncode == 7, ran.stderr
    assert ran.stderr.count("rewards.py:") == 1, ran.stderr
    report = ran.stderr[ran.stderr.index("rewards.py:") :].splitlines()
    assert 3 <= len(report) <= 5, ran.stderr
    assert report[0].startswith(f"rewards.py:{line}: ")
    assert problem in report[0]
    assert report[1] == f"{line:>4} | {source.splitlines()[line - 1]}"
    assert "Traceback" not in ran.stderr
    summary = json.loads(next((tmp_path / "runs" / "tiny").glob("*/summary.json")).read_text())
    assert summary["exit"] == 7
    log = next((tmp_path / "runs" / "tiny").glob("*/run.log")).read_text()
    assert ("Traceback" in log) == ("raised" in problem)


# -- all mistakes, in two processes that stay --------------------------------------------------------------------------

CORRECT = "def score(completions, **kwargs):\n    return [0.0 for text in completions]\n"
WHERE = ["in both", "in the second alone"]


def fail(rank: int, folder: Path, source: str, tokenizer: Any) -> dict[str, Any]:
    """Score responses as one of two processes of a stage does, and end as it does. Returns how `fgrl run` reports that."""
    own, shared = folder / str(rank), folder / "shared"
    own.mkdir(parents=True)
    shared.mkdir(exist_ok=True)
    write(own, source)
    printed, how = io.StringIO(), None
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder / 'meet'}", rank=rank, world_size=2, timeout=timedelta(seconds=60)
    )
    with chdir(own), redirect_stdout(printed), redirect_stderr(printed):
        try:
            with workers.reported(shared) if rank == 0 else workers.silent(shared, rank):
                reward = component("reward", own, path="rewards.py:score")
                rollout = rollout_of(["a", "bird"], tokenizer=tokenizer)
                reward.check_prompts(rollout.samples)
                gather.everywhere(rollout, reward.scored(rollout), world=2)
        except SystemExit:  # of the second, which has left its report
            assert rank == 1
        except Exception as error:
            how = ending(error, own)
        finally:  # after a worker's report: to the other process, this one has ended
            distributed.destroy_process_group()
    return {
        "message": how and how.message, "details": how and how.details, "exit": how and how.exit_code,
        "bug": how is not None and how.bug, "printed": printed.getvalue(),
    }  # fmt: skip


@pytest.fixture(scope="module")
def endings(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], list[dict[str, Any]]]:
    """How the process of rank 0 and that of rank 1 end after each mistake."""
    folder, tokenizer = tmp_path_factory.mktemp("mistakes"), train_tokenizer()
    cases = [(where, mistake) for where in WHERE for mistake in AT_RUN_TIME]

    def work(rank: int) -> None:
        reports = []
        for number, (where, mistake) in enumerate(cases):
            source = AT_RUN_TIME[mistake][0] if where == "in both" or rank == 1 else CORRECT
            reports.append(fail(rank, folder / str(number), source, tokenizer))
        (folder / f"{rank}.json").write_text(json.dumps(reports), encoding="utf-8")

    processes = [forked(lambda rank=rank: work(rank)) for rank in (0, 1)]  # type: ignore[misc]
    assert [os.waitpid(process, 0)[1] for process in processes] == [0, 0]
    by_rank = [json.loads((folder / f"{rank}.json").read_text(encoding="utf-8")) for rank in (0, 1)]
    return {case: [reports[number] for reports in by_rank] for number, case in enumerate(cases)}


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("mistake", AT_RUN_TIME)
def test_every_mistake_is_reported_once_in_at_most_five_lines(
    mistake: str, where: str, endings: dict[tuple[str, str], list[dict[str, Any]]]
) -> None:
    source, line = AT_RUN_TIME[mistake]
    first, second = endings[where, mistake]
    assert (second["message"], second["printed"], first["printed"]) == (None, "", "")
    assert (first["exit"], first["bug"]) == (7, False), first
    lines = first["message"].splitlines()
    assert 3 <= len(lines) <= 5
    assert lines[0].startswith(f"rewards.py:{line}: score ")
    assert lines[1].endswith(source.splitlines()[line - 1])
    said("run", f"function: {mistake}", first["message"])
    assert ("Traceback" in first["details"]) == ("raised" in lines[0])


def test_what_only_a_worker_raises_replaces_the_error_that_follows_from_it(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="closed"), workers.reported(tmp_path):  # nothing was left
        raise RuntimeError("connection closed")
    with pytest.raises(SystemExit) as left, workers.silent(tmp_path, rank=1):
        raise UserCodeError("rewards.py:2: score raised KeyError", "Traceback of rank 1")
    assert left.value.code == 0, "rank 0 reports it"
    with pytest.raises(RankFailed, match="score raised KeyError") as caught, workers.reported(tmp_path):
        raise RuntimeError("connection closed")
    assert (ending(caught.value, tmp_path).details, caught.value.exit_code) == ("Traceback of rank 1", 7)
    with pytest.raises(UserCodeError, match="own error"), workers.reported(tmp_path):
        raise UserCodeError("own error")
    workers.forget(tmp_path)  # the next attempt begins without it
    assert not list(tmp_path.iterdir())
    with pytest.raises(SystemExit), workers.silent(tmp_path, rank=1):
        raise ValueError("a bug")
    bug = workers.left(tmp_path)
    assert bug is not None
    assert "Traceback" in bug.how.message
    assert "ValueError: a bug" in bug.how.message
