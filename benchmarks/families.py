"""Compares the networks of `bert_tf.families.network_families`, each of the size of `--config`.

They do not have the same number of multiply-adds (ELECTRA has a dense layer after its embeddings,
DistilBERT half of the blocks), so the time for one is compared with that of a BERT with as many
blocks.
"""

import statistics

from bert_tf.families.network_families import BERT

from . import limits, workloads
from .report import Report, Table
from .timing import ratio
from .turns import Turns
from .workers import Worker
from .workloads import Workload

WORKLOADS = ("ragged", "8x128", "4x512")
JOBS = {"family": "inference", "family_gradient": "gradient"}
_EMBEDDING_SIZE = 128  # of ELECTRA and ALBERT
DISTILBERT, HALF = "distilbert", "bert, half of the blocks"  # what it is compared with
# XLM-R and CamemBERT are RoBERTa's network.
SWITCHES = {
    "roberta": {"position_offset": 2, "pad_token_id": 1},
    HALF: {},
    DISTILBERT: {"type_vocab_size": 0, "pooler_act": "relu"},
    "electra": {"embedding_size": _EMBEDDING_SIZE, "pooler_act": "gelu"},
    "mpnet": {
        "position_offset": 2,
        "pad_token_id": 1,
        "type_vocab_size": 0,
        "relative_attention_num_buckets": 32,
    },
    "albert": {"embedding_size": _EMBEDDING_SIZE, "shared_blocks": True},
}


def config_of(family: str, config: dict) -> dict:
    """Returns the configuration of a family's network of the size of `config`."""
    model_type = BERT if family == HALF else family
    config = {**config, "model_type": model_type, **SWITCHES.get(family, {})}
    if family in (DISTILBERT, HALF):
        config["num_hidden_layers"] //= 2
    return config


def multiply_adds(workload: Workload, config: dict) -> float:
    """Returns the multiply-adds of the matmuls of an encoder, its embeddings' dense layer too."""
    projected = (config.get("embedding_size") or 0) * config["hidden_size"] * workload.tokens
    return workloads.encoder_flops(workload, config) / 2 + projected


def run(worker: Worker, config: dict, workload_list: list[Workload], report: Report) -> None:
    """Adds a table for each workload."""
    configs = {family: config_of(family, config) for family in (BERT, *SWITCHES)}
    for workload in workload_list:
        print(f"\nfamilies, {workload.describe()}", flush=True)
        note = limits.busy_note()
        batches = workloads.batches(workload, None, config["vocab_size"])
        work = {family: multiply_adds(workload, configs[family]) for family in configs}
        rows = {
            family: {"family": family, "multiply-adds": work[family] / 1e9} for family in configs
        }
        for job, title in JOBS.items():
            with Turns(f"families, {title}, {workload.name}", report) as turns:
                for family in configs:
                    arguments = {"batches": batches, "config": configs[family]}
                    calls = report.options.search_calls
                    turns.add(family, worker, job, calls, difference=None, **arguments)
                each = {
                    family: [value / work[family] for value in values]
                    for family, values in turns.seconds().items()
                }
                for family, values in each.items():
                    milliseconds = 1e3 * statistics.median(values) * work[family]
                    rows[family] |= {
                        f"{title}, ms": milliseconds,
                        f"{title}, per multiply-add": ratio(
                            values, each[HALF if family == DISTILBERT else BERT]
                        ),
                    }
        title = (
            f"Families, {workload.describe()}; 10^9 multiply-adds, and the time for each, in times "
            f"of BERT's, for DistilBERT of {HALF}; {report.options.rounds} rounds{note}"
        )
        report.add(Table(title, list(rows.values())))
