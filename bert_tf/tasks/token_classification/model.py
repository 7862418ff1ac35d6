"""Tagging: a label for every word. Named entities, parts of speech, segmentation."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError, require
from bert_tf.inputs.columns import flat_strings, is_text
from bert_tf.inputs.labels import IGNORED, check_labels, class_names
from bert_tf.layers.crf import ConditionalRandomField
from bert_tf.models.backbone import BertBackbone
from bert_tf.models.preprocessor import Held
from bert_tf.tasks.shared.dense_head_model import DenseHeadModel
from bert_tf.tasks.token_classification.preprocessor import tagged_spans
from bert_tf.tasks.token_classification.serving import TokenClassificationModule
from bert_tf.tasks.token_classification.word_windows import WORD_STARTS, WordWindows
from bert_tf.training.losses.sparse_crossentropy import class_loss, refuse_class_weight
from bert_tf.training.losses.token_loss import TokenLoss, token_weights
from bert_tf.training.traced_steps import is_one_request, predict_rows

CRF_LEARNING_RATE_MULTIPLIER = 100.0  # its transitions begin at zero


@keras.saving.register_keras_serializable(package="bert_tf")
class BertTokenClassifier(TokenLoss, DenseHeadModel):
    """BERT with a linear classifier on the first piece of each word, and optionally a CRF.

    `fit` and `evaluate` take sentences as lists of words, and as `y` a list of tags for each
    sentence. Sentences longer than `max_length` are cut between words, and the results are joined.
    Labels such as `O`, `B-PER`, `I-PER` (IOB1, IOB2 or BIOES) mark spans of words; other labels
    mark single words.

    Args:
        backbone, tokenizer: See `TaskModel`.
        num_classes: Number of labels; None means the number of `labels`.
        labels: The labels' names, in the order of their ids.
        use_crf: Whether the labels of a sentence are chosen together, by a linear-chain CRF.
        dropout: Dropout before the classifier; None means the rate of the configuration.
        max_length: The maximum number of tokens of a window.
        use_scalar_mix: Whether the vectors of tokens are a `bert_tf.layers.ScalarMix` of the
            embeddings and of the outputs of all blocks, instead of the output of the last block.
        lstm_units: The units of a `bert_tf.layers.StackedLSTM` between the encoder and the
            classifier, or a list with those of several layers. None means no LSTM.
        lstm_bidirectional: Whether the LSTM reads in both directions.
        space_before_all_words: For a vocabulary with `▁` for spaces, such as XLM-R's: whether words
            are read as Hugging Face reads them, with a space before each, and texts are split at
            spaces. If not, there is no lone `▁` before words of scripts without spaces, such as
            Chinese, Japanese and Thai, and texts are split as BERT splits them. A trained model
            whose files do not have this option keeps Hugging Face's way.

    Returns:
        Logits float32 `[B, T, num_classes]`; with a CRF, its emissions. If the inputs have
        `word_starts` bool `[B, T]`, the first pieces of words, the ids of labels int32 `[B, T]`.
        `fit` on token dictionaries takes labels int32 `[B, T]`, -100 at tokens without a label.

    Raises:
        UserError: If there are not at least two different labels, `num_classes` is another number,
            or `lstm_units` are not positive integers.

    Example:
        >>> labels = ["O", "B-PER", "I-PER"]
        >>> model = bert_tf.BertTokenClassifier.from_pretrained("bert-base/", labels=labels)
        >>> model.compile(bert_tf.training.AdamWeightDecay(1e-2, bias_correction=True))
        >>> model.fit([["Ada", "Lovelace", "wrote"]], [["B-PER", "I-PER", "O"]], epochs=10)
        >>> model.tag("Ada Lovelace wrote")
        [TaggedSpan(start=0, end=12, label='PER', text='Ada Lovelace')]

    Reference: Devlin et al. 2019, section 5.3; Lample et al. 2016 (arXiv 1603.01360) for the CRF;
    Peters et al. 2018 (ELMo, arXiv 1802.05365), section 3.2, for the mix.
    """

    no_metrics = (
        "the accuracy is that of words. bert_tf.tasks.token_classification.TaggingScores adds "
        "precision, recall and F1 of spans"
    )
    labels = Held()
    space_before_all_words = Held()

    def __init__(
        self,
        backbone: BertBackbone,
        num_classes: int | None = None,
        labels: Sequence[str] | None = None,
        use_crf: bool = False,
        dropout: float | None = None,
        tokenizer=None,
        max_length: int | None = None,
        use_scalar_mix: bool = False,
        lstm_units: int | Sequence[int] | None = None,
        lstm_bidirectional: bool = True,
        space_before_all_words: bool = False,
        **kwargs,
    ):
        super().__init__(backbone, tokenizer, max_length, **kwargs)
        self.space_before_all_words = space_before_all_words
        self.labels = class_names(labels)
        if self.labels is None:
            self.labels = [f"LABEL_{index}" for index in range(num_classes or 0)]  # as Hugging Face
        labels = self.labels
        require(len(set(labels)) >= 2, "must be at least two different names", labels=labels)
        self.num_classes = len(labels) if num_classes is None else num_classes
        self.check_options()
        self.use_crf = use_crf
        self.add_dropout(dropout)
        self.add_lstm(lstm_units, lstm_bidirectional)
        self.uses_pooler = self.pools_tokens
        self.classifier = self.dense_head(len(labels))
        self.add_scalar_mix(use_scalar_mix)
        self.crf = ConditionalRandomField(len(labels), name="crf") if use_crf else None
        self.accuracy = keras.metrics.Mean(name="accuracy")
        self.built = True

    @classmethod
    def from_config(cls, config):
        # A file that does not have this option is older than it.
        return super().from_config({"space_before_all_words": True, **config})

    def check_options(self):
        super().check_options()
        self.preprocessor.follow(labels=class_names(self.labels))
        check_labels(self.labels, self.num_classes)

    def compile(self, optimizer="adam", loss="auto", **kwargs):
        """Compiles as Keras does; the loss is over words, and accuracy is always in the logs.

        A CRF learns its transitions from zero: give them a larger learning rate,
        `AdamWeightDecay(5e-5, learning_rate_multipliers={"crf": 100.0})`, as `fit` does without
        `compile`.

        Args:
            loss: A `bert_tf.training.SparseCrossentropy`, with label smoothing, focus or class
                weights. "auto" means cross-entropy, or with a CRF its own loss over paths.
            optimizer, **kwargs: See `TrainingModel.compile`, without metrics.

        Raises:
            UserError: For another loss, for any loss with a CRF, and for metrics.
        """
        loss = class_loss(loss)
        if self.use_crf and loss is not None:
            raise UserError(
                "`loss` must be 'auto' with a CRF, whose loss is over the paths of a sentence: "
                "label smoothing, focus and class weights are for single words. Received: "
                f"loss={type(loss).__name__}, use_crf=True. Leave the loss out, or make the model "
                "with use_crf=False."
            )
        super().compile(optimizer=optimizer, loss=loss, **kwargs)

    @property
    def num_token_classes(self):
        return self.num_classes

    def default_compile(self, y):
        options = super().default_compile(y)
        if self.use_crf:
            options["optimizer"].learning_rate_multipliers["crf"] = CRF_LEARNING_RATE_MULTIPLIER
        return options

    def head(self, outputs, tokens, training=False):
        states = self.dropout_layer(self.token_states(outputs, tokens), training=training)
        logits = self.token_logits(states)  # [B, T, C]
        if WORD_STARTS not in tokens:
            return logits
        return self.best_tags(logits, tokens[WORD_STARTS])  # [B, T]

    def best_tags(self, logits: tf.Tensor, word_starts: tf.Tensor) -> tf.Tensor:
        """Returns label ids int32 `[B, T]` for logits `[B, T, C]` and first pieces `[B, T]`."""
        if self.crf is not None:
            return self.crf(logits, word_starts)
        return tf.argmax(logits, axis=-1, output_type=tf.int32)

    def partial_loss(self, x, y, y_pred, sample_weight, training, totals):
        """Returns the mean over words; with a CRF, each word counts the loss of its sentence."""
        weights = token_weights(y, sample_weight)  # [B, T]
        labelled = tf.not_equal(y, IGNORED)
        targets = tf.where(labelled, tf.cast(y, tf.int32), 0)
        hits = tf.equal(self.best_tags(y_pred, labelled), targets)
        self.accuracy.update_state(tf.cast(hits, tf.float32), weights)
        if self.crf is not None:
            losses = self.crf.negative_log_likelihood(y_pred, targets, labelled)  # [B]
            weights = tf.reduce_max(weights, axis=1)  # every word of a row has the row's weight
        elif self.loss is not None:
            losses = self.loss.call(targets, y_pred)  # [B, T]
        else:
            losses = tf.nn.sparse_softmax_cross_entropy_with_logits(targets, y_pred)
        return tf.math.divide_no_nan(tf.reduce_sum(losses * weights), totals["words"])

    def class_weights(self, class_weight):
        way_out = "compile(loss=bert_tf.training.SparseCrossentropy(class_weights=[…])) has them"
        if self.use_crf:
            way_out = "A CRF has no class weights"
        reason = "Keras weights examples by it, and here the classes are those of words."
        refuse_class_weight(class_weight, f"{reason} {way_out}")

    def predict_tags(
        self,
        sentences: Any,
        batch_size: int | None = None,
        token_budget: int | None = None,
        verbose: int = 0,
    ) -> list[list[str]]:
        """Returns the tags of sentences.

        Args:
            sentences: Lists of words.
            batch_size, token_budget, verbose: See `predict`.

        Returns:
            For each sentence a list of tags, one for each word.

        Raises:
            UserError: If there is no tokenizer, or a sentence is not a list of words.

        Example:
            >>> labels = ["O", "B-PER"]
            >>> model = bert_tf.BertTokenClassifier.from_pretrained("bert-base/", labels=labels)
            >>> [len(tags) for tags in model.predict_tags([["Ada", "wrote"], ["Rain"]])]
            [2, 1]
        """
        words, row_splits = flat_strings(*self.preprocessor.read_examples(sentences))
        ids = self._label_ids(words, row_splits, batch_size, token_budget, verbose)
        tags, splits = np.array(self.labels, object)[ids], row_splits.numpy()
        return [tags[start:end].tolist() for start, end in zip(splits, splits[1:])]

    def _label_ids(self, words, row_splits, batch_size, token_budget, verbose):
        """Returns the label of each of the words `[W]`, int32 `[W]`."""
        self.preprocessor.require_tokenizer()
        rows = WordWindows(
            self.tokenizer,
            words,
            row_splits,
            self.max_sequence_length,
            has_word_starts=True,
            space_before_all_words=self.space_before_all_words,
        )
        ids = predict_rows(self, rows, batch_size, verbose, token_budget=token_budget)
        return rows.marked_values(ids)

    def tag(
        self,
        texts: Any,
        batch_size: int | None = None,
        token_budget: int | None = None,
        verbose: int = 0,
    ) -> list:
        """Returns the spans of texts or of lists of words.

        Args:
            texts: A list of strings, or one, which are split as BERT's basic tokenizer does: at
                white space, punctuation and around ideographs (byte pairs, and models with
                `space_before_all_words`: at spaces); or a list of lists of words, for a model that
                was trained on words split in another way.
            batch_size, token_budget, verbose: See `predict`.

        Returns:
            A list of `TaggedSpan` for each text, or one list for one string. If labels do not mark
            spans, there is a span for each word.

        Raises:
            UserError: If there is no tokenizer, or an example has several texts.
            DataError: If a text is missing or malformed.

        Example:
            >>> labels = ["O", "B-PER"]
            >>> model = bert_tf.BertTokenClassifier.from_pretrained("bert-base/", labels=labels)
            >>> sentences = model.tag([["Ada", "wrote"], ["It", "rains"]])  # `TaggedSpan`s of each
            >>> len(sentences)
            2
        """
        if is_text(texts):
            return self.tag([texts], batch_size, token_budget, verbose)[0]
        sentences = self.preprocessor.read_sentences(texts)
        is_one_text = len(sentences) == 1 and is_text(sentences[0])
        if is_one_text and is_one_request(self, batch_size, token_budget, verbose):
            spans = TokenClassificationModule(self).call("spans", sentences)
            return tagged_spans(sentences, *(part.numpy() for part in spans))
        words = self.preprocessor.words(sentences)
        ids = self._label_ids(words.words, words.row_splits, batch_size, token_budget, verbose)
        return self.preprocessor.spans(words, ids, sentences)
