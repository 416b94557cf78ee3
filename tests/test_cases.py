"""Every example incident through ``wedgewatch scan --json``, as a user runs it, against its ``expect.yaml``."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent.cli import main
from agent.model import parse_rfc3339

CASES = sorted(path.parent for path in (Path(__file__).parent / "cases").glob("*/expect.yaml"))


@pytest.mark.parametrize("engine", ["recognised", "given"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_case_gives_its_expected_answer(
    case: Path, engine: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    expect = yaml.safe_load((case / "expect.yaml").read_text())
    arguments = ["scan", "--json", *expect.get("arguments", ())]
    if engine == "given":
        arguments += ["--engine", expect["engine"]]
    if (case / "metrics.om").exists():
        arguments += ["--metrics", str(case / "metrics.om")]
    log = case / "server.log"
    if "written" in expect:
        # A stamp without a year takes the one nearest the file's time, which a checkout does not keep.
        log = tmp_path / "server.log"
        shutil.copyfile(case / "server.log", log)
        written = _time(expect["written"])
        os.utime(log, (written, written))
    status = main([*arguments, str(log)])

    objects: list[dict[str, Any]] = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    summary = objects.pop()
    assert summary["kind"] == "summary"
    assert summary["engine"] == expect["engine"]
    fired = {item["fingerprint"]: item for item in objects if item["state"] == "firing"}
    assert status == (1 if fired else 0)
    assert summary["alerts"] == len(fired)
    critical = [item for item in fired.values() if item["severity"] == "critical"]
    warnings = {item["failure"] for item in fired.values() if item["severity"] == "warning"}

    if not expect["page"]:
        assert critical == []
        assert warnings <= set(expect.get("may_warn_of", ()))
        return
    assert len(critical) == 1, [item["failure"] for item in critical]
    page = critical[0]
    assert page["failure"] in expect["failure_any_of"]
    if "confidence" in expect:
        assert page["confidence"] == expect["confidence"]
    if "fires_by" in expect:
        assert parse_rfc3339(page["fired_at"]) <= _time(expect["fires_by"])
    for name, value in expect.get("labels", {}).items():
        assert page["labels"][name] == value
    assert summary["worst_failure"] == page["failure"]
    assert page["starts_at"] <= page["fired_at"]


def _time(value: Any) -> float:
    return parse_rfc3339(value) if isinstance(value, str) else float(value.timestamp())


def test_the_cases_are_here() -> None:
    assert len(CASES) >= 22
