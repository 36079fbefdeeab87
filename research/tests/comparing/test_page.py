"""The page of a comparison: one file, offline, without scripts, escaped; and its pictures."""

import base64
import io
import re
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image

from ltpll.report import templates
from ltpll_research.comparing import pictures
from ltpll_research.comparing.page import render_page, write_page
from ltpll_research.comparing.pictures import draw_problems
from ltpll_research.comparing.systems import compare_systems
from support.browser import Browser, is_owned, needs_driver, payloads

HOSTILE = "</p><img src=x onerror=document.title='owned'><b>\"'&amp; $\\frac$ \u202edne"


def run(rebalancer="none", seed=0, *, classes=("ant", "bee", "cat"), data="digits", epochs=4):
    rng = np.random.default_rng([seed, len(rebalancer)])
    row = {"balanced_accuracy": 0.5 + seed / 10, "per_class": rng.random(3).tolist()}
    row |= {"mean_prediction": [0.2, 0.3, 0.5], "many": 0.1, "medium": None, "few": 0.3}
    curves = {"epoch": list(range(1, epochs + 1)), "target_recovery": rng.random(epochs).tolist()}
    curves["accuracy"] = {"test": rng.random(epochs).tolist()}
    return {
        "key": f"{rebalancer}-{seed}",
        "config": {
            **{"study": data, "method": "proden", "rebalancer": rebalancer, "extras": []},
            "seed": seed,
        },
        "environment": {"hardware": "a machine", "commit": f"abc{seed}", "torch": "2.0"},
        "class_counts": [20, 90, 5],
        "classes": list(classes),
        "seconds": 1.5,
        "last": {"test": row, "target_recovery": 0.5, "prior": [0.6, 0.3, 0.1]},
        "best": {"test": {"test": {"balanced_accuracy": 0.9}, "epoch": 2}},
        "curves": curves,
    }


def study(**words):
    runs = [run(name, seed, **words) for seed in (0, 1) for name in ("none", "records")]
    return compare_systems(runs)


@pytest.fixture(scope="module")
def whole():
    return render_page(study(), title="A study", intro=["One sentence."])


def test_the_page_refers_to_nothing_outside_and_allows_no_script(whole):
    plain = re.sub(r"base64,[\w+/=]+", "", whole)
    assert not re.search(r"https?:|//[a-z0-9-]+\.[a-z]|@import|url\(|<script", plain)
    assert re.search(r"default-src 'none'; script-src;", plain)


def test_the_page_holds_the_table_the_facts_and_every_run(whole):
    text = re.sub(r"<[^>]+>", " ", whole)
    assert "One sentence." in text
    assert "55.0 ± 7.1" in text
    assert "abc0 / abc1" in text
    assert all(f"{name}-{seed}" in text for name in ("none", "records") for seed in (0, 1))


def test_hostile_text_is_shown_and_never_run():
    shown = render_page(study(classes=[HOSTILE] * 3, data=HOSTILE), title=HOSTILE, intro=[HOSTILE])
    assert "<img src=x" not in shown
    assert "\u202e" not in shown
    assert shown.count("<img") == 1


def test_a_picture_has_the_means_of_all_systems_over_epochs_and_classes(monkeypatch):
    drawn = []
    monkeypatch.setattr(
        pictures, "_draw_lines", lambda axis, what, lines, colours: drawn.append((what, lines))
    )
    problems = study()
    draw_problems(problems)
    found = dict(drawn)
    per_class = found["test accuracy by class (%)"]
    assert per_class[0][1] == ["bee (90)", "ant (20)", "cat (5)"]  # most examples first
    records = problems[0].systems[0].row.records
    expected = np.mean([one["last"]["test"]["per_class"] for one in records], 0)[[1, 0, 2]]
    assert [one.mean for one in per_class[0][2]] == pytest.approx(expected)
    curve = found["balanced test accuracy (%)"][1]
    records = problems[0].systems[1].row.records
    expected = np.mean([one["curves"]["accuracy"]["test"] for one in records], 0)
    assert [one.mean for one in curve[2]] == pytest.approx(expected)


def test_curves_show_only_the_epochs_that_all_seeds_have(monkeypatch):
    drawn = []
    monkeypatch.setattr(
        pictures, "_draw_lines", lambda axis, what, lines, colours: drawn.extend(lines)
    )
    draw_problems(compare_systems([run("none", 0, epochs=2), run("none", 1, epochs=4)]))
    assert drawn[0][1] == [1, 2]


def test_pictures_are_drawn_in_formats_of_matplotlib():
    with Image.open(io.BytesIO(draw_problems(study()))) as picture:
        assert picture.width > 600
        assert np.asarray(picture.convert("L")).std() > 10
    assert b"<svg" in draw_problems(study(), "svg")


def test_runs_without_curves_or_classes_have_a_page_too():
    bare = [run(seed=seed) for seed in (0, 1)]
    for one in bare:
        del one["curves"], one["class_counts"], one["classes"], one["environment"]
    shown = render_page(compare_systems(bare), title="t")
    picture = re.search(r"base64,([\w+/=]+)", shown)[1]
    assert Image.open(io.BytesIO(base64.b64decode(picture))).height < 500


def test_a_failure_leaves_the_old_page_untouched(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    path.write_text("old")

    def fail(*arguments):
        raise OSError("full")

    monkeypatch.setattr(templates, "write_atomically", fail)
    with pytest.raises(OSError, match="full"):
        write_page(path, study(), title="t")
    assert path.read_text() == "old"


def test_the_page_is_made_without_torch():
    code = "import sys, ltpll_research.comparing.page; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@needs_driver
def test_a_browser_runs_no_hostile_text(tmp_path):
    path, browser = tmp_path / "page.html", Browser(tmp_path)
    try:
        for first in (0, 3):
            three = payloads(0)[first : first + 3]
            joined = " ".join(three)
            write_page(path, study(classes=three, data=joined), title=joined, intro=three)
            browser.open(path.as_uri())
            assert not is_owned(browser.run("return document.documentElement.outerHTML")), three
            assert "Refused" not in " ".join(browser.complaints()), three
    finally:
        browser.close()
