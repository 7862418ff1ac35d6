"""Classification and regression, of single texts and of pairs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.config import (
    CLASSIFIER_POOLING_MODES,
    MULTI_LABEL,
    PROBLEM_TYPES,
    REGRESSION,
    SINGLE_LABEL,
)
from bert_tf.errors import UserError, require, require_one_of
from bert_tf.inputs.columns import refuse_missing, row_array
from bert_tf.inputs.labels import (
    check_labels,
    class_id,
    class_names,
    class_sets,
    read_regression_labels,
)
from bert_tf.inputs.token_inputs import PACKED_PLACES
from bert_tf.inputs.word_labels import next_words
from bert_tf.layers.masked_lm_head import MaskedLMHead
from bert_tf.layers.pooling import SequencePooling, first_columns, first_token
from bert_tf.models.backbone import BertBackbone
from bert_tf.models.preprocessor import Held
from bert_tf.tasks.shared.dense_head_model import DenseHeadModel
from bert_tf.tasks.text_classification.preprocessor import Classification, answer_columns, frame_of
from bert_tf.tasks.text_classification.zero_shot import zero_shot
from bert_tf.training.losses.sparse_crossentropy import refuse_class_weight

if TYPE_CHECKING:
    import pandas


@keras.saving.register_keras_serializable(package="bert_tf")
class BertTextClassifier(DenseHeadModel):
    """BERT with a linear layer on a pooled vector: one label, several labels, or a number.

    Args:
        backbone, tokenizer, max_length: See `TaskModel`. A backbone that is built with
            `num_encoder_layers=k` stops after k blocks.
        num_classes: Number of outputs. None means the number of `labels`; without labels, 1 for
            regression and else 2.
        labels: The classes' names, in the order of their ids.
        problem_type: "single_label_classification", "multi_label_classification" or "regression",
            as in Hugging Face. None means regression for `num_classes=1`, else a single label.
        pooling: "cls" (the pooler on the first token, as in the paper), "mean", "max" or
            "mean_max" over the real tokens, or "last", the last token, which in a left-to-right
            model (`causal` of `BertBackbone`) attends to all others.
        dropout: Dropout before the classifier; None means the rate of the configuration.
        lm_loss_weight: For a left-to-right model: the weight of the next-word loss of the texts,
            which is added in training (0.5 in GPT). This loss is the mean over the texts of the
            mean over the words of each.
        both_orders: Whether the vectors of a pair in both orders are added, for tasks in which the
            order has no meaning, such as similarity. It needs a tokenizer with segment ids, such as
            BERT's.
        use_scalar_mix: Whether the vectors of tokens are a `bert_tf.layers.ScalarMix` of the
            embeddings and of the outputs of all blocks, instead of the output of the last block,
            as in ELMo.
        lstm_units: The units of a `bert_tf.layers.StackedLSTM` between the encoder and the
            classifier, or a list with those of several layers. None means no LSTM. With one,
            "cls" takes the output of each direction after all tokens, and the pooler is not used.
        lstm_bidirectional: Whether the LSTM reads in both directions.
        threshold: The probability from which a text is of class 1 of two, or has one of several
            labels. None is the most probable class, or 0.5 for several labels. It can be set later,
            and is saved and exported with the model. `bert_tf.training.ThresholdSweep` finds one.

    Returns:
        Logits float32 `[B, num_classes]`.

    Raises:
        UserError: If `pooling` or `problem_type` is unknown, the number of labels does not fit,
            `lm_loss_weight` is given for a model that attends to later tokens, `both_orders` for a
            tokenizer without segment ids, `threshold` for other than two classes, or `lstm_units`
            are not positive integers.

    Example:
        >>> names = ["bad", "good"]
        >>> classifier = bert_tf.BertTextClassifier.from_pretrained("bert-base/", labels=names)
        >>> classifier.compile(optimizer=bert_tf.training.AdamWeightDecay(5e-5))
        >>> classifier.fit(["a waste of time", "wonderful"], ["bad", "good"])
        >>> classifier.predict(["I laughed all the way through."]).shape  # logits
        (1, 2)
        >>> classifier.classify("I laughed all the way through.").label in ("bad", "good")
        True

    Reference: Devlin et al. 2019, section 4.1; google-research/bert run_classifier.py; Radford et
    al. 2018, "Improving Language Understanding by Generative Pre-Training", sections 3.2 and 3.3;
    Peters et al. 2018 (ELMo, arXiv 1802.05365), section 3.2.
    """

    num_classes = Held()
    labels = Held()
    problem_type = Held()
    threshold = Held()
    _r_drop = 0.0

    def __init__(
        self,
        backbone: BertBackbone,
        num_classes: int | None = None,
        labels: list[str] | None = None,
        pooling: str = "cls",
        dropout: float | None = None,
        tokenizer=None,
        max_length: int | None = None,
        problem_type: str | None = None,
        lm_loss_weight: float = 0.0,
        both_orders: bool = False,
        use_scalar_mix: bool = False,
        lstm_units: int | Sequence[int] | None = None,
        lstm_bidirectional: bool = True,
        threshold: float | None = None,
        **kwargs,
    ):
        super().__init__(backbone, tokenizer, max_length, **kwargs)
        require_one_of("pooling", pooling, CLASSIFIER_POOLING_MODES)
        causal = backbone.config.causal
        is_valid = lm_loss_weight == 0 or (lm_loss_weight > 0 and causal)
        rule = (
            "must be at least 0, and 0 unless the backbone is causal: else it sees the next words"
        )
        require(is_valid, rule, lm_loss_weight=lm_loss_weight, causal=causal)
        self.num_classes, self.problem_type = num_classes, problem_type
        self.labels = class_names(labels)
        kind = _kind_of_classes(self.num_classes, self.labels, self.problem_type)
        self.num_classes, self.problem_type = num_classes, problem_type = kind
        self.pooling = pooling
        self.add_lstm(lstm_units, lstm_bidirectional)
        has_pooler = self.lstm is None
        is_pooled = backbone.config.pooler_use != "cls" and pooling not in ("late", "mean_max")
        self.is_pooled = is_pooled and has_pooler
        self.uses_pooler = has_pooler and (pooling in ("cls", "late") or self.is_pooled)
        self.lm_loss_weight = lm_loss_weight
        self.both_orders = both_orders
        self.threshold = threshold
        self.check_options()
        self.add_dropout(dropout)
        self.sequence_pooling = None
        if pooling != "cls":
            shape = [None, None, self.state_size]
            self.sequence_pooling = self.built_layer(
                SequencePooling,
                "mean" if pooling == "late" else pooling,
                name="sequence_pooling",
                shape=shape,
            )
        self.language_model_head = None
        if lm_loss_weight:
            self.language_model_head = self.built_layer(
                MaskedLMHead, backbone.config, name="masked_lm"
            )
        width = self.state_size * (2 if pooling == "mean_max" else 1)
        example = {"example_shape": (2, num_classes), "problem_type": problem_type}
        self.classifier = self.dense_head(num_classes, width=width, **example)
        self.add_scalar_mix(use_scalar_mix)
        self.built = True

    def check_options(self):
        super().check_options()
        self.preprocessor.follow(labels=class_names(self.labels))
        check_labels(self.labels, self.num_classes)
        self.preprocessor.require_threshold(self.threshold)
        tokenizer = self.tokenizer
        if self.both_orders and tokenizer is not None and not tokenizer.has_segments:
            raise UserError(
                "`both_orders` must be False for a tokenizer without segment ids, which "
                "distinguish the two texts of a pair. Train on each pair in both orders instead. "
                "Received: both_orders=True, "
                f"a {type(tokenizer).__name__} with has_segments=False"
            )

    @property
    def r_drop(self) -> float:
        """The argument of `compile`."""
        return self._r_drop

    def compile(
        self, optimizer="adam", loss="auto", metrics=None, *, r_drop: float = 0.0, **kwargs
    ):
        """Compiles as Keras does; the loss defaults to that of the problem's type.

        Args:
            optimizer, metrics, **kwargs: See `TrainingModel.compile`.
            loss: A loss on logits, such as `bert_tf.training.SparseCrossentropy`, which smooths the
                labels and focuses on hard examples.
            r_drop: With a positive number α, a training step computes each text twice, with
                different dropout. Its loss is the mean of both losses plus α times the mean of both
                Kullback-Leibler divergences between the two answers (R-Drop; 1 to 5 for GLUE). Only
                for one label per text.

        Raises:
            UserError: See `DenseHeadModel.compile`, or if `r_drop` is negative, or given for other
                than single-label classification, with `lm_loss_weight` or with pipeline stages.

        Example:
            >>> classifier = bert_tf.BertTextClassifier.from_pretrained("bert-base/")
            >>> classifier.compile(bert_tf.training.AdamWeightDecay(2e-5), r_drop=1.0)
            >>> classifier.fit(["a waste of time", "wonderful"], [0, 1])

        Reference: Liang et al. 2021 (R-Drop, arXiv 2106.14448), section 2.
        """
        require(r_drop >= 0, "must be at least 0", UserError, r_drop=r_drop)
        given = {
            "problem_type": self.problem_type,
            "lm_loss_weight": self.lm_loss_weight,
            "pipeline_stages": self.pipeline_placement is not None,
        }
        fits = list(given.values()) == [SINGLE_LABEL, 0, False]
        rule = "must be 0 but for single-label classification without such a loss or stages"
        require(not r_drop or fits, rule, UserError, r_drop=r_drop, **given)
        super().compile(optimizer=optimizer, loss=loss, metrics=metrics, **kwargs)
        self._r_drop = r_drop
        self._gradients_of = self._r_drop_gradients if r_drop else None
        self._compile_options["r_drop"] = r_drop

    def _r_drop_gradients(self, x, y, sample_weight, totals, variables):
        """Returns the loss of two passes and its gradients."""
        with tf.GradientTape() as tape:
            passes = [self(x, training=True) for _ in range(2)]  # [B, num_classes]
            losses = [self.partial_loss(x, y, p, sample_weight, True, totals) for p in passes]
            divergences = symmetric_divergence(*passes)  # [B]
            if sample_weight is not None:
                divergences *= tf.cast(tf.reshape(sample_weight, [-1]), divergences.dtype)
            divergence = tf.reduce_sum(divergences) / totals["rows"]
            loss = tf.add_n(losses) / 2.0 + self._r_drop * divergence
            scaled = self.optimizer.scale_loss(loss)
        self.compute_metrics(x, y, passes[0], sample_weight=sample_weight)
        return loss, tape.gradient(scaled, variables)

    def call(self, inputs, training=False):
        return self.logits_of(self.pooled(inputs, training), training=training)

    def pooled(self, inputs, training=False):
        """Returns the pooled vector of each text: `[B, state_size]`, or twice that for "mean_max".

        In training it adds the loss of the next words.
        """
        tokens = self.tokens_of(inputs)
        orders = [tokens]
        if self.both_orders and "segment_ids" in tokens:
            orders.append(swapped_pairs(tokens, self.backbone.padding_mask_of(tokens)))
        has_lm, vectors = bool(training and self.lm_loss_weight), []
        for tokens in orders:
            outputs = self.backbone(
                tokens,
                training=training,
                output_hidden_states=self.scalar_mix is not None,
                output_word_embeddings=has_lm,
            )
            if has_lm:
                weight = self.lm_loss_weight / len(orders)
                self.add_loss(weight * self._next_word_loss(outputs, tokens))
            vectors.append(self.pooled_of(outputs, tokens))
        return tf.add_n(vectors)

    def _next_word_loss(self, outputs, tokens):
        """Returns the mean over the texts of the mean loss of the words of each, a scalar."""
        mask = self.backbone.padding_mask_of(tokens)
        labels = next_words(tokens["token_ids"], mask)  # [B, T]
        states = outputs["sequence_output"]
        rows = tf.reshape(states, [-1, states.shape[-1]])  # [B, T, H] -> [B * T, H]
        logits = self.language_model_head(rows, outputs["word_embeddings"])
        ids = tf.reshape(tf.maximum(labels, 0), [-1])  # [B * T]
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(ids, logits)
        counted = tf.cast(labels >= 0, tf.float32)
        sums = tf.reduce_sum(tf.reshape(losses, tf.shape(labels)) * counted, axis=1)  # [B]
        return tf.reduce_mean(tf.math.divide_no_nan(sums, tf.reduce_sum(counted, axis=1)))

    def head(self, outputs, tokens, training=False):
        """Returns the logits, for pairs in the one order that the backbone computed."""
        return self.logits_of(self.pooled_of(outputs, tokens), training=training)

    def pooled_of(self, outputs: dict[str, Any], tokens: dict[str, tf.Tensor]) -> tf.Tensor:
        """Returns what `pooled` does, of the outputs of the backbone for these tokens.

        Call the backbone with `backbone_options()`. For pairs only the given order is pooled, even
        if `both_orders` is set.
        """
        if self.sequence_pooling is None and self.scalar_mix is None and self.lstm is None:
            return outputs["pooled_output"]
        mask = self.backbone.padding_mask_of(tokens)
        states = self.mixed_states(outputs, mask)  # [B, T, H]
        if self.pooling == "late" and self.uses_pooler:
            states = self.pooled_tokens(states)
        if self.sequence_pooling is None and self.lstm is not None:
            return self.lstm.final_states(states, mask)
        if self.sequence_pooling is None:
            return self.backbone.pooler(first_token(states, mask))
        pooled = self.sequence_pooling(states, mask)
        return self.backbone.pooler(pooled) if self.is_pooled else pooled

    def logits_of(self, pooled, training=False):
        """Applies dropout and the classifier to what `pooled` returned."""
        pooled = self.dropout_layer(pooled, training=True) if training else pooled
        return tf.cast(self.classifier(pooled), tf.float32)  # [B, num_classes]

    def classify(
        self,
        texts: Any,
        batch_size: int | None = None,
        token_budget: int | None = None,
        verbose: int = 0,
        as_frame: bool = False,
        threshold: float | None = None,
    ) -> "Classification | list[Classification] | pandas.DataFrame":
        """Returns the predicted classes of texts.

        Args:
            texts: Raw text as in `fit`: a list of texts or pairs, or one text or pair.
            batch_size, token_budget, verbose: See `predict`.
            as_frame: Whether to return a `pandas.DataFrame`.
            threshold: Another one than the model's `threshold`, which None takes.

        Returns:
            A `Classification` for each text, or one for one text. With `as_frame`, a data frame
            with the index of `texts`, if they have one. Its columns are `predicted_label`, or
            `predicted_labels` if a text may have several, and `probability_<label>` for every
            label; for a regression, `predicted_value`.

        Raises:
            UserError: If there is no tokenizer, an example has more than two texts, the model takes
                no such threshold, or pandas is needed and not installed.
            DataError: If a text is missing or malformed.

        Example:
            >>> import pandas
            >>> classifier = bert_tf.BertTextClassifier.from_pretrained("reviews/")
            >>> frame = pandas.DataFrame({"text": texts}, index=[7, 3, 5, 1])
            >>> found = classifier.classify(frame["text"], as_frame=True)
            >>> list(found)
            ['predicted_label', 'probability_bad', 'probability_good']
            >>> frame.join(found).index.tolist()
            [7, 3, 5, 1]
        """
        if threshold is not None:
            self.preprocessor.require_threshold(threshold)
        found = self.predict_decoded(texts, batch_size, token_budget, verbose)
        is_single = isinstance(found, Classification)
        answers = [found] if is_single else found
        if threshold is not None:
            probabilities = np.array([list(answer.scores.values()) for answer in answers])
            answers = self.preprocessor.decided(probabilities, threshold)
        if not as_frame:
            return answers[0] if is_single else answers
        return frame_of(answer_columns(answers, self.preprocessor.names, self.problem_type), texts)

    def zero_shot(
        self,
        texts: str | Sequence[str],
        candidate_labels: Sequence[str],
        hypothesis_template: str = "This example is {}.",
        multi_label: bool = False,
        batch_size: int | None = None,
        token_budget: int | None = None,
        verbose: int = 0,
    ) -> Classification | list[Classification]:
        """Returns which of any labels fit texts. The classifier is one of inference (NLI).

        A text and the hypothesis of a label, such as "This example is sport.", are a pair of which
        the classifier says whether the text entails the hypothesis.

        Args:
            texts: n texts, or one.
            candidate_labels: Words or phrases.
            hypothesis_template: A sentence with `{}` for the label, in the language of the texts.
            multi_label: Whether several labels may fit a text. Then each has a probability of its
                own: entailment against contradiction.
            batch_size, token_budget, verbose: See `predict`.

        Returns:
            A `Classification` for each text, or one for one text: the best label, or with
            `multi_label` those with a probability of at least 0.5, and the probability of each.

        Raises:
            UserError: If no label of the classifier begins with "entail", there is no tokenizer, or
                an argument has another form.
            DataError: If a text is missing or malformed.

        Example:
            >>> names = ["contradiction", "entailment", "neutral"]
            >>> model = bert_tf.BertTextClassifier.from_pretrained("bert-base/", labels=names)
            >>> found = model.zero_shot("The keeper saved a penalty.", ["sport", "cooking"])
            >>> sorted(found.scores), round(sum(found.scores.values()), 3)
            (['cooking', 'sport'], 1.0)

        Reference: Yin et al. 2019 (arXiv 1909.00161); the pipeline "zero-shot-classification" of
            transformers.
        """
        asked = candidate_labels, hypothesis_template, multi_label
        return zero_shot(self, texts, *asked, batch_size, verbose, token_budget=token_budget)

    def targets(self, labels) -> np.ndarray:
        """Returns labels as `fit` takes them.

        Args:
            labels: One name per example; for several labels, one list of names per example; for
                regression, one number per example.

        Returns:
            int32 `[n]`; float32 `[n, num_classes]` of 0 and 1 for several labels; float32 `[n]` for
            regression. If names are numbers other than their ids, `fit` refuses numbers: pass the
            names as strings.

        Raises:
            DataError: If the model does not have a label.

        Example:
            >>> classifier = bert_tf.BertTextClassifier.from_pretrained("reviews/")  # bad, good
            >>> classifier.targets(["good", "bad"])
            array([1, 0], dtype=int32)
        """
        if self.problem_type == REGRESSION:
            return read_regression_labels(labels, self.num_classes)
        names = row_array(labels, "labels")
        refuse_missing(names, "labels")
        if self.problem_type == MULTI_LABEL:
            return class_sets(names, self.labels, self.num_classes)
        ids = [class_id(name, self.labels, self.num_classes) for name in names.reshape(-1).tolist()]
        return np.array(ids, np.int32)

    @property
    def class_names(self) -> list[str]:
        """The names of the classes, LABEL_0 and so on without labels; empty for a regression."""
        return [] if self.problem_type == REGRESSION else self.preprocessor.names

    def class_weights(self, class_weight):
        """Takes class ids or names as keys; only for single-label classification."""
        if self.problem_type != SINGLE_LABEL:
            reason = f"an example of {self.problem_type} is not of one class; "
            refuse_class_weight(class_weight, f"{reason}`sample_weight` weights examples")
        return super().class_weights(class_weight)

    def probabilities(self, logits) -> np.ndarray:
        """Returns probabilities, float64 of the same shape: softmax, or sigmoid for several labels.

        For a regression it returns the numbers.
        """
        return self.preprocessor.probabilities(logits)


def symmetric_divergence(first: tf.Tensor, second: tf.Tensor) -> tf.Tensor:
    """Returns (KL(p, q) + KL(q, p)) / 2 of the softmaxes of logits `[B, C]`, float32 `[B]`."""
    first, second = (tf.nn.log_softmax(tf.cast(logits, tf.float32)) for logits in (first, second))
    # Σ p (log p - log q) + Σ q (log q - log p)
    return tf.reduce_sum((tf.exp(first) - tf.exp(second)) * (first - second), axis=-1) / 2.0


def _kind_of_classes(num_classes, labels, problem_type):
    """Returns the number of classes and the problem type, also of those that are None."""
    if problem_type is None:
        problem_type = REGRESSION if num_classes == 1 and labels is None else SINGLE_LABEL
    require_one_of("problem_type", problem_type, PROBLEM_TYPES)
    if num_classes is None:
        default = 1 if problem_type == REGRESSION else 2
        num_classes = default if labels is None else len(labels)
    fewest = 2 if problem_type == SINGLE_LABEL else 1
    rule = f"must be at least {fewest} for {problem_type}"
    require(num_classes >= fewest, rule, num_classes=num_classes, labels=labels)
    return num_classes, problem_type


def swapped_pairs(tokens: dict[str, tf.Tensor], padding_mask: tf.Tensor) -> dict[str, tf.Tensor]:
    """Returns `[CLS] b [SEP] a [SEP]` for rows `[CLS] a [SEP] b [SEP]`, with padding on the right.

    Args:
        tokens: `token_ids` and `segment_ids`, int32 `[B, T]`; rows without a second text stay.
            `word_vectors` `[B, T, E]` move with their tokens; `head_mask` `[B, L, N]` and
            `packed_places` `[R]` are kept.
        padding_mask: bool `[B, T]`, True for real tokens.
    """
    segments = tf.cast(tokens["segment_ids"], tf.int32)
    columns = tf.range(tf.shape(segments)[1])
    is_first = columns == first_columns(padding_mask)[:, tf.newaxis]  # [B, T]
    # [CLS] is followed by the second text, the first and the padding, each in its order.
    place = tf.where(padding_mask, 2 - tf.minimum(segments, 1), 3)
    order = tf.argsort(tf.where(is_first, 0, place), axis=1, stable=True)  # [B, T]
    ids = tf.gather(tf.cast(tokens["token_ids"], tf.int32), order, batch_dims=1)
    mask = tf.gather(padding_mask, order, batch_dims=1)
    moved = tf.gather(segments, order, batch_dims=1)
    has_pair = tf.reduce_any((segments > 0) & padding_mask, axis=1, keepdims=True)
    other = tf.where(columns == 0, 0, 1 - tf.minimum(moved, 1))
    others = {}
    if tokens.get("word_vectors") is not None:
        others["word_vectors"] = tf.gather(tokens["word_vectors"], order, batch_dims=1)
    others |= {name: tokens[name] for name in ("head_mask", PACKED_PLACES) if name in tokens}
    return {
        **others,
        "token_ids": ids,
        "segment_ids": tf.where(has_pair & mask, other, 0),
        "padding_mask": mask,
    }
