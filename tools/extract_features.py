r"""Writes BERT's hidden states of every token of every line, as JSON lines.

Flags and output as google-research/bert's extract_features.py:

    python tools/extract_features.py --input_file=input.txt --output_file=output.jsonl \
      --init_checkpoint=uncased_L-12_H-768_A-12 --layers=-1,-2,-3,-4 --max_seq_length=128

A line of --input_file is a text, or a pair of texts with ` ||| ` between them. A line of
--output_file:

    {"linex_index": 0, "features": [{"token": "[CLS]", "layers":
      [{"index": -1, "values": [0.123456, ...]}, ...]}, ...]}
"""

import json
import os
import re

from absl import flags
from common import original_flags
from common.checkpoint_flags import directory_of, load_tokenizer
from tqdm import tqdm

from bert_tf import tool
from bert_tf.errors import UserError
from bert_tf.files import atomic_path

FLAGS = flags.FLAGS

flags.DEFINE_string("input_file", None, "UTF-8 text, one a line; ` ||| ` separates a pair.")
flags.DEFINE_string("output_file", None, "Where the JSON lines are written.")
flags.DEFINE_string(
    "layers",
    "-1,-2,-3,-4",
    "The blocks whose output is written: 0 is the first block, -1 the last.",
)
flags.DEFINE_string("bert_config_file", None, "The config file, if not beside the checkpoint.")
flags.DEFINE_integer("max_seq_length", 128, "Longest sequence in tokens; longer text is cut.")
flags.DEFINE_string(
    "init_checkpoint",
    None,
    "A Hugging Face directory, a TF1 checkpoint directory, or a TF1 checkpoint's prefix.",
)
flags.DEFINE_string("vocab_file", None, "The vocabulary, if not beside the checkpoint.")
flags.DEFINE_bool("do_lower_case", None, "Lower the text. Default: as the tokenizer's files say.")
_IGNORED = ("use_tpu", "master", "num_tpu_cores", "use_one_hot_embeddings")
original_flags.define_ignored(*_IGNORED)
flags.DEFINE_integer("batch_size", 32, "Lines computed at a time.", lower_bound=1)

DECIMALS = 6  # google-research/bert extract_features.py
PAIR = re.compile(r"^(.*) \|\|\| (.*)$")


def read_lines(path):
    """The texts of each line: one, or the two of a pair."""
    try:
        with open(path, "rb") as file:
            lines = list(file)
    except OSError as error:
        raise UserError(f"--input_file: cannot read {path}: {error.strerror}") from None
    if not lines:
        raise UserError(f"--input_file: {path} holds no text.")
    examples = []
    for number, line in enumerate(lines, start=1):
        try:
            text = line.decode("utf-8").strip()
        except UnicodeDecodeError as error:
            raise UserError(
                f"{path}, line {number}: expected UTF-8. Received: {error}. Convert the file first."
            ) from None
        match = PAIR.match(text)
        examples.append(match.groups() if match else (text,))
    return examples


def parse_layers(text):
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise UserError(
            f"--layers: expected whole numbers with commas between. Received: {text!r}"
        ) from None


def load_extractor(layers):
    from bert_tf.models.backbone import BertBackbone
    from bert_tf.tasks.feature_extraction.model import BertFeatureExtractor
    from bert_tf.text.tokenizer import BertTokenizer

    path = FLAGS.init_checkpoint
    backbone = BertBackbone.from_pretrained(path, config_file=FLAGS.bert_config_file)
    tokenizer = load_tokenizer(path) or BertTokenizer.from_pretrained(directory_of(path))
    count = backbone.config.num_hidden_layers
    if not all(-count <= layer < count for layer in layers):
        raise UserError(
            f"--layers: the model has {count} blocks, so {-count} to {count - 1} were expected. "
            f"Received: {FLAGS.layers}"
        )
    # Of the extractor's hidden states the first is the embeddings.
    indices = [layer + 1 if layer >= 0 else layer for layer in layers]
    return BertFeatureExtractor(
        backbone, indices, tokenizer=tokenizer, max_length=FLAGS.max_seq_length
    )


def features_of(extractor, examples, layers):
    """For each line the features of its tokens, ready for JSON."""
    # A line that is no pair has no second segment at all, so pairs are computed apart.
    results = [None] * len(examples)
    for width in {len(example) for example in examples}:
        rows = [row for row, example in enumerate(examples) if len(example) == width]
        columns = [[examples[row][part] for row in rows] for part in range(width)]
        tokens = extractor.tokenize(*columns)
        states = extractor.predict_on_batch(tokens)  # [B, T, K, H]
        vocabulary = extractor.tokenizer.vocabulary
        lengths = tokens["padding_mask"].numpy().sum(axis=1)
        for row, ids, values, length in zip(rows, tokens["token_ids"].numpy(), states, lengths):
            results[row] = [
                {
                    "token": vocabulary[token_id],
                    "layers": [
                        {"index": layer, "values": [round(float(x), DECIMALS) for x in vector]}
                        for layer, vector in zip(layers, vectors)
                    ],
                }
                for token_id, vectors in zip(ids[:length], values[:length])
            ]
    return results


def main():
    original_flags.tell_ignored(*_IGNORED)
    layers = parse_layers(FLAGS.layers)
    examples = read_lines(FLAGS.input_file)
    tool.require_writable(os.path.dirname(os.path.abspath(FLAGS.output_file)), "output_file")
    extractor = load_extractor(layers)
    with atomic_path(FLAGS.output_file) as path, open(path, "w", encoding="utf-8") as file:
        with tqdm(total=len(examples), unit="line") as bar:
            for start in range(0, len(examples), FLAGS.batch_size):
                batch = examples[start : start + FLAGS.batch_size]
                for place, features in enumerate(features_of(extractor, batch, layers)):
                    # Matches google-research/bert: the key really is spelt so.
                    line = {"linex_index": start + place, "features": features}
                    file.write(json.dumps(line) + "\n")
                bar.update(len(batch))
    print(f"{len(examples)} lines in {FLAGS.output_file}")


if __name__ == "__main__":
    flags.mark_flags_as_required(["input_file", "output_file", "init_checkpoint"])
    tool.run(main)
