"""The loss of Sentence-BERT on pairs with classes, such as those of NLI.

Glossary: `B` pairs, `D` size of a vector, `C` classes.
"""

import tensorflow as tf

from bert_tf.base.json_schema import is_integer
from bert_tf.errors import UserError, require, user_error
from bert_tf.inputs.labels import check_ids
from bert_tf.layers.dense import Dense
from bert_tf.layers.dropout import stateless_dropout
from bert_tf.training.losses.sentence_loss import SentenceLoss
from bert_tf.training.losses.sparse_crossentropy import SparseCrossentropy, require_mean


class ClassificationLoss(SentenceLoss):
    """Cross-entropy of softmax(W [u; v; |u - v|] + b), for pairs with class ids such as NLI.

    With `hidden_size` the softmax is on a dense layer with ReLU, and dropout comes before it.

    Args:
        num_classes: The number of classes; 3 for entailment, neutral and contradiction.
        loss: Cross-entropy with label smoothing, focal loss or class weights. None means plain
            cross-entropy.
        hidden_size: The size of a dense layer with ReLU, such as 512. None means no such layer.
        dropout: The dropout rate before the softmax layer, in training.

    Raises:
        UserError: If `num_classes` is less than 2, `hidden_size` less than 1, `dropout` not in
            [0, 1), or the reduction of `loss` not a mean.

    Example:
        >>> encoder = bert_tf.BertSentenceEncoder.from_pretrained("bert-base/")
        >>> loss = bert_tf.training.ClassificationLoss(num_classes=3)
        >>> encoder.compile(bert_tf.training.AdamWeightDecay(2e-5), objective=loss)
        >>> encoder.fit((["It rains.", "It rains."], ["It is wet.", "It is dry."]), [0, 2])

    Reference: Reimers and Gurevych 2019 (arXiv 1908.10084), section 3.
    """

    def __init__(
        self,
        num_classes: int = 3,
        loss: SparseCrossentropy | None = None,
        hidden_size: int | None = None,
        dropout: float = 0.0,
    ):
        require(num_classes >= 2, "must be at least 2", UserError, num_classes=num_classes)
        is_size = hidden_size is None or (is_integer(hidden_size) and hidden_size > 0)
        require(is_size, "must be a positive integer or None", UserError, hidden_size=hidden_size)
        require(0 <= dropout < 1, "must be in [0, 1)", UserError, dropout=dropout)
        self.num_classes = num_classes
        self.loss = loss or SparseCrossentropy()
        require_mean(self.loss)
        self.hidden_size = hidden_size
        self.dropout = dropout
        self.hidden = self.classifier = None

    def build(self, vector_size, initializer_range):
        def dense(units, width, name):
            layer = Dense(units, initializer_range, dtype="float32", name=name)
            layer.build([None, width])
            return layer

        self._vector_size, width = vector_size, 3 * vector_size
        if self.hidden_size is not None:
            self.hidden = dense(self.hidden_size, width, "pair_hidden")
            width = self.hidden_size
        self.classifier = dense(self.num_classes, width, "pair_classifier")

    @property
    def variables(self):
        layers = [layer for layer in (self.hidden, self.classifier) if layer is not None]
        return [variable for layer in layers for variable in layer.trainable_variables]

    def outputs(self, vectors):
        return self._logits(vectors, 0.0)

    def training_outputs(self, vectors):
        return self._logits(vectors, self.dropout)

    def _logits(self, vectors, dropout):
        if vectors.shape[-1] != self._vector_size:
            expected = f"have size {self._vector_size}, for which the objective was compiled"
            received = f"size {vectors.shape[-1]}. Whitening changed it: call `compile` again."
            raise user_error("Vectors", expected, received)
        u, v = tf.unstack(vectors, num=2, axis=1)
        features = tf.concat([u, v, tf.abs(u - v)], axis=-1)  # [B, 3D]
        if self.hidden is not None:
            features = tf.nn.relu(self.hidden(features))  # [B, hidden_size]
        if dropout:
            features = stateless_dropout(features, dropout, self.random_seed())
        return self.classifier(features)  # [B, C]

    def check_labels(self, labels):
        check_ids(labels, self.num_classes, "Class ids")

    def losses(self, labels, outputs):
        return self.loss.call(_ids(labels), outputs)

    def hits(self, labels, outputs):
        return tf.equal(tf.argmax(outputs, axis=-1, output_type=tf.int32), _ids(labels))


def _ids(labels):
    return tf.cast(tf.reshape(labels, [-1]), tf.int32)
