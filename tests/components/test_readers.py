"""Readers, on small local files with the columns of the data sets they are for."""

from __future__ import annotations

import json
from pathlib import Path

import datasets
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from fgrl.base.errors import DataError, Unavailable
from fgrl.components.readers.hf import HuggingFace
from fgrl.components.readers.jsonl import JsonLines
from fgrl.components.readers.lines import Lines
from fgrl.components.readers.products import PairsReader, SamplesReader
from fgrl.data.formats.columns import Columns
from fgrl.data.formats.converter import Converter
from fgrl.kinds import Reader
from fgrl.registry import Context, Problems, build
from fgrl.types import Message, Pair, Ref, Sample, write_jsonl

TOPICS = Path(__file__).parents[2] / "recipes" / "small" / "topics.txt"


def user(text):
    return {"role": "user", "content": text}


def assistant(text):
    return {"role": "assistant", "content": text}


def turns(*messages):
    return [Message(**message) for message in messages]


SYSTEM = {"role": "system", "content": "Be brief."}

ROWS = {
    "hendrydong/preference_700K": {
        "chosen": [user("Hi"), assistant("Hello."), user("Why?"), assistant("Because.")],
        "rejected": [user("Hi"), assistant("Hello."), user("Why?"), assistant("No idea.")],
    },
    "HuggingFaceH4/ultrafeedback_binarized": {
        "prompt": "Why?",
        "prompt_id": "f0e3",
        "chosen": [user("Why?"), assistant("Because.")],
        "rejected": [user("Why?"), assistant("No idea.")],
        "messages": [user("Why?"), assistant("Because.")],
        "score_chosen": 8.0,
        "score_rejected": 3.0,
    },
    "argilla/ultrafeedback-binarized-preferences-cleaned": {
        "source": "evol_instruct",
        "prompt": "Why?",
        "chosen": [user("Why?"), assistant("Because.")],
        "chosen-rating": 5.0,
        "chosen-model": "gpt-4",
        "rejected": [user("Why?"), assistant("No idea.")],
        "rejected-rating": 2.0,
        "rejected-model": "alpaca-7b",
    },
    "trl, explicit prompt": {"prompt": "Why?", "chosen": "Because.", "rejected": "No idea."},
    "trl, implicit prompt": {"chosen": "Why? Because.", "rejected": "Why? No idea."},
    "trl, conversational, explicit prompt": {
        "prompt": [SYSTEM, user("Why?")],
        "chosen": [assistant("Because.")],
        "rejected": [assistant("No idea.")],
    },
    "trl, conversational, implicit prompt": {
        "chosen": [SYSTEM, user("Why?"), assistant("Because.")],
        "rejected": [SYSTEM, user("Why?"), assistant("No idea.")],
    },
    "openbmb/UltraFeedback": {
        "source": "sharegpt",
        "instruction": "Why?",
        "models": ["a", "b"],
        "completions": [{"model": "a", "response": "Because."}, {"model": "b", "response": "No idea."}],
    },
    "trl, prompt only": {"prompt": "Why?"},
    "trl, conversational, prompt only": {"prompt": [user("Why?")]},
    "trl, prompt and completion": {"prompt": "Why?", "completion": "Because."},
    "trl, conversational, prompt and completion": {"prompt": [user("Why?")], "completion": [assistant("Because.")]},
    "trl, conversational": {"messages": [user("Why?"), assistant("Because.")]},
}
"""First rows with the columns as on the hub, and TRL's formats."""

LONG = turns(user("Hi"), assistant("Hello."), user("Why?"))
PAIRS = {
    "hendrydong/preference_700K": (LONG, "Because.", "No idea."),
    "HuggingFaceH4/ultrafeedback_binarized": (turns(user("Why?")), "Because.", "No idea."),
    "argilla/ultrafeedback-binarized-preferences-cleaned": (turns(user("Why?")), "Because.", "No idea."),
    "trl, explicit prompt": ("Why?", "Because.", "No idea."),
    "trl, implicit prompt": ("Why?", " Because.", " No idea."),
    "trl, conversational, explicit prompt": (turns(SYSTEM, user("Why?")), "Because.", "No idea."),
    "trl, conversational, implicit prompt": (turns(SYSTEM, user("Why?")), "Because.", "No idea."),
}
PROMPTS = {
    "hendrydong/preference_700K": LONG,
    "HuggingFaceH4/ultrafeedback_binarized": "Why?",
    "argilla/ultrafeedback-binarized-preferences-cleaned": "Why?",
    "trl, conversational, implicit prompt": turns(SYSTEM, user("Why?")),
    "openbmb/UltraFeedback": "Why?",
    "trl, prompt only": "Why?",
    "trl, conversational, prompt only": turns(user("Why?")),
    "trl, conversational": turns(user("Why?")),
}
SFT = {
    "HuggingFaceH4/ultrafeedback_binarized": (turns(user("Why?")), "Because."),
    "trl, prompt and completion": ("Why?", "Because."),
    "trl, conversational, prompt and completion": (turns(user("Why?")), "Because."),
    "trl, conversational": (turns(user("Why?")), "Because."),
}


class Setup:
    """A run that remembers what was said."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder, self.said = folder, []

    def say(self, text: str) -> None:
        self.said.append(text)

    def path(self, ref: Ref) -> Path:
        return self.folder


@pytest.fixture
def write(tmp_path):
    """Write rows as JSON lines; returns the path as text."""

    def write(*rows, name="data.jsonl"):
        path = tmp_path / name
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return str(path)

    return write


def converted(row, form, **columns):
    return Converter("data", form, Columns(**columns), row)


# -- the formats -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reader", ["hf", "jsonl"])
@pytest.mark.parametrize("name", PAIRS)
def test_preference_formats(name, reader, write):
    path = write(ROWS[name])
    if reader == "hf":
        data = HuggingFace(path="json", files=[path], format="preference")
    else:
        data = JsonLines(path=path, format="preference")
    (pair,) = data.pairs()
    assert (pair.prompt, pair.chosen, pair.rejected) == PAIRS[name]
    (sample,) = data.read()
    assert sample.prompt == pair.prompt
    assert [response.text for response in sample.responses] == [pair.rejected, pair.chosen]
    assert sample.id == pair.id == ROWS[name].get("prompt_id", "0")


@pytest.mark.parametrize("name", PROMPTS)
def test_prompt_formats(name, write):
    (sample,) = HuggingFace(path="json", files=[write(ROWS[name])], format="prompts").read()
    assert sample.prompt == PROMPTS[name]
    assert sample.responses == []


@pytest.mark.parametrize("name", SFT)
def test_sft_formats(name, write):
    (sample,) = HuggingFace(path="json", files=[write(ROWS[name])], format="sft").read()
    assert (sample.prompt, sample.chosen_response.text) == SFT[name]


# -- data that does not fit --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "row", "columns", "key"),
    [
        ("preference", {"question": "Why?", "good": "a", "rejected": "b"}, {}, "columns.chosen"),
        ("preference", {"question": "Why?", "chosen": "a", "bad": "b"}, {}, "columns.rejected"),
        ("preference", {"chosen": "a", "rejected": "b"}, {"prompt": "quetsion"}, "columns.prompt"),
        ("prompts", {"question": "Why?"}, {}, "columns.prompt"),
        ("sft", {"prompt": "Why?", "reply": "a"}, {}, "columns.response"),
        ("sft", {"question": "Why?", "response": "a"}, {}, "columns.prompt"),
        ("prompts", {"prompt": "Why?"}, {"meta": ["source"]}, "columns.meta"),
        ("prompts", {"prompt": "Why?"}, {"reference": "gold"}, "columns.reference"),
    ],
)
def test_a_missing_column_shows_the_first_row_and_the_key_to_set(form, row, columns, key, write):
    path = write(row)
    with pytest.raises(DataError) as caught:
        list(JsonLines(path=path, format=form, columns=Columns(**columns)).read())
    message = str(caught.value)
    assert f"Set `{key}`" in message
    assert path in message
    for column, value in row.items():
        assert f"{column} " in message
        assert f'"{value}"' in message


BAD = {
    "wants text or a list": {"prompt": "Why?", "chosen": 5, "rejected": "b"},
    "is null": {"prompt": "Why?", "chosen": None, "rejected": "b"},
    "is empty": {"prompt": " ", "chosen": "a", "rejected": "b"},
    "the same text": {"prompt": "Why?", "chosen": "a", "rejected": "a"},
    'wants "assistant"': {"prompt": "Why?", "chosen": [user("Why?")], "rejected": [user("Why?")]},
    "differ before their last turn": {
        "prompt": "Why?",
        "chosen": [user("Why?"), assistant("a")],
        "rejected": [user("What?"), assistant("b")],
    },
    'no column "rejected"': {"prompt": "Why?", "chosen": "a"},
}
GOOD = {"prompt": "Why?", "chosen": "a", "rejected": "b"}


@pytest.mark.parametrize("what", BAD)
def test_a_bad_row_stops_with_its_number_or_is_counted(what, write):
    path = write(GOOD, BAD[what], GOOD)
    with pytest.raises(DataError, match=r"data.jsonl:2: .*`bad_rows: drop`") as caught:
        list(JsonLines(path=path, format="preference").pairs())
    assert what in str(caught.value)
    reader, run = JsonLines(path=path, format="preference", bad_rows="drop"), Setup()
    reader.setup(run)
    assert [pair.id for pair in reader.pairs()] == ["0", "2"]
    assert len(run.said) == 1
    assert "left out 1 of 3 rows" in run.said[0]
    assert what in run.said[0]


def test_when_no_row_fits_dropping_does_not_hide_it(write):
    reader = JsonLines(path=write(GOOD | {"rejected": "a"}), format="preference", bad_rows="drop")
    with pytest.raises(DataError, match="none of 1 rows fits"):
        list(reader.pairs())


@pytest.mark.parametrize("row", [{"chosen": "Why?", "rejected": "Why? No."}, {"chosen": "a", "rejected": "b"}])
def test_texts_without_a_prompt_are_refused(row, write):
    with pytest.raises(DataError, match="prompt"):
        list(JsonLines(path=write(row), format="preference").pairs())


def test_the_number_of_rows_can_be_pinned(write):
    path = write(GOOD, GOOD)
    assert len(list(JsonLines(path=path, format="preference", expect_rows=2, limit=1).pairs())) == 1
    with pytest.raises(DataError, match="2 rows, but the recipe expects 3"):
        list(JsonLines(path=path, format="preference", expect_rows=3).pairs())


def test_pairs_want_the_preference_format(write):
    with pytest.raises(DataError, match="set `format: preference`"):
        JsonLines(path=write(GOOD), format="prompts").pairs()
    with pytest.raises(DataError, match="has samples, not pairs"):
        Lines(path=str(TOPICS)).pairs()


@pytest.mark.parametrize(
    ("row", "what"), [({"gold": 5}, '"gold" is 5'), ({"gold": ["a", None]}, '"gold"'), ({"id": None}, '"id" is null')]
)
def test_references_and_ids_are_checked(row, what, write):
    path = write({"id": 1, "prompt": "Why?", "gold": "a"}, {"id": 2, "prompt": "Why?", "gold": ["a", "b"]} | row)
    with pytest.raises(DataError, match=f"data.jsonl:2: {what}"):
        list(JsonLines(path=path, format="prompts", columns=Columns(reference="gold")).read())


# -- slices ------------------------------------------------------------------------------------------------------------


@given(st.integers(1, 30), st.integers(0, 30), st.integers(1, 30), st.none() | st.integers(0, 3))
def test_slices_are_those_of_the_shuffled_rows(total, skip, limit, seed):
    everything = list(SamplesReader(of=Ref("x"), shuffle_seed=seed).chosen(total, "x"))
    assert sorted(everything) == list(range(total))
    reader = SamplesReader(of=Ref("x"), shuffle_seed=seed, skip=skip, limit=limit)
    if skip >= total:
        with pytest.raises(DataError, match=f"`skip: {skip}` leaves none of {total} rows"):
            reader.chosen(total, "x")
    else:
        assert list(reader.chosen(total, "x")) == everything[skip : skip + limit]


def test_shuffling_is_the_same_everywhere():
    """The order is part of a recipe's meaning: it must not change between versions."""
    assert list(SamplesReader(of=Ref("x"), shuffle_seed=1).chosen(6, "x")) == [2, 3, 5, 0, 4, 1]


# -- lines -------------------------------------------------------------------------------------------------------------


def test_lines(tmp_path):
    path = tmp_path / "things.txt"
    path.write_text("\ufeff# topics\nlamps\n\n  old maps \nsea #1\n", encoding="utf-8")
    found = list(Lines(path=str(path), template="{x} {line}!").read())
    assert [(sample.id, sample.prompt) for sample in found] == [
        ("things:0", "{x} lamps!"),
        ("things:1", "{x} old maps!"),
        ("things:2", "{x} sea #1!"),
    ]
    assert found[1].meta == {"line": "old maps"}
    assert [sample.id for sample in Lines(path=str(path), skip=1, limit=1).read()] == ["things:1"]


def test_lines_refuse_what_cannot_be_meant(tmp_path):
    path = tmp_path / "x.txt"
    path.write_text("lamps\nmaps\nlamps\n")
    with pytest.raises(DataError, match=r"x.txt:3: 'lamps' is already in line 1"):
        list(Lines(path=str(path)).read())
    path.write_text("# nothing\n\n")
    with pytest.raises(DataError, match="no rows"):
        list(Lines(path=str(path)).read())
    with pytest.raises(ValidationError, match=r"wants \{line\}"):
        Lines(path=str(path), template="About something.")


def test_shipped_topics():
    found = list(Lines(path=str(TOPICS)).read())
    assert len(found) >= 400
    topics = [sample.meta["line"] for sample in found]
    assert len({topic.lower() for topic in topics}) == len(topics)
    assert not any("," in topic for topic in topics)  # the small recipes' rule forbids commas in answers
    assert max(len(topic) for topic in topics) <= 40
    first = topics[0][0]
    assert sum(topic[0] == first for topic in topics[:40]) < 20  # in no alphabetical order
    assert found[0].prompt == f"Write one or two sentences about {topics[0]}."
    train = {sample.id for sample in Lines(path=str(TOPICS), limit=400).read()}
    held_out = {sample.id for sample in Lines(path=str(TOPICS), skip=400).read()}
    assert not train & held_out
    assert len(train | held_out) == len(found)


# -- jsonl -------------------------------------------------------------------------------------------------------------


def test_records_of_our_own(tmp_path):
    samples = [Sample(id=str(n), prompt=[Message(role="user", content="é,\n")], meta={"n": n}) for n in range(3)]
    path = tmp_path / "samples.jsonl"
    write_jsonl(path, samples)
    assert list(JsonLines(path=str(path)).read()) == samples
    assert list(JsonLines(path=str(path), skip=1, limit=1).read()) == samples[1:2]
    pairs = [Pair(id="1", prompt="p", chosen="a", rejected="b", meta={"x": [1]})]
    write_jsonl(path, pairs)
    assert list(JsonLines(path=str(path)).pairs()) == pairs


def test_broken_lines_have_a_place(tmp_path):
    path = tmp_path / "x.jsonl"
    path.write_text('{"id": "1", "prompt": "p"}\n\n{"id": "2", "promt": "p"}\n')
    with pytest.raises(DataError, match=r"x.jsonl:3: .*prom.*set `format: prompts`"):
        list(JsonLines(path=str(path)).read())
    path.write_text('{"prompt": "p"}\n{"prompt": \n')
    with pytest.raises(DataError, match=r"x.jsonl:2:\d+: not valid JSON"):
        list(JsonLines(path=str(path), format="prompts").read())
    path.write_text("[1]\n")
    with pytest.raises(DataError, match=r"x.jsonl:1: this is not JSON lines.*path: json"):
        list(JsonLines(path=str(path), format="prompts").read())
    path.write_text("\n")
    for form in ("prompts", "records"):
        with pytest.raises(DataError, match="no rows"):
            list(JsonLines(path=str(path), format=form).read())


def test_columns_without_a_format_are_refused():
    with pytest.raises(ValidationError, match="set format"):
        JsonLines(path="x", columns=Columns(prompt="question"))


# -- hf ----------------------------------------------------------------------------------------------------------------


def test_hf_reads_parquet_csv_and_saved_folders(tmp_path):
    datasets = pytest.importorskip("datasets", reason="needs datasets")
    table = datasets.Dataset.from_dict({"prompt": ["a", "b", "c"], "prompt_id": ["x", "y", "z"]})
    table.to_parquet(tmp_path / "t.parquet")
    table.to_csv(tmp_path / "t.csv", index=False)
    table.save_to_disk(tmp_path / "saved")
    datasets.DatasetDict({"test": table}).save_to_disk(tmp_path / "splits")
    (tmp_path / "plain").mkdir()
    table.to_json(tmp_path / "plain" / "t.jsonl")
    readers = [
        HuggingFace(path="parquet", files=[str(tmp_path / "t.parquet")], format="prompts"),
        HuggingFace(path="csv", files=[str(tmp_path / "t.csv")], format="prompts"),
        HuggingFace(path=str(tmp_path / "saved"), format="prompts"),
        HuggingFace(path=str(tmp_path / "splits"), split="test", format="prompts"),
        HuggingFace(path=str(tmp_path / "plain"), data_files=["t.jsonl"], format="prompts"),
    ]
    for reader in readers:
        assert [(sample.id, sample.prompt) for sample in reader.read()] == [("x", "a"), ("y", "b"), ("z", "c")]
    with pytest.raises(DataError, match='no split "train"; it has test'):
        list(HuggingFace(path=str(tmp_path / "splits"), format="prompts").read())


def test_hf_and_jsonl_slice_alike(write):
    path = write(*({"prompt": str(n)} for n in range(20)))
    options = {"format": "prompts", "shuffle_seed": 4, "skip": 3, "limit": 5}
    ours = list(JsonLines(path=path, **options).read())
    assert list(HuggingFace(path="json", files=[path], **options).read()) == ours
    assert len(ours) == 5


def test_hf_says_what_cannot_be_loaded(tmp_path):
    with pytest.raises(Unavailable, match=r"nowhere/such_data, split train: cannot be reached"):
        list(HuggingFace(path="nowhere/such_data", format="prompts").read())
    with pytest.raises(DataError, match=r"none\.json: cannot be read: .*No such file"):
        list(HuggingFace(path="json", files=[str(tmp_path / "none.json")], format="prompts").read())


@pytest.mark.parametrize(
    "settings",
    [
        {"path": "json"},
        {"path": "some/data", "files": ["x"]},
        {"path": "json", "files": ["x"], "revision": "main"},
        {"path": "json", "files": ["x"], "data_files": ["y"]},
    ],
)
def test_hf_files_go_with_their_kind(settings):
    with pytest.raises(ValidationError, match="files"):
        HuggingFace(format="prompts", **settings)


def test_identity(tmp_path, write):
    assert HuggingFace(path="some/data", revision="abc", format="prompts").identity() == {"revision": "abc"}
    assert HuggingFace(path="json", files=[write(GOOD)], format="preference").identity() == {}
    folder = tmp_path / "folder"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "a.csv").write_text("prompt\nx\n")
    reader = HuggingFace(path=str(folder), format="prompts")
    first = reader.identity()
    assert reader.identity() == first
    (folder / "sub" / "a.csv").write_text("prompt\ny\n")
    changed = reader.identity()
    assert changed != first
    (folder / "sub" / "a.csv").rename(folder / "a.csv")
    assert reader.identity() not in (first, changed)
    assert Lines(path=str(TOPICS)).identity() == {}


def test_hf_says_which_commit_it_read(monkeypatch):
    data = datasets.Dataset.from_list([{"prompt": "a"}])
    data.info.download_checksums = {"hf://datasets/some/data@0123abc/data/train.parquet": {}}
    monkeypatch.setattr(HuggingFace, "_load", lambda self: data)
    reader, run = HuggingFace(path="some/data", format="prompts"), Setup()
    reader.setup(run)
    assert len(list(reader.read())) == 1
    assert run.said == ["some/data, split train: 1 rows at revision 0123abc; no `revision` is pinned"]


# -- products of stages ------------------------------------------------------------------------------------------------


def test_products_of_other_stages(tmp_path):
    samples = [Sample(id=str(n), prompt="p") for n in range(4)]
    pairs = [Pair(id=str(n), prompt="p", chosen=f"good {n}", rejected="bad") for n in range(4)]
    write_jsonl(tmp_path / "samples.jsonl", samples)
    write_jsonl(tmp_path / "pairs.jsonl", pairs)
    reader = SamplesReader(of=Ref("drawn"), skip=1, limit=2)
    reader.setup(Setup(tmp_path))
    assert list(reader.read()) == samples[1:3]
    reader = PairsReader(of=Ref("drawn"), skip=3)
    reader.setup(Setup(tmp_path))
    assert list(reader.pairs()) == pairs[3:]
    (sample,) = reader.read()
    assert [response.text for response in sample.responses] == ["bad", "good 3"]


# -- from recipes ------------------------------------------------------------------------------------------------------


def test_files_are_relative_to_the_recipe(tmp_path, write):
    write({"prompt": "Why?"})
    context = Context(folder=lambda path: tmp_path)
    for node in (
        {"name": "hf", "path": "json", "files": ["data.jsonl"], "format": "prompts"},
        {"name": "jsonl", "path": "data.jsonl", "format": "prompts", "columns": {"prompt": "prompt"}},
        {"name": "lines", "path": "data.jsonl"},
    ):
        (sample,) = build(Reader, node, context=context).read()
        assert "Why?" in sample.prompt
    with pytest.raises(Problems, match=r"none\.jsonl"):
        build(Reader, {"name": "hf", "path": "json", "files": ["none.jsonl"], "format": "prompts"}, context=context)


@pytest.mark.parametrize(
    ("node", "message"),
    [
        ({"name": "lines", "path": "data.jsonl", "skip": -1}, "skip"),
        ({"name": "lines", "path": "data.jsonl", "limit": 0}, "limit"),
        ({"name": "lines", "path": "data.jsonl", "template": "no place"}, "wants {line} somewhere in the template"),
        ({"name": "jsonl", "path": "data.jsonl", "format": "preferences"}, 'did you mean "preference"'),
        ({"name": "hf", "path": "x", "format": "sft", "columns": {"promt": "a"}}, 'did you mean "prompt"'),
        ({"name": "samples", "of": "drawn"}, "Samples"),
    ],
)
def test_mistakes_in_recipes_are_explained(node, message, tmp_path, write):
    write({"prompt": "Why?"})
    with pytest.raises(Problems) as caught:
        build(Reader, node, context=Context(folder=lambda path: tmp_path))
    assert message in str(caught.value)
