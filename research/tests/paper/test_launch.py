"""Grids on a CPU, shared between processes and with failing runs."""

import json

import pytest
from filelock import FileLock

from ltpll.errors import BusyError
from ltpll_research.benchmark import Experiment, experiment_run, train
from ltpll_research.image_sets.prepared import write_image_set
from ltpll_research.paper.launch import launch
from support.commands import research
from support.fork_server import shared_fork_server
from support.pictures import coloured_images
from support.refusals import refusal

TINY = [
    "--set",
    "width=2",
    "--set",
    "batch_size=32",
    "--only",
    "dataset=cifar10 rho=50 q=0.3 method=proden",
    "--device",
    "cpu",
]


def images():
    return coloured_images(10, 50, 4)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_image_set(images(), folder)
    return folder


def command(root, *arguments):
    return ["reproduce", "main", *TINY, "--data-root", str(root), *arguments]


def call(root, *arguments, cwd, **options):
    return research(*command(root, *arguments), cwd=cwd, **options)


def results(folder):
    """The records without times."""
    found = {}
    for marker in sorted(folder.rglob("done")):
        record = json.loads((marker.parent / "result.json").read_text())
        found[record["key"]] = {
            key: record[key] for key in ("config", "last", "best", "curves", "seeds")
        }
    return found


def test_two_launchers_share_a_grid_and_run_nothing_twice(root, tmp_path):
    server, logs = shared_fork_server(), [tmp_path / "log 1", tmp_path / "log 2"]
    launchers = [
        server.start(
            "interrupted_runs.research_command",
            *command(root, "--epochs", "4"),
            log=log,
            cwd=tmp_path,
        )
        for log in logs
    ]
    ended = [server.wait(pid) for pid in launchers]
    assert [status for status, _ in ended] == [0, 0], ended
    assert len(results(tmp_path)) == 3
    for metrics in tmp_path.rglob("metrics.jsonl"):
        assert [json.loads(line)["epoch"] for line in metrics.read_text().splitlines()] == [
            1,
            2,
            3,
            4,
        ]


def test_a_failed_run_writes_its_reason_and_the_others_are_trained(root, tmp_path):
    settings = {
        "data": "cifar10",
        "imbalance": 50,
        "epochs": 3,
        "width": 2,
        "batch_size": 32,
        "method": "proden",
    }
    good, explodes = (
        Experiment.from_mapping(settings),
        Experiment.from_mapping({**settings, "lr": 1e30}),
    )
    ((failed, reason),) = launch([explodes, good], tmp_path, data_root=root, device="cpu")
    assert failed == explodes
    assert "not finite" in reason
    assert "not finite" in (experiment_run(tmp_path, explodes).folder / "failed.txt").read_text()
    assert not experiment_run(tmp_path, explodes).done
    assert experiment_run(tmp_path, good).done


def test_a_run_that_another_process_trains_is_left_alone(root, tmp_path):
    experiment = Experiment.from_mapping(
        {"data": "cifar10", "imbalance": 50, "epochs": 1, "width": 2, "method": "proden"}
    )
    run = experiment_run(tmp_path, experiment)
    tmp_path.mkdir(exist_ok=True)
    with FileLock(tmp_path / f".{run.key}.lock"):
        assert launch([experiment], tmp_path, data_root=root, device="cpu") == []
        assert "another process" in refusal(lambda: train(run, images(), device="cpu"), BusyError)
    assert not run.folder.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "q=0.9"], "No run of main matches 'q=0.9'"),
        (["--set", "widht=2"], "no setting 'widht'"),
        (["--data-root", "nowhere"], "ltpll-research data prepare cifar10"),
    ],
)
def test_a_bad_request_exits_with_2_and_one_sentence(root, tmp_path, arguments, message):
    result = call(root, "--epochs", "1", *arguments, cwd=tmp_path)
    assert result.returncode == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def test_the_list_names_every_item_and_counts_what_is_done(root, tmp_path):
    result = research("reproduce", "--list", cwd=tmp_path)
    for name in ("main", "fine-grained-nu", "baselines", "mixup", "ablation-m", "t-sne"):
        assert name in result.stdout
    assert "0/156" in result.stdout


def test_a_comparison_of_runs_is_a_page_and_an_unfinished_run_is_refused(root, tmp_path):
    assert call(root, "--epochs", "1", cwd=tmp_path).returncode == 0
    runs = tmp_path / "ltpll-runs" / "images"
    made = research("compare", runs, "--title", "Mine <b>", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    page = (tmp_path / "ltpll-compare.html").read_text()
    assert "Mine &lt;b&gt;" in page
    assert "proden + records" in page
    folder = next(path.parent for path in runs.rglob("done"))
    (folder / "done").unlink()
    refused = research("compare", folder, cwd=tmp_path)
    assert refused.returncode == 2
    assert "not finished" in refused.stderr
