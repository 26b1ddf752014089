"""What workers find: their numbers, the place of the store, arguments, the meaning of `torch`. Compared with the real launcher."""

from __future__ import annotations

import json
import os
import re
import sys

import pytest
from launching import OURS, REAL, launch, well

TELL = """
    import json, os, sys
    found = {name: value for name, value in os.environ.items() if name.split("_")[0] in KINDS}
    line = json.dumps([int(os.environ["RANK"]), found, sys.argv[1:]])
    os.write(1, (line + chr(10)).encode())  # in one piece, which that of another rank cannot come into
""".replace("KINDS", "('RANK', 'LOCAL', 'WORLD', 'GROUP', 'ROLE', 'MASTER', 'TORCHELASTIC', 'OMP', 'NCCL', 'TORCH', 'PYTHONUNBUFFERED')")


def told(run):
    return sorted(json.loads(line) for line in well(run))


@pytest.mark.parametrize(
    "options",
    [("--nproc_per_node=2",), ("--nproc-per-node", "2", "--master_port=0", "--max-restarts=2", "--role=trainer", "--rdzv_id", "one")],
    ids=["alone", "static"],
)
def test_workers_find_torchruns_variables(tmp_path, options):
    """A worker finds another environment than under torchrun: names, or values that do not differ from run to run."""
    if "--master_port=0" in options:
        from worlds import free_port

        options = tuple(f"--master_port={free_port()}" if option == "--master_port=0" else option for option in options)
    ours = told(launch(*options, folder=tmp_path, program=TELL, args=("a", "--b=3")))
    real = told(launch(*options, folder=tmp_path, program=TELL, args=("a", "--b=3"), start=REAL))

    def steady(found):
        text = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}", "UUID", json.dumps(found, sort_keys=True))
        text = re.sub(r"/tmp/torchelastic_\w+/(UUID|one)_\w+", "FOLDER", text)
        return re.sub(r'"MASTER_PORT": "\d+"', "", text)

    assert [steady(one) for one in ours] == [steady(one) for one in real]


def test_torch_means_flambeau_in_workers_and_in_what_they_start(tmp_path):
    """Workers of `flambeau run` import the real torch, or processes that they start do."""
    program = """
        import os, subprocess, sys, torch
        inner = subprocess.run([sys.executable, "-c", "import torch; print(torch.__file__)"], capture_output=True, text=True).stdout
        assert "startup" not in os.environ["PYTHONPATH"].split("compat/startup")[0], os.environ["PYTHONPATH"]
        print(os.path.dirname(torch.__file__).endswith("flambeau"), os.path.dirname(inner).endswith("flambeau"))
    """
    assert well(launch("--nproc_per_node=2", folder=tmp_path, program=program)) == ["True True"] * 2


def test_pythons_own_options_reach_the_workers(tmp_path):
    """`flambeau run -W error --nproc_per_node=2` does not run the workers with -W error."""
    program = "import sys; print(sys.warnoptions, sys.flags.dev_mode)"
    found = well(launch("-X", "dev", "-W", "error", "--nproc_per_node=2", folder=tmp_path, program=program))
    assert found == ["['default', 'error'] True"] * 2


def test_without_options_of_the_launcher_nothing_changes(tmp_path):
    """`flambeau run train.py` became a launcher, or took arguments of the program for its own."""
    program = "import os, sys; print(os.environ.get('RANK'), sys.argv[1:])"
    assert well(launch(folder=tmp_path, program=program, args=("--nproc_per_node=2",))) == ["None ['--nproc_per_node=2']"]


@pytest.mark.parametrize("module", ["torch.distributed.run", "torch.distributed.launch"])
def test_the_modules_of_torch_launch_under_the_alias(tmp_path, module):
    """`python -m torch.distributed.run` in a process where torch means Flambeau starts something else, or `launch` passes no --local-rank."""
    program = f"""
        import subprocess, sys
        if sys.argv[1:2] != ["worker"] and "--local-rank=0" not in sys.argv and "--local-rank=1" not in sys.argv:
            words = ["-W", "ignore", "-m", "{module}", "--nproc_per_node=2", __file__, "worker"]
            sys.exit(subprocess.call([sys.executable, *words]))
        import torch
        print("flambeau" in torch.__file__, sys.argv[1:])
    """
    extra = {"torch.distributed.run": [], "torch.distributed.launch": ["--local-rank={}"]}[module]
    expected = [f"True {[*(word.format(rank) for word in extra), 'worker']}" for rank in range(2)]
    assert well(launch(folder=tmp_path, program=program)) == expected


def test_modules_programs_and_paths(tmp_path):
    """-m, --no_python or --run_path run something else than they say."""
    (tmp_path / "tellers.py").write_text("import os, sys; print('module', os.environ['RANK'], sys.argv[1:])")
    start = (*OURS, "--nproc_per_node=2", "-m", "tellers")
    found = well(launch(folder=tmp_path, program="", start=start))
    assert found == [f"module {rank} ['{tmp_path / 'program.py'}']" for rank in range(2)]
    start = (*OURS, "--nproc_per_node=2", "--no-python", "echo", "hi ${local_rank}")
    assert well(launch(folder=tmp_path, program="", start=start)) == [f"hi {rank} {tmp_path / 'program.py'}" for rank in range(2)]
    program = "import os, sys; print(__name__, os.environ['RANK'], sys.argv[1:])"
    assert well(launch("--run-path", "--nproc_per_node=2", folder=tmp_path, program=program, args=("x",))) == [
        f"__main__ {rank} ['x']" for rank in range(2)
    ]


def test_options_from_the_environment(tmp_path):
    """PET_... variables are not the defaults of options."""
    start = (*OURS, "--standalone")
    found = well(launch(folder=tmp_path, program="import os; print(os.environ['RANK'])", start=start, env={"PET_NPROC_PER_NODE": "2"}))
    assert found == ["0", "1"]


def test_threads_are_shared_with_a_word(tmp_path):
    """Two workers compute with all threads each, or the launcher does not say that it gave them one."""
    program = "import os; print(os.environ['OMP_NUM_THREADS'])"
    start = ("-c", "import os, runpy, sys; del os.environ['OMP_NUM_THREADS']; runpy.run_module('flambeau', run_name='__main__')", "run")
    run = launch("--nproc_per_node=2", folder=tmp_path, program=program, start=start)
    assert well(run) == ["1", "1"]
    assert "OMP_NUM_THREADS is not set" in run.stderr


def test_each_run_has_a_secret_of_its_own(tmp_path):
    """Runs share the secret that lets processes in, or one that was given is not used."""
    program = "import os; print(os.environ['FLAMBEAU_DIST_SECRET'])"
    (first,), (second,) = (set(well(launch("--nproc_per_node=2", folder=tmp_path, program=program))) for _ in range(2))
    assert first != second and len(first) >= 32
    given = well(launch("--nproc_per_node=2", folder=tmp_path, program=program, env={"FLAMBEAU_DIST_SECRET": "mine"}))
    assert given == ["mine"] * 2


def test_workers_do_not_think_they_are_ranks_of_an_outer_mpi(tmp_path):
    """The variables by which mpiexec or srun speaks to the launcher reach its workers."""
    program = "import os; print(sorted(name for name in os.environ if name.startswith(('PMI', 'SLURM'))))"
    outer = {"PMI_RANK": "0", "PMI_SIZE": "1", "PMI_FD": "7", "PMIX_RANK": "0", "SLURM_PROCID": "0", "SLURM_JOB_ID": "12"}
    assert well(launch("--nproc_per_node=2", folder=tmp_path, program=program, env=outer)) == ["['SLURM_JOB_ID']"] * 2
    kept = well(launch(folder=tmp_path, program=program, env=outer))
    assert kept == [str(sorted(outer))], "flambeau run without a launcher must leave them alone"


def test_a_program_under_mpiexec_is_a_rank_of_it(tmp_path):
    """`mpiexec -n 2 flambeau run train.py` hides from the program that mpiexec started it."""
    mpiexec = os.path.join(os.path.dirname(sys.executable), "mpiexec")
    if not os.path.exists(mpiexec):
        pytest.skip("there is no mpiexec beside this Python: pip install mpich")
    # In one piece: what two ranks of mpiexec write in several may mix.
    program = """
        import os, torch
        os.write(1, f"{os.environ['PMI_RANK']} {os.environ['PMI_SIZE']} {'flambeau' in torch.__file__}\\n".encode())
    """
    assert well(launch(folder=tmp_path, program=program, prefix=(mpiexec, "-n", "2"))) == ["0 2 True", "1 2 True"]
