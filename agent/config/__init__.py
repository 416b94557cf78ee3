"""The configuration: what can be set, how it is read with all its faults, how it is printed without its secrets."""

from agent.config.load import default_config, load_config, read_config, state_path
from agent.config.model import Config
from agent.config.render import render

__all__ = ["Config", "default_config", "load_config", "read_config", "render", "state_path"]
