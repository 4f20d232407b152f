"""Settings of the annotation page: the ones that come with fgrl, `extends`, mistakes with their places, what may be stored."""

from __future__ import annotations

from pathlib import Path

import pytest
from wording import said

from fgrl.feedback.page_settings import (
    OTHER,
    Attribute,
    Group,
    PageModes,
    PageSettings,
    Question,
    Reasons,
    Taxonomy,
    load_settings,
    shipped,
)
from fgrl.registry import Problems, Settings, undocumented

RETRIEVAL = load_settings("retrieval")


def own(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "page.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def refused(tmp_path: Path, text: str) -> str:
    with pytest.raises(Problems) as problems:
        load_settings(own(tmp_path, text))
    return str(problems.value)


MINIMAL = """\
taxonomy:
  likes: {lead: I like this because..., groups: [{title: All, attributes: [{id: kind, text: It is kind.}]}]}
  dislikes: {groups: [{title: All, attributes: [{id: rude, text: It is rude.}, {id: long, text: It is long.}]}]}
"""


def test_the_paper_has_20_attributes_for_likes_and_19_for_dislikes() -> None:
    assert RETRIEVAL.taxonomy is not None
    assert len(RETRIEVAL.taxonomy.likes.attributes) == 20
    assert len(RETRIEVAL.taxonomy.dislikes.attributes) == 19
    assert [group.title for group in RETRIEVAL.taxonomy.likes.groups] == [
        "Utility",
        "Where the information comes from",
        "What the span contributes",
        "Craft and style",
    ]
    assert len({text.lower() for text in RETRIEVAL.taxonomy.texts().values()}) == 39, "no attribute twice"


@pytest.mark.parametrize("name", shipped())
def test_shipped_settings_load_and_their_guidelines_fit_their_modes(name: str) -> None:
    settings = load_settings(name)
    text = " ".join(settings.guidelines.values())
    assert text
    assert ("drag" in text) == (settings.modes.spans != "none")
    assert ("tie" in text) == settings.modes.preference
    assert ("Tick as many" in text) == (settings.modes.reasons == "taxonomy" and settings.modes.spans != "none")
    assert ("no more." in text) == (settings.modes.most_spans is not None)
    assert ("both" in text) == (settings.modes.responses == 2)
    assert PageSettings.model_validate(settings.model_dump()) == settings


def test_every_way_of_the_paper_to_ask_is_shipped() -> None:
    modes = {name: load_settings(name).modes for name in shipped()}
    assert modes["retrieval_ab"].spans == "none"
    assert modes["retrieval_ab"].preference
    assert modes["retrieval_free_text"].reasons == "free_text"
    assert modes["retrieval_no_reasons"].reasons == "none"
    assert modes["retrieval_strongest"].most_spans == 2
    assert modes["retrieval_single"].responses == 1
    assert modes["retrieval_dislikes"].spans == "dislikes"
    assert (modes["retrieval"].spans, modes["retrieval"].responses, modes["retrieval"].tie) == ("both", 2, True)


@pytest.mark.parametrize("cls", [Attribute, Group, PageModes, PageSettings, Question, Reasons, Taxonomy])
def test_fields_are_documented(cls: type[Settings]) -> None:
    assert undocumented(cls) == []


def test_texts_for_a_rewriter_are_sentences() -> None:
    assert RETRIEVAL.taxonomy is not None
    texts = RETRIEVAL.taxonomy.texts()
    assert texts["useful_fact"] == "I like this because it states a useful fact."
    assert texts["disagree"] == "I dislike this because I just disagree with it."


def test_own_settings_extend_shipped_ones(tmp_path: Path) -> None:
    settings = load_settings(
        own(
            tmp_path,
            "extends: retrieval\nmodes: {tie: false}\nguidelines: {Overlapping passages: null, Last: Thanks.}\n",
        )
    )
    assert settings.taxonomy == RETRIEVAL.taxonomy
    assert settings.modes == RETRIEVAL.modes.model_copy(update={"tie": False})
    assert list(settings.guidelines) == [*(key for key in RETRIEVAL.guidelines if not key.startswith("Over")), "Last"]


def test_extends_is_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    own(tmp_path / "base", MINIMAL + "document: source\n")
    file = tmp_path / "other.yaml"
    file.write_text("extends: base/page.yaml\nmodes: {responses: 1, preference: false}\n")
    settings = load_settings(file)
    assert settings.document == "source"
    assert settings.taxonomy is not None
    assert [each.id for each in settings.taxonomy.dislikes.attributes] == ["rude", "long"]


def test_paragraphs_are_joined_and_separated(tmp_path: Path) -> None:
    settings = load_settings(own(tmp_path, MINIMAL + "guidelines:\n  A: |\n    one\n    two\n\n\n    three\n"))
    assert settings.guidelines == {"A": "one two\n\nthree"}


@pytest.mark.parametrize(
    "text",
    [
        "taxonomi: {}\n",
        "modes: {span: none}\n",
        "modes: {spans: dislike}\n",
        "modes: {responses: 1}\n",
        "modes: {responses: 3, preference: false}\n",
        "modes: {tie: no}\n",
        "modes: {spans: none, preference: false}\n",
        "questions: [{id: a, text: T, kind: tick}]\n",
        "questions: [{id: a, text: T, kind: text, options: [{id: b, text: B}]}]\n",
        "questions: [{id: a, text: T, kind: text}, {id: a, text: T, kind: text}]\n",
        "questions: [{id: 'A b', text: T, kind: text}]\n",
        "title: x\ntitle: y\n",
        "extends: retrievel\n",
        "extends: page.yaml\n",
    ],
)
def test_mistakes_are_reported_with_their_places(tmp_path: Path, text: str) -> None:
    message = refused(tmp_path, MINIMAL + text)
    said("annotate", f"settings {text!r}", message)


def test_ids_of_attributes_are_unique_over_both_sides(tmp_path: Path) -> None:
    message = refused(tmp_path, MINIMAL.replace("id: rude", "id: kind"))
    assert 'the id "kind" is taken by likes.groups.0.attributes.0.id' in message
    assert "page.yaml:3:" in message
    assert "the reason that the page adds by itself" in refused(tmp_path, MINIMAL.replace("id: rude", "id: other"))


def test_a_page_that_marks_spans_needs_a_taxonomy(tmp_path: Path) -> None:
    assert "modes.reasons: taxonomy needs a `taxonomy`" in refused(tmp_path, "title: T\n")
    assert load_settings(own(tmp_path, "modes: {reasons: free_text}\n")).taxonomy is None
    assert "empty" in refused(tmp_path, "") or "null" in refused(tmp_path, "")


@pytest.mark.parametrize(
    ("label", "reasons", "wrong"),
    [
        (1, ["useful_fact", OTHER], None),
        (-1, ["too_wordy"], None),
        (1, [], None),
        (1, ["too_wordy"], "reasons: no choice"),
        (-1, ["too_wordi"], 'did you mean "too_wordy"?'),
        (-1, ["too_wordy", "too_wordy"], "ticked twice"),
        (0.5, [], "label: wants 1 (like) or -1 (dislike)"),
        (True, [], "label: wants 1"),
    ],
)
def test_reasons_belong_to_the_label(label: object, reasons: list[str], wrong: str | None) -> None:
    message = RETRIEVAL.wrong_span(label, reasons, "")
    assert message is None if wrong is None else message is not None and wrong in message


def test_modes_limit_what_may_be_stored() -> None:
    assert load_settings("retrieval_dislikes").wrong_span(1, [], "") == "label: this page marks dislikes only"
    assert load_settings("retrieval_ab").wrong_span(-1, [], "") == "this page marks no spans"
    assert "write the reason as the note" in str(load_settings("retrieval_free_text").wrong_span(1, ["engaging"], ""))
    assert load_settings("retrieval_no_reasons").wrong_span(1, [], "") is None
    assert load_settings("retrieval_no_reasons").wrong_span(1, [], "why") == "reasons: this page asks for no reasons"
    assert load_settings("retrieval_free_text").wrong_verdict(0, "", 2) == "this page asks for no preference"


@pytest.mark.parametrize(
    ("answers", "wrong"),
    [
        ({"liked": ["clear"], "comment": "fine"}, None),
        ({"lked": []}, 'did you mean "liked"?'),
        ({"liked": "clear"}, "wants a list"),
        ({"liked": ["unclear"]}, "no choice"),
        ({"comment": ["x"]}, "comment: wants a text"),
    ],
)
def test_answers_fit_their_questions(answers: dict[str, object], wrong: str | None) -> None:
    message = RETRIEVAL.wrong_answers(answers)
    assert message is None if wrong is None else message is not None and wrong in message


@pytest.mark.parametrize(
    ("better", "reason", "wrong"),
    [(0, "r", None), (None, "r", None), (2, "r", "from 0 to 1"), (True, "r", "from 0 to 1"), (0, None, "wants a text")],
)
def test_a_verdict_names_a_place(better: object, reason: object, wrong: str | None) -> None:
    message = RETRIEVAL.wrong_verdict(better, reason, 2)
    assert message is None if wrong is None else message is not None and wrong in message


def test_what_an_item_lacks() -> None:
    assert RETRIEVAL.missing([(0, ["engaging"], "")], {}, (0, "clear"), 2) == []
    assert RETRIEVAL.missing([], {}, None, 2) == ["no response is preferred"]
    assert RETRIEVAL.missing([], {}, (None, " "), 2) == ["the preference has no reason"]
    spans = [(0, [], " "), (0, [], ""), (1, [OTHER], ""), (1, [OTHER], "said"), (1, [], "said")]
    assert RETRIEVAL.missing(spans, {}, (0, "r"), 2) == [
        "2 marked spans have no reason",
        "1 span has Other ticked without a description",
    ]
    assert load_settings("retrieval_no_reasons").missing(spans[:2], {}, (0, "r"), 2) == []
    assert load_settings("retrieval_strongest").missing(
        [(place, ["engaging"], "") for place in (0, 0, 1, 1, 1)], {}, (0, "r"), 2
    ) == ["a response has 3 marked spans, and at most 2 are wanted"]
    required = RETRIEVAL.model_copy(
        update={"questions": [question.model_copy(update={"required": True}) for question in RETRIEVAL.questions[:1]]}
    )
    assert required.missing([], {0: {"liked": ["clear"]}}, (0, "r"), 2) == [
        '"What do you like about this response as a whole?" is not answered for every response'
    ]
    assert required.missing([], {0: {"liked": ["clear"]}, 1: {"liked": ["clear"]}}, (0, "r"), 2) == []
