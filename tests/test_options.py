"""Whatever the options of `train` and `benchmark` are: the command succeeds, or fails with one sentence and writes nothing."""

import shutil
import tempfile
import warnings
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from ltpll.cli import app
from ltpll.cli.options import repeat_option
from ltpll.errors import InputError, NotFiniteError
from ltpll_research.image_sets.prepared import write_image_set
from support.pictures import coloured_images
from support.user_tables import feature_rows, write_csv

WHOLE = st.sampled_from(["-1", "0", "1", "2", "7", "1.5", "many", "99999999999999999999", ""])
SHORT = st.sampled_from(["-1", "0", "1", "2", "some", "1.5"])  # for what takes time
NUMBER = st.sampled_from(["-1", "0", "-0.0", "1e-3", "0.5", "1", "1e30", "1e400", "nan", "inf", "much"])
NAME = st.sampled_from(["nothing", "", "auto", "../x", "records", "corr", "none"])
BOTH = {
    "--lr": NUMBER,
    "--batch-size": WHOLE,
    "--seed": WHOLE | st.sampled_from(["4294967295", "4294967296"]),
    "--method": NAME | st.sampled_from(["proden", "lw", "cavl", "cc", "solar", "pico", "htc"]),
    "--rebalancer": NAME | st.sampled_from(["oracle-la", "epoch-records", "temp-oracle-la"]),
    "--extra": NAME | st.sampled_from(["mixup", "bcl", "paco", "sfn", "ldd"]),
    "--views": NAME | st.sampled_from(["paper", "flip-crop", "crop"]),
    "--precision": NAME | st.sampled_from(["float32", "bfloat16"]),
    "--device": NAME | st.sampled_from(["cpu", "cuda:7", "meta", "tpu"]),
    "--on-nan": NAME | st.sampled_from(["skip", "stop"]),
    "--threads": SHORT,
    "--config": st.sampled_from(["missing.yaml", "."]),
}
OWN = {
    "--model": NAME | st.sampled_from(["mlp", "small-cnn", "resnet18"]),
    "--feature-column": st.sampled_from(["u", "nothing", "id", "candidates", "", "*", "u*", "n*"]),
    "--ignore": st.sampled_from(["u", "nothing", "id", "candidates", "", "*", "la*"]),
    "--candidates": st.sampled_from(["candidates", "u", "nothing", ""]),
    "--separator": st.sampled_from(["|", ";", "", "ab"]),
    "--class-column": st.sampled_from(["u", "is_*", "nothing", "*"]),
    "--probability-column": st.sampled_from(["u", "p_*", "nothing"]),
    "--top-k": WHOLE,
    "--mass": NUMBER,
    "--scores": st.sampled_from(["weights", "none", "all"]),
    "--excluded": st.sampled_from(["label", "candidates", "u", "nothing", ""]),
    "--empty": st.sampled_from(["stop", "all", "none"]),
    "--taxonomy": st.sampled_from(["nowhere.csv", "nowhere", ".", "t.csv"]),
    "--possible": st.sampled_from(["label", "candidates", "nothing", "u"]),
    "--site": st.sampled_from(["split", "label", "nothing"]),
    "--possible-at": st.sampled_from(["nowhere.csv", "nowhere", "."]),
    "--from-annotators": st.sampled_from(["union", "votes>=2", "votes-2", "top-3", "votes>=0", "top-x", ""]),
    "--task": st.sampled_from(["id", "nothing", "u", ""]),
    "--worker": st.sampled_from(["v", "nothing", "id"]),
    "--annotation": st.sampled_from(["label", "u", "nothing"]),
    "--vote-weights": st.sampled_from(["reliability", "counts", "none", "best", ""]),
    "--id": st.sampled_from(["id", "nothing", "candidates", ""]),
    "--path": NAME,
    "--label": st.sampled_from(["label", "nothing", "u", ""]),
    "--split": st.sampled_from(["split", "nothing", "u"]),
    "--group": st.sampled_from(["label", "split", "nothing", "u", "id", ""]),
    "--prior": NAME | st.sampled_from(["average", "sets", "t.csv", "nothing.json"]),
    "--goal": NAME | st.sampled_from(["balanced", "accuracy"]),
    "--side": WHOLE,
    "--on-error": NAME | st.sampled_from(["stop", "skip"]),
    "--workers": SHORT,
    "--images": st.sampled_from(["nowhere", "."]),
    "--features": st.sampled_from(["nowhere.npy", "t.csv", "."]),
}
BENCHMARK = {
    "--imbalance": NUMBER,
    "--ambiguity": NUMBER,
    "--superclass": st.just(None),
    "--width": st.sampled_from(["-1", "0", "1", "2", "x"]),
    "--engine": NAME | st.sampled_from(["eager", "captured", "compiled"]),
    "--sync-batch-norm": st.just(None),
    "--measure-every": WHOLE,
    "--schedule": NAME | st.sampled_from(["cosine", "step"]),
    "--milestones": WHOLE,
    "--draw": NAME | st.sampled_from(["seeded", "authors"]),
    "--data-root": st.sampled_from(["nowhere"]),
}
# Single wrong options, each of which once caused a traceback or a meaningless training.
KNOWN = [
    ["--lr", "-1"],
    ["--lr", "nan"],
    ["--batch-size", "0"],
    ["--model", "resnet18"],
    ["--model", "small-cnn"],
    ["--seed", "4294967296"],
    ["--seed", "-1"],
    ["--epochs", "0"],
    ["--epochs", "-3"],
]


def some(options):
    """A few of the options, each with a value."""
    option = st.sampled_from(sorted(options)).flatmap(lambda name: st.tuples(st.just(name), options[name]))
    return st.lists(option, max_size=4, unique_by=lambda pair: pair[0])


def flat(drawn):
    return [word for pair in drawn for word in pair if word is not None]


def outcome(*arguments):
    """The exit status and message of a command; anything but success or an error of one sentence fails here."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(result.exception, InputError):
        message = str(result.exception)
        assert "\n" not in message
        return (1 if isinstance(result.exception, NotFiniteError) else 2), message
    assert result.exception is None or isinstance(result.exception, SystemExit), (arguments, repr(result.exception))
    assert result.exit_code in (0, 2), (arguments, result.output)
    return result.exit_code, result.output


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a small table and a small image set."""
    folder = tmp_path_factory.mktemp("options")
    rows = [[*row, "abc"[i % 3], "test" if i % 7 == 6 else "train"] for i, row in enumerate(feature_rows(16))]
    write_csv(folder / "t.csv", ["id", "candidates", "u", "v", "label", "split"], rows)
    images = coloured_images(n_classes=3, per_class=4, per_test_class=2, side=8)
    write_image_set(images, folder / "data")
    return folder


@settings(max_examples=25)
@given(drawn=some(BOTH | OWN), epochs=st.sampled_from(["1", "2", "0", "-1", "few"]), folds=st.sampled_from(["0", "1", "2", "-1", "x"]))
def test_training_on_a_table_succeeds_or_fails_without_writing(place, drawn, epochs, folds):
    check(place, ["train", place / "t.csv", "--epochs", epochs, "--folds", folds, *flat(drawn)])


@settings(max_examples=12)
@given(drawn=some(BOTH | BENCHMARK), epochs=st.sampled_from(["1", "2", "0", "-1", "few"]))
def test_training_a_benchmark_succeeds_or_fails_without_writing(place, drawn, epochs):
    root = [] if any(name == "--data-root" for name, _ in drawn) else ["--data-root", place / "data"]
    width = [] if any(name == "--width" for name, _ in drawn) else ["--width", "2"]
    check(place, ["benchmark", "cifar10", "--epochs", epochs, *root, *width, *flat(drawn)])


def check(place, command):
    out = Path(tempfile.mkdtemp(dir=place)) / "runs" / "run"
    try:
        status, message = outcome(*command, "--out", out)
        if status == 2:
            assert not out.parent.exists(), message
    finally:
        shutil.rmtree(out.parents[1])


@pytest.mark.parametrize(
    ("given_as", "passed_on"),
    [
        ("--milestones 7 80", "--milestones 7 --milestones 80"),
        ("--milestones 7,80", "--milestones 7 --milestones 80"),
        ("--milestones=7,80 --lr 1", "--milestones 7 --milestones 80 --lr 1"),
        ("--milestones 7, 80, 9 cifar10 5", "--milestones 7 --milestones 80 --milestones 9 cifar10 5"),
        ("--milestones=7 80 --milestones 9", "--milestones 7 --milestones 80 --milestones 9"),
        ("--epochs 9 --milestones", "--epochs 9 --milestones"),
        ("--milestones many 7", "--milestones many 7"),
        ("--milestones=many --milestones , --milestones=", "--milestones=many --milestones , --milestones="),
        ("--epochs 7 8", "--epochs 7 8"),
    ],
)
def test_an_option_takes_several_numbers_in_every_usual_spelling(given_as, passed_on):
    assert repeat_option(given_as.split(), "--milestones") == passed_on.split()


@pytest.mark.parametrize("options", KNOWN, ids=" ".join)
def test_a_wrong_value_is_refused_before_anything_is_written_and_the_corrected_command_works(place, tmp_path, options):
    command = ["train", place / "t.csv", "--out", tmp_path / "runs" / "run", "--folds", "0", "--device", "cpu"]
    epochs = [] if "--epochs" in options else ["--epochs", "1"]
    status, message = outcome(*command, *epochs, *options)
    assert status == 2
    assert options[0].strip("-").replace("-", "_") in message or options[1] in message
    assert not (tmp_path / "runs").exists()
    assert outcome(*command, "--epochs", "1")[0] == 0
