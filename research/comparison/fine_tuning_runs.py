"""The runs of each table: an encoder is fine-tuned on a data set, or frozen, and scored.

A run is scored on dev, by which the learning rate of a cell is chosen, or on test.
"""

import dataclasses
import os

import numpy as np

from .data_sets import DATA_SETS, DataSet, short_directory_of
from .encoders import ENCODERS, SIZES, Encoder
from .runs import Run

# The rate with the best score on dev is taken. A frozen encoder has only its head to train, and the
# size of its vectors depends on the encoder.
FROZEN_RATES = (3e-2, 2e-1, 1.0, 5.0)
TRANSFORMER_RATES, OTHER_RATES = (3e-4, 1e-3, 3e-3), (3e-3, 1e-2, 3e-2)
SEARCH_SEED = 0
_BERT = ENCODERS[-1]


@dataclasses.dataclass(frozen=True)
class Variant:
    """A row of a table: an encoder and how it is used."""

    title: str
    encoder: Encoder
    flags: tuple[tuple[str, object], ...] = ()
    is_frozen: bool = False

    @property
    def whole(self) -> "Variant":
        """The same use of the whole encoder, by which the learning rate is chosen."""
        return Variant(self.encoder.title, self.encoder, is_frozen=self.is_frozen)

    @property
    def learning_rates(self) -> tuple[float, ...]:
        if self.is_frozen:
            return FROZEN_RATES
        return TRANSFORMER_RATES if self.encoder.is_transformer else OTHER_RATES

    @property
    def name(self) -> str:
        return self.title + (", frozen" if self.is_frozen else "")


@dataclasses.dataclass(frozen=True)
class FineTuning:
    """One training run of a table, scored on dev or on test."""

    variant: Variant
    data: DataSet
    epochs: float
    learning_rate: float
    seed: int = SEARCH_SEED

    @property
    def split(self) -> str:
        return "dev" if self.seed == SEARCH_SEED else "test"

    def run(self, work_dir: str) -> Run:
        data, encoder = self.data, self.variant.encoder
        name = "-".join(str(part) for pair in self.variant.flags for part in pair)
        use = "frozen" if self.variant.is_frozen else "trained"
        rate = f"{self.learning_rate:g}"
        parts = (data.name, encoder.name, name or "default", use, rate, str(self.seed))
        flags = {
            "output_dir": os.path.join(work_dir, "runs", *parts),
            "init_checkpoint": encoder.checkpoint(data.language, work_dir),
            "data_dir": short_directory_of(data, work_dir),
            "do_train": True,
            "seed": self.seed,
            "learning_rate": rate,
            "bias_correction": True,
            "num_train_epochs": f"{self.epochs:g}",
            "train_batch_size": 32,
        }
        if not encoder.is_transformer:
            flags["import_modules"] = "research.baselines"
        if encoder.is_causal:
            flags["causal"] = True
        if self.variant.is_frozen:
            flags["freeze_layers"] = -1
            if encoder.num_layers:
                flags["use_scalar_mix"] = True
        if data.is_ner:
            flags |= {"max_seq_length": 128, "do_eval": True}
            flags["dev_file"] = os.path.join(flags["data_dir"], f"{self.split}.txt")
            return Run("bert_tf.tools.run_ner", {**flags, **dict(self.variant.flags)})
        flags |= {"task_name": "simple", "labels": ",".join(data.labels)}
        flags["do_eval" if self.split == "dev" else "do_predict"] = True
        flags |= {"pooling": "mean", "max_seq_length": 64, "predict_batch_size": 64}
        return Run("bert_tf.tools.run_classifier", {**flags, **dict(self.variant.flags)})

    def score(self, work_dir: str) -> float:
        """Returns the score of the finished run."""
        directory = self.run(work_dir).directory
        if self.data.is_ner or self.split == "dev":
            return _score_of_file(os.path.join(directory, "eval_results.txt"), self.data.score)
        return _score_of_predictions(
            os.path.join(directory, "test_results.tsv"), self.data, work_dir
        )


def baseline_run(data: DataSet, work_dir: str) -> Run:
    """Returns the run of the baseline without a network: TF-IDF, or a CRF for NER."""
    directory = short_directory_of(data, work_dir)
    output = os.path.join(work_dir, "runs", data.name, "baseline")
    if data.is_ner:
        return Run("research.baseline_ner", {"data_dir": directory, "output_dir": output})
    flags = {"task_name": "simple", "data_dir": directory, "labels": ",".join(data.labels)}
    analyzer = "char" if data.name.startswith("chinese") else "word"
    flags |= {"analyzer": analyzer, "eval_split": "test", "output_dir": output}
    return Run("research.baseline_classifier", flags)


def baseline_score(run: Run, data: DataSet) -> float:
    """Returns the score of the finished run of a model without a network."""
    name = "test_results.txt" if data.is_ner else "eval_results.txt"
    return _score_of_file(os.path.join(run.directory, name), data.score)


def encoder_variants() -> list[Variant]:
    """Returns every encoder, frozen and trained: the table `encoders`."""
    frozen = [Variant(encoder.title, encoder, is_frozen=True) for encoder in ENCODERS[1:]]
    return [*frozen, *(Variant(encoder.title, encoder) for encoder in ENCODERS)]


def layer_variants() -> list[Variant]:
    """Returns the first blocks of BERT: the table `layers`."""
    return [
        Variant(f"{count} of {SIZES['num_hidden_layers']} blocks", _BERT, flags)
        for count in range(1, SIZES["num_hidden_layers"] + 1)
        for flags in [(("num_encoder_layers", count),) if count < 4 else ()]
    ]


def pooling_variants() -> list[Variant]:
    """Returns the ways to pool BERT's vectors: the table `pooling`."""
    modes = {"mean": (), "max": (("pooling", "max"),), "cls": (("pooling", "cls"),)}
    return [Variant(f"{mode}", _BERT, flags) for mode, flags in modes.items()]


TABLES = {"encoders": encoder_variants, "layers": layer_variants, "pooling": pooling_variants}


def data_sets_of(table: str) -> list[DataSet]:
    return [data for data in DATA_SETS if table != "pooling" or not data.is_ner]


def _score_of_file(path, name):
    with open(path, encoding="utf-8") as file:
        pairs = [line.strip().split(" = ") for line in file if " = " in line]
    return {key.partition("_")[2]: float(value) for key, value in pairs}[name]


def _score_of_predictions(path, data, work_dir):
    from bert_tf.training.evaluation.scores import all_scores

    with open(
        os.path.join(short_directory_of(data, work_dir), "test.tsv"), encoding="utf-8"
    ) as file:
        gold = [data.labels.index(line.rstrip("\n").rpartition("\t")[2]) for line in file]
    return all_scores(np.array(gold), np.loadtxt(path, ndmin=2))[data.score]
