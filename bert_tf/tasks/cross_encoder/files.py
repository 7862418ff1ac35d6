"""What sentence-transformers writes into the `config.json` of a cross-encoder.

Reference: sentence-transformers, `CrossEncoder`, in whose files until 4.0 the activation had a key
of its own.
"""

from bert_tf.models.task_files import TaskFiles

_KEY, _ACTIVATION, _OLD_KEY = (
    "sentence_transformers",
    "activation_fn",
    "sbert_ce_default_activation_function",
)
_TORCH_NAMES = {
    "sigmoid": "torch.nn.modules.activation.Sigmoid",
    "identity": "torch.nn.modules.linear.Identity",
}


class CrossEncoderFiles(TaskFiles):
    """The activation and the one label of a `CrossEncoder`."""

    def read(self, opened):
        extra = opened.config.extra
        values, labels = extra.get(_KEY), extra.get("id2label")
        name = values.get(_ACTIVATION) if isinstance(values, dict) else extra.get(_OLD_KEY)
        if name is None or not isinstance(labels, dict) or len(labels) != 1:
            return None
        ours = {theirs: activation for activation, theirs in _TORCH_NAMES.items()}
        return {"activation": ours.get(name, name)}

    def config_values(self, model):
        return {
            _KEY: {_ACTIVATION: _TORCH_NAMES[model.activation]},
            "id2label": {"0": "LABEL_0"},
            "label2id": {"LABEL_0": 0},
        }
