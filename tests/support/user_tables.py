"""Small tables and pictures of one's own, written as a user would have them."""

import csv

import numpy as np
from PIL import Image

COLOURS = {"ash": (200, 30, 30), "birch": (30, 200, 30), "cedar": (30, 30, 200)}


def write_csv(path, header, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(header)
        writer.writerows(rows)
    return path


def rows_of(path):
    """The rows of a .csv file, as dictionaries of texts."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write_trees(folder, n=48, seed=0, wrong=()):
    """Pictures of one colour a class in `folder`/pictures, and `folder`/labels.csv; rows in `wrong`
    lack their true label.
    """
    rng = np.random.default_rng(seed)
    names = list(COLOURS)
    pictures = folder / "pictures"
    pictures.mkdir(parents=True)
    rows, true = [], []
    for i in range(n):
        name = names[min(i % 4, 2) if i % 8 else 0]
        noise = rng.integers(-25, 26, (10, 12, 3))
        Image.fromarray(np.clip(np.asarray(COLOURS[name]) + noise, 0, 255).astype(np.uint8)).save(
            pictures / f"{i:03d}.png"
        )
        others = [other for other in names if other != name and rng.random() < 0.4]
        sets = (
            (others or [next(other for other in names if other != name)])
            if i in wrong
            else [name, *others]
        )
        rows.append([f"{i:03d}.png", "|".join(sets), name, "test" if i % 6 == 5 else "train"])
        true.append(name)
    write_csv(folder / "labels.csv", ["path", "candidates", "label", "split"], rows)
    return true


def feature_rows(n=60, seed=0):
    """Two clear classes and a rare third one: ids, sets, two features."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(n):
        c = 2 if i % 10 == 9 else i % 2
        x = rng.normal(0, 0.3, 2) + [(0, 0), (4, 0), (0, 4)][c]
        sets = {"abc"[c], *(other for other in "abc" if rng.random() < 0.3)}
        rows.append([f"row{i}", "|".join(sorted(sets)), f"{x[0]:.4f}", f"{x[1]:.4f}"])
    return rows
