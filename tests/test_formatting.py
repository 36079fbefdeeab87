"""Facts about text for messages: durations, sizes, counts and lists of names."""

import pytest

from ltpll.formatting import are, counted, format_bytes, format_duration, format_names

GIB = 1 << 30


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (119, "119 s"), (121, "2 min"), (7199, "120 min"), (9000, "2.5 h")],
)
def test_durations_have_a_fitting_unit(seconds, words):
    assert format_duration(seconds) == words


def test_sizes_are_written_as_people_write_them():
    assert [format_bytes(n) for n in (0, 1023, 1536, 10 << 20, 5 * GIB // 2)] == [
        "0 bytes",
        "1023 bytes",
        "1.5 KiB",
        "10 MiB",
        "2.5 GiB",
    ]


def test_an_unknown_duration_is_a_question_mark():
    assert format_duration(None) == "?"


def test_long_lists_of_names_are_cut_and_counted_and_stay_on_one_line():
    assert format_names(["a", "b\nc"]) == "a, b c"
    assert format_names([str(i) for i in range(25)], most=3) == "0, 1, 2 and 22 more"
    assert len(format_names(["x" * 1000])) == 60


def test_what_is_counted_is_in_the_singular_or_the_plural():
    assert [counted(n, "row") for n in (0, 1, 2, 2000)] == [
        "0 rows",
        "1 row",
        "2 rows",
        "2,000 rows",
    ]
    assert [counted(n, "class", "classes") for n in (1, 78)] == ["1 class", "78 classes"]
    assert [f"{n} of 3 classes {are(n)}" for n in (0, 1, 2)] == [
        "0 of 3 classes are",
        "1 of 3 classes is",
        "2 of 3 classes are",
    ]
