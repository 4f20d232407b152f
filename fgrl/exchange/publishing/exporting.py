"""A trained model as a folder that loads anywhere, without fgrl: weights as safetensors, tokenizer, chat template, end
tokens, card.

Not exported: 4-bit weights. A model that was trained on such a base is merged into the base's own weights, as its card
says.
"""

from __future__ import annotations

import copy
import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml

import fgrl
from fgrl.base import files, lazy
from fgrl.base.errors import DataError, UsageError, disk_error
from fgrl.base.sanitizing import Sanitizer, is_path, last_part, parts, remember
from fgrl.exchange.publishing import card
from fgrl.exchange.publishing.exported import Exported
from fgrl.exchange.publishing.lineage import Lineage, base_model, lineage
from fgrl.exchange.publishing.provenance import Provenance
from fgrl.kinds.specs import HUB_ID, ModelSpec, names_folder
from fgrl.models.sources import Source
from fgrl.models.writing import write_weights
from fgrl.runs.reading import read_json

if TYPE_CHECKING:
    import torch
    import transformers

    from fgrl import models
    from fgrl.exchange.publishing import agreement
else:
    agreement = lazy.load("fgrl.exchange.publishing.agreement")
    models = lazy.load("fgrl.models")
    torch = lazy.load("torch")

MARKER = "fgrl_export.json"
"""File in every exported folder that describes the export and how it was checked."""
RECIPE = "recipe.yaml"
Dtype = Literal["float32", "bfloat16", "float16"]


@dataclass(frozen=True)
class Options:
    """Options of an export."""

    merge: bool = False
    """Export whole weights, even if the adapter alone is enough."""
    dtype: Dtype | None = None
    """Type of the weights; None: the type of the stage's weights, float32 for rewards."""
    base: str | None = None
    """Hub id of the model that training began with, if that was a folder."""
    license: str | None = None
    """License of the export, instead of the base's."""
    force: bool = False
    """True to replace an earlier export."""
    name: str | None = None
    """Title of the card; None: the name of the folder."""


def check_target(folder: Path, *, force: bool) -> None:
    """Raise `UsageError` if an export would remove files that no earlier export wrote, or an earlier export without
    `force`, or if the folder cannot be made.
    """
    try:
        exists, link, there = files.exists(folder), folder.is_symlink(), set(_names(folder))
        above = next(path for path in folder.absolute().parents if path.exists())
        with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", suffix=".partial", dir=above):
            pass
    except (OSError, ValueError) as error:  # a name too long, a file on the way, a NUL
        reason = getattr(error, "strerror", None) or error
        raise disk_error(error) or UsageError(
            f"{str(folder)[:200]}: no folder can be made there ({reason}): name another one"
        ) from None
    if link:
        raise UsageError(f"{folder} is a link: name the folder itself, {folder.resolve()}, or another one")
    if exists and not folder.is_dir():
        raise UsageError(f"{folder} is a file: name a folder that does not exist yet")
    if there and MARKER not in there:
        raise UsageError(
            f"{folder} is not empty, and it is not an earlier export (it has no {MARKER}): name a folder that does not exist yet"
        )
    if there and not force:
        raise UsageError(f"{folder} holds an earlier export: add --force to replace it, or name another folder")
    if others := sorted(there - {MARKER, *map(str, read_json(folder / MARKER, []).get("files") or [])}):
        more = f" and {len(others) - 3} more" if len(others) > 3 else ""
        raise UsageError(
            f"{folder} holds files that its export did not write, and --force would remove them: {', '.join(others[:3])}{more}; move "
            "them away, or name another folder"
        )


def _names(folder: Path) -> list[str]:
    """Return the files in a folder, and in the folders inside it."""
    return [file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_symlink() or not file.is_dir()]


def export(
    model: Path, folder: Path, provenance: Provenance | None = None, options: Options | None = None,
    say: Callable[[str], None] = lambda _text: None,
) -> Exported:  # fmt: skip
    """Write the model in the folder `model`, which `fgrl.models.save` wrote, to `folder`.

    The folder appears by rename, after the written files have been read back and compared with the stage's model.
    Weights are float32 if the stage's own type would lose what the training changed. Raises `DataError` if the two
    models differ, if an adapter's base is gone, and if the requested type would lose the training; `UsageError` for
    options that do not fit.
    """
    options, provenance = options or Options(), provenance or Provenance()
    if options.base is not None and (HUB_ID.fullmatch(options.base) is None or names_folder(options.base)):
        raise UsageError(f"--base {options.base}: wants the id of a model on the hub (OWNER/NAME), not a folder")
    check_target(folder, force=options.force)
    saved = Source(str(model), local=True).saved_model()
    head, origin = str(saved["head"]), lineage(model, provenance.chain)
    base, why = base_model(origin.root, options.base), _why_whole(saved, origin, options)
    alone = saved["adapter"] and why is None
    if alone and options.dtype is not None:
        raise UsageError("--dtype sets the type of merged weights, but only the adapter is exported: add --merge")
    if why:
        say(f"merging the adapter into the weights: {why}")

    # 1. what the stage's model answers
    answers = agreement.of_stage(model, head)
    folder.parent.mkdir(parents=True, exist_ok=True)
    for left in files.leftovers_of(folder):
        files.remove(left)
    with files.atomically(folder) as partial:
        partial.mkdir()
        # 2. weights, tokenizer, configuration
        if alone:
            dtype, loads = "float32", _write_adapter(model, partial, origin, options)
        else:
            dtype, loads = _write_weights(model, partial, saved, options, answers, say)
        _without_paths(partial)
        # 3. what others read of it
        say("comparing what was written with the stage's model")
        check = agreement.compare(answers, partial, head, origin.below)
        exported = Exported(
            folder, "adapter" if alone else "weights", head, dtype, why or "", loads, base, check,
            quantized=bool(saved["spec"].get("quantize")),
        )  # fmt: skip
        # 4. where it comes from
        _describe(partial, exported, provenance, options, saved, model)
    return exported


def _why_whole(saved: dict[str, Any], origin: Lineage, options: Options) -> str | None:
    """Return the reason to merge a stage's adapter into whole weights: "" on request, None if the adapter alone is
    exported (or there is none).
    """
    if not saved["adapter"]:
        return None
    if options.merge:
        return ""
    if origin.adapters > 1:
        return f"it is the last of {origin.adapters} stacked adapters, and peft loads only one"
    below = origin.below
    if below.saved_model():
        return "its base is the model of another stage, which exists only on this machine"
    if below.packaged is not None:
        return f"its base {below.packaged} comes in a Python package, so other tools cannot load it by name"
    if below.local and options.base is None:
        return (
            f"its base is the folder {Path(below.name).name} of this machine (--base OWNER/NAME names it on the hub, and the adapter "
            "alone is exported)"
        )
    return None


# -- weights -----------------------------------------------------------------------------------------------------------


def _write_adapter(model: Path, folder: Path, origin: Lineage, options: Options) -> str:
    """Write the adapter with its base's name on the hub. Returns the class that loads it."""
    from fgrl.models.pretrained import tokenizer_of

    for name in ("adapter_model.safetensors", "head.safetensors"):
        if (model / name).is_file():
            shutil.copyfile(model / name, folder / name)
    config = json.loads((model / "adapter_config.json").read_text(encoding="utf-8"))
    lm = not (model / "head.safetensors").is_file()
    below = origin.below
    config |= {
        "base_model_name_or_path": options.base if below.local else below.name,
        "revision": None if below.local else below.revision,
        "task_type": "CAUSAL_LM" if lm else "FEATURE_EXTRACTION",
    }
    files.write_json(folder / "adapter_config.json", config, indent=2)
    tokenizer_of(str(model), None).save_pretrained(folder)
    return "AutoPeftModelForCausalLM" if lm else "AutoPeftModelForFeatureExtraction"


def _write_weights(
    model: Path, folder: Path, saved: dict[str, Any], options: Options, answers: agreement.Answers, say: Callable[[str], None]
) -> tuple[str, str]:  # fmt: skip
    """Write whole weights: adapters are merged in float32, then everything is rounded once, which `answers` records.
    Returns the type of the weights, and the class that loads them.
    """
    head = str(saved["head"])
    dtype = options.dtype or ("float32" if head != "lm" else str(saved["dtype"]))
    # `trainable` without a new adapter is what merges those that the model has
    loaded = models.load(ModelSpec(base=str(model), dtype="float32", quantize="none"), head=head, trainable=True)
    if lost := agreement.round_merged(answers, loaded, dtype):
        if options.dtype is not None:
            raise DataError(f"{lost}; nothing was written: leave --dtype out, or set it to float32")
        say(f"{lost}: the weights are written in float32")
        return _write_weights(model, folder, saved, replace(options, dtype="float32"), answers, say)
    tokenizer, net = loaded.tokenizer, loaded.transformer if head == "lm" else _classifier(loaded)
    if head == "lm":
        net.generation_config = _generation_config(loaded)
    elif net.config.get_text_config().pad_token_id != tokenizer.pad_token_id:
        tokenizer.pad_token = tokenizer.convert_ids_to_tokens(net.config.get_text_config().pad_token_id)
    write_weights(net.to(getattr(torch, dtype)), folder)
    tokenizer.save_pretrained(folder)
    return dtype, agreement.CLASSES[head]


def _generation_config(model: models.LanguageModel) -> transformers.GenerationConfig:
    """Return the tokens that end an answer, as in training. The base's sampling settings are left out: the model was
    trained without them.
    """
    import transformers

    ends = sorted(model.eos_ids)
    ends.insert(0, ends.pop(ends.index(model.end_id)))
    return transformers.GenerationConfig(
        bos_token_id=model.tokenizer.bos_token_id, eos_token_id=ends, pad_token_id=model.pad_id
    )


def _classifier(model: models.LanguageModel) -> Any:
    """Return transformers' model with the same head: one number per sequence, read at its last token, or one per token.

    Raises `UsageError` for an architecture without such a model.
    """
    import transformers

    scalar, name = model.head == "scalar", agreement.CLASSES[model.head]
    trunk: Any = model.trunk
    config = copy.deepcopy(trunk.config)
    config.num_labels = 1
    config.get_text_config().pad_token_id = _padding(model)
    if scalar:
        config.problem_type = "regression"
    try:
        with torch.device("meta"):
            net = getattr(transformers, name).from_config(config, trust_remote_code=False)
    except ValueError:  # no such class for this architecture
        net = None
    score = getattr(net, "score", None)
    if (
        not isinstance(score, torch.nn.Linear)
        or (score.bias is None) != scalar
        or not hasattr(net, net.base_model_prefix)
    ):
        raise UsageError(
            f"transformers has no {name.removeprefix('AutoModelFor')} model of the architecture {config.model_type} whose head "
            "is one linear layer, so the reward model cannot be exported with whole weights. An adapter on a model of the hub is "
            "exported without --merge, with its head beside it"
        )
    assert model.number is not None
    weight, bias = model.number.weight.detach(), model.number.bias
    net.score.weight = torch.nn.Parameter(weight[None].clone())
    net.score.bias = None if bias is None else torch.nn.Parameter(bias.detach().reshape(1).clone())
    setattr(net, net.base_model_prefix, trunk)
    return net


def _padding(model: models.LanguageModel) -> int:
    """Return a token for padding that ends no text: the model is read at the last token that is not padding."""
    tokenizer = model.tokenizer
    for token in (tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.bos_token_id):
        if token is not None and token not in model.eos_ids:
            return int(token)
    raise UsageError(
        "every special token of this tokenizer can end a text, so there is none to pad with, and a padded text would be read at "
        "the wrong token: a reward model with this tokenizer cannot be exported with whole weights"
    )


# -- description -------------------------------------------------------------------------------------------------------


def _without_paths(folder: Path) -> None:
    """Keep only the last part of paths of this machine: libraries record the folders from which they loaded something."""
    for file in sorted(folder.glob("*config.json")):
        files.write_json(file, _cleaned(json.loads(file.read_text(encoding="utf-8"))), indent=2)


def _cleaned(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _cleaned(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    if isinstance(value, str) and is_path(value) and len(parts(value)) > 1:
        return last_part(value)
    return value


def _describe(
    folder: Path, exported: Exported, provenance: Provenance, options: Options, saved: dict[str, Any], model: Path
) -> None:
    """Write the recipe, the model card, and the marker of an export."""
    recipe = provenance.recipe() if provenance.chain else None
    remember(recipe)
    places = [stage.place.parent for stage in provenance.chain]
    sanitizer = Sanitizer(recipe, [*places, model, exported.folder.resolve().parent])
    text = "" if recipe is None else yaml.safe_dump(
        sanitizer.value(recipe), sort_keys=False, allow_unicode=True, width=110
    )  # fmt: skip
    if text:
        files.write_text(folder / RECIPE, text)
    about = json.loads((model / "fgrl.json").read_text(encoding="utf-8"))
    written = card.text(
        exported, provenance, recipe=text, title=options.name or exported.folder.resolve().name,
        license=options.license, sanitizer=sanitizer, about=about,
        size=sum(file.stat().st_size for file in folder.glob("*.safetensors")),
    )  # fmt: skip
    files.write_text(folder / "README.md", written)
    stage = provenance.stage
    marker = exported.as_json() | {
        "fgrl": fgrl.__version__, "stage": stage and stage.name, "key": stage and stage.key,
        "spec": sanitizer.value(saved["spec"]),
    }  # fmt: skip
    del marker["folder"]
    marker["files"] = sorted([*_names(folder), MARKER])
    files.write_json(folder / MARKER, sanitizer.value(marker), indent=2)
