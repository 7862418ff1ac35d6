"""Finds what a SavedModel would do other than compute, in its protobuf and before it is loaded.

A SavedModel is a program: it can read and write files, call Python or start servers. A graph and
its functions may only hold the operations of `allowed_operations`. Ordinary models also need some
operations that read and write files. These are allowed where they are harmless:

    saver             writes and reads the variables. Signatures must not reach it, and it may only
                      restore from the path that the loader passes
    tables of a file  read the file when the model is loaded. It must be one of the SavedModel's
                      assets

This is not a sandbox. It does not limit how long a graph computes, and it relies on TensorFlow's
operations being free of vulnerabilities.
"""

import graphlib
import os
from collections.abc import Iterator

import tensorflow as tf

from bert_tf.server.allowed_operations import ALLOWED_OPERATIONS, ALLOWED_PREFIX

_RESTORE = ("RestoreV2", "Restore")
_SAVER = (*_RESTORE, "SaveV2", "SaveSlices", "Save", "MergeV2Checkpoints", "ShardedFilename")
_TEXT_FILE_TABLES = ("InitializeTableFromTextFile", "InitializeTableFromTextFileV2")
_CALLS = ("PartitionedCall", "StatefulPartitionedCall")
# TensorFlow's names of a signature and of collections.
_INITIALIZER = "__saved_model_init_op"
_INITIALIZER_COLLECTIONS = ("saved_model_main_op", "legacy_init_op")
_GRAPH = None  # the scope of nodes outside of functions; no function has this name


def graph_problems(meta_graph, path: str | os.PathLike) -> list[str]:
    """Returns why a `MetaGraphDef` of a directory should only be loaded if its author is trusted.

    There is one line per asset or node that is not allowed, or one if it cannot be checked.
    """
    try:
        return _problems(meta_graph, path)
    except Exception as error:  # malformed graphs raise many types
        return [f"a graph that cannot be checked ({error!r})"]


def _problems(meta_graph, path):
    graph = _Graph(meta_graph)
    problems = [
        f"asset {asset.filename!r}, which is outside the model's directory"
        for asset in meta_graph.asset_file_def
        if not _is_inside(path, asset.filename)
    ]
    served, initializing, restoring = graph.start_nodes()
    for_requests = graph.reached(served)
    run = for_requests | graph.reached(initializing, graph.restored_functions)
    restoring = graph.reached(restoring)
    for scope, node in graph.nodes():
        place = scope, node.name
        if node.op in _RESTORE:
            allowed = place not in run and graph.comes_from(graph.saver_files, scope, node, 0)
        elif node.op in _SAVER:
            allowed = place not in run | restoring
        elif node.op in _TEXT_FILE_TABLES:
            allowed = place not in for_requests and graph.comes_from(graph.assets, scope, node, 1)
        else:
            allowed = graph.is_allowed(node.op) and all(map(graph.is_allowed, _functions_of(node)))
        if not allowed:
            inside = f" of function {scope}" if scope else ""
            problems.append(f"operation {node.op}, node {node.name}{inside}")
    return problems


class _Graph:
    """A graph and its functions, for following values and calls.

    TensorFlow 2 writes objects, and `tf.saved_model.load` restores only their functions; the nodes
    outside of functions are for other loaders. TensorFlow 1 writes nodes only.

    Attributes:
        saver_files: The node through which the loader passes the path of the variables.
        assets: The tensors, and the nodes of the object graph, that hold an asset's path.
        restored_functions: The functions that loading restores; all of them may be called.
    """

    def __init__(self, meta_graph):
        self._meta_graph = meta_graph
        library = meta_graph.graph_def.library.function
        self._functions = {one.signature.name: one for one in library}
        self._scopes = {scope: {} for scope in (_GRAPH, *self._functions)}
        for scope, node in self.nodes():
            self._scopes[scope][node.name] = node
        objects = meta_graph.object_graph_def
        self._has_objects = meta_graph.HasField("object_graph_def")
        self.restored_functions = objects.concrete_functions
        assets = {_node_of(asset.tensor_info.name) for asset in meta_graph.asset_file_def}
        kinds = enumerate(node.WhichOneof("kind") for node in objects.nodes)
        assets |= {number for number, kind in kinds if kind == "asset"}
        # A client's input is never a trusted path.
        signatures = meta_graph.signature_def.values()
        inputs = {node for signature in signatures for node in _nodes_of(signature.inputs)}
        self.assets = frozenset(assets - inputs)
        self.saver_files = frozenset({_node_of(meta_graph.saver_def.filename_tensor_name)} - inputs)
        self._arguments = {
            name: {argument.name: index for index, argument in enumerate(one.signature.input_arg)}
            for name, one in self._functions.items()
        }
        self._callers = self._find_callers()
        self._from_allowed = {}  # for each set of allowed sources, the places checked so far

    def nodes(self) -> Iterator:
        """Yields every node with its scope."""
        for node in self._meta_graph.graph_def.node:
            yield _GRAPH, node
        for name, function in self._functions.items():
            for node in function.node_def:
                yield name, node

    def is_allowed(self, name: str) -> bool:
        """Returns whether the operation or function of this name may be called."""
        if name in self._functions:
            # A function with the name of an operation would make it unclear which one is called.
            return not hasattr(tf.raw_ops, name)
        return name in ALLOWED_OPERATIONS or name.startswith(ALLOWED_PREFIX)

    def start_nodes(self) -> tuple[list[str], list[str], list[str]]:
        """Returns the nodes that requests, initialization and reading the variables begin with.

        They are those outside of functions, so there are none if the model has objects.
        """
        if self._has_objects:
            return [], [], []
        signatures = dict(self._meta_graph.signature_def)
        initializer = signatures.pop(_INITIALIZER, None)
        served = [node for one in signatures.values() for node in _nodes_of(one.outputs)]
        collections = self._meta_graph.collection_def
        initializing = [
            _node_of(name)
            for key in _INITIALIZER_COLLECTIONS
            if key in collections
            for name in collections[key].node_list.value
        ]
        initializing += _nodes_of(initializer.outputs) if initializer else []
        return served, initializing, [_node_of(self._meta_graph.saver_def.restore_op_name)]

    def reached(self, nodes, functions=()) -> set[tuple[str, str]]:
        """Returns scope and name of every node that is needed to compute nodes and functions."""
        seen, called = set(), set()
        todo = [(_GRAPH, name) for name in nodes]

        def call(function):
            if function not in called:
                called.add(function)
                todo.extend((function, name) for name in self._scopes.get(function, ()))

        for function in functions:
            call(function)
        while todo:
            place = todo.pop()
            scope, name = place
            node = self._scopes[scope].get(name)
            if place in seen or node is None:
                continue
            seen.add(place)
            todo.extend((scope, _node_of(tensor)) for tensor in node.input)
            for function in (node.op, *_functions_of(node)):
                call(function)
        return seen

    def comes_from(self, allowed: frozenset, scope: str | None, node, index: int) -> bool:
        """Returns whether input `index` of a node can only come from the allowed sources.

        These are names of nodes outside of functions, and numbers of the object graph's nodes.
        """
        known = self._from_allowed.setdefault(allowed, {})
        place = scope, _input_of(node, index)
        suppliers, todo = {}, [place]
        while todo:
            one = todo.pop()
            if one in known or one in suppliers:
                continue
            found = self._suppliers(allowed, *one)
            if found is None:
                known[one] = False
            else:
                suppliers[one] = found
                todo.extend(found)
        try:
            for one in graphlib.TopologicalSorter(suppliers).static_order():
                if one not in known:
                    known[one] = all(known[supplier] for supplier in suppliers[one])
        except graphlib.CycleError:  # nodes or functions that depend on themselves
            known.update(dict.fromkeys(suppliers, False))
        return known[place]

    def _suppliers(self, allowed, scope, name):
        """Returns where a value comes from; None if it may not come from an allowed source."""
        node = self._scopes[scope].get(name)
        if node is not None and node.op == "Identity":
            return [(scope, _input_of(node, 0))]
        if scope == _GRAPH:
            return [] if node is not None and name in allowed else None
        if node is not None or name not in self._arguments[scope]:
            return None
        index = self._arguments[scope][name]
        if scope in self.restored_functions:
            bound = self.restored_functions[scope].bound_inputs
            number = index - (len(self._functions[scope].signature.input_arg) - len(bound))
            if number < 0 or bound[number] not in allowed:
                return None
        found = []
        for outer, call, passes_inputs in self._callers.get(scope, ()):
            tensor = _input_of(call, index)
            if tensor is None or not passes_inputs:
                return None
            found.append((outer, tensor))
        return found

    def _find_callers(self):
        """Returns the scope and node of the calls of each function, and whether they pass inputs.

        A node that only names a function in an attribute may pass it arbitrary arguments.
        """
        callers = {}
        for scope, node in self.nodes():
            if scope == _GRAPH and self._has_objects:
                continue
            named = _functions_of(node)
            for function in {node.op} | named:
                if function in self._functions:
                    passes_inputs = function not in named or node.op in _CALLS
                    callers.setdefault(function, []).append((scope, node, passes_inputs))
        return callers


def _input_of(node, index: int) -> str | None:
    """Returns the node or argument that an input comes from, or None if there is no such input."""
    if index >= len(node.input) or node.input[index].startswith("^"):
        return None
    return _node_of(node.input[index])


def _functions_of(node) -> set[str]:
    """Returns the functions that a node's attributes name, also in nested attributes."""
    found = set()
    todo = list(node.attr.values())
    while todo:
        value = todo.pop()
        for function in (value.func, *value.list.func):
            if function.name:
                found.add(function.name)
            todo.extend(function.attr.values())
    return found


def _nodes_of(tensors) -> list[str]:
    return [_node_of(name) for tensor in tensors.values() for name in _tensor_names(tensor)]


def _tensor_names(tensor):
    kind = tensor.WhichOneof("encoding")
    if kind == "coo_sparse":
        return [value for _, value in tensor.coo_sparse.ListFields()]
    if kind == "composite_tensor":
        return [name for part in tensor.composite_tensor.components for name in _tensor_names(part)]
    return [tensor.name]


def _node_of(tensor: str) -> str:
    return tensor.removeprefix("^").split(":")[0]


def _is_inside(path, filename):
    root = os.path.realpath(path)
    return os.path.realpath(os.path.join(path, "assets", filename)).startswith(root + os.sep)
