"""Files from the network: tried again, checked, and never half there."""

from __future__ import annotations

import gzip
import hashlib
import os
import socket
import tarfile
import urllib.error
import zipfile

import pytest
from data_server import serving

from flambeau.vision.datasets import utils

BODY = bytes(range(256)) * 50
MD5 = hashlib.md5(BODY).hexdigest()


@pytest.fixture
def web(monkeypatch):
    monkeypatch.setattr(utils, "PAUSE", 0.0)
    monkeypatch.setenv("no_proxy", "*")
    with serving() as answers:
        answers.bodies["/file.bin"] = BODY
        yield answers


def test_a_file_is_fetched_and_then_left_alone(web, tmp_path):
    """A second call must not ask the network again; a file with another checksum is fetched anew."""
    for _ in range(2):
        utils.download_url(f"{web.url}/file.bin", tmp_path, md5=MD5)
    assert (tmp_path / "file.bin").read_bytes() == BODY and web.asked == ["/file.bin"]
    (tmp_path / "file.bin").write_bytes(b"something else")
    utils.download_url(f"{web.url}/file.bin", tmp_path, md5=MD5)
    assert (tmp_path / "file.bin").read_bytes() == BODY and len(web.asked) == 2


@pytest.mark.parametrize("troubles", [[503], ["cut"], ["wrong"], [500, "cut"]])
def test_trouble_that_passes_is_tried_again(web, tmp_path, troubles):
    """A server error, a cut connection or wrong bytes are no reason to give up at once."""
    web.troubles = list(troubles)
    utils.download_url(f"{web.url}/file.bin", tmp_path, "other.bin", MD5)
    assert os.listdir(tmp_path) == ["other.bin"] and (tmp_path / "other.bin").read_bytes() == BODY
    assert len(web.asked) == len(troubles) + 1


@pytest.mark.parametrize(
    ("trouble", "message"), [("cut", "ended after 6400 of 12800 bytes"), ("wrong", f"not {MD5}"), (500, "HTTP Error 500")]
)
def test_trouble_that_stays_is_reported_and_leaves_no_file(web, tmp_path, trouble, message):
    """After the last attempt an error says what happened each time, and no file of any name remains."""
    web.troubles = [trouble] * utils.ATTEMPTS
    with pytest.raises(RuntimeError, match=r"could not download file\.bin") as error:
        utils.download_url(f"{web.url}/file.bin", tmp_path, md5=MD5)
    assert message in str(error.value) and f"({utils.ATTEMPTS} times)" in str(error.value) and len(web.asked) == utils.ATTEMPTS
    assert os.listdir(tmp_path) == []


def test_the_next_mirror_is_asked_when_one_fails(web, tmp_path):
    """A mirror that does not have the file is asked once, then the next one."""
    utils.download_from([f"{web.url}/nowhere", f"{web.url}/file.bin"], tmp_path / "file.bin", MD5)
    assert web.asked == ["/nowhere", "/file.bin"] and (tmp_path / "file.bin").read_bytes() == BODY


def test_a_name_that_is_unknown_is_not_tried_again(tmp_path, monkeypatch):
    """Without a network the answer comes at once, not after several pauses; a name server that is busy is asked again."""
    for number, attempts in ((socket.EAI_NONAME, 1), (socket.EAI_AGAIN, utils.ATTEMPTS)):
        asked = []

        def refuse(request, timeout, number=number, asked=asked):
            asked.append(request)
            raise urllib.error.URLError(socket.gaierror(number, "no such name"))

        monkeypatch.setattr(utils, "PAUSE", 0.0)
        monkeypatch.setattr(utils.urllib.request, "urlopen", refuse)
        with pytest.raises(RuntimeError, match="no such name"):
            utils.download_url("http://nowhere.invalid/file.bin", tmp_path)
        assert len(asked) == attempts


def test_a_full_disk_is_not_the_networks_fault(web, tmp_path, monkeypatch):
    """An error of the disk is shown as it is, at once, and leaves no part of the file."""

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(utils.os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        utils.download_url(f"{web.url}/file.bin", tmp_path, md5=MD5)
    assert os.listdir(tmp_path) == [] and len(web.asked) == 1


def test_an_interrupted_download_leaves_no_file(web, tmp_path, monkeypatch):
    """Ctrl-C in the middle of a download must not leave a part of the file."""

    class Bar:
        def __enter__(self):
            return self

        def __exit__(self, *exception):
            return False

        def update(self, n):
            raise KeyboardInterrupt

    monkeypatch.setattr(utils, "_progress", lambda name, length: Bar())
    with pytest.raises(KeyboardInterrupt):
        utils.download_url(f"{web.url}/file.bin", tmp_path, md5=MD5)
    assert os.listdir(tmp_path) == []


def test_archives_are_unpacked(tmp_path):
    """zip, tar.gz and gz give their members back; an unknown ending is refused by name."""
    (tmp_path / "a.txt").write_text("inside")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as z:
        z.write(tmp_path / "a.txt", "zipped.txt")
    with tarfile.open(tmp_path / "a.tar.gz", "w:gz") as t:
        t.add(tmp_path / "a.txt", "tarred.txt")
    (tmp_path / "gzipped.txt.gz").write_bytes(gzip.compress(b"inside"))
    out = tmp_path / "out"
    out.mkdir()
    for name in ("a.zip", "a.tar.gz", "gzipped.txt.gz"):
        utils.extract_archive(tmp_path / name, out, remove_finished=True)
        assert not (tmp_path / name).exists()
    assert {path.name: path.read_text() for path in out.iterdir()} == dict.fromkeys(["zipped.txt", "tarred.txt", "gzipped.txt"], "inside")
    with pytest.raises(RuntimeError, match=r"\.txt"):
        utils.extract_archive(tmp_path / "a.txt")


def test_an_archive_cannot_write_outside_of_its_folder(tmp_path):
    """A tar whose member is called ../escaped must be refused."""
    (tmp_path / "a.txt").write_text("x")
    with tarfile.open(tmp_path / "evil.tar", "w") as t:
        t.add(tmp_path / "a.txt", "../escaped")
    (tmp_path / "out").mkdir()
    with pytest.raises(tarfile.FilterError):
        utils.extract_archive(tmp_path / "evil.tar", tmp_path / "out")
    assert not (tmp_path / "escaped").exists()


def test_fetching_and_unpacking_in_one_call(web, tmp_path):
    """download_and_extract_archive leaves the archive and its content."""
    web.bodies["/data.gz"] = gzip.compress(b"numbers")
    utils.download_and_extract_archive(f"{web.url}/data.gz", tmp_path)
    assert (tmp_path / "data").read_bytes() == b"numbers" and (tmp_path / "data.gz").exists()


def test_arguments_are_checked_by_name():
    """verify_str_arg names the argument and what it may be."""
    assert utils.verify_str_arg("a", "split", ("a", "b")) == "a"
    with pytest.raises(ValueError, match="'c' for argument split"):
        utils.verify_str_arg("c", "split", ("a", "b"))
    with pytest.raises(ValueError, match="int"):
        utils.verify_str_arg(1, "split")
