"""From stored alerts to receivers: routes, groups, silences, the outbox and its workers."""

from agent.notify.dispatcher import Dispatcher
from agent.notify.mutes import add_mute
from agent.notify.sendtest import send_test

__all__ = ["Dispatcher", "add_mute", "send_test"]
