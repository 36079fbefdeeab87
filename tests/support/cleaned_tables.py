"""Made-up results of a run on a table, whose numbers tests count again."""

from __future__ import annotations

import numpy as np

from ltpll.cleaning.results import CleanedLabels, CleanedTable, StoredVotes
from ltpll.evaluation.metrics import calibration_figures


def cleaned_table(
    n=200, n_classes=6, *, known=0.7, judged_by="folds", annotators=True, judgement=True, seed=0
) -> CleanedTable:
    """A table of random sets and votes; the last class is never a label, the first not judged."""
    rng = np.random.default_rng(seed)
    sets = [
        sorted(
            rng.choice(n_classes, size=rng.integers(1, min(4, n_classes)), replace=False).tolist()
        )
        for _ in range(n)
    ]
    sets = [one if one != [n_classes - 1] else [0] for one in sets]
    label = np.asarray([one[0] for one in sets])
    second = np.asarray([one[-1] for one in sets])
    outside = np.asarray(
        [
            next(c for c in range(n_classes) if c not in one) if len(one) < n_classes else -1
            for one in sets
        ]
    )
    suspicion = np.where(
        rng.random(n) < 0.2, rng.uniform(0.6, 1, n), rng.uniform(0, 0.2, n)
    ).astype(np.float32)
    share = rng.uniform(0.3, 1, n).astype(np.float32)
    true = np.asarray(
        [
            int(rng.choice(one)) if rng.random() < 0.9 else int(rng.integers(n_classes))
            for one in sets
        ],
        dtype=object,
    )
    true[rng.random(n) >= known] = None
    judges = np.full(n, judged_by, dtype=object)
    own, confidence = judges == "own", (1 - suspicion) * share
    cleaned = CleanedLabels(
        label=label,
        confidence=confidence,
        runner_up=second,
        margin=(2 * share - 1).astype(np.float32),
        inside=label,
        outside=outside,
        suspicion=np.where(own, np.float32(0), suspicion),
        judged=~own & (label != 0),
        judged_by=judges,
    )
    votes = sorted(
        {
            (i, f"worker{w}", int(rng.integers(n_classes)))
            for i in range(n)
            for w in range(4)
            if rng.random() < 0.6
        }
    )
    record = {
        "classes": [f"class {c}" for c in range(n_classes)],
        "class_prior": [1 / n_classes] * n_classes,
        "config": {"method": "proden", "extras": [], "rebalancer": "auto"},
        "rows": {"all": n, "trained": n, "held_out": 0},
        "last": {},
        "skipped": [],
        "source": {"table": "made-up.csv"},
        "environment": {},
    }
    if judgement:
        is_known = np.asarray([one is not None for one in true])
        right, several = label == true, np.asarray([len(one) > 1 for one in sets])
        record["judgement"] = {
            "temperature": 1.0,
            "missing": 0.15,
            "covering": 0.8,
            "chance": 0.3,
            "recovered": [int((label == c).sum()) // 2 for c in range(n_classes)],
            "not_judged": [[0, int((label == 0).sum()), int((label == 0).sum()) // 2]],
            "ambiguous": {"rows": int(several.sum()), "expected": 0.5, "guess": 0.1},
            "calibration": {
                name: calibration_figures(confidence[rows], right[rows].astype(bool))
                for name, rows in (("all", is_known), ("ambiguous", is_known & several))
                if rows.any()
            },
        }
    return CleanedTable(
        record=record,
        ids=np.asarray([f"e{i}" for i in range(n)], dtype=object),
        paths=None,
        splits=None,
        offsets=np.concatenate([[0], np.cumsum([len(one) for one in sets])]),
        candidates=np.concatenate(sets),
        true=true,
        labels=cleaned,
        votes=StoredVotes(*(np.asarray(column) for column in zip(*votes, strict=True)))
        if annotators
        else None,
        pictures={},
    )
