import pytest
import torch

from ltpll.training.batches import BatchSampler


def feed(n=23, batch_size=4, drop_last=False, chunk=8, seed=0):
    return BatchSampler(n, batch_size, drop_last, chunk, torch.Generator().manual_seed(seed))


def draw(made):
    """Views that come from both kinds of random numbers, and the rows that they are of."""

    def views(rows):
        return rows + torch.rand(len(rows), generator=made.generator), rows + torch.rand(len(rows))

    return views


def told(batches):
    return [(index.tolist(), *(view.tolist() for view in views)) for index, views in batches]


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        yield


@pytest.mark.parametrize(("drop_last", "sizes"), [(True, [4] * 5), (False, [4] * 5 + [3])])
def test_every_row_comes_once_with_its_own_views(drop_last, sizes):
    made = feed(drop_last=drop_last)
    batches = list(made.batches(draw(made)))
    assert [len(index) for index, _ in batches] == sizes
    assert made.step == len(sizes)
    rows = torch.cat([index for index, _ in batches])
    assert len(rows.unique()) == sum(sizes) == made.rows
    for view in range(2):
        assert torch.equal(torch.cat([views[view] for _, views in batches]).floor().long(), rows)


@pytest.mark.parametrize("stop", range(7))
@pytest.mark.parametrize("chunk", [1, 8, 100])
def test_an_epoch_left_after_any_step_goes_on_elsewhere_as_if_it_had_not_been_left(stop, chunk):
    """Random numbers are also drawn in every step, as mixup does; and the next epoch is the same
    as well."""

    def steps(made, upto):
        seen = []
        if upto == 0:
            return seen
        for index, views in made.batches(draw(made)):
            seen.append(
                (
                    index.tolist(),
                    views[0].tolist(),
                    views[1].tolist(),
                    float(torch.rand((), generator=made.generator)),
                )
            )
            seen.append(float(torch.rand(())))
            if made.step == upto:
                break
        return seen

    whole = feed(chunk=chunk)
    torch.manual_seed(3)
    expected = steps(whole, 6)
    whole.restart()
    following = steps(whole, 6)

    first = feed(chunk=chunk)
    torch.manual_seed(3)
    seen = steps(first, stop)
    state, generator, host = first.state_dict(), first.generator.get_state(), torch.get_rng_state()
    assert bool(state) == (stop > 0)
    torch.manual_seed(99)
    second = feed(chunk=chunk, seed=99)
    second.load_state_dict(stop, state)
    second.generator.set_state(generator)
    torch.set_rng_state(host)
    seen += steps(second, 6) if stop < 6 else told(second.batches(draw(second)))
    assert seen == expected
    second.restart()
    assert steps(second, 6) == following


def test_the_settings_tell_feeds_apart_that_cannot_go_on_from_each_other():
    alike = feed().settings
    assert feed(seed=5).settings == alike
    for change in ({"n": 24}, {"batch_size": 5}, {"drop_last": True}, {"chunk": 4}):
        assert feed(**change).settings != alike
