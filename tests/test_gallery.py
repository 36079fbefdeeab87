"""The gallery: every example runs and its claims hold, and its page and notebook show what the
script says.
"""

import ast
import base64
import json
import re
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from ltpll import METHODS
from tools import render_gallery
from tools.render_gallery import EXAMPLES, NOTEBOOKS, PAGES, SCRIPTS

SECONDS = 30  # of CPU time that an example may take; on an idle machine they take 1 to 6


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run an example in an empty folder and return its variables; what it registers and sets is
    undone.
    """
    import matplotlib as mpl
    import matplotlib.pyplot as plt

    mpl.use("Agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(METHODS, "_classes", dict(METHODS._classes))

    def run_example(name, draws=None, steps=None):
        """`draws` replaces the number of draws, over which the page has means, and `steps` how long
        classifiers are trained.
        """
        text = (SCRIPTS / f"{name}.py").read_text(encoding="utf-8")
        if draws is not None:
            text = re.sub(r"range\([35]\)", f"range({draws})", text)
            text = text.replace("np.full(3, ", f"np.full({draws}, ")
        if steps is not None:
            text, changed = re.subn(r"steps=\d+", f"steps={steps}", text)
            assert changed
        started = time.process_time()
        space = {"__name__": "__main__"}
        with mpl.rc_context():
            exec(compile(text, name, "exec"), space)
        assert time.process_time() - started < SECONDS
        assert Path(f"{name}.png").is_file()
        return space

    yield run_example
    plt.close("all")


def test_cleaned_labels_of_a_crowd_beat_weighted_votes_and_these_a_majority(run):
    space = run("crowd_labels", steps=250)
    for _, score in space["scores"].iterrows():
        assert score["cleaned"] > score["weighted votes"] > score["majority vote"]
    reliability = space["reliability"]
    assert np.abs(reliability["agrees"] - reliability["right"]).max() < 0.1
    assert (reliability.index[0], reliability.index[-1]) == ("J", "A")


def test_with_embeddings_confident_labels_are_right_and_balanced_predictions_help_rare_classes(run):
    space = run("embeddings", steps=250)
    assert np.mean(space["labels"] == space["truth"]) > 0.9
    right, confidence = space["right"], space["calibrated"].share
    assert right.mean() == pytest.approx(confidence.mean(), abs=0.05)
    assert right[confidence > 0.95].mean() > 0.95 > 0.85 > right[confidence <= 0.95].mean()
    rare = {goal: np.mean(recall[-3:]) for goal, recall in space["recall"].items()}
    assert rare["balanced"] > rare["accuracy"] + 0.1
    assert np.mean(space["recall"]["balanced"]) > np.mean(space["recall"]["accuracy"])


def test_for_look_alikes_bounds_are_wide_and_hold_and_the_default_is_best(run):
    space = run("look_alike_classes", draws=1)
    prior, independent, shares = space["prior"], space["independent"], space["true_shares"]
    assert prior.regime == "unclear"
    assert np.sum((prior.lower <= shares) & (shares <= prior.upper)) >= 9
    assert np.mean(prior.upper - prior.lower) > np.mean(independent.upper - independent.lower)
    scores = space["scores"]
    assert (
        scores.loc["balanced accuracy"].idxmax() == scores.loc["rare (6 to 9)"].idxmax() == "auto"
    )
    assert scores.loc["labels recovered", "auto"] > scores.loc["labels recovered", "records"]


def test_a_loop_of_ones_own_recovers_more_labels_with_records(run):
    curves = run("own_network_own_loop")["curves"]
    assert np.mean(curves["records"][-5:]) > np.mean(curves["none"][-5:])
    assert min(curve[-1] for curve in curves.values()) > 0.85


def test_a_method_of_ones_own_beats_proden_with_and_without_records(run):
    space = run("own_method", draws=2)
    assert (space["gain"].mean() > 0).all()
    assert isinstance(METHODS.create("ruling-out", weight=0.0), space["RulingOut"])


def test_the_pages_and_the_notebook_show_the_scripts(capsys):
    assert render_gallery.main(["--check"]) == 0, capsys.readouterr().out


def test_a_change_of_code_or_prose_makes_a_page_stale_and_other_output_does_not(
    tmp_path, monkeypatch
):
    scripts = [render_gallery.read_script(name) for name in EXAMPLES]
    for name in ("PAGES", "SCRIPTS"):
        monkeypatch.setattr(render_gallery, name, tmp_path)
    monkeypatch.setattr(render_gallery, "ROOT", tmp_path)
    missing = render_gallery.stale(scripts)
    assert {
        "index.md",
        "crowd_labels.ipynb",
        *(f"{name}.{suffix}" for name in EXAMPLES for suffix in ("md", "png")),
    } <= set(missing)
    for number in range(2):
        printed = tuple(f"{number}" for _ in scripts[0].cells)
        text = render_gallery.page(
            scripts[0], render_gallery.Results(printed, b"", number, "a machine")
        )
        assert text.count("```text") == len(printed)
        assert render_gallery.without_results(text) == render_gallery.page(scripts[0], None)
    changed = text.replace("majority", "minority", 1)
    assert render_gallery.without_results(changed) != render_gallery.page(scripts[0], None)


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_code_on_a_page_is_the_scripts(name):
    """Independent of how the generator divides scripts: Python's own parser sees the same
    program.
    """
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    code = "\n".join(re.findall(r"^```python\n(.*?)^```", page, re.S | re.M))
    script = ast.parse((SCRIPTS / f"{name}.py").read_text(encoding="utf-8"))
    script.body = script.body[1:]  # without the docstring
    assert ast.dump(ast.parse(code)) == ast.dump(script)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_page_has_output_a_small_figure_and_says_where_it_was_measured(name):
    page = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    assert "```text" in page
    assert re.search(r"torch \d.*commit [0-9a-f]{12}", page)
    assert f"python examples/{name}.py" in page
    assert (PAGES / f"{name}.png").stat().st_size <= 60_000
    with (
        Image.open(PAGES / f"{name}.png") as figure,
        Image.open(PAGES / "thumbnails" / f"{name}.png") as small,
    ):
        assert small.width < figure.width <= 1000
    for target in re.findall(r"\]\(([^)]+)\)", (PAGES / "index.md").read_text(encoding="utf-8")):
        assert (PAGES / target).is_file()


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_valid_and_has_the_code_of_the_script(name):
    """The rules of nbformat 4.5, as its JSON schema states them; `make interop` executes it."""
    notebook = json.loads((SCRIPTS / f"{name}.ipynb").read_text(encoding="utf-8"))
    assert set(notebook) == {"cells", "metadata", "nbformat", "nbformat_minor"}
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert {"name", "display_name"} <= set(notebook["metadata"]["kernelspec"])
    assert notebook["metadata"]["language_info"]["name"] == "python"
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", one) for one in ids)
    figures = []
    for cell in notebook["cells"]:
        common = {"id", "cell_type", "metadata", "source"}
        assert set(cell) == (
            common if cell["cell_type"] == "markdown" else common | {"execution_count", "outputs"}
        )
        assert cell["cell_type"] in ("markdown", "code")
        assert all(isinstance(line, str) for line in cell["source"])
        for output in cell.get("outputs", []):
            if output["output_type"] == "stream":
                assert set(output) == {"output_type", "name", "text"}
                assert output["name"] == "stdout"
            else:
                assert set(output) == {"output_type", "data", "metadata"}
                assert output["output_type"] == "display_data"
                figures.append(base64.b64decode(output["data"]["image/png"]))
    assert figures == [(PAGES / f"{name}.png").read_bytes()]
    code = "\n".join(
        "".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"
    )
    script = ast.parse((SCRIPTS / f"{name}.py").read_text(encoding="utf-8"))
    script.body = script.body[1:]
    assert ast.dump(ast.parse(code)) == ast.dump(script)
