"""Checkpoints by name, `org/name`, through `huggingface_hub` and its cache."""

import os
import re

from bert_tf.errors import CheckpointError

_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[\w.-]+")
# Names from before the hub had organisations; the hub itself sends them on to google-bert.
_OLD_NAME = re.compile(r"bert-(base|large)-[\w-]+")
_OLD_ORGANISATION = "google-bert"
# Fetched in this order until weights are among them: one copy of the weights is enough.
_CONFIGURATION = [
    "config.json",
    "bert_config.json",
    "vocab.txt",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "modules.json",
    "sentence_bert_config.json",
    "*_Pooling/config.json",
    "metadata.json",
    "task.json",
    "assets/tokenizer/vocabulary.txt",
]
_WEIGHTS = (
    ["model.safetensors", "model-*.safetensors", "model.safetensors.index.json"],
    ["pytorch_model.bin", "pytorch_model-*.bin", "pytorch_model.bin.index.json"],
    ["tf_model.h5", "model.weights.h5", "task.weights.h5"],
    ["*.ckpt*"],
)


def is_hub_name(path: str) -> bool:
    """Whether `path` can only be meant as `org/name`: it looks like one and is no path here.

    So does an old name without an organisation, as bert-base-uncased.
    """
    if os.path.exists(path):
        return False
    if _OLD_NAME.fullmatch(path):
        return True
    return _NAME.fullmatch(path) is not None and not os.path.isdir(path.split("/")[0])


def fetch(name: str) -> str:
    """The local directory of a checkpoint on the Hugging Face Hub, from the cache if it is there.

    Args:
        name: `org/name`, or an old name: bert-base-uncased is google-bert/bert-base-uncased.

    Raises:
        CheckpointError: If it is not in the cache and cannot be fetched, or `huggingface_hub` is
            not installed.
    """
    try:
        import huggingface_hub
    except ImportError:
        raise CheckpointError(
            f"There is no {name} here. To fetch it by that name from the Hugging Face Hub: "
            "pip install huggingface_hub"
        ) from None
    if "/" not in name:
        name = f"{_OLD_ORGANISATION}/{name}"
    directory = None
    for weights in _WEIGHTS:
        try:
            directory = huggingface_hub.snapshot_download(
                name, allow_patterns=[*_CONFIGURATION, *weights]
            )
        except Exception as error:  # one of many kinds: offline, no such name, no permission, disk
            raise CheckpointError(
                f"There is no directory {name} here, and the Hugging Face Hub did not give it "
                f"({type(error).__name__}: {_first_line(error)}). Offline, fetch it where there is "
                f"a network, with `hf download {name} --local-dir DIRECTORY`, copy DIRECTORY here "
                "and pass its path; or copy the hub's cache and set HF_HUB_CACHE."
            ) from None
        if any(re.search(r"\.(safetensors|bin|h5|index)$", file) for file in os.listdir(directory)):
            break
    return directory


def _first_line(error):
    return (str(error).strip().splitlines() or [""])[0]
