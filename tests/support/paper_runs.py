"""Records of runs of the paper, with nothing but their settings and accuracies."""

from ltpll_research.benchmark import Experiment


def paper_record(seed, last, best, rebalancer="records", posthoc=None, **settings):
    """A run of CORR on CIFAR-100-LT, unless settings say otherwise; `posthoc` has the last and best
    accuracies of further rows.
    """
    usual = {
        "data": "cifar100",
        "imbalance": 100,
        "ambiguity": 0.05,
        "method": "corr",
        "rebalancer": rebalancer,
        "seed": seed,
    }
    figures = {"test": (last, best)} | (posthoc or {})
    return {
        "config": Experiment.from_mapping(usual | settings).config(),
        "last": {row: {"balanced_accuracy": a} for row, (a, _) in figures.items()},
        "best": {
            row: {"epoch": 1, row: {"balanced_accuracy": b}} for row, (_, b) in figures.items()
        },
    }
