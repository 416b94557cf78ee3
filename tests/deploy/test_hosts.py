"""systemd unit, container file, compose file, and the little tee that gives a sidecar its log."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from agent.config import load_config
from tests.deploy.conftest import DEPLOY, ROOT, Tool

UNIT = DEPLOY / "systemd" / "wedgewatch.service"
CONTAINERFILE = DEPLOY / "container" / "Containerfile"
TEE = DEPLOY / "kubernetes" / "sidecar" / "tee_log.py"


@pytest.mark.peer
def test_systemd_accepts_the_unit(tool: Tool, tmp_path: Path) -> None:
    unit = tmp_path / "wedgewatch.service"
    unit.write_text(UNIT.read_text().replace("/opt/wedgewatch/bin/wedgewatch", "/bin/true"))
    assert tool("systemd-analyze", "verify", unit).strip() == ""


@pytest.mark.peer
def test_the_unit_is_locked_down(tool: Tool) -> None:
    said = tool("systemd-analyze", "security", "--offline=yes", UNIT)
    exposure = re.search(r"Overall exposure level for wedgewatch.service: ([\d.]+)", said)
    assert exposure is not None
    assert float(exposure[1]) <= 2.0


def test_the_unit_keeps_its_promises() -> None:
    text = UNIT.read_text()
    for line in ("Type=notify", "WatchdogSec=30", "Restart=always", "DynamicUser=yes", "StateDirectory=wedgewatch"):
        assert f"\n{line}\n" in text


@pytest.mark.peer
def test_hadolint_finds_nothing(tool: Tool) -> None:
    assert tool("hadolint", CONTAINERFILE) == ""


def test_the_image_is_non_root_and_holds_what_the_package_needs() -> None:
    text = CONTAINERFILE.read_text()
    assert "USER 65532:65532" in text
    assert "torch" not in text
    copied = [part for line in re.findall(r"^COPY (?!--from)(.+) \S+$", text, re.M) for part in line.split()]
    assert [name for name in copied if not (ROOT / name).exists()] == []
    packages = re.search(
        r"\[tool\.hatch\.build\.targets\.wheel\]\npackages = \[(.+)\]", (ROOT / "pyproject.toml").read_text()
    )
    assert packages is not None
    assert set(re.findall(r'"(\w+)"', packages[1])) <= set(copied)


@pytest.mark.peer
def test_compose(tool: Tool) -> None:
    file = DEPLOY / "compose" / "compose.yaml"
    tool("check-jsonschema", "--builtin-schema", "vendor.compose-spec", file)
    services = yaml.safe_load(file.read_text())["services"]
    for service in services.values():
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            assert not source.startswith(".") or (file.parent / source).exists(), volume
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    config, faults = load_config(file.parent / "wedgewatch.yaml", env={})
    assert [str(fault) for fault in faults] == []
    assert config.servers[0].name == "vllm"


# ---- the tee -----------------------------------------------------------------------------------------------------


def tee(path: Path, data: bytes, limit: int = 1 << 20) -> bytes:
    command = [sys.executable, str(TEE), str(path), str(limit)]
    done = subprocess.run(command, input=data, capture_output=True, timeout=30, check=True)
    assert done.stderr == b""
    return done.stdout


def test_everything_goes_on_and_into_the_file(tmp_path: Path) -> None:
    data = b"INFO one\nINFO two\nno newline at the end"
    assert tee(tmp_path / "log", data) == data
    assert (tmp_path / "log").read_bytes() == data
    tee(tmp_path / "log", b"\nafter a restart\n")
    assert (tmp_path / "log").read_bytes() == data + b"\nafter a restart\n"


def test_it_rotates_at_the_end_of_a_line_and_keeps_one(tmp_path: Path) -> None:
    lines = [b"%06d a line of the server's log, of some length\n" % number for number in range(40_000)]
    data = b"".join(lines)
    assert tee(tmp_path / "log", data, limit=300_000) == data
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == ["log", "log.1"]
    old, new = (tmp_path / "log.1").read_bytes(), (tmp_path / "log").read_bytes()
    assert data.endswith(old + new)
    assert old.endswith(b"\n")
    assert new.startswith(b"0")
    assert max(len(old), len(new)) <= 300_000 + 65536


def test_a_disk_that_fails_costs_the_server_nothing(tmp_path: Path) -> None:
    assert tee(tmp_path / "no" / "such" / "folder" / "log", b"x\n" * 1000) == b"x\n" * 1000
    if os.path.exists("/dev/full"):
        assert tee(Path("/dev/full"), b"x\n" * 100_000) == b"x\n" * 100_000


def test_a_reader_that_went_away_costs_the_file_nothing(tmp_path: Path) -> None:
    command = [sys.executable, str(TEE), str(tmp_path / "log")]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write(b"x\n" * 100_000)
    process.stdin.close()
    assert process.wait(30) == 0
    assert process.stderr.read() == b""
    process.stderr.close()
    assert (tmp_path / "log").read_bytes() == b"x\n" * 100_000
