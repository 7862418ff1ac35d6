"""A constant graph of a model, for predictions with low latency."""

import numpy as np
import tensorflow as tf

from bert_tf.base import keras_compat
from bert_tf.errors import UserError, user_error
from bert_tf.inputs.columns import as_columns
from bert_tf.models.task_model import TaskModel


class ConstantGraphModel:
    """Runs a task model as a constant graph: its weights are folded into the graph.

    For a short text, which takes a few milliseconds, this saves the millisecond that a
    `tf.function` needs to pass and read every variable. The weights are copied, so later changes of
    the model have no effect, and memory holds both copies until the model is deleted. Call
    `model.prepack_for_inference()` first to make it even faster.

    Args:
        model: A task model with a tokenizer.

    Call arguments:
        texts: A string or a list of strings.

    Returns:
        The outputs of the model as arrays, for example float32 `[B, H]` of a `BertSentenceEncoder`
        with mean pooling.

    Raises:
        UserError: If the model has no tokenizer, or the input is not single texts.
        DataError: If a text is missing or malformed.

    Example:
        >>> encoder = bert_tf.BertSentenceEncoder.from_pretrained("bert-base/")
        >>> encoder.prepack_for_inference()
        >>> encode = bert_tf.serving.ConstantGraphModel(encoder)
        >>> len(encode("A dog barks."))  # one vector per text
        1
    """

    def __init__(self, model: TaskModel):
        if model.tokenizer is None:
            raise UserError("`model` must have a tokenizer. Received: tokenizer=None")
        self._errors = model.tokenizer.errors
        traced = tf.function(
            lambda texts: model(texts, training=False),
            input_signature=[tf.TensorSpec([None], tf.string)],
            autograph=False,
        ).get_concrete_function()
        constant = keras_compat.constant_function(traced)
        graph = tf.Graph()
        with graph.as_default():
            tf.import_graph_def(constant.graph.as_graph_def(), name="")
        # A ConcreteFunction would hold several copies of the constants.
        self._session = tf.compat.v1.Session(
            graph=graph,
            config=tf.compat.v1.ConfigProto(
                intra_op_parallelism_threads=tf.config.threading.get_intra_op_parallelism_threads(),
                inter_op_parallelism_threads=1,  # the graph is one chain
            ),
        )
        self._structure = traced.structured_outputs
        self._run = self._session.make_callable(
            [tensor.name for tensor in constant.outputs],
            feed_list=[tensor.name for tensor in constant.inputs],
        )

    def __call__(self, texts: str | list[str]) -> np.ndarray | dict[str, np.ndarray]:
        columns = as_columns(texts, self._errors)
        if len(columns) != 1:
            expected = "be a string or a list of strings"
            raise user_error("`texts`", expected, f"{len(columns)} texts in an example")
        return tf.nest.pack_sequence_as(self._structure, self._run(*columns))
