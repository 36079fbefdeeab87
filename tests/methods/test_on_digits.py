"""A short real run of every system and every extra: handwritten digits, long-tailed and ambiguous."""

import numpy as np
import pytest

from ltpll.data.synthetic import load_digits_split, long_tail_subset, uniform_candidates
from ltpll.evaluation.during_training import Evaluate
from ltpll.extras import EXTRAS
from ltpll.methods import METHODS
from ltpll.models import build_model
from ltpll.rebalancers import REBALANCERS
from ltpll.training.trainer import PartialLabelTrainer
from ltpll.views import Cutout, Jitter, Shift, Views

SHORT = {"solar": {"ramp_epochs": 5}, "htc": {"ramp_epochs": 5}}


def accuracy_on_digits(method, rebalancer="none", extras=(), epochs=20, lr=0.05):
    digits = load_digits_split(seed=0, test_per_class=50)
    subset = long_tail_subset(digits.y_pool, 10, seed=0, largest=120)
    x, y = digits.x_pool[subset], digits.y_pool[subset]
    model = build_model("small-cnn", 0, n_classes=10, width=16)
    context = {"n_features": model.head.in_features, "n_classes": 10, "class_frequencies": np.bincount(y)}
    trainer = PartialLabelTrainer(
        model,
        METHODS[method](**SHORT.get(method, {})),
        REBALANCERS.create(rebalancer, context),
        [EXTRAS[name]() for name in extras],
        views=Views(weak=(Shift(1),), strong=(Shift(1), Jitter(0.3), Cutout(3))),
        epochs=epochs,
        batch_size=64,
        lr=lr,
        device="cpu",
    )
    trainer.fit(x, uniform_candidates(y, 10, 0.3, seed=0), [Evaluate(digits.x_test, digits.y_test, y, every=epochs)])
    return trainer.history[-1]["test"]["balanced_accuracy"]


@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_learns_digits(method):
    options = {"epochs": 40, "lr": 0.2} if method == "lw" else {}  # its loss is bounded, and its gradients are small
    assert accuracy_on_digits(method, **options) > 0.38  # chance is 0.1


@pytest.mark.parametrize(
    ("method", "extra"),
    [
        *((method, extra) for method in ("proden", "lw", "cavl") for extra in ("bcl", "paco")),
        *(("corr", extra) for extra in sorted(EXTRAS)),
    ],
)
def test_every_extra_learns_digits(method, extra):
    assert accuracy_on_digits(method, "records", (extra,), epochs=12) > 0.3
