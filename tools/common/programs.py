"""The programs of tools/: where they are, and what each is for."""

import ast
import pathlib

# What the programs are for, in the order of `bert-tf --help`.
GROUPS = {
    "Text and pre-training data": (
        "build_vocab",
        "tokenize_text",
        "create_pretraining_data",
        "beam_build_vocab",
        "beam_create_pretraining_data",
    ),
    "Pre-training": ("run_pretraining", "estimate_memory", "launch_workers"),
    "Fine-tuning": (
        "run_classifier",
        "run_ner",
        "run_squad",
        "run_swag",
        "run_sentence_encoder",
        "run_translation",
        "run_summarization",
    ),
    "Evaluation": (
        "evaluate",
        "evaluate_retrieval",
        "compare_models",
        "compare_runs",
        "inspect_model",
    ),
    "Prediction": ("predict", "extract_features", "beam_predict"),
    "Search": ("build_index", "search"),
    "Compression": ("quantize_model", "distill", "prune_heads"),
    "Conversion and export": (
        "convert_checkpoint",
        "export_saved_model",
        "export_onnx",
        "export_litert",
    ),
    "Serving": ("serve", "serving_client"),
}
NAMES = tuple(name for members in GROUPS.values() for name in members)


def file_of(name: str) -> pathlib.Path:
    """Returns the file of a program.

    Example:
        >>> file_of("serve").name
        'serve.py'
    """
    return pathlib.Path(__file__).parent.parent / f"{name}.py"


def summary(name: str) -> str:
    """Returns the first line of a program's docstring, without importing the program.

    Example:
        >>> summary("build_vocab")
        'Learns a vocabulary from text files.'
    """
    source = file_of(name).read_text(encoding="utf-8")
    return (ast.get_docstring(ast.parse(source)) or "").partition("\n")[0]
