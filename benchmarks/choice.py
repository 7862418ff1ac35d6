"""Prints the tables by which `optimize_for_inference("auto")` picks kernels, and their cost."""

from .report import Report, Table
from .workers import Worker

_FEW_WEIGHTS = {"num_hidden_layers": 3, "vocab_size": 100}  # no more blocks are timed
MODELS = {
    "MiniLM": {"hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536},
    "BERT-base": {},
}


def run(worker: Worker, report: Report) -> None:
    """Adds one table per model of `MODELS`."""
    for model, sizes in MODELS.items():
        choice = worker.outputs(worker.make("choice", config={**_FEW_WEIGHTS, **sizes}))
        rows = []
        for tokens, seconds in choice["table"].items():
            plain = seconds.pop("plain")
            ratios = {f"{form} / plain": value / plain for form, value in seconds.items()}
            rows.append({"tokens": tokens, "plain, processor ms": 1e3 * plain, **ratios})
        picked, cost = choice["form"], choice["seconds"]
        title = f"{model}, times of a block: {picked} is picked; measuring took {cost:.2f} s"
        report.add(Table(title, rows))
