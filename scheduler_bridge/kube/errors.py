"""What a call of the API server can end in, as OSErrors that say what to do.

`translated` wraps every call of the client; who writes catches `KubeError` and tries again later.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import httpx2
import msgspec
from lightkube import ApiError
from lightkube.core.exceptions import ConfigError

BUSY_CODES = frozenset({408, 429, 500, 502, 503, 504})
ADVICE = {
    401: "check the token or certificate of the kubeconfig",
    403: "give this account the role of deploy/",
    404: "it is gone, or its kind is not installed",
    409: "someone else changed it: read it again",
    410: "too old: list again",
    413: "the request is too large",
    422: "the API server finds it invalid",
}


class KubeError(OSError):
    """A call that failed. ``code`` is the HTTP status, 0 without an answer."""

    def __init__(
        self, message: str, code: int = 0, reason: str = "", retry_after_s: int = 0
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.retry_after_s = retry_after_s


class KubeUnreachable(KubeError):
    """No answer, or none of a Kubernetes API server. Whether the call took effect is unknown."""


class KubeBusy(KubeError):
    """The server cannot now (429, 5xx); an eviction that a budget forbids is a 429 too."""


class KubeRefused(KubeError):
    """The server will not, and asking the same again will not help (4xx)."""


class KubeMissing(KubeRefused):
    """404."""


class KubeConflict(KubeRefused):
    """409: another version, or it exists already."""


class KubeExpired(KubeRefused):
    """410: the version asked for is no longer kept."""


SPECIAL: dict[int, type[KubeRefused]] = {404: KubeMissing, 409: KubeConflict, 410: KubeExpired}


def refused(
    doing: str, code: int, message: str, reason: str = "", retry_after_s: int = 0
) -> KubeError:
    """The error of an answer with this HTTP status."""
    kind = KubeBusy if code in BUSY_CODES else SPECIAL.get(code, KubeRefused)
    advice = "try again later" if kind is KubeBusy else ADVICE.get(code, "")
    text = f"{doing}: {code} {message}" + (f" ({advice})" if advice else "")
    return kind(text, code, reason, retry_after_s)


def _of(error: Exception) -> str:
    """Who was asked, where that is known."""
    try:
        url = error.request.url  # type: ignore[attr-defined]
    except (AttributeError, RuntimeError):  # a timeout of ours; no request had begun
        return ""
    return f" of {url.scheme}://{url.netloc.decode()}"


def _why(error: Exception) -> str:
    what = str(error) or type(error).__name__
    if "CERTIFICATE_VERIFY_FAILED" in what:
        return f"{what}: check the certificate-authority and the server's name in the kubeconfig"
    return what


@contextmanager
def translated(doing: str) -> Iterator[None]:
    """Raise `KubeError` for whatever the client raises; ``doing`` begins the message."""
    try:
        yield
    except ApiError as error:
        status = error.status
        after = status.details.retryAfterSeconds if status.details else None
        raise refused(
            doing, status.code or 0, status.message or "", status.reason or "", after or 0
        ) from error
    except httpx2.HTTPStatusError as error:  # an answer that is no Status: from a proxy between
        code = error.response.status_code
        raise refused(doing, code, error.response.reason_phrase) from error
    except (httpx2.HTTPError, httpx2.StreamError, TimeoutError) as error:
        raise KubeUnreachable(f"{doing}: no answer{_of(error)} ({_why(error)})") from error
    except ConfigError as error:  # a token file that vanished, a login program that failed
        raise KubeRefused(f"{doing}: {error}") from error
    except (msgspec.MsgspecError, KeyError) as error:
        raise KubeUnreachable(f"{doing}: not the answer of an API server ({error})") from error
