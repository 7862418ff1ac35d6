"""Who may send requests to a server: by its host names, by sites in a browser and by API keys.

A browser sends the requests of any page that it shows, also to this machine. Therefore:

- `Host` must be this machine, the address that the connection came in at, or an allowed name. A
  site that gives its own name the address of this machine (DNS rebinding) is refused by it.
- `Origin`, which a browser sends with every request that could change something or that another
  site makes, must be the server's own or an allowed site.
- A request with an `Origin` and a body must be JSON, which a page of another site cannot send
  without asking first (a preflight). Requests without one are not from a browser: as in TensorFlow
  Serving their content type does not matter, because `curl -d` sends that of a form.
"""

import contextlib
import dataclasses
import functools
import hmac
import ipaddress
import urllib.parse
from http import HTTPStatus

from bert_tf.server.errors import RequestError

ANY = "*"
_JSON = "application/json"
HEALTH, READY = "/healthz", "/readyz"
PROBES = (HEALTH, READY)  # load balancers ask them by any name and without a key
_PAGE = "/"  # without the model's facts
_PREFLIGHT_SECONDS = "600"  # that a browser remembers what it may send


@dataclasses.dataclass(frozen=True)
class Access:
    """Who may send requests."""

    host: str  # that the server listens on
    allowed_hosts: tuple[str, ...] = ()  # names in `Host`, without ports; `ANY` allows all
    allowed_origins: tuple[str, ...] = ()  # sites, such as https://app.example; `ANY` allows all
    api_keys: tuple[str, ...] = dataclasses.field(default=(), repr=False)  # without any: everyone
    json_only: bool = False  # whether bodies must be JSON also if they do not come from a browser

    def check(self, request) -> None:
        """Raises a `RequestError` if an aiohttp request is not allowed."""
        if request.path in PROBES:
            return
        self._check_host(request)
        origin = request.headers.get("Origin")
        if not (origin is None or _is_own(origin, request) or self._is_allowed(origin)):
            message = f"Requests from another origin are refused. Received: Origin {origin}."
            raise RequestError(HTTPStatus.FORBIDDEN, message, flag="allowed_origins")
        if is_preflight(request):
            return  # it has neither key nor body
        if request.path != _PAGE:
            self.check_key(request)
        needs_json = self.json_only or origin is not None
        if needs_json and request.method == "POST" and request.content_type != _JSON:
            message = f"A request must be {_JSON}. Received: {request.content_type}"
            raise RequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, message)

    def cors_headers(self, request) -> dict[str, str]:
        """Returns what lets the page of an allowed site read the answer; empty for others."""
        origin = request.headers.get("Origin")
        if not self.allowed_origins:
            return {}
        if origin is None or not self._is_allowed(origin):
            return {"Vary": "Origin"}
        headers = {"Vary": "Origin", "Access-Control-Allow-Origin": origin}
        if is_preflight(request):
            headers["Access-Control-Allow-Methods"] = "GET, POST"
            headers["Access-Control-Max-Age"] = _PREFLIGHT_SECONDS
            names = request.headers.get("Access-Control-Request-Headers")
            if names is not None and names.isascii():
                headers["Access-Control-Allow-Headers"] = names
            if "Access-Control-Request-Private-Network" in request.headers:
                headers["Access-Control-Allow-Private-Network"] = "true"
        return headers

    def _check_host(self, request):
        name = _name(request.headers.get("Host", ""))
        address, here = _address(name), request.get_extra_info("sockname")
        is_own = address is not None and (
            address.is_loopback or (here is not None and address == _address(here[0]))
        )
        names = ("localhost", self.host.lower(), *map(str.lower, self.allowed_hosts))
        if not (is_own or name in names or ANY in names):
            message = f"The server must be opened by the address that is printed. Received: {name}."
            raise RequestError(HTTPStatus.FORBIDDEN, message, flag="allowed_hosts")

    def check_key(self, request) -> None:
        """Raises a `RequestError` if the headers of a request have no key, and one is needed."""
        if not self.api_keys:
            return
        header = request.headers.get("Authorization", "")
        scheme, _, sent = header.partition(" ")
        given = sent.strip().encode("utf-8", "surrogateescape")
        # All are compared, each in constant time, so that the time says nothing about a key.
        matches = [hmac.compare_digest(given, key.encode()) for key in self.api_keys]
        if scheme.lower() != "bearer" or not any(matches):
            received = "another key" if header else "none"
            message = (
                f"`Authorization` must be Bearer and a key of this server. Received: {received}"
            )
            headers = {"WWW-Authenticate": "Bearer"}
            raise RequestError(
                HTTPStatus.UNAUTHORIZED, message, flag="api_key_file", headers=headers
            )

    def _is_allowed(self, origin):
        # Answers repeat the origin, and a header that is not ASCII cannot be sent.
        return origin.isascii() and (origin in self.allowed_origins or ANY in self.allowed_origins)


def is_preflight(request) -> bool:
    """Returns whether a browser asks what the page of another site may send."""
    return request.method == "OPTIONS" and "Access-Control-Request-Method" in request.headers


def _is_own(origin, request):
    """Returns whether the server's own page asks; with TLS it was opened through a proxy."""
    host = request.headers.get("Host", "")
    return origin in (f"http://{host}", f"https://{host}")


@functools.lru_cache(maxsize=64)  # a server has few names, and every request is checked
def _name(host):
    """Returns the name in a `Host` header, without the port; empty if it is malformed."""
    with contextlib.suppress(ValueError):
        return urllib.parse.urlsplit(f"//{host}").hostname or ""
    return ""


@functools.lru_cache(maxsize=64)
def _address(name):
    """Returns the IP address, IPv4 also where a socket writes it as IPv6; None if it is a name."""
    with contextlib.suppress(ValueError):
        address = ipaddress.ip_address(name)
        return getattr(address, "ipv4_mapped", None) or address
    return None
