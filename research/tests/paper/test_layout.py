"""Tables like the paper's: methods down, settings across, and differences in training named."""

from docs_blocks.layout import lay_out
from docs_blocks.reproduction import identities_with_runs, markdown
from ltpll_research.paper.catalog import ITEMS
from ltpll_research.paper.compare import ComparedCell, compare
from ltpll_research.paper.grid import Finished
from ltpll_research.summary import Figure
from support.paper_runs import paper_record

POSTHOC = {"oracle-la-posthoc": (0.36, 0.37)}


def laid_out(*records, item="main", seeds=1):
    return lay_out(ITEMS[item], compare(ITEMS[item], Finished(records), seeds, {}))


def test_markdown_has_methods_down_and_settings_across_without_empty_rows_and_columns():
    records = [
        paper_record(0, 0.39, 0.41),
        paper_record(0, 0.34, 0.35, "none", POSTHOC),
        paper_record(0, 0.75, 0.76, data="cifar10", ambiguity=0.5),
    ]
    lines = markdown(laid_out(*records)).splitlines()
    assert lines[0].split(" | ")[1:] == ["CIFAR-10-LT ρ=100 q=0.5", "CIFAR-100-LT ρ=100 q=0.05 |"]
    assert lines[2:5] == [
        "| corr | –<br>50.09 | 34.00 (35.00)<br>34.09, −0.09 |",
        "| corr + oracle-la-posthoc | –<br>54.64 | 36.00 (37.00)<br>36.79, −0.79 |",
        "| corr + records | 75.00 (76.00)<br>72.90, **+2.10** | 39.00 (41.00)<br>40.59, −1.59 |",
    ]
    assert lines[6].startswith("*800 epochs; n = 1. 4 of 208 cells have runs;")
    assert len(lines) == 7


def test_an_item_without_runs_has_no_table():
    assert laid_out() is None


def test_seeds_are_counted_once_if_they_agree_and_in_each_cell_if_not():
    three = [paper_record(seed, last, 0.42) for seed, last in enumerate((0.39, 0.40, 0.41))]
    agree = markdown(laid_out(*three, seeds=3))
    assert "| 40.00 ± 1.00 (42.00)<br>40.59, −0.59 |" in agree
    assert "n = 3. 1 of 208 cells has runs" in agree
    differ = markdown(laid_out(*three, paper_record(0, 0.34, 0.35, "none", POSTHOC), seeds=3))
    assert "| 40.00 ± 1.00 (42.00)<br>40.59, −0.59 (n = 3) |" in differ
    assert "| 34.00 (35.00)<br>34.09, −0.09 (n = 1) |" in differ
    assert "800 epochs; n in each cell." in differ


def test_cells_that_were_trained_otherwise_than_most_say_so_in_the_row_of_their_system():
    item = ITEMS["dynamic"]
    full, short = (
        ComparedCell(Figure(40.0, None, 1), None, 41.0, departures=how)
        for how in ((), ("200 epochs", "lr = 0.05"))
    )
    old = ComparedCell(Figure(30.0, None, 1), None, 41.0, edition=1)
    nothing = ComparedCell(None, None, 41.0)
    cells = [[full] * 12, [short] * 6 + [old] * 6, [full, short, *[nothing] * 10], [nothing] * 12]
    found = lay_out(item, cells)
    assert [label for label, _ in found.tables[0].rows] == [
        "corr",
        "corr + temp-oracle-la",
        "corr + epoch-records",
    ]
    assert found.note.startswith(
        "800 epochs unless a row or a cell says otherwise; n = 1. 26 of 48 cells"
    )
    notes = [
        {label: [cell.note for cell in row] for label, row in table.rows} for table in found.tables
    ]
    assert notes[0]["corr"] == [""] * 6
    assert notes[0]["corr + temp-oracle-la"] == ["(200 epochs, lr = 0.05)"] * 6
    assert notes[1]["corr + temp-oracle-la"] == ["(edition 1)"] * 6
    assert notes[0]["corr + epoch-records"] == ["", "(200 epochs, lr = 0.05)", *[""] * 4]
    mostly_old = lay_out(item, [[old] * 12, [old] * 11 + [full], [nothing] * 12, [nothing] * 12])
    assert mostly_old.note.startswith(
        "800 epochs, edition 1 unless a row or a cell says otherwise; n = 1."
    )
    assert mostly_old.tables[1].rows[1][1][-1].note == "(as the row says)"


def test_every_system_has_one_row_whatever_its_protocol():
    item = ITEMS["systems"]
    rows = {"la": (0.5, 0.6), "head": (0.3, 0.4), "tail": (0.6, 0.7)}
    records = [
        paper_record(0, 0.40, 0.41, posthoc=rows, **cell.setting)
        for line in item.lines
        for cell in line.cells
    ]
    found = laid_out(*records, item="systems")
    (table,) = found.tables
    assert [label for label, _ in table.rows] == [line.label for line in item.lines]
    assert all(cell.ours and not cell.note for _, row in table.rows for cell in row)
    assert found.note.startswith(
        "800 epochs unless a row or a cell says otherwise; n = 1. 36 of 36 cells have runs;"
    )


def test_a_wide_table_is_split_by_image_set_and_then_by_setting():
    def tables(name):
        item = ITEMS[name]
        cell = ComparedCell(Figure(40.0, None, 1), None, 41.0)
        return {
            table.caption: list(table.columns)
            for table in lay_out(item, [[cell] * len(item.columns) for _ in item.lines]).tables
        }

    by_ambiguity = [
        "ρ=50 q=0.03",
        "ρ=50 q=0.05",
        "ρ=50 q=0.07",
        "ρ=100 q=0.03",
        "ρ=100 q=0.05",
        "ρ=100 q=0.07",
    ]
    assert tables("nu") == {"CIFAR-100-LT-NU": by_ambiguity}
    main = tables("main")
    assert main == {
        "CIFAR-10-LT": [c.replace("0.0", "0.") for c in by_ambiguity],
        "CIFAR-100-LT": by_ambiguity,
        "": ["PASCAL VOC"],
    }
    sizes = ["many", "medium", "few", "overall"]
    assert tables("fine-grained") == {
        f"CIFAR-100-LT ρ=100 q={q}": sizes for q in ("0.03", "0.05", "0.07")
    }


def test_a_page_gets_the_tables_that_have_runs_and_marks_large_differences():
    records = [paper_record(0, 0.30, 0.41), paper_record(0, 0.34, 0.35, "none", POSTHOC)]
    (table,) = laid_out(*records).tables
    marks = {
        label: [(cell.difference, cell.marked) for cell in cells] for label, cells in table.rows
    }
    assert marks == {
        "corr": [("−0.09", False)],
        "corr + oracle-la-posthoc": [("−0.79", False)],
        "corr + records": [("−10.59", True)],
    }


def test_tables_that_repeat_numbers_share_their_identities():
    finished = Finished([paper_record(0, 0.39, 0.41)])
    main, dynamic, fine = (
        identities_with_runs(ITEMS[name], compare(ITEMS[name], finished, 1, {}))
        for name in ("main", "dynamic", "fine-grained")
    )
    assert len(main) == 1
    assert (
        main == dynamic == fine
    )  # of the fine-grained columns, this record has the overall accuracy only
