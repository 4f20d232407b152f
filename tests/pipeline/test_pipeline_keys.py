"""A key changes with everything that can change a result, and with nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pipeline_helpers import fake_recipe, fakes

from fgrl import registry
from fgrl.base.console import Console
from fgrl.experiments.pipeline import keys, plan
from fgrl.experiments.recipe import know_components, recipe_name
from fgrl.kinds import Stage
from fgrl.registry.problems import Place
from fgrl.types import Ref


@pytest.fixture
def stages() -> Iterator[ModuleType]:
    with fakes() as module:
        yield module


def key(stage: object, **more: object) -> str:
    options = {"seed": 0, "upstream": {"first": "aaaa"}, **more}
    return keys.key(keys.identity(stage, **options))  # type: ignore[arg-type]


def test_parameters_count_also_nested_ones_and_defaults_do_not_matter(stages: ModuleType) -> None:
    plain = key(stages.Counting())
    assert key(stages.Counting(steps=3, inner=stages.Inner(rate=0.5))) == plain
    different = [
        key(stages.Counting(steps=4)),
        key(stages.Counting(inner=stages.Inner(rate=0.25))),
        key(stages.Counting(inner=stages.Inner(table={"a": 1}))),
        key(stages.Counting(), seed=1),
        key(stages.Counting(), limit=4),
        key(stages.Failing()),
    ]
    assert len({plain, *different}) == len(different) + 1
    assert len(plain) == keys.LENGTH


def test_unkeyed_fields_do_not_count(stages: ModuleType) -> None:
    assert key(stages.Counting(pause=1.0, devices=4)) == key(stages.Counting())


def settings_of(base: type[registry.Settings], source: str) -> type[registry.Settings]:
    """The class `Later` of some source, in which `Base` is what it extends."""
    module: dict[str, Any] = {"Base": base}
    imports = "from typing import Annotated\nfrom fgrl.registry import File, Settings\n"
    exec(compile(imports + source, "later.py", "exec", dont_inherit=True), module)
    later = module["Later"]
    assert issubclass(later, registry.Settings)
    return later


BEFORE = """
class Later(Base):
    limit: int = 1
"""
ADDED = f"{BEFORE}    clip: float = 0\n"


def key_with(stages: ModuleType, source: str, **values: Any) -> str:
    """The key of a stage whose nested settings are made by `source`."""
    return key(stages.Counting(inner=settings_of(stages.Inner, source)(**values)))


def test_a_field_that_was_added_does_not_count_at_its_default(stages: ModuleType) -> None:
    before = key_with(stages, BEFORE)
    assert key_with(stages, ADDED) == key_with(stages, ADDED, clip=0.0) == before
    assert key_with(stages, ADDED, clip=0.2) != before
    assert key_with(stages, ADDED, limit=2) == key_with(stages, BEFORE, limit=2) != before


def test_true_is_not_the_default_1(stages: ModuleType) -> None:
    either = f"{BEFORE}    every: bool | int = 1\n"
    assert key_with(stages, either, every=1) == key_with(stages, BEFORE) != key_with(stages, either, every=True)


def test_an_added_group_of_settings_counts_only_by_what_differs(stages: ModuleType, tmp_path: Path) -> None:
    nested = f"""
class Inner(Settings):
    words: Annotated[str | None, File] = None
    size: int = 1
{BEFORE}    inner: Inner | None = None
    group: Inner = Inner(size=2)
"""
    words = tmp_path / "words.txt"
    words.write_text("sea\n")
    before = key_with(stages, BEFORE)
    assert key_with(stages, nested) == key_with(stages, nested, group={"size": 2, "words": None}) == before
    others = [
        {name: values}
        for name in ("inner", "group")
        for values in ({}, {"words": str(words)}, {"words": str(words), "size": 2})
    ]
    assert len({key_with(stages, nested, **other) for other in others} | {before}) == len(others) + 1


def test_the_content_of_a_default_file_counts(stages: ModuleType, tmp_path: Path) -> None:
    words = tmp_path / "words.txt"
    words.write_text("sea\n")
    nested = f"""
class Inner(Settings):
    words: Annotated[str | None, File] = None
{BEFORE}    group: Inner = Inner(words={str(words)!r})
"""
    before = key_with(stages, nested)
    words.write_text("lamp\n")
    assert key_with(stages, nested) != before


def test_a_default_component_counts_once_its_version_was_raised(
    stages: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = f"""
from fgrl.components.segmenters.entropy import Entropy
{BEFORE}    segmenter: Entropy = Entropy(cutoff=1.0)
"""
    later = settings_of(stages.Inner, source)
    segmenter = type(later().segmenter)
    before = key(stages.Counting(inner=later()))
    assert before == key_with(stages, BEFORE)
    monkeypatch.setattr(segmenter, "version", segmenter.version + 1)
    assert key(stages.Counting(inner=later())) != before


def test_a_recipe_shows_a_field_at_every_value() -> None:
    later = settings_of(registry.Settings, ADDED)
    assert registry.dump(later()) == {"limit": 1, "clip": 0.0}
    assert registry.dump(later(clip=0.0), for_key=True) == {}
    assert registry.dump(later(clip=0.2), for_key=True) == {"clip": 0.2}


def test_the_version_of_a_component_counts(stages: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    before = key(stages.Counting())
    monkeypatch.setattr(stages.Counting, "version", 2)
    assert key(stages.Counting()) != before


def test_content_of_files_counts_and_their_place_does_not(stages: ModuleType, tmp_path: Path) -> None:
    here, there, other = (tmp_path / name for name in ("here.txt", "there.txt", "other.txt"))
    here.write_text("sea\n")
    there.write_text("sea\n")
    other.write_text("lamp\n")
    assert key(stages.Counting(words=str(here))) == key(stages.Counting(words=str(there)))
    assert key(stages.Counting(words=str(here))) != key(stages.Counting(words=str(other)))
    assert key(stages.Counting(words=str(here))) != key(stages.Counting())


def test_weights_of_local_models_count_and_their_place_does_not(stages: ModuleType, tmp_path: Path) -> None:
    specs = []
    for name, weights in (("one", b"1"), ("two", b"1"), ("three", b"3")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
        (tmp_path / name / "model.safetensors").write_bytes(weights)
        specs.append(stages.ModelSpec(base=str(tmp_path / name)))
    one, two, three = (key(stages.Counting(model=spec)) for spec in specs)
    assert one == two != three
    hub = [stages.ModelSpec(base="owner/name", revision=revision) for revision in ("a", "b")]
    assert key(stages.Counting(model=hub[0])) != key(stages.Counting(model=hub[1]))


def test_the_attention_that_runs_counts_and_not_the_one_that_was_asked_for(
    stages: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stage(attention: str) -> Any:
        return stages.Counting(model=stages.ModelSpec(base="owner/name", attention=attention))

    def planned() -> Any:
        return plan(
            fake_recipe(tmp_path, first=stage("flash_attention_2"), second=stage("flash_attention_2")), tmp_path
        )

    monkeypatch.setattr("fgrl.kinds.specs.find_spec", lambda _name: None)
    assert key(stage("flash_attention_2")) == key(stage("sdpa")) != key(stage("eager"))
    assert [line for line in planned().notices() if "attention" in line] == [
        "attention: sdpa instead of flash_attention_2, because flash-attn is not installed (pip install flash-attn --no-build-isolation)"
    ]
    monkeypatch.setattr("fgrl.kinds.specs.find_spec", lambda name: name)
    assert key(stage("flash_attention_2")) != key(stage("sdpa"))
    assert not [line for line in planned().notices() if "attention" in line]


def test_what_readers_say_of_their_data_counts(tmp_path: Path) -> None:
    """A folder of data that has changed is other data, though no field of the recipe says so."""
    know_components()
    folder, topics = tmp_path / "data", tmp_path / "topics.txt"
    folder.mkdir()
    rows = folder / "train.jsonl"
    topics.write_text("sea\n")

    def stage(**data: str) -> Stage:
        builder = {"name": "by_rule", "rule": "punctuation:no_comma"}
        return registry.build(Stage, {"name": "pair", "data": data, "builder": builder})

    def pairs() -> Stage:
        return stage(name="hf", path=str(folder), format="preference")

    rows.write_text('{"prompt": "a", "chosen": "b", "rejected": "c"}\n')
    before = keys.identity(pairs(), seed=0, upstream={})
    assert list(before["data"]) == ["data"], "by the path of the reader in the stage"
    assert key(pairs()) == keys.key(before)
    rows.write_text('{"prompt": "a", "chosen": "d", "rejected": "c"}\n')
    assert key(pairs()) != keys.key(before)

    lines = keys.identity(stage(name="lines", path=str(topics)), seed=0, upstream={})
    assert "data" not in lines, "its file is hashed already"


def test_upstream_counts_by_key_not_by_name(stages: ModuleType) -> None:
    by_name = {name: stages.Counting(source=Ref(name)) for name in ("first", "renamed")}
    assert key(by_name["first"], upstream={"first": "aaaa"}) == key(by_name["renamed"], upstream={"renamed": "aaaa"})
    assert key(by_name["first"], upstream={"first": "aaaa"}) != key(by_name["first"], upstream={"first": "bbbb"})
    model = [stages.Counting(model=stages.ModelSpec(base=Ref("first"))) for _ in range(2)]
    assert key(model[0], upstream={"first": "aaaa"}) != key(model[1], upstream={"first": "bbbb"})


def test_imported_source_counts_where_it_is_used(stages: ModuleType) -> None:
    file = Path(stages.__file__ or "")
    mine = stages.Counting()
    assert key(mine, sources={file: "1"}) != key(mine, sources={file: "2"})
    elsewhere = Path("/somewhere/else.py")
    assert key(mine, sources={elsewhere: "1"}) == key(mine), "nothing of that file is used"
    assert key(mine, sources={file: "1", elsewhere: "1"}) != key(mine, sources={file: "1", elsewhere: "2"})


def test_a_stage_is_compared_with_those_of_its_own_recipe_and_of_those_that_it_extends(
    stages: ModuleType, tmp_path: Path
) -> None:
    from fgrl.experiments.pipeline import execute

    def recipe(steps: int, path: Path, *parents: Path):
        made = fake_recipe(tmp_path, first=stages.Counting(steps=steps))
        made.path = path
        made.origins = {number: Place(parent.name, file=parent) for number, parent in enumerate(parents)}
        return made

    runs, parent, other = tmp_path / "runs", tmp_path / "parent.yaml", tmp_path / "parents.yaml"
    assert execute(recipe(1, parent), runs, console=Console(quiet=True)).exit == 0

    def why(made) -> str:
        return plan(made, runs).stages[0].why

    assert why(recipe(2, other)) == "new"
    for made in (recipe(2, parent), recipe(2, tmp_path / "child.yaml", other, parent)):
        assert why(made).startswith("changed: stages.first.steps (1 -> 2) against first-")


TABLES = st.dictionaries(st.text(max_size=5), st.integers(0, 9), max_size=6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(TABLES.flatmap(lambda table: st.tuples(st.just(table), st.permutations(list(table.items())))))
def test_key_does_not_depend_on_the_order_of_mappings(
    stages: ModuleType, drawn: tuple[dict[str, int], list[tuple[str, int]]]
) -> None:
    table, shuffled = drawn
    plain = key(stages.Counting(inner=stages.Inner(table=table)))
    assert key(stages.Counting(inner=stages.Inner(table=dict(shuffled)))) == plain
    assert key(stages.Counting(inner=stages.Inner(table={**table, "longer key": 1}))) != plain


def test_plan_says_why(stages: ModuleType, tmp_path: Path) -> None:
    from fgrl.experiments.pipeline import execute

    def recipe(steps: int = 3, rate: float = 0.5, seed: int = 0):
        return fake_recipe(
            tmp_path,
            seed=seed,
            first=stages.Counting(steps=steps),
            second=stages.Counting(source=Ref("first"), inner=stages.Inner(rate=rate)),
        )

    runs = tmp_path / "runs"
    assert [stage.why for stage in plan(recipe(), runs).stages] == ["new", "new"]
    assert not runs.exists(), "planning writes nothing"
    assert execute(recipe(), runs).exit == 0
    assert all(stage.why.startswith("cached (made by fake on 20") for stage in plan(recipe(), runs).stages)

    first, second = plan(recipe(rate=0.75), runs).stages
    assert (first.cached, second.cached) == (True, False)
    assert (
        second.why
        == f"changed: stages.second.inner.rate (default -> 0.75) against second-{plan(recipe(), runs)['second'].key}"
    )
    first, second = plan(recipe(steps=4), runs).stages
    assert first.why.startswith("changed: stages.first.steps (default -> 4) against first-")
    assert second.why == "upstream first changed"
    assert plan(recipe(seed=1), runs).stages[0].why.startswith("changed: seed (0 -> 1) against first-")


def test_plan_as_json_has_the_stages_in_order(stages: ModuleType, tmp_path: Path) -> None:
    recipe = fake_recipe(tmp_path, zebra=stages.Counting(), ape=stages.Counting(source=Ref("zebra")))
    data = plan(recipe, tmp_path / "runs").as_json()
    assert list(data["stages"]) == ["zebra", "ape"]
    assert data["stages"]["ape"] | {"key": "", "dir": ""} == {
        "key": "", "cached": False, "why": "new", "component": "counting", "makes": "Samples", "upstream": ["zebra"], "dir": "",
        "auto": {}, "emulated": [],
    }  # fmt: skip


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/x/recipes/small/dpo.yaml", "small-dpo"),
        ("/x/recipes/dpo.yaml", "dpo"),
        ("/x/dpo.yaml", "dpo"),
        ("/x/stages.yaml", "stages-recipe"),
        ("/x/recipes/recipes.yaml", "recipes"),
    ],
)
def test_folder_of_a_recipe(path: str, name: str) -> None:
    assert recipe_name(Path(path)) == name


def test_registry_forgets_the_fakes() -> None:
    with fakes():
        assert "counting" in registry.names("stage")
    assert "counting" not in registry.names("stage")
