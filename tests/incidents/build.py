"""All incidents, and a command that writes them out: ``python -m tests.incidents.build FOLDER [NAME...]``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import yaml

from tests.incidents import dynamo, llama_cpp, lmdeploy, ray_serve, sglang, tensorrt_llm, tgi, triton, vllm
from tests.incidents.incident import Incident, Plan

_MODULES = (vllm, tensorrt_llm, sglang, tgi, lmdeploy, llama_cpp, triton, ray_serve, dynamo)


def all_plans() -> list[Plan]:
    """Every incident, by engine; names are unique."""
    return [plan for module in _MODULES for plan in module.plans()]


def write(incident: Incident, folder: Path) -> list[str]:
    """Put its files into a folder; the arguments of ``wedgewatch scan`` that read them."""
    folder.mkdir(parents=True, exist_ok=True)
    arguments = list(incident.arguments)
    if incident.metrics is not None:
        (folder / "metrics.om").write_bytes(incident.metrics)
        arguments += ["--metrics", str(folder / "metrics.om")]
    for name, data in (incident.logs or {"server.log": b""}).items():
        path = folder / name
        path.write_bytes(data)
        if incident.written:
            os.utime(path, (incident.written, incident.written))
        arguments.append(str(path))
    return arguments


def _expect(incident: Incident) -> str:
    asked = {
        key: list(value) if isinstance(value, tuple) else value
        for key in (
            "why",
            "engine",
            "page",
            "failure_any_of",
            "confidence",
            "fires_by",
            "not_before",
            "may_warn_of",
            "labels",
            "alerts",
            "episodes",
            "resolved",
            "arguments",
        )
        if (value := getattr(incident, key)) not in (None, (), {})
    }
    return yaml.safe_dump(asked, sort_keys=False, width=120)


def main(arguments: list[str]) -> int:
    """Write the named incidents, or all."""
    target, names = Path(arguments[0]), set(arguments[1:])
    for plan in all_plans():
        if not names or plan.name in names:
            incident = plan.make()
            call = write(incident, target / plan.name)
            (target / plan.name / "expect.yaml").write_text(_expect(incident))
            print("wedgewatch scan --json", " ".join(call))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
