"""The training of a committee: order, folders, processes, progress, and what is left out."""

import pickle

import numpy as np
import pytest
import torch
from joblib import parallel_config

from ltpll import Candidates, PartialLabelClassifier
from ltpll.committee import SoftForest
from ltpll.committee import training as module
from ltpll.committee.members import NetworkMember, SoftLabelMember
from ltpll.committee.mixture import floored_shares, inside_sets, with_shares
from ltpll.committee.shared_sets import SharedSets
from ltpll.committee.training import CommitteeTraining, weighted_by
from ltpll.evaluation.set_information import set_information
from ltpll.training import fold_training
from ltpll.training.callbacks import Progress
from support.refusals import refusal


def problem(n=60):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, n)
    x = (rng.normal(size=(n, 2)) + 2 * np.eye(3, 2)[y]).astype(np.float32)
    return x, Candidates.from_matrix((rng.random((n, 3)) < 0.3) | np.eye(3, dtype=bool)[y])


def network(name, *, bins=False, lifts=False, told=False, **options):
    how = {"epochs": 2, "batch_size": 30, "rebalancer": "mean-target", "model": "linear"}
    how |= {"device": "cpu", "threads": 1}
    return NetworkMember(name, PartialLabelClassifier(**how | options), bins, lifts, told)


def members():
    return [
        network("linear"),
        SoftLabelMember("forest", SoftForest(trees=3)),
        network("lifting", rebalancer="records", lifts=True),
        network("bins", bins=True),
    ]


def training(own=None, sets=None, folds=2):
    x, given = problem()
    return CommitteeTraining(own or members(), x, sets or given, folds, 0)


class Shares(Progress):
    """Notes the share of the work that is done, and interrupts the training of a part."""

    def __init__(self, stop=None):
        super().__init__(0, lambda line: None)
        self.shares, self.begun, self.stop = [], [], stop

    def start_part(self, part, *others):
        self.begun += [one.name for one in (part, *others)]
        return super().start_part(part, *others)

    def report_epochs(self, done, *, important=False):
        super().report_epochs(done, important=important)
        self.shares.append(self.share_done)
        if self.stop in [one.name for one in self._together] and self.part.done >= 1:
            raise KeyboardInterrupt


def run(folder=None, workers=1, stop=None, own=None):
    """What a training finds, and its progress."""
    one, progress = training(own), Shares(stop)
    stage = one.stage(workers)
    progress.plan_stages([stage])
    return one.run(folder, stage, progress), progress


def same(one, other):
    assert one.weights == other.weights
    for name in ("prior", "out_of_fold", "own"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


@pytest.fixture(scope="module")
def whole():
    return run()


def test_progress_follows_the_order_of_training_and_ends_at_the_whole(whole):
    found, progress = whole
    assert progress.shares == sorted(progress.shares)
    assert progress.shares[-1] == 1
    assert progress.begun[:7] == [
        *("linear, 1 of 3", "linear, 2 of 3", "lifting, 1 of 3", "lifting, 2 of 3"),
        *("bins, 1 of 3", "bins, 2 of 3", "forest, 1 of 3"),
    ]
    assert list(found.weights) == ["linear", "bins", "lifting", "forest"]


def test_many_rows_are_put_into_bins_only_when_they_are_read(whole, monkeypatch):
    monkeypatch.setattr(module, "MOST_BYTES", 60 * 34 * 4 - 1)  # 2 columns with 16 bins each
    monkeypatch.setattr(module, "ROWS_AT_ONCE", 7)
    found, _ = run()
    np.testing.assert_array_equal(found.out_of_fold, whole[0].out_of_fold)
    np.testing.assert_allclose(found.own, whole[0].own, rtol=1e-5)
    assert not isinstance(training()._in_bins, np.ndarray)


def test_rows_are_predicted_by_members_that_were_not_trained_on_them(monkeypatch):
    seen = []
    predicted = module.predicted

    def noted(classifier, x, sets, **how):
        seen.append(len(x))
        return predicted(classifier, x, sets, **how)

    monkeypatch.setattr(module, "predicted", noted)
    one = training([network("alone")])
    found = one.run()
    assert seen == [30, 30, 60]
    (fitted,) = found.members
    for others, rows in one.splits[:-1]:
        assert not set(others) & set(rows)
        own = PartialLabelClassifier(**one.members[0].classifier.get_params())
        own.fit(one.x[others], one.candidates.select(others))
        expected = own.predict_proba(one.x[rows])
        own_mean = with_shares(expected, fitted.mean, found.prior)
        np.testing.assert_allclose(found.out_of_fold[rows], own_mean, atol=2e-3)
    assert found.weights == {"alone": 1.0}
    expected = set_information(found.out_of_fold, one.candidates)
    assert found.information == expected


def test_the_mixture_is_the_weighted_mean_of_members_that_agree_on_shares(whole):
    found, _ = whole
    x, sets = problem()
    total = np.zeros((60, 3))
    for one in found.members:
        given = x if one.bins is None else one.bins.transform(x)
        own = one.classifier.predict_proba(given) * (found.prior / one.mean)
        total += one.weight * own / own.sum(1, keepdims=True)
    np.testing.assert_allclose(found.own, total, atol=1e-5)
    assert sum(found.weights.values()) == pytest.approx(1)
    np.testing.assert_allclose(found.prior, floored_shares(found.prior, len(sets)))


@pytest.mark.parametrize("stop", ["bins, 2 of 3", "forest, 2 of 3", "bins, 3 of 3"])
def test_an_interrupted_training_resumes_from_its_folder_to_the_same_result(tmp_path, stop, whole):
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, stop=stop)
    kept = sorted(path.name for path in tmp_path.iterdir())
    found, progress = run(tmp_path)
    same(found, whole[0])
    assert len(kept) >= 3
    assert "linear, 1 of 3" not in progress.begun  # which is kept
    assert progress.shares[-1] == 1


def told_members():
    return [network("linear"), network("told", told=True), SoftLabelMember("trees", SoftForest(3))]


def test_a_network_that_is_told_starts_from_the_soft_labels_of_the_others(monkeypatch):
    given = []

    def noting(soft, sets):
        given.append(soft)
        return weighted_by(soft, sets)

    monkeypatch.setattr(module, "weighted_by", noting)
    own = told_members()
    one = training(own)
    shared = SharedSets(np.repeat(np.arange(30), 2), one.candidates)
    one = CommitteeTraining(own, one.x, one.candidates, 2, 0, shared)
    found = one.run()
    linear, told = (next(m for m in found.members if m.name == k) for k in ("linear", "told"))
    for others, rows in one.splits[:-1]:
        alone = PartialLabelClassifier(**own[0].classifier.get_params())
        alone.fit(one.x[others], one.candidates.select(others))
        own_mean = with_shares(alone.predict_proba(one.x[rows]), linear.mean, found.prior)
        before = inside_sets(own_mean, one.candidates.select(rows))
        assert np.abs(given[0][rows] - before).max() > 0.05  # other rows of the group tell more
    np.testing.assert_array_equal(given[0], given[1])  # of the folds, and of all rows
    weights = given[0][one.candidates.dense().numpy()]
    by_hand = PartialLabelClassifier(**own[1].classifier.get_params())
    by_hand.fit(one.x, one.candidates.with_weights(weights + module.LEAST_SOFT))
    np.testing.assert_allclose(
        by_hand.predict_proba(one.x), told.classifier.predict_proba(one.x), atol=1e-5
    )
    # What is found knows the other rows of each group as well.
    again = [shared.informed(each) for each in (found.own, found.out_of_fold)]
    for each, twice in zip((found.own, found.out_of_fold), again, strict=True):
        np.testing.assert_allclose(each.sum(1), twice.sum(1), atol=1e-5)
        assert inside_sets(each, one.candidates).max(1).mean() > 0.7


@pytest.mark.parametrize("stop", ["linear, 2 of 3", "told, 2 of 3", "told, 3 of 3"])
def test_a_network_that_is_told_resumes_to_the_same_result(tmp_path, stop):
    whole, _ = run(own=told_members())
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, stop=stop, own=told_members())
    same(run(tmp_path, own=told_members())[0], whole)


def test_a_finished_training_is_read_from_its_folder(tmp_path, monkeypatch):
    own = [network("one"), network("two", lr=0.3)]
    first, _ = run(tmp_path, own=own)
    monkeypatch.setattr(PartialLabelClassifier, "run_training", None)
    again, progress = run(tmp_path, own=own)
    same(first, again)
    assert progress.shares[-1] == 1


@pytest.mark.parametrize("trial_rows", [40, 20_000])
def test_a_training_that_starts_from_another_keeps_its_folds_members_and_networks(
    tmp_path, monkeypatch, trial_rows
):
    monkeypatch.setattr(module, "TRIAL_ROWS", trial_rows)
    monkeypatch.setattr(module, "MOST_KEPT", 4)
    x, sets = problem()
    training().run(tmp_path)
    weights = {"linear": 0.7, "forest": 0.0, "lifting": 0.3, "bins": 0.0}
    earlier = module.EarlierCommittee(tmp_path, weights)
    answered = sets.with_answers([0, 1, 2], [[0], [1], [2]])
    second = CommitteeTraining(members(), x, answered, 2, 0, earlier=earlier)
    alone = CommitteeTraining(members(), x, answered, 2, 0)
    same = [
        np.array_equal(a[1], b[1]) for a, b in zip(second.splits, training().splits, strict=True)
    ]
    assert all(same)
    assert not np.array_equal(alone.splits[0][1], second.splits[0][1])  # answers moved rows
    begun, made = [], fold_training.FoldRun.prepare

    def prepare(run, own):
        begun.append((run.number, run.earlier, run.fold))
        return made(run, own)

    monkeypatch.setattr(fold_training.FoldRun, "prepare", prepare)
    found = second.run(tmp_path / "second")
    assert {name for name, weight in found.weights.items() if weight} <= {"linear", "lifting"}
    first = {number: part.name for number, part in enumerate(second.parts)}
    assert {first[number].partition(",")[0] for number, *_ in begun} == {"linear", "lifting"}
    for number, file, (rows, own) in begun:
        assert file == tmp_path / f"member-{number + 1}.safetensors"
        before, _ = module.KeptFolds(tmp_path, module.KEPT).read(number), None
        if "held_out" in before:  # the network it starts from has not seen its rows either
            np.testing.assert_array_equal(np.sort(before["held_out"]), np.sort(own))
            assert not {*rows.tolist()} & {*before["held_out"].tolist()}


def test_networks_trained_by_two_workers_are_those_of_one(tmp_path, monkeypatch, whole):
    given = []

    def in_this_process(function, calls, workers, report):
        given.append((workers, sorted(k for run, *_ in calls for k in run.numbers)))
        for call in calls:
            function(*pickle.loads(pickle.dumps(call)))
            report()

    monkeypatch.setattr(fold_training, "in_processes", in_this_process)
    found, progress = run(tmp_path, workers=2)
    same(found, whole[0])
    assert [workers for workers, _ in given] == [2, 2]
    assert given[0][1] == list(range(6))
    assert progress.shares[-1] == 1
    given.clear()
    same(run(tmp_path, workers=2)[0], found)
    assert not given  # all is kept


def test_a_backend_of_joblib_trains_what_one_process_does(tmp_path, monkeypatch, whole):
    begun = []

    def noting(run, content):
        begun.append(run.numbers)
        return trained_alone(run, content)

    trained_alone = fold_training._trained_alone
    monkeypatch.setattr(fold_training, "_trained_alone", noting)
    with parallel_config("threading", n_jobs=2):
        found, progress = run(tmp_path)
    # Threads round differently.
    np.testing.assert_allclose(found.out_of_fold, whole[0].out_of_fold, atol=1e-5)
    np.testing.assert_allclose(found.own, whole[0].own, atol=1e-5)
    assert set(range(6)) <= {number for numbers in begun for number in numbers}
    assert progress.shares[-1] == 1
    begun.clear()
    with parallel_config("threading", n_jobs=2):
        same(run(tmp_path)[0], found)
    assert not begun  # all is kept


def test_members_with_too_little_weight_are_not_trained_on_all_rows(monkeypatch):
    monkeypatch.setattr(module, "mixture_weights", lambda found, sets: WEIGHTS[len(found)])
    found, progress = run()
    expected = {"linear": 0.0, "bins": 0.75, "lifting": 0.0, "forest": 0.25}
    assert found.weights == pytest.approx(expected)
    assert [name for name in progress.begun if "3 of 3" in name][:2] == [
        "bins, 3 of 3",
        "forest, 3 of 3",
    ]
    assert [one.name for one in found.members] == ["bins", "forest"]
    assert progress.shares[-1] == 1


WEIGHTS = {3: np.full(3, 1 / 3), 4: np.array([0.01, 0.7425, 0, 0.2475])}


def test_class_shares_follow_from_the_weights_without_members_that_lift_rare_classes(monkeypatch):
    given = []

    def noting(found, sets):
        given.append(found)
        return {3: np.full(3, 1 / 3), 4: np.array([0.2, 0.3, 0.4, 0.1])}[len(found)]

    monkeypatch.setattr(module, "mixture_weights", noting)
    found, _ = run()
    before, _ = given[-2:]  # the shares of the last round follow from the one before
    linear, bins, _, forest = before
    mixture = (0.2 * linear + 0.3 * bins + 0.1 * forest) / 0.6
    matrix = problem()[1][torch.arange(60)].numpy()
    inside = (mixture + 1e-6) * matrix
    expected = (inside / inside.sum(1, keepdims=True)).mean(0)
    np.testing.assert_allclose(found.prior, expected, rtol=1e-5)


def test_of_many_members_with_little_weight_each_all_are_kept(monkeypatch):
    monkeypatch.setattr(module, "LEAST_WEIGHT", 0.6)
    found, _ = run(own=[network("one"), network("two")])
    assert found.weights["one"] + found.weights["two"] == pytest.approx(1)


def test_groups_stay_together_in_folds():
    _, sets = problem()
    groups = np.arange(60) // 4
    one = training(sets=sets.with_groups(groups), folds=3)
    for others, rows in one.splits[:-1]:
        assert not set(groups[others]) & set(groups[rows])
    every, again = one.splits[-1]
    assert len(every) == len(again) == 60


def test_what_cannot_be_trained_is_refused_in_a_sentence(monkeypatch):
    lifting, forest = network("lifting", lifts=True), SoftLabelMember("forest", SoftForest())
    assert "same name: rename" in refusal(lambda: training([network("a"), network("a")]))
    assert "needs a network" in refusal(lambda: training([lifting, forest]))
    monkeypatch.setattr(module, "MOST_VALUES", 60 * 3 * 3)
    assert "60 rows × 3 classes are too many" in refusal(training)
    training([network("a")])


def test_workers_are_decided_by_the_amount_of_work(monkeypatch):
    monkeypatch.setattr(fold_training.os, "cpu_count", lambda: 5)
    one = training()
    assert one.stage(None).workers == 1
    monkeypatch.setattr(fold_training, "WORTHWHILE", 1)
    assert one.stage(None).workers == 5
    monkeypatch.setattr(fold_training, "MOST_BYTES", 3 * 4 * one._in_bins.nbytes)
    assert one.stage(None).workers == 3
    assert one.stage(2).workers == 2


def test_settings_of_all_networks_are_set_at_once():
    one = training()
    one.set_network_params(truth_missing=0.2)
    assert [
        each.classifier.truth_missing for each in one.members if isinstance(each, NetworkMember)
    ] == [0.2] * 3


def test_of_many_rows_a_trial_on_a_sample_chooses_which_members_are_trained(monkeypatch):
    monkeypatch.setattr(module, "TRIAL_ROWS", 40)
    monkeypatch.setattr(module, "MOST_KEPT", 1)
    found, progress = run(own=[network("one"), network("two", lr=0.3), network("three", lr=1e-9)])
    assert list(found.weights) == ["one", "two", "three"]
    assert sorted(found.weights.values()) == [0, 0, 1]
    assert found.out_of_fold.shape == (60, 3)
    assert progress.shares == sorted(progress.shares)
    assert progress.shares[-1] == 1


def test_members_with_little_weight_in_the_trial_are_not_trained_on_more(monkeypatch):
    monkeypatch.setattr(module, "TRIAL_ROWS", 40)
    of_trial = {3: np.array([0.62, 0.3, 0.08]), 2: np.array([0.5, 0.5])}
    monkeypatch.setattr(module, "mixture_weights", lambda found, sets: of_trial[len(found)])
    found, _ = run(own=[network("one"), network("two", lr=0.3), network("three")])
    assert found.weights == pytest.approx({"one": 0.5, "two": 0.5, "three": 0})


def test_tables_that_teach_nothing_are_refused_before_training():
    x, sets = problem()
    same = Candidates.of([[0, 1]] * 60)
    almost = Candidates.of([[0]] * 59 + [[1]])
    for features, given, words in (
        (x, same, "All 60 rows have the same candidates"),
        (np.ones_like(x), sets, "All 60 rows of the features are identical"),
        (x, almost, "each fold must leave rows with different candidates"),
        (
            x[:2],
            Candidates.of([[0, 1], [2]]),
            "each fold must leave rows with different candidates",
        ),
    ):
        message = refusal(lambda: CommitteeTraining(members(), features, given, 2, 0))  # noqa: B023
        assert words in message
