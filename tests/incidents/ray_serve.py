"""Ray Serve LLM: vLLM's lines inside a replica's, metrics under Ray's names."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from tests.incidents.envelopes import Line
from tests.incidents.incident import ADMISSION, HANG, STALL, Plan, at, seed
from tests.incidents.openmetrics import Page, Point, gauge
from tests.incidents.tell import Verdict, dead, healthy, plan, stalled
from tests.incidents.vllm_voice import Voice as Vllm
from tests.incidents.world import Fault, History, Second, World, bursts, steps

T0 = at("2026-07-11 07:15:00")
_INNER = Vllm(style="v1-bare", startup=90)
_REPLICA = "(ServeReplica:default:LLMServer:llama-70b pid=4411, ip=10.0.0.7)"


@dataclass(frozen=True, slots=True)
class Voice:
    """The driver's log: the controller's lines and the replicas'."""

    def say(self, t: float, level: str, message: str, source: str = "controller 89848") -> Line:
        stamp = datetime.fromtimestamp(t, UTC).strftime("%Y-%m-%d %H:%M:%S")
        return Line(t, f"(ServeController pid=89848) {level} {stamp},098 {source} -- {message}")

    def log(self, *histories: History) -> list[Line]:
        stamp = datetime.fromtimestamp(T0 - 110, UTC).strftime("%Y-%m-%d %H:%M:%S")
        lines = [
            Line(T0 - 110, f"{stamp},789 INFO worker.py:1907 -- Started a local Ray instance."),
            self.say(
                T0 - 100,
                "INFO",
                "Deploying new version of Deployment(name='LLMServer:llama-70b', app='default') (initial target "
                "replicas: 1).",
            ),
        ]
        lines += [
            Line(line.t, "\n".join(f"{_REPLICA} {part}" for part in line.text.split("\n")))
            for line in _INNER.log(*histories)
        ]
        stamp = datetime.fromtimestamp(T0 - 1, UTC).strftime("%Y-%m-%d %H:%M:%S")
        return [
            *lines,
            Line(T0 - 1, f"INFO {stamp},098 serve 89291 -- Application 'default' is ready at http://127.0.0.1:8000/."),
        ]


VOICE = Voice()


def _page(pool: int) -> Page:
    inner = _INNER.page(pool, engine=0)
    names = {"deployment": "LLMServer:llama-70b", "application": "default", "ReplicaId": "8x1kd"}

    def points(second: Second) -> list[Point]:
        out = [
            replace(point, family="ray_" + point.family.replace(":", "_"), labels={**point.labels, **names})
            for point in inner(second)
            if point.family.startswith("vllm")
        ]
        out.append(gauge("ray_serve_deployment_queued_queries", 0, names))
        out.append(gauge("ray_serve_replica_processing_queries", second.connections, names))
        return out

    return points


def _world(name: str, seconds: int = 800, rate: Any = 1.5, **more: Any) -> World:
    return World(seed=seed(name), start=T0, seconds=seconds, rate=rate, **{"output": (100, 500), **more})


def _plan(name: str, why: str, verdict: Verdict, world: World, *, metrics: bool = True, **more: Any) -> Plan:
    return plan(
        f"ray-{name}",
        "ray_serve",
        why,
        verdict,
        world,
        VOICE,
        (lambda world, index: _page(world.pool)) if metrics else None,
        **more,
    )


def _wrapped(lines: list[Line]) -> list[Line]:
    return [Line(line.t, "\n".join(f"{_REPLICA} {part}" for part in line.text.split("\n"))) for line in lines]


def plans() -> Iterable[Plan]:
    """All of them."""
    name = "replica-stalls"
    yield _plan(
        name,
        "the replica's engine schedules nothing; its health check is content",
        stalled(*ADMISSION),
        _world(name, faults=[Fault("evict", 300)]),
    )
    name = "replica-stalls-metrics-only"
    yield _plan(
        name, "the same, no log", stalled(*STALL), _world(name, faults=[Fault("blocked", 300)]), log=False, interval=15
    )
    name = "worker-hangs"
    yield _plan(
        name,
        "the wait line in a replica's log",
        stalled(*HANG),
        _world(name, faults=[Fault("blocked", 300)]),
        extra=lambda histories: _wrapped(_INNER.shm_wait(T0 + 360, T0 + 790)),
    )
    name = "engine-dies"
    yield _plan(
        name,
        "the engine dies in its replica",
        dead("engine_dead", "crash"),
        _world(name, seconds=420, faults=[Fault("refusing", 300)]),
        metrics=False,
        extra=lambda histories: [
            *_wrapped(_INNER.fatal(T0 + 300, "RuntimeError: CUDA error: an illegal memory access was encountered")),
            VOICE.say(
                T0 + 310,
                "WARNING",
                "Health check for Replica(id='8x1kd', deployment='LLMServer:llama-70b', app='default') failed: "
                "vllm.v1.engine.exceptions.EngineDeadError",
            ),
            VOICE.say(
                T0 + 330,
                "WARNING",
                "Replica Replica(id='8x1kd', deployment='LLMServer:llama-70b', app='default') failed the health "
                "check 3 times in a row, marking it unhealthy.",
            ),
        ],
    )
    name = "overload-fails-health-checks"
    yield _plan(
        name,
        "a replica too busy to answer its health check in time, and completing all the while",
        healthy("overload"),
        _world(name, seconds=2000, rate=steps((0, 1.0), (200, 4.0)), output=(400, 900)),
        extra=lambda histories: [
            VOICE.say(
                T0 + 400 + 200 * n,
                "WARNING",
                "Didn't receive health check response for replica Replica(id='8x1kd', "
                "deployment='LLMServer:llama-70b', app='default') after 30s, marking it unhealthy.",
            )
            for n in range(3)
        ],
    )
    name = "autoscaled"
    yield _plan(
        name,
        "bursts, and an autoscaler that talks",
        healthy(),
        _world(name, seconds=2400, rate=bursts(120, 300, 1.5)),
        interval=10,
        extra=lambda histories: [
            Line(T0 + 100 * n, f"(autoscaler +{n}m0s) Adding 1 node(s) of type worker.") for n in range(20)
        ],
    )
    name = "idle"
    yield _plan(name, "nothing to do", healthy(), _world(name, seconds=3600, rate=0.0), interval=30)
