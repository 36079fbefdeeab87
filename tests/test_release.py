"""A release is refused if versions disagree or the wheel is not what users should get
(tools/release.py).
"""

import zipfile

import pytest

import release
from ltpll import __version__
from support.documents import ROOT

CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n## [1.2.0] - 2026-11-18\n\n## [1.1.0] - 2026-01-01\n"
RESEARCH = '[project]\nversion = "1.2.0"\ndependencies = ["ltpll==1.2.0"]\n'


def wheel_of(folder, package="ltpll", **sizes):
    path = folder / f"{package}-1.2.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        for name in release.NEEDED[package]:
            file.writestr(name, b"")
        for name, size in sizes.items():
            file.writestr(name.replace("__", "/"), bytes(size))
    return path


def test_the_newest_dated_section_and_the_citation_must_name_the_version():
    assert release.disagreements("1.2.0", CHANGELOG, "version: 1.2.0\n", RESEARCH) == []
    (research,) = release.disagreements(
        "1.2.0", CHANGELOG, "version: 1.2.0\n", RESEARCH.replace("1.2.0", "1.1.0", 1)
    )
    assert research == "research/pyproject.toml names another version"
    (old,) = release.disagreements("1.2.0", CHANGELOG, "version: 1.1.0\n", RESEARCH)
    assert old == "CITATION.cff names 1.1.0"
    assert "is 1.2.0" in release.disagreements("1.3.0", CHANGELOG, "version: 1.3.0\n", RESEARCH)[0]
    assert (
        "missing"
        in release.disagreements("1.3.0", "## [Unreleased]\n", "version: 1.3.0\n", RESEARCH)[0]
    )


def test_this_version_can_be_released():
    files = [
        (ROOT / name).read_text(encoding="utf-8")
        for name in ("CHANGELOG.md", "CITATION.cff", "research/pyproject.toml")
    ]
    assert release.disagreements(__version__, *files) == []


def test_a_wheel_has_what_the_package_reads_and_nothing_else(tmp_path):
    assert release.wheel_problems(wheel_of(tmp_path)) == []
    assert release.wheel_problems(wheel_of(tmp_path, "ltpll_research")) == []
    assert release.wheel_problems(wheel_of(tmp_path, tests__test_x=1)) == [
        "tests/test_x does not belong in it"
    ]
    assert (
        "more than 1,000,000" in release.wheel_problems(wheel_of(tmp_path, ltpll__big=2_000_000))[0]
    )


@pytest.mark.parametrize(
    ("package", "name"),
    [(package, name) for package, names in release.NEEDED.items() for name in names],
)
def test_the_needed_files_exist_in_the_package(package, name):
    assert (ROOT / ("research/src" if package == "ltpll_research" else "src") / name).is_file()
