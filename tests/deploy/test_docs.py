"""The docs: every link leads somewhere, every `sh` block does what it says, every name in them exists."""

from __future__ import annotations

import configparser
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest
import yaml

from agent.cli import parser
from agent.config import load_config
from reproducer.usage import command_line
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


NOT_RUN = re.compile(r"(?:^<!-- not run: ([^\n]+) -->\n)?^```console\n(.*?)^```", re.M | re.S)
RUNNABLE = [page for page in PAGES if page.name != "README.md"]  # test_readme follows that one


def lines_of(body: str) -> list[str]:
    lines = body.replace("\\\n", " ").splitlines()
    return [line for line in lines if line.strip() and not line.startswith("#")]


CASES = [
    (page, line)
    for page in RUNNABLE
    for _, language, body in FENCE.findall(page.read_text())
    if language == "sh"
    for line in lines_of(body)
]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as a reader has it: the repository, and files of one's own under the names that the pages use."""
    folder = tmp_path_factory.mktemp("desk")
    for name in ("docs", "integrations", "rules", "tests"):
        (folder / name).symlink_to(ROOT / name)
    shutil.copy(ROOT / "tests" / "cases" / "vllm-idle" / "server.log", folder)
    examples = re.findall(r"^```yaml\n(rules:.*?)^```", (ROOT / "docs" / "rules.md").read_text(), re.M | re.S)
    (folder / "my-rules.yaml").write_text(next(example for example in examples if "\ntests:" in example))
    (folder / "wedgewatch.yaml").write_text("servers: [{name: a, logs: [{path: server.log}]}]\n")
    return folder


@pytest.mark.peer
@pytest.mark.parametrize(("page", "line"), CASES, ids=[f"{page.name}-{index}" for index, (page, _) in enumerate(CASES)])
def test_every_command_block_does_what_it_says(page: Path, line: str, desk: Path) -> None:
    command, _, comment = line.partition("   # ")
    expected = re.search(r"exit (\d)", comment)
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    program = shlex.split(command)[0]
    if shutil.which(program, path=path) is None:
        pytest.skip(f"{program} is not installed")
    done = subprocess.run(
        ["bash", "-c", command], cwd=desk, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=90
    )
    assert done.returncode == (int(expected[1]) if expected else 0), f"{command}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: page.name)
def test_a_block_that_is_not_run_says_why_and_is_spelled_right(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    wrong = []
    for reason, body in NOT_RUN.findall(page.read_text()):
        if not reason:
            wrong.append(f"no reason: {body}")
        for line in lines_of(body):
            if not line.startswith("$ "):
                wrong.append(f"no prompt: {line}")
            words = shlex.split(line.removeprefix("$ "), comments=True)
            try:
                if Path(words[0]).name == "wedgewatch":
                    parser().parse_args(words[1:])
                elif words[:3] == ["python", "-m", "reproducer"]:
                    command_line(defaultdict(lambda: int)).parse_args(words[3:])
            except SystemExit as ended:
                if ended.code:
                    wrong.append(f"{line}: {capsys.readouterr().err}")
    assert wrong == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_is_of_a_kind_that_is_checked(page: Path) -> None:
    """``sh`` is run, ``console`` is spelled right, ``yaml`` is loaded; a picture or a formula holds no command."""
    for _, language, body in FENCE.findall(page.read_text()):
        assert language in {"sh", "console", "yaml", "ini", "python", "text", ""}, language
        if language in {"text", ""}:
            assert not re.search(r"^(?:\$ |wedgewatch |python3? |pip |make |kubectl |docker )", body, re.M), body
        elif language == "python":
            compile(body, str(page), "exec")
        elif language == "ini":
            configparser.ConfigParser().read_string(body)


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
