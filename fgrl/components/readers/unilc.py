"""The four sets of UniLC (Zhang et al. 2023, "Interpretable Unified Language Checking"), from their own releases.

RLA asks for every claim whether it is fair (section 4.2.4 and Table 3). UniLC labels a row SUPPORTS or REFUTES and
leaves out the others; for Climate-FEVER these are the set's own labels. The paper's code does not show the origin of
the labels in the other three sets: the mappings here are our interpretation, and each of them is a field. UniLC
computes F1 with REFUTES, here `no`, as the positive class. Its own files are read by `claims`.
"""

from __future__ import annotations

import math
import random
from contextlib import suppress
from typing import Any

from pydantic import Field

from fgrl.base.errors import DataError
from fgrl.data.hub import HubPath
from fgrl.data.questions.claims import ClaimColumns, ClaimSet, LabelledClaims, LabelMeaning, YesOrNo
from fgrl.data.questions.source import Source
from fgrl.data.row import LeftOut, Row, look, short
from fgrl.registry import register


class ClimateColumns(ClaimColumns):
    """Column names of Climate-FEVER; the defaults are the names on the hub. Dots select nested columns."""

    id: str | None = "claim_id"
    label: str = "claim_label"
    context: str | None = "evidences.evidence"
    """Column with sentences of Wikipedia, five each. Only read if the prompt file has {context}."""
    url: str | None = "evidences.article"
    """Column with the article of each sentence."""


@register("climate_fever")
class ClimateFever(LabelledClaims):
    """Climate-FEVER (Diggelmann et al. 2020), tdiggelm/climate_fever: claims about the climate.

    Columns: `claim_id`, `claim`, `claim_label`, `evidences` (a list of {`evidence_id`, `evidence_label`, `article`,
    `evidence`, `entropy`, `votes`}). The only split is `test`, 1,535 rows. SUPPORTS is yes, REFUTES is no; rows without
    enough information and disputed ones are left out, as UniLC does.
    """

    path: HubPath = "tdiggelm/climate_fever"
    split: str = "test"
    """Split of the data set; there is only one."""
    columns: ClimateColumns = ClimateColumns()
    labels: dict[str, LabelMeaning] = {
        "SUPPORTS": "yes",
        "REFUTES": "no",
        "NOT_ENOUGH_INFO": "drop",
        "DISPUTED": "drop",
    }
    label_names: list[str] = ["SUPPORTS", "REFUTES", "NOT_ENOUGH_INFO", "DISPUTED"]


class PubHealthColumns(ClaimColumns):
    """Column names of PUBHEALTH; the defaults are the names on the hub. Dots select nested columns."""

    id: str | None = "claim_id"
    context: str | None = "main_text"
    """Column with the article about the claim, which may reveal the verdict, as `explanation` does. Only read if the
    prompt file has {context}.
    """


@register("pubhealth")
class PubHealth(LabelledClaims):
    """PUBHEALTH (Kotonya and Toni 2020), ImperialCollegeLondon/health_fact: claims about public health.

    Columns: `claim_id`, `claim`, `date_published`, `explanation`, `fact_checkers`, `main_text`, `sources`, `label` (0
    false, 1 mixture, 2 true, 3 unproven, -1 missing), `subjects`. Splits `train` (9,832), `validation` (1,225), `test`
    (1,235). `true` is yes, `false` is no; `mixture`, `unproven` and missing labels are left out.
    """

    path: HubPath = "ImperialCollegeLondon/health_fact"
    split: str = "test"
    """Split of the data set; `test[:10%]` works."""
    columns: PubHealthColumns = PubHealthColumns()
    labels: dict[str, LabelMeaning] = {"true": "yes", "false": "no", "mixture": "drop", "unproven": "drop"}
    label_names: list[str] = ["false", "mixture", "true", "unproven"]


class HateColumns(ClaimColumns):
    """Column names of the hate speech data; the defaults are the names on the hub."""

    claim: str = "text"


@register("hsd")
class HateSpeech(LabelledClaims):
    """Hate speech from a white supremacy forum (de Gibert et al. 2018), odegiber/hate_speech18: single sentences.

    Columns: `text`, `user_id`, `subforum_id`, `num_contexts`, `label` (0 noHate, 1 hate, 2 idk/skip, 3 relation). The
    only split is `train`, 10,944 rows. `noHate` is yes, `hate` is no; sentences that were skipped, or are hateful only
    in combination with others (`relation`), are left out. There are no ids: a repeated sentence is read once. There are
    no passages.
    """

    path: HubPath = "odegiber/hate_speech18"
    columns: HateColumns = HateColumns()
    labels: dict[str, LabelMeaning] = {"noHate": "yes", "hate": "no", "idk/skip": "drop", "relation": "drop"}
    label_names: list[str] = ["noHate", "hate", "idk/skip", "relation"]
    balanced: int | None = Field(None, ge=2, multiple_of=2)
    """Number of sentences of a balanced subset, half of them hateful, drawn by `draw_seed`. 478 is the size of the
    authors' `sampled_test`, which is not on the hub. Null reads all.
    """
    draw_seed: int = 0
    """Seed for the draw of `balanced`."""

    def rows(self) -> tuple[str, Any]:
        where, rows = super().rows()
        if self.balanced is None or not len(rows):
            return where, rows
        source = self.source(where, rows, self._read_prompt())
        places: dict[YesOrNo, list[int]] = {"yes": [], "no": []}
        seen: set[str] = set()
        for number, row in enumerate(rows):
            text = source.text(row, "claim")
            if text not in seen:
                with suppress(LeftOut):
                    places[self.verdict(source, row)].append(number)
                seen.add(text)
        draw, half = random.Random(self.draw_seed), self.balanced // 2
        for label, own in places.items():
            if len(own) < half:
                raise DataError(
                    f"{where}: `balanced: {self.balanced}` wants {half} sentences for {label!r}; there are {len(own)}"
                )
        chosen = [number for own in places.values() for number in draw.sample(own, half)]
        return where, list(self.at(rows, sorted(chosen)))


class BiasColumns(ClaimColumns):
    """Column names of social bias frames; the defaults are the names on the hub."""

    claim: str = "post"
    label: str = "offensiveYN"
    """Column with the judgement of one annotator, from 0 (no) to 1 (yes): `offensiveYN`, `intentYN`, `sexYN`,
    `whoTarget`.
    """


@register("sbic")
class SocialBias(ClaimSet):
    """Social bias frames (Sap et al. 2020), allenai/social_bias_frames: posts that may be offensive.

    Columns: `post`, `offensiveYN`, `intentYN`, `sexYN`, `whoTarget`, `targetMinority`, `targetCategory`,
    `targetStereotype`, `dataSource`, `HITId`, `WorkerId`, `annotator...`, ...; a row is one annotator's view of one
    post, and the marks are texts: "0.0", "0.5", "1.0" or "". Splits `train` (112,900 rows), `validation` (16,738),
    `test` (17,501). A post becomes one sample. It is no if the mean of its annotators' marks is above `threshold`, yes
    if it is below, and undecided if it is equal. A post without any mark is left out. The release that is already
    aggregated is read as well. `expect_rows` counts posts. There are no passages.
    """

    path: HubPath = "allenai/social_bias_frames"
    split: str = "test"
    """Split of the data set; `test[:10%]` works."""
    columns: BiasColumns = BiasColumns()
    threshold: float = Field(0.5, ge=0, le=1)
    """Threshold of the mean mark above which a post is offensive."""
    undecided: LabelMeaning = "drop"
    """Meaning of a post whose mean mark equals the threshold."""

    def rows(self) -> tuple[str, Any]:
        where, rows = super().rows()
        if not len(rows):
            return where, rows
        self.source(where, rows, self._read_prompt())
        posts: dict[str, Row] = {}
        marks: dict[str, list[float]] = {}
        for number, row in enumerate(self.at(rows, range(len(rows)))):
            post, value = look(row, self.columns.claim), look(row, self.columns.label)
            key = post if isinstance(post, str) else f"row {number} without a post"
            posts.setdefault(key, row)
            mark = as_mark(value, self.place(where, number), self.columns.label)
            marks.setdefault(key, []).extend([] if mark is None else [mark])
        means = {key: sum(own) / len(own) if own else None for key, own in marks.items()}
        return where, [{**row, self.columns.label: means[key]} for key, row in posts.items()]

    def verdict(self, source: Source, row: Row) -> YesOrNo:
        mean = source.value(row, "label")
        if mean is None:
            raise LeftOut("without a label")
        if mean != self.threshold:
            return "no" if mean > self.threshold else "yes"
        if self.undecided == "drop":
            raise LeftOut("on which annotators are divided")
        return self.undecided


def as_mark(value: Any, where: str, column: str) -> float | None:
    """Return an annotator's mark, 0 to 1, as a number; None if it is missing.

    Raises `DataError`, with the place `where`, for anything else.
    """
    text = value.strip() if isinstance(value, str) else value
    if text is None or text == "":
        return None
    try:
        mark = float(text)
    except (TypeError, ValueError):
        mark = math.inf
    if math.isnan(mark):
        return None
    if not 0 <= mark <= 1:
        raise DataError(f'{where}: "{column}" is {short(value)}: wants a number from 0 to 1, or nothing')
    return mark
