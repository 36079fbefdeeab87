"""Separate classes that look alike and are not equally frequent.

Annotators who cannot tell two classes apart give both, and if one of the two is rare, the sets hide
how rare it is. Training can then go wrong in two ways: it can forget the rare class, or invent it.
This example asks the sets what they know before it trains.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from ltpll import PartialLabelClassifier, estimate_prior
from ltpll.synthetic import (
    load_digits_split,
    long_tail_subset,
    superclass_candidates,
    uniform_candidates,
)

# %% Look-alikes on a long tail
# A three is often labelled "3 or 8", a four "4 or 9": the digits form five pairs, and the partner
# joins a set with a probability of 80 %, any other digit with 10 %. Zeros are about twenty times as
# frequent as nines.
pairs = ["02", "17", "02", "38", "49", "56", "56", "17", "38", "49"]


def draw(seed):
    pool_pictures, pool_labels, test_pictures, test_labels = load_digits_split(seed=seed)
    kept = long_tail_subset(pool_labels, imbalance=20, seed=seed)
    truth = pool_labels[kept]
    candidates = superclass_candidates(truth, pairs, ambiguity=0.1, factor=8, seed=seed)
    return (
        pool_pictures[kept].reshape(len(kept), -1),
        candidates,
        truth,
        test_pictures.reshape(len(test_labels), -1),
        test_labels,
    )


# %% What the sets say about class frequencies
# `estimate_prior` uses the sets alone. It tests how they arose, and its bounds allow for what it
# cannot know: here the wrong labels did not join independently, so that the shares within a pair
# are uncertain.
_, candidates, truth, *_ = draw(seed=0)
prior = estimate_prior(candidates)
print(prior)

# %%
# If the same pictures had sets in which all wrong labels are equally likely, the sets would say
# much more.
independent = estimate_prior(uniform_candidates(truth, 10, ambiguity=0.3, seed=0))
true_shares = np.bincount(truth, minlength=10) / len(truth)
for name, found in (("look-alikes", prior), ("independent", independent)):
    covered = np.sum((found.lower <= true_shares) & (true_shares <= found.upper))
    print(
        f"{name}: mean width of the bounds {np.mean(found.upper - found.lower):.1%}, {covered} "
        "of 10 true shares inside"
    )

# %% Three rebalancers
# "none" trusts the network, which prefers the frequent partner of a pair. "records" corrects the
# targets and the predictions for the bias that the network shows so far. The default, "auto", reads
# off the sets whether to correct the targets. Where they leave it open, it compares two ways on
# held-out rows and says what it chose; either way it corrects the predictions. All of them predict
# for `goal="balanced"`, as if digits were equally frequent. The figures are means over three draws.
results = []
for seed in range(3):
    pictures, candidates, labels, test_pictures, test_labels = draw(seed)
    for rebalancer in ("none", "records", "auto"):
        classifier = PartialLabelClassifier(
            rebalancer=rebalancer, goal="balanced", steps=400, random_state=seed
        )
        recovered = classifier.fit(pictures, candidates).transduce().labels == labels
        right = classifier.predict(test_pictures) == test_labels
        figures = {
            "labels recovered": recovered.mean(),
            "balanced accuracy": right.mean(),
            "rare (6 to 9)": right[test_labels >= 6].mean(),
        }
        results.append({"rebalancer": rebalancer, **figures})
print(classifier.choice_)
results = pd.DataFrame(results).groupby("rebalancer", sort=False)
scores = results.mean().T
print((100 * scores).round(1).to_string())

# %% Shares with bounds, and what training makes of the sets
# Dots are the three draws.
plt.rc("axes.spines", top=False, right=False)
figure, (left, right) = plt.subplots(
    1, 2, figsize=(9.5, 3.6), width_ratios=(4, 5), layout="constrained"
)
for shift, found, colour, name in (
    (-0.15, prior, "#D55E00", "look-alikes"),
    (0.15, independent, "#56B4E9", "independent"),
):
    bounds = 100 * np.array([found.estimate - found.lower, found.upper - found.estimate])
    left.errorbar(
        np.arange(10) + shift,
        100 * found.estimate,
        bounds,
        fmt="o",
        ms=4,
        color=colour,
        capsize=2,
        label=f"from sets, {name}",
    )
left.plot(range(10), 100 * true_shares, "k_", ms=16, label="true")
left.set(
    xlabel="digit",
    ylabel="share of the class (%)",
    xticks=range(10),
    ylim=(-1, None),
    title="Class frequencies",
)
left.legend()
(100 * scores).plot.bar(ax=right, color=["#999999", "#E69F00", "#0072B2"], rot=0, width=0.75)
for bars, (_, draws) in zip(right.containers, results, strict=True):
    for bar, name in zip(bars, scores.index, strict=True):
        right.plot(np.full(3, bar.get_x() + bar.get_width() / 2), 100 * draws[name], "k.", ms=4)
right.set(ylabel="correct (%)", ylim=(0, 100), title="Rebalancers")
right.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=3, frameon=False)
figure.savefig("look_alike_classes.png", dpi=100)
