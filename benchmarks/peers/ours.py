"""The peer bert_tf."""

import functools
import os
import time

# Before TensorFlow, as README.md does it: what Keras needs rarely is then imported when it is used.
import bert_tf

# isort: split
import numpy as np
import tensorflow as tf

from bert_tf import ops
from bert_tf.layers import kernel_choice
from bert_tf.ops import native

from . import base, keras_common, op_cases
from .base import LEARNING_RATE, Task, matmul_inputs

# A training step has new weights each time, so this arrangement packs them each time.
PACKED_EACH_TIME = "packed each time"

# The models of `calls`.
_CALLED = {
    "encode": ("BertSentenceEncoder", {"normalize": True}),
    "classify": ("BertTextClassifier", {"labels": ["bad", "good"]}),
    "tag": ("BertTokenClassifier", {"labels": ["O", "B-PER", "I-PER"]}),
    "answer": ("BertQuestionAnswerer", {}),
}
# Arrangements of prepacked kernels: the kind of the model, and how it is computed.
_PACKED = {"packed": ("packed", "graph"), "packed constants": ("packed", "constants")}
_LAYER_NORM_INPUTS = ("x", "residual", "bias", "gamma", "beta")
FEATURES = (*keras_common.ENCODER_INPUTS, "masked_positions")
LABELS = ("masked_ids", "masked_weights", "next_sentence_labels")


def training_task(model, batch, steps: int = 1) -> Task:
    """Makes optimizer steps on one padding-free batch, by the train function of `fit`.

    One run waits only for the last of its steps, as `fit` does.
    """
    features, labels = (
        {name: tf.constant(batch[name]) for name in names} for names in (FEATURES, LABELS)
    )
    iterator = iter(tf.data.Dataset.from_tensors((features, labels)).repeat())
    model.make_train_function()
    step = model.train_function

    def run():
        for _ in range(steps):
            logs = step(iterator)
        return float(logs["loss"])

    def outputs():
        predicted = model(features, training=False)
        loss = model.compute_loss(x=features, y=labels, y_pred=predicted, training=False)
        return {"loss": np.asarray(loss)}

    return Task(run, outputs, steps)


class Ours(keras_common.TensorFlowPeer):
    """`bert_tf` with its native ops, on all sequences in one padding-free batch."""

    VARIANTS = {
        "inference": ("graph", "constants", "packed", "packed constants"),
        "inference_bfloat16": (
            "optimized bfloat16, graph",
            "optimized bfloat16, constants",
            "mixed_bfloat16, graph",
        ),
        "training_bfloat16": ("mixed_bfloat16",),
        "inference_int8": ("graph", "constants", "graph, attention", "graph, attention, static"),
        "generation": ("graph", "packed"),
        "generation_bfloat16": ("optimized bfloat16", "mixed_bfloat16"),
        "latency": ("graph", "packed", "constants", "SavedModel"),
        "latency_int8": ("constants", "constants, static", "SavedModel"),
        "encode": ("packed",),
        "encode_int8": ("int8",),
        "ops": ("native, in place", "native, fresh", "reference, fresh"),
        "matmul": ("default", PACKED_EACH_TIME),
    }

    @property
    def version(self):
        return f"{bert_tf.ops.active_backend()} ops, TensorFlow {tf.__version__}"

    @functools.cache
    def _backbone(self, kind):
        return self._prepared(bert_tf.BertBackbone, kind)

    def _prepared(self, model_class, kind, texts=None, **options):
        """Returns a model of a kind.

        Args:
            model_class: The class of a backbone or of a task.
            kind: "float", "packed", "optimized bfloat16", the policy "mixed_bfloat16", or for a
                quantized model "int8" and what differs.
            texts: For the static scales of a task's model; None: random tokens.
            **options: Further arguments of `from_pretrained`.
        """
        if kind == "mixed_bfloat16":
            options["dtype"] = kind
        model = model_class.from_pretrained(self.setup.model_directory, **options)
        if kind == "packed":
            model.prepack_for_inference()
        elif kind == "optimized bfloat16":
            model.optimize_for_inference("bfloat16")
        elif "int8" in kind:
            # A baseline may be older than the arguments that it does not need.
            arguments = {"attention": "int8"} if "attention" in kind else {}
            if "static" in kind:
                examples = list(texts or base.calibration_examples(self.setup.config))
                arguments |= {"activations": "static", "calibration": examples}
            model.quantize("int8", **arguments)
        return model

    @functools.cache
    def _model(self, variant, kind="float"):
        # Created here, not in the traced function; "constants" shares that of "graph".
        backbone = self._backbone(kind)

        def encode(inputs):
            outputs = backbone(inputs)
            states = outputs["sequence_output"]
            return states, outputs["pooled_output"] if self.setup.has_pooler else states[:, 0]

        return self.compiled(encode, variant)

    def inference(self, batches, variant):
        kind, form = _PACKED.get(variant, ("float", variant))
        return keras_common.inference_task(self._model(form, kind), form, batches)

    def inference_int8(self, batches, variant):
        variant, *parts = variant.split(", ")
        model = self._model(variant, ", ".join(["int8", *parts]))
        return keras_common.inference_task(model, variant, batches)

    @functools.cache
    def _pretrainer(self, policy):
        directory = self.setup.model_directory
        return self.pretrainer(bert_tf.BertBackbone.from_pretrained(directory, dtype=policy))

    def pretrainer(self, backbone, **compile_options):
        """Returns a compiled `BertPretrainer` with the shared weights of the heads."""
        model = bert_tf.BertPretrainer(backbone, dtype=backbone.dtype_policy)
        head = model.masked_lm_head
        keras_common.assign_heads(
            self.setup.head_tensors,
            (
                head.transform.kernel,
                head.transform.bias,
                head.layer_norm.gamma,
                head.layer_norm.beta,
                head.output_bias,
                model.next_sentence.kernel,
                model.next_sentence.bias,
            ),
        )
        optimizer = bert_tf.training.AdamWeightDecay(learning_rate=LEARNING_RATE)
        model.compile(optimizer, **compile_options)
        return model

    def training(self, batches, variant, policy="float32"):
        (batch,) = batches  # as padding costs nothing
        return training_task(self._pretrainer(policy), batch)

    def training_bfloat16(self, batches, variant):
        return self.training(batches, variant, policy=variant)

    def family(self, config, batches):
        """Creates a task with a network of random weights, prepacked."""
        backbone = bert_tf.BertBackbone(bert_tf.BertConfig(**config))
        backbone.prepack_for_inference()

        def encode(inputs):
            outputs = backbone(inputs)
            return outputs["sequence_output"], outputs["pooled_output"]

        return keras_common.inference_task(self.compiled(encode, "graph"), "graph", batches)

    def family_gradient(self, config, batches):
        """Creates a task with the gradients of all weights of such a network."""
        backbone = bert_tf.BertBackbone(bert_tf.BertConfig(**config))
        weights = [variable.value for variable in backbone.trainable_variables]

        def gradient(inputs):
            with tf.GradientTape() as tape:
                outputs = backbone(inputs, training=True)
                loss = tf.reduce_sum(outputs["sequence_output"]) + tf.reduce_sum(
                    outputs["pooled_output"]
                )
            # The norm needs all gradients, so none is left out as unused.
            return outputs["sequence_output"], tf.linalg.global_norm(tape.gradient(loss, weights))

        return keras_common.inference_task(self.compiled(gradient, "graph"), "graph", batches)

    def choice(self, config):
        """Creates a task with the table of a network of random weights, its pick and its cost."""
        blocks = bert_tf.BertBackbone(bert_tf.BertConfig(**config)).encoder.blocks

        def outputs():
            start = time.perf_counter()
            table = kernel_choice.table_of(blocks)
            seconds = time.perf_counter() - start
            return {"table": table, "form": kernel_choice.pick(table), "seconds": seconds}

        return Task(outputs, outputs)

    def weights(self, config, directory):
        """Writes the random encoder that all peers use."""
        tf.keras.utils.set_random_seed(0)
        model = bert_tf.BertBackbone(bert_tf.BertConfig(**config))
        model.save_pretrained(directory)

    def ops(self, case, variant):
        """Creates a task with an op; variant is a backend and "in place" or "fresh"."""
        backend, _, buffers = variant.partition(", ")
        apply = getattr(self, f"_{case.op}_{case.direction}")
        chain = op_cases.CHAIN if buffers == "in place" else 1
        tensors = tf.nest.map_structure(tf.constant, case.inputs())
        chained = "x" if case.direction == "forward" else "dy"

        @tf.function
        def run(chain):
            values = dict(tensors)
            with ops.backend(backend):
                for _ in range(chain):
                    results = apply(values)
                    values[chained] = results[0]
            return results

        def outputs():
            return {str(i): np.asarray(value) for i, value in enumerate(run(1))}

        return Task(functools.partial(run, chain), outputs, chain)

    # Each of these applies an op to the inputs `t` of an `OpCase`. The next op of a chain gets the
    # first output instead of x or dy.

    def _fused_bias_gelu_forward(self, t):
        return (ops.fused_bias_gelu(t["x"], t["bias"]),)

    def _fused_bias_gelu_backward(self, t):
        return _vector_jacobian(ops.fused_bias_gelu, [t["x"], t["bias"]], t["dy"])

    def _fused_residual_layer_norm_forward(self, t):
        return (ops.fused_residual_layer_norm(*(t[name] for name in _LAYER_NORM_INPUTS)),)

    def _fused_residual_layer_norm_backward(self, t):
        if ops.active_backend() == "reference":
            inputs = [t[name] for name in _LAYER_NORM_INPUTS]
            dy, _, dbias, dgamma, dbeta = _vector_jacobian(
                ops.fused_residual_layer_norm, inputs, t["dy"]
            )
        else:  # without the forward op, whose mean and rstd it needs
            tensors = (t["dy"], t["x"], [t["residual"]], [t["bias"]], t["gamma"], t["mean"])
            tensors += (t["rstd"], tf.constant(0, tf.int64), [])
            dy, _, (dbias,), dgamma, dbeta = (
                native.library().bert_tf_fused_residual_layer_norm_grad(
                    *tensors, num_dresidual=0, dropout_rate=0.0
                )
            )
        return dy, dbias, dgamma, dbeta

    def _varlen_attention_forward(self, t):
        return (ops.varlen_attention(t["qkv"], t["row_splits"]),)

    def _varlen_attention_backward(self, t):
        def attention(qkv):
            return ops.varlen_attention(qkv, t["row_splits"])

        return [tf.convert_to_tensor(_vector_jacobian(attention, [t["qkv"]], t["dy"])[0])]

    def matmul(self, shape, variant, dtype="float32"):
        x, kernel = matmul_inputs(shape)
        kernel, units = tf.constant(kernel, dtype), shape[2]
        packed, bias = ops.pack_dense(kernel), tf.zeros([units])

        def multiply(x):
            now = ops.pack_dense(kernel) if variant == PACKED_EACH_TIME else packed
            return ops.fused_dense(x, now, units, bias=bias)

        return keras_common.matmul_task(multiply, x)

    def matmul_bfloat16(self, shape, variant):
        return self.matmul(shape, variant, "bfloat16")

    def matmul_int8(self, shape, variant):
        x, kernel = matmul_inputs(shape)
        packed = ops.pack_quantized_dense(*ops.quantize_kernel(kernel))
        bias, units = tf.zeros([shape[2]]), shape[2]
        return keras_common.matmul_task(
            lambda x: ops.quantized_dense(x, packed, units, bias=bias), x
        )

    @functools.cache
    def _sentence_encoder(self, variant, kind=None, texts=None):
        kind = kind or ("float" if variant == "graph" else "packed")
        encoder = self._prepared(bert_tf.BertSentenceEncoder, kind, texts)
        if variant == "constants":
            return bert_tf.serving.ConstantGraphModel(encoder)
        if variant == "SavedModel":
            directory = os.path.join(self.setup.scratch, "exported")
            loaded = tf.saved_model.load(bert_tf.serving.export(encoder, directory, portable=False))
            answer = loaded.signatures["serving_default"]
            return lambda text: answer(text=tf.constant([text]))["vector"].numpy()
        call = tf.function(encoder, input_signature=[tf.TensorSpec([None], tf.string)])
        return lambda text: call(tf.constant([text])).numpy()

    def latency(self, text, variant):
        return base.sentence_task(self._sentence_encoder(variant), text)

    def latency_int8(self, text, calibration, variant):
        variant, *parts = variant.split(", ")
        encode = self._sentence_encoder(variant, ", ".join(["int8", *parts]), calibration)
        return base.sentence_task(encode, text)

    def encode(self, slices, variant, calibration=None):
        model = self._prepared(bert_tf.BertSentenceEncoder, variant, calibration)
        return base.encode_task(model.encode, slices)

    encode_int8 = encode

    def task_weights(self, directory):
        """Writes a model for each method of `calls`, with the same encoder and new heads."""
        tf.keras.utils.set_random_seed(0)
        for method, (name, options) in _CALLED.items():
            model = getattr(bert_tf, name).from_pretrained(self.setup.model_directory, **options)
            model.save_pretrained(os.path.join(directory, method))

    @functools.cache
    def _called(self, directory, method):
        name, _ = _CALLED[method]
        return getattr(bert_tf, name).from_pretrained(os.path.join(directory, method))

    def calls(self, directory, method, texts, variant):
        model = self._called(directory, method)

        def call(texts):
            if method == "encode":
                return {"vectors": model.encode(texts)}
            if method == "tag":
                return {"starts": [span.start for span in model.tag(texts)]}
            if method == "answer":
                answer = model.answer(*texts)
                return {"start": answer.start, "end": answer.end}
            return {"probability": max(model.classify(texts).scores.values())}

        return base.calls_task(call, texts)

    def fit(self, directory, texts, batch_size):
        """Creates a task with a `fit`, of which the first one compiles."""
        model, labels = self._called(directory, "classify"), [0, 1] * (len(texts) // 2)
        return Task(lambda: model.fit(texts, labels, batch_size=batch_size, verbose=0), dict)

    @functools.cache
    def _vectors(self, rows, queries, dim):
        generator = np.random.default_rng(0)
        vectors = generator.standard_normal([rows + queries, dim], np.float32)
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        return vectors[queries:], vectors[:queries]

    def search(self, rows, queries, dim, k, variant):
        """Creates a task: the best rows for all queries, by a search or by a full product."""
        corpus, asked = self._vectors(rows, queries, dim)
        kind, _, one = variant.partition(", ")
        asked = asked[:1] if one == "one query" else asked
        if kind == "top_k":
            find = functools.partial(bert_tf.search.top_k, asked, corpus, k, "dot")
        elif kind == "NumPy":
            find = functools.partial(_full_product, asked, corpus, k)
        else:
            ranges = bert_tf.search.vector_ranges(corpus) if kind == "int8" else None
            codes = bert_tf.search.quantize_vectors(corpus, kind, ranges)
            find = functools.partial(
                bert_tf.search.quantized_top_k, asked, codes, k, kind, ranges=ranges
            )
        return base.Task(find, lambda: {"rows": np.asarray(find()[1])})

    @functools.cache
    def _generator(self, kind, **options):
        return self._prepared(bert_tf.BertEncoderDecoder, kind, **options)

    def generation(self, batch, new_tokens, num_beams, variant, **options):
        """Creates a task; the options are arguments of `BertEncoderDecoder`."""
        model = self._generator("float" if variant == "graph" else variant, **options)
        inputs = {name: tf.constant(batch[name]) for name in keras_common.ENCODER_INPUTS}
        lengths = {"max_new_tokens": new_tokens, "min_new_tokens": new_tokens}
        return base.generation_task(
            lambda: np.asarray(model.generate(inputs, num_beams=num_beams, **lengths))
        )

    generation_bfloat16 = generation

    def generator_weights(self, config, directory):
        """Writes the random encoder and decoder that all peers use."""
        tf.keras.utils.set_random_seed(0)
        backbone = bert_tf.BertBackbone(bert_tf.BertConfig(**config))
        ids = dict(decoder_start_token_id=1, eos_token_id=2)
        bert_tf.BertEncoderDecoder(backbone, **ids).save_pretrained(directory)

    def tokenizer(self, texts, vocabulary, variant):
        return keras_common.tokenizer_task(bert_tf.BertTokenizer(vocabulary).tokenize, texts)


def _vector_jacobian(function, arguments, dy):
    with tf.GradientTape() as tape:
        tape.watch(arguments)
        y = function(*arguments)
    return tape.gradient(y, arguments, dy)


def _full_product(queries, corpus, k):
    """Returns the best rows by NumPy: all scores, the best of them, and these in order."""
    scores = queries @ corpus.T
    rows = np.argpartition(scores, -k, axis=1)[:, -k:]
    best = np.take_along_axis(scores, rows, axis=1)
    order = np.argsort(-best, axis=1)
    return np.take_along_axis(best, order, 1), np.take_along_axis(rows, order, 1)
