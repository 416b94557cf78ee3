"""A changed file is noticed once it has settled, however it was changed."""

from __future__ import annotations

import os
from pathlib import Path

from agent.config_watch import ConfigWatch


def test_a_change_counts_when_it_has_settled(tmp_path: Path) -> None:
    """::

    file    old | half of it | whole      | whole
    looks    no      no           no         YES     no
    """
    file = tmp_path / "a.yaml"
    file.write_text("old")
    watch = ConfigWatch(lambda: [str(file)])
    assert not watch.changed()
    file.write_text("ne")
    assert not watch.changed()
    file.write_text("new text")
    assert not watch.changed()
    assert watch.changed()
    assert not watch.changed()


def test_a_touch_is_no_change(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("text")
    watch = ConfigWatch(lambda: [str(file)])
    os.utime(file, (1, 1))
    assert [watch.changed() for _ in range(3)] == [False] * 3


def test_a_file_that_comes_and_goes(tmp_path: Path) -> None:
    watch = ConfigWatch(lambda: [str(path) for path in sorted(tmp_path.iterdir())])
    (tmp_path / "new.yaml").write_text("")
    assert [watch.changed(), watch.changed()] == [False, True]
    (tmp_path / "new.yaml").unlink()
    assert [watch.changed(), watch.changed()] == [False, True]


def test_a_link_to_a_folder_is_swapped(tmp_path: Path) -> None:
    for name in ("1", "2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.yaml").write_text(name)
        os.utime(tmp_path / name / "a.yaml", (5, 5))
    data = tmp_path / "data"
    data.symlink_to("1")
    watch = ConfigWatch(lambda: [str(data / "a.yaml")])
    (tmp_path / "tmp").symlink_to("2")
    (tmp_path / "tmp").replace(data)
    assert [watch.changed(), watch.changed()] == [False, True]


def test_what_was_read_meanwhile_is_known(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("old")
    watch = ConfigWatch(lambda: [str(file)])
    file.write_text("new")
    watch.seen()
    assert [watch.changed(), watch.changed()] == [False, False]
