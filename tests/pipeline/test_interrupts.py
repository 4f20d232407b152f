"""Ctrl-C is answered while the main thread is in a computation that runs no Python."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest
from patience import HUNG
from pipeline_helpers import environment

from fgrl.base.errors import Aborted
from fgrl.experiments.pipeline.interrupts import ACKNOWLEDGED, Interrupts

COMPUTING = """
import hashlib
import threading
import time

from fgrl.experiments.pipeline import interrupts

interrupts.STUCK, interrupts.SAME = 0.2, 0.0
clock = time.pthread_getcpuclockid(threading.main_thread().ident)


def say(text):
    print(text, flush=True)


def report_computation(start):
    while time.clock_gettime(clock) < start + 0.1:  # the main thread has nothing else to compute
        time.sleep(0.01)
    say("computing")


with interrupts.Interrupts(say):
    threading.Thread(target=report_computation, args=(time.clock_gettime(clock),), daemon=True).start()
    hashlib.pbkdf2_hmac("sha256", b"x", b"y", 2_000_000_000)  # minutes in C, without the interpreter's lock
    say("the computation ended")
"""


def test_the_first_is_acknowledged_once_and_the_second_aborts() -> None:
    said: list[str] = []
    before = signal.getsignal(signal.SIGINT)
    with Interrupts(said.append) as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        assert interrupts()
        assert said == [ACKNOWLEDGED]
        with pytest.raises(Aborted):
            signal.raise_signal(signal.SIGINT)
    assert said == [ACKNOWLEDGED]
    assert signal.getsignal(signal.SIGINT) is before
    assert signal.set_wakeup_fd(-1) == -1, "what it listened to is closed"


def test_a_second_sigterm_aborts_unless_it_is_the_same_request(monkeypatch: pytest.MonkeyPatch) -> None:
    now, said = [100.0], list[str]()
    monkeypatch.setattr("fgrl.experiments.pipeline.interrupts.time.monotonic", lambda: now[0])
    with Interrupts(said.append) as interrupts:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGTERM)  # by a scheduler and by the parent
        assert interrupts()
        now[0] += 2
        with pytest.raises(Aborted):
            signal.raise_signal(signal.SIGTERM)
    monkeypatch.setattr("fgrl.base.stops._tied", [1])
    with Interrupts(said.append):
        for _ in range(3):  # whoever started this process asks again and again
            signal.raise_signal(signal.SIGTERM)
            now[0] += 2


def test_workers_of_a_distributed_stage_say_nothing() -> None:
    said: list[str] = []
    with Interrupts(said.append, ignores_sigint=True) as interrupts:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.05)
        assert not interrupts()
    assert said == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_is_acknowledged_in_the_middle_of_a_computation(number: signal.Signals) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", COMPUTING], env=environment(), stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    try:
        assert process.stdout.readline().strip() == "computing"
        process.send_signal(number)
        assert process.stdout.readline().strip() == ACKNOWLEDGED
        process.send_signal(number)
        rest, _ = process.communicate(timeout=HUNG)
        assert "aborted in the middle of a computation" in rest
        assert "the computation ended" not in rest
        assert process.returncode == 130
    finally:
        process.kill()
