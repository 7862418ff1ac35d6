"""For each format that bert_tf reads: a tiny valid sample, its mutants, and what opens it.

A mutant is a mapping from the names of some of the sample's files to their new content.
"""

import dataclasses
import json
import pathlib
import random
from collections.abc import Callable, Iterator

from tests.checkpoints import foreign, module_folders
from tests.fuzz import (
    bundle_mutants,
    byte_mutants,
    container_mutants,
    data_formats,
    tokenizer_formats,
)
from tests.fuzz.json_mutants import mutants as json_mutants

CONFIG = {
    **foreign.HF_CONFIG,
    "vocab_size": 20,
    "hidden_size": 8,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 16,
}
CHANGES = {key: CONFIG[key] for key in CONFIG if CONFIG[key] != foreign.HF_CONFIG[key]}
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmn", "##a"]

Mutants = Iterator[dict[str, bytes]]


@dataclasses.dataclass(frozen=True)
class Format:
    """One format.

    Attributes:
        write: Writes the sample into an empty directory.
        open: Opens it; returns arrays by name. It runs once on the sample before the mutants.
        lies: File name -> what makes well-formed mutants of that file; and bytes of every file
            are damaged.
        notices_damage: The files in which damage to the bytes is found by a checksum: what opens
            all the same has the right numbers.
        more: Mutants of several files at a time, from the directory and a seed.
        many: How many mutants `make test-full` opens, fewer of what takes 5 ms or more for each.
    """

    write: Callable[[pathlib.Path], None]
    open: Callable[[pathlib.Path], dict]
    lies: dict[str, Callable[[bytes, int], Iterator[bytes]]]
    notices_damage: tuple[str, ...] = ()
    more: Callable[[pathlib.Path, int], Mutants] | None = None
    many: int = 20_000


def mutants(format: Format, directory: pathlib.Path, seed: int) -> Iterator[tuple[dict, bool]]:
    """Mutants without end, and whether they are damage that must not change the numbers."""
    rng = random.Random(seed)
    files = {name: (directory / name).read_bytes() for name in format.lies}
    lies = {name: make(files[name], seed) for name, make in format.lies.items()}
    damages = {name: byte_mutants.mutants(content, seed) for name, content in files.items()}
    more = format.more(directory, seed) if format.more else None
    names = sorted(files)
    while True:
        name, kind = rng.choice(names), rng.random()
        if more is not None and kind < 0.6:
            yield next(more), False
        elif kind < 0.3:
            yield {name: next(damages[name])}, name in format.notices_damage
        else:
            yield {name: next(lies[name])}, False


def values_of(model) -> dict:
    from bert_tf.checkpoints.weight_names import all_weights

    return {weight.name: weight.variable.numpy() for weight in all_weights(model)}


def _tensors(heads=()):
    return foreign.random_tensors(CONFIG, heads)


def _backbone():
    from bert_tf import BertBackbone, BertConfig

    known = (
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
        "max_position_embeddings",
    )
    return BertBackbone(BertConfig(**{key: CONFIG[key] for key in known}))


def _tokenizer():
    from bert_tf import BertTokenizer

    return BertTokenizer(VOCABULARY)


def _classifier():
    from bert_tf import BertTextClassifier

    return BertTextClassifier(_backbone(), labels=["bad", "good", "so so"], tokenizer=_tokenizer())


def _open_backbone(path):
    from bert_tf import BertBackbone

    return values_of(BertBackbone.from_pretrained(path))


def _open_classifier(path):
    from bert_tf import BertTextClassifier

    return values_of(BertTextClassifier.from_pretrained(path))


def _open_encoder(path):
    from bert_tf import BertSentenceEncoder

    return values_of(BertSentenceEncoder.from_pretrained(path))


def _open_tokenizer(path):
    from bert_tf import BertTokenizer

    BertTokenizer.from_pretrained(path)
    return {}


def _write_huggingface(directory):
    _classifier().save_pretrained(directory)


def _write_torch(directory):
    foreign.write_config(directory, **CHANGES)
    foreign.write_torch(directory / "pytorch_model.bin", _tensors())


def _write_legacy_torch(directory):
    foreign.write_config(directory, **CHANGES)
    foreign.write_legacy_torch(directory / "pytorch_model.bin", _tensors())


def _write_tf1(directory):
    foreign.write_tf1(directory, _tensors(), **CHANGES)


def _write_tf_models(directory):
    foreign.write_tf_models(directory / "bert_model.ckpt", _tensors(), CONFIG)


def _write_keras_hub(directory):
    foreign.write_keras_hub(directory, "classifier", num_layers=1)


def _write_keras(directory):
    directory.mkdir(parents=True)
    _classifier().save(directory / "model.keras")


def _write_h5(directory):
    foreign.write_tf_h5(directory, _tensors(), **CHANGES)


def _write_own(directory):
    _classifier().save_pretrained(directory, format="bert_tf")


def _write_int8(directory):
    model = _classifier()
    model.quantize("int8")
    model.save_pretrained(directory, format="bert_tf")


def _write_lora(directory):
    directory.mkdir(parents=True)
    model = _classifier()
    model.enable_lora(2)
    model.save_lora_weights(directory / "lora.safetensors")


_lora_model = []  # building one takes longer than reading a file


def _open_lora(path):
    if not _lora_model:
        _lora_model.append(_classifier())
    (model,) = _lora_model
    try:
        model.load_lora_weights(path / "lora.safetensors")
    finally:
        if model.lora is not None:
            model.merge_lora()
    return {}


def _write_encoder(directory):
    from bert_tf import BertSentenceEncoder

    encoder = BertSentenceEncoder(_backbone(), tokenizer=_tokenizer(), whitening_size=4)
    encoder.save_pretrained(directory)
    module_folders.move_encoder(directory, "0_Transformer")


def _write_tokenizer(directory):
    directory.mkdir(parents=True)
    _tokenizer().save_pretrained(directory)
    (directory / "vocab.txt").unlink()
    special = VOCABULARY[:5]
    values = {
        "version": "1.0",
        "truncation": None,
        "padding": {"strategy": "BatchLongest", "pad_id": 0, "pad_token": "[PAD]"},
        "added_tokens": [
            {"id": index, "content": token, "special": True, "lstrip": False, "normalized": False}
            for index, token in enumerate(special)
        ],
        "normalizer": {
            "type": "BertNormalizer",
            "clean_text": True,
            "handle_chinese_chars": True,
            "strip_accents": None,
            "lowercase": True,
        },
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": True},
        "model": {
            "type": "WordPiece",
            "unk_token": "[UNK]",
            "continuing_subword_prefix": "##",
            "max_input_chars_per_word": 100,
            "vocab": {piece: index for index, piece in enumerate(VOCABULARY)},
        },
    }
    (directory / "tokenizer.json").write_text(json.dumps(values))


_training = []


def _training_model():
    import keras

    if not _training:
        model = _classifier()
        model.compile(keras.optimizers.SGD(0.1), loss="sparse_categorical_crossentropy")
        _training.append(model)
    return _training[0]


def _write_training(directory):
    from bert_tf.training.checkpointing.training_checkpoint import TrainingCheckpoint

    checkpoint = TrainingCheckpoint(directory, monitor="loss")
    model = _training_model()
    checkpoint.set_model(model)
    checkpoint.restore(model)
    checkpoint.step = 3
    checkpoint.save()
    checkpoint._consider({"loss": 1.0})


def _open_training(path):
    from bert_tf.training.checkpointing.training_checkpoint import TrainingCheckpoint

    TrainingCheckpoint(path, monitor="loss").restore(_training_model())
    return {}


def _tf1_more(directory, seed):
    names = ("bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001")
    files = {name: (directory / name).read_bytes() for name in names}
    return bundle_mutants.mutants(files, seed, str(directory / names[0]))


def _torch_zip(content, seed):
    pickles = container_mutants.pickle_mutants
    members = {"data.pkl": pickles, "byteorder": byte_mutants.mutants, "/0": byte_mutants.mutants}
    return container_mutants.zip_mutants(content, seed, members)


def _keras_zip(content, seed):
    members = {
        "config.json": json_mutants,
        "metadata.json": json_mutants,
        "model.weights.h5": container_mutants.h5_mutants,
    }
    return container_mutants.zip_mutants(content, seed, members)


PARTS = {**tokenizer_formats.PARTS, **data_formats.PARTS}
_INDEX, _DATA = "bert_model.ckpt.index", "bert_model.ckpt.data-00000-of-00001"
_safetensors, _h5 = container_mutants.safetensors_mutants, container_mutants.h5_mutants

FORMATS = {
    "huggingface": Format(
        _write_huggingface,
        _open_classifier,
        {
            "model.safetensors": _safetensors,
            "config.json": json_mutants,
            "tokenizer_config.json": json_mutants,
            "vocab.txt": byte_mutants.mutants,
        },
        ("model.safetensors",),
    ),
    "torch zip": Format(
        _write_torch, _open_backbone, {"pytorch_model.bin": _torch_zip}, ("pytorch_model.bin",)
    ),
    "torch legacy": Format(
        _write_legacy_torch,
        _open_backbone,
        {"pytorch_model.bin": container_mutants.legacy_torch_mutants},
    ),
    "tf1": Format(
        _write_tf1,
        _open_backbone,
        {_INDEX: byte_mutants.mutants, _DATA: byte_mutants.mutants},
        (_INDEX, _DATA),
        _tf1_more,
    ),
    "tf models": Format(
        _write_tf_models,
        _open_backbone,
        {_INDEX: byte_mutants.mutants, _DATA: byte_mutants.mutants},
        (_INDEX, _DATA),
        _tf1_more,
    ),
    "keras-hub": Format(
        _write_keras_hub,
        _open_classifier,
        {
            "config.json": json_mutants,
            "task.json": json_mutants,
            "model.weights.h5": _h5,
            "task.weights.h5": _h5,
        },
    ),
    "keras": Format(
        _write_keras,
        lambda path: _open_classifier(path / "model.keras"),
        {"model.keras": _keras_zip},
        ("model.keras",),
    ),
    "tf h5": Format(_write_h5, _open_backbone, {"tf_model.h5": _h5}),
    "own": Format(
        _write_own,
        _open_classifier,
        {"bert_tf.json": json_mutants, "bert_tf.safetensors": _safetensors},
        ("bert_tf.json", "bert_tf.safetensors"),
    ),
    "own int8": Format(
        _write_int8,
        _open_classifier,
        {"bert_tf.json": json_mutants, "bert_tf.safetensors": _safetensors},
        ("bert_tf.json", "bert_tf.safetensors"),
    ),
    "lora": Format(_write_lora, _open_lora, {"lora.safetensors": _safetensors}),
    "sentence-transformers": Format(
        _write_encoder,
        _open_encoder,
        {
            "modules.json": json_mutants,
            "1_Pooling/config.json": json_mutants,
            "2_Dense/config.json": json_mutants,
            "2_Dense/model.safetensors": _safetensors,
            "0_Transformer/config.json": json_mutants,
            "0_Transformer/sentence_bert_config.json": json_mutants,
        },
    ),
    "tokenizer": Format(
        _write_tokenizer,
        _open_tokenizer,
        {"tokenizer.json": json_mutants, "tokenizer_config.json": json_mutants},
    ),
    "training checkpoint": Format(
        _write_training,
        _open_training,
        {
            "ckpt-3/manifest.json": json_mutants,
            "ckpt-3/state.json": json_mutants,
            "ckpt-3/variables.safetensors": _safetensors,
            "best.json": json_mutants,
        },
    ),
    **{name: Format(**parts) for name, parts in PARTS.items()},
}
