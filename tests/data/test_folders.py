"""Cache folders and writable folders."""

from dlmexp.data.folders import cache_folders, is_writable


def test_cache_is_next_to_files_of_the_data_root_else_in_the_users_cache_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("DLMEXP_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    root = tmp_path / "root"
    inside, outside = cache_folders(root / "a" / "f", root), cache_folders(tmp_path / "elsewhere" / "f", root)
    assert inside[0] == root / "a" / ".cache"
    assert [folder.parent for folder in (inside[1], *outside)] == [tmp_path / "xdg" / "dlmexp"] * 2
    assert inside[1] != outside[0]
    monkeypatch.setenv("DLMEXP_CACHE", str(tmp_path / "own"))
    assert [folder.parent for folder in cache_folders(root / "a" / "f", root)] == [tmp_path / "own"]


def test_is_writable(tmp_path):
    (tmp_path / "closed").mkdir(mode=0o555)
    assert is_writable(tmp_path / "not" / "yet" / "there")
    assert not is_writable(tmp_path / "closed" / "inner")
    (tmp_path / "file").touch()
    assert not is_writable(tmp_path / "file" / "inner")
