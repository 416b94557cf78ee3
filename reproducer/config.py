"""Four quantities, four knobs, and the fault profiles that are built from them.

"Token budget" is one name for four things, and most wrong advice about this failure comes from mixing them up:

====  ====================  ==========================================================================
sign  field                 what it bounds
====  ====================  ==========================================================================
H     ``hard_tokens``       tokens that fit the buffers of one forward step; the assertion compares with it
A     ``step_tokens``       tokens up to which the packer fills one step, by its own estimate
N     ``kv_blocks``         blocks of the KV pool
K     ``kv_ceiling``,       what may be *claimed*: share of the pool that admission may fill, and requests
      ``max_batch``         that may run at once
====  ====================  ==========================================================================

An engine that has one flag for H and A (TensorRT-LLM's ``max_num_tokens``) has no room between them at any setting.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any, Final, Literal

__all__ = ["CONTROLS", "PROFILES", "Config", "ConfigError", "Profile", "preset"]

Admission = Literal["reserve", "prompt", "chunk"]


class ConfigError(ValueError):
    """The numbers of a configuration contradict each other; the message says which and what to change."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What a scheduler promises at admission, and what it does when a promise cannot be kept.

    ``admission`` is what must be free before a request may run: ``reserve`` everything it could ever need, only its
    ``prompt``, or only its first ``chunk``. ``by_chunk`` takes the prompt's blocks chunk by chunk although all
    had to be free at admission (as vLLM does). ``preempt`` lets a running request be evicted and recomputed.
    ``speculate`` appends a draft to each decode, of a length the packer learns one step late. ``prefix_cache`` keeps
    the blocks of finished requests for later prompts. ``offload`` keeps them outside the pool and loads them back.
    """

    admission: Admission
    by_chunk: bool = False
    preempt: bool = False
    speculate: bool = False
    prefix_cache: bool = False
    offload: bool = False
    voice: str = "vllm"
    about: str = ""


PROFILES: Final[dict[str, Profile]] = {
    "draft": Profile(
        "reserve",
        speculate=True,
        voice="tensorrt_llm",
        about="assertion: each decode is charged last step's draft length and appends this step's",
    ),
    "reuse": Profile(
        "reserve",
        prefix_cache=True,
        voice="tensorrt_llm",
        about="assertion: a prompt is charged less for a cache hit that is gone when claimed (TensorRT-LLM #13318)",
    ),
    "deadlock": Profile(
        "prompt", about="hold and wait: admitted on the prompt alone, every decode grows, nobody is evicted"
    ),
    "prefill": Profile("chunk", about="hold and wait: admitted on the first chunk, the rest of the prompt is a claim"),
    "oversize": Profile(
        "prompt",
        by_chunk=True,
        preempt=True,
        about="one legal request is larger than the pool and blocks the head of the queue",
    ),
    "transfer": Profile(
        "prompt",
        by_chunk=True,
        preempt=True,
        offload=True,
        about="hold and wait in the queue: loaded prefixes hold blocks, no remainder fits (vLLM #45388)",
    ),
    "reserve": Profile("reserve", about="control: everything a request may need is reserved; never wedges"),
    "preempt": Profile(
        "prompt", by_chunk=True, preempt=True, about="control: the youngest is evicted on shortage; never wedges"
    ),
}


CONTROLS: Final = ("reserve", "preempt")
"""Profiles whose promises hold, or can be withdrawn."""

_COUNTS: Final = {
    *("hard_tokens", "step_tokens", "kv_blocks", "block_tokens", "max_batch"),
    *("max_seq_len", "max_draft", "link_blocks", "host_blocks"),
}


@dataclass(frozen=True, slots=True)
class Config:
    """One engine. Tokens are bytes of text; see the module for H, A, N and K."""

    profile: str = "draft"
    hard_tokens: int = 256  # H
    step_tokens: int = 240  # A
    kv_blocks: int = 1024  # N
    block_tokens: int = 4
    kv_ceiling: float = 1.0  # K as a share of the pool
    max_batch: int = 32  # K as a number of requests
    max_seq_len: int = 384
    max_draft: int = 5
    link_blocks: int = 4  # blocks that a transfer brings per step
    host_blocks: int = 8192  # blocks kept outside the pool
    seed: int = 0

    def __post_init__(self) -> None:
        if self.profile not in PROFILES:
            raise ConfigError(f"profile {self.profile!r} is unknown; choose one of {', '.join(PROFILES)}")
        for name, value in asdict(self).items():
            if name in _COUNTS and value < 1:
                raise ConfigError(f"{name} is {value}; it must be at least 1")
        if self.step_tokens > self.hard_tokens:
            raise ConfigError(
                f"step_tokens (A, {self.step_tokens}) is above hard_tokens (H, {self.hard_tokens}): "
                "the packer would overrun the buffers with no claim growing at all; lower A or raise H"
            )
        if self.step_tokens < self.block_tokens:
            raise ConfigError(f"step_tokens ({self.step_tokens}) is below one block ({self.block_tokens} tokens)")
        if not 0 < self.kv_ceiling <= 1:
            raise ConfigError(f"kv_ceiling is {self.kv_ceiling}; it is a share of the pool, above 0 and up to 1")
        if self.profile != "oversize" and self.blocks_for(self.max_seq_len + self.lookahead) > self.kv_blocks:
            raise ConfigError(
                f"max_seq_len {self.max_seq_len} needs more than the pool of {self.kv_pool_tokens} tokens: "
                "a legal request would never fit; raise kv_blocks, lower max_seq_len, or ask for profile oversize"
            )

    @property
    def rules(self) -> Profile:
        return PROFILES[self.profile]

    @property
    def lookahead(self) -> int:
        """Tokens past the last one that a speculative step may write."""
        return self.max_draft if self.rules.speculate else 0

    @property
    def kv_pool_tokens(self) -> int:
        return self.kv_blocks * self.block_tokens

    def blocks_for(self, tokens: int) -> int:
        return -(-tokens // self.block_tokens)

    @property
    def safe_concurrency(self) -> int:
        """Requests at once for which this configuration provably cannot wedge.

        ``draft``: n decodes grow by at most n tokens in a step, so n <= H - A. Hold-and-wait profiles: n requests of
        the longest legal length fit the pool. Controls: no bound, given as ``max_batch``.
        """
        if self.rules.speculate:
            return min(self.max_batch, self.hard_tokens - self.step_tokens)
        if self.profile in ("deadlock", "prefill", "transfer"):
            return min(self.max_batch, self.kv_blocks // self.blocks_for(self.max_seq_len))
        return 0 if self.profile in ("reuse", "oversize") else self.max_batch

    def with_(self, **changes: Any) -> Config:
        return replace(self, **changes)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


_SHAPES: Final[dict[str, dict[str, Any]]] = {
    "draft": {},
    "reuse": {"step_tokens": 256, "kv_blocks": 512, "max_batch": 48, "max_seq_len": 512},
    "deadlock": {"step_tokens": 256, "kv_blocks": 512, "max_batch": 64},
    "prefill": {"step_tokens": 128, "hard_tokens": 128, "kv_blocks": 512, "max_batch": 64},
    "oversize": {"step_tokens": 256, "kv_blocks": 512, "max_batch": 64, "max_seq_len": 4096},
    "transfer": {"step_tokens": 256, "kv_blocks": 512, "max_batch": 64, "max_seq_len": 768, "link_blocks": 2},
    "reserve": {"step_tokens": 256, "kv_blocks": 512, "max_batch": 64},
    "preempt": {"step_tokens": 256, "kv_blocks": 512, "max_batch": 64},
}


def preset(profile: str, **changes: Any) -> Config:
    """The shape in which a profile is shown on one CPU core; ``changes`` override single knobs."""
    if profile not in PROFILES:
        raise ConfigError(f"profile {profile!r} is unknown; choose one of {', '.join(PROFILES)}")
    return Config(profile=profile, **{**_SHAPES[profile], **changes})
