"""The notebooks run from top to bottom in a Jupyter kernel."""

import pytest

from tools.render_gallery import NOTEBOOKS, SCRIPTS

NEEDS = "run by `make interop`, which installs nbclient and ipykernel"
nbclient = pytest.importorskip("nbclient", reason=NEEDS)
nbformat = pytest.importorskip("nbformat", reason=NEEDS)
pytest.importorskip("ipykernel", reason=NEEDS)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_and_shows_its_figure(name, tmp_path):
    notebook = nbformat.read(SCRIPTS / f"{name}.ipynb", as_version=4)
    nbformat.validate(notebook)
    stored = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    where = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3", resources=where).execute()
    made = [cell.outputs for cell in notebook.cells if cell.cell_type == "code"]
    assert [bool(printed(one)) for one in made] == [bool(printed(one)) for one in stored]
    figures = [output for one in made for output in one if "data" in output]
    assert any("image/png" in output.data for output in figures)
    assert (tmp_path / f"{name}.png").is_file()


def printed(outputs):
    return "".join(output.text for output in outputs if output.output_type == "stream")
