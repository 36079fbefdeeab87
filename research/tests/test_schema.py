"""Records of benchmark runs and studies are checked as soon as this package is imported."""

import pytest

import ltpll_research  # noqa: F401
from ltpll.runs.run import Run, read_result
from ltpll.runs.schema import CHECKS, Kind
from ltpll_research.records import finished_runs
from support.refusals import refusal


def test_every_kind_of_run_has_a_check():
    assert CHECKS.keys() == set(Kind)


@pytest.mark.parametrize("config", [{"experiment": "images"}, {"study": "toy"}])
def test_a_finished_run_whose_record_lacks_what_its_kind_needs_is_refused(tmp_path, config):
    run = Run(tmp_path, config)
    run.start()
    run.finish({})
    for read in (run.result, lambda: read_result(run.folder), lambda: finished_runs(tmp_path)):
        assert "an entry that does not fit" in refusal(read)
