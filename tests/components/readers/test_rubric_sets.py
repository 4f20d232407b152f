"""Data sets of prompts with rubrics, as files with the hub's columns: what becomes of every criterion, and that all are counted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset, Features, List, Value
from reading_helpers import Folder, Listening, read

from fgrl.base.errors import DataError
from fgrl.components.readers.advanced_if import AdvancedIF
from fgrl.components.readers.hir import Hir, HirColumns
from fgrl.components.readers.instructions import IFBench, IFEval, IFTrain, InstructionColumns
from fgrl.components.readers.muldimif import MulDimIF
from fgrl.components.readers.verinstruct import VerInstruct
from fgrl.feedback.sandbox import CheckerSandbox
from fgrl.kinds import Reader, Verifier
from fgrl.kinds.reader import expected
from fgrl.registry import build, dump
from fgrl.types import Message

SHOUTS = "def check_following(instruction, response):\n    return response.isupper()"
ASKS = "from llm_call import llm_score\ndef check_following(instruction, response):\n    return llm_score(instruction, response, 'Be kind.')"
PARAMETERS = ("num_words", "relation", "keywords", "N", "small_n")


def table(**given: Any) -> dict[str, Any]:
    """Parameters as a table gives them: all of them, most of them null."""
    return dict.fromkeys(PARAMETERS) | given


IFEVAL = [
    {"key": 1000, "prompt": "Write.", "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words"],
     "kwargs": [table(), table(num_words=300, relation="at least")]},
    {"key": 1001, "prompt": "Mind the cat.", "instruction_id_list": ["keywords:existence"], "kwargs": [table(keywords=["cat"])]},
]  # fmt: skip
IFBENCH = [
    {"key": "0", "prompt": "Count.", "instruction_id_list": ["count:numbers", "words:start_verb"], "kwargs": [table(N=15.0), table()]},
    {"key": "1", "prompt": "Join.", "instruction_id_list": ["count:conjunctions"], "kwargs": [table(small_n=5.0)]},
]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def checks(sample: Any) -> list[Any]:
    return [one.check for one in sample.rubric]


# -- IFEval and IFBench ------------------------------------------------------------------------------------------------


def test_ifeval(folder: Folder) -> None:
    (first, second), said = read(IFEval(**folder.jsonl(IFEVAL)))
    assert (first.id, first.prompt) == ("1000", "Write.")
    assert [(one.text, one.check) for one in first.rubric] == [
        ("Use no comma.", {"name": "punctuation:no_comma"}),
        (
            "Write at least 300 words.",
            {"name": "length_constraints:number_words", "num_words": 300, "relation": "at least"},
        ),
    ]
    assert checks(second) == [{"name": "keywords:existence", "keywords": ["cat"]}]
    assert second.meta == {"criteria": ["keywords:existence"]}
    assert said == [
        f"{folder.path}/data.jsonl: 2 prompts, 3 criteria: 3 hard by rules, 0 hard by their own code in the sandbox, 0 soft for "
        "the judge"
    ]
    for one in (*first.rubric, *second.rubric):
        build(Verifier, dict(one.check))


@pytest.mark.parametrize("kind", ["parquet", "csv", "json list"])
def test_ifeval_in_other_files(kind: str, folder: Folder) -> None:
    """As `datasets` has it; with mappings as JSON, as CSV has to; and as one list."""
    rows: list[dict[str, Any]] = IFEVAL
    if kind == "parquet":
        given = {"num_words": Value("int64"), "relation": Value("string"), "keywords": List(Value("string")),
                 "N": Value("float64"), "small_n": Value("float64")}  # fmt: skip
        features = Features(
            {
                "key": Value("int64"),
                "prompt": Value("string"),
                "instruction_id_list": List(Value("string")),
                "kwargs": [given],
            }
        )
        where = folder.parquet(rows, features)
    elif kind == "csv":
        texts = [{k: v if isinstance(v, str | int) else json.dumps(v) for k, v in row.items()} for row in rows]
        Dataset.from_list(texts).to_csv(str(folder.path / "data.csv"))
        where = {"path": "csv", "files": [str(folder.path / "data.csv")]}
    else:
        (folder.path / "data.json").write_text(json.dumps(rows))
        where = {"path": "json", "files": [str(folder.path / "data.json")]}
    found, _ = read(IFEval(**where))
    wanted, _ = read(IFEval(**folder.jsonl(IFEVAL)))
    assert found == wanted


def test_ifbench_counts_the_rule_that_is_not_here(folder: Folder) -> None:
    reader = IFBench(**folder.jsonl(IFBENCH))
    (first, second), said = read(reader)
    assert checks(first) == [{"name": "count:numbers", "N": 15}, None]
    assert first.rubric[1].text == "Begin the response with a verb."
    assert checks(second) == [{"name": "count:conjunctions", "small_n": 5}]
    assert said[0].endswith(", 1 hard without a checker here, left to the judge: words:start_verb 1")
    assert reader.criteria_counts() == {
        "prompts": 2, "criteria": 3, "by rules": 2, "by their own code": 0, "soft": 0, "hard without a checker": 1,
        "namely": {"words:start_verb": 1},
    }  # fmt: skip


def test_what_has_no_checker_can_be_left_out(folder: Folder) -> None:
    rows = [*IFBENCH, {**IFBENCH[0], "key": "2", "instruction_id_list": ["words:start_verb"], "kwargs": [table()]}]
    samples, said = read(IFBench(**folder.jsonl(rows), without_checker="drop"))
    assert [len(sample.rubric) for sample in samples] == [1, 1]
    assert samples[0].meta["criteria"] == ["count:numbers"]
    assert "2 prompts, 2 criteria: 2 hard by rules" in said[0]
    assert "2 hard without a checker here, left out: words:start_verb 2" in said[0]
    assert "; left out criteria: 2 hard without a checker; left out rows: 1 without a criterion that is kept" in said[0]


def test_a_rule_can_be_given_to_the_judge(folder: Folder) -> None:
    (first, _), said = read(IFBench(**folder.jsonl(IFBENCH), judged=["count:numbers"]))
    assert checks(first) == [None, None]
    assert first.rubric[0].text == "Use exactly 15 numbers."
    assert "count:numbers (as `judged` asks) 1" in said[0]


def test_a_rule_nobody_knows_needs_words(folder: Folder) -> None:
    rows = [{**IFEVAL[0], "instruction_id_list": ["my:rule"], "kwargs": [table(N=3)]}]
    with pytest.raises(
        DataError, match=r"row 1: there are no words for the rule 'my:rule' with \{\"N\": 3\}: set `texts: "
    ):
        read(IFEval(**folder.jsonl(rows)))
    (sample,), said = read(IFEval(**folder.jsonl(rows), texts={"my:rule": "Do it {N} times."}))
    assert sample.rubric[0].text == "Do it 3 times."
    assert "left to the judge: my:rule 1" in said[0]


def test_parameters_that_do_not_fit_are_counted_apart(folder: Folder) -> None:
    rows = [
        {
            **IFEVAL[0],
            "instruction_id_list": ["length_constraints:number_words"],
            "kwargs": [table(num_words=3, relation="around")],
        }
    ]
    (sample,), said = read(IFEval(**folder.jsonl(rows)))
    assert sample.rubric[0].text == "Write around 3 words."
    assert "length_constraints:number_words (its parameters do not fit) 1" in said[0]


def test_a_row_cannot_name_a_rule_that_runs_code(folder: Folder) -> None:
    kwargs = {"source": "def check(response): return True", "sandbox": {"require": "weak"}}
    rows = [{**IFEVAL[0], "instruction_id_list": ["code:checker"], "kwargs": [kwargs]}]
    with pytest.raises(
        DataError, match='row 1: the data names the rule "code:checker", which a data set must not name'
    ):
        read(IFEval(**folder.jsonl(rows)))


def test_if_train(folder: Folder) -> None:
    truth = [{"instruction_id": ["keywords:word_once", "punctuation:no_comma", "letters:letter_counting2"],
              "kwargs": [{"keyword": "flight"}, None, {"letter": "s", "let_frequency": 20, "let_relation": "at least"}]}]  # fmt: skip
    turns = [{"role": "user", "content": "Go."}]
    row = {"key": "k1", "messages": turns, "dataset": "ifeval", "constraint_type": "multi", "constraint": "..."}
    rows = [row | {"ground_truth": str(truth)}, row | {"key": "k2", "ground_truth": [json.dumps(truth)]}]
    samples, said = read(IFTrain(path="json", files=[_lines(folder, rows)]))
    for sample in samples:
        assert sample.prompt == [Message(role="user", content="Go.")]
        assert checks(sample) == [None, {"name": "punctuation:no_comma"}, None]
        assert [one.text for one in sample.rubric] == [
            'Use the keyword "flight".', "Use no comma.", 'Use the letter "s" at least 20 times.',
        ]  # fmt: skip
    assert (
        "4 hard without a checker here, left to the judge: keywords:word_once 2, letters:letter_counting2 2" in said[0]
    )
    with pytest.raises(DataError, match="wants one mapping with instruction_id"):
        read(IFTrain(path="json", files=[_lines(folder, [row | {"ground_truth": "[]"}])]))
    with pytest.raises(DataError, match=r"wants JSON \(ValueError\)"):
        read(IFTrain(path="json", files=[_lines(folder, [row | {"ground_truth": "__import__('os').getcwd()"}])]))


def _lines(folder: Folder, rows: list[dict[str, Any]]) -> str:
    return folder.jsonl(rows)["files"][0]


# -- VerInstruct -------------------------------------------------------------------------------------------------------

VERINSTRUCT = [
    {"id": "v1", "prompt": "Shout.", "checkers": ["[rule] Case: all capitals.", "[llm] Writing_Style", "[rule] Extracted"],
     "functions": [SHOUTS, ASKS, ASKS]},
    {"id": "v2", "prompt": "Whisper.", "checkers": ["[llm] Sound quiet."], "functions": [ASKS]},
]  # fmt: skip


def test_verinstruct(folder: Folder) -> None:
    sandbox = CheckerSandbox(seconds=2)
    (first, second), said = read(VerInstruct(**folder.jsonl(VERINSTRUCT), sandbox=sandbox))
    assert [one.text for one in first.rubric] == ["Case: all capitals.", "Be kind.", "Be kind."]
    assert checks(first) == [
        {"name": "code:checker", "source": f"import re\n{SHOUTS}", "function": "check_following",
         "order": ["instruction", "response"], "arguments": {"instruction": "Shout."}, "label": "Case: all capitals.",
         "returns": "truth", "sandbox": {"seconds": 2.0}}, None, None,
    ]  # fmt: skip
    assert checks(second) == [None]
    assert said == [
        f"{folder.path}/data.jsonl: 2 prompts, 4 criteria: 0 hard by rules, 1 hard by their own code in the sandbox, 2 soft for "
        "the judge, 1 hard without a checker here, left to the judge: code:checker (it asks a language model) 1"
    ]


def test_verinstruct_in_parquet_with_messages(folder: Folder) -> None:
    turns = [{"role": "system", "content": "Be loud."}, {"role": "user", "content": "Shout."}]
    rows = [{**row, "prompt": turns} for row in VERINSTRUCT]
    text = Value("string")
    features = Features(
        {"id": text, "prompt": [{"role": text, "content": text}], "checkers": List(text), "functions": List(text)}
    )
    (first, _), _ = read(VerInstruct(**folder.parquet(rows, features)))
    assert [turn.role for turn in first.prompt] == ["system", "user"]
    assert first.rubric[0].check["arguments"] == {"instruction": "Be loud.\n\nShout."}


def test_no_criterion_left_is_an_error(folder: Folder) -> None:
    with pytest.raises(
        DataError,
        match="none of 1 rows gives a prompt with criteria; left out criteria: 2 hard without a checker, 1 soft;",
    ):
        read(
            VerInstruct(
                **folder.jsonl(VERINSTRUCT), soft="drop", judged=["code:checker"], without_checker="drop", limit=1
            )
        )


def test_only_the_rules(folder: Folder) -> None:
    (sample,), said = read(VerInstruct(**folder.jsonl(VERINSTRUCT), soft="drop", without_checker="drop"))
    assert [one.check is not None for one in sample.rubric] == [True]
    assert "; left out criteria: 2 soft, 1 hard without a checker" in said[0]


def test_code_can_be_given_to_the_judge(folder: Folder) -> None:
    (first, _), said = read(VerInstruct(**folder.jsonl(VERINSTRUCT), judged=["code:checker"]))
    assert checks(first) == [None, None, None]
    assert "code:checker (as `judged` asks) 1" in said[0]


def test_columns_that_do_not_belong_together(folder: Folder) -> None:
    rows = [{**VERINSTRUCT[0], "functions": [SHOUTS]}, VERINSTRUCT[1]]
    with pytest.raises(DataError, match="row 1: 3 checkers, 1 functions: they belong together one by one"):
        read(VerInstruct(**folder.jsonl(rows)))
    samples, said = read(VerInstruct(**folder.jsonl(rows), bad_rows="drop"))
    assert [sample.id for sample in samples] == ["v2"]
    assert "; left out rows: 1 that do not fit; the first that does not fit: " in said[0]
    assert "data.jsonl: row 1: 3 checkers" in said[0]


# -- MulDimIF ----------------------------------------------------------------------------------------------------------

MULDIMIF = [
    {"id": "100", "conversations": [{"role": "user", "content": "Why is the sky blue?"}],
     "constraints": [["Length", "Words: At most", "At most 50 words"], ["Format", "Table", "At most 3 rows"]],
     "constraint_pattern": "Listing"},
    {"id": "101", "conversations": [{"role": "user", "content": "為什麼？"}],
     "constraints": [["Length", "Words", "Range: 50-100 words"], ["Language", "Chinese", "Must use Traditional Chinese characters"]],
     "constraint_pattern": "Incorporation"},
]  # fmt: skip


def test_muldimif(folder: Folder) -> None:
    (folder.path / "test.json").write_text(json.dumps(MULDIMIF, indent=4))
    (first, second), said = read(MulDimIF(path="json", files=[str(folder.path / "test.json")]))
    assert first.prompt == [Message(role="user", content="Why is the sky blue?")]
    assert first.meta == {"constraint_pattern": "Listing", "criteria": ["Length_Words: At most", "Format_Table"]}
    assert [one.text for one in first.rubric] == ["At most 50 words", "At most 3 rows"]
    assert checks(first) == [
        {"name": "length_constraints:number_words", "relation": "less than", "num_words": 51},
        None,
    ]
    assert checks(second) == [None, None]
    assert "1 hard by rules" in said[0]
    assert said[0].endswith(
        "3 hard without a checker here, left to the judge: Format_Table 1, Length_Words 1, Language_Chinese 1"
    )
    with pytest.raises(DataError, match=r"row 1: constraint \[\"Length\"\]: wants \[category, kind, sentence\]"):
        read(MulDimIF(**folder.jsonl([{**MULDIMIF[0], "constraints": [["Length"]]}])))


# -- HiR-16K -----------------------------------------------------------------------------------------------------------

CHOOSE = "detectable_format:constrained_response"
HIR: list[dict[str, Any]] = [
    {"id": 1, "prompt": "One.", "source": "type1", "criteria": ["At most five words.", "Answer A, B or C.", "Begin with a title."],
     "ground_truth": {"instruction_id_list": ["length_constraints:number_words", CHOOSE, "detectable_format:title"],
                      "kwargs": [{"relation": "at most", "num_words": 5}, {}, {}], "constraint_pattern": ["a", "b", "c"]}},
    {"id": 2, "prompt": "Two.", "source": "type2", "criteria": ["Start with a verb.", "Nest quotes."],
     "ground_truth": {"instruction_id_list": ["words:start_verb", "format:quotes"], "kwargs": [{}, {}]}},
    {"id": "1", "prompt": "Three.", "source": "type3", "criteria": ["Say lamp.", "Write in Chinese."],
     "ground_truth": {"constraints": [["Content", "Keywords", "Must include the keyword 'lamp'"],
                                      ["Language", "Chinese", "Must use Simplified Chinese"]], "constraint_pattern": "Listing"}},
    {"id": 4, "prompt": "Four.", "source": "type4", "criteria": ["All capitals.", "Be kind."],
     "ground_truth": {"checker": ["[rule] Case", "[llm] Style"], "functions": [SHOUTS, ASKS]}},
]  # fmt: skip
"""As the hub's file has it: ids of two types, and `ground_truth` of three shapes."""


def processed(row: dict[str, Any]) -> dict[str, Any]:
    """As the authors of RTT keep it."""
    rubrics = [{"id": i, "category": "", "description": text, "weight": 1} for i, text in enumerate(row["criteria"], 1)]
    return {
        "id": row["id"], "source": row["source"], "question": "?", "messages": [{"role": "user", "content": row["prompt"]}],
        "prompt": row["prompt"], "rubrics": rubrics, "ground_truth": json.dumps(row["ground_truth"]),
    }  # fmt: skip


@pytest.mark.parametrize("rows", [HIR, [processed(row) for row in HIR]], ids=["hub", "processed"])
def test_hir_has_four_sources(rows: list[dict[str, Any]], folder: Folder) -> None:
    reader = Hir(**folder.jsonl(rows))
    samples, said = read(reader)
    assert [sample.id for sample in samples] == ["type1:1", "type2:2", "type3:1", "type4:4"]
    assert [sample.prompt for sample in samples] == ["One.", "Two.", "Three.", "Four."]
    assert [[one.text for one in sample.rubric] for sample in samples] == [row["criteria"] for row in HIR]
    assert checks(samples[0]) == [
        {"name": "length_constraints:number_words", "relation": "less than", "num_words": 6}, None, {"name": "detectable_format:title"},
    ]  # fmt: skip
    assert checks(samples[1]) == [None, {"name": "format:quotes"}]
    assert checks(samples[2]) == [{"name": "keywords:existence", "keywords": ["lamp"]}, None]
    assert samples[3].rubric[1].check is None
    code = samples[3].rubric[0].check
    assert code is not None
    assert (code["name"], code["arguments"], code["label"]) == (
        "code:checker",
        {"instruction": "Four."},
        "All capitals.",
    )
    assert "sandbox" not in code, "the strong one"
    assert [sample.meta["source"] for sample in samples] == ["type1", "type2", "type3", "type4"]
    assert reader.criteria_counts() == {
        "prompts": 4, "criteria": 9, "by rules": 4, "by their own code": 1, "soft": 1, "hard without a checker": 3,
        "namely": {f"{CHOOSE} (other options)": 1, "words:start_verb": 1, "Language_Chinese": 1},
    }  # fmt: skip
    assert "3 hard without a checker here, left to the judge: " in said[0]
    for one in (one for sample in samples for one in sample.rubric if one.check):
        build(Verifier, dict(one.check))


def test_hir_as_the_release_judges_it(folder: Folder) -> None:
    reader = Hir(**folder.jsonl(HIR), judged=["format:quotes", "Content_Keywords"])
    samples, _ = read(reader)
    assert checks(samples[1]) == [None, None]
    assert checks(samples[2]) == [None, None]
    assert reader.criteria_counts()["hard without a checker"] == 5


def test_hir_in_a_folder_is_read_as_it_stands(folder: Folder) -> None:
    """`datasets` would want one type a column."""
    folder.jsonl(HIR, name="HIR_trainv1")
    samples, _ = read(Hir(path=str(folder.path)))
    assert len(samples) == 4
    assert expected(Hir(path=str(folder.path), limit=2), Listening()).samples == 2


def test_hir_says_when_prompts_do_not_state_their_criteria(folder: Folder) -> None:
    rows = [HIR[0] | {"prompt": "One. In  AT MOST five words!"}, *HIR[1:]]
    samples, said = read(Hir(**folder.jsonl(rows)))
    assert samples[0].prompt == rows[0]["prompt"]
    assert "in 3 prompts no criterion stands word for word (`list_criteria: true` adds them)" in said[0]
    listed, said = read(Hir(**folder.jsonl(rows), list_criteria=True))
    assert listed[3].prompt == "Four.\n\nKeep all of these rules:\n- All capitals.\n- Be kind."
    assert "word for word" not in said[0]
    turns = [{key: value for key, value in processed(row).items() if key != "prompt"} for row in HIR]
    assert read(Hir(**folder.jsonl(turns), list_criteria=True))[0][3].prompt == [
        Message(role="user", content=listed[3].prompt)
    ]


def test_the_sandbox_that_is_wanted_is_part_of_the_key() -> None:
    """Samples that were made for the weak one must not be found when the strong one is wanted."""
    weak, strong = (Hir(sandbox=CheckerSandbox(require=require)) for require in ("weak", "strong"))
    assert dump(weak) != dump(strong)


def test_hir_with_messages_alone(folder: Folder) -> None:
    rows = [{key: value for key, value in processed(row).items() if key != "prompt"} for row in HIR]
    samples, _ = read(Hir(**folder.jsonl(rows)))
    assert samples[0].prompt == [Message(role="user", content="One.")]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"ground_truth": {"what": 1}},
            "has what: wants instruction_id_list and kwargs, constraints, or checker and functions",
        ),
        ({"ground_truth": "no JSON ("}, r"wants JSON"),
        ({"ground_truth": 3}, "is 3: wants a mapping"),
        ({"criteria": ["one"]}, "1 criteria, 3 instruction_id_list, 3 kwargs: they belong together one by one"),
        ({"criteria": [1, 2, 3]}, "has 1: wants texts, or mappings with a description"),
        ({"criteria": None}, 'no column "criteria" or "rubrics"'),
        ({"prompt": " "}, '"prompt" is empty'),
        ({"id": None}, '"id" is null'),
    ],
)
def test_rows_of_hir_that_do_not_fit(change: dict[str, Any], message: str, folder: Folder) -> None:
    with pytest.raises(DataError, match=message):
        read(Hir(**folder.jsonl([HIR[0] | change])))


# -- AdvancedIF --------------------------------------------------------------------------------------------------------


def test_advanced_if(folder: Folder) -> None:
    turns = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi."}]
    rows = [
        {"conversation_history": json.dumps(turns), "benchmark_name": "system_steerability_v2", "prompt_metadata": json.dumps({"rubrics": rubrics})}
        for rubrics in (["Is it brief?", "Is it kind?"], json.dumps(["Is it brief?"]))
    ]  # fmt: skip
    (first, second), said = read(AdvancedIF(**folder.jsonl(rows)))
    assert (first.id, second.id) == ("0", "1")
    assert [turn.role for turn in first.prompt] == ["system", "user"]
    assert [(one.text, one.check) for one in first.rubric] == [("Is it brief?", None), ("Is it kind?", None)]
    assert len(second.rubric) == 1
    assert first.meta["kind"] == "system_steerability_v2"
    assert "0 hard by rules, 0 hard by their own code in the sandbox, 3 soft for the judge" in said[0]


# -- rules of all of them ----------------------------------------------------------------------------------------------


def test_a_missing_column_is_told_with_the_first_row(folder: Folder) -> None:
    with pytest.raises(DataError) as told:
        read(IFEval(**folder.jsonl([{"id": 1, "prompt": "p"}])))
    assert 'no column "instruction_id_list", which reader `ifeval` needs. Set `columns.ids`' in str(told.value)
    assert 'Its first row:\n  id      1\n  prompt  "p"' in str(told.value)
    rows = [{"prompt": "p", "rules": {"ids": ["punctuation:no_comma"]}, "kwargs": [None]}]
    columns = InstructionColumns(id=None, ids="rules.ids")
    (sample,), _ = read(IFEval(**folder.jsonl(rows), columns=columns))
    assert (sample.id, checks(sample)) == ("0", [{"name": "punctuation:no_comma"}])
    with pytest.raises(DataError, match=r'no column "note".*Set `columns.meta`'):
        read(Hir(**folder.jsonl(HIR), columns=HirColumns(meta=["note"])))


def test_slices_and_counts_of_rows(folder: Folder) -> None:
    where = folder.jsonl(HIR)
    assert [sample.id for sample in read(Hir(**where, skip=1, limit=2))[0]] == ["type2:2", "type3:1"]
    with pytest.raises(DataError, match="4 rows, but the recipe expects 5"):
        read(Hir(**where, expect_rows=5))
    reader = Hir(**where)
    run = Listening()
    reader.setup(run)
    next(reader.read())  # whoever stops early hears what was read
    assert "1 prompts, 3 criteria" in run.said[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", r"data.jsonl:1:2: not valid JSON"),
        ('{"a": 1}\n[1]', r"data.jsonl:2: wants a JSON object, got list"),
        ("[1]", r"data.jsonl: row 1: wants a JSON object, got int"),
        ("[" * 100_000, r"data.jsonl:1: maximum recursion"),
        ("", "no rows"),
    ],
)
def test_files_that_are_no_json(text: str, message: str, folder: Folder) -> None:
    file = folder.path / "data.jsonl"
    file.write_text(text)
    with pytest.raises(DataError, match=message):
        read(Hir(path="json", files=[str(file)]))


@pytest.mark.parametrize("name", ["hir", "verinstruct", "muldimif", "ifeval", "ifbench", "if_train", "advanced_if"])
def test_recipes_name_them_alone(name: str) -> None:
    """Every default is the hub's."""
    reader = build(Reader, name)
    assert "/" in reader.path
    assert reader.identity() == {"revision": None}
