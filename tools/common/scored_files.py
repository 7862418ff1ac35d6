"""The flags for files of predictions and gold labels, and what is read by them."""

import numpy as np

from bert_tf.base.file_errors import data_error
from bert_tf.base.optional_packages import require_package
from bert_tf.config import REGRESSION
from bert_tf.errors import DataError, UserError
from bert_tf.inputs.tables.table_files import read_table
from bert_tf.inputs.tables.tsv import read_lines
from bert_tf.tasks.token_classification.files import TAG_FILE_FORMATS
from bert_tf.tasks.token_classification.tag_schemes import STRICT_SCHEMES
from bert_tf.tools.common import task_flags, text_score_flags
from bert_tf.tools.common.checks import flag_error, options_of
from bert_tf.tools.common.flag_table import FLAGS, define_flags

FLAG_HEADINGS = (("", "Predictions and gold labels"),)
# The flags that a kind of predictions needs, and whether --gold_file may be repeated.
_NEEDED = {
    "classes": ("task_name", "data_dir"),
    "tags": (),
    "answers": ("gold_file",),
    "texts": (),
    "rankings": ("gold_file",),
}
_PREDICTION = "prediction"  # the key of a text in the files of run_translation


def define_gold():
    """Defines the flags that say where the gold labels are."""
    define_flags(f"""
        split (train|dev|test, test): With --kind=classes: the file of the task with the gold
            labels.
        gold_file (repeated str): With --kind=answers: the SQuAD file. With --kind=tags: the file
            with the gold tags, if they are not with the predictions. With --kind=texts: a file with
            a reference per line; repeated for further references, where an empty line means that a
            text has no more.
        target_column (str, target): With --kind=texts and without --gold_file: the key of the
            references in .jsonl predictions, a string or a list of strings.
        format ({"|".join(TAG_FILE_FORMATS)}, conll): With --kind=tags: the format of --gold_file,
            as in run_ner.py.
        word_column (int, 0): With --kind=tags: the column of the words in --gold_file, counted from
            0.
        tag_column (int, {-1}): With --kind=tags: the column of the gold tags in --gold_file,
            counted from 0; -1 is the last.
        strict_scheme ({"|".join(STRICT_SCHEMES)}): With --kind=tags: tags that break this scheme
            are no spans, as in seqeval's strict mode. Default: a tag that continues no span begins
            one, in any scheme, as in conlleval.pl.
        version_2_with_negative (bool): With --kind=answers: whether to score by the rules of SQuAD
            2.0. Default: true if the file has a question without an answer.
        threshold (float 0 to 1): With --kind=classes: the smallest probability of the second of two
            labels, or of each of several labels, with which a text gets it. Default: the most
            probable label; 0.5 for several labels.
    """)
    text_score_flags.define_tokenize()


def check_flags():
    """Refuses flags that do not fit --kind, before any work."""
    for name in _NEEDED[FLAGS.kind]:
        if not FLAGS[name].value:
            raise UserError(f"--{name} must be set with --kind={FLAGS.kind}. Received: none")
    if FLAGS.kind != "texts" and len(FLAGS.gold_file or ()) > 1:
        raise flag_error("gold_file", f"must be given once with --kind={FLAGS.kind}")
    if FLAGS.kind == "classes":
        from bert_tf.training.evaluation.scores import require_scikit_learn

        require_scikit_learn()
    elif FLAGS.kind == "texts":
        from bert_tf.training.evaluation.generated_text import require_text_metrics

        require_text_metrics()


def read_classes(*paths):
    """Returns the examples, gold labels and predictions, the names of the labels and the task.

    The predictions of several files are averaged.
    """
    from bert_tf.tasks.text_classification.files import read_predictions

    task, labels = task_flags.task_from_flags(), task_flags.given_labels()
    examples = task_flags.read_examples(task, FLAGS.split, labels)
    labels = None if task.problem_type == REGRESSION else labels or task.labels
    if labels is None and task.problem_type != REGRESSION:
        raise UserError(
            "--labels must be set to the labels in the order of the predictions' columns, which "
            "run_classifier.py prints. Received: none. The file has the labels "
            f"{task.label_list(examples)}"
        )
    kind = task.problem_type
    predicted = np.mean([read_predictions(path, examples, labels, kind) for path in paths], axis=0)
    gold = task_flags.targets_of(examples, labels, kind)
    return examples, gold, predicted, labels, task


def read_tags(path):
    """Returns the words, gold tags and predicted tags of sentences."""
    from bert_tf.tasks.token_classification.files import read_tag_predictions

    layout = options_of("format", "word_column", "tag_column")
    return read_tag_predictions(path, gold_file(), **layout)


def read_answers(path):
    """Returns the questions, the answers by id, and whether the rules are those of SQuAD 2.0."""
    from bert_tf.tasks.question_answering import files

    examples = files.read_squad(gold_file())
    version_2 = FLAGS.version_2_with_negative
    if version_2 is None:
        version_2 = any(example.is_impossible for example in examples)
    return examples, files.read_answers(path, examples), version_2


def read_texts(path):
    """Returns the predicted texts and the list of references of each."""
    if path.endswith(".jsonl"):
        rows = list(read_table(path))
        predicted = [_text_of(row, _PREDICTION, path, line) for line, row in rows]
    else:
        rows, predicted = None, [text for _, text in read_lines(path)]
    if not predicted:
        raise data_error(path, "have texts", "none")
    if FLAGS.gold_file:
        return predicted, _references_in_files(path, len(predicted))
    if rows is None:
        expected = "must be set with --kind=texts, or the predictions be a .jsonl file with both"
        raise UserError(f"--gold_file {expected}. Received: none and {path}")
    references = []
    for line, row in rows:
        found = row.get(FLAGS.target_column)
        several = [found] if isinstance(found, str) else found
        if not several or not all(isinstance(text, str) for text in several):
            received = repr(found) if found is not None else f"the keys {sorted(row)}"
            expected = f"have a text, or a list of texts, in `{FLAGS.target_column}`"
            raise data_error(path, expected, received, line)
        references.append(several)
    return predicted, references


def gold_file():
    """Returns the only --gold_file, or None."""
    return FLAGS.gold_file[0] if FLAGS.gold_file else None


def _text_of(row, name, path, line):
    if not isinstance(row.get(name), str):
        raise data_error(path, f"have a text in `{name}`", f"the keys {sorted(row)}", line)
    return row[name]


def _references_in_files(path, count):
    references = [[] for _ in range(count)]
    for name in FLAGS.gold_file:
        texts = [text for _, text in read_lines(name)]
        if len(texts) != count:
            expected = f"have a line for each of the {count} texts in {path}"
            raise data_error(name, expected, f"{len(texts)} lines")
        for several, text in zip(references, texts):
            if text.strip():
                several.append(text)
    if not all(references):
        names, line = ", ".join(FLAGS.gold_file), references.index([]) + 1
        raise DataError(f"{names} must have a reference in line {line}. Received: empty lines")
    return references


def require_plotting():
    """Raises `UserError` if pictures are asked for and matplotlib is missing."""
    if FLAGS.plot:
        require_package("matplotlib", "pictures; --noplot leaves them out")
