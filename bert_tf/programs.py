"""The programs of tools/: where they are, what each is for, and which of them are installed.

setup.py runs this file before anything is installed, so it imports only the standard library.
"""

import ast
import fnmatch
import pathlib

# What the programs are for, in the order of `bert-tf --help`. A name may be a pattern. A program
# that no group names is listed under `OTHER`.
GROUPS = {
    "Text and pre-training data": (
        "build_vocab",
        "tokenize_text",
        "create_pretraining_data",
        "beam_build_vocab",
        "beam_create_pretraining_data",
    ),
    "Pre-training": ("run_pretraining", "plan_training", "launch_workers"),
    "Fine-tuning": (
        "run_classifier",
        "run_ner",
        "run_squad",
        "run_swag",
        "run_sentence_encoder",
        "run_translation",
        "run_summarization",
    ),
    "Evaluation": ("evaluate", "evaluate_retrieval", "compare_models", "compare_runs", "inspect"),
    "Prediction": ("predict", "extract_features", "beam_predict"),
    "Search": ("build_index", "search"),
    "Compression": ("quantize_model", "distill", "prune_heads"),
    "Conversion and export": ("convert_checkpoint", "export_saved_model", "export_onnx"),
    "Serving": ("serve", "serving_client", "benchmark_serving"),
    "Data sets and baselines": (
        "fetch_materials",
        "prepare_*",
        "baseline_*",
        "ner_baseline",
        "train_baseline_encoder",
        "compare_encoders",
        "compare_word_senses",
    ),
    "Development": (
        "demo",
        "benchmark",
        "benchmark_beam*",
        "benchmark_long_texts",
        "check_cuda_kernels",
        "unicode_differences",
    ),
}
OTHER = "Other programs"
# Programs whose file has another name: tools/ is on the path of modules, where inspect.py would
# replace that of the standard library.
FILES = {"inspect": "inspect_model"}
# The programs of these groups work on this project and its data: they need a checkout and are not
# installed with the package.
NEED_CHECKOUT = ("Data sets and baselines", "Development")


def directory() -> pathlib.Path:
    """Returns the folder of the programs: in the installed package, or tools/ of the checkout."""
    package = pathlib.Path(__file__).resolve().parent
    installed = package / "_tools"
    return installed if installed.is_dir() else package.parent / "tools"


def group_of(name: str) -> str:
    """Returns the group of a program.

    Example:
        >>> group_of("run_squad")
        'Fine-tuning'
        >>> group_of("prepare_chinese_news")
        'Data sets and baselines'
    """
    for group, patterns in GROUPS.items():
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns):
            return group
    return OTHER


def needs_checkout(name: str) -> bool:
    """Returns whether a program is left out of the installed package."""
    return group_of(name) in NEED_CHECKOUT


def names() -> list[str]:
    """Returns the names of the programs that are here, sorted."""
    program_of = {file: name for name, file in FILES.items()}
    stems = (path.stem for path in directory().glob("*.py") if path.stem != "__init__")
    return sorted(program_of.get(stem, stem) for stem in stems)


def file_of(name: str) -> pathlib.Path:
    """Returns the file of a program.

    Example:
        >>> file_of("inspect").name, file_of("serve").name
        ('inspect_model.py', 'serve.py')
    """
    return directory() / f"{FILES.get(name, name)}.py"


def members(group: str) -> list[str]:
    """Returns the programs of a group that are here, in the order of `GROUPS`.

    Example:
        >>> members("Pre-training")[0]
        'run_pretraining'
    """
    found = [name for name in names() if group_of(name) == group]
    patterns = GROUPS.get(group, ("*",))
    return list(dict.fromkeys(name for p in patterns for name in fnmatch.filter(found, p)))


def summary(name: str) -> str:
    """Returns the first line of a program's docstring, without importing the program.

    Example:
        >>> summary("build_vocab")
        'Learns a vocabulary from text files.'
    """
    source = file_of(name).read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
