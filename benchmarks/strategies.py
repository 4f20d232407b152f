"""Training under each strategy, in one process and in two, cut into micro-batches in several ways, against one process.

    python benchmarks/strategies.py [--strategies ddp deepspeed_stage_2 ...] [--algorithms dpo ...] [--processes 2] [--pieces 3]
                                    [--tokens 24] [--models plain lora tied checkpointing] [--precision bf16-mixed]

Two optimizer steps, of 8 and of 3 units (the last micro-batches of the second one are empty) or, online, of 10 responses each to
five prompts (so that processes have unequally many), in float32, on CPUs, with a tiny random model. Responses are made up, and
the reward is partly that of a frozen model. Compared with strategy `auto` and one micro-batch for each step, where d is the norm of a difference:

    loss            relative difference of the first step's loss
    gradient        d(gradient of the first step) / |gradient|
    norm            largest relative difference of a logged gradient norm
    logged          largest relative difference of a logged loss, of the second step, too, which follows from the first
    step            d(weights after both steps) / |their change|
    clipped step    the same where `clip_norm` shortens the gradient, with an Adam whose steps are proportional to it
    sent            tensors of which an engine gets another SHA-256, with adapters merged (online)

With --tokens, rows are read without padding, and a micro-batch has at most so many tokens, whatever --pieces says. With --precision
bf16-mixed, the training that is compared with has it too, and no bound counts.

    python benchmarks/strategies.py --kill [2-2 2-1 ...] [--algorithms grpo ...] [--models plain lora ...]

Instead: trainings in shards (fsdp) are killed in their second round, in which they go on from the checkpoint of the first, on the same
number of processes and on another:

    bytes           trained tensors with another SHA-256 than a training on as many processes that was not killed (same number)
    weights         d(weights after both rounds) / |weights|, against strategy `auto`, which was not killed

Prints a Markdown table with the largest of each. Exit code 1 when a difference is above its bound.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

STRATEGIES = ("ddp", "fsdp", "deepspeed_stage_1", "deepspeed_stage_2", "deepspeed_stage_3")
NOT_ONLINE = ("deepspeed_stage_3",)
OFFLINE, ONLINE = ("bradley_terry", "dpo", "sft"), ("ppo", "grpo", "rtt_grpo")
MODELS = ("plain", "lora", "tied", "checkpointing")
PIECES = (1, 2, 3, 4)
"""Micro-batches of an optimizer step, on each device; 8 units in 3 pieces are 3 + 3 + 2."""
KILLS = ("1-1", "2-2", "4-4", "2-1", "1-2", "2-4")
"""Processes that begin a training, and that continue it after a kill."""
BOUNDS = {"loss": 1e-5, "gradient": 1e-5, "norm": 1e-4, "logged": 1e-3, "step": 1e-3, "clipped step": 1e-3, "sent": 0}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategies", nargs="+", choices=STRATEGIES, default=STRATEGIES)
    parser.add_argument("--algorithms", nargs="+", choices=OFFLINE + ONLINE, default=OFFLINE + ONLINE)
    parser.add_argument("--processes", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--pieces", nargs="+", type=int, default=PIECES)
    parser.add_argument("--tokens", type=int, help="micro_batch_tokens of all trainings but the one compared with")
    parser.add_argument("--models", nargs="+", choices=MODELS, default=["plain"])
    parser.add_argument("--precision", choices=["32-true", "bf16-mixed"], default="32-true")
    parser.add_argument(
        "--kill", nargs="*", choices=KILLS, help="kill trainings on so many processes, and continue on so many"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    quiet = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1", "DS_ACCELERATOR": "cpu"}
    os.environ.update(quiet)
    with tempfile.TemporaryDirectory(prefix="strategies-") as made:
        folder = Path(made)
        if options.kill is not None:
            return killed(options, folder)
        more = [{"model": model, "precision": options.precision} for model in options.models]
        first = [
            case | each for each in more for name in options.algorithms for case in cases(name, "auto", 1, [1], None)
        ]
        launch(first, 1, folder)
        rows = {}
        for processes in options.processes:
            tried = [
                case | each for each in more for strategy in options.strategies for name in options.algorithms
                if name in OFFLINE or strategy not in NOT_ONLINE
                for case in cases(name, strategy, processes, options.pieces, options.tokens)
            ]  # fmt: skip
            launch(tried, processes, folder)
            for row, mine in groupby(tried, lambda case: tuple(case[name] for name in ROW)):
                rows[row] = compared(list(mine), folder)
    broken = (
        []
        if options.precision != "32-true"
        else [row for row, worst in rows.items() if not all(worst[what] <= bound for what, bound in BOUNDS.items())]
    )
    if options.json:
        print(json.dumps([dict(zip(ROW, row, strict=True)) | worst for row, worst in rows.items()]))
    else:
        print(table(rows, options.pieces))
    for strategy, processes, name, model in broken:
        print(f"{strategy}, {processes} processes, {name}, {model}: a difference is above its bound", file=sys.stderr)
    return 1 if broken else 0


ROW = ("strategy", "processes", "algorithm", "model")
"""What a row of the table is about."""


def cases(algorithm: str, strategy: str, processes: int, pieces: Any, tokens: int | None) -> Iterator[dict[str, Any]]:
    for count in pieces:
        for clipped in (False, True):
            yield {
                "algorithm": algorithm, "strategy": strategy, "processes": processes, "pieces": count, "tokens": tokens,
                "clipped": clipped,
            }  # fmt: skip


def killed(options: argparse.Namespace, folder: Path) -> int:
    """Kill trainings in shards, continue them, and print how far they end from others."""
    kills = [tuple(map(int, kill.split("-"))) for kill in options.kill or KILLS]
    chosen = [
        next(cases(name, "fsdp", 1, [2], options.tokens)) | {"model": model, "precision": options.precision, "rounds": 2}
        for name in options.algorithms for model in options.models
    ]  # fmt: skip
    launch([alone(case) for case in chosen], 1, folder)
    for processes in sorted({begun for begun, processes in kills if begun == processes}):
        launch([case | {"processes": processes} for case in chosen], processes, folder)
    rows = []
    for begun, processes in kills:
        for case in chosen:
            last = case | {"processes": processes, "begun": begun, "continued": processes}
            launch([last | {"processes": begun, "killed": True}], begun, folder, dies=True)
            launch([last], processes, folder)
            rows.append({name: case[name] for name in ("algorithm", "model")} | ends(case, last, folder))
    if options.json:
        print(json.dumps(rows))
    else:
        print("| " + " | ".join(rows[0]) + " |\n| :-- | :-- |" + " --: |" * (len(rows[0]) - 2))
        for row in rows:
            print("| " + " | ".join("" if value is None else str(value) for value in row.values()) + " |")
    return int(any(row["bytes"] or row["weights"] > 1e-6 for row in rows))


def ends(case: dict[str, Any], last: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Compare what a training that was killed ends with."""
    import torch

    def after(which: dict[str, Any]) -> dict[str, Any]:
        return torch.load(folder / f"{name_of(which)}.pt")["after"]

    one, mine, same = after(alone(case)), after(last), None
    if last["begun"] == last["processes"]:
        whole = after(case | {"processes": last["begun"]})
        same = sum(not torch.equal(mine[name], whole[name]) for name in whole)
    size = far(one, {name: torch.zeros_like(value) for name, value in one.items()})
    return {
        "begun on": last["begun"], "continued on": last["processes"], "bytes": same, "weights": float(f"{far(one, mine) / size:.0e}"),
    }  # fmt: skip


def alone(case: dict[str, Any]) -> dict[str, Any]:
    """Return the training that a case is compared with."""
    return case | {"strategy": "auto", "processes": 1, "pieces": 1, "tokens": None}


def name_of(case: dict[str, Any]) -> str:
    return "-".join(str(value) for name, value in case.items() if name != "killed")


def launch(tried: list[dict[str, Any]], processes: int, folder: Path, *, dies: bool = False) -> None:
    """Train the cases one after the other in `processes` new processes, which write into `folder`. dies: they kill themselves."""
    import fgrl.training.strategies
    import fgrl.training.training_module  # noqa: F401

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "NODE_RANK": "0", "WORLD_SIZE": str(processes)}
    forks = multiprocessing.get_context("fork")  # what is imported here is not imported again in each
    ranks = [
        forks.Process(target=work, args=(tried, folder, place | {"RANK": str(rank), "LOCAL_RANK": str(rank)}))
        for rank in range(processes)
    ]
    for rank in ranks:
        rank.start()
    for number, rank in enumerate(ranks):
        rank.join()
        if rank.exitcode != (-signal.SIGKILL if dies else 0):
            for other in ranks:
                other.kill()
            raise SystemExit(f"{(folder / f'output-{number}.txt').read_text()[-6000:]}\na training failed")


# -- in the processes that train ---------------------------------------------------------------------------------------


def work(tried: list[dict[str, Any]], folder: Path, place: dict[str, str]) -> None:
    import warnings

    os.environ.update(place)
    output = os.open(folder / f"output-{place['RANK']}.txt", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(output, stream)
    warnings.simplefilter("ignore")
    if int(os.environ["WORLD_SIZE"]) > 1:
        import torch

        from fgrl.training import launching

        launching.join(torch.device("cpu"), init_method="env://")
    for case in tried:
        train(case, folder)


def train(case: dict[str, Any], folder: Path) -> None:
    """Two optimizer steps; rank 0 writes what is compared."""
    import torch

    from fgrl.base import ranks
    from fgrl.experiments.pipeline.log import read_log
    from fgrl.experiments.pipeline.run import Run
    from fgrl.training import weights
    from fgrl.training.training_module import TrainingModule

    class Watched(TrainingModule):
        gradient: dict[str, torch.Tensor] | None = None
        first_loss = 0.0

        def on_before_optimizer_step(self, optimizer: Any) -> None:
            super().on_before_optimizer_step(optimizer)
            if self.gradient is None and self.accumulated():
                trained = {name: value for name, value in self.model.named_parameters() if value.requires_grad}
                self.gradient = {name: whole_gradient(value) for name, value in trained.items()}
                (self.first_loss,) = self._over_processes([self._loss], "sum")

        def training_step(self, batch: Any, index: int) -> Any:
            if case.get("killed") and self.round == 1:
                self.trainer.strategy.finish()
                ranks.meet()
                os.kill(os.getpid(), signal.SIGKILL)
            return super().training_step(batch, index)

    torch.set_num_threads(1)
    rank = int(os.environ["LOCAL_RANK"])
    # a training that is killed and the one that continues it share a folder
    place = folder / name_of(case | ({"processes": "any"} if "begun" in case else {}))
    (place / "out").mkdir(parents=True, exist_ok=True)
    # Lightning removes the number of processes from the environment after each training
    run = Run("training", place, cache=folder / "cache", rank=rank, accelerator="cpu")
    rounds = rounds_of(case, model_folder(folder, tied=case["model"] == "tied"), run)
    module = Watched(rounds)
    before = {name: value.detach().clone() for name, value in module.model.named_parameters() if value.requires_grad}
    module.fit(checkpoint_every=1)
    if rank == 0:
        after = weights.full_state(module) or dict(module.model.named_parameters())
        log = read_log(place / "log.jsonl")
        told = {
            "loss": [module.first_loss],
            "logged": [row["loss"] for row in log],
            "norm": [row[name] for row in log for name in ("grad_norm", "critic_grad_norm") if name in row],
            "gradient": module.gradient,
            "before": before,
            "sent": getattr(getattr(rounds, "drawer", None), "sent", {}),
            "after": {name: after[name].detach().clone() for name in before},
        }
        torch.save(told, folder / f"{name_of(case)}.pt")


def whole_gradient(parameter: Any) -> Any:
    """The gradient of a parameter over all micro-batches and processes, before it is clipped."""
    if hasattr(parameter, "ds_id"):  # ZeRO-3
        from deepspeed.utils import safe_get_full_grad

        whole = safe_get_full_grad(parameter)
    elif hasattr(parameter, "_hp_mapping"):  # ZeRO-1 and ZeRO-2
        whole = parameter.get_full_hp_grad()
    else:
        whole = getattr(parameter.grad, "full_tensor", lambda: parameter.grad)()
    return whole.detach().clone()


def rounds_of(case: dict[str, Any], model: Path, run: Any) -> Any:
    import torch

    from fgrl import models
    from fgrl.components.algorithms.bradley_terry import BradleyTerry
    from fgrl.components.algorithms.dpo import DPO
    from fgrl.components.algorithms.grpo import GRPO
    from fgrl.components.algorithms.ppo import PPO
    from fgrl.components.algorithms.rtt_grpo import RTTGRPO
    from fgrl.components.algorithms.sft import SFT
    from fgrl.components.segmenters.ngram import NGram
    from fgrl.kinds.specs import ModelSpec, Sampling
    from fgrl.training.alarms import Alarms
    from fgrl.training.offline import OfflineRounds
    from fgrl.training.online import OnlineRounds
    from fgrl.training.trainer import OfflineSettings, OnlineSettings
    from fgrl.types import Sample

    online = case["algorithm"] in ONLINE
    skeleton = online and case["strategy"] == "fsdp" and run.rank > 0  # as in the stage rl

    def load(head: str, seed: int = 0) -> Any:
        torch.manual_seed(seed)
        lora = {"r": 4, "alpha": 8, "dropout": 0.0} if case["model"] == "lora" else None
        spec = {"base": str(model), "lora": lora, "gradient_checkpointing": case["model"] == "checkpointing"}
        net = models.load(ModelSpec.model_validate(spec), head=head, trainable=True, skeleton=skeleton)
        for name, parameter in net.named_parameters():
            if "lora_B" in name:  # else an adapter changes nothing
                parameter.data.normal_(0, 0.1)
        return net

    settings: dict[str, Any] = {
        "lr": 1e-2, "batch_size": 10 if online else 8, "warmup": 0.0, "precision": case["precision"],
        "micro_batch_size": -(-(10 if online else 8) // (case["pieces"] * case["processes"])),
        "strategy": case["strategy"], "devices": case["processes"], "accelerator": "cpu", "clip_norm": None,
        "micro_batch_tokens": case["tokens"], "checkpoint_minutes": 0,
    }  # fmt: skip
    if case["clipped"]:
        settings |= {"clip_norm": 0.05, "eps": 1.0}
    if case["algorithm"] in OFFLINE:
        kind = {"bradley_terry": BradleyTerry, "dpo": DPO, "sft": SFT}[case["algorithm"]]
        algorithm = kind(segmenter=NGram(n=3)) if case["algorithm"] == "bradley_terry" else kind()
        net = load(algorithm.head)
        units = [[row(2 * i + k, i) for k in range(1 if case["algorithm"] == "sft" else 2)] for i in range(11)]
        algorithm.prepare([one for unit in units for one in unit], run, net)
        steps = 1 if case.get("rounds") else 50
        return OfflineRounds(net, algorithm, units, OfflineSettings(checkpoint_every=steps, **settings), run)
    kind = {"ppo": PPO, "grpo": GRPO, "rtt_grpo": RTTGRPO}[case["algorithm"]]
    # with an entropy bonus, because standardised advantages cancel: without it the first loss would be 0
    algorithm = kind(epochs=2, kl_coef=0.05, entropy_coef=0.1)
    torch.manual_seed(2)
    frozen = models.load(ModelSpec(base=str(model)), head="scalar")
    critic = load("scalar", 1) if case["algorithm"] == "ppo" else None
    actor = load("lm")
    return OnlineRounds(
        models.ActorCritic(actor, critic), algorithm, reward(frozen),
        [Sample(id=str(i), prompt=f"Question {i}") for i in range(5)], OnlineSettings(iterations=case.get("rounds", 1), **settings), run,
        drawer=drawer(), sampling=Sampling(max_new_tokens=8), rollout_batch_size=10, per_prompt=2,
        reference=None if case["model"] == "lora" else models.load(ModelSpec(base=str(model)), skeleton=skeleton), alarms=Alarms(**dict.fromkeys(Alarms.model_fields)),
    )  # fmt: skip


def row(seed: int, prompt_seed: int) -> dict[str, Any]:
    import random

    draw, prompt = random.Random(seed), random.Random(-prompt_seed)
    response = [draw.randrange(10, 250) for _ in range(draw.randrange(3, 9))]
    return {
        "prompt": [prompt.randrange(10, 250) for _ in range(4)], "response": response, "finished": False, "columns": {}
    }  # fmt: skip


def drawer() -> Any:
    import random

    from fgrl.kinds import Drawer
    from fgrl.rollouts.serving import weights
    from fgrl.types import DrawnResponse

    class MadeUp(Drawer):
        """Responses that depend on the random stream alone; `sent` is the SHA-256 of each weight that it was given."""

        def take(self, model: Any, version: int) -> None:
            super().take(model, version)
            self.sent = {name: weights.digest(tensor) for name, tensor in weights.sent(model, "float32")}

        def draw(self, requests: Any) -> list[Any]:
            drawn = []
            for request in requests:
                stream = random.Random(f"{request.seed} {request.row}")
                ids = [stream.randrange(10, 250) for _ in range(stream.randrange(3, 9))]
                drawn.append(DrawnResponse(token_ids=ids, finish="length", version=self.version))
            return drawn

    return MadeUp()


def reward(frozen: Any) -> Any:
    import torch

    from fgrl import rollouts
    from fgrl.kinds import Reward
    from fgrl.types import Rewards, Rollout

    class ByIds(Reward):
        """On the last token, a number that depends on the ids of the response and on what a frozen model gives its tokens."""

        def divisible_models(self) -> list[Any]:
            return [frozen]

        def score(self, rollout: Rollout) -> Rewards:
            with torch.no_grad():
                read = rollouts.in_micro_batches(rollout, lambda part: {"all": frozen.rewards(part)}, 2, [frozen])[
                    "all"
                ]
            worth = torch.where(rollout.mask, rollout.response_ids, 0).sum(1).remainder(7) / 3 - 1 + read.sum(1) / 9
            last = torch.arange(rollout.mask.shape[1]) == rollout.mask.sum(1, keepdim=True) - 1
            relevance = torch.stack([(rollout.response_ids * step).sin() for step in (1.0, 2.0)], dim=1)
            return Rewards(
                response=worth, token=torch.where(last, worth[:, None], 0.0), credit_mask=last,
                criterion=relevance.masked_fill(~rollout.mask[:, None], torch.nan),
            )  # fmt: skip

    return ByIds()


def model_folder(folder: Path, tied: bool = False) -> Path:
    """A random Llama of two layers with a tokenizer of bytes. tied: embeddings and output layer are one matrix."""
    import torch
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    path = folder / ("tied" if tied else "model")
    if path.exists():
        return path
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({token: i for i, token in enumerate(["<pad>", "<end>", *alphabet])}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<end>", pad_token="<pad>")
    fast.chat_template = (
        "{% for m in messages %}{{ m['content'] }}{{ '<end>' if m['role'] == 'assistant' else '' }}{% endfor %}"
    )
    config = LlamaConfig(
        vocab_size=len(alphabet) + 2, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=128, bos_token_id=1, eos_token_id=1, pad_token_id=0,
        initializer_range=0.2, tie_word_embeddings=tied,
    )  # fmt: skip
    torch.manual_seed(0)
    LlamaForCausalLM(config).save_pretrained(path)
    fast.save_pretrained(path)
    return path


# -- the comparison ----------------------------------------------------------------------------------------------------


def compared(mine: list[dict[str, Any]], folder: Path) -> dict[str, float]:
    """The largest differences of these cases of one algorithm."""
    import torch

    worst = dict.fromkeys(BOUNDS, 0.0)
    for case in mine:
        one, many = (torch.load(folder / f"{name_of(which)}.pt") for which in (alone(case), case))
        step = far(one["after"], many["after"]) / far(one["after"], one["before"])
        if case["clipped"]:
            worst["clipped step"] = max(worst["clipped step"], step)
            continue
        assert one["sent"].keys() == many["sent"].keys()
        worst["sent"] = max(worst["sent"], sum(many["sent"][name] != digest for name, digest in one["sent"].items()))
        zero = {name: torch.zeros_like(value) for name, value in one["gradient"].items()}
        news = {
            **{name: relative(one[name], many[name]) for name in ("loss", "norm", "logged")},
            "gradient": far(one["gradient"], many["gradient"]) / far(one["gradient"], zero),
            "step": step,
        }
        worst |= {name: max(worst[name], value) for name, value in news.items()}
    return worst


def far(one: dict[str, Any], other: dict[str, Any]) -> float:
    assert one.keys() == other.keys(), one.keys() ^ other.keys()
    return sum(float((one[name].double() - other[name].double()).square().sum()) for name in one) ** 0.5


def relative(one: list[float], other: list[float]) -> float:
    return max(abs(a - b) / abs(a) for a, b in zip(one, other, strict=True))


def table(rows: dict[tuple[Any, ...], dict[str, float]], pieces: Any) -> str:
    counts = ", ".join(map(str, pieces))
    lines = [
        f"Micro-batches of an optimizer step on each device: {counts}.\n",
        "| strategy | processes | algorithm | model | " + " | ".join(BOUNDS) + " |",
        "| :-- | --: | :-- | :-- |" + " --: |" * len(BOUNDS),
    ]
    for (strategy, processes, name, model), worst in sorted(rows.items(), key=lambda row: STRATEGIES.index(row[0][0])):
        shown = " | ".join(f"{worst[what]:.0e}" for what in BOUNDS)
        lines.append(f"| `{strategy}` | {processes} | `{name}` | {model} | {shown} |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
