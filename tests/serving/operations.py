"""What a SavedModel's graph is made of."""

import pathlib

from tensorflow.core.protobuf import saved_model_pb2


def operations(path) -> set[str]:
    """Every operation in the SavedModel, its functions' included; not the functions themselves."""
    saved_model = saved_model_pb2.SavedModel()
    saved_model.ParseFromString((pathlib.Path(path) / "saved_model.pb").read_bytes())
    graph = saved_model.meta_graphs[0].graph_def
    names = {node.op for node in graph.node}
    for function in graph.library.function:
        names |= {node.op for node in function.node_def}
    return names - {function.signature.name for function in graph.library.function}
