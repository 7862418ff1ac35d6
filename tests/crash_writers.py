"""A process that writes and reads files of bert_tf, one for each request from another process.

Each request is a line of JSON with `do` ("write" or "read"), `writer`, `directory` and, to write,
`value`: 0 or 1, two contents that differ in every file.
"""

import functools
import hashlib
import io
import json
import os
import socket
import zipfile

import h5py
import numpy as np
import tensorflow as tf

from bert_tf import BertBackbone, BertConfig, BertSentenceEncoder, BertTextClassifier, BertTokenizer
from bert_tf.base.files import atomic_path, recover
from bert_tf.checkpoints.opening import open_pretrained
from bert_tf.checkpoints.readers.safetensors_source import SafetensorsSource
from bert_tf.errors import UserError
from bert_tf.serving import export
from bert_tf.serving.versions import find_versions
from bert_tf.tasks.pretraining.create_data import create_pretraining_data
from bert_tf.tasks.pretraining.document_chunks import scan_documents
from bert_tf.tasks.pretraining.examples import ExampleOptions
from bert_tf.tasks.pretraining.records import pretraining_records
from bert_tf.training import TrainingCheckpoint
from bert_tf.training.checkpointing.checkpoint_files import (
    checkpoint_path,
    checkpoint_steps,
    read_checkpoint,
    write_checkpoint,
)
from tests.system_calls import hand_over
from tests.training import tiny_run

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "good", "bad", "film", "the", "."]
STEP = 5


@functools.cache
def tokenizer(value):
    words = WORDS[:5] + WORDS[5:][:: -1 if value else 1]
    return BertTokenizer(words, number_token=None, max_length=10 + value)


@functools.cache
def model(model_class, value):
    config = BertConfig(
        vocab_size=len(WORDS),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8 + value,
        max_position_embeddings=12,
    )
    options = (
        {"labels": [["a", "b"], ["c", "d"]][value]}
        if model_class is BertTextClassifier
        else {"pooling": ["mean", "max"][value]}
    )
    built = model_class(BertBackbone(config), tokenizer=tokenizer(value), **options)
    built.backbone.pooler.dense.bias.assign(np.full(8, value))
    return built


@functools.cache
def model_with_lora(value):
    built = BertTextClassifier(
        BertBackbone(model(BertTextClassifier, 0).backbone.config), labels=["a", "b"]
    )
    built.enable_lora(rank=1 + value)
    return built


@functools.cache
def trained_model(value):
    trained = tiny_run.compiled()
    trained.weights[0].assign(np.full(trained.weights[0].shape, value))
    return trained


def save_checkpoint(directory, value):
    trained = trained_model(value)
    checkpoint = TrainingCheckpoint(directory, keep=1)
    checkpoint.set_model(trained)
    checkpoint.step = STEP + value
    checkpoint.save()


def read_saved(directory):
    found = open_pretrained(directory)
    content = [found.config.to_dict(), found.class_name, found.options]
    content += [(name, np.array(found.source.read(name)).tobytes()) for name in found.source.shapes]
    content.append(BertTokenizer.from_pretrained(directory).get_config())
    if os.path.exists(os.path.join(directory, "modules.json")):
        loaded = BertSentenceEncoder.from_pretrained(directory)
        content.append((loaded.pooling, loaded.max_length))
    return content


def read_checkpoints(directory):
    recover(directory)
    step = checkpoint_steps(directory)[-1]
    tensors, state = read_checkpoint(checkpoint_path(directory, step))
    return [step, state["step"], [(name, array.tobytes()) for name, array in tensors.items()]]


def read_safetensors(path):
    source = SafetensorsSource(path)
    return [(name, np.array(source.read(name)).tobytes()) for name in source.shapes]


def read_keras(path):
    open_pretrained(path)  # compares checksums
    with zipfile.ZipFile(path) as archive:
        weights = io.BytesIO(archive.read("model.weights.h5"))
        return [archive.read("config.json"), read_h5(weights)]


def read_h5(file):
    content = []
    with h5py.File(file) as file:
        file.visititems(
            lambda name, item: content.append(
                (name, item[()].tobytes() if isinstance(item, h5py.Dataset) else None)
            )
        )
    return content


def read_export(directory):
    path = find_versions(directory)[1]
    reader = tf.train.load_checkpoint(os.path.join(path, "variables", "variables"))
    names = [name for name in sorted(reader.get_variable_to_shape_map()) if name[0] != "_"]
    content = [(name, reader.get_tensor(name).tobytes()) for name in names]
    for folder in ("assets", "assets.extra"):
        for name in sorted(os.listdir(os.path.join(path, folder))):
            if name != "tf_serving_warmup_requests":
                with open(os.path.join(path, folder, name), "rb") as file:
                    content.append((name, file.read()))
    assert os.path.getsize(os.path.join(path, "saved_model.pb"))
    return content


def write_records(directory, value):
    text = os.path.join(os.path.dirname(directory), "text.txt")
    with open(text, "w", encoding="utf-8") as file:
        file.write("the film .\ngood .\n\nbad film .\nthe good bad .\n" * 3)
    create_pretraining_data(
        scan_documents([text]),
        [os.path.join(directory, f"{number}.tfrecord") for number in range(2)],
        tokenizer(0),
        ExampleOptions(12, 2),
        dupe_factor=2,
        random_seed=value,
        progress=False,
    )


def read_records(directory):
    dataset = pretraining_records([os.path.join(directory, "?.tfrecord")], 1, 12, 2, shuffle=False)
    number = sum(1 for name in os.listdir(directory) if name.endswith(".tfrecord"))
    steps = dataset.take(8)
    return [
        number,
        [
            (x["token_ids"].numpy().tolist(), x["masked_positions"].numpy().tolist())
            for x, _ in steps
        ],
    ]


def write_text(path, value):
    with atomic_path(path) as new, open(new, "w", encoding="utf-8") as file:
        file.write(f"accuracy = {value}\n" * 1000)


def read_text(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def inside(name, function):
    """The function for a file in the directory."""
    return lambda directory, *value: function(os.path.join(directory, name), *value)


def saving(model_class, format):
    return lambda directory, value: model(model_class, value).save_pretrained(directory, format)


def checkpoint_of_a_step(directory, value):
    state = {"step": STEP, "network": {"value": value}, "settings": {}}
    write_checkpoint(directory, STEP, {"a": np.full(3, value)}, state)


WRITERS = {
    "huggingface": (saving(BertTextClassifier, "huggingface"), read_saved),
    "own format": (saving(BertTextClassifier, "bert_tf"), read_saved),
    "tf1": (saving(BertTextClassifier, "tf1"), read_saved),
    "sentence encoder": (saving(BertSentenceEncoder, "huggingface"), read_saved),
    "tokenizer": (
        lambda directory, value: tokenizer(value).save_pretrained(directory),
        lambda directory: BertTokenizer.from_pretrained(directory).get_config(),
    ),
    "lora": (
        inside(
            "lora.safetensors", lambda path, value: model_with_lora(value).save_lora_weights(path)
        ),
        inside("lora.safetensors", read_safetensors),
    ),
    "keras": (
        inside("model.keras", lambda path, value: model(BertTextClassifier, value).save(path)),
        inside("model.keras", read_keras),
    ),
    "keras weights": (
        inside(
            "a.weights.h5", lambda path, value: model(BertTextClassifier, value).save_weights(path)
        ),
        inside("a.weights.h5", read_h5),
    ),
    "checkpoint of a step": (checkpoint_of_a_step, read_checkpoints),
    "training checkpoint": (save_checkpoint, read_checkpoints),
    "export": (
        lambda directory, value: export(model(BertTextClassifier, value), directory, version=1),
        read_export,
    ),
    "pre-training records": (write_records, read_records),
    "text": (inside("eval_results.txt", write_text), inside("eval_results.txt", read_text)),
}


def answer(request):
    """What came of a request: `value`, or `error` and whether it is one that a user can read."""
    write, read = WRITERS[request["writer"]]
    try:
        if request["do"] == "write":
            write(request["directory"], request["value"])
            return {"value": None}
        content = repr(read(request["directory"]))
        return {"value": hashlib.sha256(content.encode()).hexdigest()}
    except Exception as error:  # the other process judges
        clear = isinstance(error, (UserError, OSError, tf.errors.OpError))
        return {"error": f"{type(error).__name__}: {error}"[:2000], "clear": clear}


def serve(connection: socket.socket) -> None:
    """Answers the requests that come, its system calls handed over to who sends them.

    TensorFlow must not have started its threads: they are handed over as well.
    """
    hand_over(connection)
    with connection.makefile("rw", encoding="utf-8") as lines:
        for line in lines:
            lines.write(json.dumps(answer(json.loads(line))) + "\n")
            lines.flush()
