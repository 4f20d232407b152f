"""MS MARCO in the hub's columns, and the rules that all sets of questions share."""

from __future__ import annotations

import pytest
from datasets import Features, Sequence, Value
from pydantic import ValidationError
from reading_helpers import PROMPTS, Folder, read

from fgrl.base.errors import DataError
from fgrl.components.readers.ms_marco import MsMarco, MsMarcoColumns
from fgrl.components.readers.tables import Questions
from fgrl.data.questions.answered import QuestionColumns
from fgrl.kinds import Expected, Reader
from fgrl.kinds.reader import expected
from fgrl.registry import Context, Problems, build, dump
from fgrl.types import Message

FEATURES = Features(
    {
        "answers": Sequence(Value("string")),
        "passages": Sequence({"is_selected": Value("int32"), "passage_text": Value("string"), "url": Value("string")}),
        "query": Value("string"),
        "query_id": Value("int32"),
        "query_type": Value("string"),
        "wellFormedAnswers": Sequence(Value("string")),
    }
)
"""As `microsoft/ms_marco`, v2.1, declares them."""

PLAIN, SEARCH = str(PROMPTS / "rla_answer.txt"), str(PROMPTS / "rla_answer_search.txt")


def row(number=1, answers=("Paris", "The city of Paris"), query=None, well_formed=(), passages=None):
    if passages is None:
        passages = [
            (0, f"Lyon\n is {number} big.", "https://a.org/lyon"),
            (1, "Paris is the capital.", "https://b.org"),
        ]
    return {
        "answers": list(answers),
        "passages": {
            "is_selected": [mark for mark, _, _ in passages],
            "passage_text": [text for _, text, _ in passages],
            "url": [url for _, _, url in passages],
        },
        "query": query or f"what is the capital of country {number}",
        "query_id": 1000 + number,
        "query_type": "LOCATION",
        "wellFormedAnswers": list(well_formed),
    }


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


@pytest.fixture
def marco(folder):
    """A reader of rows in the hub's types."""

    def make(*rows, prompt=PLAIN, **fields):
        return MsMarco(**folder.parquet(list(rows), FEATURES), prompt=prompt, **fields)

    return make


# -- a row becomes a sample --------------------------------------------------------------------------------------------


def test_a_row_without_search(marco):
    (sample,), said = read(marco(row()))
    assert sample.id == "1001"
    assert [turn.role for turn in sample.prompt] == ["system", "user"]
    assert sample.prompt[1] == Message(role="user", content="Question: what is the capital of country 1")
    assert sample.reference == ["Paris", "The city of Paris"]
    assert sample.meta == {"question": "what is the capital of country 1", "kind": "LOCATION"}
    assert said == []
    assert "Lyon" not in sample.prompt[0].content


def test_a_row_with_search_shows_the_passages_and_says_which(marco):
    (sample,), _ = read(marco(row(), prompt=SEARCH))
    assert (
        "[1] (https://a.org/lyon) Lyon is 1 big.\n[2] (https://b.org) Paris is the capital." in sample.prompt[0].content
    )
    assert sample.meta["passages"] == ["https://a.org/lyon", "https://b.org"]


def test_what_is_shown_of_a_search_can_be_limited(marco):
    def context(**fields):
        (sample,), _ = read(marco(row(), prompt=SEARCH, show_urls=False, **fields))
        return sample.prompt[0].content.partition("Search results:\n")[2]

    assert context() == "[1] Lyon is 1 big.\n[2] Paris is the capital."
    assert context(max_passages=1) == "[1] Lyon is 1 big."
    assert context(passage_words=2) == "[1] Lyon is…\n[2] Paris is…"
    assert context(selected_only=True) == "[1] Paris is the capital."


def test_the_original_form_with_a_list_of_passages_and_a_text_for_no_well_formed_answers(folder):
    one = row()
    one["passages"] = [
        {"is_selected": mark, "passage_text": text, "url": "u"} for mark, text in [(0, "First."), (1, "Second.")]
    ]
    one["wellFormedAnswers"] = "[]"
    reader = MsMarco(**folder.jsonl([one]), prompt=SEARCH, selected_only=True, well_formed="prefer")
    (sample,), _ = read(reader)
    assert sample.prompt[0].content.endswith("[1] (u) Second.")
    assert sample.reference == ["Paris", "The city of Paris"]


@pytest.mark.parametrize(
    ("well_formed", "wanted"), [("ignore", ["Rome"]), ("prefer", ["It is Rome."]), ("add", ["It is Rome.", "Rome"])]
)
def test_well_formed_answers(well_formed, wanted, marco):
    samples, _ = read(
        marco(row(1, ["Rome"], well_formed=["It is Rome."]), row(2, ["Oslo"], well_formed=[]), well_formed=well_formed)
    )
    assert [sample.reference for sample in samples] == [wanted, ["Oslo"]]


def test_answers_are_stripped_and_never_there_twice_or_empty(marco):
    (sample,), _ = read(marco(row(answers=[" Rome", "", "Rome ", "rome", "  "])))
    assert sample.reference == ["Rome", "rome"]


# -- rows that cannot have a reference ---------------------------------------------------------------------------------


@pytest.mark.parametrize("refusal", ["No Answer Present.", "no answer present", " NO  ANSWER, PRESENT!"])
def test_a_refusal_is_never_a_reference(refusal, marco):
    samples, said = read(marco(row(1, [refusal]), row(2, [refusal, "Rome"]), row(3, []), row(4)))
    assert [sample.id for sample in samples] == ["1002", "1004"]
    assert samples[0].reference == ["Rome"]
    assert len(said) == 1
    assert "left out 2 of 4 rows" in said[0]
    assert f"1 with a refusal for an answer ({refusal.strip()!r})" in said[0]
    assert "1 without an answer" in said[0]


def test_the_refusals_can_be_others(marco):
    samples, _ = read(marco(row(1, ["No Answer Present."]), row(2, ["Unknown"]), refusals=["unknown."]))
    assert [sample.reference for sample in samples] == [["No Answer Present."]]


def test_the_test_split_without_answers_is_explained(marco):
    with pytest.raises(DataError, match=r"none of 2 rows can be used: 2 without an answer.*`?split: validation"):
        read(marco(row(1, []), row(2, [])))


def test_rows_that_cannot_be_used_do_not_count_for_skip_and_limit(marco):
    rows = [row(n, ["No Answer Present."] if n % 2 else ["yes"]) for n in range(20)]
    everything = [sample.id for sample in read(marco(*rows, shuffle_seed=3))[0]]
    assert len(everything) == 10
    first = [sample.id for sample in read(marco(*rows, shuffle_seed=3, limit=4))[0]]
    rest = [sample.id for sample in read(marco(*rows, shuffle_seed=3, skip=4))[0]]
    assert first + rest == everything
    with pytest.raises(DataError, match="`skip: 10` leaves none of 10 samples"):
        read(marco(*rows, skip=10))


def test_what_was_left_out_is_said_also_when_reading_stops_early(marco):
    from itertools import islice

    from reading_helpers import Listening

    reader, run = marco(row(1, []), row(2), row(3)), Listening()
    reader.setup(run)
    assert [sample.id for sample in list(islice(reader.read(), 1))] == ["1002"]
    assert ["left out 1 of 2 rows" in line for line in run.said] == [True]


def test_a_question_is_read_once(marco, folder):
    rows = [row(1), row(1, ["other"]), row(2)]
    samples, said = read(marco(*rows))
    assert [sample.id for sample in samples] == ["1001", "1002"]
    assert "1 that repeat another" in said[0]
    assert len(read(marco(*rows, repeated="keep"))[0]) == 3
    plain = [{"question": question, "answers": "a"} for question in ("Why?", "why? ", "Who?")]
    samples, _ = read(Questions(**folder.jsonl(plain), prompt=PLAIN))
    assert [sample.meta["question"] for sample in samples] == ["Why?", "Who?"]


@pytest.mark.parametrize(("no_context", "left"), [("drop", ["1002"]), ("empty", ["1001", "1002"])])
def test_a_row_without_passages(no_context, left, marco):
    rows = [row(1, passages=[]), row(2)]
    with pytest.raises(DataError, match=r"row 1: there are no passages .*`no_context: drop \| empty`"):
        read(marco(*rows, prompt=SEARCH))
    samples, _ = read(marco(*rows, prompt=SEARCH, no_context=no_context))
    assert [sample.id for sample in samples] == left
    if no_context == "empty":
        assert samples[0].prompt[0].content.endswith("Search results:\n")
        assert samples[0].meta["passages"] == []


def test_a_row_that_does_not_fit_stops_or_is_counted(marco):
    rows = [row(1), row(2) | {"query": None}, row(3)]
    with pytest.raises(DataError, match=r'row 2: "query" is null: wants a text.*`bad_rows: drop`'):
        read(marco(*rows))
    samples, said = read(marco(*rows, bad_rows="drop"))
    assert [sample.id for sample in samples] == ["1001", "1003"]
    assert "1 that do not fit; the first that does not fit: " in said[0]
    assert 'data.parquet: row 2: "query" is null' in said[0]


def test_a_plan_counts_what_is_in_local_files(marco):
    rows = [row(n, ["No Answer Present."] if n % 2 else ["yes"]) for n in range(20)]
    assert expected(marco(*rows), None) == Expected(10, 0)
    assert expected(marco(*rows, skip=3, limit=20), None) == Expected(20)
    assert expected(MsMarco(prompt=PLAIN), None) is None
    assert expected(MsMarco(prompt=PLAIN, limit=5), None) == Expected(5)
    assert expected(MsMarco(prompt=PLAIN, expect_rows=9, skip=2), None) == Expected(7)


# -- columns -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gone", "fields", "key"),
    [
        ("query", {}, "columns.question"),
        ("answers", {}, "columns.answers"),
        ("wellFormedAnswers", {"well_formed": "prefer"}, "columns.well_formed"),
        ("passages", {"prompt": SEARCH}, "columns.context"),
        ("passages", {"prompt": SEARCH, "selected_only": True, "no_context": "empty"}, "columns.selected"),
    ],
)
def test_a_missing_column_shows_the_first_row_and_the_key_to_set(gone, fields, key, folder):
    one = row()
    del one[gone]
    reader = MsMarco(**folder.jsonl([one]), **{"prompt": PLAIN} | fields)
    with pytest.raises(DataError) as caught:
        read(reader)
    message = str(caught.value)
    assert f"Set `{key}` to" in message
    assert "reader `ms_marco`" in message
    assert reader.files[0] in message
    for column in one:
        assert f"\n  {column} " in message


def test_a_missing_part_of_a_nested_column_is_a_missing_column(folder):
    one = row()
    one["passages"]["text"] = one["passages"].pop("passage_text")
    where = folder.jsonl([one])
    with pytest.raises(DataError, match=r'no column "passages.passage_text".*Set `columns.context`'):
        read(MsMarco(**where, prompt=SEARCH))
    (sample,), _ = read(MsMarco(**where, prompt=SEARCH, columns=MsMarcoColumns(context="passages.text")))
    assert "Paris is the capital." in sample.prompt[0].content


def test_columns_nobody_needs_may_be_missing_but_not_those_that_are_named(folder):
    where = folder.jsonl([{"query": "Why?", "answers": ["Because."]}])
    (sample,), _ = read(MsMarco(**where, prompt=PLAIN))
    assert (sample.id, sample.meta) == ("0", {"question": "Why?"})
    with pytest.raises(DataError, match=r"columns\.kind"):
        read(MsMarco(**where, prompt=PLAIN, columns=MsMarcoColumns(kind="type")))
    with pytest.raises(DataError, match=r"columns\.meta"):
        read(MsMarco(**where, prompt=PLAIN, columns=MsMarcoColumns(meta=["type"])))


def test_columns_to_keep_may_be_whole_structures(marco):
    (sample,), _ = read(marco(row(), columns=MsMarcoColumns(meta=["passages", "passages.is_selected"])))
    assert sample.meta["passages.is_selected"] == [0, 1]
    assert sample.meta["passages"]["passage_text"][1] == "Paris is the capital."


def test_the_hubs_names_are_the_defaults_and_local_files_do_not_ask_for_them():
    reader = MsMarco(prompt=PLAIN)
    assert (reader.path, reader.config, reader.split) == ("microsoft/ms_marco", "v2.1", "train")
    assert reader.identity() == {"revision": None}
    with pytest.raises(ValidationError, match="local files have no"):
        MsMarco(path="json", files=["x"], config="v1.1", prompt=PLAIN)


def test_a_saved_folder_is_read_without_the_hubs_configuration(folder):
    folder.parquet([row()], FEATURES, name="train-0")
    (sample,), _ = read(MsMarco(path=str(folder.path), prompt=PLAIN))
    assert sample.id == "1001"


def test_a_recipe_builds_it_again_from_what_it_dumps(marco):
    reader = marco(row(), columns=MsMarcoColumns(meta=["query_type"]), limit=3)
    again = build(Reader, dump(reader))
    assert again == reader
    with pytest.raises(Problems, match='did you mean "question"'):
        build(Reader, {"name": "ms_marco", "prompt": PLAIN, "columns": {"qestion": "q"}}, context=Context())


# -- prompt files ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "fields", "message"),
    [
        ("Answer {claim}", {}, r"unknown placeholder \{claim\}"),
        ("Answer {context}", {}, r"lacks the placeholder \{question\}"),
        ("{examples} {question}", {}, r"set `shots: \{count: 3, split: train\}`"),
        ("{question}", {"shots": {"count": 1}}, r"put \{examples\} into the prompt file"),
    ],
)
def test_a_prompt_file_that_does_not_fit(text, fields, message, folder):
    node = {"name": "ms_marco", **folder.jsonl([row()]), "prompt": folder.prompt(text), **fields}
    with pytest.raises(DataError, match=message):
        read(build(Reader, node, context=Context()))


def test_braces_in_data_stay_as_they_are(marco):
    (sample,), _ = read(marco(row(query="what is {context} in {question}"), prompt=SEARCH))
    assert sample.prompt[1].content == "Question: what is {context} in {question}"


def test_a_prompt_as_one_text_for_models_without_a_chat_template(marco):
    (sample,), said = read(marco(row(), row(), as_text=True))
    assert isinstance(sample.prompt, str)
    assert sample.prompt.startswith("You are a helpful assistant")
    assert sample.prompt.endswith("\n\nQuestion: what is the capital of country 1")
    assert "1 that repeat another" in said[0]


# -- a table of one's own ----------------------------------------------------------------------------------------------


def test_a_table_of_ones_own(folder):
    rows = [
        {"word": "lamp", "question": "Define lamp.", "answers": "a source of light", "context": "It hung\nthere."},
        {"word": "mill", "question": "Define mill.", "answers": "a machine", "context": "He went to the old mill."},
    ]
    where = folder.jsonl(rows)
    samples, _ = read(Questions(**where, prompt=SEARCH, columns=QuestionColumns(id="word", meta=["word"])))
    assert [sample.id for sample in samples] == ["lamp", "mill"]
    assert samples[0].reference == ["a source of light"]
    assert samples[0].prompt[0].content.endswith("Search results:\nIt hung\nthere.")
    assert samples[1].meta == {"question": "Define mill.", "word": "mill", "passages": []}
    samples, _ = read(Questions(**where, prompt=SEARCH, passage_words=3))
    assert samples[1].prompt[0].content.endswith("Search results:\nHe went to…")
    listed = [{"question": "Why?", "answers": ["a", "b"], "context": ["one", None, " ", "two"]}]
    (sample,), _ = read(Questions(**folder.jsonl(listed, "listed"), prompt=SEARCH))
    assert sample.prompt[0].content.endswith("Search results:\n[1] one\n[2] two")
    assert sample.meta["passages"] == ["1", "2"]


def test_a_table_without_context_serves_a_prompt_without_it(folder):
    where = folder.jsonl([{"question": "Why?", "answers": ["a"]}])
    assert len(read(Questions(**where, prompt=PLAIN))[0]) == 1
    with pytest.raises(DataError, match=r"Set `columns.context` to the column of the context"):
        read(Questions(**where, prompt=SEARCH))
    assert len(read(Questions(**where, prompt=SEARCH, no_context="empty"))[0]) == 1
