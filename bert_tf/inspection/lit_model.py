"""A text classifier or masked language model in LIT, the Learning Interpretability Tool.

LIT shows what a model predicts for a data set, its attention, salience maps and embeddings, and
changes texts: https://pair-code.github.io/lit (Tenney et al. 2020, arXiv 2008.05122).

Glossary: `B` examples, `T` tokens, `N` heads, `H` hidden size, `E` width of the word embeddings,
`V` vocabulary, `C` classes.
"""

import importlib
from typing import Any

import numpy as np
import tensorflow as tf

from bert_tf import BertMaskedLM, BertTextClassifier
from bert_tf.base.optional_packages import require_package
from bert_tf.config import MULTI_LABEL, REGRESSION, SINGLE_LABEL
from bert_tf.errors import user_error
from bert_tf.inspection.candidates import best_candidates

TOKENS, WORD_VECTORS, GRADIENTS = "tokens", "token_embeddings", "token_gradients"
CLS_VECTOR, POOLED_VECTOR = "cls_embedding", "pooled_embedding"
PREDICTIONS = "predictions"


def _base() -> type:
    """Returns LIT's class of models; without LIT `object`, as a constructor then refuses."""
    try:
        return importlib.import_module("lit_nlp.api.model").BatchedModel
    except ImportError:
        return object


class BertLitModel(_base()):
    """A `BertTextClassifier` or a `BertMaskedLM` as a `lit_nlp.api.model.Model`.

    Inputs are the text, optionally a second text and the label, the pieces in place of the texts,
    and word vectors in their place. Outputs are, for each example of T tokens:

    - `tokens`: the pieces, special tokens included.
    - `predictions`: of a classifier the probabilities of the classes, one for each of several
      labels, or a number; of a masked language model the most probable pieces at every token.
    - `layer_<l>/attention`: `[N, T, T]`, from 0; `cls_embedding`, the last layer's vector of
      `[CLS]`; `pooled_embedding`, what a classifier's last layer gets.
    - `token_embeddings` and `token_gradients` `[T, E]`: the word vectors, and the gradients at them
      of the logit of the label, or of the most probable class. Only for classifiers whose kernels
      are neither prepacked nor quantized.

    So LIT's salience maps (gradient norm, gradient × input, integrated gradients, LIME), HotFlip
    and embedding projector work.

    Args:
        model: The model, with a tokenizer.
        text_name: The field of the data set with the texts.
        pair_name: The field with second texts; None for single texts.
        label_name: The field with the labels.
        batch_size: The maximum number of examples that are computed at a time.
        top_k: How many pieces a masked language model predicts for a token.

    Raises:
        UserError: If LIT is missing, or the model is of another kind, has no tokenizer or no
            attention, sees pairs in both orders, or predicts several numbers.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> lit_model = bert_tf.inspection.BertLitModel(model)  # doctest: +SKIP
        >>> (output,) = lit_model.predict([{"text": "a good film"}])  # doctest: +SKIP
        >>> output["tokens"]  # doctest: +SKIP
        ['[CLS]', 'a', 'good', 'film', '[SEP]']
    """

    def __init__(
        self,
        model: BertTextClassifier | BertMaskedLM,
        text_name: str = "text",
        pair_name: str | None = None,
        label_name: str = "label",
        batch_size: int = 32,
        top_k: int = 10,
    ):
        self._types = require_package("lit_nlp.api.types", "BertLitModel")
        if not isinstance(model, (BertTextClassifier, BertMaskedLM)):
            expected = "be a BertTextClassifier or a BertMaskedLM"
            raise user_error("`model`", expected, type(model).__name__)
        if getattr(model, "both_orders", False):
            expected = "see pairs in one order, as LIT shows them"
            raise user_error("`model`", expected, "both_orders=True")
        if getattr(model, "problem_type", None) == REGRESSION and model.num_classes > 1:
            expected = "predict one number in a regression, as LIT shows one"
            raise user_error("`model`", expected, f"num_classes={model.num_classes}")
        model.preprocessor.require_tokenizer()
        self.model = model
        self.text_name = text_name
        self.pair_name = pair_name
        self.label_name = label_name
        self.batch_size = batch_size
        self.top_k = top_k
        self._classifies = isinstance(model, BertTextClassifier)
        backbone = model.backbone
        is_float = not backbone.is_prepacked and backbone.quantization is None
        self._has_gradients = self._classifies and is_float
        self._labels = model.preprocessor.names if self._classifies else None
        self._tokenizer = model.tokenizer
        if not self._classifies:  # a literal [MASK] in a text is one token
            self._tokenizer = model.tokenizer.keeping_special_tokens
        self._pieces = self._tokenizer.readable_pieces()
        self._ids = {piece: number for number, piece in reversed(list(enumerate(self._pieces)))}

    def description(self) -> str:
        """Returns what LIT shows of the model."""
        config = self.model.backbone.config
        sizes = f"{config.num_hidden_layers} layers of {config.num_attention_heads} heads"
        return f"{type(self.model).__name__} of bert_tf, {sizes}"

    def max_minibatch_size(self) -> int:
        """Returns the most examples that `predict_minibatch` gets."""
        return self.batch_size

    def get_embedding_table(self) -> tuple[list[str], np.ndarray]:
        """Returns the V pieces and their word embeddings, float32 `[V, E]`."""
        table = self.model.backbone.embeddings.word_table()[: len(self._pieces)]
        return self._pieces, tf.cast(table, tf.float32).numpy()

    def input_spec(self) -> dict[str, Any]:
        """Returns the fields of an example."""
        types, spec = self._types, {self.text_name: self._types.TextSegment()}
        if self.pair_name is not None:
            spec[self.pair_name] = types.TextSegment()
        spec[TOKENS] = self._token_field(required=False)
        if self._classifies:
            spec[self.label_name] = self._label_field()
        if self._has_gradients:
            spec[WORD_VECTORS] = types.TokenEmbeddings(align=TOKENS, required=False)
        return spec

    def output_spec(self) -> dict[str, Any]:
        """Returns the fields of what `predict` yields for an example."""
        types, spec = self._types, {TOKENS: self._token_field()}
        spec[PREDICTIONS] = self._prediction_field()
        spec[CLS_VECTOR] = types.Embeddings()
        if self._classifies:
            spec[POOLED_VECTOR] = types.Embeddings()
        if self._has_gradients:
            spec[WORD_VECTORS] = types.TokenEmbeddings(align=TOKENS)
            spec[GRADIENTS] = types.TokenGradients(
                align=TOKENS, grad_for=WORD_VECTORS, grad_target_field_key=self.label_name
            )
        if self._explains_label():
            spec[self.label_name] = self._label_field()
        for layer in range(self.model.backbone.config.num_hidden_layers):
            spec[_attention(layer)] = types.AttentionHeads(align_in=TOKENS, align_out=TOKENS)
        return spec

    def _explains_label(self):
        """Returns whether the explained label is an output, so that LIT can ask for it."""
        return self._has_gradients and self.model.problem_type == SINGLE_LABEL

    def _token_field(self, required=True):
        mask = None if self._classifies else self._tokenizer.mask_token
        parent = self.text_name if self.pair_name is None else None
        return self._types.Tokens(parent=parent, mask_token=mask, required=required)

    def _label_field(self):
        types, kind = self._types, self.model.problem_type
        if kind == REGRESSION:
            return types.Scalar(required=False)
        if kind == MULTI_LABEL:
            return types.SparseMultilabel(vocab=self._labels, required=False)
        return types.CategoryLabel(vocab=self._labels, required=False)

    def _prediction_field(self):
        types = self._types
        if not self._classifies:
            return types.TokenTopKPreds(align=TOKENS, parent=self.text_name)
        kind = self.model.problem_type
        if kind == REGRESSION:
            return types.RegressionScore(parent=self.label_name)
        if kind == MULTI_LABEL:
            return types.SparseMultilabelPreds(vocab=self._labels, parent=self.label_name)
        return types.MulticlassPreds(vocab=self._labels, parent=self.label_name)

    def predict_minibatch(self, inputs: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Returns the outputs of some examples.

        Args:
            inputs: The examples, with the fields of `input_spec`.

        Raises:
            UserError: If a label is unknown, or there is not a word vector for every token.
        """
        tokens = self._tokens_of(inputs)
        lengths = tf.reduce_sum(tf.cast(tokens["padding_mask"], tf.int32), axis=1).numpy()
        if not self._has_gradients:
            outputs, rows = self._computed(tokens)
        else:
            vectors = self._word_vectors(tokens["token_ids"], inputs, lengths)  # [B, T, E]
            with tf.GradientTape(watch_accessed_variables=False) as tape:
                tape.watch(vectors)
                outputs, rows = self._computed({**tokens, "word_vectors": vectors})
                targets = self._targets(rows["logits"], inputs)  # [B]
                explained = tf.gather(rows["logits"], targets, batch_dims=1)
            rows[GRADIENTS] = tape.gradient(explained, vectors)
            rows[WORD_VECTORS] = vectors
        found = []
        attentions = [tf.cast(values, tf.float32).numpy() for values in outputs["attentions"]]
        rows = {name: tf.cast(values, tf.float32).numpy() for name, values in rows.items()}
        for row, length in enumerate(lengths):
            ids = tokens["token_ids"][row, :length].numpy()
            output = {TOKENS: [self._pieces[number] for number in ids]}
            output[PREDICTIONS] = self._prediction(rows["logits"][row], length)
            output |= {n: rows[n][row] for n in (CLS_VECTOR, POOLED_VECTOR) if n in rows}
            output |= {n: rows[n][row, :length] for n in (WORD_VECTORS, GRADIENTS) if n in rows}
            if self._explains_label():
                output[self.label_name] = self._labels[targets[row]]
            for layer, weights in enumerate(attentions):
                # LIT's first token is the one that is read: [n, from, to] -> [n, to, from]
                weights = weights[row, :, :length, :length].transpose(0, 2, 1)
                output[_attention(layer)] = np.ascontiguousarray(weights)
            found.append(output)
        return found

    def _computed(self, tokens):
        """Returns the backbone's outputs, and logits and vectors of the examples by name."""
        options = {"output_attentions": True, "output_word_embeddings": not self._classifies}
        outputs = self.model.backbone(tokens, **{**options, **self.model.backbone_options()})
        rows = {CLS_VECTOR: outputs["sequence_output"][:, 0]}  # [B, H]
        if not self._classifies:
            return outputs, {**rows, "logits": self.model.word_logits(outputs)}  # [B, T, V]
        rows[POOLED_VECTOR] = self.model.pooled_of(outputs, tokens)
        rows["logits"] = tf.cast(self.model.logits_of(rows[POOLED_VECTOR]), tf.float32)  # [B, C]
        return outputs, rows

    def _prediction(self, logits, length):
        if not self._classifies:
            best = best_candidates(logits[:length], [0] * length, self.top_k, len(self._pieces))
            return [
                [(self._pieces[number], value) for number, value in zip(numbers, values)]
                for numbers, values in zip(best.ids.tolist(), best.probabilities.tolist())
            ]
        values = self.model.probabilities(logits[np.newaxis])[0]
        if self.model.problem_type == REGRESSION:
            return float(values[0])
        if self.model.problem_type == MULTI_LABEL:
            return list(zip(self._labels, values.tolist()))
        return values

    def _targets(self, logits, inputs) -> np.ndarray:
        """Returns the number of the output that is explained for each example, int32 `[B]`."""
        targets = tf.argmax(logits, axis=-1, output_type=tf.int32).numpy()
        if self.model.problem_type == SINGLE_LABEL:
            for row, example in enumerate(inputs):
                label = example.get(self.label_name)
                if label is None or label == "":
                    continue
                if label not in self._labels:
                    expected = f"be one of {self._labels}"
                    raise user_error(f"`{self.label_name}`", expected, repr(label))
                targets[row] = self._labels.index(label)
        return targets

    def _word_vectors(self, ids, inputs, lengths):
        """Returns the word embeddings, or those of the examples, float32 `[B, T, E]`."""
        table = self.model.backbone.embeddings.word_table()
        vectors = tf.cast(tf.gather(table, ids), tf.float32).numpy()
        for row, example in enumerate(inputs):
            given = example.get(WORD_VECTORS)
            if given is None:
                continue
            if np.shape(given) != (lengths[row], vectors.shape[-1]):
                expected = f"be {[int(lengths[row]), vectors.shape[-1]]}, a vector for every token"
                raise user_error(f"`{WORD_VECTORS}`", expected, list(np.shape(given)))
            vectors[row, : lengths[row]] = given
        return tf.constant(vectors)

    def _tokens_of(self, inputs):
        """Returns the token dictionary, `[B, T]`: of the examples' pieces or of their texts."""
        names = (self.text_name, *([self.pair_name] if self.pair_name else []))
        columns = [[example[name] for example in inputs] for name in names]
        longest = self.model.preprocessor.max_length
        tokens = self._tokenizer(*columns, max_length=longest)
        if not any(example.get(TOKENS) for example in inputs):
            return tokens
        lengths = tf.reduce_sum(tf.cast(tokens["padding_mask"], tf.int32), axis=1)
        names = ("token_ids", "segment_ids")
        parts = [tf.RaggedTensor.from_tensor(tokens[name], lengths).to_list() for name in names]
        for row, example in enumerate(inputs):
            if example.get(TOKENS):
                ids = [self._ids.get(p, self._tokenizer.unk_token_id) for p in example[TOKENS]]
                parts[0][row] = ids[:longest]
                parts[1][row] = self._segments(ids[:longest])
        ids, segments = (tf.ragged.constant(part, tf.int32, ragged_rank=1) for part in parts)
        return {
            "token_ids": ids.to_tensor(self._tokenizer.pad_token_id),
            "segment_ids": segments.to_tensor(),
            "padding_mask": tf.sequence_mask(ids.row_lengths()),
        }

    def _segments(self, ids):
        """Returns 0 up to the first `[SEP]` and 1 after it, where the model has segments."""
        ends = np.equal(ids, self._tokenizer.sep_token_id)
        after = np.cumsum(ends) - ends > 0
        return (after & self._tokenizer.has_segments).astype(int).tolist()


def _attention(layer):
    return f"layer_{layer}/attention"
