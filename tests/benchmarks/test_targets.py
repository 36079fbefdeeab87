"""The benchmark of candidates and targets: its measurements, its table and its record."""

import json
import re

import numpy as np
import pytest
import torch

from benchmarks.targets import bench_targets, draw_sets, exponents, main, tensor_bytes
from ltpll.candidates import Candidates
from ltpll.targets import CandidateTargets
from support.refusals import refusal

SMALL = {"size": 2, "batch": 8, "device": "cpu", "seconds": 0.0}


@pytest.mark.parametrize(("p", "q"), [(1.0, 0.0), (0.0, 1.0), (0.5, -0.25)])
def test_exponents_are_those_of_a_power_law(p, q):
    rows = [
        {"examples": n, "classes": c, "value": 3.7 * n**p * c**q}
        for n in (10, 100, 1000)
        for c in (20, 40)
    ]
    found = exponents(rows, lambda row: row["value"])
    assert found == {"examples": pytest.approx(p, abs=1e-4), "classes": pytest.approx(q, abs=1e-4)}


def test_an_exponent_is_the_slope_of_the_best_line_through_the_logarithms():
    values = {10: 1.0, 100: 5.0, 1000: 7.0}
    found = exponents(
        [{"examples": n, "classes": 7, "value": value} for n, value in values.items()],
        lambda row: row["value"],
    )
    slope = np.polyfit(np.log(list(values)), np.log(list(values.values())), 1)[0]
    assert found == {"examples": pytest.approx(slope, abs=1e-4), "classes": None}


@pytest.mark.parametrize("uneven", [False, True])
@pytest.mark.parametrize(("n_classes", "size"), [(10, 5), (11, 5), (1000, 3), (2, 1)])
def test_drawn_sets_have_distinct_labels_and_the_requested_sizes(n_classes, size, uneven):
    indptr, numbers = draw_sets(200, n_classes, size, uneven=uneven)
    rows = np.split(numbers, indptr[1:-1])
    assert all(len(set(row.tolist())) == len(row) for row in rows)
    assert 0 <= numbers.min() <= numbers.max() < n_classes
    assert {len(row) for row in rows} == (set(range(1, 2 * size)) if uneven else {size})


def test_memory_counts_every_tensor_once():
    candidates = Candidates.of([{0, 1}, {2, 3}, {0, 2}])
    n_bytes = 6 * 2 + 4 * 4 + 2 * 4  # labels, offsets, and positions in the longest row
    assert tensor_bytes(candidates) == n_bytes
    targets = CandidateTargets(candidates)
    assert tensor_bytes(candidates, targets) == n_bytes + 6 * 4
    targets.again, candidates.inside = targets.values[:2], (torch.zeros(5, dtype=torch.uint8),)
    assert tensor_bytes(candidates, targets) == n_bytes + 6 * 4 + 5


def test_the_record_has_every_size_with_its_memory_and_times():
    found = bench_targets([100, 1000], [10, 40], **SMALL, inaturalist=False)
    assert [(row["examples"], row["classes"]) for row in found["grid"]] == [
        (100, 10),
        (100, 40),
        (1000, 10),
        (1000, 40),
    ]
    assert [row["set_sizes"] for row in found["grid"] + found["uneven"]] == 4 * [[2, 2]] + 2 * [
        [1, 3]
    ]
    for row in found["grid"]:
        n, remembered = row["examples"], 8 * (8 + 2 * 8)
        # Two bytes per label, four per target, four per offset, and the cached positions.
        assert row["bytes"] == 2 * n * (2 + 4) + 4 * (n + 1) + 4 * 2 + remembered
        assert row["dense_bytes"] == n * row["classes"] * 5
        for times in (row["milliseconds"], row["dense_milliseconds"], row["selected_milliseconds"]):
            assert 0 < times["read"] < 1000
            assert 0 < times["write"] < 1000
    assert found["exponents"]["memory"]["classes"] == pytest.approx(0, abs=1e-6)
    assert found["inaturalist"] is None


def test_a_dense_form_that_would_be_large_is_not_built(monkeypatch):
    monkeypatch.setattr("benchmarks.targets.MOST_DENSE_BYTES", 100 * 10 * 5)
    small, large = bench_targets([100], [10, 11], **SMALL, inaturalist=False)["grid"]
    assert small["dense_milliseconds"] is not None
    assert large["dense_milliseconds"] is None
    assert large["dense_bytes"] == 100 * 11 * 5


@pytest.mark.parametrize(
    ("examples", "classes", "change", "message"),
    [
        ([7], [10], {}, "A batch of 8 is more than 7 examples"),
        ([100], [3], {}, "4 classes or more, not 3"),
        ([10**6], [10], {"batch": 500_000}, "500000 is more than 437513"),
        ([100], [10**5], {"size": 5000}, "not 8142"),
    ],
)
def test_sizes_that_cannot_be_measured_are_refused(examples, classes, change, message):
    assert message in refusal(lambda: bench_targets(examples, classes, **(SMALL | change)))


def test_the_script_prints_every_size_and_writes_the_record(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("benchmarks.targets.INATURALIST", (300, 60))
    out = tmp_path / "found.json"
    main(
        [
            "--examples",
            "100",
            "200",
            "--classes",
            "20",
            "--batch",
            "16",
            "--seconds",
            "0",
            "--out",
            str(out),
        ]
    )
    printed = capsys.readouterr().out
    for row in (
        r"100 × +20, sets of 5:",
        r"200 × +20, sets of 5:",
        r"100 × +20, sets of 1–9:",
        r"300 × +60, sets of 5:",
    ):
        assert re.search(rf"^ *{row} .* times the dense form$", printed, re.M), printed
    record = json.loads(out.read_text())
    assert record["inaturalist"]["classes"] == 60
    assert "resident_bytes" in record["inaturalist"]
    assert record["exponents"]["memory"]["examples"] == pytest.approx(1, abs=0.2)
    assert record["environment"]["commit"]
