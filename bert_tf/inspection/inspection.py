"""`inspect_text`: everything that the page shows about one text and one model, as numbers.

Glossary: `T` tokens, `L` layers, `N` heads, `H` hidden size, `A` answers.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np

from bert_tf import tasks
from bert_tf.errors import UserError, require, user_error
from bert_tf.inspection import attributions as methods
from bert_tf.inspection.attributions import Attribution, attention_rollout, without_each_head
from bert_tf.inspection.candidates import (
    Neighbours,
    PieceCandidates,
    has_word_head,
    layer_lens,
    masked_words,
    nearest_pieces,
    nearest_tokens,
)
from bert_tf.inspection.targets import InspectedRow, Target, is_whole, require_text
from bert_tf.text import Tokenizer

# Tokens that one part may send through the encoder: about half a minute of MiniLM on two cores.
MAX_TOKENS = 50_000
MAX_WEIGHTS = 200_000_000  # of attention, of which a few copies of 4 bytes each are in memory
# A vector times the word embeddings, and the search of the best of them, cost about as much as a
# token in a small encoder for so many pieces.
PIECES_PER_TOKEN = 3_000


@dataclasses.dataclass(frozen=True, repr=False)  # the arrays would fill pages
class Inspection:
    """What a model does with a text or a pair. A part is None if the model or the text has none.

    Attributes:
        model_name: The name of the model.
        task: The name of the task.
        row: The tokens: `pieces`, `ids`, `starts` and `ends` (characters), `words`, `texts`.
        attentions: The attention probabilities, float32 `[L, N, T, T]`; zeros for pruned heads.
        kept_heads: For each layer the heads that are not pruned.
        rollout: Attention rollout, float64 `[L, T, T]`.
        target: What the model says, and the answer that is explained.
        attributions: `Attribution`s by the name of the method: "gradient × input", "integrated
            gradients", "occlusion".
        masked_words: `PieceCandidates` at each of the T places while it alone is hidden.
        lens: `PieceCandidates` of the masked-LM head after each layer, `[L + 1, T]`.
        near_tokens: The nearest other tokens after each layer, `[L + 1, T, k]`.
        near_pieces: The nearest pieces of the vocabulary after each layer, `[L + 1, T, k]`.
        head_scores: The scores of `target.answers` without each head, float64 `[L, N, A]`.
        head_probabilities: Their probabilities.
        left_out: Why parts that the model could have are None, by their names.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> inspection = bert_tf.inspection.inspect_text(model, "a good film")
        >>> inspection.attentions.shape[2:] == (5, 5)  # [CLS] a good film [SEP]
        True
    """

    model_name: str
    task: str
    row: InspectedRow
    attentions: np.ndarray
    kept_heads: list[list[int]]
    rollout: np.ndarray
    target: Target | None = None
    attributions: dict[str, Attribution] = dataclasses.field(default_factory=dict)
    masked_words: PieceCandidates | None = None
    lens: PieceCandidates | None = None
    near_tokens: Neighbours | None = None
    near_pieces: Neighbours | None = None
    head_scores: np.ndarray | None = None
    head_probabilities: np.ndarray | None = None
    left_out: dict[str, str] = dataclasses.field(default_factory=dict)


def inspect_text(
    model: Any,
    text: str,
    pair: str | None = None,
    *,
    target: str | int | None = None,
    piece: int | None = None,
    tokenizer: Tokenizer | None = None,
    model_name: str | None = None,
    steps: int = 32,
    top_k: int = 5,
    max_tokens: int = MAX_TOKENS,
) -> Inspection:
    """Computes what a model does with a text: attention, attributions, candidates, layers, heads.

    Args:
        model: A task model, such as a `BertTextClassifier`, or any model with a `backbone`. What
            its task does not have is left out.
        text: The text. For question answering it is the question.
        pair: The second text. For a model of vectors, the text that `text` is compared with.
        target: The answer that is explained: the name or the number of a class, of a piece of the
            vocabulary for a masked LM. None for the most probable.
        piece: For a model with an answer for every token: the number of the token. None for the
            first `[MASK]`, or the first token whose class is not the most frequent one.
        tokenizer: The tokenizer of a model that has none.
        model_name: The name that is shown; None for the class of the model.
        steps: The number of steps of integrated gradients.
        top_k: The number of candidates and neighbours.
        max_tokens: A part that needs more tokens than this in the encoder is left out, with the
            reason in `left_out`. Masked words need T², occlusion T times 1 + T + the number of
            words, heads L·N·T, the layer lens and the nearest pieces (L + 1)·T for every 3,000
            pieces of the vocabulary.

    Returns:
        An `Inspection`.

    Raises:
        UserError: If there is no tokenizer, the encoder has no attention, a text is not valid
            Unicode or has too many tokens, the model reads single texts and there is a pair, there
            is no such answer or token, or the model computes NaN.

    Example:
        >>> model = bert_tf.BertTextClassifier.from_pretrained("reviews/")
        >>> inspection = bert_tf.inspection.inspect_text(model, "a good film", target="good")
        >>> sorted(inspection.attributions)
        ['gradient × input', 'integrated gradients', 'occlusion']

    Reference: the modules of `bert_tf.inspection` name the paper of each method.
    """
    for name, value in {"steps": steps, "top_k": top_k, "max_tokens": max_tokens}.items():
        is_valid = is_whole(value) and value >= 1
        require(is_valid, "must be a positive integer", UserError, **{name: value})
    row, other = inspected_rows(model, tokenizer, text, pair)
    config, length = model.backbone.config, len(row)
    num_heads = config.num_hidden_layers * config.num_attention_heads
    _require_few_weights(num_heads, length)
    top_k = min(top_k, len(row.readable))
    outputs = model.backbone(row.tokens, output_attentions=True, output_hidden_states=True)
    states = _finite_states(outputs["hidden_states"])  # [L + 1, T, H]
    kept_heads = [list(config.kept_heads(layer)) for layer in range(config.num_hidden_layers)]
    attentions = _all_heads(outputs["attentions"], kept_heads, config.num_attention_heads)
    parts = _Parts(max_tokens)
    spec = tasks.spec_of(type(model))
    chosen, attributions, heads = None, {}, None
    if spec is not None and spec.output_axes is not None:
        chosen = Target(model, row, other, target, piece)
        attributions = _attributions(model, row, chosen, steps, parts)
        cost = num_heads * length
        heads = parts.computed("heads", cost, without_each_head, model, row, chosen)
    cost = len(states) * length * -(-config.vocab_size // PIECES_PER_TOKEN)
    lens = words = None
    if has_word_head(model):
        lens = parts.computed("layer lens", cost, layer_lens, model, row, states, top_k)
        if row.tokenizer.mask_token_id is not None:
            options = {"top_k": top_k}
            words = parts.computed("masked words", length**2, masked_words, model, row, **options)
    near = model, states, len(row.readable), top_k
    return Inspection(
        model_name=model_name or type(model).__name__,
        task="" if spec is None else spec.name.replace("_", " "),
        row=row,
        attentions=attentions,
        kept_heads=kept_heads,
        rollout=attention_rollout(attentions),
        target=chosen,
        attributions=attributions,
        masked_words=words,
        lens=lens,
        near_tokens=nearest_tokens(states, top_k),
        near_pieces=parts.computed("near pieces", cost, nearest_pieces, *near),
        head_scores=heads and heads[0],
        head_probabilities=heads and heads[1],
        left_out=parts.left_out,
    )


class _Parts:
    """Parts of an inspection, without those that need too many tokens."""

    def __init__(self, max_tokens: int):
        self._max_tokens = max_tokens
        self.left_out: dict[str, str] = {}  # the reasons, by the name of the part

    def computed(self, name: str, tokens: int, compute: Callable, *arguments, **options) -> Any:
        """Returns a part, or None if it needs too many tokens."""
        if tokens <= self._max_tokens:
            return compute(*arguments, **options)
        needed = f"needs {tokens:,} tokens in the encoder"
        self.left_out[name] = f"{needed}, more than max_tokens={self._max_tokens:,}"
        return None


def _require_few_weights(num_heads, length):
    weights = num_heads * length**2
    if weights > MAX_WEIGHTS:
        raise UserError(
            "`text` must be shorter, so that the model has at most "
            f"{MAX_WEIGHTS:,} attention weights, the number of layers times that of heads times "
            f"the square of that of tokens. Received: {length:,} tokens, {weights:,} weights"
        )


def _finite_states(hidden_states):
    """Returns the hidden states of one row, float32 `[L + 1, T, H]`."""
    states = np.stack([state[0].numpy() for state in hidden_states]).astype(np.float32)
    if not np.isfinite(states).all():
        received = "NaN or infinity in the hidden states of this text; the weights may be damaged"
        raise user_error("`model`", "compute finite numbers", received)
    return states


def inspected_rows(
    model: Any, tokenizer: Tokenizer | None, text: str, pair: str | None
) -> tuple[InspectedRow, InspectedRow | None]:
    """Returns the row to inspect, and the one that a model of vectors compares it with, or None.

    The arguments are those of `inspect_text`.
    """
    tokenizer = tokenizer or getattr(model, "tokenizer", None)
    if not hasattr(model, "backbone") or tokenizer is None:
        expected = "be a task model with a tokenizer, or `tokenizer` must be given"
        raise user_error("`model`", expected, f"a {type(model).__name__}, tokenizer={tokenizer}")
    require_text("text", text)
    spec = tasks.spec_of(type(model))
    if pair is not None:
        require_text("pair", pair)
        if spec is not None and not spec.reads_pairs:
            expected = f"be None for a {spec.model}, which reads one text at a time"
            received = f"pair={pair!r:.80}. Inspect the texts one by one."
            raise user_error("`pair`", expected, received)
    if has_word_head(model):  # a written [MASK] is one token
        tokenizer = tokenizer.keeping_special_tokens
    longest = getattr(model, "longest", model.backbone.config.max_position_embeddings)
    prompt = getattr(model, "prompts", {}).get(getattr(model, "default_prompt_name", None), "")
    if pair is not None and spec is not None and hasattr(model, "vector_size"):
        first, second = (prompt + part for part in (text, pair))
        return tuple(InspectedRow(tokenizer, (part,), longest) for part in (first, second))
    texts = (text,) if pair is None else (text, pair)
    return InspectedRow(tokenizer, (prompt + text, *texts[1:]), longest), None


def _attributions(model, row, target, steps, parts):
    found = {}
    if methods.has_gradients(model):
        # At a vector's own similarity of 1 the gradient is zero.
        found["gradient × input"] = methods.gradient_times_input(model, row, target)
        arguments = methods.integrated_gradients, model, row, target, steps
        name = "integrated gradients"
        found[name] = parts.computed(name, steps * len(row), *arguments)
    else:
        parts.left_out["gradients"] = "need a model that is not quantized or prepacked"
    cost = (1 + len(row) + row.num_words) * len(row)
    found["occlusion"] = parts.computed("occlusion", cost, methods.occlusion, row, target)
    return {name: value for name, value in found.items() if value is not None}


def _all_heads(attentions, kept_heads, num_heads):
    """Returns the probabilities of all heads, float32 `[L, N, T, T]`, zeros for pruned ones."""
    length = attentions[0].shape[-1]
    found = np.zeros([len(attentions), num_heads, length, length], np.float32)
    for layer, (values, kept) in enumerate(zip(attentions, kept_heads)):
        found[layer, kept] = values[0].numpy()  # [1, n, T, T] -> [n, T, T]
    return found
