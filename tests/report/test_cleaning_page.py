"""The page of a run on a table: one file, offline, escaped, with the numbers it was given."""

from __future__ import annotations

import html
import io
import json
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image
from sklearn.metrics import confusion_matrix

from ltpll.cleaning.audit import Answers, with_answers_applied
from ltpll.cleaning.results import class_columns
from ltpll.cleaning.review import choose_questions
from ltpll.errors import InputError
from ltpll.report import cleaning_page
from ltpll.report.cleaning_page import render_cleaning_page, write_cleaning_page
from ltpll.report.templates import with_code
from support.browser import in_browser, is_owned, needs_browser, payloads
from support.cleaned_tables import cleaned_table

HOSTILE = "</script><!--<script><img src=x onerror=document.title='owned'><b>\"'&amp;"
PRIOR = {
    "estimate": [0.3, 0.6, 0.1],
    "lower": [0.2, 0.5, 0.00012],
    "upper": [0.4, 0.7, 0.2],
    "regime": "co-occurrence",
    "because": "rows share sets",
}


def picture():
    stream = io.BytesIO()
    Image.new("RGB", (4, 4), (200, 10, 10)).save(stream, "JPEG")
    return stream.getvalue()


def with_record(table, **entries):
    return replace(table, record={**table.record, **entries})


def data_of(text):
    found = re.search(
        r'<script type="application/json" id="data">(.*?)</script>', text, flags=re.DOTALL
    )
    return json.loads(found[1])


def examples_of(table):
    return data_of(render_cleaning_page(table))["examples"]


def top(text):
    return text.partition("<header>")[2].partition("</header>")[0]


def test_the_table_of_classes_holds_the_columns_of_classes_most_frequent_label_first():
    table = cleaned_table()
    columns, n = class_columns(table), len(table.ids)
    text = render_cleaning_page(table)
    lines = re.findall(
        r'<tr><th scope="row">class (\d)</th>\s*<td class="bars">(.*?)</td>\s*(.*?)</tr>',
        text,
        flags=re.DOTALL,
    )
    counts = columns["label_of"].tolist()
    assert [counts[int(c)] for c, _, _ in lines] == sorted(counts, reverse=True)
    for c, bars, rest in ((int(c), bars, rest) for c, bars, rest in lines):
        shares = columns["candidate_in"][c] / n, counts[c] / n, columns["estimated_prior"][c]
        shown = [f"{share:.1%}" for share in shares]
        assert re.findall(r"</span>([\d.]+%)</div>", bars) == shown
        rates = ("distractor_rate", "mean_confidence")
        cells = re.findall(r"<td>(.*?)</td>", rest)
        expected = [columns[name][c] for name in rates]
        assert cells[:2] == ["–" if x != x else f"{x:.1%}" for x in expected]
        assert cells[2].startswith(f"{columns['recovered_out_of_fold'][c]} of") == (counts[c] > 0)
        assert ("not judged" in cells[2]) == (c == 0)
        instead = columns["most_often_instead"][c]
        times = columns["times_instead"][c]
        assert cells[-1] == ("–" if instead is None else f"<bdi>{instead}</bdi> ({times})")


def test_the_shares_by_the_sets_and_the_true_ones_are_beside_those_of_the_classifier():
    table = cleaned_table(40, 3, known=1)
    text = render_cleaning_page(with_record(table, prior=PRIOR, choice="Shares are fixed."))
    assert "Shares are fixed. How the sets arose: co-occurrence (rows share sets)." in text
    true = Counter(table.true.tolist())
    for c, shares in enumerate(["30.0% (20.0% to 40.0%)", "60.0% (50.0% to 70.0%)"]):
        line = text.partition(f'<th scope="row">class {c}</th>')[2].partition("</tr>")[0]
        assert re.findall(r"<td>(.*?)</td>", line)[:2] == [shares, f"{true[c] / 40:.1%}"]
    assert "10.0% (0.012% to 20.0%)" in text
    assert "true share" not in render_cleaning_page(cleaned_table())


def test_annotators_with_the_least_agreement_come_first():
    text = render_cleaning_page(cleaned_table()).partition('id="annotators"')[2]
    shares = re.findall(
        r'<th scope="row">worker\d</th>(?:<td>.*?</td>){2}<td>(.*?)%</td><td>(.*?)</td>', text
    )
    found = [float(share) for share, _ in shares]
    assert len(found) == 4
    assert found == sorted(found)


def test_without_answers_suspicion_is_a_rank_and_with_them_a_probability():
    run = cleaned_table()
    data = data_of(render_cleaning_page(run))
    assert (data["n"], data["calibrated"]) == (200, False)
    ranked = sorted(data["examples"], key=lambda one: one["rank"])
    assert [one["rank"] for one in ranked] == list(range(1, 201))
    assert np.diff([one["suspicion"] for one in ranked]).max() <= 0
    assert "not yet calibrated" in top(render_cleaning_page(run))
    questions, truth = choose_questions(run, 60), run.labels.label
    answers = [(int(truth[i]),) for i in questions.rows]
    known = with_answers_applied(
        run, Answers(questions.rows, answers, questions.asked, questions.probability)
    )
    text = render_cleaning_page(known)
    assert data_of(text)["calibrated"]
    assert top(text).index("labels are right in 100.0%") < top(text).index("On rows that the model")
    assert "<dt>reviewed</dt><dd>60</dd>" in top(text)


def test_the_top_says_how_far_labels_can_be_trusted():
    table = cleaned_table()
    text = top(render_cleaning_page(table))
    first, second = "On rows that the model was not trained on", "sets may lack the true label"
    assert text.index(first) < text.index(second) < text.index("<dl")
    assert "The model cannot judge sets that hold the class class 0 (" in text
    assert "Warning" not in text
    judgement = table.record["judgement"]
    bad = with_record(table, judgement={**judgement, "covering": 0.3})
    text = top(render_cleaning_page(bad))
    assert 'class="notice warning"' in text
    assert "Warning: these labels may be no better than a guess." in text
    text = top(render_cleaning_page(cleaned_table(judgement=False, judged_by="own")))
    assert 'class="notice"' in text


def matrix_of(text):
    table = re.search(r'<table class="confusion">(.*?)</table>', text, flags=re.DOTALL)[1]
    return {
        name: [
            int(cell.replace(",", ""))
            for cell in re.findall(r"<td[^>]*>(?:<span>)?([\d,]+)", cells)
        ]
        for name, cells in re.findall(r'<tr><th scope="row">(.*?)</th>(.*?)</tr>', table)
    }


def test_the_confusion_matrix_is_that_of_scikit_learn():
    table = cleaned_table()
    known = [i for i, label in enumerate(table.true) if label is not None]
    true = [table.true[i] for i in known]
    order = [c for c, _ in sorted(Counter(true).items(), key=lambda one: (-one[1], one[0]))]
    expected = confusion_matrix(true, table.labels.label[known], labels=order)
    text = render_cleaning_page(table)
    assert matrix_of(text) == {
        f"class {c}": [*row, 0, sum(row)] for c, row in zip(order, expected.tolist(), strict=True)
    }
    assert f"over the {len(known)} rows whose true label is known" in text


def test_only_the_most_frequent_of_many_classes_are_in_the_matrix_and_its_rows_are_complete():
    table = cleaned_table(2000, 500)
    totals = Counter(label for label in table.true if label is not None)
    rows = matrix_of(render_cleaning_page(table))
    assert len(rows) == 20
    for name, cells in rows.items():
        assert len(cells) == 22  # and those with another label, and all
        assert sum(cells[:-1]) == cells[-1] == totals[int(name.split()[1])]


def test_confidences_are_compared_with_accuracies():
    table = cleaned_table()
    figures = table.record["judgement"]["calibration"]["all"]
    text = render_cleaning_page(table).partition('id="calibration"')[2].partition("</section>")[0]
    line = text.partition('<th scope="row">all rows</th>')[2].partition("</tr>")[0]
    names = ("accuracy", "mean_confidence", "calibration_error")
    shown = [str(figures["rows"]), *(f"{figures[name]:.1%}" for name in names)]
    assert re.findall("<td>(.*?)</td>", line) == [*shown, f"{figures['ranking']:.3f}"]


def test_cards_suggest_labels_for_flagged_sets_only_and_suspicion_limits_confidence():
    table = cleaned_table()
    issue = table.labels.issue
    assert 0 < issue.sum() < (table.labels.suspicion > 0).sum()
    for i, one in enumerate(examples_of(table)):
        assert one["suggestion"] == (table.labels.outside[i] if issue[i] else None)
        assert one["confidence"] + one["suspicion"] <= 1 + 1e-3
    for one in examples_of(cleaned_table(judgement=False, judged_by="own")):
        assert not one["judged"]
        assert one["suggestion"] is None


def test_cards_count_the_votes_of_annotators_as_a_loop_counts_them():
    table = cleaned_table()
    counts = {}
    for row, label in zip(table.votes.rows.tolist(), table.votes.labels.tolist(), strict=True):
        counts.setdefault(row, Counter())[label] += 1
    for i, one in enumerate(examples_of(table)):
        assert dict(one["votes"]) == counts.get(i, {})
        assert [n for _, n in one["votes"]] == sorted((n for _, n in one["votes"]), reverse=True)


def test_a_page_with_too_many_rows_shows_the_flagged_ones_even_beside_more_suspicious_sets(
    monkeypatch,
):
    monkeypatch.setattr(cleaning_page, "MOST_EXAMPLES", 200)
    table = cleaned_table(600)
    suspicion = np.where(table.labels.judged, table.labels.suspicion, np.float32(0.999))
    table = replace(table, labels=replace(table.labels, suspicion=suspicion))
    assert table.labels.issue.sum() <= 100 < (suspicion == np.float32(0.999)).sum()
    text = render_cleaning_page(table)
    shown = {one["id"] for one in data_of(text)["examples"]}
    assert len(shown) <= 210
    assert set(table.ids[table.labels.issue]) <= shown
    assert f"shows the {len(shown)} most suspicious and most uncertain of 600 examples" in text


@pytest.mark.parametrize(
    "table",
    [
        cleaned_table(judgement=False, judged_by="own"),  # an older run, or one without folds
        cleaned_table(judgement=False, judged_by="own", known=0, annotators=False),
        cleaned_table(40, 2),
        cleaned_table(known=0.01),
        cleaned_table(known=0),
        cleaned_table(3, 3, known=1),
    ],
    ids=[
        "no judgement",
        "no judgement and no truth",
        "two classes",
        "few truths",
        "no truth",
        "three rows",
    ],
)
def test_pages_of_unusual_runs_are_whole(table):
    text = render_cleaning_page(table)
    known = any(label is not None for label in table.true)
    assert ('id="truth"' in text) == ('scope="col">precision</th>' in text) == known
    assert ('id="calibration"' in text) == (known and "judgement" in table.record)
    assert ('id="annotators"' in text) == (table.votes is not None)
    assert ("--folds 5" in top(text)) == ("judgement" not in table.record)
    assert not re.search(r"\bnan\b", re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL))
    head = re.search(r'<table class="classes">.*?</thead>', text, flags=re.DOTALL)[0]
    columns = len(re.findall(r"<th", head.partition("<tr>")[2]))
    for line in re.findall(
        r'<tr><th scope="row">[^<]*</th>\s*<td class="bars">.*?</tr>', text, flags=re.DOTALL
    ):
        assert 1 + line.count("<td") == columns


def test_nothing_outside_the_page_is_referred_to_and_only_its_script_may_run():
    text = render_cleaning_page(cleaned_table())
    assert not re.findall(r"https?://", text)
    assert "default-src 'none'" in text
    assert len(re.findall(r"<script>", text)) == text.count("'sha256-") == 1


def with_text(text):
    """A run in which many names are this text."""
    table = cleaned_table(40, 3, known=1)
    ids, annotators = table.ids.copy(), table.votes.annotators.astype(object)
    ids[0], annotators[annotators == "worker0"] = text, text
    return replace(
        with_record(
            table,
            classes=[text, "b", "c"],
            prior={**PRIOR, "regime": text, "because": text},
            choice=text,
            config={**table.record["config"], "method": text},
            environment={text: text},
        ),
        ids=ids,
        votes=table.votes._replace(annotators=annotators),
        shown={text: np.full(40, text, dtype=object)},
        pictures={},
    )


def test_hostile_text_is_shown_as_text():
    text = render_cleaning_page(with_text(HOSTILE), HOSTILE)
    assert "<img" not in text
    assert data_of(text)["classes"][0] == data_of(text)["examples"][0]["id"] == HOSTILE

    def tags(page):
        page = re.sub(r"<script.*?</script>|</?bdi>", "", page, flags=re.DOTALL)
        return re.findall(r"<(/?[a-z0-9]+)", page)

    assert tags(text) == tags(render_cleaning_page(with_text("worker0"), "worker0"))
    assert html.escape(HOSTILE, quote=False)[:20] in text


def test_text_in_another_direction_stays_by_itself_and_its_controls_are_shown():
    hebrew, hostile, shown = (
        "\u05e9\u05d5\u05e2\u05dc 2",
        "\u202eexe\u2069\u202d",
        "\ufffdexe\ufffd\ufffd",
    )
    text = render_cleaning_page(with_text(hostile), hostile)
    assert not re.search(r"[\u202a-\u202e\u2066-\u2069]|\\\\u20[26]", text)
    assert f"<title>{shown}</title>" in text
    assert f"<bdi>&#34;{shown}&#34;</bdi>: <bdi>&#34;{shown}&#34;</bdi>" in text
    assert data_of(text)["classes"][0] == data_of(text)["examples"][0]["id"] == shown
    text = render_cleaning_page(with_text(hebrew), hebrew)
    assert f"<bdi>&#34;{hebrew}&#34;</bdi>" in text
    assert f"<bdi>{hebrew}</bdi> (" in text


@pytest.mark.parametrize(
    ("sentence", "shown"),
    [
        ("answer 20 rows (`ltpll review`).", "answer 20 rows (<code>ltpll review</code>)."),
        ("`<b>` & <i>", "<code>&lt;b&gt;</code> &amp; &lt;i&gt;"),
        ("the class a`b", "the class a`b"),
        ("plain", "plain"),
    ],
)
def test_what_stands_between_backticks_is_code(sentence, shown):
    assert str(with_code(sentence)) == shown


def test_a_page_that_cannot_be_written_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be written"):
        write_cleaning_page(tmp_path, cleaned_table())


def test_the_page_is_made_without_torch():
    code = "import sys, ltpll.report.cleaning_page; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@needs_browser
def test_a_browser_shows_searches_and_pages_the_examples_and_runs_no_hostile_text(
    tmp_path, listener
):
    attack = "".join(payloads(listener.server_port))
    run = with_text(attack)
    suspicion = np.where(np.arange(40) % 5, 0, 0.95).astype(np.float32)
    labels = replace(run.labels, suspicion=suspicion, judged=np.ones(40, dtype=bool))
    run = replace(run, labels=labels, pictures=dict.fromkeys(range(40), picture()))
    flagged = int(run.labels.issue.sum())
    assert 0 < flagged < 20
    path = tmp_path / "page.html"
    steps = """
    const seen = [];
    const count = () => document.querySelectorAll("#cards .card").length;
    const look = () => seen.push([count(), document.getElementById("found").textContent]);
    look();
    const kind = document.getElementById("kind"), text = document.getElementById("text");
    kind.value = "all"; kind.dispatchEvent(new Event("change")); look();
    document.getElementById("more").click(); look();
    text.value = "E17"; text.dispatchEvent(new Event("input")); look();
    text.value = "no such thing"; text.dispatchEvent(new Event("input")); look();
    text.value = ""; kind.value = "flagged"; text.dispatchEvent(new Event("input")); look();
    kind.value = "doubtful"; text.dispatchEvent(new Event("input"));
    document.body.dataset.seen = JSON.stringify(seen);
    """
    # The policy would refuse the script that clicks.
    text = re.sub(r"<meta http-equiv=.*?>", "", render_cleaning_page(run, "unchanged"))
    path.write_text(text.replace("</body>", f"<script>{steps}</script></body>"))
    shown, errors = in_browser(path, tmp_path)
    assert "CONSOLE" not in errors
    assert "<title>unchanged</title>" in shown
    assert not is_owned(shown)
    assert listener.asked == []
    seen = json.loads(html.unescape(re.search(r'data-seen="(.*?)"', shown)[1]))
    assert seen == [
        [20, "20 of 40 shown"],
        [20, "20 of 40 shown"],
        [40, "40 of 40 shown"],
        [1, "1 of 1 shown"],
        [0, "No example matches."],
        [flagged, f"{flagged} of {flagged} shown"],
    ]
    cards = re.findall(
        r'<article class="card">(.*?)</article>',
        shown[shown.index('id="cards"') :],
        flags=re.DOTALL,
    )
    assert len(cards) == sum(card.count("<img") for card in cards) == 20
    assert all("confidence" in card for card in cards)
    write_cleaning_page(path, run, "unchanged")  # with its policy
    shown, errors = in_browser(path, tmp_path)
    assert "CONSOLE" not in errors
    assert shown.count('<article class="card">') == 20
