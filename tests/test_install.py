"""Which torch `make demo` and `make test` use, and which versions are installed with it
(tools/install.py).
"""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import install

ROOT = Path(__file__).parents[1]

PIN = "2.13.0"
SAME, OTHER, OLD = (
    install.Torch(version, Path("/elsewhere")) for version in ("2.13.0+cpu", "2.9.1+cu130", "2.5.1")
)
PINNED = install.Choice()


def choose(asked="", *, dev=False, own=None, existing=None):
    return install.choose(
        asked, dev=dev, own=own, existing=existing, pin=PIN, lowest="2.13" if dev else "2.6"
    )


@pytest.mark.parametrize("dev", [False, True])
def test_without_another_torch_the_pinned_one_is_installed(dev):
    assert choose(dev=dev) == PINNED


def test_the_demo_uses_any_torch_that_is_new_enough_and_tests_only_the_pinned_version():
    assert choose(existing=SAME) == choose(existing=SAME, dev=True) == install.Choice(SAME)
    assert choose(existing=OTHER) == install.Choice(OTHER)
    assert choose(existing=OTHER, dev=True) == PINNED
    assert choose(existing=OLD) == PINNED


def test_a_pinned_torch_that_is_already_installed_is_kept():
    assert choose(existing=OTHER, own="2.13.0") == PINNED
    assert choose(existing=OTHER, own="2.12.0") == install.Choice(OTHER)


def test_the_requested_torch_is_used():
    assert choose("pinned", existing=SAME) == PINNED
    assert choose("dist/torch.whl", existing=SAME) == install.Choice(requirement="dist/torch.whl")
    assert choose("existing", existing=OTHER, own=PIN) == install.Choice(OTHER)


@pytest.mark.parametrize(
    ("existing", "dev", "message"),
    [(None, False, "has no torch"), (OLD, False, "2.6 or newer"), (OTHER, True, "2.13 or")],
)
def test_a_requested_existing_torch_that_cannot_be_used_is_refused(existing, dev, message):
    with pytest.raises(install.InstallError, match=message):
        choose("existing", existing=existing, dev=dev)


def test_the_oldest_torch_comes_from_pyproject():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert (install.lowest_torch(project, dev=False), install.lowest_torch(project, dev=True)) == (
        "2.6",
        "2.13",
    )


CONSTRAINTS = (
    "# torch==1\n#   triton==3.7.1\nsympy==1.14.0\nruff==0.17\nTorch==2.13.0\ntriton==3.7.1\n"
)


def test_the_pins_also_apply_to_another_build_of_the_pinned_torch():
    assert install.kept_constraints(CONSTRAINTS, None, ()) == CONSTRAINTS
    kept = install.kept_constraints(CONSTRAINTS, SAME, ["sympy>=1.13"])
    assert install.pins_of(kept) == {
        "sympy": "1.14.0",
        "ruff": "0.17",
        "triton": "3.7.1",
        "torch": "2.13.0+cpu",
    }


def test_another_torch_removes_the_pins_of_its_requirements():
    kept = install.kept_constraints(
        CONSTRAINTS, OTHER, ["sympy==1.13.1", "triton==3.5.1; platform_system == 'Linux'"]
    )
    assert install.pins_of(kept) == {"ruff": "0.17", "torch": "2.9.1+cu130"}


# ---- real folders --------------------------------------------------------------------------------


def put_torch(folder, version, code=""):
    """Create a package named torch, as pip installs it."""
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text(f"__version__ = {version!r}\n{code}")
    (folder / f"torch-{version}.dist-info").mkdir()
    metadata = (
        f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\nRequires-Dist: sympy==1.13.1\n"
    )
    (folder / f"torch-{version}.dist-info" / "METADATA").write_text(metadata)
    return install.Torch(version, folder.resolve())


def test_the_torch_of_a_python_is_found_outside_the_new_environment(tmp_path, monkeypatch):
    venv = tmp_path / ".venv"
    monkeypatch.setattr(sys, "path", [str(venv / "lib")])
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "other"))
    put_torch(venv / "lib", "2.13.0")
    assert install.existing_torch(venv) is None
    there = put_torch(tmp_path / "other", "2.9.1")
    monkeypatch.setattr(sys, "path", [str(venv / "lib"), str(tmp_path / "other")])
    assert install.existing_torch(venv) == there
    assert install.requirements_of(there) == ["sympy==1.13.1"]


def test_a_torch_that_cannot_be_imported_is_not_used(tmp_path, monkeypatch, capsys):
    put_torch(tmp_path / "other", "2.9.1", "import no_such_library")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "other")])
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "other"))
    assert install.existing_torch(tmp_path / ".venv") is None
    assert "cannot be imported and is not used" in capsys.readouterr().out


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """An environment without pip, which would take seconds to install."""
    venv = tmp_path_factory.mktemp("made") / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True)
    site = next(venv.glob("lib/python*/site-packages"))
    return venv, site


def imported_from(venv):
    code = "import torch; print(torch.__version__)"
    return subprocess.run(
        [str(venv / "bin" / "python"), "-c", code], capture_output=True, text=True, check=False
    ).stdout.strip()


def test_an_existing_torch_is_imported_through_a_link_unless_the_environment_has_one(
    environment, tmp_path
):
    venv, site = environment
    there = put_torch(tmp_path / "other", "2.9.1")
    assert install.provide_torch(venv, site, install.Choice(there), None, PIN) == there
    assert imported_from(venv) == "2.9.1"
    put_torch(site, "2.13.0")
    assert imported_from(venv) == "2.13.0"
    assert install.provide_torch(venv, site, PINNED, None, PIN) is None
    assert not (site / install.LINK).exists()


def test_an_environment_of_another_python_is_refused(environment, monkeypatch):
    venv, _ = environment
    monkeypatch.setattr(sys, "version_info", (3, 99, 0))
    with pytest.raises(
        install.InstallError, match=r"\.venv is made for Python 3\.\d+, not 3\.99: `make clean`"
    ):
        install.make_environment(venv)


def test_a_python_that_cannot_create_environments_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(
        install.InstallError,
        match="cannot create a virtual environment: on Debian or Ubuntu install python3-venv",
    ):
        install.make_environment(tmp_path / ".venv")


# ---- make ----------------------------------------------------------------------------------------


needs_make = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")


def make(*arguments, folder):
    """Run make in another environment, without the variables of a make that runs this test."""
    variables = ("MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "TORCH", "PYTHON")
    environment = {name: value for name, value in os.environ.items() if name not in variables}
    command = ["make", "-C", str(ROOT), f"VENV={folder}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@needs_make
@pytest.mark.parametrize("python", ["", "/bin/false", "/no/such/python"])
def test_make_reports_a_missing_python_in_one_sentence(python, tmp_path):
    result = make("demo", f"PYTHON={python}", folder=tmp_path)
    assert result.returncode == 2
    assert (
        "error: Python 3.11 or newer was not found; install it or give PYTHON=/path/to/python."
        in result.stderr
    )


@needs_make
def test_the_demo_needs_no_development_tools_and_another_torch_installs_again(tmp_path):
    assert "--dev" not in make("-n", "demo", folder=tmp_path).stdout
    assert "tools/install.py --dev" in make("-n", "lint", folder=tmp_path).stdout
    for name, text in {"installed": "", "installed-dev": "", "torch-asked-for": "pinned\n"}.items():
        (tmp_path / name).write_text(text)
    for target in ("demo", "lint"):
        assert "install.py" not in make("-n", target, folder=tmp_path).stdout
        assert "install.py" not in make("-n", target, "TORCH=pinned", folder=tmp_path).stdout
        assert "install.py" in make("-n", target, "TORCH=existing", folder=tmp_path).stdout
