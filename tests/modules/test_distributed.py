"""Two processes train as one does. Each test starts `fgrl run`, whose ranks torchrun's agent starts (gloo, CPU).

A training in one process that another is compared with runs in the process of the tests, which has imported everything already.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tiny_recipe
import torch
import warm
from patience import HUNG
from pipeline_helpers import HERE, fgrl, start
from safetensors.torch import load_file
from tiny_recipe import log
from typer.testing import CliRunner

from fgrl.cli import app
from fgrl.registry.outside import forget_file
from fgrl.training import callbacks, online
from fgrl.training.training_module import TrainingModule

pytestmark = pytest.mark.usefixtures("warm")

SPY = HERE / "distributed_spy.py"
SPIED = (
    (TrainingModule, "fit"), (TrainingModule, "training_step"), (TrainingModule, "on_before_optimizer_step"),
    (online.OnlineRounds, "start"), (callbacks, "save"),
)  # fmt: skip
"""What the spy replaces."""

TWO = ("vars.devices=2", "vars.strategy=ddp")
POLICY = (
    "stages.reward_model=null", "stages.calibrate=null", "stages.evaluate=null",
    "stages.policy.reward.model=${vars.base}", "stages.policy.reward.segmenter={name: ngram, n: 3}",
    "stages.policy.reward.normalizer=null", "stages.policy.train.iterations=3",
    "stages.policy.rollout.batch_size=15", "stages.policy.train.batch_size=5", "stages.policy.train.micro_batch_size=2",
    "stages.policy.train.eps=1e-4",  # Adam's usual one makes whole steps of rounding, and a token drawn otherwise of those
)  # fmt: skip
ONE_STEP = (
    *POLICY, "stages.policy.algorithm={name: grpo, kl_coef: 0.05}", "stages.policy.rollout.per_prompt=3",
    "stages.policy.train.batch_size=15", "stages.policy.train.eps=1.0",
)  # fmt: skip
REWARD_MODEL = ("stages.calibrate=null", "stages.policy=null", "stages.evaluate=null", "vars.dropout=0.0")


@dataclass
class Ran:
    """How a `fgrl run` of one stage ended."""

    folder: Path
    code: int
    said: str

    @property
    def stage(self) -> Path:
        return next(path for path in (self.folder / "runs" / "stages").iterdir() if not path.name.startswith("."))

    def seen(self, name: str | Path) -> Any:
        text = (self.folder / name).read_text()
        return [json.loads(line) for line in text.splitlines()]


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory, tiny_model_dir: Path) -> Path:
    path = tiny_recipe.write(tmp_path_factory.mktemp("recipe"), tiny_model_dir)
    path.write_text(path.read_text() + f"imports: ['{SPY}']\n")
    return path


def run_here(recipe: Path, folder: Path, *overrides: str) -> Ran:
    """A training in this process."""
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPY", str(folder))
        patch.chdir(folder)
        patch.setattr("fgrl.experiments.recipe.loading._by_recipes", set())
        for owner, name in SPIED:  # put back afterwards
            patch.setattr(owner, name, getattr(owner, name))
        done = CliRunner().invoke(app, ["run", str(recipe), "--runs", str(folder / "runs"), *overrides])
        forget_file(SPY.resolve())
    return Ran(folder, done.exit_code, done.output)


def begin(recipe: Path, folder: Path, *overrides: str, broken: str | None = None) -> subprocess.Popen[str]:
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPY", str(folder))
        if broken is not None:
            patch.setenv("SPY_BREAK", broken)
        return start("run", recipe, "--runs", folder / "runs", *overrides, cwd=folder)


def finish(process: subprocess.Popen[str], folder: Path) -> Ran:
    try:
        _out, said = process.communicate(timeout=HUNG)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        for path in folder.glob("pid-*"):  # the ranks are in a session of their own
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(path.read_text()), signal.SIGKILL)
        raise
    return Ran(folder, process.returncode, said)


def run(recipe: Path, folder: Path, *overrides: str, broken: str | None = None) -> Ran:
    return finish(begin(recipe, folder, *overrides, broken=broken), folder)


def gone(folder: Path) -> bool:
    """Do all processes that trained end within a while?"""
    pids = [int(path.read_text()) for path in folder.glob("pid-*")]
    assert len(pids) == 2
    until = time.monotonic() + HUNG
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        if time.monotonic() > until:
            return False
        time.sleep(0.1)
    return True


def assert_close(one: Path, two: Path, tolerance: float) -> None:
    for path in sorted(one.glob("*.safetensors")):
        a, b = load_file(path), load_file(two / path.name)
        assert a.keys() == b.keys()
        for name, value in a.items():
            torch.testing.assert_close(
                b[name], value, rtol=tolerance, atol=tolerance, msg=lambda text, n=name: f"{n}: {text}"
            )


@pytest.fixture(scope="module")
def policies(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Ran, Ran]:
    """Trained in one process and in two, which sample 8 and 7 responses and cut steps of 5 rows into 2 + 1 and 1 + 1."""
    base = tmp_path_factory.mktemp("policies")
    with warm.as_usual():  # the ranks order their sets differently
        ran = run_here(recipe, base / "one", *POLICY), run(recipe, base / "two", *POLICY, *TWO)
    assert [one.code for one in ran] == [0, 0], [one.said for one in ran]
    return ran


@pytest.fixture(scope="module")
def reward_models(recipe: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Ran, Ran]:
    base = tmp_path_factory.mktemp("reward_models")
    with warm.as_usual():  # the ranks order their sets differently
        ran = run_here(recipe, base / "one", *REWARD_MODEL), run(recipe, base / "two", *REWARD_MODEL, *TWO)
    assert [one.code for one in ran] == [0, 0], [one.said for one in ran]
    return ran


def test_ranks_agree(policies: tuple[Ran, Ran], reward_models: tuple[Ran, Ran]) -> None:
    for stage, ran in (("policy", policies[1]), ("reward_model", reward_models[1])):
        assert ran.seen(f"weights-{stage}-0.json") == ran.seen(f"weights-{stage}-1.json")


def test_rollouts_do_not_depend_on_who_draws(policies: tuple[Ran, Ran]) -> None:
    one, two = (ran.seen("rollouts-policy-0.jsonl") for ran in policies)
    assert one[0] == two[0]
    assert len(one[0]["ids"]) == 15
    assert two == policies[1].seen("rollouts-policy-1.jsonl"), "both ranks see all responses"


def test_stored_rollouts_are_those_of_one_process(policies: tuple[Ran, Ran]) -> None:
    """Of the first iteration: later ones have drifted apart by rounding."""
    one, two = (
        [row for row in ran.seen(ran.stage / "out" / "rollouts.jsonl") if row["iteration"] == 0] for ran in policies
    )
    assert len(one) == 4
    for row, other in zip(one, two, strict=True):
        for name in ("sample", "tokens", "offsets", "segments"):
            assert row[name] == other[name]
        assert row["advantages"] == pytest.approx(other["advantages"], rel=1e-3, abs=1e-4)


def first_step(ran: Ran, stage: str, ranks: int) -> tuple[int, float, float]:
    """Rows, loss and norm of the whole gradient of the first optimizer step, put together from all ranks."""
    pieces = [
        piece for rank in range(ranks) for piece in ran.seen(f"losses-{stage}-{rank}.jsonl") if piece["step"] == 0
    ]
    norms = [ran.seen(f"gradients-{stage}-{rank}.jsonl")[0]["norm"] for rank in range(ranks)]
    assert len(set(norms)) == 1, "ranks step along different gradients"
    return sum(piece["rows"] for piece in pieces), sum(piece["loss"] for piece in pieces), norms[0]


@pytest.mark.parametrize("stage", ["policy", "reward_model"])
def test_the_first_step_is_that_of_one_process(
    policies: tuple[Ran, Ran], reward_models: tuple[Ran, Ran], stage: str
) -> None:
    """Loss and gradient of the very first optimizer step, before anything could drift: float32 rounding is all there is.

    One process cuts it into other micro-batches than two do, padded to other widths. For PPO that holds because the
    responses are drawn from streams of their own, and every rank computes advantages over the whole rollout: whitening
    and the adaptive KL see what one process sees. What is left is the rounding of matrix products of other shapes, here
    and in the old log-probabilities, values and rewards, of which each rank computes its own responses'.
    """
    one, two = (policies, reward_models)[stage == "reward_model"]
    (rows, loss, norm), (rows_of_two, loss_of_two, norm_of_two) = (
        first_step(one, stage, 1), first_step(two, stage, 2),
    )  # fmt: skip
    assert rows == rows_of_two == (5 if stage == "policy" else 14)
    assert loss_of_two == pytest.approx(loss, rel=1e-6)
    assert norm_of_two == pytest.approx(norm, rel=1e-6)


def test_losses_and_metrics_are_those_of_one_process(policies: tuple[Ran, Ran], reward_models: tuple[Ran, Ran]) -> None:
    for ran, names in (
        (
            policies,
            ("loss", "reward", "reward/raw", "reward/segments", "entropy", "kl", "tokens", "grad_norm", "returns"),
        ),
        (reward_models, ("loss", "accuracy", "margin", "segments", "grad_norm", "lr")),
    ):
        one, two = (log(each.stage)[0] for each in ran)
        assert one.keys() == two.keys()
        for name in names:
            # the loss of an iteration holds its later steps, too
            tolerance = 1e-4 if name in ("loss", "grad_norm") and ran is policies else 1e-6
            assert two[name] == pytest.approx(one[name], rel=tolerance, abs=1e-7), name
    assert len(log(reward_models[0].stage)) == len(log(reward_models[1].stage)) == 6


def test_metrics_of_tokens_are_averaged_over_tokens(policies: tuple[Ran, Ran]) -> None:
    """Two ranks hold micro-batches of other sizes than one: averages over rows of averages over tokens would differ by half.

    Later steps of the iteration have drifted apart by rounding, and a few tokens may be clipped in one and not the other.
    """
    one, two = (log(each.stage)[0] for each in policies)
    assert two["reward/segment_tokens"] == pytest.approx(one["reward/segment_tokens"], rel=1e-6)
    for name in ("policy_loss", "value_loss", "approx_kl", "max_log_ratio"):
        assert two[name] == pytest.approx(one[name], rel=1e-3, abs=1e-5), name
    for name in ("clip_fraction", "value_clip_fraction"):
        assert two[name] == pytest.approx(one[name], abs=2 / 94), name


def test_a_step_with_fewer_units_than_ranks(recipe: Path, tmp_path: Path) -> None:
    """19 pairs in steps of 6: the last step of an epoch has one pair, and a rank nothing to say about it."""
    options = (*REWARD_MODEL, "stages.reward_model.train.batch_size=6", "stages.reward_model.train.epochs=1")
    ran = run_here(recipe, tmp_path / "one", *options), run(recipe, tmp_path / "two", *options, *TWO)
    assert [each.code for each in ran] == [0, 0], ran[1].said
    one, two = (log(each.stage) for each in ran)
    assert [sum(piece["rows"] for piece in ran[0].seen("losses-reward_model-0.jsonl") if piece["step"] == 3)] == [2]
    for mine, theirs in zip(one, two, strict=True):
        assert mine.keys() == theirs.keys()
        for name in ("loss", "accuracy", "margin", "segments", "segment_tokens", "lr"):
            assert theirs[name] == pytest.approx(mine[name], rel=1e-3, abs=1e-6), name


def test_weights_are_close_to_those_of_one_process(policies: tuple[Ran, Ran], reward_models: tuple[Ran, Ran]) -> None:
    """Adam turns rounding of tiny gradients into steps: a weight moves by 1e-2 a step, and may differ by 1e-4."""
    for one, two in (policies, reward_models):
        assert_close(one.stage / "out", two.stage / "out", 1e-3)


def test_the_command_trains_with_deepspeed_as_with_one_process(
    reward_models: tuple[Ran, Ran], tmp_path: Path, tiny_model_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("deepspeed", reason="needs deepspeed: pip install 'fgrl[deepspeed]'")
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path / "extensions"))
    recipe = tiny_recipe.write(tmp_path, tiny_model_dir)
    zero = ("vars.devices=2", "vars.strategy=deepspeed_stage_2")
    done = fgrl("run", recipe, "--runs", tmp_path / "runs", "--json", *REWARD_MODEL, *zero, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout), "nothing else is on stdout"
    assert not (tmp_path / "extensions").exists(), "nothing is compiled"
    (stage,) = (path for path in (tmp_path / "runs" / "stages").iterdir() if not path.name.startswith("."))
    assert_close(reward_models[0].stage / "out", stage / "out", 1e-4)
    norms = [[row["grad_norm"] for row in log(folder)] for folder in (reward_models[0].stage, stage)]
    assert norms[1] == pytest.approx(norms[0], rel=1e-3)


def test_a_policy_that_is_not_scored_before_its_step(recipe: Path, tmp_path: Path) -> None:
    """Its entropy and KL come out of the step's micro-batches, of which two ranks have others than one."""
    one, two = run_here(recipe, tmp_path / "one", *ONE_STEP), run(recipe, tmp_path / "two", *ONE_STEP, *TWO)
    assert [one.code, two.code] == [0, 0], two.said
    assert two.seen("weights-policy-0.json") == two.seen("weights-policy-1.json")
    assert_close(one.stage / "out", two.stage / "out", 1e-6)
    for mine, theirs in zip(log(one.stage), log(two.stage), strict=True):
        assert mine.keys() == theirs.keys()
        for name in ("loss", "reward", "entropy", "kl", "tokens", "grad_norm", "kl_loss"):
            assert theirs[name] == pytest.approx(mine[name], rel=1e-4, abs=1e-6), name
        assert mine["max_log_ratio"] == theirs["max_log_ratio"] == 0


def test_only_rank_0_writes(reward_models: tuple[Ran, Ran]) -> None:
    """The same files as one process leaves, and the held-out data measured before and after."""
    one, two = (sorted(str(path.relative_to(ran.stage)) for path in ran.stage.rglob("*")) for ran in reward_models)
    assert one == two
    told = [json.loads((ran.stage / "stage.json").read_text())["summary"]["holdout"] for ran in reward_models]
    assert told[0]["before"] == told[1]["before"]
    assert told[0]["after"] == pytest.approx(told[1]["after"], rel=1e-3)


def test_nothing_but_our_own_lines_is_said(policies: tuple[Ran, Ran]) -> None:
    lines = [line for line in policies[1].said.splitlines() if line and "Writing model shards" not in line]
    new_heads = [line for line in lines if "has no scalar head: a new one starts from random weights" in line]
    assert len(new_heads) == 2, "those of the reward model and the critic, said by one rank"
    ours = [line for line in lines if line not in new_heads]
    assert all(line.startswith(("[1/1] policy", "alarm: ", "loading ", "writing the report ")) for line in ours), (
        policies[1].said
    )
    assert sum("policy: new" in line for line in lines) == 1


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_crashes_takes_the_other_with_it(recipe: Path, tmp_path: Path, rank: int) -> None:
    ran = run(recipe, tmp_path / "run", *POLICY, *TWO, broken=f"crash:{rank}:5")
    assert ran.code == 7, ran.said  # the step is replaced by a function of the tests, which is code of a user
    assert "rank fell over" in ran.said
    assert gone(tmp_path / "run")
    assert not (ran.stage / "stage.json").exists()


def test_a_loss_that_one_rank_lost_stops_both(recipe: Path, tmp_path: Path) -> None:
    ran = run(recipe, tmp_path / "run", *POLICY, *TWO, broken="nan:1:5")
    assert ran.code == 5, ran.said
    assert ran.said.count("stopped: the loss is not finite") == 1
    assert gone(tmp_path / "run")


def test_an_alarm_stops_both(recipe: Path, tmp_path: Path) -> None:
    alarm = "stages.policy.alarms.tokens={above: 0.0, patience: 2, action: stop}"
    ran = run(recipe, tmp_path / "run", *POLICY, *TWO, alarm)
    assert ran.code == 5, ran.said
    assert ran.said.count("stopped by alarms.tokens") == 1
    assert gone(tmp_path / "run")


def test_a_full_disk_is_told_once_and_nobody_waits(recipe: Path, tmp_path: Path) -> None:
    ran = run(recipe, tmp_path / "run", *POLICY, *TWO, broken="full:0:0")
    assert ran.code == 6, ran.said
    assert ran.said.count("the disk is full") == 1
    assert gone(tmp_path / "run")


STEEP = '''
from fgrl.components.algorithms.bradley_terry import BradleyTerry
from fgrl.registry import register

@register("steep")
class Steep(BradleyTerry):
    """A loss that is finite, with a gradient that is not."""

    def loss(self, model, batch):
        value, metrics = super().loss(model, batch)
        return value + (value * 0).sqrt(), metrics
'''


@pytest.mark.parametrize(
    "strategy",
    ["ddp", *(pytest.param(name, marks=pytest.mark.evidence) for name in ("fsdp", "deepspeed_stage_2", "deepspeed_stage_3"))],
)  # fmt: skip
def test_a_gradient_that_is_not_finite_stops_all_ranks(strategy: str, tmp_path: Path, tiny_model_dir: Path) -> None:
    recipe = tiny_recipe.write(tmp_path, tiny_model_dir)
    (tmp_path / "steep.py").write_text(STEEP)
    recipe.write_text(recipe.read_text().replace("seed: 3\n", "seed: 3\nimports: [steep.py]\n"))
    options = (
        *REWARD_MODEL, "stages.reward_model.algorithm={name: steep, segmenter: bandit}", "stages.reward_model.holdout=0.0",
        "vars.devices=2", f"vars.strategy={strategy}",
    )  # fmt: skip
    ran = fgrl("run", recipe, "--runs", tmp_path / "runs", *options, cwd=tmp_path)
    assert ran.returncode == 5, ran.stderr
    assert ran.stderr.count("stopped: the gradient of the model is not finite at step 0") == 1, ran.stderr
    assert not list(tmp_path.glob("runs/stages/*/stage.json"))
    assert not list(tmp_path.glob("runs/stages/*/last.ckpt"))
