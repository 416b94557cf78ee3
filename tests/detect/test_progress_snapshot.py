"""The daemon may be restarted in the middle of anything: verdicts are the same as without."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agent.detect.progress import ProgressTracker
from tests.detect.watched import Watched

Event = Callable[[Watched], object]

LOOKS: list[Event] = [
    lambda s: s.serve(3),
    lambda s: s.serve(30),
    lambda s: s.stand(1),
    lambda s: s.stand(4),
    lambda s: s.stand(8, waiting=(1, 9)),
    lambda s: s.look(2, running=0, waiting=0, kv=0.0),
    lambda s: s.look(1, aborted=8),
    lambda s: s.look(3, preempted=30, kv=0.97),
    lambda s: s.look(6, tokens=1, waiting=(2, 8)),
    lambda s: s.look(2, kv=(0.3, 0.6), running=1),
    lambda s: s.look(2, sleeping=1.0),
    lambda s: s.look(1, sleeping=0.0),
    lambda s: s.look(2, deferred=3.0, running=0, waiting=3),
    lambda s: s.look(1, http=4.0),
    lambda s: s.look(2, repeats=2),
    lambda s: s.lose(15),
    lambda s: s.restart(),
]
LINES: list[Event] = [
    lambda s: s.line(gen=500, prompt=100, running=8, waiting=0),
    lambda s: s.line(gen=0, prompt=0, running=0, waiting=5, kv=0.0),
    lambda s: s.line(after=1, probe=True, scheduled_requests=0, progress_mark=s.now),
    lambda s: s.line(after=0.2, origin="decode", gen=10, running=1),
    lambda s: s.mark("aborted"),
    lambda s: s.mark("progress"),
    lambda s: s.mark("starting"),
    lambda s: s.mark("ready"),
    lambda s: s.mark("sleeping"),
    lambda s: s.mark("awake"),
    lambda s: s.mark("draining"),
    lambda s: s.mark("stopped"),
    lambda s: s.wait(150, step=30),
]


def _clock_back(server: Watched) -> None:
    server.now -= 600
    server.stand(1)


EVENTS = st.sampled_from([*LOOKS, *LINES, _clock_back])
# mostly one source, so that each gets far
PLAYS = st.one_of(
    st.lists(st.sampled_from(LOOKS), min_size=2, max_size=14),
    st.lists(st.sampled_from(LINES), min_size=2, max_size=14),
    st.lists(EVENTS, min_size=2, max_size=14),
)


def _revived(server: Watched) -> Watched:
    twin = copy.copy(server)
    twin.values = dict(server.values)
    twin.tracker = ProgressTracker(server.tracker.limits)
    twin.tracker.restore(json.loads(json.dumps(server.tracker.snapshot())))
    twin.seen = []
    return twin


def _verdict(server: Watched) -> object:
    tracker = server.tracker
    return (
        tracker.state,
        tracker.state_since,
        tracker.stall,
        tracker.deadline(),
        tracker.next_deadline(),
        tracker.with_evidence(server.now - 30),
        tracker.failure,
        tracker.disagreement,
        tracker.summary(server.now),
    )


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(play=PLAYS, cut=st.integers(min_value=0, max_value=13))
def test_daemon_restarts_in_the_middle_of_anything(play: list[Event], cut: int) -> None:
    server = Watched()
    twin = server
    for number, event in enumerate(play):
        if number == min(cut, len(play) - 1):
            twin = _revived(server)
        event(server)
        if twin is not server:
            event(twin)
            assert _verdict(twin) == _verdict(server)
    assert twin.tracker.snapshot() == server.tracker.snapshot()


def test_snapshot_of_a_busy_day_is_small() -> None:
    server = Watched().serve(1000, waiting=3)
    assert len(json.dumps(server.tracker.snapshot())) < 60_000


def test_state_of_an_older_release_is_taken_as_far_as_it_goes() -> None:
    tracker = ProgressTracker()
    tracker.restore({"phase": "ready", "restarts": 2, "unknown": 1, "looks": {"facts": {"max_batched_tokens": 8192.0}}})
    assert (tracker.phase, tracker.restarts, tracker.facts) == ("ready", 2, {"max_batched_tokens": 8192.0})
    assert tracker.state == "unknown"
