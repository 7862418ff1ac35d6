"""What the server counts, in Prometheus's text format."""

from bert_tf.errors import UserError

PATH = "/monitoring/prometheus/metrics"  # TensorFlow Serving's, where its configuration names none
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_TOKENS = (16, 64, 256, 512, 1024, 2048, 4096, 8192, 16384)


class Metrics:
    """Counters of one server, in a registry of their own.

    Attributes:
        requests: Answers by method and HTTP status.
        request_seconds: From a request's head to its answer, by method.
        batch_seconds: Of one batch's computation.
        requests_in_progress: Requests that have come and are not yet answered.
        version: The version that requests go to which name none.

    Raises:
        UserError: If prometheus-client is not installed.
    """

    def __init__(self):
        try:
            import prometheus_client
        except ImportError:
            raise UserError(
                "The server needs aiohttp and prometheus-client: pip install 'bert-tf[serve]'"
            ) from None
        self._client = prometheus_client
        self.registry = registry = prometheus_client.CollectorRegistry()
        prometheus_client.ProcessCollector(registry=registry)  # memory, file descriptors, CPU

        def counter(name, text, labels=()):
            return prometheus_client.Counter(f"bert_tf_{name}", text, labels, registry=registry)

        def histogram(name, text, buckets, labels=()):
            return prometheus_client.Histogram(
                f"bert_tf_{name}", text, labels, buckets=buckets, registry=registry
            )

        def gauge(name, text):
            return prometheus_client.Gauge(f"bert_tf_{name}", text, registry=registry)

        self.requests = counter("requests", "Answers sent.", ("method", "status"))
        self.request_seconds = histogram(
            "request_seconds", "From a request's head to its answer.", _SECONDS, ("method",)
        )
        self.batch_seconds = histogram("batch_seconds", "Computing one batch.", _SECONDS)
        self.requests_in_progress = gauge("requests_in_progress", "Requests not yet answered.")
        self.version = gauge("model_version", "The version that answers.")
        self._rows = histogram("batch_rows", "Rows of a batch.", _SIZES)
        self._tokens = histogram("batch_tokens", "Tokens of a batch, estimated.", _TOKENS)
        self._waited = histogram(
            "batch_wait_seconds", "How long a batch's oldest request waited.", _SECONDS
        )

    def count_batch(self, rows: int, tokens: int, waited: float) -> None:
        """Counts a batch that is about to be computed."""
        self._rows.observe(rows)
        self._tokens.observe(tokens)
        self._waited.observe(waited)

    def page(self) -> tuple[bytes, str]:
        """The text that Prometheus reads, and its content type."""
        return self._client.generate_latest(self.registry), self._client.CONTENT_TYPE_LATEST
