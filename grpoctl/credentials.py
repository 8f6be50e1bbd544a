"""Passwords taken out of URLs, and out of what is said about them, before anything is shown or written down.

A mistyped URL (`http//user:password@host`) has a password all the same. Drivers and servers quote parts of what they
were given, so what is secret in the URLs of our two variables and of the command line is taken out of every text.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from urllib.parse import quote, unquote

STORAGE_VARIABLE = "GRPOCTL_STORAGE"  # `sweep --storage`, where the command line does not give it
TRACKING_VARIABLE = "MLFLOW_TRACKING_URI"

_HIDDEN = "***"
# Scheme and marks, each of which may be missing or wrong: `http://`, `http//`, `http:/`, `http:`, `http/`, `//`.
_START = re.compile(r"(?:[A-Za-z][\w+.-]*(?::/*|/+)|//+)?")
_FILE = re.compile(r"(?i)file:|sqlite(\+\w+)?:(?!//[^/])|\.{0,2}/(?!/)|~")
# In a text a URL ends at a space or a quote, and its host at a slash.
_USERINFO = re.compile(r"(?<=[:/]/)(?![^\s/'\"?#:@]*:\*\*\*@)[^\s/'\"?#]*@")
_NAMES = r"(?i)(?<=[?&;])([\w-]*(?:token|secret|password|passwd|pwd|key|sig|signature)=)"
_FIELD_IN_TEXT = re.compile(_NAMES + r"([^&;\s'\"]+)")
_FIELD_OF_URL = re.compile(_NAMES + r"([^&]+)")
_LONG = 6  # characters of a secret that is looked for inside words too


def masked(url: str, *, user: bool = True) -> str:
    """The URL with *** for its password, or for all that stands before its host where `user` is not shown either.

    A password may hold an @, a slash or a space: it is taken to end at the last @.
    """
    head, info, tail = _divided(url)
    name, colon, _ = info.partition(":")
    if info and not (user and head.endswith("/")):  # without a slash the name may be a part of the password
        info = _HIDDEN
    elif colon:
        info = f"{name}:{_HIDDEN}"
    return head + info + _FIELD_OF_URL.sub(rf"\1{_HIDDEN}", tail)


def without_credentials(text: str, *urls: str) -> str:
    """The text with *** for the user part of every URL in it, and for every field called like a secret.

    What is secret in `urls`, in those of our variables and of the command line is hidden wherever it stands, also by
    itself. One that is masked already keeps its user.
    """
    ours = (os.environ.get(name, "").strip() for name in (STORAGE_VARIABLE, TRACKING_VARIABLE))
    typed = (word for word in sys.argv if ":" in word.partition("@")[0] and "@" in word and not re.search(r"\s", word))
    for url in filter(None, (*urls, *ours, *typed)):
        text = text.replace(url, masked(url, user=False))
        for secret in sorted(_secrets(url), key=len, reverse=True):
            edges = ("", "") if len(secret) >= _LONG else (r"(?<!\w)", r"(?!\w)")
            text = re.sub(re.escape(secret).join(edges), _HIDDEN, text)
    return _FIELD_IN_TEXT.sub(rf"\1{_HIDDEN}", _USERINFO.sub(f"{_HIDDEN}@", text))


def mistyped(url: str) -> bool:
    """Whether it has a user or password as a URL has, and is none: its scheme or the :// after it is missing."""
    return bool(_divided(url)[1]) and re.match(r"[A-Za-z][\w+.-]*://", url) is None


def _divided(url: str) -> tuple[str, str, str]:
    """What stands before user and password, these two (empty where there are none), and the rest from the @ on."""
    start = _START.match(url)
    begin = start.end() if start is not None else 0
    end = url.rfind("@")
    info = url[begin : max(begin, end)]
    of_a_path = ":" not in info and (begin == 0 or re.search("[/?#]", info) is not None)
    if of_a_path or _FILE.match(url):
        return "", "", url
    return url[:begin], info, url[begin + len(info) :]


def _secrets(url: str) -> Iterator[str]:
    """The password as it stands and decoded, and what of it a reader takes for it who divides the URL elsewhere."""
    head, info, tail = _divided(url)
    name, _, password = info.partition(":")
    public = {name, *re.findall(r"\w+", head + _FIELD_OF_URL.sub("", tail))}
    for value in (password, *(match[2] for match in _FIELD_OF_URL.finditer(tail))):
        forms = {value, unquote(value), quote(value, safe=""), quote(f":{value}@", safe="") if value else ""}
        pieces = {piece for form in forms for piece in (form, *re.split(r"[@:/?#\s]", form))}
        yield from (piece for piece in pieces if len(piece) > 1 and piece not in public)
