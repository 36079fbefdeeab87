"""Separate classes that look alike and are not equally frequent.

Annotators who cannot tell two classes apart give both. If one of the two is rare, the sets hide how rare, and training can go wrong
in two ways: it can forget the rare class, or invent it. This example asks the sets what they know before it chooses a rebalancer.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from ltpll import PartialLabelClassifier, estimate_prior
from ltpll.data.synthetic import load_digits_split, long_tail_subset, superclass_candidates, uniform_candidates

# %% Look-alikes on a long tail
# A three is often labelled "3 or 8", a four "4 or 9": the digits form five pairs, and the partner joins a set with a probability of
# 80 %, any other digit with 10 %. Zeros are twenty times as frequent as nines.
pairs = {0: "02", 1: "17", 2: "02", 3: "38", 4: "49", 5: "56", 6: "56", 7: "17", 8: "38", 9: "49"}
pool_pictures, pool_labels, test_pictures, test_labels = load_digits_split(seed=0)
kept = long_tail_subset(pool_labels, imbalance=20, seed=0)
pictures, truth = pool_pictures[kept].reshape(len(kept), -1), pool_labels[kept]
candidates = superclass_candidates(truth, list(pairs.values()), ambiguity=0.1, factor=8, seed=0)

# %% What the sets say about class frequencies
# `estimate_prior` uses the sets alone. It tests how they arose, and its bounds allow for what it cannot know: here the wrong labels
# did not join independently, so that the shares within a pair are uncertain.
prior = estimate_prior(candidates)
print(prior)

# %%
# If the same pictures had sets in which all wrong labels are equally likely, the sets would say much more.
independent = estimate_prior(uniform_candidates(truth, 10, ambiguity=0.3, seed=0))
true_shares = np.bincount(truth, minlength=10) / len(truth)
for name, found in (("look-alikes", prior), ("independent", independent)):
    covered = np.sum((found.lower <= true_shares) & (true_shares <= found.upper))
    print(f"{name}: mean width of the bounds {np.mean(found.upper - found.lower):.1%}, {covered} of 10 true shares inside")

# %% Three rebalancers
# "none" trusts the network, which prefers the frequent partner of a pair. "records" corrects the targets for the bias that the
# network shows so far; in a long training on sets as ambiguous as these it drifts, and goes on correcting until right labels are
# lost. The default, "auto", reads off the sets whether to intervene; where they leave it open, as here, it compares two ways on
# held-out rows and says what it chose. All three predict for `goal="balanced"`, as if digits were equally frequent.
test = test_pictures.reshape(len(test_pictures), -1)
rows = {}
for name in ("none", "records", "auto"):
    classifier = PartialLabelClassifier(rebalancer=name, goal="balanced", steps=600).fit(pictures, candidates)
    correct = classifier.predict(test) == test_labels
    recovered = np.mean(classifier.transduce().labels == truth)
    rows[name] = {"labels recovered": recovered, "balanced accuracy": correct.mean(), "rare (6 to 9)": correct[test_labels >= 6].mean()}
print(classifier.choice_)
scores = pd.DataFrame(rows)
print((100 * scores).round(1).to_string())

# %% Shares with bounds, and what training makes of the sets
plt.rc("axes.spines", top=False, right=False)
figure, (left, right) = plt.subplots(1, 2, figsize=(9.5, 3.6), layout="constrained")
for shift, found, colour, name in ((-0.15, prior, "#D55E00", "look-alikes"), (0.15, independent, "#56B4E9", "independent")):
    bounds = 100 * np.array([found.estimate - found.lower, found.upper - found.estimate])
    left.errorbar(np.arange(10) + shift, 100 * found.estimate, bounds, fmt="o", ms=4, color=colour, capsize=2, label=f"from sets, {name}")
left.plot(range(10), 100 * true_shares, "k_", ms=16, label="true")
left.set(xlabel="digit", ylabel="share of the class (%)", xticks=range(10), ylim=(0, None), title="Class frequencies")
left.legend()
(100 * scores).plot.bar(ax=right, color=["#999999", "#E69F00", "#0072B2"], rot=0, width=0.75)
right.set(ylabel="correct (%)", ylim=(0, 100), title="Rebalancers", xticklabels=[name.replace(" ", "\n", 1) for name in scores.index])
right.legend(loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=3, frameon=False)
figure.savefig("look_alike_classes.png", dpi=100)
