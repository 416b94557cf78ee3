"""The mailbox holds a bounded number of bytes, and can be woken by anybody."""

from __future__ import annotations

import threading

from agent.mailbox import Mailbox


def never() -> bool:
    return False


def test_what_is_put_is_taken_in_order() -> None:
    box: Mailbox[int] = Mailbox()
    for number in range(3):
        assert box.put(number, 10, never)
    assert [box.take(1), box.take(1), box.take(0), box.take(0)] == [0, 1, 2, None]
    assert box.waiting == 0


def test_a_full_box_makes_the_writer_wait() -> None:
    """::

    writer  put 60 | put 60 ......waits...... | goes on
    reader                        take 60 ^
    """
    box: Mailbox[str] = Mailbox(limit=100)
    assert box.put("first", 60, never)
    began = threading.Event()
    done: list[bool] = []

    def write() -> None:
        began.set()
        done.append(box.put("second", 60, never))

    writer = threading.Thread(target=write)
    writer.start()
    began.wait(5)
    assert box.waiting == 60
    assert box.take(5) == "first"
    writer.join(5)
    assert done == [True]
    assert box.take(5) == "second"


def test_one_thing_always_fits() -> None:
    box: Mailbox[str] = Mailbox(limit=10)
    assert box.put("large", 1000, never)


def test_a_writer_that_is_given_up_does_not_wait() -> None:
    box: Mailbox[str] = Mailbox(limit=10)
    box.put("first", 10, never)
    assert not box.put("second", 10, lambda: True)
    assert not box.put("third", 10, never, timeout=0.0)
    assert not box.put("fourth", 10, lambda: True)
    assert box.take(0) == "first"
    assert box.take(0) is None


def test_a_wake_up_ends_a_wait_and_loses_nothing() -> None:
    box: Mailbox[str] = Mailbox()
    box.wake()
    assert box.take(30) is None
    box.wake()
    box.put("item", 1, never)
    assert box.take(0) == "item"  # a wake-up is not taken for an item
