"""Finished runs whose files were damaged, lost or exchanged: nothing is believed."""

import shutil

import pandas as pd
import pytest

from support.commands import ltpll_here as ltpll
from support.user_tables import feature_rows, write_csv

pytestmark = pytest.mark.filterwarnings(
    "ignore::ltpll.errors.InputWarning"
)  # which says what is made again
FILES = (
    "config.json",
    "metrics.jsonl",
    "result.json",
    "classifier.safetensors",
    "examples.parquet",
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a finished run, the table it was trained on, and the command."""
    folder = tmp_path_factory.mktemp("damage")
    table = write_csv(folder / "t.csv", ["id", "candidates", "u", "v"], feature_rows(40))
    command = ["train", table, "--epochs", "2", "--folds", "2", "--device", "cpu"]
    ltpll(*command, "--out", folder / "run")
    return folder, table, command


@pytest.fixture(scope="module")
def undamaged(trained):
    """The tables and the record that the undamaged run yields."""
    folder, table, _ = trained
    run = folder / "run"
    return cleaned(run), predicted(run, table), (run / "result.json").read_bytes()


@pytest.fixture
def run(trained, tmp_path):
    """A copy of the run that may be damaged."""
    shutil.copytree(trained[0] / "run", tmp_path / "run")
    return tmp_path / "run"


def cleaned(run):
    ltpll("clean", run, "--out", run.parent / "c.csv")
    return (run.parent / "c.csv").read_bytes()


def predicted(run, table):
    ltpll("predict", run, table, "--out", run.parent / "p.csv", "--device", "cpu")
    return (run.parent / "p.csv").read_bytes()


def flip(path, position):
    content = bytearray(path.read_bytes())
    content[position] ^= 4
    path.write_bytes(content)


def test_one_bit_anywhere_in_a_run_s_tables_or_classifier_stops_whoever_reads_it(trained, run):
    _, table, _ = trained
    readers = {
        "examples.parquet": ("clean", run, "--out", run.parent / "c.csv"),
        "classifier.safetensors": ("predict", run, table, "--out", run.parent / "p.csv"),
        "result.json": ("report", run, "--out", run.parent / "r.html"),
    }
    for name, command in readers.items():
        whole = (run / name).read_bytes()
        for k in range(6):
            flip(run / name, k * (len(whole) - 1) // 5)
            message = ltpll(*command, status=2)
            assert f"{name} is damaged or not the file that the run wrote" in message
            assert message.endswith("rerun the command that trained it to restore it.")
            (run / name).write_bytes(whole)
        ltpll(*command)
    assert not [path.name for path in run.parent.iterdir() if path.name.endswith(".tmp")]


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("how", ["flipped", "lost"])
def test_rerunning_the_command_restores_a_damaged_file(trained, undamaged, run, name, how):
    _, table, command = trained
    if how == "flipped":
        flip(run / name, (run / name).stat().st_size // 2)
    else:
        (run / name).unlink()
    if (
        name == "config.json"
    ):  # which says what run it is: then the folder is another run's, and is left alone
        message = ltpll(*command, "--out", run, status=2)
        assert "give a new folder" in message or "give another" in message
        return
    ltpll(*command, "--out", run)
    assert (cleaned(run), predicted(run, table)) == undamaged[:2]
    if name != "metrics.jsonl":  # which records how long each epoch took
        assert (run / "result.json").read_bytes() == undamaged[2]
    assert "finished earlier" in ltpll(*command, "--out", run)


def test_the_classifier_of_another_run_is_refused(trained, run, tmp_path):
    _, table, command = trained
    ltpll(*command, "--set", "training.seed=1", "--out", tmp_path / "other")
    shutil.copy(tmp_path / "other" / "classifier.safetensors", run)
    assert "not the file that the run wrote" in ltpll(
        "predict", run, table, "--out", tmp_path / "p.csv", status=2
    )
    pytest.importorskip("onnxscript")
    assert "not the file that the run wrote" in ltpll(
        "export", run, "--onnx", tmp_path / "m.onnx", status=2
    )


def test_a_damaged_fold_is_trained_again(trained, run):
    _, _, command = trained
    before = pd.read_parquet(run / "examples.parquet")
    (run / "done").unlink()
    flip(run / "fold-1.safetensors", (run / "fold-1.safetensors").stat().st_size - 9)
    ltpll(*command, "--out", run)
    pd.testing.assert_frame_equal(pd.read_parquet(run / "examples.parquet"), before)


def test_a_run_with_damaged_checkpoints_starts_again_with_fresh_as_the_message_says(trained, run):
    _, _, command = trained
    before = cleaned(run)
    (run / "done").unlink()
    checkpoints = sorted(run.glob("checkpoint*.safetensors"))
    for path in checkpoints:
        flip(path, path.stat().st_size - 9)
    message = ltpll(*command, "--out", run, status=2)
    assert "start a run again with --fresh" in message
    assert any(str(path) in message for path in checkpoints)
    ltpll(*command, "--out", run, "--fresh")
    assert cleaned(run) == before


def test_a_damaged_log_of_an_unfinished_run_is_trained_anew_as_the_message_says(trained, run):
    _, _, command = trained
    before = cleaned(run)
    (run / "done").unlink()
    (run / "metrics.jsonl").write_text("{}\n")
    message = ltpll(*command, "--out", run, status=2)
    assert message.endswith("train the run from the start with --fresh.")
    ltpll(*command, "--out", run, "--fresh")
    assert cleaned(run) == before
