"""Which machine this process is on, for directories that several machines see.

A machine is its name and its boot: two with one name differ by their boots, and so does one machine before and after a
restart. GRPOCTL_HOST gives the name where the system's would not do (containers that are all called alike).
"""

from __future__ import annotations

import hashlib
import os
import socket
from contextlib import suppress
from functools import cache
from pathlib import Path

HOST_VARIABLE = "GRPOCTL_HOST"


def host_name() -> str:
    """GRPOCTL_HOST, else the system's name."""
    return os.environ.get(HOST_VARIABLE) or socket.gethostname()


@cache
def boot_id() -> str:
    """What the kernel drew when it started; empty where it does not say."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return ""


def host_tag() -> str:
    """8 hex digits of the name and the boot, for names of files: process ids repeat from machine to machine."""
    return hashlib.sha256(f"{host_name()}\n{boot_id()}".encode()).hexdigest()[:8]
