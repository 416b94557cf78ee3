"""Incidents of our own: simulated servers, told in each engine's words, with the answer that is right."""
