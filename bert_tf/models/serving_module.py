"""The signatures that all tasks share, from strings, token ids or serialised examples."""

from collections.abc import Callable, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from bert_tf.inputs.token_inputs import checked_padding
from bert_tf.models.task_model import TaskModel
from bert_tf.training.traced_steps import Predictor

SERVING_DEFAULT = "serving_default"  # the signature that a request takes which names none
TOKENS = "tokens"
EXAMPLES = "examples"

# Smaller weights are constants in a signature's graph: every vector with a number per column, but
# no kernel of a usual model. A graph with constants for all weights would be too large.
LEAST_VARIABLE_BYTES = 32 << 10

# Tokens of a batch of windows, padding counted; enough for the matmuls to run at full speed.
TOKENS_AT_ONCE = 8192


class ServingModule:
    """A task model with everything around it in one graph: tokenizer, model, answers.

    The first dimension of every output is the batch, along which TF Serving merges requests.
    Outputs with a varying number of values are padded; an output `…_count` gives the number.

    The `Serving` of the task's spec declares inputs and outputs. A subclass computes them: it
    overrides `of_tokens`, and also `of_text` if text needs more than tokenization.

    Args:
        model: The task model, with its tokenizer.
        pairs: Whether the texts are `text` and `pair`, for a task that `takes_pairs`.

    Attributes:
        declared: The `Serving` of the spec.
        texts: The text inputs: name and meaning.
        max_length: The maximum number of tokens of a sequence.
        inputs: What users pass in addition to the texts, the `given_inputs` of the task's spec.
    """

    def __init__(self, model: TaskModel, pairs: bool = False):
        self.model = model
        self.declared = model.spec.serving
        self.texts = _PAIR if pairs else self.declared.texts
        self.max_length = model.max_sequence_length
        self.inputs = model.spec.given_inputs

    def of_text(self, **texts: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns the outputs for text and inputs: those for tokens, unless it is overridden."""
        # Texts are taken by name, because TensorFlow passes them in alphabetical order.
        tokens = self.model.tokenize(*(texts[name] for name in self.texts))
        return self.of_tokens({**tokens, **{name: texts[name] for name in self.inputs}})

    def of_tokens(self, tokens: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        """Returns the outputs for a token dictionary; by default the logits."""
        return {"logits": self.compute(tokens)}

    def compute(self, tokens: dict[str, tf.Tensor]) -> tf.Tensor:
        """Returns the outputs of the model for a token dictionary."""
        return self.model(tokens, training=False)

    def call(self, method: str, texts: Sequence[str]) -> Any:
        """Returns what a method returns for one string of each text, outside of a graph.

        All of it is one graph, with the network that `predict` traces.
        """
        predictor = Predictor.of(self.model)
        self.compute = predictor.tensors
        with tf.device("CPU:0"):
            columns = [tf.constant([text], tf.string) for text in texts]
        return predictor.of_strings(columns, self.model.tokenizer, getattr(self, method), method)

    def of_windows(self, features: dict[str, tf.Tensor]) -> tf.Tensor:
        """Returns what the model does for `[S, T]`, S at least 1, with the memory of one batch."""
        rows, length = tf.unstack(tf.shape(next(iter(features.values()))), num=2)
        size = tf.maximum(1, TOKENS_AT_ONCE // tf.maximum(1, length))

        def batch(begin):
            part = slice(begin, tf.minimum(rows, begin + size))
            return self.compute({name: values[part] for name, values in features.items()})

        # Nearly every request is one batch: it runs outside of the loop, at its full speed.
        first = batch(0)
        _, result = tf.while_loop(
            lambda begin, _: begin < rows,
            lambda begin, parts: (begin + size, tf.concat([parts, batch(begin)], axis=0)),
            (size, first),
            shape_invariants=(tf.TensorShape([]), tf.TensorShape([None, *first.shape[1:]])),
            parallel_iterations=1,
        )
        return result

    def signatures(self) -> dict:
        """Returns the concrete functions by the names of their signatures."""
        lists = self.declared.lists

        def strings_of(names):
            shapes = {name: [None, None] if name in lists else [None] for name in names}
            return {name: tf.TensorSpec(shape, tf.string) for name, shape in shapes.items()}

        shape = [None, None, None] if self.declared.has_sequences else [None, None]
        ids = tf.TensorSpec(shape, tf.int32)
        strings = strings_of(self.texts)
        given = {
            n: tf.TensorSpec([None, *each.shape], each.dtype) for n, each in self.inputs.items()
        }
        text = self._traced(lambda **texts: self.of_text(**texts), strings | given)  # noqa: PLW0108
        mask = tf.TensorSpec(shape, tf.bool)
        specs = {"token_ids": ids, "segment_ids": ids, "padding_mask": mask, **given}
        cls_token_id = self.model.tokenizer.cls_token_id
        tokens = self._traced(
            lambda **tokens: self.of_tokens(checked_padding(tokens, cls_token_id)), specs
        )
        several = tf.io.FixedLenSequenceFeature([], tf.string, allow_missing=True)
        one = tf.io.FixedLenFeature([], tf.string)
        features = {name: several if name in lists else one for name in self.texts}
        for name, spec in given.items():  # an Example has no other numbers than these
            kind = tf.float32 if spec.dtype.is_floating else tf.int64
            features[name] = tf.io.FixedLenFeature(spec.shape[1:], kind)

        def parsed(examples):
            values = tf.io.parse_example(examples, features)
            return text(**values | {n: tf.cast(values[n], given[n].dtype) for n in given})

        examples = _traced(parsed, {"examples": tf.TensorSpec([None], tf.string)})
        further = {
            name: self._traced(getattr(self, name), strings_of(texts))
            for name, (texts, _) in self.declared.further.items()
        }
        return {SERVING_DEFAULT: text, TOKENS: tokens, EXAMPLES: examples, **further}

    def _traced(self, function: Callable, inputs: dict[str, tf.TensorSpec]):
        """Returns the concrete function of named inputs.

        It holds small weights as constants, because a variable must be passed and read in each
        call, which is a noticeable part of the time of one short text.
        """
        values = ((weight, weight.numpy()) for weight in self.model.weights)
        small = [(weight, value) for weight, value in values if value.nbytes < LEAST_VARIABLE_BYTES]
        return _traced(function, inputs, small)

    def meanings(self, signature: str) -> tuple[dict[str, str], dict[str, str]]:
        """Returns what the inputs and the outputs of a signature mean, by their names."""
        declared, given = self.declared, {name: each.meaning for name, each in self.inputs.items()}
        if signature in declared.further:
            return declared.further[signature]
        if signature == TOKENS:
            own = declared.outputs if declared.token_outputs is None else declared.token_outputs
            return {**_TOKEN_INPUTS, **given}, own
        if signature == EXAMPLES:
            meaning = f"A serialised tf.train.Example with bytes values: {', '.join(self.texts)}."
            numbers = f" Its numbers: {', '.join(given)}." if given else ""
            return {"examples": meaning + numbers}, declared.outputs
        return {**self.texts, **given}, declared.outputs

    def limits(self, signature: str) -> dict[str, dict]:
        """Returns what a server must check of the inputs of a signature.

        Returns:
            For each input, where they apply: `minimum` and `maximum` of the values, `max_length` of
            the last dimension, and `needs_text` of lists that must each hold a string that is not
            empty.
        """
        if signature != TOKENS:
            return {name: {"needs_text": True} for name in self.declared.lists}
        config = self.model.backbone.config
        length = {"max_length": config.max_position_embeddings}
        segments = {"minimum": 0, "maximum": config.type_vocab_size - 1}
        return {
            "token_ids": {"minimum": 0, "maximum": config.vocab_size - 1, **length},
            "segment_ids": {**(segments if config.type_vocab_size else {}), **length},
            "padding_mask": length,
        }

    def details(self) -> dict:
        """Returns what a client must know of the model beyond its inputs and outputs, for JSON."""
        found = {name: getattr(self.model, own) for name, own in self.declared.details.items()}
        return {
            n: [*value] if isinstance(value, (list, tuple)) else value for n, value in found.items()
        }

    def sample_texts(self) -> list[dict[str, Any]]:
        """Returns requests to warm up with: inputs by name, of one row and of several."""
        if self.declared.samples is not None:
            mask = self.model.tokenizer.mask_token or "[MASK]"
            samples = [
                tf.nest.map_structure(lambda text: text.replace("[MASK]", mask), sample)
                for sample in self.declared.samples
            ]
        else:
            rows = list(zip(*(_SAMPLES.get(name, _SAMPLES["text"]) for name in self.texts)))
            requests = [rows[:1], rows, [tuple(" ".join([text] * 40) for text in rows[0])]]
            samples = [dict(zip(self.texts, map(list, zip(*request)))) for request in requests]
        for sample in samples:
            count = len(next(iter(sample.values())))
            for name, each in self.inputs.items():
                sample[name] = np.zeros([count, *each.shape], each.dtype)
        return samples


_PAIR = {"text": "The first text, UTF-8.", "pair": "The second text, UTF-8."}
_TOKEN_INPUTS = {
    "token_ids": "Ids of the vocabulary's pieces, [CLS] and [SEP] among them.",
    "segment_ids": "0 for the first text, 1 for the second.",
    "padding_mask": "Whether there is a token; false at padding, not at [CLS].",
}

# Sentences to warm up with; a long text is made of the first.
_SAMPLES = {
    "text": ["It is a good film with a good end.", "No.", "Für Élise, 1810: naïve, déjà vu…"],
    "pair": ["It ends well.", "Yes?", "Beethoven wrote it."],
    "question": ["How does it end?", "Who?", "What did he write?"],
    "context": [
        "It is a long film, and at its end everyone is happy.",
        "Ada Lovelace wrote the first program.",
        "In 1810 Beethoven wrote “Für Elise”, which was found 40 years later.",
    ],
}


def _traced(function, inputs, constants=()):
    """Traces a function of named inputs; `constants` are variables with their values."""

    def with_constants(**given):
        values = [(variable, tf.constant(value)) for variable, value in constants]
        with keras.StatelessScope(values):
            return function(**given)

    named = {name: tf.TensorSpec(spec.shape, spec.dtype, name) for name, spec in inputs.items()}
    return tf.function(with_constants, autograph=False).get_concrete_function(**named)
