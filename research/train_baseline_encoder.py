r"""Trains an encoder that BERT is compared with on text: word vectors, NNLM, ELMo, or none.

    python -m research.train_baseline_encoder --encoder=elmo --input_file=text.txt \
      --vocab_file=vocab.txt --max_tokens=2000000 --output_dir=elmo
    bert-tf run_classifier --task_name=simple --data_dir=reviews --init_checkpoint=elmo/model \
      --import_modules=research.baselines --pooling=mean --do_train --do_eval \
      --output_dir=reviews_elmo

The encoders are those of Mikolov et al. 2013 (skip_gram and cbow, with negative sampling, by
gensim), of Bengio et al. 2003 (nnlm) and of Peters et al. 2018 (elmo: two layers of LSTMs in both
directions). `word_vectors` takes the vectors of a file of GloVe or word2vec, and `transformer` is
BERT's own network with random weights, which shows what fine-tuning reaches without pre-training;
both need no text. The words are the pieces of --vocab_file, as for BERT. --input_file has one
sentence per line and an empty line between documents, as for bert-tf run_pretraining. nnlm and elmo
compute the softmax over the whole vocabulary.

The tool writes to --output_dir:

    model/           the encoder with its tokenizer, which every program takes as --init_checkpoint
                     with --import_modules=research.baselines
    training.json    the tokens and minutes of the training, and the loss of held-out text; for
                     word_vectors, the number of pieces that have a vector
    log.jsonl        for nnlm and elmo: one JSON line every --log_steps
"""

import os
import time

from absl import flags

from bert_tf.base import optional_packages
from bert_tf.errors import UserError
from bert_tf.tools.common import result_files, tool
from bert_tf.tools.common.checkpoint_flags import new_tokenizer
from bert_tf.tools.common.console import print_result

FLAGS = flags.FLAGS

WORD_VECTORS = ("skip_gram", "cbow")
NEED_NO_TEXT = ("word_vectors", "transformer")
ENCODERS = (*WORD_VECTORS, "nnlm", "elmo", *NEED_NO_TEXT)
flags.DEFINE_enum("encoder", None, ENCODERS, "The encoder.")
flags.DEFINE_list("input_file", None, "The UTF-8 text files.")
flags.DEFINE_string("vocab_file", None, "The vocabulary.")
flags.DEFINE_bool(
    "do_lower_case",
    True,
    "Whether to convert the text to lower case; false for a cased vocabulary.",
)
flags.DEFINE_string("output_dir", None, "The directory to write the encoder to.")
flags.DEFINE_string(
    "word_vectors_file",
    None,
    "word_vectors: the vectors of words: a text file of GloVe or word2vec, or a binary file of "
    "word2vec whose name ends with .bin. Pieces that it lacks get zeros.",
)
flags.DEFINE_integer(
    "hidden_size", 128, "Width of the vectors; word_vectors takes that of its file.", lower_bound=2
)
flags.DEFINE_integer("num_layers", 2, "elmo, transformer: the number of layers.", lower_bound=1)
flags.DEFINE_integer(
    "num_attention_heads",
    None,
    "transformer: the number of heads. Default: the most heads of width 64 or more that divide "
    "--hidden_size.",
    lower_bound=1,
)
flags.DEFINE_integer("lstm_units", 256, "elmo: the units of an LSTM.", lower_bound=1)
flags.DEFINE_integer(
    "context_size", 5, "nnlm: the number of tokens that predict the next one.", lower_bound=1
)
flags.DEFINE_integer(
    "window", 5, "skip_gram, cbow: the largest distance of two tokens.", lower_bound=1
)
flags.DEFINE_integer(
    "negative", 5, "skip_gram, cbow: the number of negative samples.", lower_bound=1
)
flags.DEFINE_float(
    "dropout",
    0.1,
    "Dropout rate of the encoder, also in fine-tuning.",
    lower_bound=0.0,
    upper_bound=0.999,
)
flags.DEFINE_integer("max_seq_length", 128, "Maximum length of a row in tokens.", lower_bound=3)
flags.DEFINE_integer(
    "max_position_embeddings", 512, "Maximum length of a text in tokens that the encoder takes."
)
flags.DEFINE_integer("train_batch_size", 32, "nnlm, elmo: rows of a batch.", lower_bound=1)
flags.DEFINE_float("learning_rate", 1e-3, "nnlm, elmo: the peak learning rate of Adam.")
flags.DEFINE_integer(
    "max_tokens",
    None,
    "Number of tokens to train on, counting repeated text. Default: those of the text once.",
    lower_bound=1,
)
flags.DEFINE_float("max_minutes", None, "Stop after this many minutes. Default: no limit.")
flags.DEFINE_float(
    "heldout_share", 0.02, "nnlm, elmo: share of the rows that are held out to measure the loss."
)
flags.DEFINE_integer(
    "log_steps", 50, "Number of steps between two lines of the log.", lower_bound=1
)
flags.DEFINE_integer("seed", 0, "Seed of the weights and the order.")


def network():
    """Returns the arguments of the configuration other than the sizes that all encoders have."""
    if FLAGS.encoder == "nnlm":
        return {"kind": "nnlm", "num_hidden_layers": 1, "context_size": FLAGS.context_size}
    if FLAGS.encoder == "elmo":
        sizes = {"num_hidden_layers": FLAGS.num_layers, "intermediate_size": FLAGS.lstm_units}
        return {"kind": "elmo", **sizes}
    if FLAGS.encoder == "transformer":
        sizes = {"num_hidden_layers": FLAGS.num_layers, "intermediate_size": 4 * FLAGS.hidden_size}
        most = range(max(1, FLAGS.hidden_size // 64), 0, -1)
        default = next(heads for heads in most if FLAGS.hidden_size % heads == 0)
        heads = FLAGS.num_attention_heads or default
        return {"num_attention_heads": heads, "initializer_range": 0.02, **sizes}
    return {"kind": "word_vectors"}


def make_backbone(tokenizer, hidden_size):
    import keras

    from bert_tf import BertBackbone, BertConfig
    from research.baselines import BaselineBackbone, BaselineConfig

    keras.utils.set_random_seed(FLAGS.seed)
    sizes = {
        "vocab_size": tokenizer.vocab_size,
        "hidden_size": hidden_size,
        "hidden_dropout_prob": FLAGS.dropout,
        "initializer_range": 0.05,
        "max_position_embeddings": max(FLAGS.max_position_embeddings, FLAGS.max_seq_length),
        "pad_token_id": tokenizer.pad_token_id,
    }
    sizes |= network()
    if FLAGS.encoder == "transformer":
        backbone = BertBackbone(BertConfig(**sizes))
    else:
        backbone = BaselineBackbone(BaselineConfig(**sizes))
    backbone.pooler.is_missing = True  # nothing trains it
    return backbone


def train_vectors(backbone, rows):
    """Trains skip-gram or CBOW; returns what training.json says."""
    from bert_tf.base.progress import progress_bar
    from research.baselines import train_word_vectors

    total = FLAGS.max_tokens or rows.num_tokens
    with progress_bar(total=total, unit="token", unit_scale=True, desc=FLAGS.encoder) as bar:
        vectors, num_tokens = train_word_vectors(
            rows,
            FLAGS.hidden_size,
            FLAGS.encoder,
            total,
            FLAGS.max_minutes,
            FLAGS.window,
            FLAGS.negative,
            FLAGS.seed,
            report=lambda tokens, _: bar.update(tokens - bar.n),
        )
    backbone.embeddings.word_embeddings.assign(vectors)
    return {"tokens": num_tokens}


def train_language_model(backbone, rows):
    """Trains NNLM or ELMo; returns what training.json says."""
    import keras

    from bert_tf.training import AdamWeightDecay, WarmupLinearDecay
    from bert_tf.training.callbacks import JsonLines, ProgressLine, TrainingLog
    from research.baselines import BidirectionalLanguageModel, NeuralLanguageModel

    kind = NeuralLanguageModel if FLAGS.encoder == "nnlm" else BidirectionalLanguageModel
    model = kind(backbone)
    training, held_out = rows.split(FLAGS.heldout_share, FLAGS.seed)
    tokens_per_step = FLAGS.train_batch_size * training.num_tokens / len(training)
    steps = max(1, round((FLAGS.max_tokens or training.num_tokens) / tokens_per_step))
    schedule = WarmupLinearDecay(FLAGS.learning_rate, steps, steps // 10)
    model.compile(AdamWeightDecay(schedule, bias_correction=True))

    def batches(part, seed=None):
        data = part.batches(FLAGS.train_batch_size, seed)
        return data.map(lambda tokens: (tokens, model.labels_of(tokens)))

    def stop_in_time(batch, logs=None):
        if FLAGS.max_minutes is not None and time.monotonic() - start >= 60 * FLAGS.max_minutes:
            model.stop_training = True

    progress = ProgressLine(steps, FLAGS.log_steps, ("loss", "accuracy"))
    log = JsonLines(os.path.join(FLAGS.output_dir, "log.jsonl"))
    writing = TrainingLog(FLAGS.log_steps, [log], FLAGS.train_batch_size)
    stopping = keras.callbacks.LambdaCallback(on_train_batch_end=stop_in_time)
    start = time.monotonic()
    model.fit(
        batches(training, FLAGS.seed),
        steps_per_epoch=steps,
        callbacks=[writing, progress, stopping],
        verbose=0,
    )
    minutes = (time.monotonic() - start) / 60
    scores = model.evaluate(batches(held_out), verbose=0, return_dict=True)
    return {
        "tokens": round(progress.step * tokens_per_step),
        "steps": progress.step,
        "planned_steps": steps,
        "minutes": minutes,
        **{f"heldout_{name}": scores[name] for name in ("loss", "perplexity", "accuracy")},
    }


def main():
    if FLAGS.encoder in WORD_VECTORS:
        optional_packages.require_package("gensim", f"--encoder={FLAGS.encoder}")
    if FLAGS.encoder not in NEED_NO_TEXT and not FLAGS.input_file:
        raise UserError(
            f"--input_file must name a text file for --encoder={FLAGS.encoder}. "
            "Received: no --input_file"
        )
    takes_file = FLAGS.encoder == "word_vectors"
    if takes_file != bool(FLAGS.word_vectors_file):
        raise UserError(
            "--word_vectors_file must be given with --encoder=word_vectors, and only with it. "
            f"Received: --encoder={FLAGS.encoder}, --word_vectors_file={FLAGS.word_vectors_file}"
        )
    if takes_file and FLAGS["hidden_size"].present:
        raise UserError(
            "--hidden_size must not be given with --encoder=word_vectors, which has the width of "
            f"its file. Received: --hidden_size={FLAGS.hidden_size}"
        )
    if FLAGS.encoder == "elmo" and FLAGS.hidden_size % 2:
        raise UserError(
            "--hidden_size must be even for --encoder=elmo, whose directions have half of it "
            f"each. Received: --hidden_size={FLAGS.hidden_size}"
        )
    if FLAGS.max_minutes is not None and not FLAGS.max_minutes > 0:
        raise UserError(
            f"--max_minutes must be above 0. Received: --max_minutes={FLAGS.max_minutes}"
        )
    if not 0.0 < FLAGS.heldout_share < 1.0:
        raise UserError(
            "--heldout_share must be between 0 and 1. "
            f"Received: --heldout_share={FLAGS.heldout_share}"
        )
    tool.require_writable(FLAGS.output_dir, "output_dir")
    from research.baselines import TokenRows, read_word_vectors

    tokenizer = new_tokenizer()
    result = {"encoder": FLAGS.encoder, "seed": FLAGS.seed, "text_tokens": 0, "tokens": 0}
    start = time.monotonic()
    if takes_file:
        vectors, has_vector = read_word_vectors(FLAGS.word_vectors_file, tokenizer)
        backbone = make_backbone(tokenizer, vectors.shape[1])
        backbone.embeddings.word_embeddings.assign(vectors)
        result["pieces_with_vectors"] = int(has_vector.sum())
        print(f"{result['pieces_with_vectors']} of {len(vectors)} pieces have a vector")
    else:
        backbone = make_backbone(tokenizer, FLAGS.hidden_size)
    if FLAGS.encoder not in NEED_NO_TEXT:
        rows = TokenRows(FLAGS.input_file, tokenizer, FLAGS.max_seq_length)
        print(f"{len(rows)} rows, {rows.num_tokens} tokens")
        result["text_tokens"] = rows.num_tokens
        start = time.monotonic()
        train = train_vectors if FLAGS.encoder in WORD_VECTORS else train_language_model
        result |= train(backbone, rows)
    result.setdefault("minutes", (time.monotonic() - start) / 60)
    directory = os.path.join(FLAGS.output_dir, "model")
    backbone.save_pretrained(directory)
    tokenizer.save_pretrained(directory)
    result["parameters"] = sum(int(v.shape.num_elements()) for v in encoder_weights(backbone))
    result_files.write_json(os.path.join(FLAGS.output_dir, "training.json"), result, indent=2)
    print(f"{result['tokens']} tokens in {result['minutes']:.2f} minutes")
    if "heldout_loss" in result:
        print(
            f"held-out text: loss {result['heldout_loss']:.4f}, "
            f"perplexity {result['heldout_perplexity']:.1f}"
        )
    options = {"init_checkpoint": directory, "pooling": "mean", "output_dir": "OUTPUT"}
    options |= {"task_name": "simple", "data_dir": "DATA"}
    if FLAGS.encoder != "transformer":
        options["import_modules"] = "research.baselines"
    print_result("encoder", directory, "Train a classifier", "run_classifier", **options)


def encoder_weights(backbone):
    return [*backbone.embeddings.weights, *backbone.encoder.weights]


if __name__ == "__main__":
    flags.mark_flags_as_required(["encoder", "vocab_file", "output_dir"])
    tool.run(main)
