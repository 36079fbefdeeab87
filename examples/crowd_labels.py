"""Clean the labels of a crowd whose members disagree.

Several people label each picture, some of them carelessly, and a majority vote inherits their
mistakes. Here the votes become candidate sets, weighted by how reliable each annotator seems to be,
and a classifier that looks at the pictures settles the disputes. True labels are used only to
measure the result.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.datasets import load_digits

from ltpll import PartialLabelClassifier, candidates_from_votes, initial_targets
from ltpll.synthetic import crowd_votes, long_tail_subset

# %% Votes
# The pictures are scikit-learn's handwritten digits, made long-tailed: there are about twenty times
# as many zeros as nines. Each is labelled by three of ten annotators. Most are right more or less
# often, one guesses, and one often takes a digit for the next. This is one of five draws of votes
# that were tried; cleaned labels beat weighted votes in all of them, also on the rare digits.
pictures, truth = load_digits(return_X_y=True)
kept = long_tail_subset(truth, imbalance=20, seed=0)
pictures, truth = pictures[kept], truth[kept]

guesses = np.full((10, 10), 0.1)
takes_for_next = 0.5 * np.eye(10) + 0.5 * np.roll(np.eye(10), 1, axis=1)
people = {"A": 0.95, "B": 0.9, "C": 0.85, "D": 0.8, "E": 0.75, "F": 0.7, "G": 0.6, "H": 0.5}
people |= {"I": takes_for_next, "J": guesses}
row, who, label = crowd_votes(truth, 10, annotators=list(people.values()), per_row=3, seed=2)
votes = pd.DataFrame({"picture": row, "annotator": np.array(list(people))[who], "label": label})
print(votes.head(6).to_string(index=False))

# %% From votes to candidate sets
# Every label that somebody gave a picture is a candidate. The weights say how well each candidate
# explains the votes, given the reliability of the annotators, which is estimated from how they
# agree with each other (Dawid and Skene, 1979).
candidates = candidates_from_votes(
    votes["picture"], votes["annotator"], votes["label"], n_classes=10
)
disputed = candidates.sizes.numpy() > 1
print(f"{len(candidates)} pictures, {disputed.mean():.0%} of them disputed")

# %% Train, and read off clean labels
# The classifier sees the pictures too. `transduce` returns a label for each of them, its
# confidence, and the runner-up.
classifier = PartialLabelClassifier(steps=500).fit(pictures, candidates)
cleaned, confidence, *_ = classifier.transduce()
print(classifier.choice_)

# %% Compare with votes alone
# A majority vote, whose ties are broken by chance, counts all annotators alike. The weights count
# reliable ones more, and are what the classifier starts from.
counts = pd.crosstab(votes["picture"], votes["label"]).to_numpy()
majority = (counts + np.random.default_rng(0).random(counts.shape) / 2).argmax(1)
weighted = initial_targets(candidates).labels().numpy()
labels = {"majority vote": majority, "weighted votes": weighted, "cleaned": cleaned}
groups = {"all": slice(None), "disputed": disputed, "rare (6 to 9)": truth >= 6}
scores = pd.DataFrame(
    {
        name: {group: np.mean((found == truth)[rows]) for group, rows in groups.items()}
        for name, found in labels.items()
    }
)
print((100 * scores).round(1).to_string())

# %% Whom to trust
# How often a person agrees with the cleaned labels estimates how often that person is right,
# without any true label.
votes["agrees"] = votes["label"] == cleaned[votes["picture"]]
votes["right"] = votes["label"] == truth[votes["picture"]]
reliability = votes.groupby("annotator")[["agrees", "right"]].mean().sort_values("agrees")
print(reliability.round(2).to_string())

# %% Both results in one figure
plt.rc("axes.spines", top=False, right=False)
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
(100 * scores).plot.bar(ax=left, color=["#999999", "#56B4E9", "#0072B2"], rot=0, width=0.75)
left.set(ylabel="correct labels (%)", ylim=(0, 100), title="Labels")
left.legend(loc="upper center", bbox_to_anchor=(0.5, -0.1), ncols=3, frameon=False)
right.plot(
    100 * reliability["agrees"],
    reliability.index,
    "o",
    color="#0072B2",
    label="agree with the cleaned labels",
)
right.plot(
    100 * reliability["right"],
    reliability.index,
    "o",
    mfc="none",
    ms=11,
    color="#D55E00",
    label="are right",
)
right.set(xlabel="votes that … (%)", xlim=(0, 100), title="Annotators")
right.legend(loc="upper left")
figure.savefig("crowd_labels.png", dpi=100)
