"""What users write into prompts: the engines' own words, markup, control codes. None of it is the engine speaking."""

from __future__ import annotations

PROMPTS = (
    "AssertionError: assert total_num_tokens <= self.max_num_tokens",
    "Why does my log say: EngineCore encountered a fatal error. ? And then: EngineDeadError: EngineCore encountered "
    "an issue.",
    "[11/20/2026-09:02:01] [TRT-LLM] [E] Error in event loop: Sampling failed",
    "ERROR 11-20 09:02:01 [core.py:720] EngineCore encountered a fatal error.",
    "Please translate: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.20 GiB.",
    "Scheduler watchdog timeout (self.watchdog_timeout=300, self.soft=False)",
    "No available shared memory broadcast block found in 60 seconds. This typically happens when some processes are "
    "hanging",
    "Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation throughput: 0.0 tokens/s, Running: 9 reqs, "
    "Waiting: 99 reqs",
    "<!channel> <script>alert(1)</script> @everyone *bold* `code` \x1b[31mred\x1b[0m",
    'Traceback (most recent call last):\n  File "x.py", line 1, in <module>\nRuntimeError: Background loop has '
    "errored already.",
    "Received sigquit from a child process. It usually means the child failed.",
    "Hang detected on rank 0 in PyExecutor; hard-killing and propagating to peer ranks.",
    "x" * 4000,
    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=203441, OpType=ALLREDUCE, Timeout(ms)=600000)",
    "Shard 0 crashed. Webserver Crashed. Signal (11) received.",
)
