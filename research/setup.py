"""The version is that of ltpll (../setup.py); everything else is in pyproject.toml."""

import re
import runpy
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).resolve().parent
STATED = HERE / "PKG-INFO"  # of a source distribution, which has no folder of ltpll beside it

if STATED.is_file():
    version = re.search(r"(?m)^Version: (.+)$", STATED.read_text(encoding="utf-8"))[1]
else:
    version = runpy.run_path(str(HERE.parent / "setup.py"))["version_of"](HERE, HERE.parent)
setup(version=version)
