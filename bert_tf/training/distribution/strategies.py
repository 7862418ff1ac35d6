"""`tf.distribute` strategies by name, what workers send each other, and the watch over them."""

import contextlib
import dataclasses
import functools
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable

import keras
import tensorflow as tf

from bert_tf.base.supervision import PEER_GONE
from bert_tf.errors import UserError, user_error

STRATEGIES = ("one_device", "mirrored", "multi_worker_mirrored", "tpu", "parameter_server")


class AddressInUse(UserError):
    """The server of this worker cannot start: another process listens on its port.

    Example:
        >>> issubclass(AddressInUse, bert_tf.errors.UserError)
        True
    """


def make_strategy(name: str, tpu: str | None = None) -> tf.distribute.Strategy:
    """Creates a strategy. Call it before any other TensorFlow function.

    Args:
        name: "one_device" (a GPU if there is one, otherwise the CPU), "mirrored" (all GPUs of this
            machine or, without a GPU, its logical CPUs), "multi_worker_mirrored" (the machines in
            the environment variable TF_CONFIG) or "tpu" (the TPU with the name `tpu`).
        tpu: The name or address of the TPU. None uses the environment.

    Raises:
        AddressInUse: If the port of this worker in TF_CONFIG is in use.
        UserError: If the strategy is unknown or not available here.

    Example:
        >>> strategy = bert_tf.training.make_strategy("one_device")
        >>> strategy.num_replicas_in_sync
        1
    """
    if name == "one_device":
        return tf.distribute.get_strategy()
    if name == "mirrored":
        kind = "GPU" if tf.config.list_physical_devices("GPU") else "CPU"
        devices = [device.name for device in tf.config.list_logical_devices(kind)]
        return tf.distribute.MirroredStrategy(devices)
    if name == "multi_worker_mirrored":
        address = _require_cluster()
        try:
            return tf.distribute.MultiWorkerMirroredStrategy()
        except tf.errors.UnknownError as error:
            raise AddressInUse(
                f"The address of this worker in `TF_CONFIG` must be free. Received: {address} "
                f"({error.message})"
            ) from None
    if name == "tpu":
        return _tpu_strategy(tpu)
    if name == "parameter_server":
        raise UserError(
            "`name` must be a strategy that Keras 3 supports. Received: name='parameter_server', "
            "which needs a ClusterCoordinator that Keras 3 does not use. Use "
            "'multi_worker_mirrored', which also trains on several machines."
        )
    raise UserError(f"`name` must be one of {STRATEGIES}. Received: name={name!r}")


def is_chief(strategy: tf.distribute.Strategy | None = None) -> bool:
    """Returns whether this process writes the files: it is the first worker or the only one.

    Example:
        >>> bert_tf.training.distribution.is_chief()
        True
    """
    resolver = (strategy or tf.distribute.get_strategy()).cluster_resolver
    if resolver is None or resolver.task_type is None:
        return True
    has_chief = "chief" in resolver.cluster_spec().as_dict()
    return resolver.task_type == "chief" or (not has_chief and resolver.task_id == 0)


def worker_addresses(strategy: tf.distribute.Strategy | None = None) -> dict[str, str]:
    """Returns the addresses of the other workers: "host:port" by a name such as "worker 1"."""
    resolver = (strategy or tf.distribute.get_strategy()).cluster_resolver
    if resolver is None or resolver.task_type is None:
        return {}
    return {
        f"{task} {index}": address
        for task, addresses in resolver.cluster_spec().as_dict().items()
        for index, address in enumerate(addresses)
        if task in ("chief", "worker") and (task, index) != (resolver.task_type, resolver.task_id)
    }


def _require_cluster():
    """Checks TF_CONFIG. Returns the address of this worker."""
    expected = (
        "`TF_CONFIG` must describe the cluster, such as "
        '{"cluster": {"worker": ["a:2222", "b:2222"]}, "task": {"type": "worker", "index": 0}}'
    )
    text = os.environ.get("TF_CONFIG")
    if not text:
        raise UserError(f"{expected}. Received: no TF_CONFIG. For one machine use 'mirrored'.")
    try:
        values = json.loads(text)
        cluster, task = values["cluster"], values["task"]
        addresses = cluster[task["type"]]
        known = int(task["index"]) in range(len(addresses))
    except (ValueError, KeyError, TypeError):
        raise UserError(f"{expected}. Received: {text}") from None
    if not known:
        expected = f"be in [0, {len(addresses)}), the number of addresses"
        raise user_error("The task index in `TF_CONFIG`", expected, f"index={task['index']}")
    others = sorted(set(cluster) - {"chief", "worker"})
    if others:
        raise user_error("The cluster in `TF_CONFIG`", "have only 'worker' and 'chief'", others)
    return addresses[int(task["index"])]


def _tpu_strategy(tpu):
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=tpu or "")
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    except (ValueError, RuntimeError, OSError, tf.errors.OpError) as error:
        raise UserError(
            f"`tpu` must be an available TPU ({str(error).strip().splitlines()[0][:200]}). "
            f"Received: tpu={tpu!r}. On a TPU machine, install tensorflow-tpu. On other machines, "
            "use 'one_device' or 'mirrored'."
        ) from None


def largest_of_workers(strategy: tf.distribute.Strategy, number: int) -> int:
    """Returns the largest `number` of all workers. All workers must call it."""
    values = strategy.experimental_distribute_values_from_function(
        lambda context: tf.constant([number], tf.int32)
    )
    return int(_largest_function(strategy)(values))


@functools.lru_cache(maxsize=1)
def _largest_function(strategy):
    return tf.function(lambda value: tf.reduce_max(strategy.gather(value, axis=0)))


def end_together(strategy: tf.distribute.Strategy) -> None:
    """Waits until no worker needs this one any more. All workers must call it before they exit."""
    if not worker_addresses(strategy):
        return
    largest_of_workers(strategy, 0)  # all have come here
    # A worker that has received all parts of an exchange may exit before a slower one has received
    # its own. In a second exchange that is no fault: every worker is through with the first one.
    with contextlib.suppress(tf.errors.OpError):
        largest_of_workers(strategy, 0)


REFUSED_CONNECTIONS = 3  # in a row


@dataclasses.dataclass(eq=False)
class WorkerHealthMonitor(keras.callbacks.Callback):
    """On several machines, ends this process with a message when another worker is gone.

    Inside a TensorFlow collective, a worker may wait forever for a worker that has died, and no
    Python exception can interrupt it. Therefore, a thread connects to the ports of the other
    workers' TensorFlow servers. A worker is gone if its port is closed three times in a row (its
    process has ended), or if it has not answered for `patience` seconds (its machine or the network
    is down). The exit status is then 75, after which tools/launch_workers.py starts all again.

    A worker that hangs still accepts connections and is not noticed here. The launcher notices it
    by the callback `Heartbeat`.

    Args:
        newest_checkpoint: A function that returns the path that the message names, or None.
        interval: The number of seconds between two connections.
        patience: The number of seconds without an answer.

    Example:
        >>> checkpoint = bert_tf.training.TrainingCheckpoint("checkpoints")
        >>> monitor = bert_tf.training.distribution.WorkerHealthMonitor(checkpoint.newest)
    """

    newest_checkpoint: Callable[[], str | None] = lambda: None
    interval: float = 1.0
    patience: float = 30.0

    def __post_init__(self):
        super().__init__()
        self._stop = None

    def on_train_begin(self, logs=None):
        addresses = worker_addresses(self.model.distribute_strategy)
        if addresses and self._stop is None:
            self._stop = threading.Event()
            threading.Thread(target=self._watch, args=(addresses,), daemon=True).start()

    def stop(self) -> None:
        """Stops monitoring: the other workers may end now."""
        if self._stop is not None:
            self._stop.set()
            self._stop = None

    def _watch(self, addresses):
        stop = self._stop
        answered = dict.fromkeys(addresses, time.monotonic())
        closed = dict.fromkeys(addresses, 0)
        while not stop.wait(self.interval):
            for worker, address in addresses.items():
                try:
                    host, port = address.rsplit(":", 1)
                    socket.create_connection((host, int(port)), timeout=5.0).close()
                    answered[worker], closed[worker] = time.monotonic(), 0
                except ConnectionRefusedError:
                    closed[worker] += 1
                except OSError:
                    closed[worker] = 0
                silent = time.monotonic() - answered[worker]
                if closed[worker] == REFUSED_CONNECTIONS or silent > self.patience:
                    leave(
                        f"{worker} ({address}) is gone: no answer for {silent:.0f} s",
                        self.newest_checkpoint(),
                    )


def leave(reason: str, checkpoint: str | None) -> None:
    """Ends this process with status 75 and a message, even if other threads are waiting."""
    print(
        f"\nerror: {reason}: this worker ends too. The newest checkpoint is "
        f"{checkpoint or 'none'}; start all workers again to resume from it.",
        file=sys.stderr,
        flush=True,
    )
    # Not sys.exit: TensorFlow would wait for the dead worker while it shuts down.
    os._exit(PEER_GONE)
