"""The notebooks of docs/notebooks: they run to their end, and show what their cells print.

`make test` checks what can be seen without running them; the full suite executes all.
"""

import ast
import base64
import importlib
import importlib.util
import os
import re
import time

import nbformat
import pytest

from tests.conftest import MATERIALS, REPOSITORY
from tests.document_blocks import commands, program_of
from tests.tools.running import TOOLS, run, run_program

spec = importlib.util.spec_from_file_location("run_notebooks", REPOSITORY / "docs/run_notebooks.py")
run_notebooks = importlib.util.module_from_spec(spec)
spec.loader.exec_module(run_notebooks)

FOLDER = run_notebooks.NOTEBOOKS
PATHS = sorted(FOLDER.glob("*.ipynb"))
LARGEST_PICTURE = 60_000  # bytes
LARGEST_NOTEBOOK = 150_000
# What an executed notebook must have reached: a condition on its own variables. The bounds leave
# room for another processor's rounding and for other versions of TensorFlow.
REACHED = {
    "chinese": "auc > 0.8",
    "first_steps": "accuracy > 0.7",
    "int8_and_serving": "accuracy['int8'] > accuracy['float32'] - 0.02 and server.returncode == 0",
    "pretraining": "loss < entropy",
    "question_answering": "exact > 0.5",
    "sentence_search": "same_kind > 0.57",
    "tagging": "f1 > 0.3",
}
# Materials that not every machine can have: they are Debian packages.
OF_DEBIAN = {"pretraining": "ordered_text", "question_answering": "ordered_text"}
# A path or an address of the machine that executed a notebook.
_OF_A_MACHINE = re.compile(r"/(?:home|root|tmp|usr|work|mnt|var)/|https?://[\w.]+:\d+")

each_notebook = pytest.mark.parametrize("path", PATHS, ids=lambda path: path.stem)


def read(path):
    return nbformat.read(path, as_version=4)


def sources(notebook, kind):
    return [cell.source for cell in notebook.cells if cell.cell_type == kind]


def printed(notebook):
    """The text of all outputs."""
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            yield output.get("text", "")
            data = output.get("data", {})
            yield from (text for form, text in data.items() if form != "image/png")


def pictures(notebook):
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if "image/png" in output.get("data", {}):
                yield base64.b64decode(output["data"]["image/png"])


@each_notebook
def test_the_format_is_valid(path):
    notebook = read(path)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    assert notebook.cells[0].source.startswith("# ")
    assert "make materials" in notebook.cells[0].source


@each_notebook
def test_outputs_are_those_of_the_cells(path):
    """Of one run from top to bottom: `python docs/run_notebooks.py` writes them again."""
    notebook = read(path)
    assert notebook.metadata[run_notebooks.DIGEST] == run_notebooks.digest(notebook)
    counts = [cell.execution_count for cell in notebook.cells if cell.cell_type == "code"]
    assert counts == list(range(1, len(counts) + 1))
    kinds = {output.output_type for cell in notebook.cells for output in cell.get("outputs", [])}
    assert "error" not in kinds
    run_notebooks.keep_what_lasts(notebook)
    assert notebook == read(path)


@each_notebook
def test_outputs_are_small_and_of_no_machine(path):
    notebook = read(path)
    sizes = [len(picture) for picture in pictures(notebook)]
    assert sizes and max(sizes) < LARGEST_PICTURE
    assert path.stat().st_size < LARGEST_NOTEBOOK
    found = [text for text in printed(notebook) if _OF_A_MACHINE.search(text)]
    assert not found


def unknown_names(source):
    """The names below `bert_tf` in a cell that do not exist."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "bert_tf":
            module = importlib.import_module(node.module)
            yield from (name.name for name in node.names if not hasattr(module, name.name))
        elif isinstance(node, ast.Attribute) and ast.unparse(node).startswith("bert_tf."):
            *above, name = ast.unparse(node).split(".")
            place = importlib.import_module("bert_tf")
            for part in above[1:]:
                place = getattr(place, part)
            if not hasattr(place, name):
                yield name


@each_notebook
def test_what_the_cells_name_exists(path):
    """Plain Python, without commands of IPython; names of `bert_tf`; files of the materials."""
    code = "\n".join(sources(read(path), "code"))
    assert not list(unknown_names(code))
    files = re.findall(r'materials / "([^"]+)"', code)
    assert files
    needed = OF_DEBIAN.get(path.stem)
    missing = [file for file in files if file != needed and not (MATERIALS / file).exists()]
    assert not missing


@each_notebook
def test_links_lead_somewhere(path):
    text = "\n".join(sources(read(path), "markdown"))
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    missing = [link for link in links if not (FOLDER / link.partition("#")[0]).is_file()]
    assert links and not missing


def test_commands_have_the_flags_that_are_shown(tmp_path):
    text = "\n".join(text for path in PATHS for text in sources(read(path), "markdown"))
    block = "\n".join(re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE))
    found = [line for line in commands(block, tmp_path) if line[0] == "bert-tf"]
    assert {program_of(line) for line in found} <= set(TOOLS) and found
    for line in found:
        shown = run(program_of(line), "--help").stdout
        for flag in line[2:]:
            name = flag.removeprefix("--").partition("=")[0]
            assert re.search(rf"^  --(\[no\])?{name}\b", shown, re.MULTILINE), f"{line[1]}: {flag}"


@pytest.mark.parametrize("directory", [REPOSITORY, FOLDER], ids=["checkout", "docs/notebooks"])
def test_the_first_cell_finds_the_checkout(directory):
    """From where Jupyter is started; it is the same in all notebooks."""
    (first,) = {sources(read(path), "code")[0] for path in PATHS}
    code = f"{first}\nprint(checkout)\nimport research.corpora, bert_tf"
    result = run_program("-c", code, cwd=directory, env={"PATH": os.environ["PATH"]})
    assert result.stdout.strip() == str(REPOSITORY), result.stderr


def test_the_table_has_the_result_of_each():
    table = (FOLDER / "README.md").read_text(encoding="utf-8")
    row = r"^\| \[\w+\]\((\w+)\.ipynb\) \| [^|]+ \| [^|]*\d[^|]* \| (\d+) \|$"
    minutes = {name: int(number) for name, number in re.findall(row, table, re.MULTILINE)}
    assert set(minutes) == {path.stem for path in PATHS} == set(REACHED)
    assert set(run_notebooks.RESULTS) == set(REACHED)


def test_a_result_goes_into_its_row():
    table = "| notebook |\n| [a](a.ipynb) | shows | old | 1 |\n| [ab](ab.ipynb) | b | 0.5 | 3 |\n"
    new = run_notebooks.with_result(table, "a", "F1 0.9", 2)
    assert new == table.replace("| old | 1 |", "| F1 0.9 | 2 |")


def test_what_lasts():
    """Times, stderr and the size of a figure go; what was printed and shown stays."""
    code = nbformat.v4.new_code_cell("fit()", execution_count=1)
    code.metadata["execution"] = {"iopub.execute_input": "2026-01-01"}
    line = "12/12 - 3s - 250ms/step - loss: 0.7000\n"
    code.outputs = [
        nbformat.v4.new_output("stream", name="stderr", text="warning"),
        nbformat.v4.new_output("stream", name="stdout", text=line),
        nbformat.v4.new_output("display_data", {"text/plain": "<Figure>", "image/png": "AAAA"}),
    ]
    notebook = nbformat.v4.new_notebook(cells=[code])
    run_notebooks.keep_what_lasts(notebook)
    text, picture = notebook.cells[0].outputs
    assert text.text == "12/12 - loss: 0.7000\n" and picture.data == {"image/png": "AAAA"}
    assert not notebook.cells[0].metadata
    before = notebook.metadata[run_notebooks.DIGEST]
    notebook.cells[0].source = "fit(again)"
    assert run_notebooks.digest(notebook) != before


@pytest.mark.full
@each_notebook
def test_it_runs_to_its_end(path):
    """In the folder of the notebooks; the pre-training, as an example, in the checkout."""
    for package in ("nbclient", "ipykernel"):
        pytest.importorskip(package, reason="needs nbclient and ipykernel")
    if path.stem in OF_DEBIAN and not (MATERIALS / OF_DEBIAN[path.stem]).exists():
        pytest.skip("needs apt-get")
    directory = REPOSITORY if path.stem == "pretraining" else FOLDER
    start = time.monotonic()
    result = f'print(f"{run_notebooks.RESULTS[path.stem]}"); print({REACHED[path.stem]})'
    shown = run_notebooks.execute(read(path), directory, result, run_notebooks.SECONDS)
    assert shown.endswith("\nTrue"), shown
    assert time.monotonic() - start < run_notebooks.SECONDS
