"""Whatever the options of `train` are: the command succeeds, or fails with one sentence and writes
nothing.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ltpll.cleaning.settings import FRONT, TrainJob
from ltpll.cli import app
from ltpll.settings import settings_of
from support.any_options import BOTH, NAME, NUMBER, SHORT, WHOLE, check, outcome, some
from support.user_tables import feature_rows, write_csv

OWN = {
    "--model": NAME | st.sampled_from(["mlp", "small-cnn", "resnet18"]),
    "--feature-column": st.sampled_from(["u", "nothing", "id", "candidates", "", "*", "u*", "n*"]),
    "--ignore": st.sampled_from(["u", "nothing", "id", "candidates", "", "*", "la*"]),
    "--candidates": st.sampled_from(["candidates", "u", "nothing", ""]),
    "--separator": st.sampled_from(["|", ";", "", "ab"]),
    "--class-columns": st.sampled_from(["u", "is_*", "nothing", "*"]),
    "--probability-columns": st.sampled_from(["u", "p_*", "nothing"]),
    "--top-k": WHOLE,
    "--mass": NUMBER,
    "--scores": st.sampled_from(["weights", "none", "all"]),
    "--empty": st.sampled_from(["stop", "all", "none"]),
    "--taxonomy": st.sampled_from(["nowhere.csv", "nowhere", ".", "t.csv"]),
    "--annotators": st.sampled_from(
        ["union", "votes>=2", "votes-2", "top-3", "votes>=0", "top-x", ""]
    ),
    "--task": st.sampled_from(["id", "nothing", "u", ""]),
    "--worker": st.sampled_from(["v", "nothing", "id"]),
    "--annotation": st.sampled_from(["label", "u", "nothing"]),
    "--vote-weights": st.sampled_from(["reliability", "counts", "none", "best", ""]),
    "--id": st.sampled_from(["id", "nothing", "candidates", ""]),
    "--path": NAME,
    "--label": st.sampled_from(["label", "nothing", "u", ""]),
    "--split": st.sampled_from(["split", "nothing", "u"]),
    "--group": st.sampled_from(["label", "split", "nothing", "u", "id", ""]),
    "--prior": NAME | st.sampled_from(["average", "sets", "t.csv", "nothing.csv"]),
    "--goal": NAME | st.sampled_from(["balanced", "accuracy"]),
    "--side": WHOLE,
    "--on-error": NAME | st.sampled_from(["stop", "skip"]),
    "--workers": SHORT,
    "--images": st.sampled_from(["nowhere", "."]),
    "--features": st.sampled_from(["nowhere.npy", "t.csv", "."]),
}
# Single wrong options, each of which once caused a traceback or a meaningless training.
KNOWN = [
    ["--set", "training.lr=-1"],
    ["--set", "training.lr=nan"],
    ["--set", "training.batch_size=0"],
    ["--set", "training.model=resnet18"],
    ["--set", "training.model=small-cnn"],
    ["--set", "training.seed=4294967296"],
    ["--set", "training.seed=-1"],
    ["--epochs", "0"],
    ["--epochs", "-3"],
]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a small table."""
    folder = tmp_path_factory.mktemp("options")
    rows = [
        [*row, "abc"[i % 3], "test" if i % 7 == 6 else "train"]
        for i, row in enumerate(feature_rows(16))
    ]
    write_csv(folder / "t.csv", ["id", "candidates", "u", "v", "label", "split"], rows)
    return folder


def words(drawn):
    """The options, each as an option of `train` or by `--set`."""
    renamed = {"feature-column": "features", "extra": "extras"}
    for option, value in drawn:
        name = renamed.get(option[2:], option[2:]).replace("-", "_")
        known = [one for one in settings_of(TrainJob) if one.endswith(f".{name}")]
        rare = [one for one in known if one not in FRONT]
        yield from ("--set", f"{rare[0]}={value}") if rare else (option, value)


@settings(max_examples=25)
@given(
    drawn=some(BOTH | OWN),
    epochs=st.sampled_from(["1", "2", "0", "-1", "few"]),
    folds=st.sampled_from(["0", "1", "2", "-1", "x"]),
)
def test_training_on_a_table_succeeds_or_fails_without_writing(place, drawn, epochs, folds):
    check(
        app, place, ["train", place / "t.csv", "--epochs", epochs, "--folds", folds, *words(drawn)]
    )


@pytest.mark.parametrize("options", KNOWN, ids=" ".join)
def test_a_wrong_value_is_refused_before_anything_is_written_and_the_corrected_command_works(
    place, tmp_path, options
):
    command = [
        "train",
        place / "t.csv",
        "--out",
        tmp_path / "runs" / "run",
        "--folds",
        "0",
        "--device",
        "cpu",
    ]
    epochs = [] if "--epochs" in options else ["--epochs", "1"]
    status, message = outcome(app, *command, *epochs, *options)
    assert status == 2
    assert options[-1].rpartition("=")[2] in message
    assert not (tmp_path / "runs").exists()
    assert outcome(app, *command, "--epochs", "1")[0] == 0
