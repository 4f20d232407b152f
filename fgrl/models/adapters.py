"""Loading of saved adapters, with a check of the weights in their folders."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import peft
from safetensors.torch import load_file

from fgrl.models import folders
from fgrl.models.finite import is_finite
from fgrl.models.pretrained import reading, refuse_others

SETTINGS, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"


def add(net: Any, folder: Path, name: str) -> Any:
    """Return `net` with the adapter of a folder added under the name `name`; its other adapters stay.

    Raises `DataError` for a folder without settings or weights, for weights that do not match the settings or `net`,
    and for numbers that are not finite.
    """
    if SETTINGS not in folders.read_settings(folder):
        raise folders.refusal(folder / SETTINGS, "no such file")
    folders.check_weights(folder, WEIGHTS)
    has = load_file(folder / WEIGHTS)
    refuse_others(folder, infinite=[key for key, weight in has.items() if weight.numel() and not is_finite(weight)])
    with warnings.catch_warnings(), reading(folder, SETTINGS):
        warnings.simplefilter("ignore")  # about names in transformers that peft uses, and what is refused below
        if not hasattr(net, "peft_config"):
            net = peft.PeftModel.from_pretrained(net, folder, adapter_name=name)
        found = net.load_adapter(folder, adapter_name=name)
    what = f"its {SETTINGS} on this base"
    missing = [key for key in found.missing_keys if name in key.split(".")]  # not those of adapters with a longer name
    refuse_others(folder, missing=missing, unexpected=found.unexpected_keys, what=what)
    return net
