"""Whatever a file has put into it, a message is one short line that a terminal only shows."""

from hypothesis import given
from hypothesis import strategies as st

from ltpll.cli.options import words_of_option
from ltpll.errors import LONGEST, first_line, on_command_line, option, printable, shown

anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner) | st.tuples(inner, inner),
    max_leaves=30,
)


@given(value=anything)
def test_any_value_is_shown_on_one_line_that_is_not_too_long(value):
    text = shown(value)
    assert text.isprintable()
    assert (
        len(text) <= 10 * LONGEST + 2
    )  # of a text, what cannot be printed takes up to ten letters


def test_short_values_are_shown_as_python_writes_them():
    assert [shown(value) for value in ("cat", 3, [1, "a"], None, 0.5)] == [
        "'cat'",
        "3",
        "[1, 'a']",
        "None",
        "0.5",
    ]
    assert shown("x" * 60) == repr("x" * 60)
    assert shown("x" * 61) == repr("x" * 59 + "…")
    assert shown("x" * 100, 200) == repr("x" * 100)


def test_a_value_that_refers_to_itself_or_unfolds_is_shown_at_once():
    laughs = ["ha"]
    for _ in range(60):
        laughs = [laughs, laughs]
    assert len(shown(laughs)) <= 2 * LONGEST
    laughs.append(laughs)
    assert len(shown({"a": laughs})) <= 2 * LONGEST


@given(text=st.text())
def test_what_is_printed_holds_nothing_that_a_terminal_obeys(text):
    assert printable(text).isprintable()
    assert len(printable(text)) == len(text)
    if text.isprintable():
        assert printable(text) == text


def test_escape_sequences_and_turned_text_lose_their_power():
    assert printable("a\x1b[2Jb\x07c\u202ed\te") == "a�[2Jb�c�d e"


def test_of_a_librarys_error_the_first_line_is_kept():
    assert first_line(ValueError("one.\ntwo")) == "one"
    assert first_line(ValueError("")) == "ValueError"
    assert first_line(OSError("x" * 500)) == "x" * 200


def test_an_option_is_named_as_its_user_writes_it():
    assert option("top_k", "3") == "top_k='3'"
    with on_command_line(words_of_option):
        assert option("vote_weights", "none") == "--set table.vote_weights=none"
        assert option("separator", ";") == "--separator ';'"
    assert option("separator", ";") == "separator=';'"
