"""Alarms ring when a policy collapses, once, and stop the run when told to."""

import math

import pytest

from fgrl.base.errors import Stopped
from fgrl.training.alarms import Alarm, Alarms, Watch

NOTHING = Alarms(**dict.fromkeys(Alarms.model_fields))


def watch(**alarms):
    said: list[str] = []
    return Watch(NOTHING.model_copy(update=alarms), said.append), said


def test_it_rings_after_its_patience_and_once():
    seen, said = watch(tokens=Alarm(below_first=0.5, patience=2))
    for value in (20, 8, 9, 7, 6):
        seen.look({"tokens": value}, example="two words")
    assert len(said) == 1
    assert "tokens is 9, below 0.5 of its first value 20" in said[0]
    assert "two words" in said[0]


def test_recovery_starts_the_count_again():
    seen, said = watch(empty=Alarm(above=0.2, patience=2))
    for value in (0.3, 0.1, 0.3, 0.1, 0.3):
        assert seen.look({"empty": value}, example="") == []
    assert said == []


def test_stop_raises_with_the_field_to_change():
    seen, _said = watch(kl=Alarm(above=10, patience=1, action="stop"))
    seen.look({"kl": 9.0}, example="x")
    with pytest.raises(Stopped, match=r"alarms\.kl"):
        seen.look({"kl": 11.0}, example="x")


@pytest.mark.parametrize(
    ("alarm", "value", "first", "rings"),
    [
        (Alarm(below=1.0), 1.0, 5.0, False),
        (Alarm(below=1.0), 0.9, 5.0, True),
        (Alarm(above=1.0), 1.1, 0.0, True),
        (Alarm(above_first=2.0), 11.0, 5.0, True),
        (Alarm(above_first=2.0), 9.0, 5.0, False),
        (Alarm(below_first=0.5), 2.0, 5.0, True),
    ],
)
def test_bounds(alarm, value, first, rings):
    assert (alarm.broken(value, first) is not None) == rings


def test_a_metric_that_is_not_there_does_not_ring():
    seen, said = watch(zero_variance=Alarm(above=0.0, patience=1))
    assert seen.look({"tokens": 1.0}, example="") == []
    assert said == []


def test_verdicts_that_a_reward_lacks_ring_by_default():
    said: list[str] = []
    seen = Watch(Alarms(), said.append)
    for _ in range(3):
        seen.look({"missing": 0.0, "reward/missing_verdicts": 0.4, "reward/tokens": 0.0}, example="two words")
    assert len(said) == 1
    assert "missing_verdicts is 0.4, above 0.2" in said[0]


def test_the_streak_survives_a_checkpoint():
    before, _said = watch(tokens=Alarm(below_first=0.5, patience=2))
    before.look({"tokens": 20}, example="")
    before.look({"tokens": 5}, example="")
    after, said = watch(tokens=Alarm(below_first=0.5, patience=2))
    after.load_state_dict(before.state_dict())
    after.look({"tokens": 5}, example="")
    assert len(said) == 1


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("alarm", [Alarm(below=0.1), Alarm(above=100.0), Alarm(below_first=0.4, above_first=4.0)])
def test_a_value_that_is_not_a_finite_number_rings(alarm, value):
    seen, said = watch(kl=alarm.model_copy(update={"patience": 1}))
    seen.look({"kl": 1.0}, example="x")
    assert seen.look({"kl": value}, example="x") == ["kl"]
    assert "not a finite number" in said[0]


@pytest.mark.parametrize("start", [0.0, -0.5, math.nan])
def test_shares_of_the_first_value_wait_for_one_above_zero(start):
    seen, _said = watch(kl=Alarm(below_first=0.5, above_first=2.0, patience=2))
    assert [seen.look({"kl": value}, example="x") for value in (start, 1.0, 1.9, 2.1)] == [[], [], [], []]
    assert seen.look({"kl": 2.2}, example="x") == ["kl"]


def test_the_default_alarms_ring_when_a_policy_has_diverged():
    said: list[str] = []
    seen = Watch(Alarms(), said.append)
    for _ in range(2):
        seen.look(dict.fromkeys(Alarms.model_fields, math.nan), example="x")
    assert len(said) == len(Alarms.model_fields)


def test_marks_that_say_nothing_about_the_outcome_set_off_an_alarm():
    said: list[str] = []
    seen = Watch(Alarms(), said.append)
    told = [seen.look({"reward/marks_agree": value}, example="x") for value in (0.95, 0.5, 0.9, 0.5, 0.55, 0.7)]
    assert told == [[], [], [], [], ["marks_agree"], []]
    assert "marks_agree is 0.55, below 0.6" in said[0]


def kept_by(seen: Watch) -> list[tuple]:
    return [(each.name, each.since, each.value, each.until) for each in seen.records]


def test_an_alarm_is_recorded_from_when_it_rings_until_the_metric_is_back():
    kept: list[list] = []
    alarms = NOTHING.model_copy(update={"tokens": Alarm(below=10, patience=2)})
    seen = Watch(alarms, lambda _text: None, lambda records: kept.append([each.model_copy() for each in records]))
    assert kept == [[]], "that it watches is known before anything rings"
    for iteration, value in enumerate((20, 8, 7, 6, 12, math.nan, math.nan, 5)):
        seen.look({"tokens": value}, example="", iteration=iteration)
        seen.look({"loss": 1.0}, example="", iteration=iteration)  # what only training measures
    assert kept_by(seen) == [("tokens", 2, 7.0, 4), ("tokens", 6, None, None)]
    assert [each.bound for each in seen.records] == ["below 10.0", "not a finite number"]
    assert [len(records) for records in kept] == [0, 1, 1, 2], "written when it rings, and when it ends"


def test_an_alarm_that_stops_is_recorded_before():
    kept: list[list] = []
    seen = Watch(NOTHING.model_copy(update={"kl": Alarm(above=1, patience=1, action="stop")}), print, kept.append)
    with pytest.raises(Stopped):
        seen.look({"kl": 2.0}, example="", iteration=7)
    assert [(each.name, each.since) for each in kept[-1]] == [("kl", 7)]


def test_records_survive_a_checkpoint_and_are_not_doubled():
    before, _said = watch(tokens=Alarm(below=10, patience=1))
    before.look({"tokens": 5}, example="", iteration=3)
    state = before.state_dict()
    before.look({"tokens": 5}, example="", iteration=4)
    after, said = watch(tokens=Alarm(below=10, patience=1))
    after.load_state_dict(state)
    after.look({"tokens": 5}, example="", iteration=4)
    assert kept_by(after) == kept_by(before) == [("tokens", 3, 5.0, None)]
    assert said == []
    after.look({"tokens": 50}, example="", iteration=5)
    assert kept_by(after) == [("tokens", 3, 5.0, 5)]
