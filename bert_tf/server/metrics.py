"""The metrics of the server, in Prometheus's text format."""

import functools

METRICS_PATH = "/monitoring/prometheus/metrics"  # TensorFlow Serving's default
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
        options = {"namespace": "bert_tf", "registry": registry}
        counter = functools.partial(prometheus_client.Counter, **options)
        gauge = functools.partial(prometheus_client.Gauge, **options)
        histogram = functools.partial(prometheus_client.Histogram, **options)
        seconds = functools.partial(histogram, buckets=_SECONDS)

        self.requests = counter("requests", "Answers sent.", ["protocol", "method", "status"])
        self.request_seconds = seconds(
            "request_seconds", "Time from a request's head to its answer.", ["protocol", "method"]
        )
        self.batch_seconds = seconds("batch_seconds", "Time to compute one batch.")
        self.batch_wait_seconds = seconds(
            "batch_wait_seconds", "Time that the oldest request of a batch waited."
        )
        self.refused = counter(
            "requests_refused", "Requests refused because of a flag of the server.", ["flag"]
        )
        self.loads = counter("model_loads", "Versions loaded, also again after a change.")
        self.failed_loads = counter("model_loads_failed", "Versions that could not be loaded.")
        self.requests_waiting = gauge("requests_waiting", "Requests in the queue of the model.")
        self.requests_in_progress = gauge("requests_in_progress", "Requests not yet answered.")
        self.version = gauge("model_version", "Model version that answers requests.")
        self.batch_rows = histogram("batch_rows", "Rows per batch.", buckets=_SIZES)
        self.batch_tokens = histogram(
            "batch_tokens", "Estimated tokens per batch.", buckets=_TOKENS
        )

    def page(self) -> tuple[bytes, str]:
        """Returns the metrics as text for Prometheus, and their content type."""
        return self._client.generate_latest(self._registry), self._client.CONTENT_TYPE_LATEST
