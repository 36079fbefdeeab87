"""What commands print where the output is not UTF-8."""

import io
import json
import re
import sys
import warnings
import weakref

import pytest

from ltpll import cli
from ltpll.errors import InputError
from support.user_tables import write_csv


@pytest.fixture
def run_in_ascii(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ltpll.cli.program.exit_on_signals", lambda: None)
    monkeypatch.setenv("OMP_WAIT_POLICY", "PASSIVE")
    monkeypatch.setattr("warnings.showwarning", warnings.showwarning)  # is put back afterwards
    write_csv(
        tmp_path / "t.csv",
        ["id", "candidates", "x"],
        [["1", "\u05e9\u05dc|\u00e9", 1], ["2", "b", 2]],
    )

    def run(*arguments):
        streams = {
            name: io.TextIOWrapper(io.BytesIO(), "ascii", errors="strict")
            for name in ("stdout", "stderr")
        }
        for name, stream in streams.items():
            monkeypatch.setattr(sys, name, stream)
        monkeypatch.setattr(sys, "argv", ["ltpll", *arguments])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        for stream in streams.values():
            stream.flush()
        return ended.value.code, *(
            stream.buffer.getvalue().decode("ascii") for stream in streams.values()
        )

    return run


def test_characters_that_the_output_lacks_are_replaced(run_in_ascii):
    status, printed, _ = run_in_ascii("describe", "t.csv")
    assert status == 0
    assert re.search(r"\n\?\?? +\| +25.00%", printed)
    status, _, errors = run_in_ascii("train", "\u05e9.csv")
    assert status == 2
    assert errors.startswith("error: There is no file ?.csv")


def test_json_has_every_character_in_any_encoding(run_in_ascii):
    status, printed, _ = run_in_ascii("describe", "t.csv", "--json")
    assert status == 0
    assert {"\u05e9\u05dc", "\u00e9"} <= set(
        re.findall(r'"(.*?)"', json.dumps(json.loads(printed), ensure_ascii=False))
    )


def test_an_error_lets_go_of_what_was_being_read_before_the_process_ends(run_in_ascii, monkeypatch):
    read = []

    def failing(*arguments, **options):
        reader = type("Reader", (), {})()
        reader.itself = reader
        read.append(weakref.ref(reader))
        raise InputError("This table cannot be read.")

    monkeypatch.setattr("ltpll.cleaning.dataset.read_label_table", failing)
    status, _, errors = run_in_ascii("train", "t.csv")
    assert (status, errors) == (2, "error: This table cannot be read.\n")
    assert read[0]() is None
