"""What sentence-transformers writes into the `config.json` of a cross-encoder.

Reference: sentence-transformers, `CrossEncoder`, in whose files until 4.0 the activation had a key
of its own.
"""

from typing import Any

from bert_tf.config import BertConfig

CLASS = "BertCrossEncoder"
_KEY, _ACTIVATION, _OLD_KEY = (
    "sentence_transformers",
    "activation_fn",
    "sbert_ce_default_activation_function",
)
_TORCH_NAMES = {
    "sigmoid": "torch.nn.modules.activation.Sigmoid",
    "identity": "torch.nn.modules.linear.Identity",
}


def class_and_options(config: BertConfig) -> tuple[str | None, dict[str, Any]]:
    """Returns the class and its options, or None and none if it is no cross-encoder's file."""
    values = config.extra.get(_KEY)
    name = values.get(_ACTIVATION) if isinstance(values, dict) else config.extra.get(_OLD_KEY)
    labels = config.extra.get("id2label")
    if name is None or not isinstance(labels, dict) or len(labels) != 1:
        return None, {}
    ours = {theirs: activation for activation, theirs in _TORCH_NAMES.items()}
    return CLASS, {"activation": ours.get(name, name)}


def config_values(activation: str) -> dict[str, Any]:
    """Returns the entries for `config.json`."""
    return {
        _KEY: {_ACTIVATION: _TORCH_NAMES[activation]},
        "id2label": {"0": "LABEL_0"},
        "label2id": {"LABEL_0": 0},
    }
