"""Targets behave like a dense matrix, read and written by row number, in both layouts."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import ltpll.candidates.storage
from ltpll.candidates import Candidates
from ltpll.candidates.open_sets import OpenSets
from ltpll.interfaces import Outputs
from ltpll.methods.proden import PRODEN
from ltpll.targets import (
    CandidateTargets,
    ClassTargets,
    initial_targets,
    restricted_softmax,
    transduce,
)

LAYOUTS = {"candidates": CandidateTargets, "classes": ClassTargets}


@st.composite
def sets_of_labels(draw):
    n_classes = draw(st.integers(2, 7))
    return draw(
        st.lists(st.sets(st.integers(0, n_classes - 1), min_size=1), min_size=1, max_size=10)
    ), n_classes


def uniform(sets, n_classes, targets_on):
    """The starting matrix, written out."""
    if targets_on == "classes":
        return np.full((len(sets), n_classes), 1 / n_classes, dtype=np.float32)
    dense = np.zeros((len(sets), n_classes), dtype=np.float32)
    for i, labels in enumerate(sets):
        for label in labels:
            dense[i, label] = 1 / len(labels)
    return dense


def best_candidates(dense, sets):
    return [max(sorted(labels), key=lambda c, i=i: dense[i, c]) for i, labels in enumerate(sets)]


def mean_on_candidates(dense, sets):
    total = np.zeros(dense.shape[1])
    for row, labels in zip(dense.astype(np.float64), sets, strict=True):
        mass = sum(row[c] for c in labels)
        for c in labels:
            total[c] += row[c] / mass
    return total / len(sets)


@pytest.mark.parametrize("targets_on", LAYOUTS)
@settings(max_examples=40, deadline=None)
@given(data=sets_of_labels())
def test_targets_start_uniform_on_what_they_cover(targets_on, data):
    sets, n_classes = data
    targets = initial_targets(Candidates.of(sets, n_classes=n_classes), targets_on)
    assert type(targets) is LAYOUTS[targets_on]
    assert len(targets) == len(sets)
    rows = targets[torch.arange(len(sets))]
    assert rows.dtype == torch.float32
    assert np.array_equal(rows.numpy(), uniform(sets, n_classes, targets_on))
    assert targets.labels().tolist() == [min(labels) for labels in sets]
    np.testing.assert_allclose(
        targets.mean().numpy(),
        mean_on_candidates(uniform(sets, n_classes, "candidates"), sets),
        atol=1e-6,
    )


@pytest.mark.parametrize("targets_on", LAYOUTS)
@settings(max_examples=50, deadline=None)
@given(data=sets_of_labels(), draw=st.data())
def test_any_sequence_of_reads_and_writes_equals_a_dense_matrix(targets_on, data, draw):
    sets, n_classes = data
    n = len(sets)
    mask = np.zeros((n, n_classes), dtype=bool)
    for i, labels in enumerate(sets):
        mask[i, list(labels)] = True
    dense = uniform(sets, n_classes, targets_on)
    targets = initial_targets(Candidates.of(sets, n_classes=n_classes), targets_on)
    rng = np.random.default_rng(draw.draw(st.integers(0, 2**32 - 1)))
    for _ in range(draw.draw(st.integers(1, 4))):
        index = rng.permutation(n)[: rng.integers(0, n + 1)]
        rows = rng.random((len(index), n_classes)).astype(np.float32) + np.float32(0.01)
        if (
            targets_on == "candidates" and rng.random() < 0.8
        ):  # what methods write, and now and then what they should not
            rows = rows * mask[index] / (rows * mask[index]).sum(1, keepdims=True)
        targets[torch.from_numpy(index)] = torch.from_numpy(rows)
        dense[index] = rows * mask[index] if targets_on == "candidates" else rows

        read = rng.integers(0, n, size=2 * n)  # with repeats
        assert np.array_equal(targets[torch.from_numpy(read)].numpy(), dense[read])
    assert targets.labels().tolist() == best_candidates(dense, sets)
    if targets_on == "classes":
        np.testing.assert_allclose(
            targets.mean().numpy(), mean_on_candidates(dense, sets), atol=1e-6
        )
    else:
        np.testing.assert_allclose(
            targets.mean().numpy(), dense.astype(np.float64).mean(0), atol=1e-6
        )


@pytest.mark.parametrize("targets_on", LAYOUTS)
@pytest.mark.parametrize("few", [0, 1 << 20], ids=["positions worked out", "positions kept"])
@pytest.mark.parametrize("even", [True, False])
def test_one_index_that_changes_reads_and_writes_what_it_says_now(
    targets_on, few, even, monkeypatch
):
    monkeypatch.setattr(ltpll.candidates.storage, "FEW_POSITIONS", few)
    rng = np.random.default_rng(0)
    sets = [
        set(rng.choice(6, size=3 if even else rng.integers(1, 7), replace=False).tolist())
        for _ in range(12)
    ]
    mask = np.asarray([[c in labels for c in range(6)] for labels in sets])
    dense, targets = (
        uniform(sets, 6, targets_on),
        initial_targets(Candidates.of(sets, n_classes=6), targets_on),
    )
    index = torch.zeros(4, dtype=torch.long)
    for _ in range(20):
        index.copy_(
            torch.from_numpy(rng.permutation(12)[:4] - 12 * rng.integers(0, 2, 4))
        )  # some from behind
        rows = rng.random((4, 6)).astype(np.float32)
        assert np.array_equal(targets[index].numpy(), dense[index.numpy()])
        targets[index] = torch.from_numpy(rows)
        dense[index.numpy()] = rows * mask[index.numpy()] if targets_on == "candidates" else rows
        assert np.array_equal(targets[index].numpy(), dense[index.numpy()])
    everything = torch.arange(12)
    own = targets.on_candidates(everything).numpy()
    for i, labels in enumerate(sets):
        expected = [dense[i, c] for c in sorted(labels)]
        assert own[i].tolist() == expected + expected[-1:] * (own.shape[1] - len(labels))


@pytest.mark.parametrize("targets_on", LAYOUTS)
def test_writing_a_row_twice_in_one_batch_with_the_same_values_equals_writing_it_once(targets_on):
    candidates = Candidates.of([[0, 2], [1], [0, 1, 2]])
    once, twice = initial_targets(candidates, targets_on), initial_targets(candidates, targets_on)
    row = torch.tensor([[0.2, 0.3, 0.5]])
    once[torch.tensor([2])] = row
    twice[torch.tensor([2, 2, 2])] = row.expand(3, -1)
    assert torch.equal(once.values, twice.values)


@pytest.mark.parametrize("targets_on", LAYOUTS)
def test_reading_gives_a_copy(targets_on):
    targets = initial_targets(Candidates.of([[0, 1], [1, 2]]), targets_on)
    before = targets.values.clone()
    targets[torch.tensor([0, 1])].zero_()
    assert torch.equal(targets.values, before)


@pytest.mark.parametrize("targets_on", LAYOUTS)
@pytest.mark.parametrize("rows_at_once", [1, 3, 10, 11])
def test_labels_and_mean_do_not_depend_on_how_many_rows_are_looked_at_at_once(
    targets_on, rows_at_once, monkeypatch
):
    rng = np.random.default_rng(rows_at_once)
    sets = [set(rng.choice(5, size=rng.integers(1, 6), replace=False).tolist()) for _ in range(10)]
    targets = initial_targets(Candidates.of(sets, n_classes=5), targets_on)
    dense = rng.random((10, 5)).astype(np.float32)
    targets[torch.arange(10)] = torch.from_numpy(dense)
    monkeypatch.setattr(ltpll.candidates.storage, "VALUES_PER_PASS", 5 * rows_at_once)
    assert targets.labels().tolist() == best_candidates(dense, sets)
    expected = (
        mean_on_candidates(dense, sets)
        if targets_on == "classes"
        else sum(mask_row(d, s) for d, s in zip(dense, sets, strict=True)) / 10
    )
    np.testing.assert_allclose(targets.mean().numpy(), expected, atol=1e-6)


def mask_row(row, labels):
    return np.array(
        [value if c in labels else 0.0 for c, value in enumerate(row)], dtype=np.float64
    )


def test_targets_on_candidates_need_one_number_for_each_candidate():
    targets = CandidateTargets(Candidates.of([[0, 5], [1], [2, 3, 4]], n_classes=1000))
    assert targets.values.shape == (6,)
    assert targets.values.dtype == torch.float32


# ---- restricted softmax --------------------------------------------------------------------------


def naive_softmax(logits, mask):
    """One row in Python's float arithmetic."""
    on = [z for z, keep in zip(logits, mask, strict=True) if keep]
    if not on:
        return [0.0] * len(logits)
    total = math.fsum(math.exp(z - max(on)) for z in on)
    return [
        math.exp(z - max(on)) / total if keep else 0.0 for z, keep in zip(logits, mask, strict=True)
    ]


@settings(max_examples=60, deadline=None)
@given(
    draw=st.data(),
    scale=st.sampled_from([1.0, 30.0, 1e4]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
)
def test_restricted_softmax_equals_a_loop_over_the_mask_however_large_the_logits(
    draw, scale, dtype
):
    n, c = draw.draw(st.integers(1, 6)), draw.draw(st.integers(1, 6))
    cells = st.floats(-1, 1, allow_nan=False, width=32)
    logits = (
        torch.tensor(
            draw.draw(st.lists(st.lists(cells, min_size=c, max_size=c), min_size=n, max_size=n)),
            dtype=dtype,
        )
        * scale
    )
    mask = torch.tensor(
        draw.draw(st.lists(st.lists(st.booleans(), min_size=c, max_size=c), min_size=n, max_size=n))
    )
    out = restricted_softmax(logits, mask)
    assert out.dtype == dtype
    assert bool(torch.isfinite(out).all())
    assert bool((out[~mask] == 0).all())
    expected = [
        naive_softmax(z, m) for z, m in zip(logits.double().tolist(), mask.tolist(), strict=True)
    ]
    torch.testing.assert_close(
        out.double(), torch.tensor(expected, dtype=torch.float64), atol=3e-6, rtol=0
    )
    torch.testing.assert_close(out.sum(1), mask.any(1).to(dtype), atol=1e-5, rtol=0)


@pytest.mark.parametrize("low", [-1e4, -1e30])
@pytest.mark.parametrize("high", [0.0, 1e4, 1e30])
def test_candidates_far_below_the_rest_still_share_the_whole_row(low, high):
    logits = torch.tensor([[low, low, high]])
    out = restricted_softmax(logits, torch.tensor([[True, True, False]]))
    assert out.tolist() == [[0.5, 0.5, 0.0]]


def test_a_row_without_candidates_is_all_zero_and_passes_no_gradient():
    logits = torch.tensor([[1.0, 2.0], [3.0, -1e4]], requires_grad=True)
    out = restricted_softmax(logits, torch.tensor([[False, False], [True, True]]))
    out[:, 0].sum().backward()
    assert out[0].tolist() == [0.0, 0.0]
    assert logits.grad is not None
    assert bool(torch.isfinite(logits.grad).all())
    assert logits.grad[0].tolist() == [0.0, 0.0]


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 2**32 - 1))
def test_restricted_softmax_equals_the_masked_probabilities_divided_by_their_sum(seed):
    rng = np.random.default_rng(seed)
    logits = 3 * rng.standard_normal((8, 5))
    mask = rng.random((8, 5)) < 0.5
    mask[np.arange(8), rng.integers(0, 5, 8)] = True
    p = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    expected = p * mask / (p * mask).sum(1, keepdims=True)
    np.testing.assert_allclose(
        restricted_softmax(torch.from_numpy(logits), torch.from_numpy(mask)).numpy(),
        expected,
        rtol=1e-12,
    )


def test_the_gradient_of_restricted_softmax_equals_the_finite_difference():
    torch.manual_seed(0)
    logits = torch.randn(4, 5, dtype=torch.float64, requires_grad=True)
    mask = torch.tensor(
        [[1, 1, 0, 0, 1], [0, 0, 1, 0, 0], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0]], dtype=torch.bool
    )
    assert torch.autograd.gradcheck(lambda z: restricted_softmax(z, mask), (logits,))


# ---- labels out of targets -----------------------------------------------------------------------


@pytest.mark.parametrize("targets_on", ["candidates", "classes"])
def test_the_two_most_believed_candidates_of_each_row_in_a_plain_loop(targets_on):
    g = torch.Generator().manual_seed(0)
    matrix = torch.rand(40, 6, generator=g) < 0.4
    matrix[torch.arange(40), torch.randint(6, (40,), generator=g)] = True
    candidates = Candidates.from_matrix(matrix)
    targets = initial_targets(candidates, targets_on)
    weights = torch.rand(40, 6, generator=g) + 0.01
    if targets_on == "candidates":
        weights = weights * matrix / (weights * matrix).sum(1, keepdim=True)
    targets[torch.arange(40)] = weights
    labels, confidence, runner_up, margin = transduce(targets, candidates)
    for i in range(40):
        inside = {j: float(weights[i, j]) for j in range(6) if matrix[i, j]}
        total = sum(inside.values())
        order = sorted(inside, key=lambda j: -inside[j])
        assert labels[i] == order[0]
        assert confidence[i] == pytest.approx(inside[order[0]] / total, rel=1e-5)
        second = order[1] if len(order) > 1 else order[0]
        assert runner_up[i] == second
        beside = inside[second] / total if len(order) > 1 else 0.0
        assert margin[i] == pytest.approx(inside[order[0]] / total - beside, abs=1e-6)


@pytest.mark.parametrize("targets_on", ["candidates", "classes"])
def test_of_candidates_believed_as_much_the_lower_number_comes_first_as_in_the_labels(targets_on):
    candidates = Candidates.of([{1, 3, 5}, {4}, {0, 2}], n_classes=6)
    targets = initial_targets(candidates, targets_on)
    labels, confidence, runner_up, margin = transduce(targets, candidates)
    assert labels.tolist() == targets.labels().tolist() == [1, 4, 0]
    assert runner_up.tolist() == [3, 4, 2]
    assert confidence.tolist() == pytest.approx([1 / 3, 1, 1 / 2])
    assert margin.tolist() == pytest.approx([0, 1, 0])


# ---- weights -------------------------------------------------------------------------------------


def test_targets_start_from_the_weights_of_the_candidates():
    candidates = Candidates.of([[0, 2], [1], [0, 1, 3]], n_classes=4).with_weights(
        [3, 1, 5, 1, 1, 2]
    )
    on_candidates = np.asarray([[0.75, 0, 0.25, 0], [0, 1, 0, 0], [0.25, 0.25, 0, 0.5]])
    targets = initial_targets(candidates)
    assert np.array_equal(targets[torch.arange(3)].numpy(), on_candidates)
    targets[torch.tensor([0])] = torch.tensor([[0.5, 0, 0.5, 0]])
    assert candidates.weights[0] == 0.75  # not overwritten by targets
    # With targets of all classes, candidates keep the total of uniform targets, which the weights
    # divide.
    on_classes = np.asarray([[0.375, 0.25, 0.125, 0.25], [0.25] * 4, [0.1875, 0.1875, 0.25, 0.375]])
    np.testing.assert_allclose(
        initial_targets(candidates, "classes")[torch.arange(3)].numpy(), on_classes, atol=1e-7
    )
    for layout in LAYOUTS:
        assert initial_targets(candidates, layout).labels().tolist() == [0, 1, 3]


# ---- sets that may lack the true label -----------------------------------------------------------


def open_problem(n=40, n_classes=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(n, n_classes, generator=generator) < 0.4
    mask[torch.arange(n), torch.randint(0, n_classes, (n,), generator=generator)] = True
    return (
        mask,
        torch.randn(n, n_classes, generator=generator) * 2,
        OpenSets(Candidates.from_matrix(mask), 0.3),
    )


@pytest.mark.parametrize("targets_on", ["candidates", "classes"])
def test_targets_of_open_sets_are_probabilities_times_the_weight_of_candidates_and_guests(
    targets_on,
):
    mask, logits, sets = open_problem()
    targets, index = initial_targets(sets, targets_on), torch.arange(len(sets))
    assert torch.equal(
        targets.labels(), initial_targets(Candidates.from_matrix(mask), targets_on).labels()
    )
    sets.add_outside_labels(index, logits)
    targets[index] = PRODEN().disambiguate(
        Outputs((logits,), ()).weighted(sets.log_weights(index)), targets[index], sets[index]
    )
    stored, labels, mean = targets[index], targets.labels(), torch.zeros(6)
    for i in range(len(sets)):
        k, p = int(mask[i].sum()), torch.softmax(logits[i], 0)
        weight = torch.where(mask[i], 1.0, 0.0)
        if k < 6:
            weight[int(torch.where(mask[i], -torch.inf, logits[i]).argmax())] = (
                0.3 / 0.7 * k / (6 - k)
            )
        expected = p * weight / (p * weight).sum()
        torch.testing.assert_close(stored[i], expected)
        assert int(labels[i]) == int(expected.argmax())
        mean += expected / len(sets)
    torch.testing.assert_close(targets.mean(), mean)
    assert any(not mask[i, labels[i]] for i in range(len(sets)))
    found = transduce(targets, sets)
    assert found.labels.tolist() == labels.tolist()
    torch.testing.assert_close(torch.from_numpy(found.confidence), stored.max(1).values)
    second = stored.scatter(1, labels[:, None], -1).max(1)
    torch.testing.assert_close(
        torch.from_numpy(found.margin), stored.max(1).values - second.values.clamp_min(0)
    )


@pytest.mark.parametrize("targets_on", ["candidates", "classes"])
def test_one_tensor_restores_targets_and_guests(targets_on):
    _, logits, sets = open_problem()
    targets, index = initial_targets(sets, targets_on), torch.arange(len(sets))
    sets.add_outside_labels(index, logits)
    targets[index] = torch.softmax(logits, 1)
    fresh = open_problem()[2]
    other = initial_targets(fresh, targets_on)
    other.values.copy_(targets.values)
    assert torch.equal(fresh.outside_labels, sets.outside_labels)
    assert torch.equal(other[index], targets[index])


def test_what_belongs_to_an_earlier_guest_goes_to_the_others():
    sets = OpenSets(Candidates.of([[0, 1]], n_classes=4), 0.1)
    targets, index = initial_targets(sets), torch.tensor([0])
    sets.add_outside_labels(index, torch.tensor([[0.0, 0.0, 5.0, 0.0]]))
    targets[index] = torch.tensor([[0.25, 0.25, 0.5, 0.0]])
    sets.add_outside_labels(index, torch.tensor([[0.0, 0.0, 0.0, 5.0]]))
    targets[index] = torch.tensor([[0.2, 0.1, 0.4, 0.3]])
    torch.testing.assert_close(targets[index], torch.tensor([[1 / 3, 1 / 6, 0.0, 1 / 2]]))
