"""Precision, recall and F1 of tagged spans."""

from collections.abc import Sequence

import keras

from bert_tf.base.optional_packages import require_package
from bert_tf.errors import UserError
from bert_tf.tasks.token_classification.tag_schemes import OUTSIDE, are_span_tags, convert_tags


def tagging_scores(
    gold: Sequence[Sequence[str]], predicted: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Computes the scores of CoNLL 2003: a span is correct if its borders and its label are.

    Args:
        gold, predicted: A list of tags for each sentence, in any of the schemes IOB1, IOB2, BIOES,
            BILOU and BMES.

    Returns:
        Scores from 0 to 1: `accuracy` over words and, for span tags, `precision`, `recall` and `f1`
        over all spans and for each label, such as `f1_PER`. They are 0 if there is no span.

    Raises:
        UserError: If the sentences have different lengths, there are no words, or seqeval is
            missing.

    Example:
        >>> gold, predicted = [["B-PER", "I-PER", "O"]], [["B-PER", "O", "O"]]
        >>> bert_tf.tasks.token_classification.tagging_scores(gold, predicted)["f1"]
        0.0

    Reference: seqeval, equal to conlleval.pl of CoNLL 2000.
    """
    gold, predicted = [list(tags) for tags in gold], [list(tags) for tags in predicted]
    if [len(tags) for tags in gold] != [len(tags) for tags in predicted]:
        raise UserError(
            "`gold` and `predicted` must have the same sentences, with one tag per word. Received: "
            f"{len(gold)} sentences with {sum(map(len, gold))} tags and {len(predicted)} with "
            f"{sum(map(len, predicted))}"
        )
    pairs = [pair for rows in zip(gold, predicted) for pair in zip(*rows)]
    if not pairs:
        raise UserError("`gold` must have at least one word. Received: none")
    scores = {"accuracy": sum(a == b for a, b in pairs) / len(pairs)}
    if not all(are_span_tags(tags) for tags in (*gold, *predicted)):
        return scores
    scores.update(precision=0.0, recall=0.0, f1=0.0)
    if not any(tag != OUTSIDE for pair in pairs for tag in pair):
        return scores
    metrics = require_seqeval()
    # seqeval's default mode knows neither `U` nor `L`.
    sides = ([convert_tags(tags, "IOB2") for tags in side] for side in (gold, predicted))
    report = metrics.classification_report(*sides, output_dict=True, zero_division=0)
    del report["macro avg"], report["weighted avg"]
    for label, values in report.items():
        suffix = "" if label == "micro avg" else f"_{label}"
        for name, key in (("precision", "precision"), ("recall", "recall"), ("f1", "f1-score")):
            scores[name + suffix] = float(values[key])
    return scores


def require_seqeval():
    """Returns `seqeval.metrics`. Programs call this before any work.

    Raises:
        UserError: If seqeval is missing.
    """
    return require_package("seqeval.metrics", "scores of spans")


class TaggingScores(keras.callbacks.Callback):
    """Adds `tagging_scores` of held-out sentences to the logs of each epoch.

    They are `val_precision`, `val_recall` and `val_f1`; without spans `val_word_accuracy`.

    Args:
        sentences, tags: Held-out sentences, lists of words, and their tags, in the scheme of the
            model's labels.
        restore_best_weights: Whether the model gets the weights of the epoch with the best F1
            (accuracy) at the end of training.

    Attributes:
        best_score, best_epoch: The best F1 (accuracy) so far, and its epoch, starting from 0.

    Example:
        >>> model = bert_tf.BertTokenClassifier.from_pretrained("bert-base/", labels=["O", "B-PER"])
        >>> model.compile(bert_tf.training.AdamWeightDecay(5e-5))
        >>> scores = TaggingScores([["Ada", "wrote"]], [["B-PER", "O"]])
        >>> history = model.fit([["Ada", "wrote"]], [["B-PER", "O"]], callbacks=[scores])
        >>> "val_f1" in history.history
        True
    """

    def __init__(self, sentences, tags, restore_best_weights: bool = False):
        super().__init__()
        self.sentences = sentences
        self.tags = tags
        self.restore_best_weights = restore_best_weights
        self.best_score = -1.0
        self.best_epoch = None
        self._best_weights = None

    def on_train_begin(self, logs=None):
        # What is wrong with the data is found before the first epoch.
        tagging_scores(self.tags, [[OUTSIDE] * len(words) for words in self.sentences])

    def on_epoch_end(self, epoch, logs=None):
        scores = tagging_scores(self.tags, self.model.predict_tags(self.sentences))
        score = scores.get("f1", scores["accuracy"])
        if logs is not None and "f1" in scores:
            logs.update({f"val_{name}": scores[name] for name in ("precision", "recall", "f1")})
        elif logs is not None:
            logs["val_word_accuracy"] = score
        if score > self.best_score:
            self.best_score, self.best_epoch = score, epoch
            if self.restore_best_weights:
                self._best_weights = self.model.get_weights()

    def on_train_end(self, logs=None):
        if self._best_weights is not None:
            self.model.set_weights(self._best_weights)
