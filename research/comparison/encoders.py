"""The encoders that are compared, each pre-trained on the same text for the same processor time."""

import dataclasses
import os

from bert_tf.tools.common.result_files import write_json

from .data_sets import CHINESE, ENGLISH, text_file, vocabulary_file
from .runs import Run

SIZES = {"hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 2}
_BATCH, _LENGTH = 64, 64
WORD_VECTORS = ("skip_gram", "cbow")


@dataclasses.dataclass(frozen=True, eq=False)
class Encoder:
    """An encoder and the number of tokens that it reads, padding not counted.

    The numbers take about five minutes of a core each, of an x86 processor with AVX-512. `None`:
    nothing is trained.
    """

    name: str
    title: str
    tokens: dict[str, int] | None = None
    objective: str | None = None  # of run_pretraining
    is_causal: bool = False
    num_layers: int = SIZES["num_hidden_layers"]

    @property
    def is_transformer(self) -> bool:
        return self.num_layers == SIZES["num_hidden_layers"]

    def num_tokens(self, language: str, share: float) -> int:
        return 0 if self.tokens is None else max(1, round(self.tokens[language] * share))

    def run(self, language: str, share: float, materials: str, work_dir: str) -> Run:
        """Returns the run that trains it, on a share of its tokens."""
        output = os.path.join(work_dir, "encoders", language, self.name)
        common = {
            "output_dir": output,
            "vocab_file": vocabulary_file(language, materials, work_dir),
        }
        common |= {"max_seq_length": _LENGTH, "seed": 0}
        if self.tokens is not None:
            common["input_file"] = text_file(language, work_dir)
        if self.objective is None:
            network = {"hidden_size": SIZES["hidden_size"], "dropout": 0.1}
            if self.name == "transformer":
                network["num_layers"] = SIZES["num_hidden_layers"]
                network["num_attention_heads"] = SIZES["num_attention_heads"]
            else:
                network["max_tokens"] = self.num_tokens(language, share)
            return Run(
                "research.train_baseline_encoder", {"encoder": self.name, **common, **network}
            )
        steps = max(1, round(self.num_tokens(language, share) / _tokens_per_step(language)))
        return Run(
            "bert_tf.tools.run_pretraining",
            {
                **common,
                "do_train": True,
                "objective": self.objective,
                "bert_config_file": config_file(language, work_dir),
                "max_predictions_per_seq": 10,
                "train_batch_size": _BATCH,
                "learning_rate": 2e-3,
                "bias_correction": True,
                "num_train_steps": steps,
                "num_warmup_steps": steps // 10,
                "save_checkpoints_steps": steps,
            },
        )

    def checkpoint(self, language: str, work_dir: str) -> str:
        return os.path.join(work_dir, "encoders", language, self.name, "model")


def _tokens_per_step(language):
    """Returns the tokens of a batch without padding, as log.jsonl of run_pretraining says."""
    return {ENGLISH: 0.64, CHINESE: 0.9}[language] * _BATCH * _LENGTH


def _tokens(english, chinese):
    return {ENGLISH: english, CHINESE: chinese}


ENCODERS = (
    Encoder("transformer", "Transformer, random weights"),
    Encoder("skip_gram", "skip-gram", _tokens(95_000_000, 95_000_000), num_layers=0),
    Encoder("cbow", "CBOW", _tokens(250_000_000, 250_000_000), num_layers=0),
    Encoder("nnlm", "NNLM", _tokens(650_000, 350_000), num_layers=1),
    Encoder("elmo", "ELMo", _tokens(550_000, 440_000), num_layers=2),
    Encoder("gpt", "GPT's objective", _tokens(1_600_000, 1_000_000), "ltr", is_causal=True),
    Encoder("bert", "BERT's objective", _tokens(3_650_000, 3_000_000), "mlm"),
)
NAMES = tuple(encoder.name for encoder in ENCODERS)


def config_file(language: str, work_dir: str) -> str:
    return os.path.join(work_dir, "encoders", language, "config.json")


def write_config(language: str, materials: str, work_dir: str) -> None:
    """Writes the configuration of the Transformers of a language."""
    with open(vocabulary_file(language, materials, work_dir), encoding="utf-8") as file:
        size = sum(1 for _ in file)
    dropout = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}
    others = {"intermediate_size": 512, "max_position_embeddings": 512, "initializer_range": 0.08}
    path = config_file(language, work_dir)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    write_json(path, {"vocab_size": size, **SIZES, **dropout, **others}, indent=2)
