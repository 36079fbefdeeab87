"""Every method and every extra trains a network on long-tailed, ambiguous digits."""

import numpy as np
import pytest

from ltpll.evaluation.during_training import Evaluate
from ltpll.extras import EXTRAS
from ltpll.methods import METHODS
from ltpll.models import build_model
from ltpll.rebalancers import REBALANCERS
from ltpll.synthetic import load_digits_split, long_tail_subset, uniform_candidates
from ltpll.training.trainer import PartialLabelTrainer
from ltpll.views import Jitter, Views
from ltpll_research.studies.digit_views import Cutout, Shift

SHORT = {
    **{"solar": {"ramp_epochs": 2}, "htc": {"ramp_epochs": 2}},
    "deacon": {"ramp_epochs": 2, "contrast_from": (2, 4)},
}
N_CLASSES = 5  # the digits 0 to 4, 80 images of 0 and 16 of 4


def accuracy_on_digits(method, rebalancer="none", extras=(), epochs=8, lr=0.1, width=8):
    digits = load_digits_split(seed=0, test_per_class=50)
    pool, test = digits.y_pool < N_CLASSES, digits.y_test < N_CLASSES
    subset = long_tail_subset(digits.y_pool[pool], 5, seed=0, largest=80)
    x, y = digits.x_pool[pool][subset], digits.y_pool[pool][subset]
    model = build_model("small-cnn", 0, n_classes=N_CLASSES, width=width)
    context = {
        "n_features": model.head.in_features,
        "n_classes": N_CLASSES,
        "class_frequencies": np.bincount(y),
    }
    trainer = PartialLabelTrainer(
        model,
        METHODS[method](**SHORT.get(method, {})),
        REBALANCERS.create(rebalancer, context),
        [EXTRAS[name]() for name in extras],
        views=Views(weak=(Shift(1),), strong=(Shift(1), Jitter(0.3), Cutout(3))),
        epochs=epochs,
        batch_size=32,
        lr=lr,
        device="cpu",
    )
    truth = Evaluate(digits.x_test[test], digits.y_test[test], y, every=epochs)
    trainer.fit(x, uniform_candidates(y, N_CLASSES, 0.3, seed=0), [truth])
    return trainer.history[-1]["test"]["balanced_accuracy"]


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_learns_digits(method):
    options = (
        {"epochs": 20, "lr": 0.4} if method == "lw" else {"epochs": 12}
    )  # the loss of LW is bounded, so its gradients are small
    assert accuracy_on_digits(method, width=16, **options) > 0.5  # chance is 0.2


@pytest.mark.parametrize(
    ("method", "extra"),
    [
        *((method, extra) for method in ("proden", "lw", "cavl") for extra in ("bcl", "paco")),
        *(("corr", extra) for extra in sorted(EXTRAS)),
    ],
)
def test_every_extra_learns_digits(method, extra):
    lr = 0.4 if method == "lw" else 0.1
    assert accuracy_on_digits(method, "records", (extra,), lr=lr) > 0.35  # chance is 0.2
