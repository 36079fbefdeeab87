"""cleanlab's `Datalab` takes cleaned labels and out-of-fold probabilities, in memory and of a run."""

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_iris
from sklearn.metrics import roc_auc_score

from ltpll import Committee, LabelCleaner
from support.commands import ltpll_here as ltpll
from support.documents import ROOT, blocks_of

NEEDS = "run by `make interop`, which installs cleanlab"
cleanlab = pytest.importorskip("cleanlab", reason=NEEDS)
pytest.importorskip("datasets", reason=NEEDS)  # of which Datalab is made

NAMES = np.asarray(["setosa", "versicolor", "virginica"])


def flowers():
    """The measurements of irises, their names, and sets of which a tenth lacks the name."""
    features, truth = load_iris(return_X_y=True, as_frame=True)
    rng = np.random.default_rng(0)
    lacks = rng.random(len(truth)) < 0.1
    sets = [
        {NAMES[(label + 1) % 3]} if wrong else {NAMES[label], NAMES[(label + row % 2) % 3]}
        for row, (label, wrong) in enumerate(zip(truth, lacks, strict=True))
    ]
    return features, NAMES[truth], sets


def test_datalab_finds_the_wrong_labels_by_the_probabilities_of_a_committee():
    features, truth, sets = flowers()
    cleaner = LabelCleaner(Committee(steps=100), folds=3).fit(features, sets)
    labels = cleaner.labels_["label"]
    wrong = labels.to_numpy() != truth
    assert 5 < wrong.sum() < 30
    lab = cleanlab.Datalab(data={"label": labels.tolist()}, label_name="label", verbosity=0)
    lab.find_issues(pred_probs=cleaner.classifier_.out_of_fold_, issue_types={"label": {}})
    assert lab.get_info("label")["given_label"].tolist() == labels.tolist()
    found = lab.get_issues("label")
    assert roc_auc_score(wrong, 1 - found["label_score"]) > 0.9
    assert wrong[found["is_label_issue"]].mean() > 0.7


def test_the_code_of_the_page_on_labelling_tools_runs_on_the_files_of_a_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    features, truth, sets = flowers()
    table = features.assign(candidates=["|".join(sorted(one)) for one in sets])
    table.to_csv("irises.csv", index=False)
    ltpll("train", "irises.csv", "--out", "run", "--epochs", 30, "--folds", 3, "--device", "cpu")
    ltpll("clean", "run", "--out", "cleaned.csv")
    page = ROOT / "docs" / "labelling-tools.md"
    (code,) = [block.code for block in blocks_of(page) if "Datalab" in block.code]
    space = {}
    exec(compile(code, str(page), "exec"), space)
    found = space["lab"].get_issues("label")
    wrong = pd.read_csv("cleaned.csv")["label"].to_numpy() != truth
    assert roc_auc_score(wrong, 1 - found["label_score"]) > 0.9
