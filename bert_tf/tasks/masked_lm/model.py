"""The masked language model: which word stands behind `[MASK]`, and how likely a sentence is."""

import random
from typing import Any, NamedTuple

import keras
import numpy as np
import tensorflow as tf

from bert_tf.errors import UserError
from bert_tf.layers.masked_lm_head import MaskedLMHead
from bert_tf.layers.token_layout import needs_static_shapes
from bert_tf.models.backbone import BertBackbone
from bert_tf.models.task_model import TaskModel
from bert_tf.models.text_batches import EXAMPLE_INDEX, text_batches
from bert_tf.models.text_inputs import TextColumns, holds_text
from bert_tf.models.text_streams import collected, refuse_steps, yields_text
from bert_tf.tasks.masked_lm.masked_text import mask_texts
from bert_tf.tasks.masked_lm.masked_word_model import MaskedWordModel, weighted
from bert_tf.tasks.masked_lm.one_mask_batches import TARGET_IDS, one_mask_batches
from bert_tf.text.tokenizer import BertTokenizer

REDUCTIONS = ("sum", "mean", "none")


class Candidate(NamedTuple):
    """A piece that may be the word at a `[MASK]`, and its probability.

    Example:
        >>> Candidate("paris", 0.5).piece
        'paris'
    """

    piece: str
    probability: float


@keras.saving.register_keras_serializable(package="bert_tf")
class BertMaskedLM(TaskModel, MaskedWordModel):
    """BERT with its masked-LM head.

    `fit` takes raw texts, or pairs of them, and masks 15 % of the tokens anew in every epoch:
    training on the texts of a domain before the task itself. For other masks pass the dataset of
    `bert_tf.tasks.masked_lm.mask_texts`, for text files that of `bert_tf.tasks.pretraining.text`.
    `evaluate` and the validation in `fit` mask the same tokens every time. Only the masked
    positions go through the vocabulary matmul.

    Args:
        backbone: The `BertBackbone`.
        tokenizer: The `BertTokenizer`.
        max_length: Longest sequence in tokens; longer text is cut.

    Call arguments:
        inputs: What the backbone takes, and `masked_positions` int32 `[B, P]`; without them the
            logits of all T tokens are computed.

    Returns:
        Logits float32 `[B, P, V]`.

        `fit` takes the labels `masked_ids` int `[B, P]` and `masked_weights` float `[B, P]`, 0 for
        unused places. A row's `sample_weight` is a factor of the weights of its words.

    Example:
        >>> model = bert_tf.BertMaskedLM.from_pretrained("bert-base-uncased/")
        >>> candidates = model.fill_mask("The capital of France is [MASK].", top_k=2)
        >>> [candidate.piece for candidate in candidates[0]]  # of the first [MASK], likeliest first
        [..., ...]
        >>> model.score(["He caught a cold.", "He caught a gold."]).shape  # log-likelihoods
        (2,)

    Reference: Devlin et al. 2019, section 3.1; Salazar et al. 2020 (arXiv 1910.14659) for `score`;
    Gururangan et al. 2020 (arXiv 2004.10964) for training on a domain.
    """

    needs_labels = True

    def __init__(
        self, backbone: BertBackbone, tokenizer=None, max_length: int | None = None, **kwargs
    ):
        super().__init__(backbone, tokenizer, max_length, **kwargs)
        backbone.pooler.trainable = False  # no part of the loss
        self.masked_lm_head = MaskedLMHead(
            backbone.config, dtype=self.dtype_policy, name="masked_lm"
        )
        self._mask_tokenizer = None  # made for the first text with masks
        self.build()

    def build(self, input_shape=None):
        if not self.masked_lm_head.built:
            self.masked_lm_head.build()
        self.built = True

    def call(self, inputs, training=False, weights=None):
        """`weights` `[B, P]`: logits `[M, V]` for the M places whose weight is above zero."""
        tokens = self.tokens_of(inputs)
        outputs = self.backbone(tokens, training=training, output_word_embeddings=True)
        return self.word_logits(outputs, tokens.get("masked_positions"), weights)

    def forward(self, x, y, training):
        weights = None if needs_static_shapes() else y["masked_weights"]
        return self(x, training=training, weights=weights)

    def loss_denominators(self, x, y, sample_weight):
        weights = tf.cast(y["masked_weights"], tf.float32)
        return {"words": tf.reduce_sum(weighted(weights, sample_weight))}

    def partial_loss(self, x, y, y_pred, sample_weight, training, totals):
        ids, weights = tf.cast(y["masked_ids"], tf.int32), tf.cast(y["masked_weights"], tf.float32)
        return self.word_loss(ids, weights, y_pred, totals["words"], sample_weight)

    def _validation_dataset(self, data, batch_size):
        # Texts have no labels, so a tuple of two columns is pairs and not Keras's (x, y).
        if isinstance(data, tuple) and len(data) == 2 and all(map(holds_text, data)):
            data = (data,)
        return super()._validation_dataset(data, batch_size)

    def _prepare(self, x, y, sample_weight, batch_size, shuffle, training):
        is_text = isinstance(x, TextColumns) or (isinstance(x, tf.data.Dataset) and yields_text(x))
        if not is_text:
            return super()._prepare(x, y, sample_weight, batch_size, shuffle, training)
        self._require_mask_token()
        for name, values in (("y", y), ("sample_weight", sample_weight)):
            if values is not None:
                raise UserError(
                    "Text alone was expected: its masked tokens are the labels. "
                    f"Received: {name}={type(values).__name__}"
                )
        if isinstance(x, TextColumns):
            rows = self._batches_of_rows(x.num_rows, None, None, batch_size, shuffle)
            x = rows.map(_texts_of_rows(tuple(map(tf.constant, x))))
        # Training masks anew in every epoch. `keras.utils.set_random_seed` sets Python's generator
        # too.
        seed = random.randrange(2**31) if training else 0
        dataset = mask_texts(x, self.tokenizer, self._longest(), seed=seed, fresh=training)
        return {"x": dataset, "y": None, "sample_weight": None, "batch_size": None}

    def _require_mask_token(self):
        self._require_tokenizer()
        if self.tokenizer.mask_token is None:
            raise UserError(
                "A tokenizer with a mask token was expected. Received: mask_token=None. Name the "
                "piece of the vocabulary that hides tokens."
            )

    def predict(
        self,
        x,
        batch_size=None,
        verbose="auto",
        steps=None,
        callbacks=None,
        *,
        top_k: int = 5,
        token_budget: int | None = None,
    ):
        """`fill_mask` of a list of texts; `keras.Model.predict`, the logits, of token dictionaries.

        Args:
            x: Texts, or what `call` takes.
            batch_size: Rows of a batch; of texts the most, at the longest length.
            verbose: As in Keras; texts show no bar.
            steps: As in Keras; not for texts.
            callbacks: As in Keras; not for texts.
            top_k: For texts: how many pieces to return for each `[MASK]`.
            token_budget: For texts: tokens of a batch, padding counted; default 4,096.
        """
        x = self.raw(x)
        if isinstance(x, tf.data.Dataset) and yields_text(x):
            raise UserError(
                "A list of texts was expected, or token dictionaries. Received: a dataset of text."
            )
        if not isinstance(x, TextColumns):
            return super().predict(
                x, batch_size, verbose, steps, callbacks, token_budget=token_budget
            )
        refuse_steps(steps, callbacks)
        if batch_size is not None and token_budget is None:
            token_budget = batch_size * self._longest()
        return self.fill_mask(x, top_k, token_budget)

    def fill_mask(self, texts: Any, top_k: int = 5, token_budget: int | None = None) -> list:
        """The likeliest pieces behind every `[MASK]` that is written in the texts.

        Args:
            texts: Raw text as in `fit`, single or in pairs; one string or one pair of strings.
            top_k: How many pieces.
            token_budget: Tokens of a batch, padding counted; default 4,096.

        Returns:
            For each text, for each of its `[MASK]`s, a list of `top_k` `Candidate`s, the likeliest
            first; for one string or pair its `[MASK]`s.

        Raises:
            UserError: If a text has no `[MASK]`, or one behind the place where it is cut.
        """
        self._require_mask_token()
        columns = self.read_columns(collected(texts, self.is_example))
        vocabulary = self.tokenizer.vocabulary
        if not 1 <= top_k <= len(vocabulary):
            raise UserError(f"`top_k` must be in [1, {len(vocabulary)}]. Received: top_k={top_k!r}")
        mask = self.tokenizer.mask_token.encode()
        counts = [sum(text.count(mask) for text in row) for row in zip(*columns)]
        for row, count in enumerate(counts):
            if not count:
                text = " ||| ".join(part[row].decode("utf-8", "replace") for part in columns)
                raise UserError(
                    f"{self.tokenizer.mask_token} was expected in every text. "
                    f"Received in row {row}: {text!r}"
                )
        filled = [[] for _ in counts]
        if self._mask_tokenizer is None:
            self._mask_tokenizer = keeping_special_tokens(self.tokenizer)
        texts = tuple(columns)
        for batch in text_batches(self._mask_tokenizer, texts, self._longest(), token_budget):
            examples = batch.pop(EXAMPLE_INDEX).numpy()
            rows, positions, places = _grouped(batch["token_ids"] == self.tokenizer.mask_token_id)
            logits = self.predict_on_batch({**batch, "masked_positions": positions})
            for row, place in zip(rows, places):
                filled[examples[row]].append(_candidates(logits[row, place], top_k, vocabulary))
        for row, (count, candidates) in enumerate(zip(counts, filled)):
            if count != len(candidates):
                raise UserError(
                    f"The text in row {row} is cut at {self._longest()} tokens, before its last "
                    f"{self.tokenizer.mask_token}. Shorten it, or pass a larger `max_length`."
                )
        return filled[0] if columns.is_single else filled

    def score(
        self,
        sentences: str | list[str],
        reduction: str = "sum",
        token_budget: int | None = None,
        verbose: int = 0,
    ) -> Any:
        """Pseudo-log-likelihood: every token's log-probability while it alone is masked.

        Of two sentences of about the same length the likelier one has the higher sum.

        Args:
            sentences: A list of strings, or one.
            reduction: "sum" over the tokens of a sentence, their "mean", or "none": each token's.
            token_budget: Tokens of a batch, padding counted; default 4,096.
            verbose: 1 shows a progress bar.

        Returns:
            float64 `[n]`, for one string a float; with "none" a list of n arrays `[tokens]` in the
            order of `tokenizer.pieces`, for one string one array.

        Raises:
            UserError: If a sentence has no token or more than the model takes.

        Reference: Salazar et al. 2020 (arXiv 1910.14659), section 2.
        """
        if reduction not in REDUCTIONS:
            raise UserError(f"`reduction` must be one of {REDUCTIONS}. Received: {reduction!r}")
        self._require_mask_token()
        columns = self.read_columns(collected(sentences, self.is_example))
        if len(columns) != 1:
            raise UserError(
                "Single sentences must be a list of strings. Received: pairs of texts. Score each "
                "by itself."
            )
        (texts,) = columns
        ids = self.tokenizer.tokenize(texts)
        lengths = ids.row_lengths().numpy()  # [n]
        for row, length in enumerate(lengths):
            if not 0 < length <= self._longest() - 2:
                raise UserError(
                    f"Sentences of 1 to {self._longest() - 2} tokens were expected. Received in "
                    f"row {row}: {length} tokens: "
                    f"{texts[row].decode('utf-8', 'replace')[:80]!r}"
                )
        ids = ids.values.numpy()  # [R]
        tokens = np.zeros(len(ids))
        bar = keras.utils.Progbar(len(ids), verbose=verbose, unit_name="token")
        for hidden, features in one_mask_batches(ids, lengths, self.tokenizer, token_budget):
            tokens[hidden] = self.predict_on_batch(features)[:, 0]
            bar.add(len(hidden))
        scores = np.split(tokens, np.cumsum(lengths)[:-1])[: len(lengths)]
        if reduction != "none":
            scores = np.array([getattr(score, reduction)() for score in scores], np.float64)
        return scores[0] if columns.is_single else scores

    def predict_step(self, data):
        inputs, _, _ = keras.utils.unpack_x_y_sample_weight(data)
        outputs = super().predict_step(data)  # with `score`, logits [B, 1, V]
        if not isinstance(inputs, dict) or TARGET_IDS not in inputs:
            return outputs
        return -tf.nn.sparse_softmax_cross_entropy_with_logits(inputs[TARGET_IDS], outputs)


def _texts_of_rows(columns):
    """What gathers rows `[B]`: the texts, of pairs a tuple of two tensors."""
    if len(columns) == 1:
        return lambda rows: tf.gather(columns[0], rows)
    return lambda rows: tuple(tf.gather(column, rows) for column in columns)


def keeping_special_tokens(tokenizer: BertTokenizer) -> BertTokenizer:
    """The tokenizer that takes a literal `[MASK]` for one token, not for three."""
    if not tokenizer.split_special_tokens:
        return tokenizer
    return BertTokenizer.from_config({**tokenizer.get_config(), "split_special_tokens": False})


def _grouped(chosen):
    """Where `[B, T]` is True: rows `[M]`, positions `[B, P]` with zeros behind, places `[M]`.

    The m-th True is at `positions[rows[m], places[m]]`.
    """
    chosen = np.asarray(chosen)
    rows, columns = np.nonzero(chosen)
    places = (np.cumsum(chosen, axis=1) - 1)[rows, columns]
    positions = np.zeros([len(chosen), chosen.sum(axis=1).max(initial=1)], np.int32)
    positions[rows, places] = columns
    return rows, positions, places


def _candidates(logits, top_k, vocabulary) -> list[Candidate]:
    """The likeliest pieces by the logits `[V]` of one place."""
    probabilities = np.exp(logits - logits.max(), dtype=np.float64)
    probabilities /= probabilities.sum()
    best = np.argpartition(-probabilities, top_k - 1)[:top_k]
    best = best[np.argsort(-probabilities[best], kind="stable")]
    return [Candidate(vocabulary[index], float(probabilities[index])) for index in best]
