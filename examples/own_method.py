"""Write a method of your own.

A method is a loss against the targets and a rule that refines the targets, written as if classes
were balanced. Once it is registered, it combines with every rebalancer and extra, and can be given
by name.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from torch.nn.functional import cross_entropy

from ltpll import METHODS, Method, PartialLabelClassifier
from ltpll.synthetic import load_digits_split, long_tail_subset, uniform_candidates
from ltpll.targets import restricted_softmax


# %% The idea
# PRODEN learns what a label probably is: its loss compares the prediction with the targets. But
# what is certain about a candidate set is what the label is *not*. This method adds a term that
# pushes down the probability of every class outside the set. The targets are refined as in PRODEN,
# by a softmax over the candidates; a weight of 0 is PRODEN itself.
@METHODS.register
class RulingOut(Method):
    name = "ruling-out"

    def __init__(self, weight=3.0):
        super().__init__()
        self.weight = weight

    def loss(self, outputs, targets, candidates):
        probabilities = torch.softmax(outputs.logits[0], dim=1)
        outside = -(torch.log(1 - probabilities + 1e-6) * ~candidates).sum(1).mean()
        return cross_entropy(outputs.logits[0], targets) + self.weight * outside

    def disambiguate(self, outputs, targets, candidates):
        return restricted_softmax(outputs.logits[0], candidates)


# %%
# The constructor stores its option under the same name, so that scikit-learn finds it: a grid
# search reaches it as `method__weight`.
print(PartialLabelClassifier(method=RulingOut(weight=1.0)).get_params()["method__weight"])


# %% Compare it with PRODEN
# One draw of data says little about a method, so there are five, each with its own split, sets and
# seed. Both methods are trained alone and with RECORDS, on the same draws; the weight was chosen on
# five other draws.
def draw(seed):
    pool_pictures, pool_labels, test_pictures, test_labels = load_digits_split(seed=seed)
    kept = long_tail_subset(pool_labels, imbalance=20, seed=seed)
    pictures, truth = pool_pictures[kept].reshape(len(kept), -1), pool_labels[kept]
    return (
        pictures,
        uniform_candidates(truth, 10, ambiguity=0.5, seed=seed),
        test_pictures.reshape(len(test_pictures), -1),
        test_labels,
    )


accuracy = pd.DataFrame()
for seed in range(5):
    pictures, candidates, test_pictures, test_labels = draw(seed)
    for rebalancer in ("none", "records"):
        for method in ("proden", "ruling-out"):
            classifier = PartialLabelClassifier(
                method, rebalancer, goal="balanced", steps=400, random_state=seed
            )
            score = classifier.fit(pictures, candidates).score(test_pictures, test_labels)
            accuracy.loc[seed, f"{method} + {rebalancer}"] = 100 * score
print(accuracy.agg(["mean", "std"]).T.round(1).to_string())

# %% Is the difference real?
# The draws are paired, so the differences between the methods vary less than the accuracies do.
gain = pd.DataFrame(
    {
        name: accuracy[f"ruling-out + {name}"] - accuracy[f"proden + {name}"]
        for name in ("none", "records")
    }
)
print(pd.DataFrame({"gain": gain.mean(), "std. error": gain.sem()}).round(1).to_string())

# %%
plt.rc("axes.spines", top=False, right=False)
figure, axes = plt.subplots(figsize=(7, 3), layout="constrained")
for row, (name, values) in enumerate(accuracy.items()):
    colour = "#0072B2" if name.startswith("ruling-out") else "#999999"
    axes.plot(values, np.full(len(values), row), "o", color=colour, alpha=0.7)
    axes.plot(values.mean(), row, "|", color="black", ms=20)
axes.set_yticks(range(4), accuracy.columns)
axes.set(
    xlabel="accuracy on balanced test data (%); each dot is a draw, each line a mean",
    ylim=(3.5, -0.5),
)
figure.savefig("own_method.png", dpi=100)
