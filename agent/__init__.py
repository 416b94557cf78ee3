"""wedgewatch: notices when an LLM inference server stops issuing work, and pages with proof."""

__version__ = "0.1.0"
