"""A local server with TensorFlow Serving's REST interface, for those who have none.

    json_tensors     request bodies to arrays, arrays to answers
    signatures       what a SavedModel takes and gives
    served_model     a SavedModel, loaded and ready to run
    model_directory  what stands in a model's directory; this package's own models go through
                     export_for_server
    model_versions   loads new versions, switches to them, unloads old ones
    batcher          computes the waiting requests together
    limits           how much the server takes on, and bodies read within it
    rest_api         TensorFlow Serving's paths
    metrics          for Prometheus
    application      all of it on aiohttp, from the first version's loading to the graceful stop

Reference: tensorflow/serving, tensorflow_serving/g3doc/api_rest.md,
model_servers/http_rest_api_*.cc, model_servers/http_server.cc and util/json_tensor.cc.
"""
