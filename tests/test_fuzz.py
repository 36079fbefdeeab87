"""The fuzzing harness finds misbehaving readers, and every reader passes a short round of it."""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys

import pytest

from fuzz.__main__ import main
from fuzz.cases import Runner, smaller
from fuzz.guard import Guard
from fuzz.plain import fuzz_plainly
from fuzz.targets import TARGETS, Target
from ltpll.errors import InputError

SLOW_SEEDS = {"checkpoint"}  # they are trained, which takes longer than everything else


@pytest.mark.parametrize("name", [name for name in TARGETS if name not in SLOW_SEEDS])
def test_valid_files_are_read_and_damaged_ones_are_read_or_rejected(tmp_path, name):
    """If no valid file were read, a fuzzer would only reach the first checks of a reader."""
    if name == "xlsx":
        pytest.importorskip("python_calamine")
    target = TARGETS[name]
    guard = Guard(tmp_path)
    runner = Runner(target, tmp_path, guard, 5.0)
    runner.guard = (
        _NoGuard()
    )  # its hook cannot be removed from this process; the engines use it in child processes
    corpus = target.cases()
    outcomes = [runner(case) for case in corpus]
    assert name == "paths" or sum(outcome.read for outcome in outcomes) >= len(target.seeds()) / 2
    rng = random.Random(0)
    outcomes += [runner(target.mutate(rng, rng.choice(corpus), corpus)) for _ in range(60)]
    assert [outcome.finding.message for outcome in outcomes if outcome.finding] == []
    assert len({outcome.place for outcome in outcomes}) > 1


class _NoGuard:
    def watching(self, seconds):
        return contextlib.nullcontext()


# ---- misbehaving readers -------------------------------------------------------------------------


def refuse(case, folder):
    raise InputError("This is refused.")


def misbehaving(how):
    def run(case, folder):
        if b"!" not in case[1:]:
            refuse(case, folder)
        how(folder)

    return Target("bad", run, lambda: [b"abcdefgh", b"xyz!"], tokens=[b"!"])


def wait(folder):
    while True:
        pass


def die(folder):
    import ctypes

    ctypes.string_at(0)


def write_outside(folder):
    with contextlib.suppress(BaseException):  # catching the error does not hide the violation
        (folder.parent.parent / "outside").write_bytes(b"")


def start_a_process(folder):
    subprocess.run(["true"], check=False)


def take_memory(folder):
    bytearray(1 << 40)


def raise_two_lines(folder):
    raise InputError("one line\nand another")


@pytest.mark.parametrize(
    ("how", "kind"),
    [
        (lambda folder: {}["nothing"], "KeyError"),
        (wait, "slow"),
        (die, "died-SIGSEGV"),
        (write_outside, "forbidden"),
        (start_a_process, "forbidden"),
        (take_memory, "MemoryError"),
        (raise_two_lines, "message"),
    ],
    ids=["error", "hang", "crash", "write", "process", "memory", "message"],
)
def test_a_misbehaving_reader_is_found_and_its_case_saved(tmp_path, how, kind):
    found = fuzz_plainly(misbehaving(how), 5.0, 4, seed=0, limit=0.2, findings=tmp_path / "kept")
    assert kind in {finding["kind"] for finding in found["findings"]}
    finding = next(finding for finding in found["findings"] if finding["kind"] == kind)
    assert b"!" in (tmp_path / "kept" / finding["file"]).read_bytes()
    assert finding["replay"].endswith(" bad")
    assert not (tmp_path.parent / "outside").exists()


def test_a_reader_that_behaves_gives_no_findings_and_every_case_is_counted(tmp_path):
    target = Target("good", refuse, lambda: [b"abc"])
    found = fuzz_plainly(target, 5.0, 300, seed=0, limit=1.0, findings=tmp_path)
    assert (found["cases"], found["read"], found["refused"], found["findings"]) == (300, 0, 300, [])


def test_a_case_is_minimised(tmp_path):
    target = misbehaving(lambda folder: {}["nothing"])
    runner = Runner(target, tmp_path, Guard(tmp_path), 1.0)
    runner.guard = _NoGuard()
    finding = runner(b"\0" + b"long and dull " * 20 + b"!" + b" more" * 30).finding
    assert smaller(runner, finding).case == b"\0!"


def test_the_same_seed_gives_the_same_cases():
    target = TARGETS["csv"]
    corpus = target.cases()

    def drawn(seed):
        rng = random.Random(seed)
        return [target.mutate(rng, rng.choice(corpus), corpus) for _ in range(20)]

    assert drawn(1) == drawn(1) != drawn(2)


def in_child(arguments):
    """Run the command in a child process, since guards cannot be removed, and return its exit
    status.
    """
    child = os.fork()
    if child == 0:
        status = 99
        try:
            sys.argv = ["fuzz", *map(str, arguments)]
            status = main()
        finally:
            sys.stdout.flush()
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def test_the_command_writes_its_summary_and_replays_a_saved_case(tmp_path, capfd):
    common = ["config", "--engine", "plain", "--findings", tmp_path / "f"]
    assert in_child([*common, "--cases", 200, "--json", tmp_path / "s.json"]) == 0
    assert "200 cases, 0 findings" in capfd.readouterr().out
    summary = json.loads((tmp_path / "s.json").read_text())
    assert (summary["cases"], summary["findings"], summary["targets"]["config"]["cases"]) == (
        200,
        0,
        200,
    )
    assert summary["environment"]["hardware"]
    (tmp_path / "case").write_bytes(b"\0[training]\nlr = 0.1")
    assert in_child(["config", "--replay", tmp_path / "case"]) == 0
    assert capfd.readouterr().out == "read\n"
    (tmp_path / "case").write_bytes(b"\0[training]\nlr = ")
    assert in_child(["config", "--replay", tmp_path / "case"]) == 0
    assert "rejected at settings.py" in capfd.readouterr().out
