"""Settings of the annotation page: reasons to tick, questions, guidelines, and the parts of the page that are shown."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from fgrl.feedback.suggestions import Suggestion, suggested
from fgrl.registry import Settings, unknown
from fgrl.registry.settings_file import Shelf, extended, read_settings
from fgrl.types import Sample

SHIPPED = Shelf(Path(__file__).parent / "taxonomies")
"""Folder of the settings that come with fgrl."""
LONGEST_NOTE = 20_000
"""Maximum number of characters of a free text."""
OTHER = "other"
"""Reason for a span that fits none of the attributes; the span's note describes it."""
_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")

Label = Literal[1, -1]


class Attribute(Settings):
    """A reason or option that can be ticked."""

    id: str
    """Identifier that is stored: lower-case letters, digits, _ and -. Never change it after annotation has begun."""
    text: str = Field(min_length=1)
    """Text that the annotator reads."""

    @field_validator("id")
    @classmethod
    def _usable(cls, value: str) -> str:
        return _checked_id(value)


class Group(Settings):
    """Attributes that stand together under a title."""

    title: str = Field(min_length=1)
    """Title above the attributes."""
    attributes: list[Attribute] = Field(min_length=1)
    """Attributes in the order in which they are shown."""


class Reasons(Settings):
    """The reasons of one kind of span (liked or disliked)."""

    lead: str = ""
    """Beginning of the sentence that every attribute completes, e.g. "I like this because..."."""
    groups: list[Group] = Field(min_length=1)
    """Groups of attributes. The page adds "Other", with a text field."""
    other: str = Field("Describe your reason.", min_length=1)
    """Instruction for the annotator who ticks "Other"."""

    @property
    def attributes(self) -> list[Attribute]:
        """Return the attributes of all groups, in order."""
        return [attribute for group in self.groups for attribute in group.attributes]


class Taxonomy(Settings):
    """Reasons for liking and for disliking a span."""

    likes: Reasons
    """Reasons of spans with the label +1."""
    dislikes: Reasons
    """Reasons of spans with the label -1."""

    @model_validator(mode="after")
    def _unique(self) -> Taxonomy:
        sides = {"likes": self.likes, "dislikes": self.dislikes}
        _check_unique(
            (f"{side}.groups.{i}.attributes.{j}.id", attribute.id)
            for side, reasons in sides.items()
            for i, group in enumerate(reasons.groups)
            for j, attribute in enumerate(group.attributes)
        )
        return self

    def of(self, label: float) -> Reasons:
        """Return the reasons of a span with this label: above 0 those for liking, else those for disliking."""
        return self.likes if label > 0 else self.dislikes

    def texts(self) -> dict[str, str]:
        """Return the text of every attribute by its id, after the lead of its side, as a prompt for a rewriter shows
        it.
        """
        return {
            attribute.id: _completed(reasons.lead, attribute.text)
            for reasons in (self.likes, self.dislikes)
            for attribute in reasons.attributes
        }


class Question(Settings):
    """A question about a whole response."""

    id: str
    """Key of the answer to the question: lower-case letters, digits, _ and -."""
    text: str = Field(min_length=1)
    """The question."""
    kind: Literal["tick", "text"]
    """`tick`: any number of the options, stored as a list of their ids; `text`: free text."""
    options: list[Attribute] = []
    """Options of a `tick` question."""
    required: bool = False
    """True if an item cannot be finished without an answer."""

    @field_validator("id")
    @classmethod
    def _usable(cls, value: str) -> str:
        return _checked_id(value)

    @model_validator(mode="after")
    def _options_where_ticked(self) -> Question:
        if self.kind == "tick" and not self.options:
            raise ValueError("options: a question of kind tick needs at least one: {id: ..., text: ...}")
        if self.kind == "text" and self.options:
            raise ValueError("options: a question of kind text has none; set `kind: tick` or remove them")
        _check_unique((f"options.{number}.id", option.id) for number, option in enumerate(self.options))
        return self


class PageModes(Settings):
    """Parts of the page that are shown."""

    spans: Literal["both", "dislikes", "none"] = "both"
    """Spans that can be marked; `none`: only the preference and the questions."""
    responses: Literal[1, 2] = 2
    """Number of responses per item: two side by side, or one alone."""
    reasons: Literal["taxonomy", "free_text", "none"] = "taxonomy"
    """Reasons of a span: attributes to tick with a free text, a free text alone (before there is a taxonomy), or no
    reasons.
    """
    most_spans: int | None = Field(None, ge=1)
    """Upper bound on the marked spans of a response, to get only the strongest ones."""
    preference: bool = True
    """Ask which of the two responses is better."""
    preference_reason: bool = True
    """True if an item cannot be finished without a reason for the preference."""
    tie: bool = True
    """Offer "tie" as a third choice."""
    suggestions: bool = False
    """Show the spans of annotations by a model or a rule that the samples already have, for the annotator to accept or
    reject.
    """


class PageSettings(Settings):
    """Settings of the annotation page, read from a YAML file by `load_settings`."""

    title: str = Field("Annotation", min_length=1)
    """Title of the page."""
    taxonomy: Taxonomy | None = None
    """Reasons for liking and for disliking a span; required if spans are marked with `modes.reasons: taxonomy`."""
    questions: list[Question] = []
    """Questions about each response as a whole."""
    guidelines: dict[str, str] = {}
    """Instructions for annotators, by title, in the order in which they are shown. Plain text; blank lines separate
    paragraphs.
    """
    modes: PageModes = PageModes()
    """Parts of the page that are shown."""
    markdown: bool = True
    """Show Markdown with its formatting (headings, lists, bold text). Offsets of spans still refer to the Markdown
    source.
    """
    document: str = "document"
    """Entry of a sample's `meta` that holds the knowledge source; a sample without it is shown without one."""
    query: str = "question"
    """Entry of a sample's `meta` that annotators read as the query if the prompt holds more than the query, as the
    reader `with_prompt` stores it. A sample without this entry is shown with its prompt.
    """
    domain: str = "domain"
    """Entry of a sample's `meta` that holds its domain; statistics are grouped by it."""

    @field_validator("guidelines")
    @classmethod
    def _paragraphs(cls, value: dict[str, str]) -> dict[str, str]:
        return {title: "\n\n".join(_paragraphs(text)) for title, text in value.items()}

    @model_validator(mode="after")
    def _consistent(self) -> PageSettings:
        modes = self.modes
        if modes.spans != "none" and modes.reasons == "taxonomy" and self.taxonomy is None:
            raise ValueError("modes.reasons: taxonomy needs a `taxonomy`; or set `modes: {reasons: free_text}`")
        if modes.spans == "none" and modes.most_spans is not None:
            raise ValueError("modes.most_spans: this page marks no spans (modes.spans: none)")
        if modes.spans == "none" and modes.suggestions:
            raise ValueError("modes.suggestions: this page marks no spans (modes.spans: none)")
        if modes.responses == 1 and modes.preference:
            raise ValueError("modes.responses: 1 leaves nothing to compare: set `modes: {preference: false}` as well")
        if modes.spans == "none" and not modes.preference and not self.questions:
            raise ValueError(
                "modes.spans: none, without a preference and without questions, leaves nothing to annotate"
            )
        _check_unique((f"questions.{number}.id", question.id) for number, question in enumerate(self.questions))
        return self

    def suggestions(self, sample: Sample, shown: Iterable[int]) -> dict[str, dict[str, Any]]:
        """Return the spans that the page suggests, by their keys, in the form in which the annotator's own spans are
        stored.

        shown: places of the responses that the page shows.
        """
        if not self.modes.suggestions:
            return {}
        places, found = set(shown), {}
        for key, own in suggested(sample).items():
            if own.place not in places or (own.label > 0 and self.modes.spans == "dislikes"):
                continue
            start, end = own.span.start, own.span.end
            quote, reasons, note = sample.responses[own.place].text[start:end], *self._reasons(own)
            found[key] = {"place": own.place, "start": start, "end": end, "quote": quote, "label": own.label}
            found[key] |= {"reasons": reasons, "note": note}
        return found

    def _reasons(self, own: Suggestion) -> tuple[list[str], str]:
        """Return reasons and note; reasons that this page does not know become part of the note."""
        if self.modes.reasons == "none":
            return [], ""
        ticked = self.taxonomy.of(own.label).attributes if self.modes.reasons == "taxonomy" and self.taxonomy else []
        known = [attribute.id for attribute in ticked]
        reasons = [name for name in own.span.reasons if name in known]
        rest = [name for name in own.span.reasons if name not in (*known, OTHER)]
        note = "; ".join([*rest, *filter(None, [own.span.note])])
        return ([*reasons, OTHER] if note and known else reasons), note

    # ----- what annotators may store; each returns what is wrong in a sentence, or None -----------------------------------

    def wrong_span(self, label: object, reasons: Sequence[str], note: str) -> str | None:
        """Return the mistake in a span's label, reasons and note; None if they are valid. A span without any reason is
        a draft: it may be stored, and `missing` reports it.
        """
        if self.modes.spans == "none":
            return "this page marks no spans"
        if label not in (1, -1) or isinstance(label, bool):
            return f"label: wants 1 (like) or -1 (dislike), got {label!r}"
        if label == 1 and self.modes.spans == "dislikes":
            return "label: this page marks dislikes only"
        if self.modes.reasons == "none":
            return "reasons: this page asks for no reasons" if reasons or note else None
        if self.modes.reasons == "free_text" or self.taxonomy is None:
            return "reasons: this page has no attributes; write the reason as the note" if reasons else None
        known = [attribute.id for attribute in self.taxonomy.of(float(label)).attributes] + [OTHER]
        return _wrong_choice("reasons", reasons, known)

    def wrong_answers(self, answers: Mapping[str, Any]) -> str | None:
        """Return the mistake in the answers about one response, by question; None if they are valid."""
        questions = {question.id: question for question in self.questions}
        for name, value in answers.items():
            question = questions.get(name)
            if question is None:
                return unknown("question", name, list(questions))
            if question.kind == "text":
                if not isinstance(value, str):
                    return f"{name}: wants a text"
                if len(value) > LONGEST_NOTE:
                    return f"{name}: wants at most {LONGEST_NOTE} characters, got {len(value)}"
            elif not isinstance(value, list) or not all(isinstance(item, str) for item in value):
                return f"{name}: wants a list of the ids that are ticked"
            elif wrong := _wrong_choice(name, value, [option.id for option in question.options]):
                return wrong
        return None

    def wrong_verdict(self, better: object, reason: object, places: int) -> str | None:
        """Return the mistake in a preference; None if it is valid. `better` is the place of a response, or None for a
        tie.
        """
        if not self.modes.preference:
            return "this page asks for no preference"
        if not isinstance(reason, str):
            return "reason: wants a text"
        if better is None:
            return None if self.modes.tie else "better: this page allows no tie"
        if not isinstance(better, int) or isinstance(better, bool) or not 0 <= better < places:
            return f"better: wants the place of a response from 0 to {places - 1}, or null for a tie"
        return None

    def missing(
        self,
        spans: Iterable[tuple[int, Sequence[str], str]],
        answers: Mapping[int, Mapping[str, Any]],
        verdict: tuple[int | None, str] | None,
        places: int,
    ) -> list[str]:
        """Return what an item lacks before it can be finished, in sentences; empty if nothing is missing.

        spans: (place of the response, reasons, note) of each span that is not deleted; answers: answers by place of the
        response; verdict: (better, reason).
        """
        wanted = []
        spans = list(spans)
        without = sum(not reasons and not note.strip() for _place, reasons, note in spans)
        if without and self.modes.reasons != "none":
            wanted.append(f"{without} marked span{'s have' if without > 1 else ' has'} no reason")
        marked = max(Counter(place for place, _reasons, _note in spans).values(), default=0)
        if self.modes.most_spans is not None and marked > self.modes.most_spans:
            wanted.append(f"a response has {marked} marked spans, and at most {self.modes.most_spans} are wanted")
        if untold := sum(OTHER in reasons and not note.strip() for _place, reasons, note in spans):
            wanted.append(f"{untold} span{'s have' if untold > 1 else ' has'} Other ticked without a description")
        for question in self.questions:
            lacking = [place for place in range(places) if _empty(answers.get(place, {}).get(question.id))]
            if question.required and lacking:
                wanted.append(f'"{question.text}" is not answered for every response')
        if self.modes.preference:
            if verdict is None:
                wanted.append("no response is preferred")
            elif self.modes.preference_reason and not verdict[1].strip():
                wanted.append("the preference has no reason")
        return wanted


def load_settings(source: str | Path) -> PageSettings:
    """Return the settings of a YAML file, or of a file that comes with fgrl (`retrieval`, `retrieval_ab`, ...; see
    `shipped`).

    A file may begin with `extends: retrieval` (or with another file): mappings merge deeply, anything else replaces,
    and null drops an entry. Raises `Problems` with the place of every mistake.
    """
    return read_settings(PageSettings, str(source), SHIPPED)


def extended_by(source: str | Path) -> list[Path]:
    """Return the files that a file of settings extends, the nearest first."""
    return extended(str(source), SHIPPED)


def shipped() -> list[str]:
    """Return the names of the settings that come with fgrl."""
    return SHIPPED.names


def _paragraphs(text: str) -> list[str]:
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", text) if part.strip()]


def _completed(lead: str, text: str) -> str:
    """Return the sentence that a lead begins and an attribute completes."""
    lead = lead.rstrip(" .…")
    if not lead:
        return text
    return f"{lead} {text if text[:2].isupper() or text[1:2] == ' ' else text[:1].lower() + text[1:]}"


def _empty(answer: Any) -> bool:
    return not (answer.strip() if isinstance(answer, str) else answer)


def _checked_id(value: str) -> str:
    if not _ID.fullmatch(value):
        raise ValueError(f'"{value}" cannot be an id; use at most 64 lower-case letters, digits, _ and -')
    if value == OTHER:
        raise ValueError(f'"{OTHER}" is the id of the reason that the page adds by itself; choose another')
    return value


def _check_unique(places: Iterable[tuple[str, str]]) -> None:
    """Raise ValueError at the second place of an id."""
    first: dict[str, str] = {}
    for place, name in places:
        if name in first:
            raise ValueError(f'{place}: the id "{name}" is taken by {first[name]}; every id must be unique')
        first[name] = place


def _wrong_choice(what: str, given: Sequence[str], known: Sequence[str]) -> str | None:
    for name in given:
        if name not in known:
            return f"{what}: {unknown('choice', str(name), known)}"
    return f"{what}: a choice is ticked twice" if len(set(given)) < len(given) else None
