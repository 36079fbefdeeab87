"""A run is a folder named by its config; it counts only when it is finished."""

from __future__ import annotations

import hashlib
import json
import platform
import shutil
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pytest
import sklearn
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ltpll
import ltpll_research
from ltpll.errors import BusyError, InputWarning
from ltpll.runs.environment import _commit, environment
from ltpll.runs.run import Run, config_hash, damaged_files, read_result
from ltpll.runs.schema import Kind
from ltpll_research.recording import code_fingerprint
from ltpll_research.records import finished_runs, results_under
from support.refusals import refusal

CONFIG = {
    "method": "corr",
    "rebalancer": "records",
    "seed": 1,
    "options": {"momentum": 0.9, "hidden": [64, 32]},
}
RESULT = {"metrics": {"accuracy": 0.1 + 0.2, "per_class": [1.0, 0.5]}, "note": "ρ = 100"}


plain = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-2, 2) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=3)
    ),
    max_leaves=6,
)
configs = st.dictionaries(st.text(max_size=3), plain, max_size=4)


def backwards(value):
    """The same content with the keys of every mapping in the other order."""
    if isinstance(value, dict):
        return {key: backwards(value[key]) for key in reversed(list(value))}
    return [backwards(item) for item in value] if isinstance(value, list) else value


@settings(max_examples=60, deadline=None)
@given(config=configs)
def test_the_key_does_not_depend_on_the_order_of_keys(config):
    assert config_hash(config) == config_hash(backwards(config))
    assert config_hash(config) == config_hash(json.loads(json.dumps(config)))


@settings(max_examples=60, deadline=None)
@given(a=configs, b=configs)
def test_configs_have_the_same_key_exactly_when_they_write_the_same(a, b):
    same = json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)
    assert (config_hash(a) == config_hash(b)) == same


@pytest.mark.parametrize(
    "change",
    [
        {"seed": 2},
        {"seed": "1"},
        {"method": "proden"},
        {"options": {"momentum": 0.9, "hidden": [32, 64]}},
        {"extra": None},
    ],
)
def test_any_change_of_the_config_changes_the_key(change):
    assert config_hash(CONFIG | change) != config_hash(CONFIG)


def test_the_key_is_the_start_of_the_hash_of_the_sorted_config():
    written = '{"a":[1,2.5],"b":{"c":null,"d":"x"}}'
    assert (
        config_hash({"b": {"d": "x", "c": None}, "a": [1, 2.5]})
        == hashlib.sha256(written.encode()).hexdigest()[:12]
    )


def test_a_run_is_done_only_after_it_is_finished(tmp_path):
    run = Run(tmp_path, CONFIG)
    assert run.folder == tmp_path / config_hash(CONFIG)
    assert not run.done
    run.start()
    assert not run.done
    run.log({"epoch": 1})
    assert not run.done
    run.finish(RESULT)
    assert run.done
    assert Run(tmp_path, dict(reversed(CONFIG.items()))).done
    assert not Run(tmp_path, CONFIG | {"seed": 2}).done


def test_the_marker_is_written_after_the_result(tmp_path, monkeypatch):
    run = Run(tmp_path, CONFIG)
    run.start()
    order = []
    replace = Path.replace
    monkeypatch.setattr(
        Path,
        "replace",
        lambda self, target: (order.append(Path(target).name), replace(self, target))[1],
    )
    run.finish(RESULT)
    assert order == ["result.json", "done"]


def test_a_result_that_cannot_be_written_does_not_make_the_run_done(tmp_path):
    run = Run(tmp_path, CONFIG)
    run.start()
    with pytest.raises(ValueError, match="JSON"):
        run.finish({"accuracy": float("nan")})
    assert not run.done


@pytest.mark.parametrize("finished", [False, True])
def test_starting_clears_what_an_earlier_attempt_left(tmp_path, finished):
    run = Run(tmp_path, CONFIG)
    run.start()
    run.log({"epoch": 1})
    (run.folder / "tensorboard").mkdir()
    (run.folder / "tensorboard" / "events").write_text("old")
    if finished:
        run.finish(RESULT)
    other = Run(tmp_path, CONFIG | {"seed": 2})
    other.start()
    run.start()
    assert not run.done
    assert [path.name for path in run.folder.iterdir()] == ["config.json"]
    assert json.loads((run.folder / "config.json").read_text()) == CONFIG
    assert other.folder.exists()


def test_the_log_keeps_every_record_in_order_one_a_line(tmp_path):
    run = Run(tmp_path, CONFIG)
    run.start()
    records = [
        {"epoch": i, "loss": 1 / (i + 1), "name": "ρ\nnew line", "best": None} for i in range(5)
    ]
    for i, record in enumerate(records):
        run.log(record)
        lines = (run.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        assert [json.loads(line) for line in lines] == records[: i + 1]
        assert run.records() == records[: i + 1]


@pytest.mark.parametrize("n", [0, 1, 7])
def test_the_number_of_logged_epochs_is_the_number_of_records(tmp_path, n):
    run = Run(tmp_path, CONFIG)
    assert run.epochs_logged() == 0
    run.start()
    for i in range(n):
        run.log({"epoch": i, "note": "two\nlines"})
    assert run.epochs_logged() == n
    run.start()
    assert run.epochs_logged() == 0


def test_a_deleted_run_leaves_its_config_and_its_neighbour_alone(tmp_path):
    run, neighbour = Run(tmp_path, CONFIG), Run(tmp_path, CONFIG | {"seed": 2})
    run.delete_run()
    for each in (run, neighbour):
        each.start()
        each.finish(RESULT)
    run.delete_run()
    assert not run.done
    assert [path.name for path in run.folder.iterdir()] == ["config.json"]
    assert neighbour.done


def test_a_record_with_nan_is_not_written_as_a_broken_line(tmp_path):
    run = Run(tmp_path, CONFIG)
    run.start()
    run.log({"loss": 1.0})
    with pytest.raises(ValueError, match="JSON"):
        run.log({"loss": float("nan")})
    assert run.records() == [{"loss": 1.0}]
    assert (run.folder / "metrics.jsonl").read_text().count("\n") == 1


def test_a_result_comes_back_with_its_config_and_key(tmp_path):
    run = Run(tmp_path, CONFIG)
    run.start()
    run.finish(RESULT)
    assert run.result() == {"format": "ltpll-run-1", "key": run.key, "config": CONFIG, **RESULT}


def test_all_results_of_a_folder_come_in_the_order_of_their_paths_without_json_of_another_kind(
    tmp_path,
):
    for name in ("b/2", "a", "b/1"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / f"{name}.json").write_text(
            json.dumps({"format": "ltpll-run-1", "key": "", "config": {}, "name": name})
        )
    (tmp_path / "notes.txt").write_text("not a result")
    (tmp_path / "audit.json").write_text('{"format": "ltpll-audit-1"}')
    (tmp_path / "b" / "answers.json").write_text("[1, 2]")
    assert [record["name"] for record in results_under(tmp_path)] == ["a", "b/1", "b/2"]
    assert [record["name"] for record in finished_runs(tmp_path)] == ["a"]


@pytest.mark.parametrize(
    ("content", "fragment"),
    [
        (b"", "cannot be read"),
        (b"{", "cannot be read"),
        (b'{"format": "ltpll-run-1", ', "cannot be read"),
        (b"\xff\xfe\x00", "cannot be read"),
        (b"[1, 2]", "not a result file"),
        (b"3", "not a result file"),
        (b"{}", "not a result file"),
        (b'{"format": "other"}', "not a result file"),
        (b'{"format": "ltpll-run-1"}', "has no config"),
        (b'{"format": "ltpll-run-1", "key": "a", "config": [1]}', "has no config"),
        (b'{"format": "ltpll-run-1", "key": 1, "config": {}}', "no key"),
        (b"[" * 100_000, "cannot be read"),
    ],
    ids=[
        "empty",
        "cut",
        "cut later",
        "binary",
        "list",
        "number",
        "no format",
        "foreign",
        "bare",
        "list for config",
        "no key",
        "deep",
    ],
)
def test_a_damaged_or_foreign_result_is_refused_with_its_path(tmp_path, content, fragment):
    path = tmp_path / "result.json"
    path.write_bytes(content)
    message = refusal(lambda: read_result(path))
    assert str(path) in message
    assert fragment in message
    assert "delete" not in message


def test_a_result_that_is_missing_or_a_folder_is_refused(tmp_path):
    missing = f"The result file {tmp_path / 'result.json'} cannot be read"
    assert missing in refusal(lambda: read_result(tmp_path / "result.json"))
    assert "cannot be read" in refusal(lambda: read_result(tmp_path))
    assert "is not finished" in refusal(Run(tmp_path, CONFIG).result)


# ---- folders that cannot be written -------------------------------------------------------------


def test_an_output_folder_without_permission_is_refused(tmp_path, monkeypatch):
    def denied(*_args, **_kwargs):
        raise PermissionError(13, "Permission denied")

    run = Run(tmp_path / "out", CONFIG)
    monkeypatch.setattr(Path, "mkdir", denied)
    message = refusal(run.start)
    assert (
        message == f"The run folder {run.folder} cannot be written (Permission denied): "
        "choose another output folder."
    )


def test_an_output_folder_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "out").write_text("a file")
    assert "cannot be written" in refusal(Run(tmp_path / "out", CONFIG).start)
    assert (tmp_path / "out").read_text() == "a file"


def test_a_file_in_place_of_the_run_is_refused(tmp_path):
    run = Run(tmp_path, CONFIG)
    run.folder.write_text("a file")
    assert "cannot be written" in refusal(run.start)


# ---- where a run was made -----------------------------------------------------------------------


def test_the_environment_names_versions_commit_and_hardware():
    made = environment("cpu")
    assert made["python"] == platform.python_version()
    assert made["torch"].split("+")[0] == torch.__version__.split("+")[0]
    assert made["numpy"] == np.__version__
    assert made["scikit-learn"] == sklearn.__version__
    assert made["ltpll"] == ltpll.__version__
    assert made["device"] == "cpu"
    assert made["threads"] == torch.get_num_threads()
    assert "cores" in made["hardware"]
    assert made["commit"] == "unknown" or set(made["commit"].removesuffix("+changes")) <= set(
        "0123456789abcdef"
    )
    assert json.loads(json.dumps(made)) == made


def test_a_stated_commit_goes_before_that_of_the_checkout(monkeypatch):
    monkeypatch.setenv("LTPLL_COMMIT", "0123456789ab")
    assert _commit() == "0123456789ab"


def finished_run(tmp_path, name=""):
    run = Run(tmp_path, CONFIG, name)
    run.start()
    run.log({"epoch": 1, "loss": 0.5, "seconds": 2.0})
    run.log({"epoch": 2, "loss": 0.25, "seconds": 2.0})
    run.finish(RESULT)
    return run


def test_the_marker_holds_checksums_that_sha256sum_reads(tmp_path):
    run = finished_run(tmp_path)
    lines = dict(
        reversed(line.split("  ")) for line in (run.folder / "done").read_text().splitlines()
    )
    assert sorted(lines) == ["config.json", "metrics.jsonl", "result.json"]
    for name, digest in lines.items():
        assert hashlib.sha256((run.folder / name).read_bytes()).hexdigest() == digest


def test_every_bit_of_a_finished_run_s_files_counts(tmp_path):
    run = finished_run(tmp_path)
    run.reopen_if_damaged()
    assert run.done
    for path in [
        run.folder / name for name in ("config.json", "metrics.jsonl", "result.json", "done")
    ]:
        whole = path.read_bytes()
        for position in range(0, len(whole), 7):
            path.write_bytes(
                whole[:position] + bytes([whole[position] ^ 1]) + whole[position + 1 :]
            )
            assert damaged_files(run.folder)
            if path.name == "result.json":
                assert f"{run.folder} cannot be read (its file result.json is damaged" in refusal(
                    run.result
                )
        path.write_bytes(whole)
    assert run.result()["key"] == run.key


@pytest.mark.parametrize("name", ["config.json", "result.json", "metrics.jsonl", "done"])
@pytest.mark.parametrize("how", ["changed", "lost"])
def test_a_finished_run_with_a_damaged_file_is_taken_up_again(tmp_path, name, how):
    run = finished_run(tmp_path)
    (run.folder / "checkpoint.safetensors").touch()
    if how == "changed":
        (run.folder / name).write_bytes(b"{}")
    else:
        (run.folder / name).unlink()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run.reopen_if_damaged()
    if name == "done" and how == "lost":
        assert not caught  # a run that was never finished
    else:
        assert name in str(caught[0].message)
    assert not run.done
    # Nothing else holds what the log held: such a run is trained from its beginning, others from
    # their checkpoint.
    assert (run.folder / "checkpoint.safetensors").exists() == (name != "metrics.jsonl")


def test_a_damaged_run_that_another_process_trains_is_left_to_it(tmp_path):
    run = finished_run(tmp_path)
    (run.folder / "result.json").unlink()
    with run.locked():
        assert "is being trained by another process" in refusal(
            Run(tmp_path, CONFIG).reopen_if_damaged, BusyError
        )
    assert (run.folder / "done").exists()


def test_a_run_of_an_earlier_version_without_checksums_is_not_read(tmp_path):
    run = finished_run(tmp_path)
    (run.folder / "done").write_bytes(b"")
    assert not run.done
    assert "no checksum of its file result.json): rerun the command" in refusal(run.result)


def test_a_damaged_run_is_missing_where_runs_are_collected_and_refused_where_they_are_shown(
    tmp_path,
):
    run = finished_run(tmp_path)
    assert [record["key"] for record in finished_runs(tmp_path)] == [run.key]
    (run.folder / "result.json").unlink()
    assert "its file result.json is missing" in refusal(lambda: finished_runs(tmp_path))
    with pytest.warns(InputWarning, match="its file result.json is missing"):
        assert finished_runs(tmp_path, skip_damaged=True) == []


def test_a_damaged_line_of_the_log_is_not_read(tmp_path):
    run = Run(tmp_path, CONFIG)
    run.start()
    run.log({"epoch": 1, "seconds": 2.0})
    run.log({"epoch": 2, "seconds": 3.0})
    path = run.folder / "metrics.jsonl"
    path.write_bytes(path.read_bytes().replace(b"2.0", b"2.\0"))
    for read in (run.records, lambda: run.cut_log(1)):
        message = refusal(read)
        assert "is damaged" in message
        assert "train the run from the start with --fresh" in message


def test_a_named_run_lies_in_the_folder_of_that_name_and_leaves_other_files_alone(tmp_path):
    run = Run(tmp_path, {"experiment": "own", "seed": 1}, "mine")
    run.check_folder()
    run.start()
    assert run.folder == tmp_path / "mine"
    run.log({"epoch": 1})
    run.finish({})
    (run.folder / "notes.txt").write_text("mine")
    run.delete_run()
    assert sorted(path.name for path in run.folder.iterdir()) == ["config.json", "notes.txt"]
    run.check_folder()
    other = Run(tmp_path, {"experiment": "own", "seed": 2}, "mine")
    other.check_folder()  # nothing has been trained, so there is nothing to lose
    run.log({"epoch": 1})
    assert "(different: seed)" in refusal(other.check_folder)
    other.check_folder(afresh=True)
    foreign = Run(tmp_path, {"experiment": "images"}, "mine")
    assert "of another kind" in refusal(lambda: foreign.check_folder(afresh=True))
    (run.folder / "config.json").write_text("{")
    assert "cannot be read" in refusal(run.check_folder)
    (tmp_path / "file").write_text("")
    assert "is a file" in refusal(Run(tmp_path, {}, "file").check_folder)


# ---- opening an existing folder -----------------------------------------------------------------


@pytest.mark.parametrize("folder", ["hash", "renamed", "moved"])
def test_a_finished_run_is_opened_whatever_its_folder_is_called(tmp_path, folder):
    run = finished_run(tmp_path)
    place = {
        "hash": run.folder,
        "renamed": tmp_path / "best run",
        "moved": tmp_path / "else" / "where" / run.key,
    }[folder]
    place.parent.mkdir(parents=True, exist_ok=True)
    expected = run.result()
    run.folder.rename(place)
    opened = Run.open(place)
    assert opened.folder == place
    assert opened.config == CONFIG
    assert opened.key == run.key
    assert opened.done
    assert opened.result() == expected == read_result(place) == read_result(place / "result.json")
    assert [record["loss"] for record in opened.records()] == [0.5, 0.25]
    assert [record["key"] for record in finished_runs(place.parent)] == [run.key]


def test_the_folder_of_a_run_is_opened_from_within(tmp_path, monkeypatch):
    run = finished_run(tmp_path, "mine")
    monkeypatch.chdir(run.folder)
    for path in (".", "", "../mine"):
        assert Run.open(path).result() == run.result()


def test_a_renamed_run_that_is_deleted_leaves_other_files_in_its_folder(tmp_path):
    run = finished_run(tmp_path)
    run.folder.rename(tmp_path / "mine")
    (tmp_path / "mine" / "notes.txt").write_text("mine")
    Run.open(tmp_path / "mine").delete_run()
    assert sorted(path.name for path in (tmp_path / "mine").iterdir()) == [
        "config.json",
        "notes.txt",
    ]


def test_a_run_that_is_not_finished_is_opened_and_has_no_result(tmp_path):
    run = Run(tmp_path, CONFIG)
    run.start()
    run.log({"epoch": 1})
    opened = Run.open(run.folder)
    assert not opened.done
    assert opened.epochs_logged() == 1
    assert (
        refusal(opened.result) == f"The run {run.folder} cannot be read (it is not finished): "
        "rerun the command that started it."
    )


@pytest.mark.parametrize(
    ("config", "problem"),
    [
        (None, "it is not a run folder, since it has no config.json"),
        ("{", "its config.json is damaged: "),
        ("[1]", "its config.json is damaged: it is not a mapping"),
        ('{"lr": NaN}', "its config.json is damaged: "),
        ('{"experiment": "own"}', "it is a run on a table, not a benchmark run"),
        ('{"study": "toy"}', "it is a run of a study, not a benchmark run"),
        ("{}", "it is a run of another kind, not a benchmark run"),
    ],
)
def test_what_cannot_be_opened_is_refused_in_one_form(tmp_path, config, problem):
    folder = tmp_path / "folder"
    assert refusal(lambda: Run.open(folder)).startswith(
        f"The run {folder} cannot be read (there is no such folder): "
    )
    folder.mkdir()
    if config is not None:
        (folder / "config.json").write_text(config)
    assert refusal(lambda: Run.open(folder, Kind.BENCHMARK)).startswith(
        f"The run {folder} cannot be read ({problem}"
    )


def test_a_finished_run_whose_record_lacks_what_its_kind_needs_is_refused(tmp_path):
    run = Run(tmp_path, {"experiment": "own"})
    run.start()
    run.finish({})
    for read in (run.result, lambda: read_result(run.folder), lambda: finished_runs(tmp_path)):
        assert "an entry that does not fit" in refusal(read)
    run.delete_run()
    other = Run(tmp_path, {"mine": 1})  # of a program that we do not know
    other.start()
    other.finish({"anything": 1})
    assert other.result()["anything"] == 1


# ---- the source that a run was made with --------------------------------------------------------


def test_the_fingerprint_of_the_code_covers_every_module_of_the_package():
    digest = hashlib.sha256()
    for package in (ltpll, ltpll_research):
        for path in sorted(Path(package.__file__).parent.rglob("*.py")):
            digest.update(path.name.encode() + path.read_bytes())
    assert code_fingerprint() == digest.hexdigest()[:12]


def test_the_commit_is_that_of_the_checkout(monkeypatch):
    monkeypatch.delenv("LTPLL_COMMIT", raising=False)
    root = Path(ltpll.__file__).parents[2]
    if not (root / ".git").exists() or shutil.which("git") is None:
        pytest.skip("not a git checkout")
    head = subprocess.run(
        ["git", "-C", str(root), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    ).stdout
    assert head.startswith(_commit().removesuffix("+changes"))
