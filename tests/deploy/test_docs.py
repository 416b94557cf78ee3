"""The docs: every link leads somewhere, every `sh` block does what it says, every name in them exists."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from agent.cli import parser
from agent.config import load_config
from tests.deploy.conftest import ROOT

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
OURS = [
    ROOT / "docs" / name
    for name in (
        "first-ten-minutes.md", "concepts.md", "operations.md", "limits.md", "how-it-works.md",
        "deploy/systemd.md", "deploy/kubernetes.md", "deploy/container.md", "deploy/prometheus.md",
    )
]  # fmt: skip
FENCE = re.compile(r"^(```+)(\w*)[^\n]*\n(.*?)^\1\s*$", re.M | re.S)


def without_code(text: str) -> str:
    return re.sub(r"`[^`\n]*`", "", FENCE.sub("", text))


def anchors(page: Path) -> set[str]:
    """As GitHub makes them: lower case, blanks to dashes, punctuation gone, repeats numbered."""
    found: dict[str, int] = {}
    out = set()
    for heading in re.findall(r"^#{1,6} +(.+?)\s*$", FENCE.sub("", page.read_text()), re.M):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        anchor = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        count = found.get(anchor, 0)
        found[anchor] = count + 1
        out.add(anchor if not count else f"{anchor}-{count}")
    return out


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)(?: \"[^\"]*\")?\)", without_code(page.read_text())):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            broken.append(target)
    assert broken == []


def commands(page: Path) -> list[str]:
    return [
        line
        for _, language, body in FENCE.findall(page.read_text())
        if language == "sh"
        for line in body.replace("\\\n", " ").splitlines()
        if line.strip() and not line.startswith("#")
    ]


CASES = [(page, line) for page in OURS for line in commands(page)]


@pytest.mark.peer
@pytest.mark.parametrize(("page", "line"), CASES, ids=[f"{page.name}-{index}" for index, (page, _) in enumerate(CASES)])
def test_every_command_block_does_what_it_says(page: Path, line: str) -> None:
    command, _, comment = line.partition("   # ")
    expected = re.search(r"exit (\d)", comment)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    program = shlex.split(command)[0]
    if shutil.which(program, path=path) is None:
        pytest.skip(f"{program} is not installed")
    done = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=90
    )
    assert done.returncode == (int(expected[1]) if expected else 0), f"{command}\n{done.stdout}\n{done.stderr}"


def test_every_wedgewatch_command_in_the_docs_is_one() -> None:
    top = parser()
    subcommands = next(action for action in top._actions if action.choices and action.dest != "version").choices
    assert subcommands is not None
    unknown = []
    for page in OURS:
        for line in re.findall(r"wedgewatch ((?:[a-z][a-z-]+)(?: [^`\n#|]*)?)", page.read_text()):
            words = line.split()
            if words[0] not in subcommands:
                continue  # prose
            known = {flag for action in subcommands[words[0]]._actions for flag in action.option_strings}
            unknown += [
                f"{page.name}: {words[0]} {word}"
                for word in words[1:]
                if re.match(r"--?[a-z]", word) and word.rstrip(".,;:)") not in known
            ]
    assert unknown == []


FOREIGN = {"resources", "components", "images", "command", "args", "scrape_configs"}


@pytest.mark.parametrize("page", OURS, ids=lambda page: page.name)
def test_pieces_of_configuration_in_the_docs_are_right(page: Path, tmp_path: Path) -> None:
    for _, language, body in FENCE.findall(page.read_text()):
        if language != "yaml" or set(yaml.safe_load(body)) & FOREIGN:
            continue
        (tmp_path / "piece.yaml").write_text(body)
        _, faults = load_config(tmp_path / "piece.yaml", env={"CREDENTIALS_DIRECTORY": "/run/credentials"})
        assert [str(fault) for fault in faults if fault.severity == "error"] == [], body


def test_the_site_lists_every_page() -> None:
    def pages(items: list[object]) -> list[str]:
        out: list[str] = []
        for item in items:
            value = next(iter(item.values())) if isinstance(item, dict) else item
            out += pages(value) if isinstance(value, list) else [str(value)]
        return out

    listed = pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    assert len(listed) == len(set(listed))
    there = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert there - set(listed) == set()


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    page = (tmp_path / "site" / "runbooks" / "token_budget_deadlock" / "index.html").read_text()
    assert "<h1" in page


def test_our_pages_are_reachable_from_the_readme() -> None:
    seen: set[Path] = set()
    todo = [ROOT / "README.md"]
    while todo:
        page = todo.pop()
        if page in seen or page.suffix != ".md" or not page.exists():
            continue
        seen.add(page)
        targets = re.findall(r"\]\(([^)\s#]+)", page.read_text())
        todo += [(page.parent / target).resolve() for target in targets if not re.match(r"[a-z]+:", target)]
    assert [str(page.relative_to(ROOT)) for page in OURS if page not in seen] == []
