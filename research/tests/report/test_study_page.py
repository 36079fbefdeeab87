"""The report page: one file, offline, escaped, with the numbers that the records hold."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

from ltpll.errors import InputError
from ltpll.report import templates
from ltpll_research.report import study_page as page
from ltpll_research.report.study_page import render_page, write_page
from ltpll_research.summary import Comparison, ComparisonCell, ComparisonTable
from support.browser import in_browser, is_owned, needs_browser, payloads

HOSTILE = "</script><!--<script><img src=x onerror=document.title='owned'><b>\"'&amp; %{y}"
POSTHOC = "oracle-la-posthoc"


def judged(rng, n_classes):
    per_class = rng.random(n_classes).round(6).tolist()
    balanced = round(float(np.mean(per_class)), 6)
    prediction = rng.dirichlet(np.ones(n_classes)).round(6).tolist()
    groups = dict(zip(("many", "medium", "few"), rng.random(3).round(6).tolist(), strict=True))
    return {
        "balanced_accuracy": balanced,
        "per_class": per_class,
        "mean_prediction": prediction,
        **groups,
    }


def record(method="proden", rebalancer="none", seed=0, *, posthoc=(), n_classes=3, epochs=4):
    rng = np.random.default_rng([seed, *f"{method}{rebalancer}".encode()])
    names = ["test", *posthoc]
    last = {name: judged(rng, n_classes) for name in names} | {
        "epoch": epochs,
        "target_recovery": 0.5 + seed / 10,
        "mean_target": [0.5, 0.3, 0.2, 0.0][:n_classes],
    }
    best = {name: {name: judged(rng, n_classes), "epoch": 2} for name in names}
    curves = {
        "epoch": list(range(1, epochs + 1)),
        "accuracy": {name: rng.random(epochs).round(6).tolist() for name in names},
        "target_recovery": rng.random(epochs).round(6).tolist(),
        "mean_target_distance": rng.random(epochs).round(6).tolist(),
    }
    if rebalancer == "records":
        last["prior"] = [0.6, 0.3, 0.1, 0.0][:n_classes]
        curves["prior_distance"] = rng.random(epochs).round(6).tolist()
    return {
        "key": f"{method}-{rebalancer}-{seed}",
        "config": {"method": method, "rebalancer": rebalancer, "seed": seed, "epochs": epochs},
        "environment": {"hardware": "a machine", "commit": "abc", "torch": "2.0", "threads": 1},
        "class_counts": [20, 90, 5, 4][:n_classes],
        "classes": ["ant", "bee", "cat", "dog"][:n_classes],
        "shots": {"many": 50, "few": 10},
        "seconds": 1.5,
        "posthoc": list(posthoc),
        "last": last,
        "best": best,
        "curves": curves,
    }


def study(seeds=3):
    return [
        record(method, rebalancer, seed, posthoc=(POSTHOC,) if rebalancer == "none" else ())
        for seed in range(seeds)
        for method in ("proden", "corr")
        for rebalancer in ("records", "none")
    ]


def named(records, classes):
    return [one | {"classes": classes} for one in records]


def render(records, **words):
    return render_page(records, **({"title": "A study", "intro": ["One sentence."]} | words))


class Page(HTMLParser):
    """What a browser would make of the page: elements in order, rows as text, scripts."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.tags, self.scripts, self.text, self.rows, self._in = [], [], [], [], None
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self._in = tag
        if tag == "script":
            self.scripts.append((dict(attrs), ""))
        elif tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag):
        self._in = None
        if tag == "table":
            self.rows.append([])

    def handle_data(self, data):
        if self._in == "script":
            self.scripts[-1] = (self.scripts[-1][0], self.scripts[-1][1] + data)
            return
        self.text.append(data)
        if self.rows and self.rows[-1]:
            self.rows[-1][-1] = (self.rows[-1][-1] + data).strip()

    def plots(self):
        found = {
            attrs["id"].removeprefix("data-"): json.loads(text)
            for attrs, text in self.scripts
            if "id" in attrs
        }
        return {
            name: plot | {"lines": {one["name"]: one for one in plot["data"] if "fill" not in one}}
            for name, plot in found.items()
        }

    def labels(self):
        return [re.sub(r"\s*post-hoc$", "", row[0]) for row in self.summary()]

    def summary(self):
        return [row for row in self.rows if len(row) == 9 and row[0] != "method"]


@pytest.fixture(scope="module")
def whole():
    return render(study())


def without_plotly(text):
    from plotly.offline import get_plotlyjs

    assert get_plotlyjs() in text
    return text.replace(get_plotlyjs(), "")


def test_nothing_outside_the_page_is_referred_to(whole):
    assert not re.search(r"https?:|//[a-z0-9-]+\.[a-z]|@import|url\(", without_plotly(whole))
    for tag, attrs in Page(whole).tags:
        assert "src" not in attrs
        assert attrs.get("href", "data:,") == "data:,", tag


def test_the_policy_allows_exactly_the_two_scripts_of_the_page(whole):
    import base64
    import hashlib

    policy = next(
        attrs["content"]
        for tag, attrs in Page(whole).tags
        if attrs.get("http-equiv") == "Content-Security-Policy"
    )
    hashes = re.findall(r"'sha256-([^']+)'", policy)
    scripts = [text for attrs, text in Page(whole).scripts if "type" not in attrs]
    assert hashes == [
        base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts
    ]
    assert "default-src 'none'" in policy
    assert "http" not in policy
    assert not re.search(r"script-src[^;]*unsafe", policy)


def hostile_study():
    records = study(2)
    for one in records:
        one["config"] |= {"note": HOSTILE, "method": one["config"]["method"] + HOSTILE}
        one["key"] = HOSTILE
        one["environment"]["hardware"] = HOSTILE
    return records


def test_hostile_text_is_shown_and_never_run():
    text = render(named(hostile_study(), [HOSTILE, "bee", "cat"]), title=HOSTILE, intro=[HOSTILE])
    plain = render(study(2))
    assert "<img" not in without_plotly(text)
    assert [tag for tag, _ in Page(text).tags if tag != "bdi"] == [
        tag for tag, _ in Page(plain).tags if tag != "bdi"
    ]
    assert HOSTILE in "".join(Page(text).text)
    plots = Page(text).plots()
    for plot in plots.values():
        for name in plot["lines"]:
            assert "<" not in name
    assert html.escape(HOSTILE[:23], quote=False) + "… (20)" in plots["per-class"]["data"][-1]["x"]


def test_names_in_another_direction_stay_by_themselves_in_plots_and_settings():
    hebrew = "\u05e9\u05d5\u05e2\u05dc 2"
    records = study(2)
    for one in records:
        one["config"]["data"] = hebrew if one["config"]["seed"] else "\u202ex"
    text = render(named(records, [hebrew, "\u202eexe", "cat"]), title="\u2066")
    assert f"<bdi>data</bdi> <bdi>{hebrew}</bdi>" in text
    assert "<option>\ufffdx</option>" in text
    assert not re.search(r"[\u202a-\u202e\u2066-\u2069]|\\u202", without_plotly(text))
    ticks = Page(text).plots()["per-class"]["data"][-1]["x"]
    assert set(ticks) == {f"\u2068{hebrew}\u2069 (20)", "\ufffdexe (90)", "cat (5)"}


def test_table_holds_the_means_and_standard_deviations_of_the_records(whole):
    row = next(row for row in Page(whole).summary() if row[0].startswith("corr + records"))
    mine = [
        one
        for one in study()
        if one["config"]["method"] == "corr" and one["config"]["rebalancer"] == "records"
    ]
    base = [
        one
        for one in study()
        if one["config"]["method"] == "corr" and one["config"]["rebalancer"] == "none"
    ]

    def text(values):
        return f"{100 * np.mean(values):.1f} ± {100 * np.std(values, ddof=1):.1f}"

    last = [
        [one["last"]["test"][name] for one in mine]
        for name in ("balanced_accuracy", "many", "medium", "few")
    ]
    best = [one["best"]["test"]["test"]["balanced_accuracy"] for one in mine]
    recovery = [one["last"]["target_recovery"] for one in mine]
    assert row[1:8] == ["3", text(last[0]), text(best), *map(text, last[1:]), text(recovery)]
    gains = np.subtract(last[0], [one["last"]["test"]["balanced_accuracy"] for one in base])
    error = gains.std(ddof=1) / np.sqrt(3)
    expected = f"{100 * gains.mean():+.1f} ± {100 * error:.1f}".replace("-", "−")
    assert row[8].removeprefix("▲ ").removeprefix("▼ ") == expected
    assert row[8][0] in "▲▼" if abs(gains.mean()) > 2 * error else row[8] == expected


@pytest.mark.parametrize(
    ("gains", "mark"),
    [((0.1, 0.11, 0.12), "better"), ((-0.1, -0.11, -0.12), "worse"), ((-0.1, 0.1, 0.2), "")],
)
def test_a_difference_is_marked_only_beyond_two_standard_errors(gains, mark):
    records = [
        record("corr", rebalancer, seed) for seed in range(3) for rebalancer in ("none", "records")
    ]
    for one in records:
        gain = gains[one["config"]["seed"]] if one["config"]["rebalancer"] == "records" else 0
        one["last"]["test"]["balanced_accuracy"] = 0.5 + gain
    assert f'<td class="{mark}">' in render(records)


def test_the_highest_mean_of_each_method_is_bold(whole):
    groups = re.findall(r"<tbody>(.*?)</tbody>", whole.partition("All runs")[0], flags=re.DOTALL)
    for group in groups:
        cells = [
            re.findall(r"<td>(.*?)</td>", row)[1:7]
            for row in re.findall(r"<tr>(.*?)</tr>", group, flags=re.DOTALL)
        ]
        for column in list(zip(*cells, strict=True))[:5]:
            means = [float(re.match(r"(?:<b>)?([\d.]+)", cell)[1]) for cell in column]
            assert [cell.startswith("<b>") for cell in column] == [
                mean == max(means) for mean in means
            ]
    assert len(groups) == 2


def test_plots_hold_the_mean_and_spread_over_seeds(whole):
    mine = [
        one
        for one in study()
        if one["config"]["method"] == "proden" and one["config"]["rebalancer"] == "none"
    ]
    plots = Page(whole).plots()
    for name, key in (("proden", "test"), (f"proden + {POSTHOC}", POSTHOC)):
        curves = 100 * np.asarray([one["curves"]["accuracy"][key] for one in mine])
        line = plots["accuracy"]["lines"][name]
        np.testing.assert_allclose(line["y"], curves.mean(0), atol=1e-4)
        np.testing.assert_allclose(line["customdata"], curves.std(0, ddof=1), atol=1e-4)
        band = next(one for one in plots["accuracy"]["data"] if one["name"] == name)
        np.testing.assert_allclose(band["y"][: len(line["y"])], curves.mean(0) + line["customdata"])
        per_class = 100 * np.asarray([one["last"][key]["per_class"] for one in mine])
        np.testing.assert_allclose(
            plots["per-class"]["lines"][name]["y"], per_class.mean(0)[[1, 0, 2]], atol=1e-4
        )
    truth = plots["prior"]["lines"]["true class frequencies"]
    np.testing.assert_allclose(truth["y"], 100 * np.asarray([90, 20, 5]) / 115, atol=1e-4)


def test_plots_over_epochs_show_only_the_epochs_that_all_seeds_have():
    longer, shorter = record(seed=0, epochs=8), record(seed=1, epochs=8)
    curves = shorter["curves"]
    curves |= {name: values[1::2] for name, values in curves.items() if isinstance(values, list)}
    curves["accuracy"] = {name: values[1::2] for name, values in curves["accuracy"].items()}
    line = Page(render([longer, shorter])).plots()["accuracy"]["lines"]["proden"]
    assert line["x"] == [2, 4, 6, 8]
    both = np.asarray([longer["curves"]["accuracy"]["test"][1::2], curves["accuracy"]["test"]])
    np.testing.assert_allclose(line["y"], 100 * both.mean(0), atol=1e-4)


def test_what_the_sets_say_is_shown_with_bounds_if_the_records_hold_it(whole):
    assert "estimated from the sets" not in Page(whole).plots()["prior"]["lines"]
    records = [one for one in study(2) if one["config"]["rebalancer"] == "none"]
    assert "prior" not in Page(render(records)).plots()  # none of them estimates one
    rng = np.random.default_rng(0)
    shares = rng.dirichlet(np.ones(3), size=len(records))
    for one, estimate in zip(records, shares, strict=True):
        one["prior"] = {
            "estimate": estimate.tolist(),
            "lower": (estimate / 2).tolist(),
            "upper": (2 * estimate).tolist(),
        }
        one["prior"] |= {"regime": "independent", "because": "tests agree"}
    plot = Page(render(records)).plots()["prior"]
    line = plot["lines"]["estimated from the sets"]
    mean = 100 * shares.mean(0)[[1, 0, 2]]
    np.testing.assert_allclose(line["y"], mean, atol=1e-4)
    np.testing.assert_allclose(line["error_y"]["array"], mean, atol=1e-4)
    np.testing.assert_allclose(line["error_y"]["arrayminus"], mean / 2, atol=1e-4)
    assert "true class frequencies" in plot["lines"]
    records[0]["prior"]["lower"] = [0.1]
    with pytest.raises(
        InputError, match="no estimate and bounds of the prior for each of its 3 classes"
    ):
        render(records)


def test_classes_stand_from_most_to_fewest_examples(whole):
    assert Page(whole).plots()["per-class"]["data"][-1]["x"] == ["bee (90)", "ant (20)", "cat (5)"]


def test_posthoc_rows_follow_their_run_and_methods_stay_together(whole):
    assert Page(whole).labels() == [
        *("proden", f"proden + {POSTHOC}", "proden + records"),
        *("corr", f"corr + {POSTHOC}", "corr + records"),
    ]


def test_posthoc_rows_have_no_targets_of_their_own(whole):
    plots = Page(whole).plots()
    for name in ("recovery", "distance"):
        assert not [line for line in plots[name]["lines"] if POSTHOC in line]


def test_a_row_has_one_colour_in_the_table_and_in_every_plot(whole):
    labels = Page(whole).labels()
    for plot in Page(whole).plots().values():
        for line in plot["data"]:
            number = line["meta"].removeprefix("row-")
            assert number == "ink" or line["name"].split(",")[0] == labels[int(number)]


def test_thresholds_of_the_groups_are_stated(whole):
    assert {"> 50 examples", "10 to 50", "< 10 examples"} <= set(Page(whole).text)


def test_environments_that_disagree_are_all_listed():
    records = study(1)
    records[0]["environment"]["hardware"] = "another machine"
    assert "another machine / a machine" in Page(render(records)).text


def settings_study():
    """Runs of two data sets, one of them at two imbalances."""
    records = []
    for data, imbalance, n_classes in (("b", 100.0, 3), ("b", 20.0, 3), ("a", 100.0, 4)):
        for rebalancer in ("none", "records"):
            one = record("proden", rebalancer, 0, n_classes=n_classes)
            one["config"] |= {"data": data, "imbalance": imbalance}
            one["key"] += f"-{data}-{imbalance}"
            if n_classes == 4:
                one["class_counts"], one["classes"] = [9, 8, 7, 6], ["p", "q", "r", "s"]
                one["last"] |= {"mean_target": [0.25] * 4} | (
                    {"prior": [0.25] * 4} if rebalancer == "records" else {}
                )
            records.append(one)
    return records


def test_every_setting_has_its_own_part_and_filters_offer_their_values(whole):
    text = render(settings_study())
    parts = [
        json.loads(html.unescape(found)) for found in re.findall(r'data-setting="(.*?)"', text)
    ]
    assert parts == [
        {"data": "b", "imbalance": "100"},
        {"data": "b", "imbalance": "20"},
        {"data": "a", "imbalance": "100"},
    ]
    filters = {
        name: re.findall(r"<option>(.*?)</option>", body)
        for name, body in re.findall(r'data-name="(.*?)">(.*?)</select>', text)
    }
    assert filters == {"data": ["b", "a"], "imbalance": ["20", "100"]}
    assert len(set(re.findall(r' id="(.*?)"', text))) == len(re.findall(r' id="(.*?)"', text))
    assert '<form class="filters"' not in whole


def test_runs_of_different_versions_are_called_so(whole):
    records = study(1)
    records[0]["config"]["code"] = "another"
    assert "different versions of the program" in render(records)
    assert "different versions" not in whole


def test_comparisons_are_shown_escaped_and_marked():
    far, near = (
        ComparisonCell("1.00", "2.00", "10.00", "−9.00", "(n = 3)", marked=True),
        ComparisonCell("2.00", "", "1.90", "+0.10"),
    )
    table = ComparisonTable(
        HOSTILE,
        [HOSTILE, "b"],
        [("corr", [far, near]), (HOSTILE, [ComparisonCell("", "", "3.00", ""), near])],
    )
    text = render_page(
        study(1), title="t", intro=[], comparisons=[Comparison(HOSTILE, [table], HOSTILE)]
    )
    assert "<img" not in text.partition("<script")[0]
    assert (
        text.count(html.escape("<img src=x onerror=")) >= 6
    )  # title, caption, its label, column, row, note
    assert (
        '<td><b>1.00</b> (2.00)<small>10.00, <span class="marked">−9.00</span> (n = 3)</small></td>'
        in text
    )
    assert "<td><b>2.00</b><small>1.90, <span>+0.10</span></small></td>" in text
    assert "<td>–<small>3.00</small></td>" in text


def test_missing_optional_data_still_renders():
    one = record("proden", "none", 0)
    one["last"]["test"] |= {
        "many": None,
        "medium": None,
        "few": None,
        "per_class": [None, 0.5, 0.5],
    }
    for name in ("environment", "class_counts", "classes", "shots", "seconds", "posthoc"):
        del one[name]
    del (
        one["last"]["target_recovery"],
        one["curves"]["target_recovery"],
        one["curves"]["mean_target_distance"],
    )
    found = Page(render([one]))
    balanced = f"{100 * one['last']['test']['balanced_accuracy']:.1f}"
    best = f"{100 * one['best']['test']['test']['balanced_accuracy']:.1f}"
    assert found.summary() == [["proden", "1", balanced, best, "–", "–", "–", "–", "reference"]]
    assert set(found.plots()) == {"accuracy", "per-class", "prediction"}
    assert found.plots()["per-class"]["data"][-1]["x"] == ["0", "1", "2"]
    assert found.plots()["per-class"]["data"][-1]["y"][0] is None


def test_classes_of_one_name_keep_their_own_place():
    records = study(1)
    for one in records:
        one["class_counts"] = [7, 7, 7]
    plot = Page(render(named(records, ["a", "a", "b"]))).plots()["per-class"]
    assert len(set(plot["data"][-1]["x"])) == 3


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([], "no finished runs"),
        ([record(), record("corr", n_classes=4)], "3 and 4 classes"),
    ],
)
def test_what_cannot_be_shown_is_refused_with_a_sentence(records, message):
    with pytest.raises(InputError, match=message):
        render(records)


def test_a_failure_leaves_the_old_page_untouched(tmp_path, monkeypatch):
    path = tmp_path / "page.html"
    write_page(path, study(1), title="old", intro=[])
    old = path.read_bytes()
    with pytest.raises(InputError):
        write_page(path, [], title="new", intro=[])
    monkeypatch.setattr(
        "pathlib.Path.replace",
        lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")),
    )
    with pytest.raises(InputError, match="No space left"):
        write_page(path, study(1), title="new", intro=[])
    assert path.read_bytes() == old
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def test_the_page_is_made_without_torch():
    code = "import sys, ltpll_research.report.study_page; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_palette_has_the_colours_that_rows_ask_for():
    style = templates.read_asset("page.css")
    assert set(re.findall(r"--row-(\d):", style)) == {str(i) for i in range(page.COLOURS)}


@needs_browser
def test_a_browser_hides_settings_that_are_not_chosen(tmp_path):
    path = tmp_path / "page.html"
    clicks = """
    const choice = document.querySelector('select[data-name="imbalance"]');
    choice.value = "100";
    choice.dispatchEvent(new Event("change"));
    """
    text = re.sub(
        r"<meta http-equiv=.*?>", "", render(settings_study())
    )  # it would refuse the script that clicks
    path.write_text(text.replace("</body>", f"<script>{clicks}</script></body>"))
    shown, errors = in_browser(path, tmp_path)
    assert "CONSOLE" not in errors
    shown = re.sub(r"<script.*?</script>", "", shown, flags=re.DOTALL)
    assert ">2 of 3 settings<" in shown
    first, second, third = shown.split('<div class="setting"')[1:]
    assert [part.partition(">")[0].endswith('hidden=""') for part in (first, second, third)] == [
        False,
        True,
        False,
    ]
    assert third.count('class="main-svg"') >= 5


def attacked_study(port):
    """Every text of two settings' records is a payload."""
    attacks = payloads(port)
    text = "".join(attacks)
    records = []
    for number, rebalancer in enumerate(("none", "records")):
        one = record("proden", rebalancer, 0, posthoc=(POSTHOC,) if rebalancer == "none" else ())
        one["key"], one["classes"] = (
            f"{number}{text}",
            [attacks[0], '<a href="//x">y</a>', text],
        )  # short enough to be drawn whole
        for part in (
            "last",
            "best",
        ):  # a row's name stands in the table, in the legend and in the plots
            one[part] = {
                text if name == POSTHOC else name: value for name, value in one[part].items()
            }
        for best in one["best"].values():
            if POSTHOC in best:
                best[text] = best.pop(POSTHOC)
        if one["posthoc"]:
            one["posthoc"], one["curves"]["accuracy"][text] = (
                [text],
                one["curves"]["accuracy"].pop(POSTHOC),
            )
        one["environment"] = {"hardware": text, "commit": text, text: text}
        one["config"] |= {
            "method": text,
            "rebalancer": text if rebalancer == "records" else "none",
            "extras": attacks[:3],
        }
        records += [one, json.loads(json.dumps(one)) | {"key": f"{number}b"}]
        records[-1]["config"] |= {
            "path": text,
            text: attacks,
        }  # a second setting, so that there are filters
    return records, attacks


@needs_browser
def test_a_browser_runs_no_payload_even_without_the_policy_and_asks_no_server(tmp_path, listener):
    """Without its policy, so that the escaping is tested; the next test is for the policy."""
    records, attacks = attacked_study(listener.server_port)
    cells = [ComparisonCell(*attacks[at : at + 5], marked=True) for at in (0, 5, 10)]
    compared = Comparison(
        attacks[0],
        [ComparisonTable(attacks[1], attacks[:3], [(attack, cells) for attack in attacks])],
        "".join(attacks),
    )
    path = tmp_path / "page.html"
    write_page(path, records, title="".join(attacks), intro=attacks, comparisons=[compared])
    moves = """
    for (const box of document.querySelectorAll(".nsewdrag")) {
      const { left, top, width, height } = box.getBoundingClientRect();
      const where = { bubbles: true, clientX: left + width / 2, clientY: top + height / 2 };
      for (const kind of ["mouseover", "mousemove"]) box.dispatchEvent(new MouseEvent(kind, where));
    }
    document.documentElement.dataset.moved = document.querySelectorAll(".hoverlayer text").length;
    """
    text = re.sub(
        r"<meta http-equiv=\"Content-Security-Policy\".*?>",
        "",
        path.read_text(encoding="utf-8"),
        count=1,
    )
    path.write_text(text.replace("</body>", f"<script>{moves}</script></body>"), encoding="utf-8")
    shown, _ = in_browser(path, tmp_path)
    drawn = re.sub(r"<script.*?</script>", "", shown, flags=re.DOTALL)
    assert re.search(
        r'<html[^>]* data-moved="[1-9]', shown
    )  # plots were drawn, and the mouse over them shows names
    assert not is_owned(shown)
    assert listener.asked == []
    for tag in ("<img", "<iframe", "<base", "<link rel=stylesheet", "<svg onload", "<a href"):
        assert tag not in drawn
    assert not re.search(
        r"<a [^>]*href=|y</a>", drawn
    )  # plotly would make links of names that hold one
    assert not re.search(r"<[a-z]+ [^<>]*\bon[a-z]+=", re.sub(r'"[^"]*"', '""', drawn))
    assert "{{ 7 * 7 }}" in "".join(Page(text).text)


@needs_browser
def test_a_script_that_got_into_the_page_would_be_refused_by_its_policy(tmp_path, listener):
    path = tmp_path / "page.html"
    call = f"http://127.0.0.1:{listener.server_port}/"
    owned = "document.documentElement.dataset.owned=1"
    inside = (
        f"<script>{owned}</script><img src={call}a onerror={owned}><script src={call}b></script>"
        f"<iframe src={call}c></iframe><link rel=stylesheet href={call}d>"
        f"<object data={call}e></object><svg onload={owned}></svg><form action={call}f id=f></form>"
    )
    page_text = render(study(1))
    path.write_text(page_text.replace("<main>", f"<main>{inside}", 1), encoding="utf-8")
    assert inside in path.read_text(encoding="utf-8")
    shown, errors = in_browser(path, tmp_path)
    assert not is_owned(shown)
    assert listener.asked == []
    assert "Content Security Policy" in errors
    assert 'class="main-svg"' in shown  # its own scripts run


@needs_browser
def test_a_browser_draws_every_plot_and_runs_no_hostile_text(tmp_path):
    path = tmp_path / "page.html"
    records = named(hostile_study(), [HOSTILE, "bee", "cat"])
    write_page(path, records, title="unchanged", intro=[HOSTILE])
    shown, errors = in_browser(path, tmp_path)
    assert "CONSOLE" not in errors
    drawn = re.sub(r"<script.*?</script>", "", shown, flags=re.DOTALL)
    assert "<title>unchanged</title>" in drawn
    assert "<img" not in drawn
    boxes = drawn.split('class="plot js-plotly-plot"')[1:]
    assert len(boxes) == 6
    for box in boxes:
        assert 'class="main-svg"' in box
