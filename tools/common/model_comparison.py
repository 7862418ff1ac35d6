"""Compares models by size, speed and scores."""

import statistics
import time

from bert_tf.config import SINGLE_LABEL


def scores_of(model, inputs, targets, verbose=0, **options) -> dict[str, float]:
    """Returns all scores of a classifier or regressor on labelled texts; options of `predict`."""
    from bert_tf.training import all_scores

    logits = model.predict(inputs, verbose=verbose, **options)
    probabilities = model.probabilities(logits)
    return all_scores(targets, probabilities, model.problem_type, model.threshold)


def print_positive_class(model) -> None:
    """Prints which of two classes F1, precision, recall and AUC are those of."""
    from bert_tf.training.evaluation.probabilities import positive_class_text

    if len(model.class_names) == 2 and model.problem_type == SINGLE_LABEL:
        print(positive_class_text(model.class_names))


def milliseconds_per_text(models, inputs, rounds: int) -> list[float]:
    """Measures the time per text from tokens to logits, in batches by tokens as in `predict`.

    In every round the models, which have the same tokenizer, compute all texts in turn.

    Returns:
        The median over the rounds in milliseconds, one per model.
    """
    from bert_tf.inputs.batches import sorted_batches
    from bert_tf.inputs.token_rows import TokenizedTexts

    columns = models[0].preprocessor.read_columns(inputs)
    length = min(model.max_sequence_length for model in models)
    rows = TokenizedTexts.of(models[0].tokenizer, tuple(columns), length)
    batches = [rows.batch(numbers) for numbers in sorted_batches(rows)]
    seconds = [[] for _ in models]
    for _ in range(1 + rounds):
        for model, times in zip(models, seconds):
            start = time.perf_counter()
            for batch in batches:
                model.predict_on_batch(batch)
            times.append(time.perf_counter() - start)
    # The first round compiles.
    return [1000 * statistics.median(times[1:]) / len(columns[0]) for times in seconds]


def weight_bytes(model) -> int:
    return sum(weight.numpy().nbytes for weight in model.weights)


def print_table(models, results: dict[str, dict[str, float]], milliseconds) -> None:
    """Prints one line per model: its name in `results`, parameters, size, speed and scores."""
    names = list(dict.fromkeys(name for scores in results.values() for name in scores))
    rows = [["", "parameters", "weights MB", "ms per text", *names]]
    for (name, scores), model, time_of_text in zip(results.items(), models, milliseconds):
        # Other weights include scales and padding, which are no parameters.
        is_plain = model.backbone.quantization is None and not model.backbone.is_prepacked
        rows.append(
            [
                name,
                f"{model.count_params():,}" if is_plain else "-",
                f"{weight_bytes(model) / 1e6:.1f}",
                f"{time_of_text:.2f}",
                *(f"{scores[name]:.4f}" if name in scores else "-" for name in names),
            ]
        )
    widths = [max(map(len, column)) for column in zip(*rows)]
    print_positive_class(models[0])
    for row in rows:
        print("  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]))
