"""The table of verdicts: every published number once, with what our runs say about it."""

import pytest

from docs_blocks.verdicts import (
    Verdict,
    compare_other_lengths,
    explanations,
    judge,
    judged_groups,
    verdict_of,
    verdicts_markdown,
)
from ltpll_research.paper.catalog import ITEMS, published
from ltpll_research.paper.grid import Finished
from ltpll_research.summary import Figure
from support.documents import ROOT
from support.paper_runs import paper_record


def lines(*records, seeds=1):
    return [
        line.strip("| ").split(" | ")
        for line in verdicts_markdown(Finished(records), seeds).splitlines()
        if line.startswith("|")
    ][2:]


def test_every_published_number_is_judged_once():
    distinct = set()
    for table in published().values():
        for row in table["rows"]:
            system = (row["method"], row["rebalancer"], row["posthoc"], *row["extras"])
            for column in table["columns"]:
                setting = {"figure": "balanced_accuracy", "superclass": False} | column
                distinct.add((system, *(f"{name}={setting[name]}" for name in sorted(setting))))
    groups = judged_groups(Finished([]), 1)
    # SoLar, alone and with logit adjustment, and DEACON with all its heads, with its first and with
    # its second one: as their own papers report with their own protocols.
    of_others = 2 + 3
    assert sum(len(group.cells) for group in groups) == len(distinct) + of_others
    assert verdicts_markdown(Finished([]), 1).startswith(
        f"Of {len(distinct) + of_others} published numbers, 0 are reproduced; for 0 only the best "
        "epoch agrees; 0 are not reproduced; "
        f"{len(distinct) + of_others} have not been run (n = 0).\n"
    )


def test_a_system_has_a_line_per_image_set_with_its_verdict_and_explanation():
    plain = {"data": "cifar10", "ambiguity": 0.5}
    found = lines(
        paper_record(0, 0.40, 0.42),
        paper_record(0, 0.63, 0.69, **plain),
        paper_record(0, 0.70, 0.71, **plain | {"ambiguity": 0.3}),
        paper_record(0, 0.30, 0.36, method="proden"),
        paper_record(0, 0.20, 0.21, data="voc2007", epochs=36),
    )
    drift = explanations()["cifar10", "corr + records"]
    assert found[:4] == [
        [
            "corr + records",
            "CIFAR-10-LT",
            "ρ=100",
            "2 of 6",
            "**not reproduced** q=0.3 (−7.66, best −6.66), q=0.5 (−9.90, best −3.90)",
            drift,
        ],
        ["corr + records", "CIFAR-100-LT", "ρ=100 q=0.05", "1 of 6", "**reproduced** (−0.59)", "–"],
        [
            "proden + records",
            "CIFAR-100-LT",
            "ρ=100 q=0.05",
            "1 of 6",
            "**not reproduced** (−7.23, best −1.23)",
            "–",
        ],
        [
            "corr + records",
            "PASCAL VOC",
            "–",
            "0 of 1",
            "not run in full (36 epochs: −36.46)",
            explanations()["voc2007", "corr + records"],
        ],
    ]


def test_the_best_epoch_alone_has_a_verdict_of_its_own():
    assert (
        lines(paper_record(0, 0.38, 0.41))[0][4]
        == "**only the best epoch agrees** (−2.59, best +0.41)"
    )


def test_a_number_that_was_run_in_full_is_judged_by_that_run_alone():
    both = lines(paper_record(0, 0.40, 0.41), paper_record(0, 0.30, 0.31, epochs=200))
    assert both[0][4] == "**reproduced** (−0.59)"


def test_the_summary_says_how_many_figures_are_of_an_earlier_edition():
    old, new = (
        paper_record(0, 0.40, 0.41, edition=1),
        paper_record(0, 0.30, 0.31, "none", {"oracle-la-posthoc": (0.3, 0.3)}),
    )
    only_old, both = (
        verdicts_markdown(Finished(records), 1).splitlines()[0] for records in ([old], [old, new])
    )
    assert only_old.endswith("(n = 1). All our figures are of an earlier edition.")
    assert both.endswith("(n = 1). 1 of our 3 figures are of an earlier edition.")


def test_systems_without_runs_are_named_or_counted_by_method():
    (missing,) = [
        line
        for line in lines(paper_record(0, 0.40, 0.41))
        if line[1] == "CIFAR-100-LT" and line[4] == "not run"
    ]
    names = missing[0].split("; ")
    assert "lw (10 systems)" in names
    assert "solar, prior estimation, then 800 epochs" in names
    assert "corr + epoch-records" in names
    assert "corr + records" not in names
    assert (
        missing[3]
        == f"0 of {6 * (len({one.label for name in published() for one in ITEMS[name].lines}) - 1)}"
    )


def test_only_numbers_with_which_the_best_epoch_agrees_are_explained_by_it():
    groups = judged_groups(Finished.under(ROOT / "results" / "images"), 1)
    explained = [
        group
        for group in groups
        if group.has_runs
        and group.line()[-1] == "the paper's numbers look like the best test epoch"
    ]
    assert explained
    assert {verdict_of(cell) for group in explained for cell in group.cells.values()} <= {
        Verdict.ONLY_BEST,
        Verdict.NOT_RUN,
    }


def test_explanations_are_for_systems_and_images_of_the_paper():
    known = {
        (cell.setting["data"], line.label)
        for name in published()
        for line in ITEMS[name].lines
        for cell in line.cells
    }
    assert set(explanations()) <= known


def test_runs_of_another_length_are_compared_by_themselves():
    finished = Finished(
        [
            paper_record(0, 0.39, 0.41),
            paper_record(0, 0.30, 0.31, "none", {"oracle-la-posthoc": (0.32, 0.33)}, epochs=200),
        ]
    )
    by_length = compare_other_lengths(ITEMS["main"], finished, 1)
    assert list(by_length) == [200, 800]
    (shorter,) = [
        cell for line in by_length[200] for cell in line if cell.best and cell.best.mean < 32
    ]
    assert shorter.last.mean == pytest.approx(30.0)
    assert shorter.departures == ("200 epochs",)
    assert all(
        cell.last is None for line in by_length[800] for cell in line
    )  # of the paper's length, so not of another one


@pytest.mark.parametrize(
    ("last", "best", "expected"),
    [
        ([49.09], [55.0], Verdict.REPRODUCED),  # one point below 50.09
        ([51.09], [51.09], Verdict.REPRODUCED),
        ([49.08], [49.09], Verdict.ONLY_BEST),
        ([49.08], [49.08], Verdict.NOT_REPRODUCED),
        ([49.08], [51.10], Verdict.NOT_REPRODUCED),
        (
            [46.0, 50.0],
            [46.0, 50.0],
            Verdict.NOT_REPRODUCED,
        ),  # a deviation of 2.8, but of two seeds
        (
            [45.5, 48.0, 50.5],
            [45.0, 45.0, 45.0],
            Verdict.REPRODUCED,
        ),  # 2.09 below, a deviation of 2.5
        (
            [47.0, 48.0, 49.0],
            [47.0, 48.0, 49.0],
            Verdict.NOT_REPRODUCED,
        ),  # 2.09 below, a deviation of 1
        ([45.0, 45.0, 45.0], [45.5, 48.0, 50.5], Verdict.ONLY_BEST),
        ([], [], Verdict.NOT_RUN),
    ],
)
def test_a_number_is_reproduced_within_one_point_or_within_the_deviation_of_three_seeds(
    last, best, expected
):
    assert judge(Figure.of(last), Figure.of(best), 50.09) is expected
