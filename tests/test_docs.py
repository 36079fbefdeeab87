"""README and docs: code runs, commands exist, generated parts are current, links lead somewhere,
and the site loads only its own files.
"""

import importlib
import os
import re
import shlex
import subprocess
import sys
import tomllib
import zipfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from mkdocs.commands.build import build
from mkdocs.config import load_config
from typer.main import get_command

import ltpll
from docs_blocks import beyond
from ltpll import PartialLabelClassifier
from ltpll.cleaning.settings import TrainJob
from ltpll.cli import app
from ltpll.settings import settings_of
from ltpll.synthetic import example_tables, four_squares, uniform_candidates
from ltpll.testing import check_part
from ltpll_research.cli import app as research_app
from ltpll_research.schema import check_record
from release import newest_section
from support.commands import ltpll_here
from support.documents import PAGES, ROOT, blocks_of, commands_of, execute, name_of
from tools import draw_figures, render_docs, render_tutorial

NAMES = np.asarray(["ant", "bee", "cat", "fox"])
# Pages with Python code; tests/test_method_pages.py builds the parts of the others.
PYTHON_PAGES = [
    page
    for page in PAGES
    if page.parent.name not in ("methods", "gallery")
    and any(one.language == "python" for one in blocks_of(page))
]
# Pages that users read; those in other folders are generated.
MANUAL = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
NO_COMMANDS = {"ltpll image set 1"}  # the name of a format
SETTINGS = settings_of(TrainJob)
SECTIONS = {name.partition(".")[0] for name in SETTINGS}
SMALL_COMMITTEE = {
    "import LabelCleaner": "import Committee, LabelCleaner",
    "LabelCleaner(folds=5)": "LabelCleaner(Committee(steps=120), folds=2)",
}
QUICKER = {
    "README.md": SMALL_COMMITTEE,
    "docs/committee.md": {
        "import LabelCleaner": "import Committee, LabelCleaner",
        "LabelCleaner(folds=5)": "LabelCleaner(Committee(steps=20), folds=2)",
        "max_iter=20": "max_iter=4",
        "folds=2, steps=50": "folds=2, steps=20",
    },
    "docs/get-started.md": {
        "PartialLabelClassifier(), folds=5": "PartialLabelClassifier(steps=150), folds=2"
    },
    "docs/goals.md": {'goal="balanced")': 'goal="balanced", steps=20)'},
    "docs/photos.md": {"PartialLabelClassifier()": "PartialLabelClassifier(steps=20)"},
    "docs/python.md": {
        **SMALL_COMMITTEE,
        "PartialLabelClassifier().fit": "PartialLabelClassifier(steps=50).fit",
        "CORR(), rebalancer": "CORR(), steps=20, rebalancer",
    },
}

# ---- code ----------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with the tables that the pages read."""
    x, y = four_squares([40, 60, 80, 120], seed=0)
    sets = uniform_candidates(y, 4, 0.3, seed=0)
    columns = {
        "candidates": ["|".join(NAMES[sets.row(i)]) for i in range(len(y))],
        "width": x[:, 0],
        "height": x[:, 1],
    }
    pd.DataFrame(columns).to_csv(tmp_path / "animals.csv", index=False)
    pd.DataFrame(example_tables().train)[::3].to_csv(tmp_path / "digits.csv", index=False)
    monkeypatch.chdir(tmp_path)
    return y


def claims_of_python(space, y):
    assert np.mean(space["predicted"] == space["y"]) > 0.9  # of the trainer's example
    assert np.mean(space["cleaned"].numpy() == space["y"]) > 0.9
    assert np.mean(space["targets"].labels().numpy() == space["y"]) > 0.9  # of the own loop
    assert space["search"].best_params_["rebalancer__momentum"] in (0.9, 0.99)


def claims_of_readme(space, y):
    assert np.mean(space["table"]["label"] == NAMES[y]) > 0.9
    assert np.mean(space["predicted"] == NAMES[y]) > 0.9


def claims_of_get_started(space, y):
    assert (space["table"]["cleaned"] == space["table"]["label"]).mean() > 0.9


def claims_of_add_a_method(space, y):
    space["test_targets_are_a_tempered_softmax_over_the_candidates"]()
    for name in space["CHECKS"]:
        space["test_tempered_proden_keeps_the_promises_of_a_method"](name)
    for part in ("PurifiedPRODEN", "MeanPrediction", "LogitPenalty"):
        check_part(space[part])
    parts = {
        "method": space["TemperedPRODEN"](0.5),
        "rebalancer": space["MeanPrediction"](),
        "extras": [space["LogitPenalty"]()],
    }
    x, y = four_squares([60] * 4, seed=0)
    fitted = PartialLabelClassifier(**parts, epochs=10, device="cpu").fit(
        x, uniform_candidates(y, 4, 0.3, seed=0)
    )
    assert fitted.score(x, y) > 0.9
    assert fitted.class_prior_.sum() == pytest.approx(1, abs=1e-4)
    purified = PartialLabelClassifier(method=space["PurifiedPRODEN"](), epochs=10, device="cpu")
    purified.fit(x, uniform_candidates(y, 4, 0.3, seed=0))
    assert purified.score(x, y) > 0.9
    assert not purified._predictor.method.remaining.all()


CLAIMS = {
    "README.md": claims_of_readme,
    "docs/python.md": claims_of_python,
    "docs/add-a-method.md": claims_of_add_a_method,
    "docs/get-started.md": claims_of_get_started,
    "docs/crowds.md": lambda space, y: np.testing.assert_allclose(
        np.asarray(space["candidates"].weights).sum(), 2, rtol=0.01
    ),
    "docs/goals.md": lambda space, y: np.testing.assert_array_equal(
        space["rare_too"].shape, space["usual"].shape
    ),
    "docs/review.md": lambda space, y: np.testing.assert_array_equal(space["answered"].row(1), [1]),
}


@pytest.mark.parametrize("page", PYTHON_PAGES, ids=name_of)
def test_the_python_code_of_a_page_runs_and_does_what_the_page_says(page, folder):
    space = execute(page, QUICKER.get(name_of(page), {}))
    CLAIMS.get(name_of(page), lambda space, y: None)(space, folder)


def test_the_package_of_add_a_method_is_built_found_and_passes_its_tests(tmp_path):
    """As the page says, but installed by unpacking its wheel."""
    page = ROOT / "docs" / "add-a-method.md"
    python = [one.code for one in blocks_of(page) if one.language == "python"]
    (project,) = [one.code for one in blocks_of(page) if one.language == "toml"]
    (method,) = [one for one in python if "class TemperedPRODEN" in one]
    tests = [one for one in python if "def test_" in one]
    package, installed = tmp_path / "my-package", tmp_path / "installed"
    files = {"pyproject.toml": project, "src/my_package/__init__.py": ""}
    files |= {"src/my_package/tempered.py": method}
    imports = "from my_package.tempered import TemperedPRODEN"
    files |= {"tests/test_tempered.py": "\n".join([imports, *tests])}
    for name, text in files.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text)
    build = "from setuptools.build_meta import build_wheel; build_wheel('..')"
    path = os.pathsep.join([str(installed), *filter(None, sys.path)])
    environment = {**os.environ, "PYTHONPATH": path}

    def run(*words):
        done = subprocess.run(
            [sys.executable, *words],
            cwd=package,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("-c", build)
    (wheel,) = tmp_path.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(installed)
    found = "import pytest; from ltpll import METHODS; print(METHODS['tempered-proden'].__module__)"
    tested = "raise SystemExit(pytest.main(['-q', '-p', 'no:cacheprovider', 'tests']))"
    said = run("-c", f"{found}; {tested}")
    assert said.splitlines()[0] == "my_package.tempered"
    assert "passed" in said


def test_code_that_is_not_executed_says_why():
    skipped = {block.reason for page in PAGES for block in blocks_of(page) if block.reason}
    assert len(skipped) <= 3, skipped
    assert all(len(reason.split()) > 3 for reason in skipped)


def command_named(words):
    """The click command that the words start with, and the rest of the words."""
    program, *words = words
    command = get_command(app if program == "ltpll" else research_app)
    while words and words[0] in getattr(command, "commands", ()):
        command = command.commands[words.pop(0)]
    return command, words


def check_command(line):
    """Refuse a command line in a page that names no command, option or setting of today."""
    command, words = command_named(shlex.split(line))
    assert not command.hidden, f"it has moved: {line!r}"
    if words[-1:] == ["--help"]:
        return
    assert not hasattr(command, "commands"), f"there is no command in {line!r}"
    known = {
        option
        for parameter in command.params
        for option in (*parameter.opts, *parameter.secondary_opts)
    }
    for word, following in pairwise([*words, ""]):
        if word.startswith("--"):
            option = word.partition("=")[0]
            assert option in known, f"{option} is not an option of {command.name!r}: {line!r}"
        if word == "--set" and line.startswith("ltpll ") and following:
            assert following.partition("=")[0] in SETTINGS, line


@pytest.mark.parametrize("page", [page for page in PAGES if commands_of(page)], ids=name_of)
def test_commands_options_and_settings_in_a_page_exist(page):
    for line in commands_of(page):
        check_command(line)


@pytest.mark.parametrize("page", MANUAL, ids=name_of)
def test_commands_options_and_settings_in_the_text_of_a_page_exist(page):
    text = page.read_text(encoding="utf-8")
    prose = re.sub(r"<!-- begin ([\w-]+) -->.*?<!-- end \1 -->|```.*?```", "", text, flags=re.S)
    for code in re.findall(r"`([^`]+)`", prose):
        words = code.split()
        if words[0] in ("ltpll", "ltpll-research") and len(words) > 1 and code not in NO_COMMANDS:
            check_command(" ".join(words))
        if re.fullmatch(rf"(?:{'|'.join(SECTIONS)})\.[a-z_]+", words[0]):
            assert words[0] in SETTINGS, code
    for name in re.findall(r"--set\s+['\"]?([a-z_]+\.[a-z_.]+)=", text):
        assert name in SETTINGS, name


def test_a_command_that_does_not_exist_is_noticed():
    for line in (
        "ltpll train labels.csv --lr 0.1",
        "ltpll train labels.csv --set training.rate=0.1",
        "ltpll data shuffle labels.csv",
    ):
        with pytest.raises(AssertionError):
            check_command(line)


def test_the_commands_of_the_tutorial_work_one_after_the_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    lines = render_tutorial.commands((ROOT / "docs" / "get-started.md").read_text(encoding="utf-8"))
    assert [line.split()[:2] for line in lines if line.startswith("ltpll")][-1] == [
        "ltpll",
        "predict",
    ]
    for line in lines:
        words = shlex.split(line)
        if words[0] == "ltpll":
            # As in the page, but quicker.
            more = (
                ["--epochs", "3", "--folds", "2", "--rebalancer", "mean-target"]
                if words[1] == "train"
                else []
            )
            ltpll_here(*words[1:], *more)
        else:
            assert (words[0], Path(words[-1]).exists()) == ("head", True)
    cleaned = pd.read_csv("cleaned.csv")
    assert list(cleaned["id"]) == list(pd.read_csv("digits.csv")["id"])
    for column in re.findall(
        r"(?m)^\| (`.+?`) \|", (ROOT / "docs" / "get-started.md").read_text(encoding="utf-8")
    ):
        assert set(re.findall(r"`(\w+)`", column)) <= set(cleaned)
    assert len(pd.read_csv("predictions.csv")) == len(pd.read_csv("new-digits.csv"))


def test_outputs_replace_those_of_the_last_time():
    page = "a\n\n<!-- run: 2 lines -->\n```\necho\n```\n\nb\n"
    once = render_tutorial.with_outputs(page, lambda command: f"{command} 1\n2  \n3\n")
    assert once == "a\n\n<!-- run: 2 lines -->\n```\necho\n```\n\n```text\necho 1\n2\n…\n```\n\nb\n"
    assert render_tutorial.with_outputs(once, lambda command: "other") == once.replace(
        "echo 1\n2\n…", "other"
    )
    assert render_tutorial.with_outputs(once, lambda command: "") == page


# ---- the site ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built as `make site` does: a warning, such as a dead link or anchor, fails."""
    target = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(target), strict=True))
    return target


def test_the_site_builds_without_a_warning_and_loads_nothing_from_other_hosts(site):
    pages = list(site.rglob("*.html"))
    assert len(pages) > 40
    loaded = r"""<(?:script|img|iframe|source|video|audio|embed|object)\b[^>]*?(?:src|data)=["']?((?:https?:)?//[^"'\s>]+)"""
    linked = r"""<link\b(?=[^>]*rel=["']?(?:stylesheet|preconnect|preload|icon|dns-prefetch))[^>]*href=["']?((?:https?:)?//[^"'\s>]+)"""
    for page in pages:
        text = page.read_text(encoding="utf-8")
        assert not re.findall(loaded, text) + re.findall(linked, text), page.name
    for style in site.rglob("*.css"):
        assert not re.findall(
            r"(?:url\(|@import )[\"']?(?:https?:)?//", style.read_text(encoding="utf-8")
        ), style.name


def test_every_public_name_is_in_the_api_reference(site):
    shown = " ".join(
        page.read_text(encoding="utf-8") for page in (site / "reference").glob("*.html")
    )
    documented = set(re.findall(r'<h2 id="([\w.]+)"', shown))
    registries = {
        "METHODS",
        "REBALANCERS",
        "EXTRAS",
        "MODELS",
    }  # objects of the documented class Registry
    for name in set(ltpll.__all__) - registries:
        homes = [one for one in documented if one.rpartition(".")[2] == name]
        homes.sort(key=len, reverse=True)  # a function before the module that is named after it
        assert homes, f"{name} is missing"
        home, _, last = homes[0].rpartition(".")
        assert getattr(importlib.import_module(home), last) is getattr(ltpll, name)


def test_every_page_can_be_reached_from_the_navigation():
    listed = re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert sorted(listed) == sorted(
        page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")
    )


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")), ids=name_of)
def test_links_of_a_page_outside_the_site_lead_somewhere(page):
    prose = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    for target, anchor in re.findall(r"\]\((?!https?://)([^)#]*)(?:#([^)]+))?\)", prose):
        found = page.parent / target if target else page
        assert found.exists(), f"{page.name} links to {target}"
        headings = re.findall(r"(?m)^#+ (.+)$", found.read_text(encoding="utf-8")) if anchor else []
        assert not anchor or anchor in [
            re.sub(r"[^\w\s-]", "", heading.lower()).replace(" ", "-") for heading in headings
        ], anchor


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 130


# ---- versions and generated parts ----------------------------------------------------------------


def test_the_citation_names_the_newest_release_and_the_paper_in_the_readme():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    released = newest_section((ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    assert (cited["version"], cited["license"]) == (released, project["license"])
    (paper,) = cited["references"]
    bibtex = re.search(
        r"```bibtex\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S
    )[1]
    assert f"{{{paper['title']}}}" in bibtex
    assert (
        " and ".join(f"{one['family-names']}, {one['given-names']}" for one in paper["authors"])
        in bibtex
    )
    assert f"{{{paper['year']}}}" in bibtex


def test_generated_blocks_are_what_the_registries_and_the_records_say(capsys):
    assert render_docs.main(["--check"]) == 0, capsys.readouterr().out


def test_figures_are_drawn_from_the_records_as_they_are(capsys):
    assert draw_figures.main(["--check"]) == 0, capsys.readouterr().out


def test_the_runs_behind_the_page_on_the_anchor_are_whole_and_name_the_commit_of_their_code():
    for record in beyond.beyond_runs():
        check_record(record)
        assert re.fullmatch(r"[0-9a-f]{7,}(\+changes)?", record["commit"])
        assert record["curves"]["epoch"][-1] == record["config"]["epochs"]


def with_a_longer_curve(record):
    """The record with twice as many points in its curves, nonsense between the old ones."""
    short = record["curves"]
    epochs = sorted({*short["epoch"], *(epoch - 5 for epoch in short["epoch"])})
    old = dict(zip(short["epoch"], short["target_recovery"], strict=True))
    return {
        **record,
        "curves": {"epoch": epochs, "target_recovery": [old.get(epoch, 0.0) for epoch in epochs]},
    }


def test_the_drift_is_shown_at_the_epochs_that_all_runs_have(monkeypatch):
    table, data = beyond.beyond_drift_table(), draw_figures.drift_data()
    first, *others = beyond.beyond_runs(beyond.CELL)
    for changed in (
        [with_a_longer_curve(first), *others],
        [with_a_longer_curve(record) for record in (first, *others)],
    ):
        monkeypatch.setattr(beyond, "beyond_runs", lambda cell=None, found=changed: found)
        assert beyond.beyond_drift_table() == table
        assert draw_figures.drift_data() == data


def test_the_page_on_the_anchor_shows_the_mean_of_the_final_rule():
    final = {
        "bounds": "point",
        "warmup": 0.5,
    }  # and RECORDS in all epochs, which was the default then
    runs = [run for run in beyond.beyond_runs() if run["config"]["options"].get("anchor") == final]
    mean = np.mean([100 * run["last"]["mean-target"]["balanced_accuracy"] for run in runs])
    row = next(
        line
        for line in (ROOT / "docs" / "beyond.md").read_text(encoding="utf-8").splitlines()
        if line.startswith("| **anchor + balanced-head")
    )
    assert f"n = {len(runs)}" in row
    assert f" {mean:.1f} ± " in row
