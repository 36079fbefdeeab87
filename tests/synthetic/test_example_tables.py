"""The example tables hold what the tutorial says, and are never written over a file."""

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits

from ltpll.synthetic import example_tables
from ltpll.tables.read_tables import read_table
from ltpll.tables.reading import Reading
from support.commands import ltpll_here


def test_the_example_is_long_tailed_and_a_few_sets_lack_the_true_label():
    table = pd.DataFrame(example_tables().train)
    counts = table["label"].value_counts()
    assert (counts["zero"], counts["nine"]) == (120, 12)
    sets = table["candidates"].str.split("|")
    assert sets.map(len).between(1, 3).all()
    lacking = np.mean(
        [label not in names for label, names in zip(table["label"], sets, strict=True)]
    )
    assert 0 < lacking < 0.03  # (1 - 0.9)(1 - 0.75)(1 - 0.6) = 1 %


def test_pixels_are_those_of_the_labelled_digits():
    tables, digits = example_tables(), load_digits()
    names = np.asarray(
        ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    )
    scaled = {
        tuple(row): names[label]
        for row, label in zip(np.sign(digits.data - 8), digits.target, strict=True)
    }
    train = pd.DataFrame(tables.train).filter(like="pixel").to_numpy()
    images = digits.images.reshape(-1, 64) / 16
    low, high = train.min(), train.max()  # an affine map of 0 and 1
    signs = np.sign(((train - low) / (high - low) - 0.5).round(3))
    assert images.max() == 1
    found = [scaled.get(tuple(row)) for row in signs]
    assert (
        np.mean([one == label for one, label in zip(found, tables.train["label"], strict=True)])
        > 0.98
    )


def test_another_seed_draws_other_rows_and_the_same_seed_the_same():
    one, same, other = example_tables(seed=0), example_tables(seed=0), example_tables(seed=1)
    pd.testing.assert_frame_equal(pd.DataFrame(one.train), pd.DataFrame(same.train))
    assert one.train["candidates"] != other.train["candidates"]


def test_the_command_writes_tables_that_train_reads(tmp_path):
    printed = ltpll_here("demo", "--only-table", "--out", tmp_path / "new")
    table = read_table(tmp_path / "new" / "digits.csv", Reading())
    assert table.features.shape == (486, 64)
    assert len(pd.read_csv(tmp_path / "new" / "new-digits.csv")) == 100
    assert f"ltpll train {tmp_path / 'new' / 'digits.csv'}" in printed


def test_the_command_does_not_overwrite_a_table(tmp_path):
    (tmp_path / "new-digits.csv").write_text("mine")
    message = ltpll_here("demo", "--only-table", "--out", tmp_path, status=2)
    assert "new-digits.csv exists already" in message
    assert [path.name for path in tmp_path.iterdir()] == ["new-digits.csv"]
    assert (tmp_path / "new-digits.csv").read_text() == "mine"
