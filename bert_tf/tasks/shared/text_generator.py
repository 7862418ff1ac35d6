"""What models that write text share: logits of the next words, loss, metrics, writing, signatures.

Glossary: `B` rows, `T` tokens of a row, `M` labelled tokens, `H` hidden size, `V` vocabulary.
"""

import dataclasses
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.config import BertConfig
from bert_tf.errors import DataError, UserError, require, user_error
from bert_tf.generation import GeneratedTokens, GenerationConfig, generate
from bert_tf.generation.decoding import check_ids
from bert_tf.generation.logits_processors import NO_TOKEN, FunctionOfCall
from bert_tf.generation.stop_strings import StopAutomaton
from bert_tf.inputs.batches import DEFAULT_BATCH_SIZE, sorted_batches
from bert_tf.inputs.labels import IGNORED
from bert_tf.inputs.token_inputs import checked_token_inputs
from bert_tf.layers.attention.token_layout import TokenLayout
from bert_tf.models.preprocessor import Preprocessor
from bert_tf.models.serving_module import ServingModule
from bert_tf.models.task_spec import Examples
from bert_tf.ops.native import needs_static_shapes
from bert_tf.text.spacing import with_written_spaces
from bert_tf.training.evaluation.metrics import Perplexity
from bert_tf.training.losses.token_loss import TokenLoss, token_weights
from bert_tf.training.traced_steps import Predictor


class NextWordModel(TokenLoss):
    """A base of models that learn the next word after each token from the true words before it.

    It must come before `TaskModel` in the list of base classes. Only the logits of labelled tokens
    are computed in training. Accuracy and perplexity are always in the logs. For label smoothing
    (Vaswani et al. 2017, section 5.4), `compile` takes a `bert_tf.training.SparseCrossentropy`.
    """

    no_metrics = "only the logits of real tokens are computed in training"

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.accuracy = keras.metrics.Mean(name="accuracy")
        self.perplexity = Perplexity(name="perplexity")

    @property
    def target_config(self) -> BertConfig:
        """The configuration of the network that predicts the words."""
        return self.backbone.config

    @property
    def vocab_size(self) -> int:
        """The number of words."""
        return self.target_config.vocab_size

    @property
    def num_token_classes(self):
        return self.vocab_size

    def decoded(self, tokens: dict[str, tf.Tensor], training: bool):
        """Returns the vectors of tokens, from which the next words are predicted.

        Returns:
            The vectors `[B, T, H]`; the embeddings of the words in the output `[V, E]`; and which
            tokens have a next word, bool `[B, T]`.
        """
        raise NotImplementedError(f"{type(self).__name__} must have a method `decoded`.")

    def next_word_logits(self, rows: tf.Tensor, words: tf.Tensor) -> tf.Tensor:
        """Returns the logits of the next words: `[M, H]` and `[V, E]` -> float32 `[M, V]`."""
        raise NotImplementedError(f"{type(self).__name__} must have `next_word_logits`.")

    def call(self, inputs, training=False):
        states, words, mask = self.decoded(self.tokens_of(inputs), training)
        layout = TokenLayout.packed(mask) if self._packs_tokens() else TokenLayout.padded(mask)
        rows = layout.to_rows(states)  # [B, T, H] -> [M, H]
        return layout.to_batch(self.next_word_logits(rows, words))  # [M, V] -> [B, T, V]

    def _packs_tokens(self):
        return self.backbone.packs_tokens() and not needs_static_shapes()

    def forward(self, x, y, training):
        """Returns the logits of the labelled words `[M, V]`, with static shapes of all."""
        if needs_static_shapes():
            return self(x, training=training)
        states, words, _ = self.decoded(x, training)
        return self.next_word_logits(tf.boolean_mask(states, y != IGNORED), words)

    def partial_loss(self, x, y, y_pred, sample_weight, training, totals):
        weights, ids = token_weights(y, sample_weight), tf.cast(y, tf.int32)  # [B, T]
        if y_pred.shape.rank == 2:  # [M, V]
            weights, ids = (tf.boolean_mask(values, y != IGNORED) for values in (weights, ids))
        ids = tf.maximum(ids, 0)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(ids, y_pred)  # [M] or [B, T]
        hits = tf.equal(tf.argmax(y_pred, axis=-1, output_type=tf.int32), ids)
        self.accuracy.update_state(tf.cast(hits, tf.float32), weights)
        self.perplexity.update_state(losses, weights)
        if self.loss is not None:
            losses = self.loss.call(ids, y_pred)
        return tf.math.divide_no_nan(tf.reduce_sum(losses * weights), totals["words"])


_SPECIAL_TOKENS = 2  # of a source: [CLS] and [SEP]
_FUNCTION_OF_CALL = FunctionOfCall()


class TextGenerator(NextWordModel):
    """A base of task models that write text, before `TaskModel` in their bases.

    A subclass has `start_token_id`, `end_token_ids` and `longest_target`, the maximum number of
    tokens of a target with its start, and the methods `start_decoding` and `next_token`.
    """

    def __init__(self, *args, generation_config: GenerationConfig | dict | None = None, **kwargs):
        super().__init__(*args, **kwargs)
        self.generation_config = generation_config

    def check_options(self):
        super().check_options()
        config = GenerationConfig.of(self.generation_config)
        value = getattr(config, "prefix_allowed_tokens_fn", None)
        rule = "must be None in a model's `generation_config`, but may be passed to `generate`"
        require(value is None, rule, prefix_allowed_tokens_fn=value)
        self.replace_option("generation_config", config)

    @property
    def end_token_id(self) -> int:
        """The token after the last word of a target, the first of `end_token_ids`."""
        return self.end_token_ids[0]

    @property
    def pad_token_id(self) -> int:
        """The token after the end token."""
        return self.target_config.pad_token_id

    @property
    def most_new_tokens(self) -> int:
        """The maximum number of tokens that `generate` writes, the end token included."""
        return self.longest_target - 1

    def start_decoding(self, tokens: dict[str, tf.Tensor], num_steps: int) -> tuple[Any, Any]:
        """Returns the `state` and the `memory` of `bert_tf.generation.generate`, with B rows.

        `tokens` are the token dictionary of the B sources, `num_steps` the maximum of steps.
        """
        raise NotImplementedError(f"{type(self).__name__} must have a method `start_decoding`.")

    def next_token(
        self, token_ids: tf.Tensor, position: tf.Tensor, state: Any, memory: Any
    ) -> tuple[tf.Tensor, Any, tf.Tensor]:
        """Returns the logits of the next tokens, the next state and the vectors of the tokens.

        It is a step of `bert_tf.generation.generate`.
        """
        raise NotImplementedError(f"{type(self).__name__} must have a method `next_token`.")

    def generate(
        self,
        texts: Any,
        max_new_tokens: int | None = None,
        *,
        batch_size: int | None = None,
        token_budget: int | None = None,
        verbose: int = 0,
        **options: Any,
    ) -> Any:
        """Writes the targets of texts.

        Greedy decoding is the default; `num_beams` above 1 is beam search, `do_sample=True` draws
        the tokens at random, and `penalty_alpha` is contrastive search. The loop over the tokens is
        one TensorFlow graph with a cache of keys and values, traced once for all batches and seeds.

        Args:
            texts: Raw text as in `fit`, without targets: a list of sources, or one string. Or the
                token dictionary of the sources.
            max_new_tokens: The maximum number of tokens of a target, with the end token. None means
                that of `generation_config`, or `most_new_tokens`.
            batch_size: The maximum number of sources of a batch. None means 32.
            token_budget: See `predict`, for texts.
            verbose: 1 shows a progress bar.
            **options: The other options of `bert_tf.generation.GenerationConfig`: `num_beams`,
                `length_penalty`, `early_stopping`, `no_repeat_ngram_size`, `repetition_penalty`,
                `encoder_no_repeat_ngram_size`, `encoder_repetition_penalty`, `min_new_tokens`,
                `eos_token_id`, `stop_strings`, `bad_words_ids`, `sequence_bias`,
                `allowed_sequences`, `prefix_allowed_tokens_fn`, `forced_prefix_ids`,
                `exponential_decay_length_penalty`, `renormalize_logits`, `penalty_alpha`,
                `do_sample`, `temperature`, `top_h`, `top_k`, `top_p`, `min_p`, `typical_p`,
                `epsilon_cutoff`, `eta_cutoff`, `seed`, `num_return_sequences`. Those that are left
                out have the values of the model's `generation_config`, if it has one.

        Returns:
            For texts, a list of targets; for one string, its target. A target is a list of strings
            if `num_return_sequences` is given. End tokens are not in it, stop strings are. For a
            token dictionary of B sources, the ids, int32 `[B * num_return_sequences,
            max_new_tokens]`, without the start token, with the end token, then the pad token.

        Raises:
            UserError: If there is no tokenizer for texts, the token dictionary is not what the
                backbone takes, `token_budget` is given for one, the model writes no such number
                of tokens, or the vocabulary cannot write one of `stop_strings`.
            ConfigError: If an option is out of range, or options contradict each other.
            DataError: If a text is missing, malformed or empty.

        Example:
            >>> model = bert_tf.BertEncoderDecoder.from_pretrained("translator/")
            >>> len(model.generate(["a good film", "bad ."], max_new_tokens=8, num_beams=4))
            2

        Reference: transformers, generation/utils.py, `GenerationMixin.generate`.
        """
        config = self.generation_options(max_new_tokens, **options)
        if isinstance(texts, dict):
            if token_budget is not None:
                received = f"token_budget={token_budget!r}, a token dictionary"
                raise user_error("`token_budget`", "be None for anything but texts", received)
            return self._generate_ids(texts, config, batch_size)
        preprocessor = self._source_preprocessor()
        columns = preprocessor.read_examples(texts)
        rows = preprocessor.encode(columns)
        if not len(rows):
            return []
        require_words(rows.lengths())
        copies = config.num_return_sequences
        found = np.empty([len(rows), copies], object)
        bar = keras.utils.Progbar(len(rows), verbose=verbose, unit_name="text")
        batch_size = batch_size or DEFAULT_BATCH_SIZE
        length = preprocessor.static_length
        for numbers in sorted_batches(rows, token_budget, batch_size, length):
            token_ids = self._generated(rows.batch(numbers, length), config, numbers)
            texts = self.written(token_ids, config.eos_token_id)
            found[numbers] = texts.numpy().reshape(-1, copies)
            bar.add(len(numbers))
        found = [[text.decode() for text in texts] for texts in found]
        if copies == 1:
            found = [texts[0] for texts in found]
        return found[0] if columns.is_single else found

    def generated_tokens(
        self,
        tokens: dict[str, tf.Tensor],
        config: GenerationConfig,
        seed: tf.Tensor | None = None,
        row_numbers: tf.Tensor | None = None,
    ) -> GeneratedTokens:
        """Returns the targets of the B sources of a token dictionary, in the graph.

        `seed` and `row_numbers` are those of `bert_tf.generation.generate`.
        """
        state, memory = self.start_decoding(tokens, config.num_steps)
        num_rows = tf.shape(tokens["token_ids"])[0]
        mask = self.backbone.padding_mask_of(tokens)
        return generate(
            self.next_token,
            state,
            tf.fill([tokens["token_ids"].shape[0] or num_rows], self.start_token_id),
            config,
            memory=memory,
            end_id=self.end_token_ids,
            pad_id=self.pad_token_id,
            vocab_size=self.vocab_size,
            tokenizer=self.tokenizer,
            source_ids=tf.where(mask, tf.cast(tokens["token_ids"], tf.int32), NO_TOKEN),
            seed=seed,
            row_numbers=row_numbers,
        )

    def written(self, token_ids: tf.Tensor, end_ids: tuple[int, ...] | None = None) -> tf.Tensor:
        """Returns the texts of generated ids `[B, n]`, string `[B]`, in the graph.

        `end_ids` are not written, None means `end_token_ids`.
        """
        for end_id in end_ids or self.end_token_ids:
            token_ids = tf.where(token_ids == end_id, self.pad_token_id, token_ids)
        return with_written_spaces(self.tokenizer.detokenize(token_ids))

    def generation_options(
        self, max_new_tokens: int | None = None, **options: Any
    ) -> GenerationConfig:
        """Returns the options of a call of `generate`, whose arguments these are.

        Raises:
            ConfigError, UserError: See `generate`.
        """
        known = {field.name for field in dataclasses.fields(GenerationConfig)}
        unknown = sorted(set(options) - known)
        if unknown:
            raise user_error("The options", f"be among {sorted(known)}", ", ".join(unknown))
        if max_new_tokens is not None:
            options = {**options, "max_new_tokens": max_new_tokens}
        if self.generation_config is None:
            config = GenerationConfig(**{"max_new_tokens": self.most_new_tokens, **options})
        else:
            config = dataclasses.replace(self.generation_config, **options)
        rule = f"must be at most {self.most_new_tokens}, the positions that the model has"
        is_valid = config.max_new_tokens <= self.most_new_tokens
        require(is_valid, rule, UserError, max_new_tokens=config.max_new_tokens)
        rule = f"must be below the size of the vocabulary, {self.vocab_size}"
        is_valid = config.num_beams == 1 or config.num_beams < self.vocab_size
        require(is_valid, rule, UserError, num_beams=config.num_beams)
        check_ids(config, self.end_token_ids, self.pad_token_id, self.vocab_size)
        StopAutomaton.of(config.stop_strings, self.tokenizer, self.vocab_size)
        return config

    def _source_preprocessor(self) -> Preprocessor:
        sources = Preprocessor(self.tokenizer, self.max_sequence_length)
        examples = Examples(texts=(1,), form="Pass a list of strings.")
        sources.follow(has_static_shapes=bool(self.jit_compile), examples=examples)
        sources.require_tokenizer()
        return sources

    def _generate_ids(self, tokens, config, batch_size):
        """Returns the ids for a token dictionary as an array `[B * copies, max_new_tokens]`."""
        tokens = checked_token_inputs(tokens, self.backbone.config)
        count = len(tokens["token_ids"])
        size = batch_size or DEFAULT_BATCH_SIZE
        found = [np.zeros([0, config.max_new_tokens], np.int32)]
        for start in range(0, count, size):
            batch = {name: values[start : start + size] for name, values in tokens.items()}
            numbers = np.arange(start, start + len(batch["token_ids"]))
            found.append(self._generated(batch, config, numbers))
        return np.concatenate(found)

    def _generated(self, tokens, config, numbers):
        """Returns the ids for one batch, from a function that all batches and seeds share."""
        if config.prefix_allowed_tokens_fn not in (None, _FUNCTION_OF_CALL):
            changed = dataclasses.replace(config, prefix_allowed_tokens_fn=_FUNCTION_OF_CALL)
            with _FUNCTION_OF_CALL.calling(config.prefix_allowed_tokens_fn) as first:
                return self._generated(tokens, changed, numbers + first)
        features = {**tokens, "seed": np.int64(config.seed), "row_numbers": numbers}
        config = dataclasses.replace(config, seed=0)

        def step(features):
            tokens = dict(features)
            seed, row_numbers = tokens.pop("seed"), tokens.pop("row_numbers")
            with self._tracing():
                return self.generated_tokens(tokens, config, seed, row_numbers).token_ids

        return Predictor.of(self).tensors(features, step=step, key=config).numpy()


def require_words(lengths: np.ndarray) -> None:
    """Raises `DataError` if a source is empty, by the numbers of tokens, int `[n]`."""
    empty = np.flatnonzero(lengths <= _SPECIAL_TOKENS)
    if empty.size:
        rows = ", ".join(map(str, empty[:5])) + (", …" if empty.size > 5 else "")
        raise DataError(f"A source must have a word. Received: none in the rows {rows}")


class GeneratedTextModule(ServingModule):
    """Maps sources to what `TextGenerator.generate` writes, with the model's `generation_config`.

    It writes one target for each source. Sampling draws with the seed of the configuration, by the
    place of the source in the request.
    """

    def __init__(self, model):
        super().__init__(model)
        self._config = dataclasses.replace(model.generation_options(), num_return_sequences=1)

    def of_tokens(self, tokens):
        return {"token_ids": self.model.generated_tokens(tokens, self._config).token_ids}

    def of_text(self, text):
        tokens = self.model.tokenizer(text, max_length=self.max_length)
        token_ids = self.of_tokens(tokens)["token_ids"]
        return {"generated_text": self.model.written(token_ids, self._config.eos_token_id)}
