"""What one GPU does in a few minutes: drawing, a training step, a GRPO step, the most important first.

    python benchmarks/gpu.py [--minutes 4] [--shapes SmolLM2-135M Llama-3.2-1B Llama-3-8B] [--output FILE]

Prints a line of JSON after each case, and appends it to `--output`. The models have random weights of the shapes of known ones, with LoRA
of rank 16 on all linear layers over a bfloat16 base (float32 on a CPU), and a tokenizer made here, so that nothing is downloaded. No token
ends an answer.

1. `draw`: tokens per second of the engines `hf` and `paged` at 1, 32 and 256 rows; with `paged` also the largest difference of a
   log-probability from the model's own, whether it had flash kernels, and the memory that was held before and after
2. `train`: seconds of a training step on answers that are there (log-probabilities, backward pass, AdamW), its share of the card's peak
   (MFU), peak memory
3. `grpo`: seconds of a whole GRPO step, and of trl's where it is installed

MFU counts the operations of the products of the model and its adapters, and of attention in full (as if nothing were masked), but not what
gradient checkpointing would repeat. The peak is that of dense bfloat16 products by the card's maker; it is null for a card that is not listed.
A case that does not fit into the memory says so, and the others go on. What the time does not reach has the status "not run".
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from importlib import metadata, util
from pathlib import Path
from typing import Any

import torch
from shared.iterations import train_iteration

SHAPES: dict[str, dict[str, Any]] = {
    "SmolLM2-135M": {
        "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
        "num_key_value_heads": 3, "vocab_size": 49152, "tie_word_embeddings": True,
    },
    "Llama-3.2-1B": {
        "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": True,
    },
    "Llama-3-8B": {
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
        "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": False,
    },
    "tiny": {
        "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
        "num_key_value_heads": 2, "vocab_size": 320, "tie_word_embeddings": True,
    },
}  # fmt: skip
PEAKS = {
    "H100 PCIe": 756,
    "H100": 989,
    "H200": 989,
    "A100": 312,
    "L40S": 362,
    "A10G": 70,
    "RTX 4090": 165,
    "B200": 2250,
}
"""Dense bfloat16 TFLOP/s by a part of the card's name; the first that fits counts."""
RANK, ALPHA, LR = 16, 32, 1e-5
PROMPT = "Write a short story about the sea, a lamp and an old mill, and say in its last sentence what the sea wanted."
NO_END = -1
"""A token id that is never drawn, as the only one that ends an answer."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=4.0, help="no case begins later than this")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=[name for name in SHAPES if name != "tiny"])
    parser.add_argument("--rows", type=int, nargs="+", default=[32, 256, 1], help="answers drawn at the same time")
    parser.add_argument("--new", type=int, default=128, help="tokens of an answer")
    parser.add_argument("--train-rows", type=int, default=16, help="answers of a training step")
    parser.add_argument("--completions", type=int, default=64, help="answers of a GRPO step, 8 to a prompt")
    parser.add_argument("--repeats", type=int, default=3, help="of each case, after one that does not count")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    parser.add_argument("--output", type=Path, help="a file that the lines are appended to")
    options = parser.parse_args()
    if options.device == "cuda" and not torch.cuda.is_available():
        print("not run: no GPU is visible here (--device cpu --shapes tiny tries the script)")
        return
    end = time.monotonic() + 60 * options.minutes
    for case, shape, run in cases(options):
        line = {"case": case, "shape": shape, **where(options.device)}
        if time.monotonic() > end:
            line["status"] = "not run"
        else:
            line |= tried(run, options.device)
        write(line, options.output)


def cases(options: argparse.Namespace) -> Iterator[tuple[str, str, Callable[[], dict[str, Any]]]]:
    """The cases in order of importance. A model is made when the first of its cases runs."""
    for shape in options.shapes:
        for rows in options.rows:
            for engine in ("hf", "paged"):
                yield (
                    "draw",
                    shape,
                    lambda shape=shape, rows=rows, engine=engine: draw(
                        made(shape, options.device), engine, rows, options
                    ),
                )
    for shape in options.shapes:
        yield "train", shape, lambda shape=shape: train(made(shape, options.device), options)
    for shape in options.shapes:
        yield "grpo", shape, lambda shape=shape: grpo(made(shape, options.device), options)
        if util.find_spec("trl"):
            yield "grpo of trl", shape, lambda shape=shape: grpo_of_trl(shape, options)


def tried(run: Callable[[], dict[str, Any]], device: str) -> dict[str, Any]:
    """What a case measured, with its peak memory; that of a GPU only."""
    if device == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    try:
        found = run()
    except torch.OutOfMemoryError:
        return {"status": "out of memory"}
    peak = {"peak_gib": round(torch.cuda.max_memory_allocated() / 2**30, 2)} if device == "cuda" else {}
    return {"status": "done", **found, **peak}


def where(device: str) -> dict[str, str]:
    name = torch.cuda.get_device_name() if device == "cuda" else "CPU"
    return {"device": name, "torch": torch.__version__, "transformers": metadata.version("transformers")}


def write(line: dict[str, Any], output: Path | None) -> None:
    text = json.dumps(line)
    print(text, flush=True)
    if output is not None:
        with output.open("a", encoding="utf-8") as file:
            file.write(text + "\n")


# -- models ------------------------------------------------------------------------------------------------------------

_LAST: dict[str, Any] = {}
"""The model that was made last; there is room for one."""


def made(shape: str, device: str) -> Any:
    """A `LanguageModel` with random weights and a new adapter."""
    import peft

    from fgrl.kinds.specs import ModelSpec
    from fgrl.models.language_model import LanguageModel
    from fgrl.models.sources import Source

    if shape not in _LAST:
        _LAST.clear()
        net = peft.get_peft_model(network(shape, device), adapter())
        for parameter in net.parameters():
            if parameter.requires_grad:
                parameter.data = parameter.data.float()
        _LAST[shape] = LanguageModel(
            net, tokenizer(), ModelSpec(base=shape), base=Source(shape, None), eos_ids={NO_END}, end_id=0
        ).eval()
    return _LAST[shape]


def adapter() -> Any:
    import peft

    return peft.LoraConfig(r=RANK, lora_alpha=ALPHA, lora_dropout=0.0, target_modules="all-linear")


def network(shape: str, device: str) -> Any:
    from transformers import AutoModelForCausalLM, LlamaConfig

    config = LlamaConfig(**SHAPES[shape], max_position_embeddings=4096, bos_token_id=0, eos_token_id=0, pad_token_id=0)
    with torch.device(device):
        return AutoModelForCausalLM.from_config(
            config, dtype=torch.bfloat16 if device == "cuda" else torch.float32, attn_implementation="sdpa"
        )


def tokenizer() -> Any:
    """A token for each byte, which every shape has room for."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    bare = Tokenizer(models.BPE())
    bare.pre_tokenizer, bare.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    bare.train_from_iterator(
        [], trainers.BpeTrainer(special_tokens=["<end>"], initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    )
    fast = PreTrainedTokenizerFast(tokenizer_object=bare, eos_token="<end>", pad_token="<end>", padding_side="left")
    fast.chat_template = "{% for message in messages %}{{ message['content'] }}\n{% endfor %}"
    return fast


# -- cases -------------------------------------------------------------------------------------------------------------


def draw(model: Any, engine: str, rows: int, options: argparse.Namespace) -> dict[str, Any]:
    """Drawing with an engine; the first draw, in which `paged` tries the model, does not count."""
    from fgrl.components.engines.hf import HF
    from fgrl.components.engines.paged import Paged
    from fgrl.kinds.specs import Sampling
    from fgrl.rollouts import encode_prompt, pad, sample

    prompt = encode_prompt(model.tokenizer, PROMPT)
    sampling = Sampling(max_new_tokens=options.new, batch_size=rows)
    drawn: list[Any] = []
    with {"hf": HF, "paged": Paged}[engine]().open(model) as drawer, torch.no_grad(), autocast(options.device):
        before = held(options.device)
        took = seconds(lambda: drawn.append(sample(model, drawer, [prompt] * rows, sampling, seed=0)), options)
        found = {
            "engine": engine,
            "rows": rows,
            "new_tokens": options.new,
            "tokens_per_second": round(rows * options.new / took, 1),
        }
        if drawn[-1][0].token_logp is None:
            return found
        few = drawn[-1][:16]
        own = model.score(pad([prompt] * len(few), few, model.pad_id, model.eos_ids).to(model.device)).logp
        given = torch.tensor([each.token_logp for each in few], device=own.device)
        return found | {
            "flash": flash(options.device), "logp_difference": round(float((given - own).abs().max()), 7),
            "logp_difference_mean": round(float((given - own).abs().mean()), 7), "held_gib": [before, held(options.device)],
        }  # fmt: skip


def held(device: str) -> float | None:
    """GiB of tensors on a GPU."""
    return round(torch.cuda.memory_allocated() / 2**30, 3) if device == "cuda" else None


def flash(device: str) -> bool:
    """Whether transformers finds flash kernels for continuous batching."""
    from transformers.utils.import_utils import is_flash_attn_2_available, is_flash_attn_3_available

    kernels = (is_flash_attn_3_available, is_flash_attn_2_available)
    return device == "cuda" and any(available(kernels_fallback_ok=True) for available in kernels)


def train(model: Any, options: argparse.Namespace) -> dict[str, Any]:
    """A step on answers to prompts that are all different, so that each prompt is read once for its answer."""
    from fgrl.rollouts import pad

    rows, prompt = options.train_rows, 64
    ids = torch.randint(1, 256, (rows, prompt + options.new), generator=torch.Generator().manual_seed(0)).tolist()
    tokens = pad([row[:prompt] for row in ids], [row[prompt:] for row in ids], model.pad_id, set()).to(model.device)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=LR)

    def step() -> None:
        with autocast(options.device):
            loss = -model.score(tokens, entropy=True).logp.mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    took = seconds(step, options)
    done = operations(model.transformer.config, rows, prompt, options.new, RANK)
    peak = peak_of(options.device)
    mfu = None if peak is None else round(done / took / (peak * 1e12), 4)
    return {"rows": rows, "tokens": rows * (prompt + options.new), "seconds": round(took, 4), "mfu": mfu}


def operations(config: Any, rows: int, prompt: int, new: int, rank: int) -> int:
    """Floating-point operations of a training step of an adapter: a product of [m, k] and [k, n] has 2 m k n.

    Forward, a token goes through the linear layers and their adapters, and an answer's token through the output layer; attention takes
    4 length^2 hidden_size a row and layer. Backward, a frozen layer needs one product (for its input), an adapter two, attention four
    for two.
    """
    hidden, inner = config.hidden_size, config.intermediate_size
    narrow = hidden * config.num_key_value_heads // config.num_attention_heads
    layers = [
        (hidden, hidden),
        (hidden, narrow),
        (hidden, narrow),
        (hidden, hidden),
        (hidden, inner),
        (hidden, inner),
        (inner, hidden),
    ]
    length = prompt + new
    frozen = 2 * rows * length * sum(into * out for into, out in layers) * config.num_hidden_layers
    adapters = 2 * rows * length * sum(rank * (into + out) for into, out in layers) * config.num_hidden_layers
    attention = 4 * rows * length * length * hidden * config.num_hidden_layers
    head = 2 * rows * new * hidden * config.vocab_size
    return 2 * frozen + 3 * adapters + 3 * attention + 2 * head


def grpo(model: Any, options: argparse.Namespace) -> dict[str, Any]:
    """Drawing, the reference's log-probabilities, a reward of almost no cost, and one optimizer step."""
    from fgrl.components.algorithms.grpo import GRPO
    from fgrl.components.engines.hf import HF
    from fgrl.experiments.pipeline.run import Run
    from fgrl.kinds import Reward
    from fgrl.kinds.specs import Sampling
    from fgrl.models import ActorCritic
    from fgrl.training.online import OnlineRounds
    from fgrl.training.trainer import OnlineSettings
    from fgrl.types import Rewards, Rollout, Sample

    class Vowels(Reward):
        def score(self, rollout: Rollout) -> Rewards:
            response = torch.tensor(worth(rollout.texts), device=rollout.mask.device)
            last = torch.zeros_like(rollout.mask)
            last[torch.arange(len(last)), rollout.mask.sum(1) - 1] = True
            return Rewards(response=response, token=torch.where(last, response[:, None], 0.0), credit_mask=last)

    count = options.completions
    settings = OnlineSettings(lr=LR, batch_size=count, micro_batch_size=min(16, count), iterations=options.repeats + 1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rounds = OnlineRounds(
            ActorCritic(model, None), GRPO(kl_coef=0.05), Vowels(),
            [Sample(id=str(n), prompt=f"{PROMPT} {n}") for n in range(count // 8)], settings,
            Run("grpo", folder, cache=folder / "cache"), drawer=HF().open(model),
            sampling=Sampling(max_new_tokens=options.new, batch_size=count), rollout_batch_size=count, per_prompt=8,
        )  # fmt: skip
        steps = [
            train_iteration(rounds, number, context=lambda: autocast(options.device))
            for number in range(options.repeats + 1)
        ][1:]
    phases = {name: round(statistics.median(step[name] for step in steps), 4) for name in steps[0]}
    return {"completions": count, "new_tokens": options.new, "seconds": phases.pop("step"), "phases": phases}


def grpo_of_trl(shape: str, options: argparse.Namespace) -> dict[str, Any]:
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    _LAST.clear()
    began: list[float] = []
    took: list[float] = []

    class Timed(TrainerCallback):
        def on_step_begin(self, *_args: Any, **_options: Any) -> None:
            began.append(time.perf_counter())

        def on_step_end(self, *_args: Any, **_options: Any) -> None:
            wait(options.device)
            took.append(time.perf_counter() - began[-1])

    count = options.completions
    micro = max(8, min(16, count))
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(sys.stderr):
        settings = GRPOConfig(
            output_dir=folder, seed=0, use_cpu=options.device == "cpu", bf16=options.device == "cuda",
            max_steps=options.repeats + 1, per_device_train_batch_size=micro, gradient_accumulation_steps=count // micro,
            num_generations=8, max_completion_length=options.new, beta=0.05, loss_type="grpo", learning_rate=LR,
            gradient_checkpointing=False, generation_kwargs={"eos_token_id": NO_END}, logging_strategy="no",
            save_strategy="no", report_to="none", disable_tqdm=True, dataloader_num_workers=0,
        )  # fmt: skip
        GRPOTrainer(
            model=network(shape, options.device), processing_class=tokenizer(), args=settings, peft_config=adapter(),
            reward_funcs=lambda completions, **_columns: worth([each[0]["content"] for each in completions]),
            train_dataset=Dataset.from_list(
                [{"prompt": [{"role": "user", "content": f"{PROMPT} {n}"}]} for n in range(count)]
            ),
            callbacks=[Timed()],
        ).train()  # fmt: skip
    return {
        "completions": count, "new_tokens": options.new, "seconds": round(statistics.median(took[1:]), 4),
        "trl": metadata.version("trl"),
    }  # fmt: skip


def worth(texts: list[str]) -> list[float]:
    """The share of vowels of each text."""
    return [sum(letter in "aeiou" for letter in text.lower()) / max(1, len(text)) for text in texts]


def peak_of(device: str) -> float | None:
    name = where(device)["device"]
    return next((peak for part, peak in PEAKS.items() if part in name), None)


def autocast(device: str) -> Any:
    return torch.autocast("cuda", torch.bfloat16) if device == "cuda" else contextlib.nullcontext()


def wait(device: str) -> None:
    """Until the card has done what it was asked for."""
    if device == "cuda":
        torch.cuda.synchronize()


def seconds(work: Callable[[], Any], options: argparse.Namespace) -> float:
    """The median after one that does not count."""
    times = []
    for _ in range(options.repeats + 1):
        began = time.perf_counter()
        work()
        wait(options.device)
        times.append(time.perf_counter() - began)
    return statistics.median(times[1:])


if __name__ == "__main__":
    main()
