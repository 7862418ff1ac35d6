"""A model with its weights inside the graph, for answers to one text at a time."""

import numpy as np
import tensorflow as tf
from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

from bert_tf.errors import UserError
from bert_tf.models.task_model import TaskModel
from bert_tf.models.text_inputs import as_columns


class FrozenModel:
    """Text in, arrays out, in a graph of constants.

    One short text takes a few milliseconds, of which a `tf.function` spends one on its way through
    TensorFlow's eager layer: handing over every variable, and reading it. Here there are none. The
    weights are a copy: what happens to the model afterwards does not show, and memory holds both
    until the model is dropped. `model.freeze_for_inference()` before makes it faster still.

    Args:
        model: A task model with its tokenizer.

    Call arguments:
        texts: A list of strings, or one.

    Returns:
        What the model returns for strings, as arrays: float32 `[B, D]` of a `BertSentenceEncoder`.

    Raises:
        UserError: If the model has no tokenizer.

    Example:
        >>> encoder = bert_tf.BertSentenceEncoder.from_pretrained("bert-base/")
        >>> encoder.freeze_for_inference()
        >>> encode = bert_tf.serving.FrozenModel(encoder)
        >>> len(encode("A dog barks."))  # one text, one vector
        1
    """

    def __init__(self, model: TaskModel):
        if model.tokenizer is None:
            raise UserError("A model with a tokenizer was expected. Received: tokenizer=None")
        traced = tf.function(
            lambda texts: model(texts, training=False),
            input_signature=[tf.TensorSpec([None], tf.string)],
            autograph=False,
        ).get_concrete_function()
        frozen = convert_variables_to_constants_v2(traced, lower_control_flow=False)
        graph = tf.Graph()
        with graph.as_default():
            tf.import_graph_def(frozen.graph.as_graph_def(), name="")
        # A ConcreteFunction would hold constants of this size many times over.
        self._session = tf.compat.v1.Session(
            graph=graph,
            config=tf.compat.v1.ConfigProto(
                intra_op_parallelism_threads=tf.config.threading.get_intra_op_parallelism_threads(),
                inter_op_parallelism_threads=1,  # the graph is one chain
            ),
        )
        self._structure = traced.structured_outputs
        self._run = self._session.make_callable(
            [tensor.name for tensor in frozen.outputs],
            feed_list=[tensor.name for tensor in frozen.inputs],
        )

    def __call__(self, texts: str | list[str]) -> np.ndarray | dict[str, np.ndarray]:
        (texts,) = as_columns(texts)
        return tf.nest.pack_sequence_as(self._structure, self._run(texts))
