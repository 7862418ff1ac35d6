"""A local server with TensorFlow Serving's REST and gRPC interfaces, without TensorFlow Serving.

`application` receives a request, `guard` checks who asks (`access`), `rest_api` answers it:
`json_bodies` parses its body, `json_tensors` converts it to arrays for the `signatures` of the
model, `model_requests` checks it, `batcher` computes waiting requests together, within `limits`.
`grpc_server` and `grpc_api` do the same with messages, whose fields `message_size` counts and whose
tensors `tensor_protos` converts. `example_requests` is what both know of classifying and regressing
`tf.train.Example`s. `model_versions` loads models that `model_directory` finds, as `served_model`
after `graph_check`. What is in use, by `users`, is closed only afterwards.

Reference: tensorflow/serving, tensorflow_serving/g3doc/api_rest.md,
model_servers/http_rest_api_*.cc, model_servers/http_server.cc and util/json_tensor.cc.
"""

from bert_tf.base.lazy_names import lazy_names

__getattr__, __dir__, __all__ = lazy_names(
    __name__, {"PageServer": ".page_server", "page_policy": ".content_policy"}
)
