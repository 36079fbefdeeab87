"""The table of verdicts: every published number once, with what our runs say about it."""

from ltpll_research.paper.catalog import ITEMS, published
from ltpll_research.paper.compare import Verdict
from ltpll_research.paper.grid import Finished
from ltpll_research.paper.verdicts import explanations, judged_groups, verdicts_markdown
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
    of_solar = 2  # with its own protocol, alone and with logit adjustment, as its own paper reports
    assert sum(len(group.cells) for group in groups) == len(distinct) + of_solar
    assert verdicts_markdown(Finished([]), 1).startswith(
        f"Of {len(distinct) + of_solar} published numbers, 0 are reproduced; for 0 only the best "
        "epoch agrees; 0 are not reproduced; "
        f"{len(distinct) + of_solar} have not been run (n = 0).\n"
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
    assert {cell.verdict for group in explained for cell in group.cells.values()} <= {
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
