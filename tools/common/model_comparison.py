"""What models cost and what they score, side by side."""

import statistics
import time


def scores_of(model, inputs, targets) -> dict[str, float]:
    """Every score of a classifier or regressor on labelled texts."""
    from bert_tf.training import all_scores

    logits = model.predict(inputs, verbose=0)
    return all_scores(targets, model.probabilities(logits), model.problem_type)


def milliseconds_per_text(models, inputs, rounds: int) -> list[float]:
    """Time of a text from its tokens to its logits, batched by tokens as `predict` does it.

    Args:
        models: Task models of one tokenizer.
        inputs: Texts, or a tuple of two lists.
        rounds: How often each goes through them; the models take turns.

    Returns:
        The median over the rounds, for each model.
    """
    from bert_tf.models.text_batches import EXAMPLE_INDEX, text_batches

    columns = models[0].text_columns(inputs)
    length = min(
        model.max_length or model.backbone.config.max_position_embeddings for model in models
    )
    batches = list(text_batches(models[0].tokenizer, columns, length))
    for batch in batches:
        del batch[EXAMPLE_INDEX]
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
    """Bytes of the model's weights in memory."""
    return sum(weight.numpy().nbytes for weight in model.weights)


def print_table(models, results: dict[str, dict[str, float]], milliseconds) -> None:
    """A line a model: what it costs and what it scores.

    Args:
        models: One a line.
        results: The lines' names and scores.
        milliseconds: Of a text, one a line.
    """
    names = list(dict.fromkeys(name for scores in results.values() for name in scores))
    rows = [["", "parameters", "weights MB", "ms a text", *names]]
    for (name, scores), model, time_of_text in zip(results.items(), models, milliseconds):
        # Scales and padding of a quantized model are no parameters.
        is_plain = model.backbone.quantization is None
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
    for row in rows:
        print("  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]))
