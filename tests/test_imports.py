"""The pictures in docs/architecture.md, as a test: imports point one way, and never from ltpll to
ltpll_research."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ltpll
import ltpll_research

PACKAGE = Path(ltpll.__file__).parent
RESEARCH = Path(ltpll_research.__file__).parent

# From the bottom up: a module imports from lines above its own only.
LAYERS = [
    ["errors"],
    ["settings", "part_info"],
    ["files", "formatting", "number_types", "processes", "rng", "kernels"],
    ["validation"],
    ["candidates"],
    ["targets", "priors", "folds"],
    ["registry"],
    ["interfaces"],
    ["blocks", "backbones"],
    ["methods", "rebalancers", "extras", "models", "views"],
    ["parts", "network"],
    ["training"],
    ["evaluation", "analysis", "tables", "synthetic", "testing"],
    ["before_training", "pictures"],
    ["text"],
    ["columns", "convert", "estimator", "runs"],
    ["committee"],
    ["cleaning"],
    ["report"],
    ["cleaner"],
    ["cli"],
    ["__main__"],
]
LAYERS_OF_RESEARCH = [
    ["schema"],
    [
        "authors_draw",
        "image_sets",
        "likely_labels",
        "plotting",
        "recording",
        "records",
        "set_origins",
        "summary",
    ],
    ["benchmark", "comparing"],
    ["engine_speed", "paper", "probe", "studies"],
    ["cli"],
    ["__main__"],
]


def levels(layers: list[list[str]]) -> dict[str, int]:
    return {name: level for level, names in enumerate(layers) for name in names}


LEVEL = {"ltpll": levels(LAYERS), "ltpll_research": levels(LAYERS_OF_RESEARCH)}


def modules(package: Path = PACKAGE):
    return sorted(path for path in package.rglob("*.py") if path != package / "__init__.py")


def package_of(path: Path) -> Path:
    return PACKAGE if path.is_relative_to(PACKAGE) else RESEARCH


def home(path: Path) -> str:
    return path.relative_to(package_of(path)).with_suffix("").parts[0]


def imported(path: Path) -> set[str]:
    """The modules that a file imports, by their full names."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module:
            whole = node.module in ("ltpll", "ltpll_research")
            names |= {
                f"{node.module}.{alias.name}" if whole else node.module for alias in node.names
            }
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return names


def imported_homes(path: Path) -> set[str]:
    own = f"{package_of(path).name}."
    return {
        name.split(".")[1]
        for name in imported(path)
        if name.startswith(own) and name != "ltpll.__version__"
    }


@pytest.mark.parametrize("package", [PACKAGE, RESEARCH], ids=lambda package: package.name)
def test_every_module_has_a_place_in_the_order(package):
    assert {home(path) for path in modules(package)} == set(LEVEL[package.name])


@pytest.mark.parametrize(
    "path",
    [*modules(), *modules(RESEARCH)],
    ids=lambda path: str(path.relative_to(package_of(path).parent)),
)
def test_imports_point_one_way(path):
    mine, level = home(path), LEVEL[package_of(path).name]
    for other in imported_homes(path) - {mine}:
        assert level[other] < level[mine], f"{mine} imports {other}"


def test_the_library_never_imports_research():
    for path in [*modules(), PACKAGE / "__init__.py"]:
        assert not [name for name in imported(path) if name.split(".")[0] == "ltpll_research"], path


@pytest.mark.parametrize("package", ["methods", "rebalancers", "extras"])
def test_methods_rebalancers_and_extras_know_nothing_of_each_other_or_of_the_trainer(package):
    for path in (PACKAGE / package).glob("*.py"):
        assert not imported_homes(path) & (
            {"methods", "rebalancers", "extras", "trainer", "evaluate"} - {package}
        )


def test_only_training_and_evaluation_know_the_processes_that_train_together():
    """Apart from the command line's file that joins the processes of torchrun."""
    knows = {
        str(path.relative_to(PACKAGE))
        for path in modules()
        if re.search(r"import .*\bWorld\b", path.read_text())
    }
    assert {name for name in knows if not name.startswith(("training/", "evaluation/"))} == {
        "cli/progress.py"
    }


def test_a_report_is_made_without_torch():
    modules = "ltpll_research.comparing.page, ltpll_research.summary, ltpll.runs.run, ltpll.errors"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_module_opens_with_a_docstring_of_one_sentence_or_starts_with_one():
    for path in [*modules(), *modules(RESEARCH), PACKAGE / "__init__.py", RESEARCH / "__init__.py"]:
        doc = ast.get_docstring(ast.parse(path.read_text()))
        assert doc, path
        assert doc.split("\n\n")[0].endswith("."), path


def test_everything_promised_at_the_top_of_the_package_is_there():
    for name in ltpll.__all__:
        assert getattr(ltpll, name) is not None
    with pytest.raises(AttributeError):
        ltpll.nothing_of_the_kind  # noqa: B018
