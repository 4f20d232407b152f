"""What is recognized as a secret, and what is not."""

from __future__ import annotations

import json
import shlex
from urllib.parse import quote

import pytest
import yaml
from planted_secrets import MARKS, PLAIN, SETTINGS
from secret_examples import FORMS, made

from fgrl import registry
from fgrl.base import sanitizing
from fgrl.base.sanitizing import hide, hide_in, names_secret, secrets_in
from fgrl.experiments.recipe.loading import know_components


def test_forty_secrets_are_planted() -> None:
    text = json.dumps(SETTINGS)
    assert [mark for mark in MARKS if json.dumps(mark)[1:-1] not in text] == []
    assert len(set(MARKS)) == 40


def left(text: str) -> list[str]:
    return [mark for mark in MARKS if mark in text]


def test_settings_lose_all_of_them() -> None:
    assert set(left(json.dumps(hide_in(SETTINGS)))) <= {"73519025"}, (
        "a number is refused in recipes, and kept in records"
    )
    assert {path[0] for path in secrets_in(SETTINGS)} == set(SETTINGS)


@pytest.mark.parametrize(
    "written",
    [
        json.dumps(SETTINGS), json.dumps(SETTINGS, indent=1), yaml.safe_dump(SETTINGS, sort_keys=False), repr(SETTINGS),
        "\n".join(f"{name}={value!r}" for name, value in SETTINGS.items()),
        shlex.join(f"--stages.a.arguments.{name}={value}" for name, value in SETTINGS.items()),
    ],
    ids=["json", "indented", "yaml", "repr", "assignments", "command"],
)  # fmt: skip
def test_text_loses_what_was_found(written: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanitizing, "_found", set())
    sanitizing.remember(SETTINGS)
    assert left(hide(written)) == []


@pytest.mark.parametrize("name", SETTINGS)
def test_a_line_of_a_recipe_loses_what_nobody_has_seen_before(name: str) -> None:
    line = yaml.safe_dump({name: SETTINGS[name]}, default_flow_style=True, width=1000)
    assert left(hide(f"recipe.yaml:3:5: {line}")) in (
        [],
        ["planted-17"],
        ["planted-18"],
        ["planted-17", "planted-18"],
    ), line


@pytest.mark.parametrize("value", ["none", "p(ss)word1"])
def test_the_value_of_an_option_is_no_prose(value: str) -> None:
    assert value[:4] not in hide(f"tool --password {value} --level 2")
    assert hide(f"password: {value}") == f"password: {value}"


@pytest.mark.parametrize("name", PLAIN)
def test_other_settings_stay(name: str) -> None:
    assert list(secrets_in({name: PLAIN[name]})) == []
    assert hide_in({name: PLAIN[name]}) == {name: PLAIN[name]}
    text = f"{name}: {PLAIN[name]}"
    assert hide(text) == text


def test_no_field_of_a_component_is_named_like_a_secret() -> None:
    know_components()
    names = {
        field
        for kind in registry.kinds()
        for name in registry.names(kind)
        for field in registry.get(kind, name).model_fields
    }
    assert len(names) > 200
    assert [
        name for name in names if names_secret(name, "a value of a setting") or names_secret(name, "value-of-it")
    ] == []


def test_values_of_the_environment_are_hidden_in_every_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_SERVICE_TOKEN", 'odd"value & <more>')
    monkeypatch.setenv("SOME_SERVICE_HOME", "plain-value-of-it")
    for form in (
        'odd"value & <more>',
        'odd\\"value & <more>',
        "odd%22value%20%26%20%3Cmore%3E",
        "odd&#34;value &amp; &lt;more&gt;",
    ):
        assert hide(f"a {form} b plain-value-of-it") == "a <key> b plain-value-of-it"


def test_of_a_prompt_that_contains_a_secret_nothing_else_is_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanitizing, "_found", set())
    prompt = f"Answer in one word.\nThe key is {SETTINGS['first']}\n{SETTINGS['text']}"
    sanitizing.remember({"prompt": prompt, "password": "another word"})
    assert list(secrets_in({"prompt": prompt})) == [("prompt",)]
    assert hide("Answer in one word. MIIEplanted27AbCdEfGh, another word") == "Answer in one word. <key>, <key>"


@pytest.mark.parametrize(
    "settings",
    [
        {"arguments": {"api_key_env": "MY_OWN"}}, {"stages": [{"clients": [{"keyEnv": "MY_OWN"}]}]},
        {"env": ["OTHER", "MY_OWN"]}, {"key_env_var": "MY_OWN"},
    ],
)  # fmt: skip
def test_a_variable_that_a_setting_names_is_hidden(settings: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanitizing, "_variables", set())
    monkeypatch.setenv("MY_OWN", "plain words\n")
    assert hide("it has plain words, too") == "it has plain words, too"
    sanitizing.remember(settings)
    assert hide("it has plain words, too") == "it has <key>, too"
    assert hide_in(["plain words", {"plain words": 1}]) == ["<key>", {"<key>": 1}]


@pytest.mark.parametrize("form", FORMS)
def test_forms_that_scanners_know_are_hidden_under_any_name(form: str) -> None:
    secret, parts = made(form)
    texts = [
        f"note: {secret}",
        f"it was {secret}.",
        f"({secret})",
        repr(f"first\n{secret}"),
        json.dumps({"note": secret}),
    ]
    for text in [*texts, f"https://host.example/?next=%3D{secret}" if quote(secret) == secret else secret]:
        assert [part for part in parts if part in hide(text)] == [], text
    assert list(secrets_in({"note": secret})) == [("note",)]


def test_ids_and_hashes_are_no_secrets() -> None:
    text = f"model-{'a1' * 20}.json {'0f' * 32} stages/policy-3f9a1c2b7d6e4f50 2026-11-28T15:21:27Z 1.0.0 pattern-a patience=3 fw_head re_run"
    assert hide(text) == text
