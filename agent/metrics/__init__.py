"""Pages, files and log lines that hold numbers, read into :class:`agent.model.Sample`."""
