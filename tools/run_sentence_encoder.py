r"""Trains, evaluates and runs a BERT sentence encoder (Sentence-BERT) on pairs or triplets.

    python tools/run_sentence_encoder.py --init_checkpoint=uncased_L-12_H-768_A-12 \
      --objective=classification --train_file=nli.tsv --dev_file=sts-dev.tsv --score_scale=5 \
      --do_train --do_eval --output_dir=out

Files are `.tsv` or `.csv` with a header, or `.jsonl`. Columns by --objective: `classification` and
`cosine`: sentence1, sentence2, label (or score); `ranking`: anchor, positive and, if there,
negative; `triplet`: all three. --dev_file has sentence1, sentence2, score.

In --output_dir: `model/` (a directory that sentence-transformers opens too), `eval_results.txt`
(Pearson and Spearman correlation of cosines and scores) and, with --do_encode, `vectors.npy`; with
--lora_rank `lora.safetensors`.
"""

import os

import numpy as np
from absl import flags
from common import fine_tuning

from bert_tf import tool
from bert_tf.array_files import save_array
from bert_tf.config import POOLING_MODES
from bert_tf.data.tsv import read_lines
from bert_tf.errors import DataError, UserError
from bert_tf.files import atomic_path
from bert_tf.tasks.sentence_embedding.files import (
    read_labelled_pairs,
    read_scored_pairs,
    read_triplets,
)

FLAGS = flags.FLAGS
OBJECTIVES = ("classification", "cosine", "ranking", "triplet")

flags.DEFINE_string("train_file", None, "The examples to train on.")
flags.DEFINE_string("dev_file", None, "Pairs with scores, for --do_eval and after each epoch.")
flags.DEFINE_string("encode_file", None, "Texts to encode, one a line.")
flags.DEFINE_string("output_dir", None, "Where the trained model and the results are written.")
flags.DEFINE_string(
    "init_checkpoint",
    None,
    "The model to start from: a directory of sentence-transformers, Hugging Face or TF1. "
    "Without --do_train: the trained model (default: the one in --output_dir).",
)
flags.DEFINE_bool("do_train", False, "Whether to train.")
flags.DEFINE_bool("do_eval", False, "Whether to evaluate on --dev_file.")
flags.DEFINE_bool("do_encode", False, "Whether to encode --encode_file.")
flags.DEFINE_enum("objective", "ranking", OBJECTIVES, "What the model learns from.")
flags.DEFINE_float("score_scale", 1.0, "Scores are divided by this; 5 for STS.", lower_bound=1e-6)
flags.DEFINE_float("scale", 20.0, "Of ranking: what cosines are multiplied by.", lower_bound=1e-6)
flags.DEFINE_enum("distance", "euclidean", ["euclidean", "cosine"], "Of triplet.")
flags.DEFINE_float(
    "margin", 1.0, "Of triplet: how much farther the negative must be.", lower_bound=1e-6
)
flags.DEFINE_enum(
    "pooling",
    None,
    POOLING_MODES,
    "How a text's vector is made. Default: as the checkpoint says, else mean.",
)
flags.DEFINE_bool(
    "normalize", None, "Scale vectors to length 1. Default: as the checkpoint says, else no."
)
flags.DEFINE_integer(
    "max_seq_length", None, "Longest text in tokens; default: as the checkpoint says."
)
flags.DEFINE_string(
    "whitening_file", None, "Texts, one a line: after training, whiten the vectors by theirs."
)
flags.DEFINE_integer("whitening_size", None, "Size of whitened vectors. Default: all.")
flags.DEFINE_integer("train_batch_size", 32, "Batch size for training.", lower_bound=1)
flags.DEFINE_float("learning_rate", 2e-5, "The peak learning rate of Adam.", lower_bound=0.0)
flags.DEFINE_integer("num_train_epochs", 1, "Epochs of training.", lower_bound=1)
flags.DEFINE_float(
    "warmup_proportion",
    0.1,
    "Share of the training steps over which the learning rate rises.",
    lower_bound=0.0,
    upper_bound=1.0,
)
fine_tuning.define_class_weights()
fine_tuning.define_epoch_flags("val_spearman or val_pearson")
flags.DEFINE_integer("seed", 12345, "Seed of the shuffling and the dropout.")


def read_texts(path):
    """One text a line, as the file has them."""
    texts = [line for _, line in read_lines(path)]
    if not texts:
        raise DataError(f"{path} holds no texts")
    return texts


def read_train_data():
    """Texts, labels (None without) and the loss."""
    from bert_tf.tasks.sentence_embedding import losses as sentence_losses

    if FLAGS.objective == "classification":
        texts, names = read_labelled_pairs(FLAGS.train_file)
        classes = sorted(set(map(str, names)))
        if len(classes) < 2:
            raise DataError(f"{FLAGS.train_file}: two labels were expected. Received: {classes}")
        ids = {name: index for index, name in enumerate(classes)}
        labels = np.array([ids[str(name)] for name in names], np.int32)
        loss = fine_tuning.class_loss(labels, len(classes))
        loss = None if loss == "auto" else loss
        return texts, labels, sentence_losses.ClassificationLoss(len(classes), loss)
    if FLAGS.objective == "cosine":
        texts, labels = read_scored_pairs(FLAGS.train_file, FLAGS.score_scale)
        return texts, np.array(labels, np.float32), sentence_losses.CosineRegressionLoss()
    texts = read_triplets(FLAGS.train_file)
    if FLAGS.objective == "ranking":
        return texts, None, sentence_losses.MultipleNegativesRankingLoss(FLAGS.scale)
    if len(texts) < 3:
        raise DataError(f"{FLAGS.train_file}: triplets need the column `negative`")
    return texts, None, sentence_losses.TripletLoss(FLAGS.distance, FLAGS.margin)


def load_encoder():
    """The encoder to start from, or the trained one."""
    from bert_tf.tasks.sentence_embedding.model import BertSentenceEncoder

    path = FLAGS.init_checkpoint or os.path.join(FLAGS.output_dir, "model")
    options = {
        "pooling": FLAGS.pooling,
        "normalize": FLAGS.normalize,
        "max_length": FLAGS.max_seq_length,
    }
    options = {name: value for name, value in options.items() if value is not None}
    return BertSentenceEncoder.from_pretrained(path, **options)


def train(encoder, texts, labels, loss, dev_data):
    import keras

    steps = -(-len(texts[0]) // FLAGS.train_batch_size) * FLAGS.num_train_epochs
    schedule = fine_tuning.schedule(steps)
    fine_tuning.prepare_model(encoder)
    encoder.compile(
        fine_tuning.optimizer(schedule),
        objective=loss,
        gradient_accumulation_steps=FLAGS.gradient_accumulation_steps,
    )
    callbacks = []
    if dev_data:

        def report(epoch, logs):
            results = correlations(encoder, *dev_data)
            print(f"\nepoch {epoch + 1}:", *_lines(results), sep="  ")
            logs.update({f"val_{name}": value for name, value in results.items()})

        callbacks = [keras.callbacks.LambdaCallback(on_epoch_end=report)]
    encoder.fit(
        texts,
        labels,
        batch_size=FLAGS.train_batch_size,
        epochs=FLAGS.num_train_epochs,
        callbacks=callbacks + fine_tuning.callbacks(),
    )
    fine_tuning.finish_model(encoder)


def correlations(encoder, texts, scores):
    """Pearson's and Spearman's correlation of the cosines of pairs with their scores."""
    from bert_tf.config import REGRESSION
    from bert_tf.training.evaluation.scores import all_scores

    count = len(scores)
    vectors = encoder.encode(texts[0] + texts[1])
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    vectors = vectors / np.where(norms > 0, norms, 1)
    cosines = np.sum(vectors[:count] * vectors[count:], axis=1)
    results = all_scores(np.array(scores), cosines, REGRESSION)
    return {name: results[name] for name in ("pearson", "spearman") if name in results}


def evaluate(encoder, dev_data):
    lines = _lines(correlations(encoder, *dev_data))
    with atomic_path(os.path.join(FLAGS.output_dir, "eval_results.txt")) as path:
        with open(path, "w", encoding="utf-8") as file:
            file.write("\n".join(lines) + "\n")
    print("***** Eval results *****", *lines, sep="\n")


def encode(encoder, texts):
    vectors = encoder.encode(texts, show_progress=True)
    path = os.path.join(FLAGS.output_dir, "vectors.npy")
    with atomic_path(path) as new:
        save_array(new, vectors)
    print(f"{len(vectors)} vectors of size {vectors.shape[1]} in {path}")


def _lines(results):
    return [f"eval_{name} = {value:.6f}" for name, value in sorted(results.items())]


def main():
    if not (FLAGS.do_train or FLAGS.do_eval or FLAGS.do_encode):
        raise UserError("At least one of --do_train, --do_eval or --do_encode was expected.")
    needs = {
        "do_train": ("init_checkpoint", "train_file"),
        "do_eval": ("dev_file",),
        "do_encode": ("encode_file",),
    }
    for flag, others in needs.items():
        for other in others:
            if FLAGS[flag].value and not FLAGS[other].value:
                raise UserError(f"--{flag} needs --{other}.")
    if FLAGS.whitening_file and not FLAGS.do_train:
        raise UserError("--whitening_file needs --do_train, which writes the model.")
    fine_tuning.check_flags(has_dev=bool(FLAGS.dev_file))
    if FLAGS.objective != "classification" and fine_tuning.changes_loss():
        raise UserError(
            "--label_smoothing, --focal_gamma and --class_weights are for "
            f"--objective=classification. Received: --objective={FLAGS.objective}"
        )
    tool.require_writable(FLAGS.output_dir, "output_dir")
    if FLAGS.dev_file:
        from bert_tf.training.evaluation.scores import require_scikit_learn

        require_scikit_learn()  # before any work
    import keras

    keras.utils.set_random_seed(FLAGS.seed)

    train_data = read_train_data() if FLAGS.do_train else None
    dev_data = read_scored_pairs(FLAGS.dev_file, FLAGS.score_scale) if FLAGS.dev_file else None
    encode_texts = read_texts(FLAGS.encode_file) if FLAGS.do_encode else None
    whitening_texts = read_texts(FLAGS.whitening_file) if FLAGS.whitening_file else None
    encoder = load_encoder()
    if FLAGS.do_train:
        train(encoder, *train_data, dev_data)
        if whitening_texts:
            encoder.fit_whitening(whitening_texts, FLAGS.whitening_size)
        encoder.save_pretrained(os.path.join(FLAGS.output_dir, "model"))
    if FLAGS.do_eval:
        evaluate(encoder, dev_data)
    if FLAGS.do_encode:
        encode(encoder, encode_texts)


if __name__ == "__main__":
    flags.mark_flags_as_required(["output_dir"])
    tool.run(main)
