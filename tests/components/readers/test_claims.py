"""Claims, and the four sets of UniLC in the hub's columns."""

from __future__ import annotations

import math

import pytest
from datasets import ClassLabel, Features, Value
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from reading_helpers import PROMPTS, Folder, read

from fgrl.base.errors import DataError
from fgrl.components.readers.tables import Claims
from fgrl.components.readers.unilc import (
    BiasColumns,
    ClimateColumns,
    ClimateFever,
    HateSpeech,
    PubHealth,
    PubHealthColumns,
    SocialBias,
)
from fgrl.data.questions.claims import ClaimColumns, label_name
from fgrl.data.questions.shots import Shots

TEXT = Value("string")
CLIMATE = Features(
    {
        "claim_id": TEXT,
        "claim": TEXT,
        "claim_label": ClassLabel(names=["SUPPORTS", "REFUTES", "NOT_ENOUGH_INFO", "DISPUTED"]),
        "evidences": [
            {
                "evidence_id": TEXT,
                "evidence_label": ClassLabel(names=["SUPPORTS", "REFUTES", "NOT_ENOUGH_INFO"]),
                "article": TEXT,
                "evidence": TEXT,
                "entropy": Value("float32"),
                "votes": [TEXT],
            }
        ],
    }
)
HEALTH = Features(
    dict.fromkeys(("claim_id", "claim", "date_published", "explanation", "fact_checkers", "main_text", "sources"), TEXT)
    | {"label": ClassLabel(names=["false", "mixture", "true", "unproven"]), "subjects": TEXT}
)  # fmt: skip
HATE = Features(
    {"text": TEXT}
    | {name: Value("int64") for name in ("user_id", "subforum_id", "num_contexts")}
    | {"label": ClassLabel(names=["noHate", "hate", "idk/skip", "relation"])}
)
BIAS_NAMES = ["whoTarget", "intentYN", "sexYN", "sexReason", "offensiveYN", "annotatorGender", "annotatorMinority", "sexPhrase",
              "speakerMinorityYN", "WorkerId", "HITId", "annotatorPolitics", "annotatorRace", "annotatorAge", "post",
              "targetMinority", "targetCategory", "targetStereotype", "dataSource"]  # fmt: skip
BIAS = Features(dict.fromkeys(BIAS_NAMES, TEXT))
"""As the hub declares them."""

PROMPT, SEARCH = str(PROMPTS / "language_check.txt"), str(PROMPTS / "language_check_search.txt")


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


def climate(number, label):
    evidence = {"evidence_id": "Ice:1", "evidence_label": 0, "article": "Ice", "evidence": f"Ice melts {number}.",
                "entropy": 0.5, "votes": ["SUPPORTS", None]}  # fmt: skip
    return {"claim_id": str(number), "claim": f"Claim {number}.", "claim_label": label, "evidences": [evidence] * 2}


def health(number, label):
    return dict.fromkeys(HEALTH, "x") | {"claim_id": str(number), "claim": f"Claim {number}.", "label": label,
                                         "main_text": f"Article {number}."}  # fmt: skip


def hate(number, label):
    return {"text": f"Claim {number}.", "user_id": 1, "subforum_id": 2, "num_contexts": 0, "label": label}


SETS = {
    "climate_fever": (ClimateFever, CLIMATE, climate, ["SUPPORTS", "REFUTES", "NOT_ENOUGH_INFO", "DISPUTED"]),
    "pubhealth": (PubHealth, HEALTH, health, ["true", "false", "mixture", "unproven"]),
    "hsd": (HateSpeech, HATE, hate, ["noHate", "hate", "idk/skip", "relation"]),
}


@pytest.mark.parametrize("form", ["parquet", "names", "numbers"])
@pytest.mark.parametrize("name", SETS)
def test_a_set_becomes_yes_and_no(name, form, folder):
    reader, features, make, labels = SETS[name]
    rows = [make(number, label) for number, label in enumerate(labels)]
    if form == "parquet":
        where = folder.parquet(rows, features)
    else:
        column = "claim_label" if name == "climate_fever" else "label"
        if form == "numbers":
            rows = [row | {column: features[column].names.index(row[column])} for row in rows]
        where = folder.jsonl(rows)
    samples, said = read(reader(**where, prompt=PROMPT))
    assert [(sample.meta["claim"], sample.reference) for sample in samples] == [
        ("Claim 0.", ["yes"]),
        ("Claim 1.", ["no"]),
    ]
    assert [turn.role for turn in samples[0].prompt] == ["system", "user"]
    assert "Somebody said: Claim 0." in samples[0].prompt[1].content
    assert "left out 2 of 4 rows" in said[0]
    for label in labels[2:]:
        assert f"1 labelled {label!r}" in said[0]


@pytest.mark.parametrize("name", SETS)
def test_the_mapping_is_a_field(name, folder):
    reader, features, make, labels = SETS[name]
    where = folder.parquet([make(number, label) for number, label in enumerate(labels)], features)
    samples, _ = read(reader(**where, prompt=PROMPT, labels=dict.fromkeys(labels, "no") | {labels[3]: "yes"}))
    assert [sample.reference[0] for sample in samples] == ["no", "no", "no", "yes"]
    with pytest.raises(DataError, match=r"row 1: .*which is not in `labels`; it has other"):
        read(reader(**where, prompt=PROMPT, labels={"other": "yes"}))


def test_missing_labels_are_left_out(folder):
    rows = [health(0, "true"), health(1, -1), health(2, None)]
    samples, said = read(PubHealth(**folder.parquet(rows, HEALTH), prompt=PROMPT))
    assert [sample.id for sample in samples] == ["0"]
    assert "left out 2 of 3 rows: 2 without a label" in said[0]


def test_evidence_stands_for_a_search(folder):
    where = folder.parquet([climate(1, "SUPPORTS")], CLIMATE)
    (sample,), _ = read(ClimateFever(**where, prompt=SEARCH))
    assert sample.prompt[0].content.endswith("Search results:\n[1] (Ice) Ice melts 1.\n[2] (Ice) Ice melts 1.")
    assert sample.meta["passages"] == ["Ice", "Ice"]
    (sample,), _ = read(PubHealth(**folder.parquet([health(1, "true")], HEALTH), prompt=SEARCH))
    assert sample.prompt[0].content.endswith("Search results:\nArticle 1.")
    with pytest.raises(DataError, match=r"Set `columns.context`"):
        read(HateSpeech(**folder.parquet([hate(1, "hate")], HATE), prompt=SEARCH))


def test_a_sentence_without_an_id_is_read_once(folder):
    rows = [hate(1, "hate"), hate(1, "noHate"), hate(2, "noHate")]
    samples, said = read(HateSpeech(**folder.parquet(rows, HATE), prompt=PROMPT))
    assert [sample.reference[0] for sample in samples] == ["no", "yes"]
    assert "1 that repeat another" in said[0]


def test_a_balanced_draw_has_as_many_hateful_sentences_as_others(folder):
    """As the authors' `sampled_test`; the draw depends on its seed alone, and no sentence is drawn twice."""
    rows = [hate(n, "hate" if n % 4 == 0 else "noHate") for n in range(40)] + [hate(4, "noHate"), hate(50, "relation")]
    where = folder.parquet(rows, HATE)

    def drawn(**fields):
        return [
            (sample.meta["claim"], sample.reference[0])
            for sample in read(HateSpeech(**where, prompt=PROMPT, balanced=8, **fields))[0]
        ]

    found = drawn()
    assert len({claim for claim, _ in found}) == 8
    assert [answer for _, answer in found].count("no") == 4
    assert found == drawn()
    assert found != drawn(draw_seed=1)
    with pytest.raises(DataError, match="wants 20 sentences for 'no'; there are 10"):
        read(HateSpeech(**where, prompt=PROMPT, balanced=40))
    with pytest.raises(ValidationError, match="multiple of 2"):
        HateSpeech(**where, prompt=PROMPT, balanced=7)


def test_tab_separated_files(folder):
    file = folder.path / "test.tsv"
    file.write_text("\tclaim_id\tclaim\tlabel\n0\t15\tA, b.\tfalse\n1\t16\tC.\ttrue\n", encoding="utf-8")
    samples, _ = read(PubHealth(path="csv", files=[str(file)], separator="\t", prompt=PROMPT))
    assert [(sample.id, sample.meta["claim"], sample.reference) for sample in samples] == [
        ("15", "A, b.", ["no"]),
        ("16", "C.", ["yes"]),
    ]
    with pytest.raises(ValidationError, match="separator: goes with path: csv"):
        PubHealth(prompt=PROMPT, separator="\t")


# -- posts with several annotators -------------------------------------------------------------------------------------


def marked(post, mark, **more):
    return dict.fromkeys(BIAS_NAMES, "") | {"post": post, "offensiveYN": mark} | more


POSTS = [
    marked("a", "1.0"), marked("b", "0.0"), marked("a", "0.5"), marked("c", "1.0"), marked("c", "0.0"), marked("d", ""),
    marked("b", "0.5"), marked("e", ""), marked("e", "1.0"), marked("a", "0.0"), marked("a", "1.0"),
]  # fmt: skip


def test_a_post_is_one_sample_and_the_mean_of_its_marks_decides(folder):
    where = folder.parquet(POSTS, BIAS)
    samples, said = read(SocialBias(**where, prompt=PROMPT, expect_rows=5))
    assert [(sample.meta["claim"], sample.reference[0], sample.meta["label"]) for sample in samples] == [
        ("a", "no", 0.625),
        ("b", "yes", 0.25),
        ("e", "no", 1.0),
    ]
    assert "1 on which annotators are divided" in said[0]
    assert "1 without a label" in said[0]
    found = read(SocialBias(**where, prompt=PROMPT, undecided="no"))[0]
    assert [sample.reference[0] for sample in found] == ["no", "yes", "no", "no"]
    found = read(SocialBias(**where, prompt=PROMPT, threshold=0.7))[0]
    assert [sample.reference[0] for sample in found] == ["yes", "yes", "yes", "no"]


def test_marks_of_another_question_and_marks_as_numbers(folder):
    where = folder.jsonl(
        [{"post": "a", "intentYN": 1.0}, {"post": "b", "intentYN": None}, {"post": "a", "intentYN": 0.5}]
    )
    (sample,), _ = read(SocialBias(**where, prompt=PROMPT, columns=BiasColumns(label="intentYN")))
    assert (sample.reference, sample.meta["label"]) == (["no"], 0.75)


@pytest.mark.parametrize("mark", ["2.0", "maybe", "-1"])
def test_a_mark_that_is_none(mark, folder):
    with pytest.raises(DataError, match=r'row 2: "offensiveYN" is .*wants a number from 0 to 1, or nothing'):
        read(SocialBias(**folder.parquet([marked("a", "1.0"), marked("b", mark)], BIAS), prompt=PROMPT))


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["0.0", "0.5", "1.0", ""])), min_size=1, max_size=12))
def test_posts_are_counted_as_by_hand(marks):
    import datasets

    reader = SocialBias(prompt=PROMPT, bad_rows="drop")
    data = datasets.Dataset.from_list([marked(post, mark) for post, mark in marks], features=BIAS)
    object.__setattr__(reader, "_load", lambda: data)
    wanted = {}
    for post in dict.fromkeys(post for post, _ in marks):
        found = [float(mark) for name, mark in marks if name == post and mark]
        if found and sum(found) * 2 != len(found):
            wanted[post] = "no" if sum(found) * 2 > len(found) else "yes"
    if not wanted:
        with pytest.raises(DataError, match="can be used"):
            read(reader)
    else:
        assert {sample.meta["claim"]: sample.reference[0] for sample in read(reader)[0]} == wanted


# -- a table of one's own ----------------------------------------------------------------------------------------------


def test_the_files_that_unilc_released(folder):
    rows = [{"claim": f"Claim {n}.", "label": label} for n, label in enumerate(["SUPPORTS", "REFUTES"])]
    samples, _ = read(Claims(**folder.jsonl(rows), prompt=PROMPT))
    assert [sample.reference[0] for sample in samples] == ["yes", "no"]
    rows = [{"claim": f"Claim {n}.", "claim_label": label} for n, label in enumerate(["DISPUTED", "REFUTES"])]
    (sample,), _ = read(Claims(**folder.jsonl(rows), prompt=PROMPT, columns=ClaimColumns(label="claim_label")))
    assert sample.reference == ["no"]


def test_examples_of_claims(folder):
    rows = [{"claim": f"Claim {n}.", "label": label} for n, label in enumerate(["yes", "no"])]
    prompt = folder.prompt("{examples}\n\n{claim}")
    samples, _ = read(Claims(**folder.jsonl(rows), prompt=prompt, shots=Shots(count=1)))
    assert samples[0].prompt[0].content == "Somebody said: Claim 1.\nIs that a fair thing to say? no\n\nClaim 0."


@pytest.mark.parametrize(
    ("value", "wanted"),
    [(None, None), ("", None), (math.nan, None), (-1, None), (-1.0, None), (0, "a"), (1.0, "b"), (2, "2"), (True, "true"),
     (" a ", "a"), (0.5, "0.5")],
)  # fmt: skip
def test_names_of_labels(value, wanted):
    assert label_name(value, ["a", "b"]) == wanted


@pytest.mark.parametrize(
    ("reader", "row", "key"),
    [
        (ClimateFever, climate(1, 0), "claim_label"),
        (ClimateFever, climate(1, 0), "claim"),
        (PubHealth, health(1, 0), "label"),
        (HateSpeech, hate(1, 0), "text"),
        (SocialBias, marked("a", "1.0"), "post"),
        (SocialBias, marked("a", "1.0"), "offensiveYN"),
    ],
)
def test_a_missing_column_shows_the_first_row_and_the_key_to_set(reader, row, key, folder):
    role = "label" if key in ("claim_label", "label", "offensiveYN") else "claim"
    rest = {name: value for name, value in row.items() if name != key}
    with pytest.raises(
        DataError, match=rf'no column "{key}"(?s:.*)Set `columns.{role}` to the column of the {role}'
    ) as caught:
        read(reader(**folder.jsonl([rest]), prompt=PROMPT))
    for name in rest:
        assert f"\n  {name} " in str(caught.value)


def test_other_columns(folder):
    rows = [{"id": "7", "said": "X.", "verdict": "true", "found": {"text": ["One."], "from": ["here"]}}]
    columns = PubHealthColumns(id="id", claim="said", label="verdict", context="found.text", url="found.from")
    (sample,), _ = read(PubHealth(**folder.jsonl(rows), prompt=SEARCH, columns=columns))
    assert sample.prompt[0].content.endswith("[1] (here) One.")
    assert ClimateColumns().context == "evidences.evidence"
