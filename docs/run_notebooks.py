"""Executes the notebooks of docs/notebooks: `make notebooks`.

    python docs/run_notebooks.py docs/notebooks/first_steps.ipynb

The outputs are saved in the notebooks, so that they can be read without running them. What belongs
to one machine or one run is left out: stderr, and the times of Keras's progress lines. A notebook
notes the digest of the cells that made its outputs; tests/notebooks compares it with the cells.
What a notebook reached, and the minutes that it took, go into the table of the README.md there.

`make materials` must have run. A notebook that fails is not saved, and ends the program.
"""

import argparse
import hashlib
import math
import os
import pathlib
import re
import time

import nbformat

from bert_tf.base.progress import progress_bar

NOTEBOOKS = pathlib.Path(__file__).resolve().parent / "notebooks"
CHECKOUT = NOTEBOOKS.parent.parent
SECONDS = 600  # the longest that a notebook may take on two cores
DIGEST = "digest_of_executed_cells"  # in the notebook's metadata
# What the table says that a notebook reached, of the variables that it has at its end.
RESULTS = {
    "chinese": "AUC {auc:.3f}; TF-IDF {scores['TF-IDF']['auc']:.3f}",
    "first_steps": "accuracy {accuracy:.3f}; the most frequent label {majority:.3f}",
    "int8_and_serving": "{size['int8']:.0f} instead of {size['float32']:.0f} MB; accuracy "
    "{accuracy['int8']:.3f} instead of {accuracy['float32']:.3f}",
    "pretraining": "held-out loss {loss:.2f}; word frequencies {entropy:.2f}",
    "question_answering": "exact match {exact:.3f}; the nearest name {exact_of_baseline:.3f}",
    "sentence_search": "neighbours of the same kind {same_kind:.3f}; TF-IDF "
    "{same_kind_by_words:.3f}",
    "tagging": "F1 of names {f1:.3f} with a CRF, {scores['tag by tag']['f1']:.3f} without",
}
# "INFO:tensorflow:Assets written to: …"
_MESSAGES = re.compile(r"^INFO:tensorflow:.*\n", re.MULTILINE)
# Where Keras's line of an epoch says how long it took: "12/12 - 3s - 250ms/step - loss: 0.7".
_TIMES = re.compile(r" - \d+s - \d+\w?s/(?:step|epoch)")


def digest(notebook: nbformat.NotebookNode) -> str:
    """Returns the SHA-256 of the sources of the code cells, in their order."""
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    return hashlib.sha256("\0".join(sources).encode("utf-8")).hexdigest()


def execute(
    notebook: nbformat.NotebookNode, directory: pathlib.Path, last_cell: str, seconds: float
) -> str:
    """Executes all cells of a notebook in a new kernel, which imports this checkout's `bert_tf`.

    Args:
        notebook: The notebook; the outputs are put into it.
        directory: The working directory of the kernel.
        last_cell: Code that runs after the cells and is not kept in the notebook.
        seconds: The longest that one cell may take.

    Returns:
        What the last cell printed.

    Raises:
        nbclient.exceptions.CellExecutionError: If a cell raises an exception.
        nbclient.exceptions.CellTimeoutError: If a cell takes longer.
    """
    from nbclient import NotebookClient

    path = os.pathsep.join([str(CHECKOUT), *filter(None, [os.environ.get("PYTHONPATH")])])
    notebook.cells.append(nbformat.v4.new_code_cell(last_cell))
    with progress_bar(total=len(notebook.cells), desc="cells", unit="cell") as bar:
        client = NotebookClient(
            notebook,
            timeout=seconds,
            kernel_name="python3",
            resources={"metadata": {"path": str(directory)}},
            on_cell_complete=lambda **_: bar.update(),
        )
        client.execute(env={**os.environ, "PYTHONPATH": path})
    outputs = notebook.cells.pop().outputs
    return "".join(output.text for output in outputs if output.get("name") == "stdout").strip()


def keep_what_lasts(notebook: nbformat.NotebookNode) -> None:
    """Removes from an executed notebook what another run would not show again."""
    for cell in notebook.cells:
        cell.metadata.clear()
        if cell.cell_type == "code":
            cell.outputs = [output for output in map(_lasting, cell.outputs) if output is not None]
    notebook.metadata.language_info = {"name": "python"}
    notebook.metadata[DIGEST] = digest(notebook)


def _lasting(output):
    if output.output_type != "stream":
        if "image/png" in output.data:  # instead of "<Figure size 640x480 with 1 Axes>"
            output.data = {"image/png": output.data["image/png"]}
        return output
    if output.name == "stderr":
        return None
    output.text = _TIMES.sub("", _MESSAGES.sub("", output.text))
    return output if output.text else None


def with_result(table: str, name: str, result: str, minutes: int) -> str:
    """Returns a table in Markdown with another result and time in the row of a notebook.

    Example:
        >>> with_result("| [a](a.ipynb) | shows | old | 1 |", "a", "new", 2)
        '| [a](a.ipynb) | shows | new | 2 |'
    """
    row = re.compile(rf"^(\| \[{name}\]\({name}\.ipynb\) \| [^|]* \|).*$", re.MULTILINE)
    return row.sub(lambda match: f"{match[1]} {result} | {minutes} |", table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=pathlib.Path, metavar="NOTEBOOK")
    parser.add_argument(
        "--seconds",
        type=float,
        default=SECONDS,
        help="the longest that one cell may take; more on a machine that is busy",
    )
    arguments = parser.parse_args()
    for path in arguments.notebooks or sorted(NOTEBOOKS.glob("*.ipynb")):
        start = time.monotonic()
        notebook = nbformat.read(path, as_version=4)
        last_cell = f'print(f"{RESULTS[path.stem]}")'
        result = execute(notebook, NOTEBOOKS, last_cell, arguments.seconds)
        minutes = math.ceil((time.monotonic() - start) / 60)
        keep_what_lasts(notebook)
        nbformat.write(notebook, path)
        readme = NOTEBOOKS / "README.md"
        table = with_result(readme.read_text("utf-8"), path.stem, result, minutes)
        readme.write_text(table, "utf-8")
        print(f"{path.name}: {result}, {minutes} minutes", flush=True)


if __name__ == "__main__":
    main()
