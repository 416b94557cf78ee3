"""The pool never loses a block, never gives one twice, and forgets the least recent prefix first."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reproducer.kv_cache import KVCache, chain
from reproducer.request import Request


def ask(number: int, text: bytes) -> Request:
    return Request(number, text, 8, hashes=chain(text, 4))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["grow", "release", "return"]), st.integers(0, 5), st.integers(1, 60)), max_size=60
    ),
    st.booleans(),
)
def test_blocks_are_conserved_whatever_is_done(moves: list[tuple[str, int, int]], keep: bool) -> None:
    kv = KVCache(24, 4, keep=keep)
    requests = [ask(number, bytes([number % 3]) * 60) for number in range(6)]
    for move, who, tokens in moves:
        request = requests[who]
        if move == "grow":
            kv.grow(request, tokens)
        elif move == "release":
            request.computed = len(request.blocks) * 4
            kv.release(request)
        elif not request.blocks:
            kv.share(request)
        kv.check(requests)
        kv.audit(requests)


def test_all_or_nothing() -> None:
    kv = KVCache(4, 4)
    first, second = Request(1, b"x" * 12, 1), Request(2, b"x" * 12, 1)
    assert kv.grow(first, 12)
    assert not kv.grow(second, 8)
    assert second.blocks == []
    assert kv.available == 1


def test_a_finished_prefix_is_found_again_and_then_evicted() -> None:
    kv = KVCache(6, 4, keep=True)
    first = ask(1, b"abcdefghijkl")
    kv.grow(first, 12)
    first.computed = 12
    kv.release(first)
    again = ask(2, b"abcdefghijklmnop")
    assert len(kv.hit(again)) == 3
    assert kv.available == 6, "a cached block counts as free as well: that is the double count"
    other = ask(3, b"z" * 24)
    kv.grow(other, 24)
    assert kv.hit(again) == []


def test_the_end_of_a_prefix_goes_before_its_beginning() -> None:
    kv = KVCache(4, 4, keep=True)
    first = ask(1, b"abcdefghijkl")
    kv.grow(first, 12)
    first.computed = 12
    kv.release(first)
    kv.grow(ask(2, b"qrst"), 8)
    assert len(kv.hit(ask(3, b"abcdefghijklmnop"))) == 2


def test_one_token_is_always_left_to_compute() -> None:
    kv = KVCache(4, 4, keep=True)
    first = ask(1, b"abcdefgh")
    kv.grow(first, 8)
    first.computed = 8
    kv.release(first)
    assert len(kv.hit(ask(2, b"abcdefgh"))) == 1


def test_a_wrong_table_is_noticed() -> None:
    kv = KVCache(4, 4)
    request = Request(1, b"abcd", 1)
    kv.grow(request, 4)
    request.blocks.append(3)
    with pytest.raises(RuntimeError, match="must be"):
        kv.check([request])
    with pytest.raises(RuntimeError, match="disagree"):
        kv.audit([request])
