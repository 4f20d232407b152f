"""Memory of each process while a model is loaded and shared out over several, on CPUs.

    python benchmarks/shard_loading.py [--processes 2 4] [--layers 8]

A random Llama in float32 is loaded as the stage `rl` loads its policy, critic and reference under `strategy: fsdp` (rank 0 reads it, the others
have a skeleton until they get their shards), and as every process reads it whole. Counted is by how much the resident memory of a process
rises at most (VmHWM), from before the model is loaded until each process has its shards.

Prints a Markdown table in MB, with the weights' own size.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

os.environ.update({"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "HF_HUB_OFFLINE": "1"})
SHAPE = {"hidden_size": 512, "intermediate_size": 2048, "vocab_size": 8192}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", nargs="+", type=int, default=[2, 4])
    parser.add_argument("--layers", type=int, default=8)
    options = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent))
    import fgrl.training.strategies  # noqa: F401

    with tempfile.TemporaryDirectory(prefix="shard-loading-") as made:
        folder = Path(made)
        size = make(folder / "model", options.layers)
        print(
            f"Weights: {size / 1e6:.0f} MB.\n\n| processes | loaded by | rank 0 | others |\n| --: | :-- | --: | --: |"
        )
        for processes in options.processes:
            for skeletons in (False, True):
                rises = launch(folder, processes, skeletons)
                who = "rank 0" if skeletons else "every process"
                print(f"| {processes} | {who} | {rises[0] / 1e6:.0f} | {max(rises[1:]) / 1e6:.0f} |", flush=True)
    return 0


def make(path: Path, layers: int) -> int:
    """Save the model; return the bytes of its weights."""
    import torch
    from strategies import model_folder
    from transformers import AutoConfig, LlamaForCausalLM

    model_folder(path.parent).rename(path)
    config = AutoConfig.from_pretrained(path, trust_remote_code=False)
    for name, value in (SHAPE | {"num_hidden_layers": layers}).items():
        setattr(config, name, value)
    config.head_dim = SHAPE["hidden_size"] // config.num_attention_heads
    torch.manual_seed(0)
    net = LlamaForCausalLM(config)
    net.save_pretrained(path)
    return sum(parameter.numel() * parameter.element_size() for parameter in net.parameters())


def launch(folder: Path, processes: int, skeletons: bool) -> list[int]:
    """Return the rise of each process."""
    forks = multiprocessing.get_context("fork")
    told: Any = forks.Queue()
    store = folder / f"store-{processes}-{skeletons}"
    ranks = [
        forks.Process(target=work, args=(folder, store, rank, processes, skeletons, told)) for rank in range(processes)
    ]
    for rank in ranks:
        rank.start()
    rises = dict(told.get() for _ in ranks)
    for rank in ranks:
        rank.join()
    return [rises[rank] for rank in range(processes)]


def work(folder: Path, store: Path, rank: int, processes: int, skeletons: bool, told: Any) -> None:
    import torch
    from torch.distributed.device_mesh import init_device_mesh

    from fgrl import models
    from fgrl.kinds.specs import ModelSpec
    from fgrl.training import launching, shards, strategies

    torch.set_num_threads(1)
    launching.join(torch.device("cpu"), init_method=store.as_uri(), rank=rank, world_size=processes)
    Path("/proc/self/clear_refs").write_text("5")  # the peak is the present from here on
    before = resident("VmRSS")
    spec = ModelSpec(base=str(folder / "model"))
    model = models.load(spec, trainable=True, skeleton=skeletons and rank > 0)
    whole = model.state_dict() if skeletons else None
    strategies.shard(model, init_device_mesh("cpu", (processes,)), "32-true")
    if whole is not None:
        shards.hand_out(model, whole, torch.device("cpu"))
    told.put((rank, resident("VmHWM") - before))
    torch.distributed.barrier()


def resident(what: str) -> int:
    """Return bytes of this process."""
    (line,) = [each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith(what)]
    return int(line.split()[1]) * 1024


if __name__ == "__main__":
    sys.exit(main())
