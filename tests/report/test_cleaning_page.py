"""The page of a run on a table: one file, offline, escaped, searchable, with the numbers it was given."""

from __future__ import annotations

import html
import io
import json
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from ltpll.errors import InputError
from ltpll.report.cleaning_page import Example, PageContents, render_cleaning_page, write_cleaning_page
from support.browser import in_browser, is_owned, needs_browser, payloads

HOSTILE = "</script><!--<script><img src=x onerror=document.title='owned'><b>\"'&amp;"


def picture():
    stream = io.BytesIO()
    Image.new("RGB", (4, 4), (200, 10, 10)).save(stream, "JPEG")
    return stream.getvalue()


def contents(name="bee", n=30):
    examples = [
        Example(
            f"id{i}",
            [0, 1] if i % 2 else [1],
            1 if i % 3 else i % 2 ^ 1,
            0.9,
            i / n,
            0.5 - i / 10,
            2,
            None if i else 1,
            picture() if i < 3 else None,
        )
        for i in range(n)
    ]
    return PageContents(
        title="Labels of t.csv",
        facts=[("examples", str(n))],
        class_names=["ant", name, "cat"],
        classes={
            "class": ["ant", name, "cat"],
            "estimated_prior": [0.25, 0.5, 0.25],
            "candidate_in": [15, 30, 0],
            "label_of": [10, 20, 0],
            "distractor_rate": [1 / 3, 1 / 3, float("nan")],
            "mean_confidence": [0.9, 0.8, float("nan")],
            "suggested_for": [0, 0, 5],
            "most_often_instead": [name, "ant", None],
            "times_instead": [5, 7, 0],
        },
        confusions=[(0, 1, 10), (1, 0, 5)],
        annotators={
            "annotator": ["w1", "w2"],
            "examples": [3, 4],
            "labels": [3, 5],
            "agreement": [0.9, 0.4],
            "shared_with_others": [0.5, float("nan")],
        },
        examples=examples,
        n_examples=n,
        curves={"epoch": [1, 2], "loss": [2.0, 1.0], "measured": [2], "covering_rate": [0.75]},
        config={"config": {"method": "corr"}},
        prior={
            "estimate": [0.3, 0.6, 0.1],
            "lower": [0.2, 0.5, 0.0],
            "upper": [0.4, 0.7, 0.2],
            "regime": "co-occurrence",
            "because": "rows share sets",
        },
        choice="The shares are held.",
        true_shares=[0.25, 0.7, 0.05],
        judged_by_own=False,
    )


def data_of(text):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', text, flags=re.DOTALL)[1])


def test_the_page_holds_the_numbers_that_it_was_given():
    text = render_cleaning_page(contents())
    lines = re.findall(r'<tr><th scope="row">(\w+)</th>\s*<td class="bars">(.*?)</td>\s*(.*?)</tr>', text, flags=re.DOTALL)
    assert [name for name, _, _ in lines] == ["bee", "ant", "cat"]  # the most believed first
    shares = {name: re.findall(r"</span>([\d.]+%)</div>", bars) for name, bars, _ in lines}
    assert shares == {"bee": ["100.0%", "66.7%", "50.0%"], "ant": ["50.0%", "33.3%", "25.0%"], "cat": ["0.0%", "0.0%", "25.0%"]}
    cells = {name: re.findall(r"<td>(.*?)</td>", rest) for name, _, rest in lines}
    assert cells["bee"] == ["33.3%", "80.0%", "0", "ant (7)"]
    assert cells["cat"] == ["–", "–", "5", "–"]
    confusion = re.search(r'<table class="confusion">(.*?)</table>', text, flags=re.DOTALL)[1]
    rows = re.findall(r'<tr><th scope="row">(\w+)</th>(.*?)</tr>', confusion)
    assert {name: re.findall(r"<span>(.*?)</span>", row) for name, row in rows} == {
        "bee": ["25%", "0%"],
        "ant": ["100%", "0%"],
        "cat": ["0%", "0%"],
    }
    annotators = text.partition('id="annotators"')[2]
    assert re.findall(r'<th scope="row">(w\d)</th>(?:<td>.*?</td>){2}<td>(.*?)</td><td>(.*?)</td>', annotators) == [
        ("w2", "40.0%", "–"),
        ("w1", "90.0%", "50.0%"),
    ]
    assert len(data_of(text)["examples"]) == 30
    assert len(data_of(text)["pictures"]) == 3


def test_the_frequencies_are_drawn_with_bounds_beside_the_classifiers_own_and_the_true_ones():
    text = render_cleaning_page(contents()).partition('id="frequencies"')[2].partition("</section>")[0]
    assert "The shares are held. How the sets arose: co-occurrence (rows share sets)." in text
    rows = re.findall(r'<tr><th scope="row">(\w+)</th>\s*<td>(<svg.*?</svg>)</td>\s*(.*?)</tr>', text, flags=re.DOTALL)
    assert [name for name, _, _ in rows] == ["bee", "ant", "cat"]  # the most frequent first
    assert {name: re.findall(r"<td>(.*?)</td>", cells) for name, _, cells in rows} == {
        "bee": ["60.0% (50.0% to 70.0%)", "50.0%", "70.0%"],
        "ant": ["30.0% (20.0% to 40.0%)", "25.0%", "25.0%"],
        "cat": ["10.0% (0.0% to 20.0%)", "25.0%", "5.0%"],
    }
    shares = {"bee": (0.6, 0.5, 0.7, 0.5, 0.7), "ant": (0.3, 0.2, 0.4, 0.25, 0.25), "cat": (0.1, 0.0, 0.2, 0.25, 0.05)}
    drawn = []
    for name, picture, _ in rows:
        lower, upper = re.search(r'class="range" x1="(.*?)%" x2="(.*?)%"', picture).groups()
        estimate, own = (re.search(rf'class="{mark}" cx="(.*?)%"', picture)[1] for mark in ("estimate", "own"))
        true = re.search(r'class="truth" x1="(.*?)%"', picture)[1]
        drawn += zip(shares[name], map(float, (estimate, lower, upper, own, true)), strict=True)
    assert [at for share, at in drawn if share == 0] == [0]
    # On a logarithmic axis, positions are a linear function of the logarithms.
    logs, at = (np.asarray(column) for column in zip(*[(np.log(share), at) for share, at in drawn if share > 0], strict=True))
    slope, start = np.polyfit(logs, at, 1)
    np.testing.assert_allclose(at, start + slope * logs, atol=0.02)
    assert slope > 0
    assert (at > 0).all()
    assert (at < 100).all()


def test_ticks_are_at_their_shares():
    text = render_cleaning_page(contents()).partition('id="frequencies"')[2].partition("</section>")[0]
    ticks = {float(share): float(at) for at, share in re.findall(r'<text x="(.*?)%" y="13">(.*?)%</text>', text)}
    assert {2, 5, 10, 20, 50} <= ticks.keys()
    # Equal ratios are equal distances.
    assert ticks[20] - ticks[10] == pytest.approx(ticks[10] - ticks[5], abs=0.02)


def test_nothing_outside_the_page_is_referred_to_and_only_its_script_may_run():
    text = render_cleaning_page(contents())
    assert not re.findall(r"https?://", text)
    assert "default-src 'none'" in text
    assert len(re.findall(r"<script>", text)) == text.count("'sha256-") == 1


def test_parts_that_there_is_nothing_for_are_left_out():
    bare = replace(contents(), annotators=None, confusions=[], curves={"epoch": [1], "loss": [0.0]}, true_shares=None)
    assert 'class="truth"' not in render_cleaning_page(bare)
    bare = replace(bare, prior=None)
    text = render_cleaning_page(bare)
    assert 'id="annotators"' not in text
    assert 'class="confusion"' not in text
    assert 'id="frequencies"' not in text
    assert text.count("<polyline") == 1
    assert "--folds 5" not in text
    assert "--folds 5" in render_cleaning_page(replace(bare, judged_by_own=True))
    assert "most uncertain of 1,000 examples" in render_cleaning_page(replace(bare, n_examples=1000))


def test_hostile_text_is_shown_as_text():
    page = replace(contents(HOSTILE), title=HOSTILE, facts=[(HOSTILE, HOSTILE)], config={HOSTILE: HOSTILE}, choice=HOSTILE)
    page = replace(page, prior={**page.prior, "regime": HOSTILE, "because": HOSTILE})
    page = replace(page, annotators={**page.annotators, "annotator": [HOSTILE, "w2"]}, examples=[replace(page.examples[0], id=HOSTILE)])
    text = render_cleaning_page(page)
    assert "<img" not in text
    assert data_of(text)["classes"][1] == data_of(text)["examples"][0][0] == HOSTILE
    tags = re.findall(r"<(/?[a-z0-9]+)", re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL))
    plain = render_cleaning_page(replace(contents(), examples=[contents().examples[0]]))
    assert tags == re.findall(r"<(/?[a-z0-9]+)", re.sub(r"<script.*?</script>", "", plain, flags=re.DOTALL))
    assert html.escape(HOSTILE, quote=False)[:20] in text


def test_a_page_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be written"):
        write_cleaning_page(tmp_path, contents())


def test_the_page_is_made_without_torch():
    code = "import sys, ltpll.report.cleaning_page; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@needs_browser
def test_a_browser_shows_searches_and_pages_the_examples_and_runs_no_hostile_text(tmp_path, listener):
    page = contents(HOSTILE)
    attack = "".join(payloads(listener.server_port))
    page = replace(page, title="unchanged", examples=[replace(page.examples[0], id=HOSTILE), *page.examples[1:]])
    page = replace(page, facts=[(attack, attack)], config={attack: attack}, class_names=[*page.class_names[:2], attack])
    page = replace(page, annotators={**page.annotators, "annotator": [attack, "w2"]})
    path = tmp_path / "page.html"
    steps = """
    const seen = [];
    const count = () => document.querySelectorAll(".card").length;
    const look = () => seen.push([count(), document.getElementById("found").textContent, document.querySelectorAll(".card img").length]);
    look();
    const kind = document.getElementById("kind"), text = document.getElementById("text");
    kind.value = "all"; kind.dispatchEvent(new Event("change")); look();
    document.getElementById("more").click(); look();
    text.value = "ANT id2"; text.dispatchEvent(new Event("input")); look();
    text.value = "no such thing"; text.dispatchEvent(new Event("input")); look();
    text.value = ""; kind.value = "suspicious"; text.dispatchEvent(new Event("input"));
    document.body.dataset.seen = JSON.stringify(seen);
    """
    text = re.sub(r"<meta http-equiv=.*?>", "", render_cleaning_page(page))  # it would refuse the script that clicks
    path.write_text(text.replace("</body>", f"<script>{steps}</script></body>"))
    shown, errors = in_browser(path, tmp_path)
    assert "CONSOLE" not in errors
    assert "<title>unchanged</title>" in shown
    assert not is_owned(shown)
    assert listener.asked == []
    seen = json.loads(html.unescape(re.search(r'data-seen="(.*?)"', shown)[1]))
    # Of thirty examples five are suspicious; ids with a 2 whose set has the class are 21, 23, 25, 27 and 29.
    assert seen == [
        [5, "5 of 5 shown", 3],
        [20, "20 of 30 shown", 3],
        [30, "30 of 30 shown", 3],
        [5, "5 of 5 shown", 0],
        [0, "No example matches.", 0],
    ]
    cards = re.findall(r'<article class="card">(.*?)</article>', shown, flags=re.DOTALL)
    assert len(cards) == 5
    assert html.escape(HOSTILE, quote=False) in cards[0]
    assert sum(card.count("<img") for card in cards) == 3
    write_cleaning_page(path, page)  # with its policy
    shown, errors = in_browser(path, tmp_path)
    assert "CONSOLE" not in errors
    assert shown.count('<article class="card">') == 5
    assert shown.count('src="data:image/jpeg;base64,') == 3
