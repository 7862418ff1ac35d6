"""Downloads checkpoints by name, `org/name`, with `huggingface_hub` and its cache."""

import os
import re

from bert_tf import tasks
from bert_tf.base.optional_packages import install_command
from bert_tf.errors import CheckpointError

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
# Names from before the hub had organisations; the hub redirects them to google-bert.
_OLD_NAME = re.compile(r"bert-(base|large)-[\w-]+")
_CONFIGURATION = [
    "config.json",
    "bert_config.json",
    "vocab.txt",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "modules.json",
    "sentence_bert_config.json",
    "config_sentence_transformers.json",
    # Modules of sentence-transformers, such as 1_Pooling and 2_Dense.
    "[0-9]_*/*.json",
    "[0-9]_*/vocab.txt",
    "[0-9]_*/merges.txt",
    "[0-9]_*/model.safetensors",
    "[0-9]_*/pytorch_model.bin",
    "bert_tf.json",
    "added_tokens.json",
    "metadata.json",
    "task.json",
    "vocab.json",
    "merges.txt",
    "sentencepiece.bpe.model",
    "spiece.model",
    "assets/tokenizer/vocabulary.txt",
]
# Tried in this order until weights have been downloaded: one copy of the weights is enough.
_WEIGHTS = (
    ["bert_tf.safetensors"],
    ["model.safetensors", "model-*.safetensors", "model.safetensors.index.json"],
    ["pytorch_model.bin", "pytorch_model-*.bin", "pytorch_model.bin.index.json"],
    ["tf_model.h5", "tf_model-*.h5", "tf_model.h5.index.json"],
    ["model.weights.h5", "task.weights.h5"],
    ["*.ckpt*"],
)


def is_hub_name(path: str) -> bool:
    """Returns whether `path` is a hub name: `org/name`, or an old one like bert-base-uncased.

    A path that exists, or whose first folder exists, is not a name.
    """
    if os.path.exists(path):
        return False
    if _OLD_NAME.fullmatch(path):
        return True
    return _NAME.fullmatch(path) is not None and not os.path.isdir(path.split("/")[0])


def fetch(name: str, weights: bool = True) -> str:
    """Returns the local directory of a checkpoint, which is downloaded unless it is in the cache.

    The name is `org/name`, or an old one: bert-base-uncased is google-bert/bert-base-uncased.
    Without `weights`, only its other files are needed. Raises `CheckpointError` if it is not in the
    cache and cannot be downloaded, or `huggingface_hub` is not installed.
    """
    try:
        import huggingface_hub
    except ImportError:
        raise CheckpointError(
            f"`path` must exist if huggingface_hub is not installed. Received: path={name!r}. To "
            f"download it from the Hugging Face Hub: {install_command('huggingface_hub')}"
        ) from None
    if "/" not in name:
        name = f"google-bert/{name}"
    of_tasks = [file for spec in tasks.specs() for file in spec.task_files().names]
    for files in _WEIGHTS if weights else ([],):
        try:
            patterns = [*_CONFIGURATION, *of_tasks, *files]
            directory = huggingface_hub.snapshot_download(name, allow_patterns=patterns)
        except Exception as error:  # many types: offline, no such name, no permission, disk full
            reason = (str(error).strip().splitlines() or [""])[0]
            raise CheckpointError(
                f"`path` must exist or be a name on the Hugging Face Hub. Received: path={name!r}, "
                f"which could not be downloaded ({type(error).__name__}: {reason}). If this "
                f"machine is offline, run `hf download {name} --local-dir DIRECTORY` on another "
                "one, copy DIRECTORY here and pass its path; or copy the hub's cache and set "
                "HF_HUB_CACHE."
            ) from None
        if any(re.search(r"\.(safetensors|bin|h5|index)$", file) for file in os.listdir(directory)):
            break
    return directory
