"""Security advisories of the pinned versions (tools/audit.py)."""

import audit


def entry(version, *advisories):
    return {
        "info": {"version": version},
        "vulnerabilities": [{"id": name, "withdrawn": None} for name in advisories],
    }


def test_every_pin_is_found():
    assert audit.pinned("# a==1\nb-c==2.0+cpu\nd_e==3 ; python_version > '3'\n") == [
        ("b-c", "2.0"),
        ("d_e", "3"),
    ]


def test_advisories_of_the_version_itself_count_wherever_the_index_has_them():
    assert audit.advisories_of("a", "1", {"a/1": entry("1", "X-1"), "a": entry("2")}.get)[
        "advisories"
    ] == ["X-1"]
    assert audit.advisories_of("a", "2", {"a": entry("2", "X-2")}.get)["advisories"] == ["X-2"]


def test_advisories_of_another_version_do_not_count():
    found = audit.advisories_of("a", "1", {"a": entry("2", "X-2")}.get)
    assert not found["known"]
    assert found["newest"] == "2"
    assert found["advisories"] == []
    assert not audit.advisories_of("a", "1", {}.get)["known"]


def test_withdrawn_advisories_do_not_count():
    withdrawn = {
        "info": {"version": "1"},
        "vulnerabilities": [{"id": "X-1", "withdrawn": "2026-01-01T00:00:00Z"}],
    }
    assert audit.advisories_of("a", "1", {"a/1": withdrawn}.get) == {
        "version": "1",
        "known": True,
        "newest": "1",
        "advisories": [],
    }
