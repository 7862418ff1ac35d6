"""Tagging: a label for every word. Named entities, parts of speech, segmentation."""

from collections.abc import Sequence
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf.data.plain_rows import is_text, object_array, plain_rows, refuse_missing
from bert_tf.errors import UserError
from bert_tf.layers.crf import ConditionalRandomField
from bert_tf.layers.dense import Dense
from bert_tf.layers.dropout import Dropout
from bert_tf.models.backbone import BertBackbone
from bert_tf.models.label_inputs import class_names, row_weights
from bert_tf.models.task_model import DEFAULT_BATCH_SIZE, TaskModel
from bert_tf.models.text_batches import TOKEN_BUDGET
from bert_tf.models.text_inputs import TextColumns, as_columns
from bert_tf.models.text_streams import collected
from bert_tf.tasks.token_classification.tag_schemes import Span, are_span_tags, spans_of_tags
from bert_tf.tasks.token_classification.word_windows import (
    IGNORED,
    WORD_STARTS,
    WordWindows,
    holds_word_lists,
    is_sentence,
    word_lists,
)
from bert_tf.text.vocabulary import CONTINUATION
from bert_tf.training.losses.class_weights import refuse_class_weight
from bert_tf.training.losses.sparse_crossentropy import class_loss


class TaggedSpan(NamedTuple):
    """A span that the model found.

    Attributes:
        start: Its first character (code point) in the text, or its first word in a list of words.
        end: Behind its last one.
        label: What it is.
        text: The text itself; words are joined by blanks.

    Example:
        >>> TaggedSpan(0, 3, "PER", "Ada").label
        'PER'
    """

    start: int
    end: int
    label: str
    text: str


@keras.saving.register_keras_serializable(package="bert_tf")
class BertTokenClassifier(TaskModel):
    """BERT with a linear classifier on the first piece of each word, and a CRF on it if wanted.

    `fit` and `evaluate` take sentences as lists of words, `y` being as many lists of tags. A
    sentence longer than `max_length` is cut at word borders and put together again.

    Labels such as `O`, `B-PER`, `I-PER` (IOB1, IOB2 or BIOES) stand for spans of words, others for
    the words themselves.

    Args:
        backbone: The `BertBackbone`.
        num_classes: Number of labels; None counts `labels`.
        labels: The labels' names, in the order of their ids.
        use_crf: Whether the labels of a sentence are chosen together, by a linear-chain CRF.
        dropout: Dropout before the classifier; None takes the configuration's.
        tokenizer: The `BertTokenizer`.
        max_length: Longest window in tokens.

    Call arguments:
        inputs: What the backbone takes.

    Returns:
        Logits float32 `[B, T, num_classes]`; with a CRF its emissions. `fit` on token dictionaries
        takes labels int32 `[B, T]`, -100 at what is not labelled.

    Example:
        >>> tagger = bert_tf.BertTokenClassifier.from_pretrained(
        ...     "bert-base/", labels=["O", "B-PER", "I-PER"]
        ... )
        >>> tagger.compile(bert_tf.training.AdamWeightDecay(1e-2, bias_correction=True))
        >>> tagger.fit([["Ada", "Lovelace", "wrote"]], [["B-PER", "I-PER", "O"]], epochs=10)
        >>> tagger.tag("Ada Lovelace wrote")
        [TaggedSpan(start=0, end=12, label='PER', text='Ada Lovelace')]

    Reference: Devlin et al. 2019, section 5.3; Lample et al. 2016 (arXiv 1603.01360) for the CRF.
    """

    takes_batches_of_text = False

    needs_labels = True

    def __init__(
        self,
        backbone: BertBackbone,
        num_classes: int | None = None,
        labels: Sequence[str] | None = None,
        use_crf: bool = False,
        dropout: float | None = None,
        tokenizer=None,
        max_length: int | None = None,
        **kwargs,
    ):
        super().__init__(backbone, tokenizer, max_length, **kwargs)
        if labels is None and num_classes is not None:
            labels = [f"LABEL_{index}" for index in range(num_classes)]  # as Hugging Face
        labels = class_names(labels or ())
        if len(set(labels)) < 2 or len(set(labels)) != len(labels):
            raise UserError(
                f"`labels` must be at least two different names. Received: labels={labels}"
            )
        if num_classes not in (None, len(labels)):
            raise UserError(
                "`num_classes` must be the number of `labels`. "
                f"Received: num_classes={num_classes}, {len(labels)} labels"
            )
        config = backbone.config
        if dropout is None:
            dropout = config.classifier_dropout
        if dropout is None:
            dropout = config.hidden_dropout_prob
        backbone.pooler.trainable = False  # no part of the loss
        self.num_classes = len(labels)
        self.labels = labels
        self.use_crf = use_crf
        self.dropout = dropout
        self.dropout_layer = Dropout(dropout, dtype=self.dtype_policy, name="dropout")
        self.classifier = Dense(
            self.num_classes, config.initializer_range, dtype=self.dtype_policy, name="classifier"
        )
        self.crf = ConditionalRandomField(self.num_classes, name="crf") if use_crf else None
        self.accuracy = keras.metrics.Mean(name="accuracy")
        self.build()

    def build(self, input_shape=None):
        if not self.classifier.built:
            self.classifier.build([None, self.backbone.config.hidden_size])
        self.built = True

    def compile(self, optimizer="adam", loss="auto", **kwargs):
        """`keras.Model.compile`; the loss is over words, and accuracy is always in the logs.

        A CRF learns its transitions from zero: give them a larger learning rate,
        `AdamWeightDecay(5e-5, learning_rate_multipliers={"crf": 100.0})`.

        Args:
            optimizer: As in Keras.
            loss: A `bert_tf.training.SparseCrossentropy`, with label smoothing, focus or class
                weights. "auto" is cross-entropy; with a CRF, which has no other, that of paths.
            **kwargs: As in `TrainingModel.compile`, without metrics.

        Raises:
            UserError: For another loss, for any with a CRF, and for metrics.
        """
        for name in ("metrics", "weighted_metrics"):
            if kwargs.get(name) is not None:
                raise UserError(
                    f"{type(self).__name__} has an accuracy of its own, over words. "
                    f"Received: {name}={kwargs[name]!r}. "
                    "bert_tf.tasks.token_classification.TaggingScores adds precision, recall and "
                    "F1 of spans."
                )
        loss = class_loss(loss)
        if self.use_crf and loss is not None:
            raise UserError(
                "A CRF has a loss of its own, over the paths of a sentence, where label smoothing, "
                "focus and class weights of single words have no place. Received: "
                f"loss={type(loss).__name__}, use_crf=True. Leave the loss out, or make the model "
                "with use_crf=False."
            )
        super().compile(optimizer=optimizer, loss=loss, **kwargs)

    def call(self, inputs, training=False):
        tokens = self.tokens_of(inputs)
        return self.head(self.backbone(tokens, training=training), tokens, training=training)

    def head(self, outputs, tokens, training=False):
        """Logits `[B, T, num_classes]` from what the backbone gave for a token dictionary."""
        states = self.dropout_layer(outputs["sequence_output"], training=training)  # [B, T, H]
        shape = tf.shape(states)
        rows = self.classifier(tf.reshape(states, [-1, states.shape[-1]]))  # [B * T, C]
        logits = tf.reshape(tf.cast(rows, tf.float32), [shape[0], shape[1], self.num_classes])
        return tf.ensure_shape(logits, [*states.shape[:2], self.num_classes])

    def best_tags(self, logits: tf.Tensor, word_starts: tf.Tensor) -> tf.Tensor:
        """Label ids int32 `[B, T]` from logits `[B, T, C]` and a mask of first pieces `[B, T]`."""
        if self.crf is not None:
            return self.crf(logits, word_starts)
        return tf.argmax(logits, axis=-1, output_type=tf.int32)

    def loss_denominators(self, x, y, sample_weight):
        return {"words": tf.reduce_sum(word_weights(y, sample_weight))}

    def partial_loss(self, x, y, y_pred, sample_weight, training, totals):
        """Mean over the words; a sentence's loss under the CRF counts for all of its words."""
        weights = word_weights(y, sample_weight)  # [B, T]
        labelled = tf.not_equal(y, IGNORED)
        targets = tf.where(labelled, tf.cast(y, tf.int32), 0)
        hits = tf.equal(self.best_tags(y_pred, labelled), targets)
        self.accuracy.update_state(tf.cast(hits, tf.float32), weights)
        if self.crf is None:
            losses = self._word_losses(targets, y_pred) * weights  # [B, T]
        else:
            losses = self.crf.negative_log_likelihood(y_pred, targets, labelled)  # [B]
            losses *= tf.reduce_max(weights, axis=1)  # every word of a row has the row's weight
        return tf.math.divide_no_nan(tf.reduce_sum(losses), totals["words"])

    def _word_losses(self, targets, logits):
        if self.loss is not None:
            return self.loss.call(targets, logits)
        return tf.nn.sparse_softmax_cross_entropy_with_logits(targets, logits)

    def class_weights(self, class_weight):
        refuse_class_weight(
            class_weight,
            "Keras weights examples by it, and here the classes are those of words. "
            + (
                "A CRF has no class weights"
                if self.use_crf
                else "compile(loss=bert_tf.training.SparseCrossentropy(class_weights=[…])) has them"
            ),
        )

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        totals = self.loss_denominators(x, y, sample_weight)
        return self.partial_loss(x, y, y_pred, sample_weight, training, totals)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        return self.get_metrics_result()  # `partial_loss` counts

    @staticmethod
    def is_example(item):
        """Whether an item of a generator is a sentence: text, or a list of words."""
        return is_text(item) or is_sentence(item)

    def read_columns(self, x):
        """Sentences as one array of lists of words.

        Raises:
            UserError: If a sentence is no list of words.
        """
        if isinstance(x, TextColumns):
            return x
        if not holds_word_lists(x):
            raise UserError(
                "Sentences must be lists of words, with a tag for each word. Received: text. `tag` "
                "finds spans in text."
            )
        return TextColumns([object_array(word_lists(x, self._text_errors()))])

    def plain_targets(self, y, x):
        """As `TaskModel.plain_targets`: for lists of words an array of lists of tags."""
        if y is None or not isinstance(x, TextColumns):
            return super().plain_targets(y, x)
        rows = plain_rows(y, "y")
        refuse_missing(rows, "y")
        return object_array([[_name(tag) for tag in plain_rows(row, "y")] for row in rows])

    def _prepare(self, x, y, sample_weight, batch_size, shuffle, training):
        if not isinstance(x, TextColumns):
            return super()._prepare(x, y, sample_weight, batch_size, shuffle, training)
        dataset = self._labelled_batches(x[0], y, sample_weight, batch_size, shuffle)
        return {"x": dataset, "y": None, "sample_weight": None, "batch_size": None}

    def predict(
        self,
        x,
        batch_size=None,
        verbose="auto",
        steps=None,
        callbacks=None,
        *,
        token_budget: int | None = None,
    ):
        """Tags of sentences, or logits of token dictionaries.

        Args:
            x: Lists of words; or what Keras takes: token dictionaries, or a dataset of them.
            batch_size: The most sentences of a batch.
            verbose: As in Keras.
            steps: As in Keras.
            callbacks: As in Keras.
            token_budget: Tokens of a batch of sentences, padding counted; default 4,096.

        Returns:
            For lists of words, a list of tags for each; else float32 `[B, T, num_classes]`, or
            label ids int32 `[B, max_length]` where the dictionary holds `word_starts`.
        """
        x = self.raw(x)
        options = {"verbose": verbose, "steps": steps, "callbacks": callbacks}
        if not isinstance(x, TextColumns):
            return super().predict(x, batch_size, token_budget=token_budget, **options)
        (x,) = x
        windows = self._windows(x)
        if not len(windows):
            return [[] for _ in x]
        if self.jit_compile:
            batches = windows.batches_of_one_length(
                batch_size or DEFAULT_BATCH_SIZE, self._longest()
            )
            places = slice(None)
        else:
            batches, places = windows.batches_by_length(token_budget or TOKEN_BUDGET, batch_size)
        ids = super().predict(batches, **options)[places]  # [S, max_length]
        tags = np.array(self.labels, object)[windows.word_values(ids)]  # [W]
        splits = windows.word_splits
        return [tags[start:end].tolist() for start, end in zip(splits, splits[1:])]

    def tag(self, texts, **kwargs) -> list:
        """The spans of texts or of lists of words.

        Text is split into words as BERT's basic tokenizer does: at white space, punctuation and
        around ideographs. A model that was trained on words split in another way gets them as it
        knows them, as lists.

        Args:
            texts: A list of strings, or one; or a list of lists of words.
            **kwargs: What `predict` takes.

        Returns:
            A list of `TaggedSpan` for each text, for one string one list. Where labels do not stand
            for spans, each word is one.

        Example:
            >>> tagger = bert_tf.BertTokenClassifier.from_pretrained(
            ...     "bert-base/", labels=["O", "B-PER"]
            ... )
            >>> sentences = tagger.tag([["Ada", "wrote"], ["It", "rains"]])  # `TaggedSpan`s of each
            >>> len(sentences)
            2
        """
        if isinstance(texts, str):
            return self.tag([texts], **kwargs)[0]
        kwargs = {"verbose": 0, **kwargs}
        texts = collected(texts, self.is_example)
        if holds_word_lists(texts):
            (texts,) = self.read_columns(texts)
            tags = self.predict(texts, **kwargs)
            return [
                [TaggedSpan(*span, " ".join(words[span.start : span.end])) for span in spans]
                for words, spans in zip(texts, map(self._spans, tags))
            ]
        columns = as_columns(texts, self._text_errors())
        if len(columns) != 1:
            raise UserError(
                f"{type(self).__name__} takes single texts. Received: {len(columns)} texts in an "
                "example. Texts are a list of strings."
            )
        texts = [text.decode("utf-8", errors="replace") for text in columns[0]]
        borders = self._words_of_texts(texts)
        words = [[text[start:end] for start, end in places] for text, places in zip(texts, borders)]
        found = []
        for text, places, tags in zip(texts, borders, self.predict(words, **kwargs)):
            spans = []
            for first, last, label in self._spans(tags):
                start, end = places[first][0], places[last - 1][1]
                spans.append(TaggedSpan(start, end, label, text[start:end]))
            found.append(spans)
        return found

    def _spans(self, tags) -> list[Span]:
        if are_span_tags(self.labels):
            return spans_of_tags(tags)
        return [Span(place, place + 1, tag) for place, tag in enumerate(tags)]

    def _words_of_texts(self, texts) -> list[list[tuple[int, int]]]:
        """Where the words of each text begin and end, in characters."""
        self._require_tokenizer()
        pieces = self.tokenizer.tokenize_with_offsets(texts)
        continues = np.array([p.startswith(CONTINUATION) for p in self.tokenizer.vocabulary])
        words = []
        for ids, starts, ends in zip(
            pieces.ids.to_list(), pieces.char_starts.to_list(), pieces.char_ends.to_list()
        ):
            first = [place for place, id in enumerate(ids) if not continues[id]]
            last = [place - 1 for place in first[1:]] + [len(ids) - 1]
            words.append([(starts[a], ends[b]) for a, b in zip(first, last)])
        return words

    def predict_step(self, data):
        x, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        if not isinstance(x, dict) or WORD_STARTS not in x:
            return super().predict_step(data)
        with self._tracing():
            tags = self.best_tags(self(x, training=False), x[WORD_STARTS])  # [B, T]
            # One width for all batches, so that Keras can put them together.
            return tf.pad(tags, [[0, 0], [0, self._longest() - tf.shape(tags)[1]]])

    def _windows(self, sentences) -> WordWindows:
        self._require_tokenizer()
        return WordWindows(self.tokenizer, sentences, self._longest())

    def _labelled_batches(self, x, y, sample_weight=None, batch_size=None, shuffle=True):
        if y is None or len(x) != len(y):
            raise UserError(
                "A list of tags was expected for each sentence. Received: "
                f"{len(x)} sentences, {'no' if y is None else len(y)} lists of tags"
            )
        windows = self._windows(x)
        if not len(windows):
            raise UserError("At least one word was expected. Received: none.")
        labels = windows.labels(self._label_ids(x, y))
        weights = None
        if sample_weight is not None:
            weights = row_weights(sample_weight, len(x))[windows.sentence_of_window]
        length = self._longest() if self.jit_compile else None
        return windows.training_batches(
            labels, weights, batch_size or DEFAULT_BATCH_SIZE, shuffle, length
        )

    def _label_ids(self, sentences, tags) -> np.ndarray:
        """int32 `[W]`."""
        ids = {label: index for index, label in enumerate(self.labels)}
        for number, (words, row) in enumerate(zip(sentences, tags)):
            if len(words) != len(row):
                raise UserError(
                    "A tag was expected for every word. Received for sentence "
                    f"{number}: {len(words)} words, {len(row)} tags"
                )
            unknown = next((tag for tag in row if tag not in ids), None)
            if unknown is not None:
                raise UserError(
                    f"One of the labels {self.labels} was expected. Received in sentence {number}: "
                    f"{unknown!r}. Make the model with all labels that occur."
                )
        return np.array([ids[tag] for row in tags for tag in row], np.int32)

    def get_config(self):
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "labels": list(self.labels),
            "use_crf": self.use_crf,
            "dropout": self.dropout,
        }


def _name(tag):
    return tag.decode("utf-8", "replace") if isinstance(tag, bytes) else tag


def word_weights(y, sample_weight) -> tf.Tensor:
    """float32 `[B, T]`: 1 at labelled words, times the weight of the sentence."""
    weights = tf.cast(tf.not_equal(y, IGNORED), tf.float32)
    if sample_weight is not None:
        weights *= tf.reshape(tf.cast(sample_weight, tf.float32), [-1, 1])
    return weights
