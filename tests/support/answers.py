"""Files of answers, as the page of `ltpll review` lets people download them."""

from ltpll.cleaning.review import choose_questions
from ltpll.cleaning.stored_tables import read_cleaned
from support.user_tables import write_csv


def answered_questions(path, run, answer, n=8, sample=4):
    """Write a file with `answer(k, label)` for the k-th question; returns its rows."""
    table = read_cleaned(run, answered=False)
    questions, sets, names = choose_questions(table, n, sample), table.sets(), table.classes
    rows = [
        [table.ids[i], sets[i], answer(k, names[table.labels.label[i]]), asked, probability]
        for k, (i, asked, probability) in enumerate(zip(*questions, strict=True))
    ]
    return rows, write_csv(path, ["id", "candidates", "answer", "asked", "probability"], rows)
