"""The pre-training step of BERT, traced as on a GPU: its executed operations, and its HLO."""

import collections
import contextlib
from unittest import mock

import keras
import tensorflow as tf
from tensorflow.compiler.tf2xla.ops import gen_xla_ops
from tensorflow.python.distribute import cross_device_utils

import bert_tf
from bert_tf.ops import native

from .. import workloads

# Operations that launch no kernel: their results are known on the host, or share a buffer.
_WITHOUT_KERNEL = (
    "Const", "Identity", "IdentityN", "NoOp", "Placeholder", "VarHandleOp", "Arg", "_Arg",
    "_Retval", "StopGradient", "PreventGradient", "Reshape", "ExpandDims", "Squeeze", "Shape",
    "StridedSlice", "Pack", "BroadcastGradientArgs", "Size", "ReadVariableOp", "Prod", "ShapeN",
    "VariableShape", "Assert", "Switch", "Merge",
)  # fmt: skip


@contextlib.contextmanager
def as_on_a_gpu(ops: str):
    """Ops without a GPU kernel use plain TensorFlow, although this machine has no GPU."""
    used = native.used_library

    def used_on_a_gpu(runs_on_gpu=True, op=None):
        return used(runs_on_gpu, op) if runs_on_gpu else None

    with native.backend(ops), mock.patch.object(native, "used_library", used_on_a_gpu):
        yield


class CompiledReplicas:
    """What a step needs of `tf.distribute.ReplicaContext`, where XLA compiles it for `count` GPUs.

    TensorFlow's strategies cannot be traced for GPUs that are not there. As their collectives, an
    all-reduce concatenates the tensors of a pack.
    """

    def __init__(self, count: int):
        self.num_replicas_in_sync = count

    @property
    def replica_id_in_sync_group(self) -> tf.Tensor:
        return gen_xla_ops.xla_replica_id()

    def all_reduce(self, _, values, options=None):
        tensors, sums = tf.nest.flatten(values), []
        packs = cross_device_utils.group_by_size(tensors, options.bytes_per_pack if options else 0)
        for pack in packs:
            together = gen_xla_ops.xla_all_reduce(
                input=tf.concat([tf.reshape(tensor, [-1]) for tensor in pack], axis=0),
                group_assignment=[list(range(self.num_replicas_in_sync))],
                reduce_op="Add",
                mode="CrossReplica",
            )
            parts = tf.split(together, [tensor.shape.num_elements() for tensor in pack])
            sums += [tf.reshape(part, tensor.shape) for part, tensor in zip(parts, pack)]
        return tf.nest.pack_sequence_as(values, sums)


class Step:
    """A training step of `BertPretrainer` in mixed_bfloat16.

    `optimizer` are further arguments of `AdamWeightDecay`, `options` those of `BertConfig`.
    """

    def __init__(
        self, ops: str, workload: workloads.Workload, optimizer: dict | None = None, **options
    ):
        self.ops = ops
        keras.config.set_dtype_policy("mixed_bfloat16")
        try:
            config = bert_tf.BertConfig(**options)
            self.model = bert_tf.BertPretrainer(bert_tf.BertBackbone(config))
        finally:
            keras.config.set_dtype_policy("float32")
        self.optimizer = bert_tf.training.AdamWeightDecay(1e-4, **(optimizer or {}))
        (arrays,) = workloads.batches(workload, None, config.vocab_size, training=True)
        labels = ("masked_ids", "masked_weights", "next_sentence_labels")
        inputs = (*workloads.ENCODER_INPUTS, "masked_positions")
        self.data = tuple(
            {name: tf.constant(arrays[name]) for name in names} for names in (inputs, labels)
        )
        with as_on_a_gpu("reference"):
            self.model({name: value[:1] for name, value in self.data[0].items()})
        self.optimizer.build(self.model.trainable_variables)

    def executed_operations(self) -> collections.Counter:
        """Counts the operations of a step that launch a kernel, by type, without XLA."""
        from tensorflow.core.protobuf import config_pb2
        from tensorflow.python.framework import meta_graph
        from tensorflow.python.grappler import tf_optimizer

        self.model.compile(self.optimizer)
        specs = tf.nest.map_structure(
            lambda value: tf.TensorSpec([None, *value.shape[1:]], value.dtype), self.data
        )
        with as_on_a_gpu(self.ops):
            graph = tf.function(self.model.train_step).get_concrete_function(specs).graph
        described = meta_graph.create_meta_graph_def(graph=graph)
        wanted = described.collection_def["train_op"].node_list.value
        wanted.extend(output.name for output in graph.outputs)
        wanted.extend(operation.name for operation in graph.control_outputs)
        optimized = tf_optimizer.OptimizeGraph(config_pb2.ConfigProto(), described)
        functions = {part.signature.name: part for part in optimized.library.function}
        counts = collections.Counter()

        def count(nodes):
            for node in nodes:
                if node.op in ("PartitionedCall", "StatefulPartitionedCall"):
                    count(functions[node.attr["f"].func.name].node_def)
                elif node.op not in _WITHOUT_KERNEL:
                    counts[node.op] += 1

        count(optimized.node)
        return counts

    def serialized_hlo(self, num_replicas: int = 1) -> bytes:
        """Returns the program that TensorFlow gives to XLA, as a serialized `HloModuleProto`.

        The batch is that of a replica.
        """
        return self.program(num_replicas)[0]

    def program(self, num_replicas: int = 1) -> tuple[bytes, list]:
        """Returns the program, and its parameters in their order: names, tensors and variables."""
        self.model.compile(self.optimizer, jit_compile=True)
        compiled = tf.function(self.model.train_step, jit_compile=True)
        replicas = CompiledReplicas(num_replicas)
        context = mock.patch.object(tf.distribute, "get_replica_context", lambda: replicas)
        with as_on_a_gpu(self.ops), context if num_replicas > 1 else contextlib.nullcontext():
            program = compiled.experimental_get_compiler_ir(self.data)(stage="hlo_serialized")
            traced = compiled.get_concrete_function(self.data)
        by_handle = {id(each.handle): (each.name, each) for each in traced.graph.variables}
        for each in (*self.model.variables, *self.optimizer.variables):
            by_handle[id(each.value.handle)] = (each.path, each.value)
        tensors = [(name, value) for part in self.data for name, value in sorted(part.items())]
        return program, tensors + [by_handle[id(handle)] for handle in traced.captured_inputs]
