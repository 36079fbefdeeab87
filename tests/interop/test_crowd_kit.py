"""crowd-kit's tables of answers (`task`, `worker`, `label`) become candidates, and its estimates
scores.
"""

import numpy as np
import pandas as pd
import pytest

from ltpll import Candidates, candidates_from_votes, initial_targets
from ltpll.synthetic import crowd_votes
from ltpll.tables.read_tables import read_table
from ltpll.tables.reading import Reading

NEEDS = "run by `make interop`, which installs crowd-kit"
aggregation = pytest.importorskip("crowdkit.aggregation", reason=NEEDS)
pytestmark = pytest.mark.filterwarnings("ignore:.*deprecated.*")  # crowd-kit's calls of pandas

NAMES = np.asarray(["ant", "bee", "cat", "dog"])


@pytest.fixture(scope="module")
def answers():
    """Four answers about each of 400 tasks, of good and careless workers, and the truth."""
    truth = np.random.default_rng(0).choice(4, 400, p=[0.5, 0.3, 0.15, 0.05])
    workers = [0.95, 0.9, 0.6, 0.5, 0.4, 0.9]
    task, worker, label = crowd_votes(truth, 4, annotators=workers, per_row=4, seed=0)
    frame = pd.DataFrame({"task": [f"t{row:03}" for row in task], "worker": worker})
    return frame.assign(label=NAMES[label]), NAMES[truth]


def test_a_frame_of_answers_is_read_and_its_weights_agree_with_dawid_and_skene(answers):
    frame, truth = answers
    read = read_table(frame, Reading(annotators="union", annotation="label"))
    assert read.ids.tolist() == sorted(set(frame["task"]))
    ours = NAMES[initial_targets(read.candidates).labels()]
    theirs = aggregation.DawidSkene(n_iter=50).fit_predict(frame).loc[read.ids]
    majority = aggregation.MajorityVote().fit_predict(frame).loc[read.ids]
    assert np.mean(ours == theirs) > 0.9
    assert np.mean(ours == truth) > np.mean(majority == truth)


def test_columns_of_a_frame_are_votes_as_soon_as_tasks_are_numbered(answers):
    frame, _ = answers
    rows, tasks = pd.factorize(frame["task"], sort=True)
    votes = candidates_from_votes(rows, frame["worker"], frame["label"])
    read = read_table(frame, Reading(annotators="union", annotation="label"))
    assert tasks.tolist() == read.ids.tolist()
    assert votes.classes == read.candidates.classes
    np.testing.assert_array_equal(votes.labels, read.candidates.labels)
    np.testing.assert_allclose(votes.weights, read.candidates.weights)


def test_its_probabilities_are_scores_of_candidates(answers):
    frame, _ = answers
    shares = aggregation.DawidSkene(n_iter=50).fit_predict_proba(frame)
    candidates = Candidates.from_scores(shares, top_k=2)
    assert candidates.classes == tuple(shares.columns)
    likeliest = np.asarray(candidates.classes)[initial_targets(candidates).labels()]
    np.testing.assert_array_equal(likeliest, shares.idxmax(axis=1))
