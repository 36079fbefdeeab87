"""Random options of commands that train: the command succeeds, or fails with one sentence and
writes nothing.
"""

import shutil
import tempfile
import warnings
from pathlib import Path

from hypothesis import strategies as st
from typer.testing import CliRunner

from ltpll.errors import InputError, NotFiniteError

WHOLE = st.sampled_from(["-1", "0", "1", "2", "7", "1.5", "many", "99999999999999999999", ""])
SHORT = st.sampled_from(["-1", "0", "1", "2", "some", "1.5"])  # for what takes time
NUMBER = st.sampled_from(
    ["-1", "0", "-0.0", "1e-3", "0.5", "1", "1e30", "1e400", "nan", "inf", "much"]
)
NAME = st.sampled_from(["nothing", "", "auto", "../x", "records", "corr", "none"])
BOTH = {
    "--lr": NUMBER,
    "--batch-size": WHOLE,
    "--seed": WHOLE | st.sampled_from(["4294967295", "4294967296"]),
    "--method": NAME
    | st.sampled_from(["proden", "lw", "cavl", "cc", "solar", "pico", "htc", "pop", "papi"]),
    "--rebalancer": NAME | st.sampled_from(["oracle-la", "epoch-records", "temp-oracle-la"]),
    "--extra": NAME | st.sampled_from(["mixup", "bcl", "paco", "sfn", "ldd"]),
    "--views": NAME | st.sampled_from(["paper", "flip-crop", "crop"]),
    "--precision": NAME | st.sampled_from(["float32", "bfloat16"]),
    "--device": NAME | st.sampled_from(["cpu", "cuda:7", "meta", "tpu"]),
    "--on-nan": NAME | st.sampled_from(["skip", "stop"]),
    "--threads": SHORT,
    "--config": st.sampled_from(["missing.toml", "."]),
}


def some(options):
    """A few of the options, each with a value."""
    option = st.sampled_from(sorted(options)).flatmap(
        lambda name: st.tuples(st.just(name), options[name])
    )
    return st.lists(option, max_size=4, unique_by=lambda pair: pair[0])


def flat(drawn):
    return [word for pair in drawn for word in pair if word is not None]


def outcome(app, *arguments):
    """The exit status and message of a command; anything but success or an error of one sentence
    fails here.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(result.exception, InputError):
        message = str(result.exception)
        assert "\n" not in message
        return (1 if isinstance(result.exception, NotFiniteError) else 2), message
    assert result.exception is None or isinstance(result.exception, SystemExit), (
        arguments,
        repr(result.exception),
    )
    assert result.exit_code in (0, 2), (arguments, result.output)
    return result.exit_code, result.output


def check(app, place, command):
    out = Path(tempfile.mkdtemp(dir=place)) / "runs" / "run"
    try:
        status, message = outcome(app, *command, "--out", out)
        if status == 2:
            assert not out.parent.exists(), message
    finally:
        shutil.rmtree(out.parents[1])
