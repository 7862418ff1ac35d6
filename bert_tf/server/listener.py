"""The socket of a server, bound before a model is loaded, and what reads and writes HTTP on it."""

import logging
import socket

from bert_tf.errors import user_error
from bert_tf.server.limits import Limits


def listen(host: str, port: int, write_timeout: float) -> socket.socket:
    """Binds a socket, which begins to listen when the server starts.

    Args:
        host: The address, or a name of it.
        port: The port; 0 chooses a free one.
        write_timeout: Seconds after which connections are closed whose client receives nothing;
            only on Linux.

    Returns:
        The socket; the caller closes it.

    Raises:
        UserError: If it is no free address of this machine.
    """
    listener = None
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            milliseconds = max(1, round(1000 * write_timeout))
            listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
        listener.bind((host, port))
    except (OSError, UnicodeError) as error:  # UnicodeError: a name with a label that is too long
        if listener is not None:
            listener.close()
        expected = "be a free address of this machine"
        received = f"host={host!r}, port={port} ({error})"
        raise user_error("`host` and `port`", expected, received) from None
    return listener


def print_address(name: str, listener: socket.socket) -> None:
    """Prints where a browser finds what is served."""
    host, port = listener.getsockname()[:2]
    host = f"[{host}]" if ":" in host else host
    print(f"{name}: http://{host}:{port}/", flush=True)


def make_runner(web, application, limits: Limits, **options):
    """Returns the `aiohttp.web.AppRunner` of an application, with these further options.

    Args:
        web: The module `aiohttp.web`.
        application: The `Application`.
        limits: The limits of requests.
        **options: Arguments of `AppRunner`.
    """
    quiet = logging.getLogger("bert_tf.serving.http")  # logs invalid HTTP of clients
    quiet.setLevel(logging.CRITICAL)
    return web.AppRunner(
        application,
        access_log=None,
        logger=quiet,
        keepalive_timeout=limits.idle_timeout,
        auto_decompress=False,  # see `read_body`
        handler_cancellation=True,  # do not compute requests of disconnected clients
        **options,
    )
