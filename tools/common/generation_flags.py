"""The flags of the tools that train models to write text, and what they read by them."""

import os

from bert_tf.base.file_errors import data_error
from bert_tf.errors import DataError, UserError, user_error
from bert_tf.inputs.tables.table_files import find_table, read_table
from bert_tf.inputs.tables.tsv import read_tsv
from bert_tf.tools.common import (
    checkpoint_flags,
    fine_tuning_flags,
    optimizer_flags,
    text_score_flags,
)
from bert_tf.tools.common.checks import flag_error, options_of
from bert_tf.tools.common.flag_table import FLAGS, define_flags

FLAG_HEADINGS = (("", "Generated texts"),)

_DECODING = (
    "max_new_tokens",
    "min_new_tokens",
    "num_beams",
    "length_penalty",
    "early_stopping",
    "no_repeat_ngram_size",
    "repetition_penalty",
    "encoder_no_repeat_ngram_size",
    "encoder_repetition_penalty",
    "stop_strings",
)
# The flags that only a model of two BERTs has a use for.
_TWO_BERTS = (
    "encoder",
    "decoder",
    "decoder_config_file",
    "tie_word_embeddings",
    "share_encoder_decoder_weights",
)
# The flags that only a model that writes text has a use for.
WRITING = ("architecture", *_TWO_BERTS, "bert_config_file", "max_target_length", *_DECODING)
# The flags that a checkpoint records, beyond those of all tools.
RECORDED = (
    "data_dir",
    "source_column",
    "target_column",
    "architecture",
    "init_checkpoint",
    "encoder",
    "decoder",
    "bert_config_file",
    "decoder_config_file",
    "vocab_file",
    "tie_word_embeddings",
    "share_encoder_decoder_weights",
    "max_source_length",
    "max_target_length",
    "train_token_budget",
    *optimizer_flags.SCHEDULE_FLAGS,
    "num_warmup_steps",
    "max_train_steps",
)


def define_data(source, target):
    """Defines the flags for the files; `source` and `target` are the default columns."""
    define_flags(f"""
        data_dir (str): The directory with train, dev and test, each a .tsv file with lines of
            {source}<TAB>{target} without a header, or a .csv or .jsonl file with named columns. Of
            several such files, the .tsv is read.
        source_column (str, {source}): In .csv and .jsonl files: the column or key of the text to
            read.
        target_column (str, {target}): In .csv and .jsonl files: the column or key of the text to
            write.
        reference_columns (list, []): In .csv and .jsonl files of dev and test: columns with further
            references, with which the scores are computed; a text may lack them. In .tsv files:
            all fields after the first two.
    """)


def define_model():
    """Defines the flags for the model to start from."""
    checkpoint_flags.define_start()
    FLAGS["init_checkpoint"].help = (
        "The model to start from: a trained model of --architecture, or a BERT, which then becomes "
        "both the encoder and the decoder. Without --do_train: the trained model (default: the one "
        "in --output_dir)."
    )
    define_flags("""
        architecture (encoder_decoder|prefix_lm, encoder_decoder): Two BERTs, of which one reads the
            source and the other writes the target; or one BERT that does both (UniLM).
        encoder (str): The BERT to start the encoder from, with --decoder.
        decoder (str): The BERT to start the decoder from, with --encoder.
    """)
    FLAGS[
        "bert_config_file"
    ].help = "Train from scratch: the config file of the encoder, with --vocab_file."
    FLAGS[
        "vocab_file"
    ].help = "The vocabulary of sources and targets. Default: the one next to the checkpoint."
    define_flags("""
        decoder_config_file (str): With --bert_config_file: the config file of the decoder. Default:
            the encoder's.
        tie_word_embeddings (bool, true): Whether the word embeddings of the decoder are also those
            of its output.
        share_encoder_decoder_weights (bool, false): Whether encoder and decoder are the same BERT:
            only the cross-attention and the output are the decoder's own.
        max_source_length (int): Maximum number of tokens of a source. Default: the positions.
        max_target_length (int): Maximum number of tokens of a target. Default: the positions.
    """)


def define_training():
    """Defines the flags for training beyond those of all tools."""
    fine_tuning_flags.define_training(batch_of="pairs", learning_rate=1e-4, num_train_epochs=10.0)
    define_flags("""
        train_token_budget (int >= 1): In place of --train_batch_size: the maximum number of tokens
            of a batch, source and target. Texts of similar length are batched.
        max_train_steps (int >= 1): Train at most this number of steps. Default: all of
            --num_train_epochs.
        num_warmup_steps (int >= 0): Number of warm-up steps, in place of --warmup_proportion.
    """)
    optimizer_flags.define_schedule()
    fine_tuning_flags.define_checkpoints()
    define_flags("""
        log_steps (int >= 1, 100): Number of steps between two lines of the log.
        eval_batch_size (int >= 1, 32): Batch size for evaluation.
    """)


def define_decoding():
    """Defines the flags for --do_eval and --do_predict, and for how texts are written."""
    define_flags("""
        do_eval (bool, false): Whether to write and score the texts for the dev file.
        do_predict (bool, false): Whether to write the texts for the test file.
        predict_batch_size (int >= 1, 32): Batch size for writing texts, in sources.
        num_examples (int >= 0, 3): Number of examples of the dev file to print after each epoch of
            training.
    """)
    text_score_flags.define_tokenize()
    define_flags("""
        max_new_tokens (int): Maximum number of tokens to write. Default: the positions.
        min_new_tokens (int): Minimum number of tokens to write.
        num_beams (int): Number of beams. Default: greedy decoding.
        length_penalty (float): With --num_beams: values above 0 favor long texts. Default: 1.
        early_stopping (bool): With --num_beams: stop as soon as that many texts are finished.
        no_repeat_ngram_size (int): No sequence of this number of tokens is written twice.
        repetition_penalty (float): Values above 1 make repetitions less likely.
        encoder_no_repeat_ngram_size (int): No sequence of this number of tokens of the source is
            written.
        encoder_repetition_penalty (float): Values above 1 make the words of the source more likely.
        stop_strings (list): A text ends as soon as it contains one of these strings, separated by
            commas.
    """)


def decoding_options():
    """Returns the options of `generate` that flags set."""
    return options_of(*_DECODING)


def check_flags():
    """Refuses flags that do not fit together, before any work."""
    fine_tuning_flags.check_flags(dict.fromkeys(("do_train", "do_eval", "do_predict"), ()))
    optimizer_flags.check_schedule()
    if bool(FLAGS.encoder) != bool(FLAGS.decoder):
        raise flag_error("encoder", "and --decoder must be set together", "decoder")
    starts = {name: FLAGS[name].value for name in ("init_checkpoint", "encoder")}
    starts["bert_config_file"] = FLAGS.bert_config_file
    given = [f"--{name}={value}" for name, value in starts.items() if value]
    if len(given) > 1 or (FLAGS.do_train and not given):
        raise UserError(
            "Exactly one of --init_checkpoint, --encoder (with --decoder) and --bert_config_file "
            f"(to train from scratch) must be set. Received: {', '.join(given) or 'none'}"
        )
    if FLAGS.bert_config_file and not FLAGS.vocab_file:
        raise UserError(
            "--vocab_file must be set with --bert_config_file: a model that is trained from "
            "scratch has no tokenizer yet. bert-tf build_vocab makes the file. Received: "
            f"--bert_config_file={FLAGS.bert_config_file}, --vocab_file=None"
        )
    if FLAGS.decoder_config_file and not FLAGS.bert_config_file:
        raise flag_error(
            "decoder_config_file", "must be used with --bert_config_file", "bert_config_file"
        )
    given = [f"--{name}={FLAGS[name].value}" for name in _TWO_BERTS if FLAGS[name].present]
    if FLAGS.architecture == "prefix_lm" and given:
        expected = "be used with --architecture=encoder_decoder: a prefix_lm is one BERT"
        raise user_error(", ".join(given), expected, "--architecture=prefix_lm")
    if FLAGS.train_token_budget and FLAGS["train_batch_size"].present:
        raise UserError(
            "At most one of --train_batch_size and --train_token_budget must be set. Received: "
            f"--train_batch_size={FLAGS.train_batch_size}, "
            f"--train_token_budget={FLAGS.train_token_budget}"
        )


def has_split(split):
    return os.path.isfile(find_table(FLAGS.data_dir, split))


def read_pairs(split, needs_targets=True):
    """Returns the sources and the references of each, or None without targets.

    The first reference of a source is the target to train on; `first_references` returns them. The
    train file has no others.

    Raises:
        DataError: If the file is missing or malformed, or a text is missing or empty.
    """
    path = find_table(FLAGS.data_dir, split)
    names = (FLAGS.source_column, FLAGS.target_column)
    is_plain, more = path.endswith(".tsv"), FLAGS.reference_columns if split != "train" else []
    lines = _plain_lines(path, split) if is_plain else _named_lines(path, [*names, *more])
    sources, references = [], []
    for line, (source, target, *others) in lines:
        for name, text in zip(names, (source, target), strict=True):
            if text is None and name == FLAGS.target_column and not needs_targets:
                continue
            if not isinstance(text, str) or not text.strip():
                raise DataError(f"{path}, line {line} must have a {name}. Received: {text!r}")
        sources.append(source)
        others = [text for text in others if text is not None and text != ""]
        if not all(isinstance(text, str) and text.strip() for text in others):
            raise data_error(path, "have texts as further references", f"{others}", line)
        if target is not None:
            references.append([target, *others])
        elif others:
            raise data_error(path, f"have a {names[1]} before further references", "none", line)
    if not sources:
        raise DataError(f"{path} must have texts. Received: none")
    if references and len(references) < len(sources):
        received = f"{len(references)} in {len(sources)} lines"
        raise data_error(path, f"have a {FLAGS.target_column} in every line or in none", received)
    return sources, references or None


def first_references(references):
    """Returns the first reference of each source, on which a model is trained."""
    return [several[0] for several in references]


def _plain_lines(path, split):
    """Yields the line number, the source, the target or None without a tab, other references."""
    for line, texts in read_tsv(path):
        if len(texts) > 2 and split == "train":
            raise data_error(path, "be source<TAB>target", f"{len(texts)} fields", line)
        yield line, texts if len(texts) > 1 else [*texts, None]


def _named_lines(path, names):
    source, _, *others = names
    missing = set(others)  # in every line; a JSON object may lack a further reference
    for line, row in read_table(path, columns=names):
        if source not in row:
            received = f"{', '.join(row)}. See --source_column."
            raise data_error(path, f"have the column {source}", received, line)
        missing.difference_update(row)
        yield line, [row.get(name) for name in names]
    if missing:
        expected = f"have the columns --reference_columns={','.join(others)}"
        raise data_error(path, expected, f"no {', '.join(sorted(missing))}")
