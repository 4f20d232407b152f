"""The model card of an exported model: how to load it, what it was made from, what was measured, its license.

Text of recipes and names of data stand in it as text: what Markdown or HTML would take for markup is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import fgrl
from fgrl import lazy
from fgrl.evaluation.statistics import Estimate
from fgrl.publishing.exported import Exported
from fgrl.publishing.provenance import Input, MeasuredNumbers, Provenance
from fgrl.results.reading import mapping
from fgrl.results.stage_folder import StageFolder
from fgrl.sanitizing import Sanitizer, is_path, last_part
from fgrl.visible import visible

huggingface_hub = lazy.load("huggingface_hub")

PIPELINES = {"lm": "text-generation", "scalar": "text-classification", "token": "token-classification"}
_MARKUP = re.compile(r"([\\`*_\[\]<>|~#$])")


def text(
    exported: Exported, provenance: Provenance, *, recipe: str, title: str, license: str | None, sanitizer: Sanitizer,
    about: Mapping[str, Any], size: int,
) -> str:  # fmt: skip
    """Return the whole card, with its metadata. recipe: the resolved recipe as YAML, without paths and secrets; about:
    `fgrl.json`.
    """
    sections = [
        f"# {_plain(title)}",
        *_opening(exported, provenance, about, sanitizer),
        "## Use",
        _use(exported, title),
        *_training(exported, provenance, about, sanitizer),
        *_data(provenance, sanitizer),
        *_numbers(provenance, sanitizer),
        *_license(exported, license),
        "## What was checked",
        f"The exported folder was read back and compared with the stage's model in float32: {exported.check.in_words()}. Weights: "
        f"{exported.dtype}, {size / 1e6:,.1f} MB, safetensors.",
        *_recipe(recipe, provenance),
    ]
    data = huggingface_hub.ModelCardData(**_metadata(exported, provenance, license))
    content = f"---\n{data.to_yaml()}\n---\n\n" + "\n\n".join(sections) + "\n"
    return str(huggingface_hub.ModelCard(content))


def _metadata(exported: Exported, provenance: Provenance, license: str | None) -> dict[str, Any]:
    base = exported.base
    algorithm = _algorithm(provenance.stage) if provenance.stage else None
    values: dict[str, Any] = {
        "library_name": "peft" if exported.form == "adapter" else "transformers",
        "pipeline_tag": PIPELINES[exported.head],
        "tags": list(
            dict.fromkeys(filter(None, ["fgrl", algorithm, "reward-model" if exported.head != "lm" else None]))
        ),
        "datasets": provenance.datasets() or None,
        "base_model": base.hub if base else None,
    }
    if base is not None and base.hub:
        values["base_model_relation"] = "adapter" if exported.form == "adapter" else "finetune"
    values |= {"license": license} if license else dict(base.license) if base else {}
    return {name: value for name, value in values.items() if value}


def _opening(exported: Exported, provenance: Provenance, about: Mapping[str, Any], sanitizer: Sanitizer) -> list[str]:
    what = {
        "lm": "A language model",
        "scalar": "A reward model (one number per token; its number for a text is read at the last token)",
        "token": "A classifier of tokens (one logit per token)",
    }[exported.head]
    base = f" from `{exported.base.name}`" if exported.base else ""
    parts = [f"{what}, trained{base} with fgrl {fgrl.__version__}."]
    if provenance.about:
        parts.append(_plain(sanitizer.text(provenance.about)))
    if exported.head == "scalar" and about.get("segmenter"):
        name = mapping(about["segmenter"]).get("name", about["segmenter"])
        parts.append(
            f"In training it was read at the last token of every segment (segmenter `{name}`), and a response's score is the "
            f"{about.get('aggregate', 'mean')} of its segments' rewards. A text-classification pipeline reads the last token alone."
        )
    return parts


# -- use ---------------------------------------------------------------------------------------------------------------


def _use(exported: Exported, title: str) -> str:
    here = f'"{title}"  # this folder, or its id on the hub'
    if exported.form == "adapter":
        return _code(
            f"from peft import {exported.loads}\nfrom transformers import AutoTokenizer\n\n"
            f"name = {here}\nmodel = {exported.loads}.from_pretrained(name)\ntokenizer = AutoTokenizer.from_pretrained(name)"
        ) + ("" if exported.head == "lm" else f"\n\n{HEAD}")
    if exported.head != "lm":
        pooled = "logits[:, 0]" if exported.head == "scalar" else "logits[..., 0]"
        return _code(
            f"from transformers import {exported.loads}, AutoTokenizer\n\n"
            f"name = {here}\nmodel = {exported.loads}.from_pretrained(name)\ntokenizer = AutoTokenizer.from_pretrained(name)\n"
            'chat = [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]\n'
            'batch = tokenizer.apply_chat_template(chat, return_tensors="pt", return_dict=True)\n'
            f"reward = model(**batch).{pooled}"
        )
    return _code(
        "from transformers import pipeline\n\n"
        f'chat = pipeline("text-generation", model={title!r})  # this folder, or its id on the hub\n'
        'answer = chat([{"role": "user", "content": "Hello!"}], max_new_tokens=128, do_sample=True)'
    ) + "\n\n" + _code(f"vllm serve {title}", "sh")  # fmt: skip


HEAD = (
    "`head.safetensors` holds the head, a linear layer on the last hidden states that peft does not read: the reward of a token is "
    "`last_hidden_state @ weight` (`+ bias`, where there is one)."
)


def _code(text: str, language: str = "python") -> str:
    return f"```{language}\n{text}\n```"


# -- training ----------------------------------------------------------------------------------------------------------


def _training(
    exported: Exported, provenance: Provenance, about: Mapping[str, Any], sanitizer: Sanitizer
) -> Iterator[str]:
    yield "## Training"
    if not provenance.chain:
        yield "The folder of the stage that trained it was not available, so its recipe, data and numbers are not known here."
        return
    names = provenance.names()
    rows = [
        [
            _plain(names[stage.key]),
            _plain(_described(stage)),
            _plain(sanitizer.text(_summary(stage.record.summary))),
            f"`{stage.key}`",
        ]
        for stage in provenance.chain
    ]
    yield _table(["stage", "what", "result", "key"], rows)
    notes = [f"Seed {provenance.chain[-1].seed}."]
    versions = provenance.chain[-1].record.versions
    shown = [
        f"{name} {versions[name]}"
        for name in ("fgrl", "torch", "transformers", "peft", "lightning")
        if name in versions
    ]
    if shown:
        notes.append(f"Trained with {', '.join(shown)}.")
    if any(stage.record.limit is not None for stage in provenance.chain):
        notes.append("**A trial**: stages were run with `--limit`, on a few samples and steps only.")
    if exported.quantized and exported.form == "weights":
        notes.append(
            "It was trained on a base of 4 bits (nf4); here its adapter is merged into the base's own weights, so that its outputs "
            "differ a little from those in training."
        )
    if provenance.missing:
        notes.append(f"Stages whose folders are gone are missing here: {', '.join(map(_plain, provenance.missing))}.")
    yield " ".join(notes)


def _described(stage: StageFolder) -> str:
    algorithm = _algorithm(stage)
    reward = mapping(stage.settings.get("reward")).get("name") or stage.settings.get("reward")
    extra = [algorithm, f"reward {reward}" if isinstance(reward, str) else None]
    inside = ", ".join(filter(None, extra))
    return f"{stage.record.component} ({inside})" if inside else stage.record.component


def _algorithm(stage: StageFolder) -> str | None:
    value = stage.settings.get("algorithm")
    name = value if isinstance(value, str) else mapping(value).get("name")
    return name if isinstance(name, str) else None


def _summary(summary: Mapping[str, Any]) -> str:
    """Return the plain numbers and words of a stage's summary."""
    parts = []
    for name, value in summary.items():
        if isinstance(value, bool) or not isinstance(value, int | float | str):
            continue
        parts.append(f"{name} {_number(value) if not isinstance(value, str) else value}")
    return ", ".join(parts[:8])


def _data(provenance: Provenance, sanitizer: Sanitizer) -> Iterator[str]:
    inputs = provenance.inputs()
    for heading, what, listed in (
        ("## Data", "file or data set", [each for each in inputs if not each.is_code]),
        ("## Functions of the author", "function", [each for each in inputs if each.is_code]),
    ):
        if listed:
            yield heading
            yield _table([what, "part", "identity", "read by"], [_input_row(each, sanitizer) for each in listed])


def _input_row(read: Input, sanitizer: Sanitizer) -> list[str]:
    name = last_part(read.name) if not read.hub and is_path(read.name) else read.name
    shown = (
        f"[{_plain(name)}](https://huggingface.co/datasets/{name})"
        if read.hub
        else f"`{_inside_code(sanitizer.text(name))}`"
    )
    return [shown, _plain(read.part), f"`{_inside_code(read.identity)}`", _plain(f"{read.stage}.{read.setting}")]


# -- numbers -----------------------------------------------------------------------------------------------------------


def _numbers(provenance: Provenance, sanitizer: Sanitizer) -> Iterator[str]:
    yield "## Measured"
    if not provenance.measured:
        yield "No finished evaluation of this model was found beside its stage."
        return
    yield "Brackets are 95% confidence intervals over prompts, unless the recipe sets another level; differences are paired by prompt."
    for measured in provenance.measured:
        yield _heading(measured, sanitizer)
        with_base = any(base is not None for _measure, _own, base in measured.rows)
        names = ["number", measured.model, *([measured.baseline, "difference"] if with_base else [])]
        rows = []
        for measure, own, base in measured.rows:
            row = [_plain(str(measure.name)), estimate(own.value)]
            if with_base:
                row += [estimate(base.value if base else None), estimate(own.difference)]
            rows.append(row)
        yield _table([_plain(name) for name in names], rows)


def _heading(measured: MeasuredNumbers, sanitizer: Sanitizer) -> str:
    size = f", {measured.prompts:,} prompts" if measured.prompts else ""
    trial = f", a trial with --limit {measured.limit}" if measured.limit is not None else ""
    return _plain(sanitizer.text(f"Stage {measured.stage} of the recipe {measured.recipe}{size}{trial}:"))


def estimate(value: Estimate | None) -> str:
    """`0.553 [0.44, 0.66]`; an empty cell for none."""
    if value is None:
        return ""
    if value.mean is None:
        return _plain(f"missing: {value.note}" if value.note else "missing")
    if value.low is None or value.high is None:
        return _number(value.mean)
    return f"{_number(value.mean)} [{_number(value.low)}, {_number(value.high)}]"


def _number(value: float) -> str:
    if isinstance(value, int) or (abs(value) < 1e15 and value == int(value)):
        return f"{int(value):,}"
    return f"{value:.3g}"


# -- license and recipe ------------------------------------------------------------------------------------------------


def _license(exported: Exported, license: str | None) -> Iterator[str]:
    yield "## Base and license"
    base = exported.base
    parts = []
    if base is None:
        parts.append("The model that training began with is not known.")
    else:
        name = (
            f"[{base.hub}](https://huggingface.co/{base.hub})"
            if base.hub
            else f"`{_inside_code(base.name)}` (a folder)"
        )
        parts.append(f"Base: {name}{f' at revision `{base.revision}`' if base.revision else ''}. {base.note}".strip())
    named = license or (base.license.get("license_name") or base.license.get("license") if base else None)
    if license:
        parts.append(f"License: {_plain(license)}, as the person who exported it says.")
    elif named:
        parts.append(f"License of the base: {_plain(named)}. The data may carry separate conditions.")
    else:
        parts.append(
            "The license of the base was not found; fill in `license` above before you publish. The data may carry separate "
            "conditions."
        )
    yield " ".join(parts)


def _recipe(recipe: str, provenance: Provenance) -> Iterator[str]:
    if not recipe:
        return
    yield "## Recipe"
    own = " It uses code of its author's own files, which are not included." if provenance.own_code else ""
    yield f"`recipe.yaml` has the resolved settings of every stage; files are named without their folders.{own}"
    fence = "`" * max(3, 1 + max((len(run) for run in re.findall(r"`+", recipe)), default=0))
    yield f"<details><summary>recipe.yaml</summary>\n\n{fence}yaml\n{visible(recipe).rstrip()}\n{fence}\n\n</details>"


# -- Markdown ----------------------------------------------------------------------------------------------------------


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [list(head), ["---"] * len(head), *map(list, rows)]
    return "\n".join("| " + " | ".join(cell.replace("\n", " ") for cell in line) + " |" for line in lines)


def _plain(text: str) -> str:
    """Text on one line in which nothing is markup."""
    return _MARKUP.sub(r"\\\1", visible(" ".join(text.split())))


def _inside_code(text: str) -> str:
    return visible(" ".join(text.split())).replace("`", "'").replace("|", "\\|")
