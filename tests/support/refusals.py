"""How every test reads an error: exactly the type expected, one sentence, one line, not too
long.
"""

import pytest

from ltpll.errors import InputError


def refusal(call, kind=InputError):
    """The message with which a call is refused."""
    with pytest.raises(InputError) as caught:
        call()
    assert type(caught.value) is kind
    message = str(caught.value)
    assert "\n" not in message
    assert message.endswith(".")
    assert len(message) < 1000  # however long what it quotes is
    return message
