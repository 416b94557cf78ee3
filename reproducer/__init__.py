"""A small, honest inference engine whose scheduler really deadlocks: the failure that wedgewatch watches for.

Read it in this order: :mod:`~reproducer.config` (four quantities, four knobs), :mod:`~reproducer.request`,
:mod:`~reproducer.kv_cache`, :mod:`~reproducer.scheduler` (one ``step()``, no torch), then the model, the loop thread
with its error path, the engine's voice, and HTTP. Nothing here imports the daemon.
"""
