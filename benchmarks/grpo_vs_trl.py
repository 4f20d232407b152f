"""GRPO in fgrl and trl's `GRPOTrainer`, step by step in turn: completion tokens per second, peak memory, phases, bounds.

    python benchmarks/grpo_vs_trl.py [--steps 6] [--micro 8] [--checkpointing] [--json]

Either trains the packaged SmolLM2 with LoRA (rank 16 on all linear layers, a frozen bfloat16 base, bfloat16 autocast over
float32 adapters) on 32 completions of 48 tokens, 4 to each of 8 prompts, with a KL to the base, one optimizer step a
rollout. Both are given the same prompts, reward, optimizer, micro-batches, attention and gradient checkpointing. No token
ends a completion, so both make the same number of tokens. trl: no logging, no saving, no workers, no progress bars, and not
its bias correction of the KL; `--trl-cache static` and `--fold` (fgrl) are the options of generation that change nothing else.
Attention is "sdpa", either library's default, which here is multiplied out in short passes on a CPU.

1. either side lives in a process of its own, so that each has a peak of its own; they are loaded one after the other
2. one step of each before it counts; then they take turns, who goes first changing from step to step. The other waits
3. this side's phases against bounds measured on the spot: `large` is what one large bfloat16 product and one large copy do a
   second, `shapes` the bare products of the phase's own shapes, one after the other

Peak memory is resident memory (Linux); "beyond" is above what was resident right before the first step. Left out: vLLM, which
has no business on a CPU.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from shared.two_libraries import Process, Side, digest, memory_table, take_turns

COPIED = ("base", "steps", "completions", "per_prompt", "new", "micro", "attention", "trl_cache")
BASE = "smollm2-135m-instruct"
THINGS = ["the sea", "rivers", "bread", "trains", "the moon", "cats", "chess", "a lamp", "rain", "tea", "books", "snow"]
NO_END = -1
"""A token id that is never drawn, as the only one that ends a completion."""
LEARNING = {"lr": 1e-4, "beta": 0.05, "clip": 0.2, "clip_norm": 1.0, "betas": (0.9, 0.95), "eps": 1e-8}
RANK, ALPHA = 16, 32
PHASES = {
    "generate": "generate",
    "policy": "policy's log-probabilities",
    "reference": "reference's log-probabilities",
    "reward": "reward",
    "train": "train (forward, backward, step)",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", default=BASE, help="the model, of both")
    parser.add_argument("--steps", type=int, default=6, help="steps of each that count, after one that does not")
    parser.add_argument("--completions", type=int, default=32)
    parser.add_argument("--per-prompt", type=int, default=4)
    parser.add_argument("--new", type=int, default=48, help="tokens of a completion")
    parser.add_argument("--micro", type=int, default=8, help="completions in a micro-batch of scoring and training")
    parser.add_argument("--checkpointing", action="store_true", help="gradient checkpointing, for both")
    parser.add_argument("--attention", choices=["sdpa", "eager"], default="sdpa", help="attention, of both")
    parser.add_argument("--fold", action="store_true", help="fgrl: sample with the adapter folded into the weights")
    parser.add_argument(
        "--trl-cache", choices=["dynamic", "static"], default="dynamic", help="trl: cache of generation"
    )
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    parser.add_argument("--side", choices=["fgrl", "trl"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.completions % options.micro or options.completions % options.per_prompt:
        parser.error("--completions has to be a multiple of --micro and of --per-prompt")
    if options.side:
        with tempfile.TemporaryDirectory() as folder:
            {"fgrl": train_fgrl, "trl": train_trl}[options.side](options, Steps(), Path(folder))
        return
    arguments = [f"--{name.replace('_', '-')}={getattr(options, name)}" for name in COPIED]
    arguments += [f"--{name}" for name in ("checkpointing", "fold") if getattr(options, name)]
    with Process("fgrl", arguments) as fgrl, Process("trl", arguments) as trl:
        steps = take_turns(fgrl, trl, options.steps, ("prompts", "tokens"), described)
    results = {
        "settings": {name: value for name, value in vars(options).items() if name not in ("json", "side")},
        "threads": steps["fgrl"][0]["threads"],
        "memory": {"fgrl": fgrl.memory(), "trl": trl.memory()},
        "steps": steps,
        "bounds": bounds(options, steps["fgrl"][0]),
    }
    print(json.dumps(results, indent=2) if options.json else tables(results))


def described(side: str, step: dict[str, Any]) -> str:
    return f"{side} {step['seconds']:.1f} s"


# -- one library -------------------------------------------------------------------------------------------------------


class Steps(Side):
    """Notes where the time of a step goes, and the prompts that were answered."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = Clock()
        self.prompts: list[Sequence[int]] = []
        self.tokens = 0

    def begin(self) -> None:
        self.clock.start("train")

    def end(self) -> dict[str, Any]:
        import torch

        lengths = [len(prompt) for prompt in self.prompts]
        took = {"seconds": self.clock.stop(), "phases": dict(self.clock.seconds), "tokens": self.tokens}
        work = {"prompts": digest(self.prompts), "prompt_tokens": sum(lengths), "longest": max(lengths)}
        return {**took, **work, "threads": torch.get_num_threads()}

    def answering(self, prompts: Sequence[Sequence[int]]) -> None:
        """The ids of the prompts that are answered in this step."""
        self.prompts = [list(map(int, prompt)) for prompt in prompts]

    def worth(self, text: str) -> float:
        """The reward: the share of words that occur once."""
        words = text.lower().split()
        return sum(count == 1 for count in Counter(words).values()) / max(1, len(words))


class Clock:
    """Seconds by phase; an inner phase's are not the outer's."""

    def __init__(self) -> None:
        self.seconds: Counter[str] = Counter()
        self._stack: list[str] = []
        self._began = self._last = 0.0

    def start(self, phase: str) -> None:
        self.seconds, self._stack = Counter(), [phase]
        self._began = self._last = time.perf_counter()

    def stop(self) -> float:
        self._note()
        return self._last - self._began

    @contextlib.contextmanager
    def during(self, phase: str) -> Iterator[None]:
        self._note()
        self._stack.append(phase)
        try:
            yield
        finally:
            self._note()
            self._stack.pop()

    def timed(self, phase: str | Callable[..., str], work: Callable[..., Any]) -> Callable[..., Any]:
        """`work`, its time counted to a phase, or to the phase that `phase` returns for its arguments."""

        def wrapped(*args: Any, **options: Any) -> Any:
            with self.during(phase if isinstance(phase, str) else phase(*args, **options)):
                return work(*args, **options)

        return wrapped

    def _note(self) -> None:
        now = time.perf_counter()
        if self._stack:
            self.seconds[self._stack[-1]] += now - self._last
        self._last = now


def prompts_of(options: argparse.Namespace) -> list[str]:
    """The prompts of all steps in their order, all different."""
    count = (options.steps + 1) * options.completions // options.per_prompt
    return [f"Write a short story about {THINGS[n % len(THINGS)]}, number {n}." for n in range(count)]


# -- this side ---------------------------------------------------------------------------------------------------------


def train_fgrl(options: argparse.Namespace, side: Steps, folder: Path) -> None:
    import torch
    from pydantic import PrivateAttr

    from fgrl import models
    from fgrl.components.algorithms.grpo import GRPO
    from fgrl.components.engines.hf import HF
    from fgrl.experiments.pipeline.run import Run
    from fgrl.kinds import Drawing, Reward
    from fgrl.kinds.specs import LoraSpec, ModelSpec, Sampling
    from fgrl.training.alarms import Alarms
    from fgrl.training.online import OnlineRounds
    from fgrl.training.trainer import OnlineSettings
    from fgrl.training.training_module import TrainingModule
    from fgrl.types import DrawnResponse, Rewards, Rollout, Sample

    class Worth(Reward):
        _worth: Any = PrivateAttr()

        def score(self, rollout: Rollout) -> Rewards:
            side.tokens = int(rollout.mask.sum())
            response = torch.tensor([self._worth(text) for text in rollout.texts])
            last = torch.zeros_like(rollout.mask)
            last[torch.arange(len(last)), rollout.mask.sum(1) - 1] = True
            return Rewards(response=response, token=torch.where(last, response[:, None], 0.0), credit_mask=last)

    class Rounds(OnlineRounds):
        """Waits before each step, takes the prompts in their order, reports the time of a step."""

        def prompts_of(self, number: int) -> list[Sample]:
            start = number * self.prompts_per_iteration
            return list(self.prompts[start : start + self.prompts_per_iteration])

        def start(self, number: int, process: Any) -> Any:
            side.wait()
            return super().start(number, process)

        def report(self, metrics: dict[str, float], number: int) -> dict[str, float]:
            shown = super().report(metrics, number)
            side.done()
            return shown

    spec = ModelSpec(
        base=options.base, dtype="bfloat16", lora=LoraSpec(r=RANK, alpha=ALPHA), attention=options.attention,
        gradient_checkpointing=options.checkpointing,
    )  # fmt: skip
    model = models.load(spec, trainable=True)
    model.eos_ids = {NO_END}
    reward = Worth()
    reward._worth = side.worth
    settings = OnlineSettings(
        lr=LEARNING["lr"], batch_size=options.completions, micro_batch_size=options.micro, schedule="constant",
        warmup=0.0, betas=list(LEARNING["betas"]), eps=LEARNING["eps"], clip_norm=LEARNING["clip_norm"],
        accelerator="cpu", iterations=options.steps + 1, checkpoint_every=options.steps + 1,
    )  # fmt: skip
    drawer = HF(fold=options.fold).open(model)
    rounds = Rounds(
        models.ActorCritic(model, None),
        GRPO(clip=LEARNING["clip"], kl_coef=LEARNING["beta"]),
        reward,
        [Sample(id=str(n), prompt=prompt) for n, prompt in enumerate(prompts_of(options))],
        settings,
        Run("grpo", folder, cache=folder / "cache"),
        drawer=drawer,
        sampling=Sampling(max_new_tokens=options.new, batch_size=options.completions),
        rollout_batch_size=options.completions,
        per_prompt=options.per_prompt,
        alarms=Alarms(**dict.fromkeys(Alarms.model_fields)),
    )

    # phases: `score` asks the policy, then the reference, for states, then for what they say of the tokens
    asked = "policy"

    def which(*_args: Any, adapter: bool = True, **_options: Any) -> str:
        nonlocal asked
        asked = "train" if torch.is_grad_enabled() else "policy" if adapter else "reference"
        return asked

    drawing, score = drawer.drawing, reward.score
    clock = side.clock

    def timed() -> Drawing:
        begun = drawing()
        rest = begun.rest

        def drawn() -> dict[int, DrawnResponse]:
            side.answering([list(request.prompt.token_ids) for request in begun.waiting.values()])
            return rest()

        begun.rest = clock.timed("generate", drawn)
        return begun

    drawer.drawing = timed
    object.__setattr__(model, "states", clock.timed(which, model.states))
    object.__setattr__(model, "score_states", clock.timed(lambda *_a, **_o: asked, model.score_states))
    object.__setattr__(reward, "score", clock.timed("reward", score))
    (folder / "out").mkdir()
    TrainingModule(rounds).fit(checkpoint_every=settings.checkpoint_every)


# -- trl ---------------------------------------------------------------------------------------------------------------


def train_trl(options: argparse.Namespace, side: Steps, folder: Path) -> None:
    import torch
    from datasets import Dataset
    from peft import LoraConfig
    from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    from fgrl.kinds.specs import ModelSpec
    from fgrl.models import sources

    class InTurn(TrainerCallback):
        def on_step_begin(self, *_args: Any, **_options: Any) -> None:
            side.wait()

        def on_step_end(self, *_args: Any, **_options: Any) -> None:
            side.done()

    def worth(completions: list[Any], completion_ids: list[Any], **_columns: Any) -> list[float]:
        side.tokens = sum(map(len, completion_ids))
        return [side.worth(completion[0]["content"]) for completion in completions]

    base = sources.locate(ModelSpec(base=options.base)).name
    settings = GRPOConfig(
        output_dir=str(folder), seed=0, use_cpu=True, bf16=True, max_steps=options.steps + 1,
        per_device_train_batch_size=options.micro, gradient_accumulation_steps=options.completions // options.micro,
        num_generations=options.per_prompt, max_completion_length=options.new, temperature=1.0, shuffle_dataset=False,
        beta=LEARNING["beta"], epsilon=LEARNING["clip"], loss_type="grpo", use_bias_correction_kl=False,
        learning_rate=LEARNING["lr"], lr_scheduler_type="constant", weight_decay=0.0, max_grad_norm=LEARNING["clip_norm"],
        adam_beta1=LEARNING["betas"][0], adam_beta2=LEARNING["betas"][1], adam_epsilon=LEARNING["eps"],
        gradient_checkpointing=options.checkpointing, generation_kwargs={"eos_token_id": NO_END},
        cache_implementation=None if options.trl_cache == "dynamic" else options.trl_cache,
        logging_strategy="no", save_strategy="no", report_to="none", disable_tqdm=True, dataloader_num_workers=0,
    )  # fmt: skip
    trainer = GRPOTrainer(
        model=AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16, attn_implementation=options.attention),
        processing_class=AutoTokenizer.from_pretrained(base, padding_side="left"),
        args=settings,
        reward_funcs=worth,
        train_dataset=Dataset.from_list(
            [{"prompt": [{"role": "user", "content": prompt}]} for prompt in prompts_of(options)]
        ),
        peft_config=LoraConfig(r=RANK, lora_alpha=ALPHA, lora_dropout=0.0, target_modules="all-linear"),
        callbacks=[InTurn()],
    )
    trainer.eos_token_ids = [NO_END]

    generate = trainer._generate_single_turn

    def generated(prompt_ids: Any, *args: Any, **options: Any) -> Any:
        side.answering(prompt_ids)
        return generate(prompt_ids, *args, **options)

    clock = side.clock
    trainer._generate_single_turn = clock.timed("generate", generated)
    trainer._calculate_rewards = clock.timed("reward", trainer._calculate_rewards)
    trainer._get_per_token_logps_and_entropies = clock.timed(
        lambda *_a, **_o: "train" if torch.is_grad_enabled() else "reference",
        trainer._get_per_token_logps_and_entropies,
    )
    trainer.train()


# -- bounds ------------------------------------------------------------------------------------------------------------


def bounds(options: argparse.Namespace, step: dict[str, Any]) -> dict[str, Any]:
    """Least seconds of this side's phases: at the speed of large products and copies, and of bare products of its shapes."""
    import torch

    from fgrl import models
    from fgrl.kinds.specs import LoraSpec, ModelSpec
    from fgrl.models.chunked import chunk_rows

    def seconds(work: Callable[[], Any], repeats: int = 5) -> float:
        work()
        times = []
        for _ in range(repeats):
            start = time.perf_counter()
            work()
            times.append(time.perf_counter() - start)
        return statistics.median(times)

    a, b = (torch.randn(2048, 2048, dtype=torch.bfloat16) for _ in range(2))
    flops = 2 * 2048**3 / seconds(lambda: a @ b, 10)
    source = torch.ones(256 * 2**20 // 4)
    target = torch.empty_like(source)
    copies = source.nbytes / seconds(lambda: target.copy_(source))

    model = models.load(ModelSpec(base=options.base, dtype="bfloat16", lora=LoraSpec(r=RANK)), trainable=True)
    layers = [layer for layer in model.trunk.modules() if hasattr(layer, "base_layer")]
    frozen = [layer.base_layer.weight.detach() for layer in layers]
    parts = [getattr(layer, part)["default"] for layer in layers for part in ("lora_A", "lora_B")]
    thin = [part.weight.detach().bfloat16() for part in parts]
    head = model.output_layer.weight.detach()
    config = model.transformer.config
    weights = sum(weight.nbytes for weight in (*frozen, *thin, head))
    size = config.hidden_size // config.num_attention_heads
    kept = 2 * 2 * config.num_hidden_layers * config.num_key_value_heads * size  # bytes of a token's keys and values

    def operations(rows: int, matrices: Sequence[Any]) -> float:
        return 2.0 * rows * sum(matrix.numel() for matrix in matrices)

    def products(rows: int, matrices: Sequence[Any]) -> float:
        """Seconds of x @ W' for `rows` rows x and each W in turn: distinct weights, as a model has them."""
        inputs = {matrix.shape[1]: torch.randn(rows, matrix.shape[1], dtype=torch.bfloat16) for matrix in matrices}
        return seconds(lambda: [torch.nn.functional.linear(inputs[matrix.shape[1]], matrix) for matrix in matrices])

    rows, new, micro = options.completions, options.new, options.micro
    pieces = rows // micro
    distinct = step["prompt_tokens"] // options.per_prompt
    answered = rows * new
    # a micro-batch reads its different prompts once, and then what answers them; with checkpointing it trains on whole rows
    prompts = max(1, micro // options.per_prompt) * step["prompt_tokens"] // rows
    scored = [prompts, answered // pieces]
    trained = [(step["prompt_tokens"] + answered) // pieces] if options.checkpointing else scored
    attended = sum(step["prompt_tokens"] + rows * place for place in range(1, new))
    back = [matrix.t().contiguous() for matrix in frozen]
    back_thin = [matrix.t().contiguous() for matrix in thin]

    def passes(widths: Sequence[int], *matrices: Sequence[Any]) -> float:
        return pieces * sum(products(width, some) for width in widths for some in matrices)

    read, read_trained = pieces * sum(scored), pieces * sum(trained)
    chunk = chunk_rows(head.shape[0])
    heads = answered / chunk * products(chunk, [head])
    again = 1 + options.checkpointing
    phases = {
        "generate": (
            max(
                operations(rows * new + distinct, [*frozen, *thin]) / flops + operations(rows * new, [head]) / flops,
                (weights * new + kept * attended) / copies,
            ),
            new * products(rows, [*frozen, *thin, head]) + products(distinct, [*frozen, *thin]),
        ),
        "policy": (
            (operations(read, [*frozen, *thin]) + operations(answered, [head])) / flops,
            passes(scored, frozen, thin) + heads,
        ),
        "reference": (
            (operations(read, frozen) + operations(answered, [head])) / flops,
            passes(scored, frozen) + heads,
        ),
        # frozen weights: no product for their own gradient
        "train": (
            (
                operations(read_trained, frozen) * (1 + again)
                + operations(read_trained, thin) * (2 + again)
                + 2 * operations(answered, [head])
            )
            / flops,
            again * passes(trained, frozen, thin) + passes(trained, back, back_thin, back_thin) + 2 * heads,
        ),
    }
    return {"flops": flops, "copies": copies, "phases": phases}


# -- tables ------------------------------------------------------------------------------------------------------------


def tables(results: dict[str, Any]) -> str:
    settings, steps, memory = results["settings"], results["steps"], results["memory"]
    lines = [
        f"{settings['completions']} completions of {settings['new']} tokens, {settings['per_prompt']} a prompt, prompts of up to "
        f"{steps['fgrl'][0]['longest']} tokens; micro-batches of {settings['micro']}, "
        f"{settings['attention']} attention, "
        f"{'with' if settings['checkpointing'] else 'without'} gradient checkpointing; {results['threads']} threads",
        "",
        f"{'step':<8}{'fgrl':>12}{'trl':>12}{'ratio':>9}",
    ]
    speeds = {side: [step["tokens"] / step["seconds"] for step in steps[side]] for side in steps}
    ratios = [fgrl / trl for fgrl, trl in zip(speeds["fgrl"], speeds["trl"], strict=True)]
    for number, (fgrl, trl, ratio) in enumerate(zip(speeds["fgrl"], speeds["trl"], ratios, strict=True), 1):
        lines.append(f"{number:<8}{fgrl:>6.0f} tok/s{trl:>6.0f} tok/s{ratio:>9.2f}")
    fgrl, trl, ratio = (statistics.median(numbers) for numbers in (speeds["fgrl"], speeds["trl"], ratios))
    lines += [
        f"{'median':<8}{fgrl:>6.0f} tok/s{trl:>6.0f} tok/s{ratio:>9.2f}   (from {min(ratios):.2f} to {max(ratios):.2f})",
        "",
        *memory_table(memory),
        "",
        f"bounds: {results['bounds']['flops'] / 1e9:.0f} GFLOP/s (large bfloat16 products), "
        f"{results['bounds']['copies'] / 1e9:.1f} GB/s (large copies)",
        f"{'seconds by phase, medians':<34}{'fgrl':>8}{'of step':>9}{'large':>8}{'shapes':>8}{'trl':>10}{'of step':>9}",
    ]
    medians = {
        side: {phase: statistics.median(step["phases"].get(phase, 0.0) for step in steps[side]) for phase in PHASES}
        for side in steps
    }
    whole = {side: statistics.median(step["seconds"] for step in steps[side]) for side in steps}
    for phase, name in PHASES.items():
        took, other = medians["fgrl"][phase], medians["trl"][phase]
        large, shapes = results["bounds"]["phases"].get(phase, (None, None))
        if not took and not other:
            continue
        shares = "".join(f"{bound / took:>8.0%}" if bound and took else " " * 8 for bound in (large, shapes))
        lines.append(
            f"{name:<34}{took:>8.2f}{took / whole['fgrl']:>9.0%}{shares}{other:>10.2f}{other / whole['trl']:>9.0%}"
        )
    lines.append(f"{'step':<34}{whole['fgrl']:>8.2f}{'':>25}{whole['trl']:>10.2f}")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
