"""The forms of requests that clients of embeddings and rerankers send.

    POST /v1/embeddings and GET /v1/models     OpenAI's form, also of their errors
    POST /embed_sparse                         the form of Text Embeddings Inference
    POST /rerank, /v1/rerank and /v2/rerank    Cohere's form, and that of Text Embeddings Inference

They are answered by signatures from `text` to vectors of the texts (`_VECTORS`), and by one from
`query` and `document` to `score`, with the batches and limits of other requests. The specs of the
tasks declare them as `forms`. Fields that would change the answer and are not supported are
refused.

Reference: OpenAI's API reference, "Create embeddings" and "List models"; Cohere's, "Rerank"; the
OpenAPI description of huggingface/text-embeddings-inference, `/rerank` and `/embed_sparse`.
"""

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import Any, NamedTuple

import numpy as np

from bert_tf import tasks
from bert_tf.models import EMBEDDINGS, RERANK, SPARSE_EMBEDDINGS, TOKEN_EMBEDDINGS
from bert_tf.server.errors import RequestError, invalid
from bert_tf.server.json_bodies import abridge
from bert_tf.server.json_tensors import COLUMNS, PredictRequest, array_text
from bert_tf.server.served_model import ServedModel
from bert_tf.server.signatures import DEFAULT_SIGNATURE

MODELS_PATH = "/v1/models"
PATHS = {
    "/v1/embeddings": EMBEDDINGS,
    "/embed_sparse": SPARSE_EMBEDDINGS,
    "/rerank": RERANK,
    "/v1/rerank": RERANK,
    "/v2/rerank": RERANK,
}
_BYTES_OF_TOKEN = 4  # as batches are estimated
_OF_EVERY_FORM = {"model", "user", "truncate"}
_OF_EMBEDDINGS = {"input", "type"}  # of all types
_OF_TYPE = {
    "dense": {"encoding_format", "dimensions"},
    "colbert": {"encoding_format", "input_type"},
    "sparse": set(),
}
_INPUT_TYPES = {"document": "documents", "query": "queries"}  # their signatures
# Each type of vectors has a form that the spec of a model declares, a signature that the model then
# has, and an output of that.
_VECTORS = {
    "dense": (EMBEDDINGS, DEFAULT_SIGNATURE, "vector"),
    "colbert": (TOKEN_EMBEDDINGS, _INPUT_TYPES["document"], "vectors"),
    "sparse": (SPARSE_EMBEDDINGS, DEFAULT_SIGNATURE, "term_id"),
}
_OF_RERANK = {"query", "top_n", "top_k", "raw_scores"}
_OF_DOCUMENTS = {"documents", "return_documents", "rank_fields"}  # Cohere's form
_OF_TEXTS = {"texts", "return_text"}  # that of Text Embeddings Inference
_OPENAI_CODES = {
    HTTPStatus.UNAUTHORIZED: "invalid_api_key",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_exceeded",
}
_TEXTS_FOR_TOKENS = (
    ". Token ids are those of another tokenizer: send texts (LangChain's OpenAIEmbeddings does so "
    "with check_embedding_ctx_length=False)"
)


class Form(NamedTuple):
    """A request as one for the default signature, and how its answer is written."""

    request: PredictRequest
    parts: Callable[[Mapping[str, np.ndarray]], Iterator[str]]
    names: Mapping[str, str]  # of the inputs in the form, for errors
    repeated: tuple[str, ...] = ()  # inputs with one row, which belongs to every row of the others

    def completed(self, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Returns the arrays with as many rows of each; repeated strings share their memory."""
        rows = max(map(len, arrays.values()))
        return {
            name: np.repeat(array, rows) if name in self.repeated else array
            for name, array in arrays.items()
        }


def read_form(action: str, document: dict[str, Any], model: ServedModel, name: str) -> Form:
    """Reads the body of a request.

    Args:
        action: `EMBEDDINGS`, `SPARSE_EMBEDDINGS` or `RERANK`.
        document: The body.
        model: The model.
        name: Its name in requests.

    Raises:
        RequestError: If a value is missing or has another type, another model is named, or the
            model computes something else.
    """
    named = document.get("model")
    if named not in (None, name):
        message = f"`model` must be {name!r} or left out. Received: {abridge(named)}"
        raise RequestError(HTTPStatus.NOT_FOUND, message)
    readers = {EMBEDDINGS: _embeddings, SPARSE_EMBEDDINGS: _embed_sparse, RERANK: _rerank}
    return readers[action](document, model, name)


def is_openais(method: str, path: str) -> bool:
    """Returns whether a request has OpenAI's form, which its errors then have too."""
    return PATHS.get(path) == EMBEDDINGS or (method == "GET" and path == MODELS_PATH)


def openai_error(message: str, status: int) -> dict[str, Any]:
    """Returns the body of an error as OpenAI's clients read it.

    Example:
        >>> body = openai_error("`input` must be strings. Received: 1", 400)
        >>> body["error"]["type"], body["error"]["param"]
        ('invalid_request_error', 'input')
    """
    kind = "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    named = re.match(r"`([a-z_]+)` must", message)  # the form of all messages about a field
    param = named and named.group(1)
    code = _OPENAI_CODES.get(status)
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


def list_of_models(name: str, created: int) -> dict[str, Any]:
    """Returns the answer to `MODELS_PATH` of a server of one model.

    Example:
        >>> list_of_models("reviews", 0)["data"]
        [{'id': 'reviews', 'object': 'model', 'created': 0, 'owned_by': 'bert_tf'}]
    """
    model = {"id": name, "object": "model", "created": created, "owned_by": "bert_tf"}
    return {"object": "list", "data": [model]}


def _embeddings(document, model, name):
    kind = _vector_type(document, model)
    _require_supported(document, _OF_EMBEDDINGS | _OF_TYPE[kind])
    texts = document.get("input")
    texts = [texts] if isinstance(texts, str) else texts
    _require_texts("input", texts, texts)
    signature = _VECTORS[kind][1]
    if kind == "sparse":
        embeddings = _sparse_texts
    elif kind == "colbert":
        signature = _INPUT_TYPES[_one_of(document, "input_type", tuple(_INPUT_TYPES))]
        embeddings = _token_vector_texts(document)
    else:
        embeddings = _vector_texts(document, model)
    tokens = sum(-(-len(text.encode("utf-8", "replace")) // _BYTES_OF_TOKEN) for text in texts)
    end = {"model": name, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}}

    def parts(outputs):
        yield '{"object": "list", "data": ['
        for index, values in enumerate(embeddings(outputs)):
            yield ", " if index else ""
            yield f'{{"object": "embedding", "index": {index}, "embedding": {values}}}'
        yield "], " + json.dumps(end)[1:] + "\n"

    request = PredictRequest(signature, COLUMNS, {"text": texts})
    return Form(request, parts, names={"text": "input"})


def _vector_type(document, model):
    """Returns the type of vectors, a key of `_VECTORS`: the request's, or else the model's."""
    found = [kind for kind in _VECTORS if _has_vectors(model, kind)]
    if not found:
        _refuse(model, {form for form, _, _ in _VECTORS.values()}, {"text"}, "a vector")
    return _one_of(document, "type", tuple(found))


def _has_vectors(model, kind):
    _, name, output = _VECTORS[kind]
    signature = model.signatures.get(name)
    return (
        signature is not None and set(signature.inputs) == {"text"} and output in signature.outputs
    )


def _vector_texts(document, model):
    """Returns the function that yields the JSON text of each vector `[D]` of outputs."""
    as_text = _number_text(document)
    size = model.signatures[DEFAULT_SIGNATURE].outputs["vector"].shape[-1]
    dimensions = document.get("dimensions")
    if dimensions is not None:
        if type(dimensions) is not int or not 1 <= dimensions <= (size or dimensions):
            raise invalid(
                f"`dimensions` must be an integer from 1 to {size}. Received: {abridge(dimensions)}"
            )

    def texts(outputs):
        vectors = outputs["vector"]
        if dimensions is not None:
            vectors = vectors[:, :dimensions]
            if model.description.get("normalized") is True:
                norms = np.linalg.norm(vectors, axis=1, keepdims=True)
                vectors = vectors / np.where(norms > 0, norms, 1)
        return map(as_text, vectors)

    return texts


def _token_vector_texts(document):
    """Returns the function that yields the JSON text of the vectors `[tokens, D]` of each text."""
    as_text = _number_text(document)

    def texts(outputs):
        rows = zip(outputs["vectors"], outputs["vector_count"])
        return (as_text(vectors[:count]) for vectors, count in rows)

    return texts


def _number_text(document):
    """Returns the function that writes an array as the field `encoding_format` says."""
    if _one_of(document, "encoding_format", ("float", "base64")) == "float":
        return array_text
    return lambda array: f'"{base64.b64encode(array.astype("<f4").tobytes()).decode("ascii")}"'


def _sparse_texts(outputs):
    """Yields the JSON text of each sparse vector: the ids of its terms and their weights."""
    for ids, weights in _terms(outputs):
        yield f'{{"indices": {array_text(ids)}, "values": {array_text(weights)}}}'


def _terms(outputs):
    for ids, weights, count in zip(*(outputs[x] for x in ("term_id", "term_weight", "term_count"))):
        yield ids[:count], weights[:count]


def _embed_sparse(document, model, name):
    if not _has_vectors(model, "sparse"):
        _refuse(model, {SPARSE_EMBEDDINGS}, {"text"}, "a sparse vector")
    _require_supported(document, {"inputs"})
    texts = document.get("inputs")
    texts = [texts] if isinstance(texts, str) else texts
    _require_texts("inputs", texts, texts)

    def parts(outputs):
        for index, (ids, weights) in enumerate(_terms(outputs)):
            pairs = zip(ids.tolist(), json.loads(array_text(weights)))
            row = [{"index": term, "value": weight} for term, weight in pairs]
            yield (", " if index else "[") + json.dumps(row)
        yield "]\n"

    request = PredictRequest(DEFAULT_SIGNATURE, COLUMNS, {"text": texts})
    return Form(request, parts, names={"text": "inputs"})


def _rerank(document, model, name):
    _require(model, {"query", "document"}, "score", RERANK)
    query = document.get("query")
    if not isinstance(query, str):
        raise invalid(f"`query` must be a string. Received: {abridge(query)}")
    is_cohere = document.get("documents") is not None
    if is_cohere and document.get("texts") is not None:
        raise invalid("`texts` must be left out of a request with `documents`. Received: both")
    _require_supported(document, _OF_RERANK | (_OF_DOCUMENTS if is_cohere else _OF_TEXTS))
    if (fields := document.get("rank_fields")) not in (None, ["text"]):
        raise invalid(f'`rank_fields` must be ["text"] or left out. Received: {abridge(fields)}')
    key = "documents" if is_cohere else "texts"
    sent = texts = document.get(key)
    if sent is None:
        raise invalid(f"`documents` or `texts` must be strings. Received: {abridge(document)}")
    if is_cohere and isinstance(sent, list):
        texts = [text.get("text") if isinstance(text, dict) else text for text in sent]
    _require_texts(key, texts, sent)
    most, same = _count(document, "top_n"), _count(document, "top_k")
    if None not in (most, same) and most != same:
        raise invalid(f"`top_k` must be `top_n` or left out. Received: top_k={same}, top_n={most}")
    most = same if most is None else most
    returns_text = _flag(document, "return_documents" if is_cohere else "return_text")
    output = "logits" if _flag(document, "raw_scores") else "score"

    def parts(outputs):
        scores = outputs[output].reshape(-1)
        order = np.argsort(-scores, kind="stable")[:most]
        names = ("relevance_score", "document") if is_cohere else ("score", "text")
        rows = []
        for index, score in zip(order.tolist(), json.loads(array_text(scores[order]))):
            row = {"index": index, names[0]: score}
            if returns_text:
                row[names[1]] = {"text": texts[index]} if is_cohere else texts[index]
            rows.append(row)
        yield json.dumps({"results": rows} if is_cohere else rows, ensure_ascii=False) + "\n"

    values = {"query": [query], "document": texts}
    request = PredictRequest(DEFAULT_SIGNATURE, COLUMNS, values)
    return Form(request, parts, names={"document": key}, repeated=("query",))


def _require(model, inputs, output, form):
    """Refuses a model whose default signature is another one."""
    signature = model.signatures.get(DEFAULT_SIGNATURE)
    if signature is None or set(signature.inputs) != inputs or output not in signature.outputs:
        _refuse(model, {form}, inputs, repr(output))


def _refuse(model, forms, inputs, output):
    kinds = " or ".join(spec.model for spec in tasks.specs() if forms.intersection(spec.forms))
    signature = model.signatures.get(DEFAULT_SIGNATURE)
    raise RequestError(
        HTTPStatus.NOT_IMPLEMENTED,
        f"The model must be a {kinds}, with the inputs {sorted(inputs)} and the output {output}. "
        "Received: a request to a model with "
        f"{sorted(signature.inputs) if signature else 'no default signature'}",
    )


def _require_supported(document, names):
    """Refuses fields that are not supported, unless they are null."""
    names = names | _OF_EVERY_FORM
    for name, value in document.items():
        if value is not None and name not in names:
            raise invalid(
                f"`{name[:100]}` must be left out: this server does not support it. Supported: "
                f"{', '.join(sorted(names))}. Received: {abridge(value)}"
            )
    if document.get("truncate") not in (None, True):
        raise invalid(
            "`truncate` must be true or left out, because texts longer than the model reads are "
            f"cut. Received: {abridge(document['truncate'])}"
        )


def _require_texts(name, texts, sent):
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        kinds = "strings, or objects with a `text`" if name == "documents" else "strings"
        hint = _TEXTS_FOR_TOKENS if _are_tokens(texts) else ""
        raise invalid(f"`{name}` must be {kinds}. Received: {abridge(sent)}{hint}")
    if not texts:
        raise invalid(f"`{name}` must have at least one string. Received: []")


def _are_tokens(values):
    """Returns whether these are token ids of a text, or a list of them for each text."""
    first = values[0] if isinstance(values, list) and values else None
    return type(first) is int or (isinstance(first, list) and first and type(first[0]) is int)


def _count(document, name):
    value = document.get(name)
    if value is not None and (type(value) is not int or value < 1):
        raise invalid(f"`{name}` must be an integer of at least 1. Received: {abridge(value)}")
    return value


def _flag(document, name):
    value = document.get(name)
    if not (value is None or isinstance(value, bool)):
        raise invalid(f"`{name}` must be true or false. Received: {abridge(value)}")
    return bool(value)


def _one_of(document, name, values):
    value = document.get(name)
    value = values[0] if value is None else value
    if value not in values:
        raise invalid(f"`{name}` must be one of {values}. Received: {abridge(value)}")
    return value
