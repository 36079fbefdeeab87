"""Facts about the time left of a job, compared with simulated jobs whose end is known."""

import pytest

from ltpll.training import callbacks as module
from ltpll.training.callbacks import Progress
from ltpll.training.job import Part, Stage


@pytest.fixture
def clock(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def planned(*stages):
    job = Progress(write=lambda line: None)
    job.plan_stages(stages)
    return job.start_part(stages[0].parts[0])


def simulate(job, clock, speed_of, tick=0.25):
    """Work through a job, and return the time, the share done and the time left at every tick;
    speeds are in work per second and worker."""
    seen = []
    for stage in job.stages:
        waiting, running = [part for part in stage.parts if part.left], []
        while waiting or running:
            while waiting and len(running) < stage.workers:
                running.append(waiting.pop(0))
            clock[0] += tick
            done = {
                part: min(part.epochs, part.done + tick * speed_of(stage, clock[0]) / part.cost)
                for part in running
            }
            job.start_part(stage.parts[0])
            job.report_epochs(done)
            running = [part for part in running if part.left]
            seen.append((clock[0], job.share_done, job.seconds_left))
    return seen


def folds(n=5, rows=800):
    return [Part.of_rows(f"fold {k}", rows, 30, 32) for k in range(n)]


def test_parts_of_different_size_that_follow_one_another_end_when_it_is_expected(clock):
    training = Part.of_rows("training", 1000, 30, 32)
    job = planned(
        Stage([Part.of_rows("comparison", 667, 30, 32)]), Stage([training]), Stage(folds())
    )
    assert job.seconds_left is None
    seen = simulate(job, clock, lambda stage, now: 5000)
    end = seen[-1][0]
    for now, _, left in seen[4:]:
        assert left == pytest.approx(end - now, rel=0.02, abs=0.3)
    work = [share for _, share, _ in seen]
    assert work == sorted(work)
    assert work[-1] == 1
    total = 30 * (1 + 100 / 32) * (667 + 1000 + 5 * 800)
    assert seen[9][1] == pytest.approx(10 * 0.25 * 5000 / total)


def test_what_was_finished_before_counts_for_the_share_but_not_for_the_speed(clock):
    parts = folds()
    job = planned(Stage([Part.of_rows("training", 1000, 30, 32)]), Stage(parts))
    job.start_part(parts[2])
    parts[2].done = 15
    seen = simulate(job, clock, lambda stage, now: 5000)
    assert seen[0][1] > 0.5
    for now, _, left in seen[4:]:
        assert left == pytest.approx(
            seen[-1][0] - now, abs=1.0
        )  # up to a tick is lost at the end of each part


def test_the_time_in_which_processes_start_does_not_count_for_the_speed(clock):
    part = Part("runs", 10)
    job = planned(Stage([part]))
    for now, done in [(0, 0), (20, 0), (21, 1), (22, 2), (23, 3)]:
        clock[0] = now
        job.report_epochs(done)
    assert job.seconds_left == pytest.approx(7)


def test_a_machine_that_becomes_slower_is_noticed_soon(clock):
    job = planned(Stage([Part("training", 1000, 100.0)]))
    seen = simulate(job, clock, lambda stage, now: 1000 if now < 20 else 250)
    end = seen[-1][0]
    errors = {now: abs(left / (end - now) - 1) for now, _, left in seen if left and now < end}
    assert errors[20.0] > 0.5
    assert errors[50.0] < 0.25
    assert errors[100.0] < 0.05


def test_a_step_costs_its_rows_and_a_constant():
    """The same rows in batches of half the size take longer, but not twice as long."""
    small, large = (Part.of_rows("", 1000, 10, batch_size).left for batch_size in (32, 64))
    assert large < small < 2 * large
    assert Part.of_rows("", 500, 20, 32).left == small
