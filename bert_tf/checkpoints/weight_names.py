"""The one table of weight names: our variables, Hugging Face's tensors, google-research/bert's.

Sources: google-research/bert modeling.py (variable scopes), `transformers` modeling_bert.py (module
names). Hugging Face stores a dense weight as [out, in], TF1 and we as [in, out].
"""

import dataclasses

import keras


@dataclasses.dataclass(frozen=True)
class Weight:
    """One variable and where its values stand in a file.

    Attributes:
        variable: The Keras variable.
        huggingface: Tensor names; three for the fused query, key and value, side by side.
        tf1: Variable names, likewise.
        transposed_in_huggingface: Whether the file has [out, in] where we have [in, out].
        transposed_in_tf1: The same for TF1 (its classifier weights are [out, in]).
    """

    variable: keras.Variable
    huggingface: tuple[str, ...]
    tf1: tuple[str, ...]
    transposed_in_huggingface: bool = False
    transposed_in_tf1: bool = False


def _dense(layer, huggingface, tf1):
    """Kernel and bias of one dense layer; prefixes may be one name or three."""
    huggingface = (huggingface,) if isinstance(huggingface, str) else huggingface
    tf1 = (tf1,) if isinstance(tf1, str) else tf1
    return [
        Weight(
            layer.kernel,
            tuple(f"{name}.weight" for name in huggingface),
            tuple(f"{name}/kernel" for name in tf1),
            transposed_in_huggingface=True,
        ),
        Weight(
            layer.bias,
            tuple(f"{name}.bias" for name in huggingface),
            tuple(f"{name}/bias" for name in tf1),
        ),
    ]


def _layer_norm(layer, huggingface, tf1):
    return [
        Weight(layer.gamma, (f"{huggingface}.weight",), (f"{tf1}/gamma",)),
        Weight(layer.beta, (f"{huggingface}.bias",), (f"{tf1}/beta",)),
    ]


def embedding_and_encoder_weights(backbone) -> list[Weight]:
    """Everything in a `BertBackbone` but the pooler. Names without Hugging Face's `bert.`."""
    embeddings = backbone.embeddings
    weights = [
        Weight(
            variable,
            (f"embeddings.{name}_embeddings.weight",),
            (f"bert/embeddings/{name}_embeddings",),
        )
        for name, variable in (
            ("word", embeddings.word_embeddings),
            ("position", embeddings.position_embeddings),
            ("token_type", embeddings.segment_embeddings),
        )
    ]
    weights += _layer_norm(
        embeddings.layer_norm, "embeddings.LayerNorm", "bert/embeddings/LayerNorm"
    )
    for index, block in enumerate(backbone.encoder.blocks):
        hf, tf1 = f"encoder.layer.{index}", f"bert/encoder/layer_{index}"
        roles = ("query", "key", "value")
        weights += _dense(
            block.attention.query_key_value,
            tuple(f"{hf}.attention.self.{role}" for role in roles),
            tuple(f"{tf1}/attention/self/{role}" for role in roles),
        )
        for layer, name in (
            (block.attention_output, "attention.output.dense"),
            (block.intermediate, "intermediate.dense"),
            (block.output_dense, "output.dense"),
        ):
            weights += _dense(layer, f"{hf}.{name}", f"{tf1}/{name.replace('.', '/')}")
        for layer, name in (
            (block.attention_layer_norm, "attention.output.LayerNorm"),
            (block.output_layer_norm, "output.LayerNorm"),
        ):
            weights += _layer_norm(layer, f"{hf}.{name}", f"{tf1}/{name.replace('.', '/')}")
    return weights


def pooler_weights(backbone) -> list[Weight]:
    """The pooler, which some checkpoints leave out."""
    return _dense(backbone.pooler.dense, "pooler.dense", "bert/pooler/dense")


def classifier_weights(classifier) -> list[Weight]:
    """The head of `BertTextClassifier`: `BertForSequenceClassification`'s, run_classifier.py's."""
    return [
        Weight(
            classifier.classifier.kernel,
            ("classifier.weight",),
            ("output_weights",),
            transposed_in_huggingface=True,
            transposed_in_tf1=True,
        ),
        Weight(classifier.classifier.bias, ("classifier.bias",), ("output_bias",)),
    ]
