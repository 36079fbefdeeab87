"""The picture in docs/architecture.md, as a test: imports point one way."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import ltpll

PACKAGE = Path(ltpll.__file__).parent

# From the bottom up: a module imports from lines above its own only.
LAYERS = [
    ["errors"],
    ["files", "formatting", "number_types", "processes", "rng", "trial_kernels"],
    ["triton_support", "validation"],
    ["candidates"],
    ["targets", "priors", "folds"],
    ["registry"],
    ["interfaces"],
    ["blocks", "backbones"],
    ["methods", "rebalancers", "extras", "models", "views"],
    ["parts", "inference"],
    ["training"],
    ["evaluation", "analysis", "data", "pruning"],
    ["comparison", "missing_share", "photos"],
    ["estimator", "runs"],
    ["cleaning", "experiments"],
    ["report"],
    ["cli"],
    ["__main__"],
]
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names}


def modules():
    return sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def home(path: Path) -> str:
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imported_homes(path: Path) -> set[str]:
    homes = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.ImportFrom) and node.module:
            names = [f"{node.module}.{alias.name}" if node.module == "ltpll" else node.module for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        homes |= {name.split(".")[1] for name in names if name.startswith("ltpll.") and name != "ltpll.__version__"}
    return homes


def test_every_module_has_a_place_in_the_order():
    assert {home(path) for path in modules()} == set(LEVEL)


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_point_one_way(path):
    mine = home(path)
    for other in imported_homes(path) - {mine}:
        assert LEVEL[other] < LEVEL[mine], f"{mine} imports {other}"


@pytest.mark.parametrize("package", ["methods", "rebalancers", "extras"])
def test_methods_rebalancers_and_extras_know_nothing_of_each_other_or_of_the_trainer(package):
    for path in (PACKAGE / package).glob("*.py"):
        assert not imported_homes(path) & ({"methods", "rebalancers", "extras", "trainer", "evaluate"} - {package})


def test_only_training_and_evaluation_know_the_processes_that_train_together():
    """Apart from the command line's file that joins the processes of torchrun."""
    knows = {str(path.relative_to(PACKAGE)) for path in modules() if re.search(r"import .*\bWorld\b", path.read_text())}
    assert {name for name in knows if not name.startswith(("training/", "evaluation/"))} == {"cli/training.py"}


def test_a_report_is_made_without_torch():
    code = "import sys, ltpll_research.report.study_page, ltpll_research.summary, ltpll.runs.run, ltpll.errors; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_module_opens_with_a_docstring_of_one_sentence_or_starts_with_one():
    for path in [*modules(), PACKAGE / "__init__.py"]:
        doc = ast.get_docstring(ast.parse(path.read_text()))
        assert doc, path
        assert doc.splitlines()[0].endswith("."), path


def test_everything_promised_at_the_top_of_the_package_is_there():
    for name in ltpll.__all__:
        assert getattr(ltpll, name) is not None
    with pytest.raises(AttributeError):
        ltpll.nothing_of_the_kind  # noqa: B018
