"""The model card of an exported model: `card.md.j2`, filled with the facts that are known about the model.

Text of recipes and names of data are inserted as plain text: characters that Markdown or HTML would read as markup are
escaped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import fgrl
from fgrl.base import lazy
from fgrl.base.sanitizing import Sanitizer
from fgrl.base.visible import visible
from fgrl.exchange.publishing.exported import Exported
from fgrl.exchange.publishing.provenance import Provenance
from fgrl.measuring.statistics import Estimate
from fgrl.runs.reading import mapping
from fgrl.runs.results.text import number

huggingface_hub = lazy.load("huggingface_hub")

TEMPLATE = Path(__file__).with_name("card.md.j2")
PIPELINES = {"lm": "text-generation", "scalar": "text-classification", "token": "token-classification"}
_MARKUP = re.compile(r"([\\`*_\[\]<>|~#$])")


def text(
    exported: Exported, provenance: Provenance, *, recipe: str, title: str, license: str | None, sanitizer: Sanitizer,
    about: Mapping[str, Any], size: int,
) -> str:  # fmt: skip
    """Return the whole card, with its metadata. recipe: the resolved recipe as YAML, without paths and secrets; about:
    `fgrl.json`.
    """
    # `visible` may lengthen a text, but adds no backquote
    fence = "`" * max(3, 1 + max(map(len, re.findall(r"`+", recipe)), default=0))
    card = huggingface_hub.ModelCard.from_template(
        huggingface_hub.ModelCardData(**_metadata(exported, provenance, license)), template_path=str(TEMPLATE),
        title=title, version=fgrl.__version__, exported=exported, base=exported.base, provenance=provenance,
        names=provenance.names(), license=license, size=f"{size / 1e6:,.1f}", fence=fence, recipe=visible(recipe).rstrip(),
        segmenter=_named(about.get("segmenter")), aggregate=about.get("aggregate", "mean"), named=_named, summary=_summary,
        estimate=estimate,
        plain=lambda text: _plain(sanitizer.text(str(text))), code=lambda text: _inside_code(sanitizer.value(str(text))),
    )  # fmt: skip
    return f"{card}\n"


def _metadata(exported: Exported, provenance: Provenance, license: str | None) -> dict[str, Any]:
    base = exported.base
    algorithm = _named(provenance.stage.settings.get("algorithm")) if provenance.stage else None
    tags = ["fgrl", algorithm, "reward-model" if exported.head != "lm" else None]
    values: dict[str, Any] = {
        "library_name": "peft" if exported.form == "adapter" else "transformers",
        "pipeline_tag": PIPELINES[exported.head],
        "tags": [tag for tag in tags if tag],
        "datasets": provenance.datasets(),
        **({"license": license} if license else base.license if base else {}),
    }
    if base is not None and base.hub:
        relation = "adapter" if exported.form == "adapter" else "finetune"
        values |= {"base_model": base.hub, "base_model_relation": relation}
    return {name: value for name, value in values.items() if value}


def _named(value: Any) -> str | None:
    """Return the name of a component from a setting, which is the name alone or a mapping."""
    name = value if isinstance(value, str) else mapping(value).get("name")
    return name if isinstance(name, str) else None


def _summary(summary: Mapping[str, Any]) -> str:
    """Return the first plain numbers and words of a stage's summary."""
    plain = {name: value for name, value in summary.items() if type(value) in (int, float, str)}
    parts = [f"{name} {value if isinstance(value, str) else number(value)}" for name, value in plain.items()]
    return ", ".join(parts[:8])


def estimate(value: Estimate | None) -> str:
    """Return an estimate as `0.553 [0.44, 0.66]`; an empty cell for none."""
    if value is None:
        return ""
    if value.mean is None:
        return _plain(f"missing: {value.note}" if value.note else "missing")
    if value.low is None or value.high is None:
        return number(value.mean)
    return f"{number(value.mean)} [{number(value.low)}, {number(value.high)}]"


def _plain(text: str) -> str:
    """Return the text on one line in which nothing is markup."""
    return _MARKUP.sub(r"\\\1", visible(" ".join(text.split())))


def _inside_code(text: str) -> str:
    return visible(" ".join(text.split())).replace("`", "'").replace("|", "\\|")
