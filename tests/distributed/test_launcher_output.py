"""Where the output of workers goes: files, the console with prefixes, or both. Compared with the real launcher."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from launching import REAL, launch, well

BOTH = """
    import os, sys
    print("out", os.environ["RANK"])
    print("err", os.environ["RANK"], file=sys.stderr)
"""


def tree(folder: Path) -> dict[str, list[str]]:
    """The files of a log folder, without what is random in their names."""
    return {
        re.sub(r"^[^/]+", "RUN", path.relative_to(folder).as_posix()): sorted(path.read_text().splitlines())
        for path in folder.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize(
    "options",
    [
        ("-r", "3", "-t", "1"),
        ("--redirects=0:1,1:2",),
        ("--tee", "3", "--local_ranks_filter=1"),
        ("--tee=1", "--redirects=2", "--duplicate-stdout-filters=out", "--duplicate-stderr-filters=1,x"),
    ],
    ids=["tee", "by rank", "one rank", "filters"],
)
def test_files_and_console_are_torchruns(tmp_path, options):
    """Output goes to other files, or to the console in another form, than under torchrun."""
    seen = []
    for name in ("ours", "real"):
        logs = tmp_path / name
        how = {"start": REAL} if name == "real" else {}
        run = launch("--nproc_per_node=2", f"--log_dir={logs}", *options, folder=tmp_path, program=BOTH, **how)
        seen.append((well(run), sorted(run.stderr.splitlines()), tree(logs)))
    assert seen[0] == seen[1]


def test_lines_carry_role_and_rank(tmp_path):
    """With --tee a line does not say whose it is, or TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE has no effect."""
    options = ("--nproc_per_node=2", "--tee=1", "--role=reader")
    assert well(launch(*options, folder=tmp_path, program=BOTH)) == ["[reader0]:out 0", "[reader1]:out 1"]
    env = {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": "<${role_name} ${rank} ${local_rank}> "}
    assert well(launch(*options, folder=tmp_path, program=BOTH, env=env)) == ["<reader 0 0> out 0", "<reader 1 1> out 1"]


def test_the_error_file_holds_the_traceback(tmp_path):
    """What a worker failed with is not in its error.json, in the layout of torchelastic, unless the program uses @record."""
    program = """
        import sys
        sys.excepthook = lambda *_: print("the program's own hook", file=sys.stderr)
        def main():
            raise ValueError("broken")
        main()
    """
    run = launch(f"--log_dir={tmp_path / 'logs'}", "--standalone", folder=tmp_path, program=program)
    (path,) = (tmp_path / "logs").rglob("error.json")
    said = json.loads(path.read_text())["message"]
    assert said["message"] == "ValueError: broken"
    assert "in main" in said["extraInfo"]["py_callstack"]
    assert int(said["extraInfo"]["timestamp"]) > 1_700_000_000
    assert run.stderr.startswith("the program's own hook")
    assert run.stderr.endswith(said["extraInfo"]["py_callstack"].rstrip() + "\n")


def test_record_writes_what_a_function_raised(tmp_path):
    """@record of torch.distributed.elastic does not write the error file, or hides what was raised."""
    program = """
        import json, os, sys
        from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, record
        @record
        def main():
            raise KeyError("lost")
        try:
            main()
        except KeyError:
            print(json.load(open(os.environ["TORCHELASTIC_ERROR_FILE"]))["message"]["message"])
    """
    assert well(launch("-W", "ignore", "--standalone", folder=tmp_path, program=program)) == ["KeyError: 'lost'"]


def test_a_run_without_log_folder_leaves_no_files(tmp_path):
    """Temporary folders stay behind after every run."""
    program = "import os; print(os.environ['TORCHELASTIC_ERROR_FILE'])"
    env = {"TMPDIR": str(tmp_path)}
    (path,) = well(launch("--standalone", folder=tmp_path, program=program, env=env))
    assert path.startswith(str(tmp_path))
    assert not list(tmp_path.glob("torchelastic_*"))


def test_a_progress_bar_moves_under_tee(tmp_path):
    """What ends with a carriage return is shown only when the worker has ended."""
    from launching import Launcher

    program = "import sys, time; sys.stdout.write('10%\\r'); sys.stdout.flush(); time.sleep(30)"
    launcher = Launcher("--standalone", "--tee=1", folder=tmp_path, program=program)
    launcher.wait_for("[default0]:10%")
    launcher.process.terminate()
    launcher.finish(timeout=10)


@pytest.mark.parametrize(
    "options, words",
    [
        (("--nproc_per_node=many",), "ValueError: Unsupported nproc_per_node value: many"),
        (("--nnodes=1:2:3",), "in the format MIN:MAX"),
        (("--nnodes=3:2",), "min_nodes must be > 0 and <= max_nodes"),
        (("--rdzv_backend=etcd",), "NotImplementedError: --rdzv_backend=etcd: agents do not meet in etcd"),
        (("--rdzv_conf=join_timeout",), "'join_timeout' must have a value"),
        (("--tee=7",), "7 is neither"),
        (("-m", "--no_python"), "at the same time"),
        (("--numa-binding=node",), "NotImplementedError: --numa_binding"),
        (("--logs_specs=nobody",), "torchrun.logs_specs"),
    ],
)
def test_wrong_options_say_what_is_wrong(tmp_path, monkeypatch, options, words):
    """A wrong option is accepted, or its error does not say what is wrong."""
    from flambeau.distributed import run

    monkeypatch.setattr(sys, "argv", ["run"])
    with pytest.raises((ValueError, RuntimeError, AssertionError)) as caught:
        run.main([*options, "train.py"])
    assert words in f"{caught.typename}: {caught.value}"
