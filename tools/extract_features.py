r"""Writes BERT's hidden states of every token of the lines of a text file, as JSON lines.

The flags and the output are those of google-research/bert's extract_features.py:

    bert-tf extract_features --input_file=input.txt --output_file=output.jsonl \
      --init_checkpoint=uncased_L-12_H-768_A-12 --layers=-1,-2,-3,-4 --max_seq_length=128

Each line of --input_file is a text, or a pair of texts separated by ` ||| `. For each of them the
tool writes one line to --output_file:

    {"linex_index": 0, "features": [{"token": "[CLS]", "layers":
      [{"index": -1, "values": [0.123456, ...]}, ...]}, ...]}

--projector_dir writes vectors for TensorBoard's projector, with or without --output_file: those of
the pieces of the vocabulary, the mean of the last layer's vectors of each line and, with
--projector_word, the vectors of a word wherever it is in the lines, after each layer:

    bert-tf extract_features --input_file=input.txt --init_checkpoint=uncased_L-12_H-768_A-12 \
      --projector_dir=projector --projector_word=bank
    tensorboard --logdir=projector
"""

import json

from bert_tf.base.files import atomic_path
from bert_tf.base.progress import progress_bar
from bert_tf.errors import UserError, user_error
from bert_tf.tools.common import original_flags, tool
from bert_tf.tools.common.checkpoint_flags import define_files, load_tokenizer
from bert_tf.tools.common.flag_table import FLAGS, define_flags
from bert_tf.tools.common.text_files import read_single_texts

define_flags("""
    input_file (str): The UTF-8 file with one text per line; ` ||| ` separates the two texts of a
        pair.
    output_file (str): The file to write the JSON lines to. Needed without --projector_dir.
    projector_dir (str): The directory to write vectors for TensorBoard's projector to. Default:
        none are written.
    projector_word (str): With --projector_dir: the word whose vectors in the lines are written,
        too. The lines must be single texts.
    projector_labels (str): With --projector_dir: a file with the label of each line, by which
        TensorBoard colors them.
    layers (str, -1,-2,-3,-4): The encoder blocks whose output is written to --output_file,
        separated by commas: 0 is the first block, -1 the last.
    max_seq_length (int, 128): Maximum sequence length in tokens; longer text is truncated.
    init_checkpoint (str): The model: a Hugging Face directory, a TF1 checkpoint directory, or the
        prefix of a TF1 checkpoint.
""")
define_files()
original_flags.define_ignored(("use_tpu", "master", "num_tpu_cores", "use_one_hot_embeddings"))
define_flags("""
    batch_size (int >= 1, 32): Batch size, in lines.
""")

DECIMALS = 6  # google-research/bert extract_features.py


def read_examples(path):
    """Returns the texts of each line: one, or the two of a pair."""
    splits = (text.strip().rpartition(" ||| ") for text in read_single_texts(path))
    return [(first, second) if separator else (second,) for first, separator, second in splits]


def load_extractor(layers):
    from bert_tf.models.backbone import BertBackbone
    from bert_tf.tasks.feature_extraction.model import BertFeatureExtractor
    from bert_tf.text.tokenizer import BertTokenizer

    path = FLAGS.init_checkpoint
    backbone = BertBackbone.from_pretrained(path, config_file=FLAGS.bert_config_file)
    tokenizer = load_tokenizer(path) or BertTokenizer.from_pretrained(path)
    count = backbone.config.num_hidden_layers
    if not all(-count <= layer < count for layer in layers):
        expected = f"be numbers from {-count} to {count - 1}, as the model has {count} blocks"
        raise user_error("--layers", expected, f"--layers={FLAGS.layers}")
    # The first of the extractor's hidden states is the output of the embeddings.
    indices = [layer + 1 if layer >= 0 else layer for layer in layers]
    return BertFeatureExtractor(
        backbone, indices, tokenizer=tokenizer, max_length=FLAGS.max_seq_length
    )


def features_of(extractor, examples, layers):
    """Returns the features of the tokens of each line, ready for JSON."""
    # A single text has no second segment, so single texts and pairs are computed separately.
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


def read_labels(num_lines):
    """Returns the labels of the lines, or None."""
    if FLAGS.projector_labels is None:
        return None
    labels = read_single_texts(FLAGS.projector_labels)
    if len(labels) != num_lines:
        expected = f"be a file of {num_lines} lines, one for each line of --input_file"
        received = f"{len(labels)} lines in {FLAGS.projector_labels}"
        raise user_error("--projector_labels", expected, received)
    return labels


def projections_of(extractor, examples, labels):
    """Returns the sets of vectors for the projector, by name."""
    import numpy as np

    from bert_tf.inspection import Projection, project_pieces, project_texts, project_word

    vectors = np.zeros([len(examples), extractor.backbone.config.hidden_size], np.float32)
    for width in {len(example) for example in examples}:
        rows = [row for row, example in enumerate(examples) if len(example) == width]
        columns = tuple([examples[row][part] for row in rows] for part in range(width))
        vectors[rows] = project_texts(extractor, columns).vectors
    metadata = {"text": [" ||| ".join(example) for example in examples]}
    if labels is not None:
        metadata["label"] = labels
    found = {"pieces": project_pieces(extractor), "texts": Projection(vectors, metadata)}
    if FLAGS.projector_word is not None:
        texts = [text for (text,) in examples]
        senses = project_word(extractor, FLAGS.projector_word, texts, labels)
        found |= {f"word_{name}": projection for name, projection in senses.items()}
    return found


def check_flags(examples):
    """Refuses flags that do not fit together or to the lines."""
    if not FLAGS.output_file and not FLAGS.projector_dir:
        raise user_error("At least one of --output_file and --projector_dir", "be set", "none")
    for name in ("projector_word", "projector_labels"):
        if FLAGS[name].value is not None and not FLAGS.projector_dir:
            raise UserError(f"--projector_dir must be set with --{name}. Received: none")
    if FLAGS.projector_word is not None and any(len(example) > 1 for example in examples):
        received = f"pairs in {FLAGS.input_file}"
        raise user_error("--projector_word", "be used with single texts", received)


def main():
    original_flags.print_ignored()
    try:
        layers = [int(part) for part in FLAGS.layers.split(",")] if FLAGS.output_file else [-1]
    except ValueError:
        received = f"--layers={FLAGS.layers}"
        raise user_error("--layers", "be whole numbers, separated by commas", received) from None
    examples = read_examples(FLAGS.input_file)
    check_flags(examples)
    labels = read_labels(len(examples))
    if FLAGS.output_file:
        tool.require_output_file(FLAGS.output_file, "output_file", [FLAGS.input_file])
    if FLAGS.projector_dir:
        tool.require_writable(FLAGS.projector_dir, "projector_dir")
    extractor = load_extractor(layers)
    if FLAGS.projector_dir:
        from bert_tf.inspection import write_projections

        write_projections(FLAGS.projector_dir, projections_of(extractor, examples, labels))
        print(f"vectors: {FLAGS.projector_dir}; tensorboard --logdir={FLAGS.projector_dir}")
    if FLAGS.output_file:
        write_features(extractor, examples, layers)


def write_features(extractor, examples, layers):
    """Writes the JSON lines."""
    with atomic_path(FLAGS.output_file) as path, open(path, "w", encoding="utf-8") as file:
        with progress_bar(total=len(examples), unit="line") as bar:
            for start in range(0, len(examples), FLAGS.batch_size):
                batch = examples[start : start + FLAGS.batch_size]
                for place, features in enumerate(features_of(extractor, batch, layers)):
                    # Matches google-research/bert: the key is spelled `linex_index` there.
                    line = {"linex_index": start + place, "features": features}
                    file.write(json.dumps(line) + "\n")
                bar.update(len(batch))
    print(f"{len(examples)} lines in {FLAGS.output_file}")


if __name__ == "__main__":
    tool.run(main, "input_file", "init_checkpoint")
