"""Predictions of SpeciesNet: classes with scores, against plain Python."""

import json

import numpy as np
import pytest

from ltpll.convert.open import read_label_table
from ltpll.convert.speciesnet import class_name, likeliest
from ltpll.tables.reading import Reading
from support.labelled_json import sets, written
from support.refusals import refusal

FOX, OTHER_FOX, WOLF = (
    "1;mammalia;carnivora;canidae;vulpes;vulpes;red fox",
    "2;;;;;;red fox",
    "3;mammalia;carnivora;canidae;canis;lupus;",
)


def prediction(path, **scores):
    return {
        "filepath": path,
        "classifications": {"classes": list(scores), "scores": list(scores.values())},
    }


@pytest.mark.parametrize(
    ("text", "name"),
    {
        FOX: "red fox",
        WOLF: "canis lupus",
        "4;mammalia;carnivora;canidae;;;": "canidae",
        "5;;;;;;": "5",
        "elk": "elk",
        "a;b": "a;b",
    }.items(),
)
def test_names_are_common_names_or_the_last_taxonomic_level(text, name):
    assert class_name(text) == name


def test_scores_of_speciesnet_weight_the_candidates(tmp_path):
    content = {
        "predictions": [
            prediction("a.jpg", **{FOX: 0.5, WOLF: 0.1, OTHER_FOX: 0.2}),
            {"filepath": "b.jpg", "failures": ["CLASSIFIER"]},
            prediction("sub\\c.jpg", **{WOLF: 0.25, FOX: 0.0}),
        ]
    }
    path = written(tmp_path, content)
    found = read_label_table(path)
    assert found.ids.tolist() == found.paths.tolist() == ["a.jpg", "sub/c.jpg"]
    assert sets(found) == [["canis lupus", "red fox"], ["canis lupus"]]
    first, second = 0.1**0.25, 0.7**0.25  # scores count less than they say
    np.testing.assert_allclose(
        found.candidates.weights,
        [first / (first + second), second / (first + second), 1],
        rtol=1e-6,
    )
    assert read_label_table(path, Reading(scores="none")).candidates.weights is None
    assert found.notes == (
        "Read as a file of SpeciesNet.",
        "1 of 3 pictures is skipped because it has no classification.",
    )
    unlabelled = read_label_table(path, needs_candidates=False)
    assert unlabelled.ids.tolist() == ["a.jpg", "b.jpg", "sub/c.jpg"]
    assert unlabelled.candidates is None
    lines = written(tmp_path, "\n".join(map(json.dumps, content["predictions"])), "lines.ndjson")
    assert sets(read_label_table(lines)) == sets(found)


@pytest.mark.parametrize("limit", [{}, {"top_k": 1}, {"top_k": 3}, {"mass": 0.6}, {"mass": 1.0}])
def test_the_largest_scores_are_kept_as_in_a_plain_loop(limit):
    for scores in np.random.default_rng(0).dirichlet(np.ones(6), 40) * 0.9:
        named = dict(zip("abcdef", scores.tolist(), strict=True))
        kept, reached = {}, 0.0
        for name in sorted(named, key=named.get, reverse=True):
            if len(kept) == limit.get("top_k", 8) or reached >= limit.get("mass", 2):
                break
            kept[name] = named[name]
            reached += named[name]
        assert likeliest(named, **limit) == kept


def test_files_take_a_limit_of_either_kind(tmp_path):
    path = written(
        tmp_path,
        {"predictions": [prediction("a.jpg", x=0.6, y=0.3, z=0.1), prediction("b.jpg", z=0.9)]},
    )
    assert sets(read_label_table(path, Reading(top_k=2))) == [["x", "y"], ["z"]]
    assert sets(read_label_table(path, Reading(mass=0.5))) == [["x"], ["z"]]
    assert "give one of the two" in refusal(
        lambda: read_label_table(path, Reading(top_k=2, mass=0.5))
    )


REFUSED = {
    "no classes": ({"predictions": [{"filepath": "a.jpg"}]}, "has classes with scores"),
    "a score above one": (
        {"predictions": [prediction("a.jpg", x=1.5)]},
        "scores lie between 0 and 1",
    ),
    "a negative score": (
        {"predictions": [prediction("a.jpg", x=-0.5)]},
        "scores lie between 0 and 1",
    ),
    "a score that is not a number": (
        {"predictions": [prediction("a.jpg", x=float("nan"))]},
        "score nan",
    ),
    "fewer scores": (
        {"predictions": [{"filepath": "a", "classifications": {"classes": ["x"], "scores": []}}]},
        "not as many scores as classes",
    ),
    "a picture twice": (
        {"predictions": [prediction("a.jpg", x=1), prediction("a.jpg", y=1)]},
        "The picture 'a.jpg' of",
    ),
    "no path": (
        {"predictions": [prediction("a.jpg", x=1), {"prediction": "x"}]},
        "lacks 'filepath' (text)",
    ),
    "another tool": (
        {"shapes": [], "imagePath": "a.jpg"},
        "export of Label Studio (JSON, not JSON-MIN), predictions of SpeciesNet",
    ),
    "an empty list": ([], "none of the JSON files that are understood"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_used_is_refused_in_one_sentence(tmp_path, case):
    content, fragment = REFUSED[case]
    assert fragment in refusal(lambda: read_label_table(written(tmp_path, content)))
