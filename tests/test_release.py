"""A release is refused if versions disagree or the wheel is not what users should get
(tools/release.py).
"""

import re
import runpy
import subprocess
import zipfile

import pytest

import release
from support.documents import ROOT

CHANGELOG = "# Changelog\n\n## [Unreleased]\n\n## [1.2.0] - 2026-11-18\n\n## [1.1.0] - 2026-01-01\n"
SETUP = runpy.run_path(str(ROOT / "setup.py"))


def wheel_of(folder, package="ltpll", **sizes):
    path = folder / f"{package}-1.2.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as file:
        for name in release.NEEDED[package]:
            file.writestr(name, b"")
        for name, size in sizes.items():
            file.writestr(name.replace("__", "/"), bytes(size))
    return path


def git(folder, *words):
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(folder), *who, *words], check=True, capture_output=True)


def test_the_version_is_that_of_the_tag_and_commits_after_it_are_development_versions(tmp_path):
    def version():
        return SETUP["version_of"](tmp_path, tmp_path)

    assert version() == SETUP["FALLBACK"]  # without git
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "first")
    assert version() == SETUP["FALLBACK"]  # without a tag
    git(tmp_path, "tag", "v0.3.0")
    assert version() == "0.3.0"
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "second")
    assert re.fullmatch(r"0\.3\.1\.dev1\+g[0-9a-f]+", version())
    inner = tmp_path / "inner"  # an unpacked archive inside another repository
    inner.mkdir()
    assert SETUP["version_of"](inner, inner) == SETUP["FALLBACK"]
    (inner / "PKG-INFO").write_text("Metadata-Version: 2.4\nName: ltpll\nVersion: 0.2.5\n")
    assert SETUP["version_of"](inner, inner) == "0.2.5"


def test_the_newest_dated_section_and_the_citation_must_name_the_version():
    assert release.disagreements("1.2.0", CHANGELOG, "version: 1.2.0\n") == []
    (old,) = release.disagreements("1.2.0", CHANGELOG, "version: 1.1.0\n")
    assert old == "CITATION.cff names 1.1.0"
    assert "is 1.2.0" in release.disagreements("1.3.0", CHANGELOG, "version: 1.3.0\n")[0]
    (missing,) = release.disagreements("1.3.0", "## [Unreleased]\n", "version: 1.3.0\n")
    assert "missing" in missing


def test_the_citation_names_the_newest_dated_section():
    changelog, citation = (
        (ROOT / name).read_text(encoding="utf-8") for name in ("CHANGELOG.md", "CITATION.cff")
    )
    assert release.disagreements(release.newest_section(changelog), changelog, citation) == []


def test_a_wheel_has_what_the_package_reads_and_nothing_else(tmp_path):
    assert release.wheel_problems(wheel_of(tmp_path)) == []
    assert release.wheel_problems(wheel_of(tmp_path, "ltpll_research")) == []
    assert release.wheel_problems(wheel_of(tmp_path, tests__test_x=1)) == [
        "tests/test_x does not belong in it"
    ]
    assert (
        "more than 700,000" in release.wheel_problems(wheel_of(tmp_path, ltpll__big=2_000_000))[0]
    )


@pytest.mark.parametrize(
    ("package", "name"),
    [(package, name) for package, names in release.NEEDED.items() for name in names],
)
def test_the_needed_files_exist_in_the_package(package, name):
    assert (ROOT / ("research/src" if package == "ltpll_research" else "src") / name).is_file()
