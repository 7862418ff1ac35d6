"""A local server with TensorFlow Serving's REST interface, which needs no TensorFlow Serving.

    json_tensors     converts request bodies to arrays and arrays to response bodies
    signatures       the inputs and outputs of a SavedModel
    served_model     a loaded SavedModel
    graph_check      finds what a SavedModel would do besides computing; allowed_operations lists
                     the operations that only compute
    model_directory  finds the models in a directory; export_for_server exports this package's
                     models
    model_versions   loads new versions, switches to them and unloads old ones
    users            counts what is in use, so that it can be closed afterwards
    batcher          computes waiting requests together
    described_inputs checks that a request matches the description that `export` wrote
    limits           limits of requests, their memory and the reading of bodies
    rest_api         TensorFlow Serving's REST paths
    metrics          metrics for Prometheus
    application      the aiohttp server, from loading the first version to graceful shutdown

Reference: tensorflow/serving, tensorflow_serving/g3doc/api_rest.md,
model_servers/http_rest_api_*.cc, model_servers/http_server.cc and util/json_tensor.cc.
"""
