"""Executes the notebooks of docs/notebooks: `make notebooks`.

    python docs/run_notebooks.py docs/notebooks/first_steps.ipynb

The outputs are saved in the notebooks, so that they can be read without running them. What belongs
to one machine or one run is left out: stderr and the times of Keras's progress lines. The notebook
notes the digest of the cells that made its outputs; tests/notebooks compares it with the cells.

`make materials` must have run. A notebook that fails is not saved, and ends the program.
"""

import argparse
import hashlib
import os
import pathlib
import re
import time

import nbformat

from bert_tf.progress import progress_bar

NOTEBOOKS = pathlib.Path(__file__).resolve().parent / "notebooks"
CHECKOUT = NOTEBOOKS.parent.parent
SECONDS = 600  # the longest that a notebook may take on two cores
DIGEST = "digest_of_executed_cells"  # in the notebook's metadata
# Where Keras's line of an epoch says how long it took: "12/12 - 3s - 250ms/step - loss: 0.7".
_TIMES = re.compile(r" - \d+s - \d+\w?s/(?:step|epoch)")


def digest(notebook: nbformat.NotebookNode) -> str:
    """Returns the SHA-256 of the sources of the code cells, in their order."""
    sources = [cell.source for cell in notebook.cells if cell.cell_type == "code"]
    return hashlib.sha256("\0".join(sources).encode("utf-8")).hexdigest()


def execute(
    notebook: nbformat.NotebookNode, directory: pathlib.Path = NOTEBOOKS, seconds: float = SECONDS
) -> None:
    """Executes all cells of a notebook in a new kernel, which imports this checkout's `bert_tf`.

    Args:
        notebook: The notebook; the outputs are put into it.
        directory: The working directory of the kernel.
        seconds: The longest that one cell may take.

    Raises:
        nbclient.exceptions.CellExecutionError: If a cell raises an exception.
        nbclient.exceptions.CellTimeoutError: If a cell takes longer.
    """
    from nbclient import NotebookClient

    path = os.pathsep.join([str(CHECKOUT), *filter(None, [os.environ.get("PYTHONPATH")])])
    resources = {"metadata": {"path": str(directory)}}
    with progress_bar(len(notebook.cells), "cells", unit="cell") as bar:
        client = NotebookClient(
            notebook,
            timeout=seconds,
            kernel_name="python3",
            resources=resources,
            on_cell_complete=lambda **_: bar.update(),
        )
        client.execute(env={**os.environ, "PYTHONPATH": path})


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
    output.text = _TIMES.sub("", output.text)
    return output


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("notebooks", nargs="*", type=pathlib.Path, metavar="NOTEBOOK")
    for path in parser.parse_args().notebooks or sorted(NOTEBOOKS.glob("*.ipynb")):
        start = time.monotonic()
        notebook = nbformat.read(path, as_version=4)
        execute(notebook)
        keep_what_lasts(notebook)
        nbformat.write(notebook, path)
        print(f"{path.name}: {time.monotonic() - start:.0f} s", flush=True)


if __name__ == "__main__":
    main()
