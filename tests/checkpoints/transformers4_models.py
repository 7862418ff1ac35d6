"""Saves tiny BERTs with the TensorFlow classes of transformers 4, and what they compute.

    python transformers4_models.py DIRECTORY

It runs in an environment with transformers 4 and TensorFlow and without bert_tf. All weights are
random, biases and LayerNorm's scales too. DIRECTORY gets a folder for each class and way of saving,
and in it `computed.npz`: inputs and outputs, with the prefix `text_` for the texts of `texts.json`.
"""

import json
import pathlib
import sys

import numpy as np
import tensorflow as tf

LETTERS = [chr(code) for code in range(ord("a"), ord("z") + 1)]
WORDS = ["good", "bad", "film", "the", "."]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, *LETTERS]
VOCABULARY += [f"##{letter}" for letter in LETTERS] + ["[unused0]", "[unused1]"]
CONFIG = {
    "vocab_size": len(VOCABULARY),
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 40,
}
LABELS = ["bad", "fair", "good"]
# Arguments of `save_pretrained`.
WAYS = {
    "h5": {},
    "safetensors": {"safe_serialization": True},
    "h5 in shards": {"max_shard_size": "10KB"},
    "safetensors in shards": {"max_shard_size": "10KB", "safe_serialization": True},
}
# Class -> its configuration, and names of texts; each is called with all of them.
MODELS = {
    "TFBertModel": ({}, None),
    "TFBertForPreTraining": ({}, None),
    "TFBertForMaskedLM": ({"hidden_act": "gelu_new"}, {"text": ["the [MASK] film .", "[MASK]"]}),
    "TFBertForNextSentencePrediction": (
        {},
        {"text": ["The film.", "Good"], "pair": ["It is bad.", "the film xyz"]},
    ),
    "TFBertForSequenceClassification": (
        {"id2label": dict(enumerate(LABELS)), "hidden_act": "relu"},
        {"text": ["A good film.", "Bad, thé film"]},
    ),
    "TFBertForMultipleChoice": ({}, None),
    "TFBertForTokenClassification": ({"id2label": dict(enumerate(["O", "B-X", "I-X"]))}, None),
    "TFBertForQuestionAnswering": ({}, None),
}


def randomize(model, rng):
    """Gives every weight random values."""
    for weight in model.weights:
        center = 1.0 if "gamma" in weight.name else 0.0
        weight.assign(rng.normal(center, 0.3, weight.shape).astype(np.float32))


def token_inputs(rng, shape):
    """Returns random token ids, segments and a mask; the first row has no padding."""
    lengths = rng.integers(3, shape[-1] + 1, shape[:-1])
    lengths.flat[0] = shape[-1]
    return {
        "input_ids": rng.integers(0, CONFIG["vocab_size"], shape, np.int32),
        "token_type_ids": rng.integers(0, 2, shape, np.int32),
        "attention_mask": (np.arange(shape[-1]) < lengths[..., None]).astype(np.int32),
    }


def outputs_of(model, inputs, prefix=""):
    inputs = {name: tf.constant(values) for name, values in inputs.items()}
    found = model(inputs, output_hidden_states=True, output_attentions=True)
    return {f"{prefix}{key}": np.array(values) for key, values in found.items()}


def save(directory, name, config, texts):
    import transformers  # version 4; the test, which reads the constants above, may have none

    rng = np.random.default_rng(len(name))
    config = transformers.BertConfig(**CONFIG, **config)
    model = getattr(transformers, name)(config)
    shape = (3, 2, 17) if name == "TFBertForMultipleChoice" else (3, 17)
    inputs = token_inputs(rng, shape)
    model(inputs)
    randomize(model, rng)
    computed = {**inputs, **outputs_of(model, inputs)}
    (directory / "vocab.txt").write_text("".join(f"{piece}\n" for piece in VOCABULARY))
    tokenizer = transformers.BertTokenizer(str(directory / "vocab.txt"), model_max_length=40)
    if texts:
        tokens = tokenizer(*texts.values(), padding=True, return_tensors="np")
        computed.update(outputs_of(model, tokens, "text_"))
        computed["text_input_ids"] = tokens["input_ids"]
    for way, options in WAYS.items():
        folder = directory / name / way
        model.save_pretrained(folder, **options)
        tokenizer.save_pretrained(folder)
        np.savez(folder / "computed.npz", **computed)
        (folder / "texts.json").write_text(json.dumps(texts))


def main():
    directory = pathlib.Path(sys.argv[1])
    for name, (config, texts) in MODELS.items():
        save(directory, name, config, texts)


if __name__ == "__main__":
    main()
