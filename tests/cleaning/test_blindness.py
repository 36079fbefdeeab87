"""Training is blind to true labels: targets, cleaned labels and predictions are the same."""

import numpy as np
import pytest

from ltpll.cleaning.dataset import TableSource, read_examples
from ltpll.cleaning.pipeline import Execution, TrainingSettings, table_run, train_table_run
from ltpll.cleaning.prediction import prediction_columns, source_for_new_table
from ltpll.cleaning.results import cleaned_columns
from ltpll.cleaning.stored_tables import read_cleaned
from ltpll.tables.reading import Reading
from ltpll.training.checkpoint import read_checkpoint
from support.user_tables import feature_rows, write_csv

N = 24
RNG = np.random.default_rng(0)
ROWS = feature_rows(N)
SETS = [row[1].split("|") for row in ROWS]
SPLITS = ["test" if i % 8 == 7 else "train" for i in range(N)]
TRUTH = ["abc"[2 if i % 10 == 9 else i % 2] for i in range(N)]
OTHER_TRUTH = [TRUTH[i] for i in RNG.permutation(N)]
FEATURES = [row[2:] for row in ROWS]
VOTES = [(i, worker, RNG.choice(SETS[i])) for worker in ("ann", "bob", "cid") for i in range(N)]
PROBABILITIES = [[f"{p:.3f}" for p in RNG.dirichlet(np.ones(3))] for _ in range(N)]

# For each kind of table: the way to read it, its columns without the truth, and for each row its
# example and its cells.
KINDS = {
    "sets": (Reading(label="truth"), ["candidates"], [(i, ["|".join(SETS[i])]) for i in range(N)]),
    "class columns": (
        Reading(label="truth", class_columns=("is_*",)),
        ["is_a", "is_b", "is_c"],
        [(i, [int(c in SETS[i]) for c in "abc"]) for i in range(N)],
    ),
    "probability columns": (
        Reading(label="truth", probability_columns=("p_*",), top_k=2),
        ["p_a", "p_b", "p_c"],
        [(i, PROBABILITIES[i]) for i in range(N)],
    ),
    "annotations": (
        Reading(label="truth", annotators="union"),
        ["worker", "label"],
        [(i, [worker, label]) for i, worker, label in VOTES],
    ),
}


def trained(folder, kind, truth):
    """Everything that a training on such a table leaves, except what says how good it is."""
    reading, columns, rows = KINDS[kind]
    folder.mkdir()
    name = "task" if reading.annotators else "id"
    header = [name, *columns, "split", *(["truth"] if truth else [])]
    table = write_csv(
        folder / "t.csv",
        header,
        [[f"x{i}", *cells, SPLITS[i], *([truth[i]] if truth else [])] for i, cells in rows],
    )
    # The features of a table of annotations are in a second table, in which the truth is not a
    # feature either.
    numbers = [["abc".index(truth[i])] if truth else [] for i in range(N)]
    beside = write_csv(
        folder / "x.csv",
        ["id", "u", "v", *(["truth"] if truth else [])],
        [[f"x{i}", *FEATURES[i], *numbers[i]] for i in range(N)],
    )
    source = TableSource(
        table, reading if truth else Reading.of({**vars(reading), "label": None}), features=beside
    )
    settings = TrainingSettings(method="corr", epochs=3, folds=2)
    examples = read_examples(source)
    run = table_run(folder / "run", settings, examples)
    train_table_run(run, source, examples, settings, execution=Execution("cpu", 1, 1))
    cleaned = read_cleaned(run.folder)
    new = read_examples(
        source_for_new_table(run.folder, cleaned.record, table, None, beside, "stop"),
        needs_candidates=False,
    )
    predicted = prediction_columns(
        run.folder, cleaned.record, new, probabilities=True, device="cpu"
    )
    columns = cleaned_columns(cleaned)
    known = columns.pop("true_label", None)
    weights = {
        name: tensor.tolist()
        for name, tensor in read_checkpoint(run.folder / "classifier.safetensors")[0].items()
    }
    return (
        {**columns, **{f"predicted {name}": values for name, values in predicted.items()}},
        weights,
        known,
        cleaned.record,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_training_is_blind_to_true_labels(tmp_path, kind):
    expected, weights, known, record = trained(tmp_path / "true", kind, TRUTH)
    assert known == TRUTH  # they do reach the evaluation
    assert {"accuracy", "balanced_accuracy"} <= record["last"]["test"].keys()
    for name, truth in {"shuffled": OTHER_TRUTH, "removed": None}.items():
        found, other_weights, other_known, other_record = trained(tmp_path / name, kind, truth)
        assert other_known == truth
        assert other_weights == weights
        assert found.keys() == expected.keys()
        for column, values in expected.items():
            assert list(found[column]) == list(values), column
        assert other_record["last"]["loss"] == record["last"]["loss"]
        assert other_record["class_prior"] == record["class_prior"]
