"""A local server with TensorFlow Serving's REST interface, for those who have none.

    json_tensors     request bodies to arrays, arrays to answers
    signatures       what a SavedModel takes and gives
    served_model     a SavedModel, loaded and ready to run
    graph_check      what a SavedModel would do besides computing; allowed_operations lists what
                     is only computing
    model_directory  what stands in a model's directory; this package's own models go through
                     export_for_server
    model_versions   loads new versions, switches to them, unloads old ones
    batcher          computes the waiting requests together
    described_inputs whether a request keeps to what `export` wrote about the model's inputs
    limits           how much the server takes on: its memory for requests, and bodies read
    rest_api         TensorFlow Serving's paths
    metrics          for Prometheus
    application      all of it on aiohttp, from the first version's loading to the graceful stop

Reference: tensorflow/serving, tensorflow_serving/g3doc/api_rest.md,
model_servers/http_rest_api_*.cc, model_servers/http_server.cc and util/json_tensor.cc.
"""
