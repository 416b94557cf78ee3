"""Bundled data: dialects (how each engine speaks) and packs (rules), read through importlib.resources."""
