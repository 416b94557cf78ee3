"""Completion scripts for bash, zsh and fish, made from the argument parser: what it knows, they complete."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from dataclasses import dataclass

__all__ = ["script"]


@dataclass(frozen=True, slots=True)
class _Option:
    names: tuple[str, ...]
    help: str
    takes_value: bool
    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Command:
    name: str
    help: str
    options: tuple[_Option, ...]
    words: tuple[str, ...]
    """Choices of its positional arguments."""


def script(parser: argparse.ArgumentParser, shell: str) -> str:
    """The script for ``bash``, ``zsh`` or ``fish``. Raises ValueError for another shell."""
    makers = {"bash": _bash, "zsh": _zsh, "fish": _fish}
    if shell not in makers:
        raise ValueError(f"{shell!r} is no shell that is known; write bash, zsh or fish")
    return makers[shell](parser.prog, tuple(_commands(parser)), _options(parser))


def _commands(parser: argparse.ArgumentParser) -> Iterator[_Command]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            helps = {item.dest: item.help or "" for item in action._choices_actions}
            for name, sub in action.choices.items():
                words = tuple(
                    str(choice) for item in sub._actions if not item.option_strings for choice in item.choices or ()
                )
                yield _Command(name, helps.get(name, ""), _options(sub), words)


def _options(parser: argparse.ArgumentParser) -> tuple[_Option, ...]:
    return tuple(
        _Option(
            tuple(action.option_strings),
            (action.help or "").replace("%%", "%"),
            action.nargs != 0,
            tuple(str(choice) for choice in action.choices or ()),
        )
        for action in parser._actions
        if action.option_strings
    )


def _bash(prog: str, commands: tuple[_Command, ...], options: tuple[_Option, ...]) -> str:
    function = "_" + re.sub(r"\W", "_", prog)
    cases, values = [], []
    for command in commands:
        words = [name for option in command.options for name in option.names] + list(command.words)
        cases.append(f"    {command.name}) words='{' '.join(words)}' ;;")
        for option in command.options:
            if option.choices:
                names = "|".join(f"{command.name}:{name}" for name in option.names)
                values.append(
                    f"    {names}) COMPREPLY=($(compgen -W '{' '.join(option.choices)}' -- \"$current\")); return ;;"
                )
    first = " ".join([command.name for command in commands] + [name for option in options for name in option.names])
    lines = [
        f"# bash completion of {prog}: source it, or save it under ~/.local/share/bash-completion/completions/{prog}",
        f"{function}() {{",
        '  local current="${COMP_WORDS[COMP_CWORD]}" command="${COMP_WORDS[1]}" words=""',
        "  COMPREPLY=()",
        '  if [ "$COMP_CWORD" -eq 1 ]; then',
        f"    COMPREPLY=($(compgen -W '{first}' -- \"$current\"))",
        "    return",
        "  fi",
        '  case "$command:${COMP_WORDS[COMP_CWORD-1]}" in',
        *values,
        "  esac",
        '  case "$command" in',
        *cases,
        "  esac",
        '  COMPREPLY=($(compgen -W "$words" -- "$current"))',
        "}",
        f"complete -o default -o bashdefault -F {function} {prog}",
    ]
    return "\n".join(lines)


def _zsh(prog: str, commands: tuple[_Command, ...], options: tuple[_Option, ...]) -> str:
    function = "_" + re.sub(r"\W", "_", prog)

    def quoted(text: str) -> str:
        return text.replace("'", "'\\''").replace("[", "\\[").replace("]", "\\]").replace(":", "\\:")

    def argument(option: _Option) -> Iterator[str]:
        for name in option.names:
            value = f":value:({' '.join(option.choices)})" if option.choices else ":value:_files"
            yield f"'{name}[{quoted(option.help)}]{value if option.takes_value else ''}'"

    lines = [
        f"#compdef {prog}",
        f"# zsh completion of {prog}: save it as {function} in a folder of $fpath",
        f"{function}() {{",
        "  local -a commands",
        "  commands=(",
        *(f"    '{command.name}:{quoted(command.help)}'" for command in commands),
        "  )",
        "  if (( CURRENT == 2 )); then",
        "    _describe command commands",
        f"    _arguments {' '.join(item for option in options for item in argument(option))}",
        "    return",
        "  fi",
        "  case $words[2] in",
    ]
    for command in commands:
        items = [item for option in command.options for item in argument(option)]
        items.append(f"'*:argument:({' '.join(command.words)})'" if command.words else "'*:file:_files'")
        lines.append(f"    {command.name}) _arguments {' '.join(items)} ;;")
    return "\n".join([*lines, "  esac", "}", f"compdef {function} {prog}"])


def _fish(prog: str, commands: tuple[_Command, ...], options: tuple[_Option, ...]) -> str:
    def quoted(text: str) -> str:
        return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"

    def line(condition: str, option: _Option) -> str:
        parts = [f"complete -c {prog} -n {quoted(condition)}"]
        parts += [f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names]
        if option.takes_value:
            parts.append("-r" + (f" -f -a {quoted(' '.join(option.choices))}" if option.choices else ""))
        return " ".join([*parts, f"-d {quoted(option.help)}"])

    lines = [f"# fish completion of {prog}: save it as ~/.config/fish/completions/{prog}.fish"]
    lines += [line("__fish_use_subcommand", option) for option in options]
    for command in commands:
        lines.append(f"complete -c {prog} -n __fish_use_subcommand -f -a {command.name} -d {quoted(command.help)}")
        condition = f"__fish_seen_subcommand_from {command.name}"
        lines += [line(condition, option) for option in command.options]
        if command.words:
            lines.append(f"complete -c {prog} -n {quoted(condition)} -f -a {quoted(' '.join(command.words))}")
    return "\n".join(lines)
