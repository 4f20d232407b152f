"""`save`: a model folder that transformers (and peft) can read too, described by `fgrl.json`."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from fgrl.base.errors import Stopped
from fgrl.base.files import write_json
from fgrl.models.finite import non_finite
from fgrl.models.language_model import NEWEST, LanguageModel
from fgrl.models.sources import Source, base_of, record_of
from fgrl.models.writing import write_weights


def save(model: LanguageModel, folder: Path, about: Mapping[str, Any]) -> None:
    """Write `model` into `folder`, created if missing. The caller writes into a folder beside the final place and
    renames it.

    The adapter alone (`adapter_model.safetensors`) is written if the model has one, all weights otherwise;
    `head.safetensors` for a scalar or token head; the tokenizer; `fgrl.json` with `about` and, under "model", the
    entries for `load`. An adapter's configuration names its base and its task, so that
    `peft.AutoPeftModelForCausalLM.from_pretrained(folder)` loads both.

    Raises `Stopped` for a weight that is not finite.
    """
    if "model" in about:
        raise ValueError('the key "model" of fgrl.json is taken')
    if broken := non_finite(model):
        raise Stopped(
            f"{len(broken)} weights of the model to save are not finite, the first of them {broken[0]}: nothing is saved. Look at the "
            "models that it was made of"
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_weights(model.net, folder, **({"selected_adapters": [NEWEST]} if model.adapted else {}))
    if model.number is not None:
        head = {name: value.detach().cpu().contiguous() for name, value in model.number.state_dict().items()}
        save_file(head, str(folder / "head.safetensors"))
    model.tokenizer.save_pretrained(folder)
    record: dict[str, Any] = {
        "head": model.head,
        "dtype": str(model.transformer.dtype).removeprefix("torch."),
        "eos_ids": sorted(model.eos_ids),
        "adapter": model.adapted,
        "spec": model.spec.model_dump(mode="json"),
    }
    if model.adapted:
        record["base"] = record_of(model.base, folder)
        _describe_adapter(model, folder)
    write_json(folder / "fgrl.json", {"model": record, **about}, indent=2)


def copy(source: Path, folder: Path) -> None:
    """Copy a folder that `save` wrote to another place, created if missing. Subfolders are left out; large files are
    shared on the disk if the file system supports hard links, and an adapter's base is also found from the new place.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for file in sorted(source.iterdir()):
        if file.is_file() and file.name != "fgrl.json":
            _link(file, folder / file.name)
    about = json.loads((source / "fgrl.json").read_text(encoding="utf-8"))
    if "base" in about["model"]:
        about["model"]["base"] = record_of(base_of(Source(str(source), local=True)), folder)
    write_json(folder / "fgrl.json", about, indent=2)


def _link(file: Path, target: Path) -> None:
    try:
        os.link(file, target)
    except OSError:  # another file system, or one without hard links
        shutil.copy2(file, target)


def _describe_adapter(model: LanguageModel, folder: Path) -> None:
    """Write into peft's configuration the entries that load the adapter without fgrl, and a model card that explains
    this.

    Not written: the base of an adapter that was trained on top of another one. peft would give both the same name, and
    the second would silently replace the first, so peft gets no base, and refuses.
    """
    file, base = folder / "adapter_config.json", model.base
    stacked = bool(base.saved_model().get("adapter"))
    config = json.loads(file.read_text(encoding="utf-8"))
    config |= {
        "base_model_name_or_path": None if stacked else base.name,
        "revision": base.revision,
        "task_type": "CAUSAL_LM" if model.number is None else "FEATURE_EXTRACTION",
    }
    if isinstance(config.get("target_modules"), list):
        config["target_modules"].sort()  # peft writes them in an order that varies
    file.write_text(json.dumps(config, indent=2, sort_keys=True), encoding="utf-8")
    name = base.name if not base.local else base.packaged or Path(base.name).name
    (folder / "README.md").write_text(_card(name, model.head, hub=not base.local, stacked=stacked), encoding="utf-8")


def _card(base: str, head: str, *, hub: bool, stacked: bool) -> str:
    """Return a model card that describes the contents of the folder and how to load it."""
    load = "AutoPeftModelForCausalLM" if head == "lm" else "AutoPeftModelForFeatureExtraction"
    about = [f"A LoRA adapter for `{base}`, trained with fgrl."]
    if stacked:
        about.append(
            "Its base is an adapter itself, which peft cannot load below another one: load it with `fgrl.models.load`."
        )
    else:
        about.append(f'```python\nfrom peft import {load}\n\nmodel = {load}.from_pretrained("<this folder>")\n```')
        if not hub:
            about.append(
                "`base_model_name_or_path` in `adapter_config.json` is the folder of the base; adjust it after a move."
            )
    if head != "lm":
        about.append(
            f"`head.safetensors` holds its {head} head, a linear layer on the last hidden states, which peft does not read."
        )
    front = ["library_name: peft", *([f"base_model: {base}"] if hub else [])]
    return "\n".join(["---", *front, "---", ""]) + "\n" + "\n\n".join(about) + "\n"
