"""Files of class shares: read as written, and one sentence for each that cannot be used."""

import json

import pandas as pd
import pytest

from ltpll.tables.class_files import check_prior, read_prior
from support.refusals import refusal

CLASSES = ("cat", "dog", "fox")


def written(folder, content, name="p.csv"):
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


@pytest.mark.parametrize("suffix", [".csv", ".tsv", ".parquet"])
def test_shares_and_bounds_are_read_from_tables(tmp_path, suffix):
    table = pd.DataFrame(
        {
            "class": CLASSES,
            "note": "x",
            "share": [0.5, None, 0.25],
            "lower": [None, 0.125, 0.2],
            "upper": [None, 0.375, 0.3],
        }
    )
    path = tmp_path / f"p{suffix}"
    if suffix == ".parquet":
        table.to_parquet(path)
    else:
        table.to_csv(path, sep="\t" if suffix == ".tsv" else ",", index=False)
    found = read_prior(path)
    assert found == {"cat": 0.5, "dog": [0.125, 0.375], "fox": [0.2, 0.3]}
    check_prior(found, CLASSES)


def test_counts_are_shares_too():
    check_prior({"cat": 120, "dog": 60, "fox": 0}, CLASSES)
    check_prior({"cat": 0.5, "dog": [0.1, 0.3], "fox": [0, 1]}, CLASSES)


@pytest.mark.parametrize(
    ("content", "name", "words"),
    [
        ("class,share\ncat,0.5\ndog,0.5\n", "p.csv", "each of the 3 classes: fox is missing"),
        (
            "class,share\ncat,1\ndog,1\nfox,1\nyak,1\n",
            "p.csv",
            "yak is missing, or no candidate of any set",
        ),
        (
            "class,share\ncat,-0.1\ndog,1\nfox,1\n",
            "p.csv",
            "of 'cat' is -0.1: give a finite number that is not negative",
        ),
        ("class,share\ncat,nan\ndog,1\nfox,1\n", "p.csv", "not negative"),
        ("class,share\ncat,inf\ndog,1\nfox,1\n", "p.csv", "give a finite number"),
        (
            "class,share\ncat,much\ndog,1\nfox,1\n",
            "p.csv",
            "Row 1 below the header of",
        ),
        (
            "class,share\ncat,\ndog,1\nfox,1\n",
            "p.csv",
            "has the class 'cat' again, or without numbers",
        ),
        ("class,share\ncat,0\ndog,0\nfox,0\n", "p.csv", "All shares of the prior are 0"),
        (
            "class,share\ncat,1\ndog,1\nfox,1\ncat,1\n",
            "p.csv",
            "Row 4 below",
        ),
        (
            "class,lower,upper\ncat,0.9,0.1\ndog,0,1\nfox,0,1\n",
            "p.csv",
            "The prior of 'cat' is [0.9, 0.1]",
        ),
        (
            "class,lower,upper\ncat,0,0.1\ndog,0,0.2\nfox,0,0.3\n",
            "p.csv",
            "no shares between them sum to 1",
        ),
        (
            "class,lower,upper\ncat,0.5,0.6\ndog,0.5,0.6\nfox,0.5,1\n",
            "p.csv",
            "no shares between them sum to 1",
        ),
        ("class,lower\ncat,0.1\n", "p.csv", "or a lower and an upper bound"),
        ("class,part\ncat,0.1\n", "p.csv", "no column called 'share'"),
        ("name,share\ncat,0.1\n", "p.csv", "no column called 'class'"),
        (
            {"cat": "much", "dog": 1, "fox": 1},
            None,
            "The prior of 'cat' is 'much': give a finite number",
        ),
        ({"cat": [0.1], "dog": 1, "fox": 1}, None, "a lower and an upper bound"),
        ({"cat": 10**400, "dog": 1, "fox": 1}, None, "give a finite number"),
        ({"cat": True, "dog": 1, "fox": 1}, None, "give a finite number"),
        ("x", "p.txt", "A prior is auto, average, sets, or a file that ends in .csv"),
    ],
)
def test_what_cannot_be_a_prior_is_refused_in_a_sentence(tmp_path, content, name, words):
    def prior():
        return content if name is None else read_prior(written(tmp_path, content, name))

    assert words in refusal(lambda: check_prior(prior(), CLASSES))


def test_a_missing_file_is_named(tmp_path):
    assert "There is no file" in refusal(lambda: read_prior(tmp_path / "nothing.csv"))
