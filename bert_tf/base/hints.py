"""Hints for users of keras-hub and transformers: what their names are called here.

An error about a name that these libraries have ends with one line that says what to write instead.
"""

import difflib
from collections.abc import Collection, Iterable, Mapping
from typing import Any

_NOT_FUNCTIONAL = (
    'The model is called with texts or with {"token_ids": …}, it has no symbolic inputs; '
    "`model.layers` and `hidden_states` show what is inside."
)
# An attribute or argument of keras-hub or transformers, and what to write here.
HINTS = {
    "add_special_tokens": "`tokenizer.with_added_tokens(tokens, special=True)` returns a new one.",
    "add_tokens": "`tokenizer.with_added_tokens(tokens)` returns a new tokenizer.",
    "attention_mask": "It is called `padding_mask`.",
    "batch_decode": "`tokenizer.detokenize(ids)` makes text of ids.",
    "convert_ids_to_tokens": "`tokenizer.vocabulary[id]` is a piece.",
    "convert_tokens_to_ids": "`tokenizer.token_to_id(piece)` is an id.",
    "decode": "`tokenizer.detokenize(ids)` makes text of ids.",
    "enable_lora": "The task model has this method, not its backbone: `model.enable_lora(rank=8)`.",
    "encode_plus": "Call the tokenizer: `tokenizer(texts, pairs)`.",
    "from_preset": "`from_pretrained(path)` also opens presets of keras-hub.",
    "get_vocab": "`tokenizer.vocabulary` has the pieces in the order of their ids.",
    "get_sentence_embedding_dimension": "It is called `vector_size`.",
    "id2label": "`labels` is the list of their names.",
    "input": _NOT_FUNCTIONAL,
    "input_ids": "They are called `token_ids`.",
    "label2id": "`labels` is the list of their names.",
    "max_seq_length": "It is called `max_length`.",
    "num_labels": "Did you mean `num_classes`?",
    "output": _NOT_FUNCTIONAL,
    "is_split_into_words": "`tokenizer.encode(texts, is_split_into_words=True)` takes words.",
    "resize_token_embeddings": "`bert_tf.adapt.resize_token_embeddings(model, tokenizer)`.",
    "return_offsets_mapping": "`tokenizer.encode(texts)` returns spans, words and more.",
    "return_overflowing_tokens": "`tokenizer.encode(texts, window_overlap=…)` makes windows.",
    "return_special_tokens_mask": "`tokenizer.encode(texts)` returns it.",
    "return_tensors": "Leave it out: a tokenizer returns TensorFlow's tensors.",
    "save_to_preset": "`save_pretrained(directory)` writes a checkpoint.",
    "similarity": "`encode(a) @ encode(b).T` are dot products, cosines with `normalize=True`.",
    "token_type_ids": "They are called `segment_ids`.",
}


def hint_for(names: Iterable[str], known: Collection[str] = ()) -> str:
    """Returns a sentence about the first of some unknown names that one can be said of.

    Args:
        names: The unknown names.
        known: The names that would do; a similar one is suggested.

    Example:
        >>> hint_for(["num_labels"])
        ' Did you mean `num_classes`?'
        >>> hint_for(["max_lenght"], ["max_length", "labels"])
        ' Did you mean `max_length`?'
    """
    for name in names:
        if name in HINTS:
            return f" {HINTS[name]}"
        if similar := difflib.get_close_matches(name, known, 1):
            return f" Did you mean `{similar[0]}`?"
    return ""


def missing_attribute(instance: Any, name: str) -> Any:
    """Raises Python's or Keras's `AttributeError` for a missing attribute, with a hint.

    It is the `__getattr__` of a class.
    """
    try:
        return object.__getattribute__(instance, name)
    except AttributeError as error:
        if name not in HINTS:
            raise
        message = f"{str(error).rstrip('.')}.{hint_for([name])}"
        raise AttributeError(message, name=name, obj=instance) from None


def refuse_from_preset(kind: type, *arguments: Any, **options: Any) -> None:
    """Raises `AttributeError`: `from_pretrained` is the name of keras-hub's `from_preset`."""
    message = f"type object {kind.__name__!r} has no attribute 'from_preset'."
    raise AttributeError(message + hint_for(["from_preset"]))


def describe(instance: Any, values: Mapping[str, Any]) -> str:
    """Returns the `repr` of an object with some of its values; long ones are shortened.

    Example:
        >>> describe(np.ones(2), {"labels": ["bad", "good"], "max_length": 128})
        "<ndarray labels=['bad', 'good'], max_length=128>"
    """
    shown = (f"{name}={value!r}" for name, value in values.items())
    shown = (text if len(text) <= 100 else f"{text[:90]} …" for text in shown)
    described = f"{type(instance).__name__} {', '.join(shown)}"
    return f"<{described.rstrip()}>"
