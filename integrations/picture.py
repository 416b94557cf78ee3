"""A small picture of queue, running requests, completions and KV use around the onset, as PNG.

Drawn by hand on purpose: four lines and a few words need no plotting library, and the daemon must not load one.
https://www.w3.org/TR/png-3/
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from agent.model import Alert
from integrations.base import Notification
from integrations.series import Course, courses
from integrations.text import number
from integrations.wording import worst_first

__all__ = ["FILE_NAME", "draw", "draw_for"]

FILE_NAME: Final = "course.png"

WIDTH: Final = 640
PANEL: Final = 72
_LEFT: Final = 8
_TOP: Final = 16
_PALETTE: Final = (
    (255, 255, 255),  # 0 paper
    (30, 30, 30),  # 1 ink
    (200, 200, 200),  # 2 frame
    (31, 98, 180),  # 3 line
    (200, 30, 30),  # 4 onset
)
# Five by seven dots a character: only those that the labels need.
_FONT: Final = {
    line[0]: tuple(line[2:].split(" "))
    for line in """\
0 .###. #...# #..## #.#.# ##..# #...# .###.
1 ..#.. .##.. ..#.. ..#.. ..#.. ..#.. .###.
2 .###. #...# ....# ...#. ..#.. .#... #####
3 .###. #...# ....# ..##. ....# #...# .###.
4 ...#. ..##. .#.#. #..#. ##### ...#. ...#.
5 ##### #.... ####. ....# ....# #...# .###.
6 .###. #.... #.... ####. #...# #...# .###.
7 ##### ....# ...#. ..#.. ..#.. ..#.. ..#..
8 .###. #...# #...# .###. #...# #...# .###.
9 .###. #...# #...# .#### ....# ....# .###.
. ..... ..... ..... ..... ..... .##.. .##..
: ..... .##.. .##.. ..... .##.. .##.. .....
- ..... ..... ..... ##### ..... ..... .....
> .#... ..#.. ...#. ....# ...#. ..#.. .#...
% ##..# ##.#. ...#. ..#.. .#... .#.## #..##
/ ....# ...#. ...#. ..#.. .#... .#... #....
K #...# #..#. #.#.. ##... #.#.. #..#. #...#
V #...# #...# #...# #...# .#.#. .#.#. ..#..
M #...# ##.## #.#.# #.#.# #...# #...# #...#
G .###. #...# #.... #.### #...# #...# .###.
T ##### ..#.. ..#.. ..#.. ..#.. ..#.. ..#..
U #...# #...# #...# #...# #...# #...# .###.
C .###. #...# #.... #.... #.... #...# .###.
a ..... ..... .###. ....# .#### #...# .####
d ....# ....# .#### #...# #...# #...# .####
e ..... ..... .###. #...# ##### #.... .###.
f ..##. .#... ####. .#... .#... .#... .#...
g ..... .#### #...# #...# .#### ....# .###.
h #.... #.... ####. #...# #...# #...# #...#
i ..#.. ..... .##.. ..#.. ..#.. ..#.. .###.
k #.... #.... #..#. #.#.. ##... #.#.. #..#.
m ..... ..... ##.#. #.#.# #.#.# #...# #...#
n ..... ..... ####. #...# #...# #...# #...#
o ..... ..... .###. #...# #...# #...# .###.
r ..... ..... #.##. ##..# #.... #.... #....
s ..... ..... .#### #.... .###. ....# ####.
t .#... .#... ####. .#... .#... .#..# ..##.
u ..... ..... #...# #...# #...# #..## .##.#
w ..... ..... #...# #...# #.#.# #.#.# .#.#.
""".splitlines()
}


def draw_for(notification: Notification) -> bytes | None:
    """The picture of a page's worst alert, for its first message only: later ones belong to the same conversation."""
    if notification.action != "open" or notification.degraded or not notification.alerts:
        return None
    return draw(worst_first(notification.alerts)[0])


def draw(alert: Alert) -> bytes | None:
    """The picture of an alert as PNG bytes (some kilobytes); None when it carries no courses."""
    shown = [course for course in courses(alert.context.get("series")) if len(course.points) >= 3][:4]
    if not shown:
        return None
    begin = min(course.points[0][0] for course in shown)
    end = max(course.points[-1][0] for course in shown)
    if end <= begin:
        return None
    canvas = _Canvas(WIDTH, PANEL * len(shown) + 16)
    onset = None
    if begin <= alert.starts_at <= end:
        onset = _LEFT + round((alert.starts_at - begin) / (end - begin) * (WIDTH - 2 * _LEFT))
    for index, course in enumerate(shown):
        _panel(canvas, index * PANEL, course, begin, end, onset)
    bottom = PANEL * len(shown) + 4
    canvas.text(_LEFT, bottom, _clock(begin), 1)
    canvas.text(WIDTH - _LEFT - 6 * 12, bottom, _clock(end) + " UTC", 1)
    if onset is not None:
        canvas.text(min(max(onset - 15, 90), WIDTH - 140), bottom, "onset", 4)
    return canvas.png()


def _panel(canvas: _Canvas, top: int, course: Course, begin: float, end: float, onset: int | None) -> None:
    high = max(0.0, *(value for _, value in course.points))
    low = min(0.0, *(value for _, value in course.points))
    span = (high - low) or 1.0
    floor, height = top + PANEL - 4, PANEL - _TOP - 6
    canvas.line(_LEFT, floor, WIDTH - _LEFT, floor, 2)
    first, last = course.points[0][1], course.points[-1][1]
    label = f"{course.name}  {number(first)}{course.unit} -> {number(last)}{course.unit}"
    canvas.text(_LEFT, top + 4, label, 1)
    if onset is not None:
        for y in range(top + _TOP, floor, 4):
            canvas.line(onset, y, onset, y + 1, 4)
    spots = [
        (
            _LEFT + round((when - begin) / (end - begin) * (WIDTH - 2 * _LEFT)),
            floor - round((value - low) / span * height),
        )
        for when, value in course.points
    ]
    canvas.path(spots, 3)


def _clock(timestamp: float) -> str:
    seconds = int(timestamp) % 86400
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


class _Canvas:
    """Dots of a palette."""

    def __init__(self, width: int, height: int) -> None:
        self._width, self._height = width, height
        self._dots = bytearray(width * height)

    def dot(self, x: int, y: int, color: int) -> None:
        if 0 <= x < self._width and 0 <= y < self._height:
            self._dots[y * self._width + x] = color

    def line(self, x0: int, y0: int, x1: int, y1: int, color: int) -> None:
        steps = max(abs(x1 - x0), abs(y1 - y0), 1)
        for step in range(steps + 1):
            self.dot(x0 + round((x1 - x0) * step / steps), y0 + round((y1 - y0) * step / steps), color)

    def path(self, spots: Sequence[tuple[int, int]], color: int) -> None:
        for (x0, y0), (x1, y1) in pairwise(spots):
            self.line(x0, y0, x1, y1, color)
            self.line(x0, y0 + 1, x1, y1 + 1, color)  # two dots thick

    def text(self, x: int, y: int, text: str, color: int) -> None:
        for char in text:
            for row, dots in enumerate(_FONT.get(char, ())):
                for column, dot in enumerate(dots):
                    if dot == "#":
                        self.dot(x + column, y + row, color)
            x += 6

    def png(self) -> bytes:
        rows = b"".join(b"\0" + bytes(self._dots[y * self._width : (y + 1) * self._width]) for y in range(self._height))
        header = struct.pack(">IIBBBBB", self._width, self._height, 8, 3, 0, 0, 0)  # 8 bits a dot, by palette
        palette = b"".join(bytes(color) for color in _PALETTE)
        chunks = ((b"IHDR", header), (b"PLTE", palette), (b"IDAT", zlib.compress(rows, 9)), (b"IEND", b""))
        return b"\x89PNG\r\n\x1a\n" + b"".join(
            struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
            for kind, data in chunks
        )
