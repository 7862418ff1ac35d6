"""What a sentence-transformers directory says beside its BERT: pooling, normalization, length.

Reference: sentence-transformers, `modules.json`, `1_Pooling/config.json` and
`sentence_bert_config.json` of its saved models.
"""

import json
import os

from bert_tf.errors import CheckpointError

_POOLING = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
}


def encoder_options(directory: str | os.PathLike) -> dict:
    """The arguments of `BertSentenceEncoder` that the directory asks for.

    Args:
        directory: A checkpoint directory; without a `modules.json` it asks for nothing.

    Returns:
        `pooling`, `normalize` and, where the files say so, `max_length`.

    Raises:
        CheckpointError: If a module is none of Transformer, Pooling and Normalize, or the pooling
            is one that `BertSentenceEncoder` does not have.
    """
    directory = os.fspath(directory)
    path = os.path.join(directory, "modules.json")
    if not os.path.exists(path):
        return {}
    options = {"normalize": False}
    for module in _read(path):
        kind = module.get("type", "").rsplit(".", 1)[-1]
        if kind == "Pooling":
            options["pooling"] = _pooling(os.path.join(directory, module["path"], "config.json"))
        elif kind == "Normalize":
            options["normalize"] = True
        elif kind != "Transformer":
            raise CheckpointError(
                f"{path}: modules of the types Transformer, Pooling and Normalize were expected. "
                f"Received: type={module.get('type')!r}"
            )
    limits = os.path.join(directory, "sentence_bert_config.json")
    if os.path.exists(limits) and _read(limits).get("max_seq_length"):
        options["max_length"] = _read(limits)["max_seq_length"]
    return options


def _pooling(path):
    wanted = [name for name, value in _read(path).items()
              if name.startswith("pooling_mode_") and value is True]
    modes = [_POOLING.get(name) for name in wanted]
    if len(modes) != 1 or modes[0] is None:
        raise CheckpointError(
            f"{path}: exactly one of {sorted(_POOLING)} was expected. Received: {wanted}"
        )
    return modes[0]


def _read(path):
    try:
        with open(path, encoding="utf-8") as file:
            return json.load(file)
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: a JSON file was expected. Received: {error}") from None
