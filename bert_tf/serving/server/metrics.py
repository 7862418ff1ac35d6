"""The metrics of the server, in Prometheus's text format."""

PATH = "/monitoring/prometheus/metrics"  # TensorFlow Serving's default
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
_TOKENS = (16, 64, 256, 512, 1024, 2048, 4096, 8192, 16384)


class Metrics:
    """The metrics of one server, in a separate registry."""

    def __init__(self):
        import prometheus_client

        self._client = prometheus_client
        self._registry = registry = prometheus_client.CollectorRegistry()
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
            "request_seconds", "Time from a request's head to its answer.", _SECONDS, ("method",)
        )
        self.batch_seconds = histogram("batch_seconds", "Time to compute one batch.", _SECONDS)
        self.requests_in_progress = gauge("requests_in_progress", "Requests not yet answered.")
        self.version = gauge("model_version", "Model version that answers requests.")
        self.batch_rows = histogram("batch_rows", "Rows per batch.", _SIZES)
        self.batch_tokens = histogram("batch_tokens", "Estimated tokens per batch.", _TOKENS)
        self.batch_wait_seconds = histogram(
            "batch_wait_seconds", "Time that the oldest request of a batch waited.", _SECONDS
        )

    def page(self) -> tuple[bytes, str]:
        """Returns the metrics as text for Prometheus, and their content type."""
        return self._client.generate_latest(self._registry), self._client.CONTENT_TYPE_LATEST
