r"""Prints which property is tested for which task and which family, from what pytest collects.

    python -m tests.properties  # the tables of docs/verification.md

A cell says which suite runs the test: `test` for `make test` too, `full` for `make test-full` only.
"""

import re
import subprocess
import sys

from tests.conftest import REPOSITORY

# The name of a property and the test of it, by what the tests are repeated for.
PROPERTIES = {
    "task": {
        "batch = its rows": "conformance/test_training.py::test_one_answer_however_the_rows_come",
        "packed = padded": "conformance/test_rows.py::test_padding_may_be_anywhere",
        "XLA = graph": "conformance/test_rows.py::test_padding_may_be_anywhere_under_xla",
        "int8 packed = padded": (
            "conformance/test_rows.py::test_padding_may_be_anywhere_with_integers"
        ),
        "int8 near float32": "conformance/test_models.py::test_quantized",
        "bfloat16 near float32": "conformance/test_models.py::test_mixed_precision",
        "answers = outputs": "conformance/test_models.py::test_answers_are_those_of_the_outputs",
        "opened = saved": "conformance/test_saving.py::test_save_pretrained",
        "served = exported = model": "conformance/test_serving.py::test_served_answers",
        "step of XLA = step": "conformance/test_training.py::test_xla_takes_the_same_step",
        "parts = batch": "conformance/test_training.py::test_parts_of_a_batch_are_the_batch",
        "2 replicas = 1": "conformance/test_replicas.py::test_two_replicas_are_one",
    },
    "family": {
        "states of transformers": "checkpoints/test_families.py::test_hidden_states",
        "gradients of transformers": "checkpoints/test_families.py::test_gradients",
        "opened = saved = int8 = LoRA = exported": (
            "checkpoints/test_families.py::test_every_form_of_the_model"
        ),
        "states of a float64 reference": (
            "checkpoints/test_families.py::test_written_and_read_without_transformers"
        ),
    },
}
_VARIANTS = re.compile(r"-(native|reference|True|False|mixed_\w+|huggingface|bert_tf|tf1)$")


def collected(*marks: str) -> set[str]:
    """Returns the ids of the tests of all properties; `-m ""` also collects the full suite."""
    files = {test.partition("::")[0] for tests in PROPERTIES.values() for test in tests.values()}
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", *marks]
    command += [f"tests/{file}" for file in sorted(files)]
    options = {"cwd": REPOSITORY, "text": True, "check": True, "stdout": subprocess.PIPE}
    return set(subprocess.run(command, stderr=subprocess.DEVNULL, **options).stdout.splitlines())


def table(kind: str, usual: set[str], every: set[str]) -> list[str]:
    """Returns the lines of the table of tasks or families."""
    properties = PROPERTIES[kind]
    cells = {}
    for test in sorted(every):
        for name, prefix in properties.items():
            found = re.fullmatch(rf"tests/{re.escape(prefix)}\[(.*)\]", test)
            if found:
                row = cells.setdefault(_VARIANTS.sub("", found[1]), {})
                row[name] = "test" if test in usual else row.get(name, "full")
    lines = [f"| {kind} | {' | '.join(properties)} |", "|---" * (1 + len(properties)) + "|"]
    for row in sorted(cells):
        of_row = [cells[row].get(name, "") for name in properties]
        lines.append(f"| {row} | {' | '.join(of_row)} |")
    return lines


def main():
    usual, every = collected(), collected("-m", "")
    print("\n\n".join("\n".join(table(kind, usual, every)) for kind in PROPERTIES))


if __name__ == "__main__":
    main()
