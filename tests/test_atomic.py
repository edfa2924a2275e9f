"""Files that appear under their name once all of them is written."""

import pytest

from dlmexp.atomic import owner, replacing, writer_of


def test_the_file_appears_at_the_end(tmp_path):
    path = tmp_path / "file.csv"
    path.write_text("old")
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert temporary.parent == tmp_path
        assert writer_of(temporary) == owner()
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_after_an_error_nothing_has_changed(tmp_path):
    path = tmp_path / "file.csv"
    path.write_text("old")

    def interrupted() -> None:
        with replacing(path) as temporary:
            temporary.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
