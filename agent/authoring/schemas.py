"""The JSON Schema files of ``rules/schema``, for editors: ``python -m agent.authoring.schemas`` writes them anew."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from agent.config.model import Config
from agent.rules.dialect_spec import DialectFile
from agent.rules.spec import RuleFile
from agent.schema.jsonschema import json_schema

__all__ = ["schema_files", "write_schemas"]

_BASE: Final = "https://raw.githubusercontent.com/wedgewatch/wedgewatch/main/rules/schema"


def schema_files() -> Mapping[str, str]:
    """File name -> content."""
    schemas = {
        "rules.schema.json": (RuleFile, "wedgewatch rules", False),
        "dialect.schema.json": (DialectFile, "wedgewatch dialect", False),
        "config.schema.json": (Config, "wedgewatch configuration", True),
    }
    return {
        name: json.dumps(
            json_schema(cls, title=title, identifier=f"{_BASE}/{name}", env=env), indent=2, ensure_ascii=False
        )
        + "\n"
        for name, (cls, title, env) in schemas.items()
    }


def write_schemas(folder: Path) -> None:
    """Writes every file into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in schema_files().items():
        (folder / name).write_text(text, encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    write_schemas(Path(arguments[0]) if arguments else Path(__file__).parents[2] / "rules" / "schema")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
