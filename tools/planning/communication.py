"""The time that devices need to exchange data.

Gradients are summed after the backward pass, in one all-reduce: TensorFlow joins all gradients of a
replica into one tensor (`CollectiveReplicaLauncher.batch_all_reduce`), and the clipping needs their
norm. So communication does not overlap with the backward pass.

Reference: Patarasuk and Yuan 2009, "Bandwidth optimal all-reduce algorithms".
"""

import dataclasses


@dataclasses.dataclass(frozen=True)
class Link:
    """What connects a device to another one.

    Args:
        bandwidth: Bytes per second in one direction.
        latency: Seconds of one message.
    """

    bandwidth: float
    latency: float

    def send(self, num_bytes: float) -> float:
        """Returns the seconds to send bytes to another device."""
        return self.latency + num_bytes / self.bandwidth


def ring_all_reduce(num_bytes: float, num_devices: int, link: Link) -> float:
    """Returns the seconds of a ring all-reduce: 2(n - 1) messages of bytes / n each."""
    messages = 2 * (num_devices - 1)
    return messages * link.send(num_bytes / num_devices)


def all_reduce(num_bytes: float, within: int, machines: int, inner: Link, outer: Link) -> float:
    """Returns the seconds of an all-reduce in two levels.

    Every machine sums with a reduce-scatter, the parts are summed between machines, each by another
    device and its network card, and an all-gather ends it.

    Args:
        num_bytes: Bytes of the gradients of one device.
        within: Number of devices per machine that take part.
        machines: Number of machines.
        inner: The link within a machine.
        outer: The link between machines, per device.
    """
    seconds = ring_all_reduce(num_bytes, within, inner)
    return seconds + ring_all_reduce(num_bytes / within, machines, outer)
