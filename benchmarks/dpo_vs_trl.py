"""DPO here and trl's `DPOTrainer`, step by step in turn: pairs per second with the reference's pass, peak memory, losses.

    python benchmarks/dpo_vs_trl.py [--steps 5] [--pairs 8] [--micro 8] [--prompt 224] [--response 64] [--checkpointing] [--json]

Each trains the packaged SmolLM2 with LoRA (rank 16 on all linear layers, a frozen bfloat16 base, bfloat16 autocast over float32
adapters; `--dtype float32` compares the losses without rounding) with the objective `dpo` on 8 pairs per step. The two answers of a pair differ as two steps of an improvement chain
do: an edit at a place in the second half of the answer, and the same text after it. Both libraries get the same
token ids in the same order, the same initial adapter, optimizer, learning rate, micro-batches, attention and gradient checkpointing.
No dropout, no logging, no saving. The reference is the model without its adapter; its pass over the pairs of a step is part of the step.

1. each library runs in a process of its own, so that each has a peak of its own; they are loaded one after the other
2. one step of each before it counts; then they take turns, who goes first changing from step to step. The other waits

Seconds of processors are counted, too: where other programs share the machine, they tell more than the time that passed. Peak memory is
resident memory (Linux) of the whole process, highest during the steps; "beyond" is above what was resident right before the
first step. fgrl reads each pair in a pass of its own (`reference_pass: once`), whatever the micro-batch; `--micro 1` makes trl do so, too.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shared.two_libraries import Process, Side, digest, memory_table, take_turns

BASE = "smollm2-135m-instruct"
LEARNING = {"lr": 5e-7, "beta": 0.1, "clip_norm": 1.0, "betas": (0.9, 0.95), "eps": 1e-8}
RANK, ALPHA = 16, 32
COPIED = ("steps", "pairs", "micro", "prompt", "response", "attention", "lr", "dtype")
SUBJECTS = ["The report", "A visitor", "The author", "One reader", "The city", "Her letter", "The study", "This map"]
VERBS = ["describes", "questions", "explains", "mentions", "compares", "records", "supports", "leaves out"]
OBJECTS = [
    "the old harbour",
    "a quiet street",
    "two experiments",
    "the price of bread",
    "a long winter",
    "the second proof",
]
ENDS = ["in detail", "without a source", "for the first time", "in a single sentence", "with some doubt", "at the end"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default=BASE, help="the model, of both")
    parser.add_argument("--steps", type=int, default=5, help="steps of each that count, after one that does not")
    parser.add_argument("--pairs", type=int, default=8, help="pairs of a step")
    parser.add_argument("--micro", type=int, default=8, help="pairs of a micro-batch")
    parser.add_argument("--prompt", type=int, default=224, help="tokens of a prompt, at most")
    parser.add_argument("--response", type=int, default=64, help="tokens of an answer")
    parser.add_argument("--lr", type=float, default=LEARNING["lr"], help="learning rate, of both")
    parser.add_argument(
        "--dtype", choices=["bfloat16", "float32"], default="bfloat16", help="of the base and of products, of both"
    )
    parser.add_argument("--checkpointing", action="store_true", help="gradient checkpointing, for both")
    parser.add_argument("--attention", choices=["sdpa", "eager"], default="sdpa", help="attention, of both")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--side", choices=["fgrl", "trl"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.pairs % options.micro:
        parser.error("--pairs has to be a multiple of --micro")
    if options.side:
        with tempfile.TemporaryDirectory() as folder:
            {"fgrl": train_fgrl, "trl": train_trl}[options.side](options, Steps(), Path(folder))
        return
    arguments = [f"--{name}={getattr(options, name)}" for name in COPIED] + ["--checkpointing"] * options.checkpointing
    with Process("fgrl", arguments) as fgrl, Process("trl", arguments) as trl:
        steps = take_turns(fgrl, trl, options.steps, ("ids",), described)
        memory = {"fgrl": fgrl.memory(), "trl": trl.memory()}
    settings = {name: value for name, value in vars(options).items() if name not in ("json", "side")}
    results = {"settings": settings, "memory": memory, "steps": steps}
    print(json.dumps(results, indent=2) if options.json else tables(results))


def described(side: str, step: dict[str, Any]) -> str:
    return f"{side} {step['seconds']:.1f} s, loss {step['loss']:.5f}"


# -- one library -------------------------------------------------------------------------------------------------------


class Steps(Side):
    """Notes what a step took and the pairs that it read."""

    def begin(self) -> None:
        self.losses: list[float] = []
        self.rows: list[Sequence[int]] = []
        self.parts: dict[str, float] = {}
        self._start, self._cpu = time.perf_counter(), time.process_time()

    def end(self) -> dict[str, Any]:
        took = {"seconds": time.perf_counter() - self._start, "cpu": time.process_time() - self._cpu}
        loss = sum(self.losses) / len(self.losses)
        return {**took, "loss": loss, "ids": digest(self.rows), "parts": self.parts}


# -- what both get -----------------------------------------------------------------------------------------------------


def pairs_of(options: argparse.Namespace, tokenizer: Any) -> list[dict[str, list[int]]]:
    """Token ids of the pairs of all steps, in their order."""
    draw = random.Random(0)

    def text(tokens: int) -> list[int]:
        words = " ".join(
            f"{draw.choice(SUBJECTS)} {draw.choice(VERBS)} {draw.choice(OBJECTS)} {draw.choice(ENDS)}."
            for _ in range(tokens // 4)
        )
        return tokenizer(words, add_special_tokens=False)["input_ids"][:tokens]

    pairs = []
    for _ in range((options.steps + 1) * options.pairs):
        prompt, first = text(options.prompt - draw.randrange(24)), text(options.response - draw.randrange(12) - 1)
        place = draw.randrange(len(first) // 2, 9 * len(first) // 10)
        edited = [*first[:place], *text(8 + draw.randrange(8)), *first[place + 12 :]]
        end = [tokenizer.eos_token_id]
        pairs.append({"prompt_ids": prompt, "chosen_ids": edited + end, "rejected_ids": first + end})
    return pairs


def same_adapter(model: Any) -> None:
    """The same initial A of every adapter in both libraries (B is 0)."""
    import torch

    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in sorted(model.named_parameters(), key=lambda item: item[0].partition("layers.")[2]):
            if "lora_A" in name:
                parameter.copy_(0.02 * torch.randn(parameter.shape, generator=draw))


# -- fgrl --------------------------------------------------------------------------------------------------------------


def train_fgrl(options: argparse.Namespace, side: Steps, folder: Path) -> None:
    from fgrl import models
    from fgrl.components.algorithms.dpo import DPO
    from fgrl.experiments.pipeline.run import Run
    from fgrl.kinds.specs import LoraSpec, ModelSpec
    from fgrl.training.offline import OfflineRounds, UnitBatches
    from fgrl.training.steps import Step
    from fgrl.training.trainer import OfflineSettings
    from fgrl.training.training_module import TrainingModule

    class Rounds(OfflineRounds):
        """A round is a step, which waits until it is asked for and begins with the reference's pass over its own pairs."""

        def start(self, number: int, process: Any) -> Any:
            side.wait()
            began, self._begun = time.perf_counter(), True
            side.rows = [
                [*row["prompt"], *row["response"]]
                for unit in self.steps[number].units
                for row in self.units.units[unit]
            ]
            with process.forward_context():
                units = UnitBatches(self.units, self.steps[number].units, self.model.device)
                self.algorithm.begin(self.model, units, self.run, process.rank, process.world)
            side.parts["reference"] = time.perf_counter() - began
            return super().start(number, process)

        def report(self, metrics: dict[str, float], number: int) -> dict[str, float]:
            side.losses.append(metrics["loss"])
            side.done()
            return {}

    spec = ModelSpec(
        base=options.base, dtype=options.dtype, lora=LoraSpec(r=RANK, alpha=ALPHA), attention=options.attention,
        gradient_checkpointing=options.checkpointing,
    )  # fmt: skip
    model = models.load(spec, trainable=True)
    same_adapter(model)
    units = [
        [
            {"prompt": pair["prompt_ids"], "response": pair[answer], "finished": True, "columns": {}}
            for answer in ("chosen_ids", "rejected_ids")
        ]
        for pair in pairs_of(options, model.tokenizer)
    ]
    settings = OfflineSettings(
        lr=options.lr, batch_size=options.pairs, micro_batch_size=options.micro, schedule="constant", warmup=0.0,
        betas=list(LEARNING["betas"]), eps=LEARNING["eps"], clip_norm=LEARNING["clip_norm"], accelerator="cpu",
        checkpoint_every=1,
    )  # fmt: skip
    run = Run("dpo", folder, cache=folder / "cache")
    run.out.mkdir()
    algorithm = DPO(beta=LEARNING["beta"])
    algorithm.prepare([], run, model)
    rounds = Rounds(model, algorithm, units, settings, run)
    rounds.steps = [Step(list(range(at, at + options.pairs))) for at in range(0, len(units), options.pairs)]
    TrainingModule(rounds).fit(checkpoint_every=options.steps + 2)


# -- trl ---------------------------------------------------------------------------------------------------------------


def train_trl(options: argparse.Namespace, side: Steps, folder: Path) -> None:
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import DPOConfig, DPOTrainer

    from fgrl.kinds.specs import ModelSpec
    from fgrl.models import sources

    class InTurn(TrainerCallback):
        def on_step_begin(self, *_args: Any, **_options: Any) -> None:
            side.wait()

        def on_step_end(self, *_args: Any, **_options: Any) -> None:
            side.done()

    class Trainer(DPOTrainer):
        """Takes token ids as they are, in their order."""

        def _prepare_dataset(self, dataset: Any, *_args: Any) -> Any:
            return dataset

        def _get_train_sampler(self, *_args: Any) -> Any:
            return torch.utils.data.SequentialSampler(self.train_dataset)

        def compute_loss(self, model: Any, inputs: Any, *args: Any, **options: Any) -> Any:
            mask = inputs["attention_mask"].bool()
            side.rows += [ids[real].tolist() for ids, real in zip(inputs["input_ids"], mask, strict=True)]
            loss = super().compute_loss(model, inputs, *args, **options)
            side.losses.append(float((loss[0] if isinstance(loss, tuple) else loss).detach()))
            return loss

    base = sources.locate(ModelSpec(base=options.base)).name
    tokenizer = AutoTokenizer.from_pretrained(base)
    settings = DPOConfig(
        output_dir=str(folder), seed=0, use_cpu=True, bf16=options.dtype == "bfloat16", max_steps=options.steps + 1, beta=LEARNING["beta"],
        per_device_train_batch_size=options.micro, gradient_accumulation_steps=options.pairs // options.micro,
        learning_rate=options.lr, lr_scheduler_type="constant", weight_decay=0.0, max_grad_norm=LEARNING["clip_norm"],
        adam_beta1=LEARNING["betas"][0], adam_beta2=LEARNING["betas"][1], adam_epsilon=LEARNING["eps"],
        gradient_checkpointing=options.checkpointing, max_length=None, loss_type="sigmoid",
        logging_strategy="no", save_strategy="no", report_to="none", disable_tqdm=True, dataloader_num_workers=0,
    )  # fmt: skip
    trainer = Trainer(
        model=AutoModelForCausalLM.from_pretrained(
            base, dtype=getattr(torch, options.dtype), attn_implementation=options.attention
        ),
        processing_class=tokenizer,
        args=settings,
        train_dataset=Dataset.from_list(pairs_of(options, tokenizer)),
        peft_config=LoraConfig(r=RANK, lora_alpha=ALPHA, lora_dropout=0.0, target_modules="all-linear"),
        callbacks=[InTurn()],
    )
    same_adapter(trainer.model)
    trainer.train()


# -- tables ------------------------------------------------------------------------------------------------------------


def tables(results: dict[str, Any]) -> str:
    settings, steps, memory = results["settings"], results["steps"], results["memory"]
    speeds = {side: [settings["pairs"] / step["seconds"] for step in steps[side]] for side in steps}
    ratios = [fgrl / trl for fgrl, trl in zip(speeds["fgrl"], speeds["trl"], strict=True)]
    gaps = [abs(fgrl["loss"] - trl["loss"]) for fgrl, trl in zip(steps["fgrl"], steps["trl"], strict=True)]
    lines = [
        f"{settings['pairs']} pairs per step, micro-batches of {settings['micro']}, prompts of {settings['prompt']} and answers of "
        f"{settings['response']} tokens, {settings['attention']} attention, "
        f"{'with' if settings['checkpointing'] else 'without'} gradient checkpointing",
        "",
        f"{'step':<8}{'fgrl':>14}{'trl':>14}{'ratio':>8}{'loss, fgrl':>13}{'loss, trl':>12}{'difference':>12}",
    ]
    for number, (fgrl, trl, ratio, gap) in enumerate(zip(steps["fgrl"], steps["trl"], ratios, gaps, strict=True), 1):
        pairs = settings["pairs"]
        lines.append(
            f"{number:<8}{pairs / fgrl['seconds']:>8.2f} prs/s{pairs / trl['seconds']:>8.2f} prs/s{ratio:>8.2f}"
            f"{fgrl['loss']:>13.5f}{trl['loss']:>12.5f}{gap:>12.1e}"
        )
    fgrl, trl, ratio = (statistics.median(numbers) for numbers in (speeds["fgrl"], speeds["trl"], ratios))
    seconds = {side: statistics.median(step["seconds"] for step in steps[side]) for side in steps}
    cpu = {side: statistics.median(step["cpu"] for step in steps[side]) for side in steps}
    reference = statistics.median(step["parts"]["reference"] for step in steps["fgrl"])
    lines += [
        f"{'median':<8}{fgrl:>8.2f} prs/s{trl:>8.2f} prs/s{ratio:>8.2f}   (from {min(ratios):.2f} to {max(ratios):.2f})",
        f"seconds per step, medians: fgrl {seconds['fgrl']:.2f} (of it the reference's pass {reference:.2f}), trl {seconds['trl']:.2f}",
        f"seconds of processors per step, medians: fgrl {cpu['fgrl']:.2f}, trl {cpu['trl']:.2f}, ratio {cpu['trl'] / cpu['fgrl']:.2f}",
        f"largest difference of the losses: {max(gaps):.1e}",
        "",
        *memory_table(memory),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
