"""Small random checkpoints in foreign formats, written without this package.

Where the foreign library is installed with the tests (TensorFlow's Saver, keras-hub, h5py) it does
the writing. PyTorch's container is put together by hand here, and compared with PyTorch's own where
PyTorch is installed (test_torch_files.py).
"""

import json
import pickle
import struct
import zipfile

import h5py
import numpy as np
import tensorflow as tf

HF_CONFIG = {
    "model_type": "bert",
    "architectures": ["BertModel"],
    "vocab_size": 50,
    "hidden_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "intermediate_size": 40,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 512,
    "type_vocab_size": 2,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
    "pad_token_id": 0,
    "position_embedding_type": "absolute",
}


def random_tensors(config=HF_CONFIG, heads=(), seed=0):
    """Hugging Face's tensors of a random BERT, without the `bert.` prefix; and of its heads."""
    rng = np.random.default_rng(seed)
    hidden, wide, vocabulary = (
        config["hidden_size"],
        config["intermediate_size"],
        config["vocab_size"],
    )
    tensors = {}

    def normal(name, *shape, scale=0.2):
        tensors[name] = rng.normal(0, scale, shape).astype(np.float32)

    def dense(name, units_in, units_out):
        normal(f"{name}.weight", units_out, units_in)
        normal(f"{name}.bias", units_out)

    def layer_norm(name):
        tensors[f"{name}.weight"] = rng.normal(1, 0.1, hidden).astype(np.float32)
        normal(f"{name}.bias", hidden)

    normal("embeddings.word_embeddings.weight", vocabulary, hidden)
    normal("embeddings.position_embeddings.weight", config["max_position_embeddings"], hidden)
    normal("embeddings.token_type_embeddings.weight", config["type_vocab_size"], hidden)
    layer_norm("embeddings.LayerNorm")
    for index in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{index}"
        for role in ("query", "key", "value"):
            dense(f"{layer}.attention.self.{role}", hidden, hidden)
        dense(f"{layer}.attention.output.dense", hidden, hidden)
        layer_norm(f"{layer}.attention.output.LayerNorm")
        dense(f"{layer}.intermediate.dense", hidden, wide)
        dense(f"{layer}.output.dense", wide, hidden)
        layer_norm(f"{layer}.output.LayerNorm")
    dense("pooler.dense", hidden, hidden)
    if "masked_lm" in heads:
        dense("cls.predictions.transform.dense", hidden, hidden)
        layer_norm("cls.predictions.transform.LayerNorm")
        normal("cls.predictions.bias", vocabulary)
    if "next_sentence" in heads:
        dense("cls.seq_relationship", hidden, 2)
    if "question_answering" in heads:
        dense("qa_outputs", hidden, 2)
    for head, units in (("classifier", 3), ("choice", 1)):
        if head in heads:
            dense("classifier", hidden, units)
    return tensors


def with_prefix(tensors):
    """As BertFor… saves them: the network under `bert.`, the heads next to it."""
    heads = ("cls.", "classifier", "qa_outputs")
    return {
        name if name.startswith(heads) else f"bert.{name}": values
        for name, values in tensors.items()
    }


def write_config(directory, **changes):
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps({**HF_CONFIG, **changes}))


def write_huggingface(directory, tensors, **changes):
    from safetensors.numpy import save_file

    write_config(directory, **changes)
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})


def tf1_tensors(tensors):
    """The same tensors under the names and in the layouts of google-research/bert."""
    outputs = {
        "cls/seq_relationship": "cls/seq_relationship/",
        "qa_outputs": "cls/squad/",
        "classifier": "",
    }
    values = {}
    for name, value in tensors.items():
        scope, _, leaf = name.replace("encoder.layer.", "encoder.layer_").rpartition(".")
        scope = scope.replace(".", "/")
        if name == "cls.predictions.bias":
            new = "cls/predictions/output_bias"
        elif scope in outputs:
            new = outputs[scope] + {"weight": "output_weights", "bias": "output_bias"}[leaf]
        else:
            if scope.endswith("LayerNorm"):
                leaf = {"weight": "gamma", "bias": "beta"}[leaf]
            elif leaf == "weight" and not scope.startswith("embeddings"):
                leaf, value = "kernel", value.T
            new = scope if leaf == "weight" else f"{scope}/{leaf}"
            new = new if new.startswith("cls/") else f"bert/{new}"
        values[new] = value
    return values


def write_google_config(directory, **changes):
    """`bert_config.json`, which knows fewer keys."""
    unknown = (
        "model_type",
        "architectures",
        "layer_norm_eps",
        "position_embedding_type",
        "pad_token_id",
    )
    config = {key: value for key, value in HF_CONFIG.items() if key not in unknown}
    (directory / "bert_config.json").write_text(json.dumps({**config, **changes}))


def write_tf1(directory, tensors, **changes):
    """A google-research/bert checkpoint: TensorFlow's own Saver, with optimizer slots and step."""
    values = {"global_step": np.int64(7)}
    for name, value in tf1_tensors(tensors).items():
        values[name] = value
        values[f"{name}/adam_m"] = values[f"{name}/adam_v"] = np.zeros_like(value)
    directory.mkdir(parents=True, exist_ok=True)
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = [
            tf.compat.v1.get_variable(name, initializer=tf.constant(value), use_resource=False)
            for name, value in values.items()
        ]
        session.run([variable.initializer for variable in variables])
        tf.compat.v1.train.Saver(variables).save(
            session, str(directory / "bert_model.ckpt"), write_meta_graph=False
        )
    write_google_config(directory, **changes)


def tf_variables(tensors):
    """The same tensors under the names and in the layouts of `transformers`' TensorFlow models."""
    variables = {}
    for name, value in tensors.items():
        scope, _, leaf = name.rpartition(".")
        scope = scope.replace(".", "/").replace("encoder/layer/", "encoder/layer_._")
        if scope.endswith("LayerNorm"):
            leaf = {"weight": "gamma", "bias": "beta"}[leaf]
        elif leaf == "weight" and scope.startswith("embeddings"):
            leaf = "weight" if "word" in scope else "embeddings"
        elif leaf == "weight":
            leaf, value = "kernel", value.T
        if scope.startswith("cls/predictions"):
            scope = scope.replace("cls/", "mlm___cls/")
        elif scope.startswith("cls/"):
            scope = scope.replace("cls/", "nsp___cls/")
        elif scope not in ("classifier", "qa_outputs"):
            scope = f"bert/{scope}"
        variables[f"{scope}/{leaf}:0"] = value
    return variables


def write_tf_h5(directory, tensors, model="tf_bert_model", **changes):
    """`tf_model.h5` as transformers 4.48 wrote it; made from a dump of one that it wrote."""
    write_config(directory, **changes)
    with h5py.File(directory / "tf_model.h5", "w") as file:
        layers = {}
        for name, value in tf_variables(tensors).items():
            layer, weight = name.split("/")[0], f"{model}/{name}"
            layers.setdefault(layer, []).append(weight)
            file[f"{layer}/{weight}"] = value
        file.attrs["layer_names"] = list(layers)
        file.attrs["backend"] = "tensorflow"
        for layer, names in layers.items():
            file[layer].attrs["weight_names"] = names


def write_tf_shards(directory, tensors, ending, model="tf_bert_model", **changes):
    """What transformers 4.57 writes with `max_shard_size`; with one shard, without an index."""
    write_config(directory, **changes)
    variables = tf_variables(tensors)
    names = sorted(variables)
    stem = {"h5": "tf_model", "safetensors": "model"}[ending]
    shards = {f"{stem}-0000{number}-of-00002.{ending}": names[number - 1 :: 2] for number in (1, 2)}
    for file, part in shards.items():
        write_tf_file(directory / file, {name: variables[name] for name in part})
    index = {f"{model}/{name}": file for file, part in shards.items() for name in part}
    path = directory / f"{stem}.{ending}.index.json"
    path.write_text(json.dumps({"metadata": {"total_size": 1}, "weight_map": index}))


def write_tf_file(path, variables):
    """A shard with these variables, or the whole `model.safetensors` of a TensorFlow model."""
    from safetensors.numpy import save_file

    if path.suffix == ".safetensors":
        arrays = {name: np.ascontiguousarray(value) for name, value in variables.items()}
        save_file(arrays, path, metadata={"format": "tf"})
        return
    with h5py.File(path, "w") as file:
        for name, value in variables.items():
            file[name] = value
        file.attrs["layer_names"] = list(variables)


def write_tf_models(prefix, tensors, config=HF_CONFIG, root="encoder"):
    """A TF2 object checkpoint with the object structure of tensorflow/models' BertEncoder."""
    items = {}
    encoder, masked_lm = tf_models_objects(tensors, config)
    items[root] = encoder
    if masked_lm is not None:
        items["masked_lm"] = masked_lm
    prefix.parent.mkdir(parents=True, exist_ok=True)
    return tf.train.Checkpoint(**items).write(str(prefix))


def write_tf_hub(directory, tensors, vocabulary, lowercase=True):
    """A SavedModel with the objects of those of TF Hub.

    They were compared with what `export_model` of tensorflow/models 2.20, official/nlp/tools/
    export_tfhub_lib.py, writes with and without the masked LM, which opens too.
    """
    encoder, masked_lm = tf_models_objects(tensors, HF_CONFIG)
    model, in_model = tf.Module(), "layer_with_weights-0"
    setattr(model, in_model, encoder)
    if masked_lm is not None:
        model.mlm, pretrainer = tf.Module(), tf.Module()
        setattr(model.mlm, in_model, pretrainer)
        pretrainer.masked_lm, pretrainer.encoder_network = masked_lm, encoder
    vocabulary_file = directory.parent / "vocab.txt"
    vocabulary_file.write_text("".join(f"{piece}\n" for piece in vocabulary))
    model.vocab_file = tf.saved_model.Asset(str(vocabulary_file))
    model.do_lower_case = tf.Variable(lowercase, trainable=False)
    tf.saved_model.save(model, str(directory))
    return directory


def tf_models_objects(tensors, config):
    """The encoder of tensorflow/models and, if there are its tensors, the masked-LM head."""
    heads, hidden = config["num_attention_heads"], config["hidden_size"]

    def part(**children):
        node = tf.Module()
        for name, value in children.items():
            setattr(node, name, tf.Variable(value) if isinstance(value, np.ndarray) else value)
        return node

    def dense(name, *shape):
        kernel, bias = tensors[f"{name}.weight"].T, tensors[f"{name}.bias"]
        if shape:
            kernel = kernel.reshape(shape)
        if len(shape) == 3 and shape[0] == hidden:
            bias = bias.reshape(heads, -1)
        return part(kernel=np.ascontiguousarray(kernel), bias=bias)

    def layer_norm(name):
        return part(gamma=tensors[f"{name}.weight"], beta=tensors[f"{name}.bias"])

    encoder = tf.Module()
    children = [
        part(embeddings=tensors[f"embeddings.{name}_embeddings.weight"])
        for name in ("word", "position", "token_type")
    ]
    children.append(layer_norm("embeddings.LayerNorm"))
    for index in range(config["num_hidden_layers"]):
        layer = f"encoder.layer.{index}"
        attention = part(
            **{
                f"_{role}_dense": dense(f"{layer}.attention.self.{role}", hidden, heads, -1)
                for role in ("query", "key", "value")
            },
            _output_dense=dense(f"{layer}.attention.output.dense", heads, -1, hidden),
        )
        children.append(
            part(
                _attention_layer=attention,
                _attention_layer_norm=layer_norm(f"{layer}.attention.output.LayerNorm"),
                _intermediate_dense=dense(f"{layer}.intermediate.dense"),
                _output_dense=dense(f"{layer}.output.dense"),
                _output_layer_norm=layer_norm(f"{layer}.output.LayerNorm"),
            )
        )
    children.append(dense("pooler.dense"))
    for index, child in enumerate(children):
        setattr(encoder, f"layer_with_weights-{index}", child)
    if "cls.predictions.bias" not in tensors:
        return encoder, None
    masked_lm = part(
        dense=dense("cls.predictions.transform.dense"),
        layer_norm=layer_norm("cls.predictions.transform.LayerNorm"),
        bias=tensors["cls.predictions.bias"],
    )
    return encoder, masked_lm


_STORAGES = {"float32": "FloatStorage", "float16": "HalfStorage", "int64": "LongStorage"}


def torch_pickle(tensors):
    """The pickle of a state dict, instruction by instruction, as torch.save writes it."""

    def name(module, attribute):
        return b"c" + module.encode() + b"\n" + attribute.encode() + b"\n"

    def text(value):
        value = value.encode()
        return b"X" + struct.pack("<I", len(value)) + value

    def number(value):
        return b"J" + struct.pack("<i", value)

    def numbers(values):
        return b"(" + b"".join(map(number, values)) + b"t"

    content = b"\x80\x02" + name("collections", "OrderedDict") + b")R" + b"("
    for index, (key, values) in enumerate(tensors.items()):
        storage = _STORAGES[values.dtype.name]
        strides = [step // values.itemsize for step in values.strides]
        content += text(key) + name("torch._utils", "_rebuild_tensor_v2") + b"(("
        content += text("storage") + name("torch", storage) + text(str(index)) + text("cpu")
        content += number(values.size) + b"tQ" + number(0) + numbers(values.shape)
        content += numbers(strides) + b"\x89" + name("collections", "OrderedDict") + b")RtR"
    return content + b"u."


def write_torch(path, tensors):
    """The zip archive of `torch.save`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", torch_pickle(tensors))
        archive.writestr("archive/byteorder", "little")
        for index, values in enumerate(tensors.values()):
            archive.writestr(f"archive/data/{index}", values.tobytes())
        archive.writestr("archive/version", "3\n")


def write_legacy_torch(path, tensors):
    """The container before PyTorch 1.6."""
    path.parent.mkdir(parents=True, exist_ok=True)
    system = {"protocol_version": 1001, "little_endian": True, "type_sizes": {"int": 4}}
    with open(path, "wb") as file:
        for value in (0x1950A86A20F9469CFC6C, 1001, system):
            pickle.dump(value, file, protocol=2)
        file.write(torch_pickle(tensors))
        pickle.dump([str(index) for index in range(len(tensors))], file, protocol=2)
        for values in tensors.values():
            file.write(struct.pack("<q", values.size) + values.tobytes())


# Where keras-hub keeps the layers of Hugging Face's names.
_KERAS_HUB = {
    "token_embedding": "embeddings.word_embeddings",
    "position_embedding": "embeddings.position_embeddings",
    "segment_embedding": "embeddings.token_type_embeddings",
    "embeddings_layer_norm": "embeddings.LayerNorm",
    "self_attention_layer/query": "attention.self.query",
    "self_attention_layer/key": "attention.self.key",
    "self_attention_layer/value": "attention.self.value",
    "self_attention_layer/attention_output": "attention.output.dense",
    "self_attention_layer_norm": "attention.output.LayerNorm",
    "feedforward_intermediate_dense": "intermediate.dense",
    "feedforward_output_dense": "output.dense",
    "feedforward_layer_norm": "output.LayerNorm",
    "pooled_dense": "pooler.dense",
}


def _keras_hub_value(path, tensors):
    """The value of one of keras-hub's variables, of any shape."""
    layer, _, leaf = path.rpartition("/")
    prefix = ""
    if layer.startswith("transformer_layer_"):
        block, _, layer = layer.removeprefix("transformer_layer_").partition("/")
        prefix = f"encoder.layer.{block}."
    kind = "bias" if leaf in ("bias", "beta") else "weight"
    value = tensors[f"{prefix}{_KERAS_HUB[layer]}.{kind}"]
    return value.T if leaf == "kernel" else value


def write_keras_hub(directory, task=None, tensors=None, num_layers=2):
    """A keras-hub preset, its weights `tensors` or random; returns keras-hub's model."""
    import keras_hub

    backbone = keras_hub.models.BertBackbone(
        vocabulary_size=50,
        num_layers=num_layers,
        num_heads=3,
        hidden_dim=24,
        intermediate_dim=40,
        max_sequence_length=512,
    )
    model = backbone
    if task == "classifier":
        model = keras_hub.models.BertTextClassifier(backbone, num_classes=3)
    elif task == "masked_lm":
        model = keras_hub.models.BertMaskedLM(backbone)
    rng = np.random.default_rng(0)
    for variable in model.weights:
        if tensors is not None:
            value = _keras_hub_value(variable.path, tensors)
            variable.assign(value.reshape(variable.shape))
            continue
        near = 1.0 if variable.name == "gamma" else 0.0
        variable.assign(near + rng.normal(0, 0.2, variable.shape))
    model.save_to_preset(str(directory))
    return model


def token_inputs(lengths, longest, seed=0, vocab_size=50):
    rng = np.random.default_rng(seed)
    return {
        "token_ids": rng.integers(1, vocab_size, (len(lengths), longest)).astype(np.int32),
        "segment_ids": rng.integers(0, 2, (len(lengths), longest)).astype(np.int32),
        "padding_mask": np.arange(longest) < np.array(lengths)[:, None],
    }
