"""The pinned versions agree with each other, with pyproject.toml, and with the published torch
(tools/constraints.py).
"""

import tomllib
from importlib import metadata
from pathlib import Path

import pytest
from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import constraints

ROOT = Path(__file__).parents[1]

TEXT = (ROOT / "constraints.txt").read_text(encoding="utf-8")
PINS = constraints.pins_of(TEXT)
PROJECT, RESEARCH = (
    tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for folder in (".", "research")
)
LINUX = [constraints.linux(python) for python in constraints.PYTHONS]
TRITON = 'triton==3.7.1; platform_system == "Linux" and python_version < "3.15"'


def package(name, version, *required):
    return {"metadata": {"name": name, "version": version, "requires_dist": list(required)}}


REPORT = {
    "install": [
        package("ltpll", "0.1.0", "torch>=2.6"),
        package(
            "torch",
            "2.13.0",
            "Zeta>=1",
            TRITON,
            'nvidia-x==1; platform_system == "Linux"',
            'optree>=0.13; extra == "optree"',
        ),
        package("triton", "3.7.1"),
        package("nvidia-x", "1"),
        package("cuda-bindings", "13.5"),
        package("Zeta", "1.2"),
        package("alpha_beta", "2.0+local"),
    ]
}

# ---- the pins of this repository -----------------------------------------------------------------


def test_the_pins_satisfy_the_published_torch():
    required = constraints.torch_requirements(TEXT)
    assert {"triton", "sympy", "networkx"} <= {Requirement(one).name for one in required}
    assert constraints.contradictions(PINS, required, LINUX) == []


def test_the_recorded_requirements_belong_to_the_pinned_torch():
    assert f"# What torch {PINS['torch']} as published requires" in TEXT


@pytest.mark.parametrize("name", sorted(PINS))
def test_the_pins_satisfy_every_installed_package(name):
    try:
        installed = metadata.distribution(name)
    except metadata.PackageNotFoundError:
        pytest.skip(f"{name} is not installed")
    if installed.version.partition("+")[0] != PINS[name]:
        pytest.skip(f"another version of {name} is installed")
    required = installed.requires or []
    assert constraints.contradictions(PINS, required, [default_environment() | {"extra": ""}]) == []


@pytest.mark.parametrize("group", ["dependencies", "dev", "onnx", "research"])
def test_every_requirement_of_the_package_has_a_pin_that_satisfies_it(group):
    groups = PROJECT["optional-dependencies"] | {
        "dependencies": PROJECT["dependencies"],
        "research": RESEARCH["dependencies"],
    }
    required = groups[group]
    names = {canonicalize_name(Requirement(one).name) for one in required} - {"ltpll"}
    assert names <= set(PINS)
    assert constraints.contradictions(PINS, required, LINUX) == []


# ---- the check itself ----------------------------------------------------------------------------


def test_a_triton_that_the_published_torch_does_not_allow_is_found():
    assert constraints.contradictions({"triton": "3.9.0"}, [TRITON], LINUX) == [
        f"{TRITON} is required, but 3.9.0 is pinned"
    ]
    assert constraints.contradictions({"triton": "3.7.1"}, [TRITON], LINUX) == []


def test_requirements_that_apply_nowhere_and_packages_without_a_pin_are_ignored():
    assert (
        constraints.contradictions(
            {"a": "1"},
            ['A>=2; platform_system == "Windows"', 'a>=2; extra == "more"', "b>=2"],
            LINUX,
        )
        == []
    )
    assert constraints.contradictions({"a": "1"}, ['A>=2; python_version >= "3.14"'], LINUX) != []
    assert (
        constraints.contradictions({"a": "1"}, ['A>=2; python_version >= "3.14"'], LINUX[:1]) == []
    )


def test_constraints_are_sorted_without_cuda_libraries_and_with_the_requirements_of_torch():
    text = constraints.constraints_text(REPORT)
    assert text.startswith("# The versions that the tests have passed with")
    assert constraints.torch_requirements(text) == ["Zeta>=1", TRITON]
    assert [line for line in text.splitlines() if "#" not in line] == [
        "alpha_beta==2.0",
        "torch==2.13.0",
        "triton==3.7.1",
        "Zeta==1.2",
    ]


def test_packages_that_a_newer_python_adds_are_named():
    assert constraints.unpinned(REPORT, {"torch": "2.13.0", "triton": "3.7.1", "zeta": "1.2"}) == [
        "alpha-beta"
    ]


def test_this_repository_names_no_package_index():
    files = [
        ROOT / "Makefile",
        ROOT / "constraints.txt",
        ROOT / "pyproject.toml",
        *(ROOT / "tools").glob("*.py"),
    ]
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert not [
            option
            for option in ("index_url", "find_links", "no_index")
            if option.replace("_", "-") in text
        ], path
