"""What is said of reward functions in the log: losses, what they print, files that change. Counting is not here."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence

from core.tasks.rewards.found import Reward

PRINTED = 1 << 18  # bytes of what functions print that are noted, over the whole run
DIFFERENT = 50  # errors that are noted in full
_LINE = 300  # characters of an error's own line
_PLACE = re.compile(r'^  +File "(.+?)", line (\d+)', re.MULTILINE)
_LIBRARY = ("/site-packages/", "/lib/python", "<frozen ")

_log = logging.getLogger("core.tasks.rewards")


class Notes:
    """Writes to the logger `core.tasks.rewards`: warnings of losses, each error in full once; a bounded amount."""

    def __init__(self) -> None:
        self._told: set[str] = set()
        self._stepless: set[str] = set()
        self._printed = 0

    def losses(self, reward: Reward, count: int, lost: Mapping[int, str], first: str) -> None:
        """A call for `count` completions failed with `first`; `lost` are the rows that stayed without a value."""
        _log.warning(
            "reward %s: the call for %d completions failed: %s; asked for one by one, %d of them got no value",
            reward.spec.label, count, gist(first), len(lost),
        )  # fmt: skip
        for error in (first, *list(lost.values())[:1]):
            if "\n" in error and gist(error) not in self._told and len(self._told) < DIFFERENT:
                self._told.add(gist(error))
                _log.warning("reward %s: in full:\n%s", reward.spec.label, error)

    def printed(self, text: str, count: int) -> None:
        """The end of what functions printed, of `count` bytes in all."""
        if self._printed >= PRINTED:
            return
        cut = f"(the end of {count} bytes) " if count > len(text.encode()) else ""
        _log.info("printed by rewards: %s%s", cut, text.rstrip())
        self._printed += len(text)
        if self._printed >= PRINTED:
            _log.info("printed by rewards: more than %d bytes; the rest is not noted", PRINTED)

    def not_imported(self, what: str, error: str) -> None:
        """The traceback of an import."""
        _log.error("importing %s failed:\n%s", what, error)

    def no_step(self, rewards: Sequence[Reward]) -> None:
        """Nobody says which step it is, and a function asks for it by name. Noted once."""
        for reward in rewards:
            if "trainer_state" in reward.named and reward.spec.label not in self._stepless:
                self._stepless.add(reward.spec.label)
                text = "reward %s: asks for trainer_state, whose global_step is 0 here at every step"
                _log.warning(text, reward.spec.label)

    def changes(self, before: Sequence[Reward], now: Sequence[Reward]) -> None:
        """Files that are not what they were when the process was started before."""
        for old, new in zip(before, now, strict=False):
            if old.sha256 != new.sha256:
                text = "reward %s: %s has changed since the run began; the new content counts from now on"
                _log.warning(text, new.spec.label, new.file)


def gist(error: str) -> str:
    """One line of it: what a traceback ends in and the user's place in it, else the first line and where it hung."""
    lines = error.strip().splitlines() or [""]
    places = [place for place in _PLACE.findall(error) if not any(part in place[0] for part in _LIBRARY)]
    if lines[0].startswith("Traceback"):
        last = _raised(lines)
        place = places[-1:]
    else:
        last, place = lines[0], places[:1]  # a hung process tells the innermost call first
    return last[:_LINE] + "".join(f" ({file} line {number})" for file, number in place)


def _raised(lines: Sequence[str]) -> str:
    """The line that names the exception: the first one after the last frame; its message may go on for more."""
    frames = [number for number, line in enumerate(lines) if line.startswith('  File "')]
    after = lines[max(frames, default=0) + 1 :]
    return next((line for line in after if not line.startswith((" ", "... "))), lines[-1])
