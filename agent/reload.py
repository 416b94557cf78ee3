"""Another configuration while we run: noticed, read and checked whole beside the core, then handed to it.

SIGHUP, ``POST /-/reload`` and a changed file lead here. A set with a fault changes nothing, and says so.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from agent.config import Config
from agent.config_watch import ConfigWatch
from agent.pipeline import Pipeline
from agent.rules.model import RuleSet
from agent.schema import Fault

__all__ = ["Loaded", "Reloaded", "Reloader"]

log = logging.getLogger("wedgewatch")

LOOK: Final = 2.0
"""Seconds between two looks at the files; a change that has settled is taken up at the second."""
TAKE: Final = 30.0
"""Longest time that the core may need to take a configuration."""

Loaded = tuple[Config, RuleSet, list[Fault]]


@dataclass(frozen=True, slots=True)
class Reloaded:
    """A checked configuration with its pipeline, for the core to take; ``taken`` is set when it has."""

    config: Config
    ruleset: RuleSet
    pipeline: Pipeline
    taken: threading.Event = field(default_factory=threading.Event)


class Reloader:
    """Runs :meth:`work` in a thread. ``problem`` is the sentence that says why the last reload was refused.

    ``begin`` and ``end`` (with the problem, or ``""``) frame each reload.
    """

    def __init__(
        self,
        load: Callable[[], Loaded],
        build: Callable[[Config, RuleSet], Pipeline],
        hand_over: Callable[[Reloaded], None],
        watch: ConfigWatch,
        *,
        begin: Callable[[], None] = lambda: None,
        end: Callable[[str], None] = lambda problem: None,
    ) -> None:
        self.problem = ""
        self.loaded_at = time.time()
        self._load = load
        self._build = build
        self._hand_over = hand_over
        self._watch = watch
        self._begin = begin
        self._end = end
        self._asked = threading.Condition()
        self._requests = 0
        self._done = 0
        self._stopped = False

    def request(self, wait: float = 0.0) -> str:
        """Read everything anew. With ``wait``: seconds to wait for the outcome, which is the problem or ``""``."""
        with self._asked:
            self._requests += 1
            mine = self._requests
            self._asked.notify_all()
            if not wait:
                return ""
            done = self._asked.wait_for(lambda: self._done >= mine or self._stopped, wait)
            return self.problem if done else "the reload has not ended yet; see /api/v1/health"

    def work(self, stop: threading.Event) -> None:
        """Look and reload until told to stop."""
        while not stop.is_set():
            with self._asked:
                self._asked.wait_for(lambda: self._requests > self._done or self._stopped, LOOK)
                asked = self._requests
            if stop.is_set():
                break
            if asked == self._done and not self._watch.changed():
                continue
            if asked == self._done:
                log.info("the configuration's files have changed")
            self.reload()
            with self._asked:
                self._done = asked
                self._asked.notify_all()

    def stop(self) -> None:
        """End the waits; :meth:`work` ends when its stop is set too."""
        with self._asked:
            self._stopped = True
            self._asked.notify_all()

    def reload(self) -> None:
        """Read, check, build, hand over."""
        self._begin()
        self._watch.seen()
        config, ruleset, faults = self._load()
        errors = [fault for fault in faults if fault.severity == "error"]
        for fault in errors:
            log.error("%s", fault)
        if errors:
            more = f" and {len(errors) - 1} more" if len(errors) > 1 else ""
            self._refuse(f"{errors[0]}{more}; the old configuration stays in force")
            return
        taken = Reloaded(config, ruleset, self._build(config, ruleset))
        self._hand_over(taken)
        if not taken.taken.wait(TAKE):
            self._refuse("the core did not take the new configuration in time")
            return
        self.problem, self.loaded_at = "", time.time()
        log.info("configuration reloaded: %d servers, %d rules", len(config.servers), len(ruleset.rules))
        self._end("")

    def _refuse(self, problem: str) -> None:
        self.problem = problem
        log.error("reload refused: %s", problem)
        self._end(problem)
