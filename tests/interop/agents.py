"""Stock torchrun agents that meet at our store, and at PyTorch's own for comparison."""

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from servers import HOST, MODERN, Ours, connect
from torch.distributed.elastic.multiprocessing import Std

# PyTorch 1.13 iterates over the members of the flag enumeration Std to read the values of --redirects and --tee. Since
# Python 3.11 that leaves out the members that are not a single bit, NONE among them: Std.from_str("0"), the default of
# both options, is None, and the agent ends with "'NoneType' object has no attribute 'get'" in to_map when it starts its
# workers, whatever store it met at. Debian 12 has such a pair. With a single bit for both options the agents work:
# stderr of the workers is then written to files and copied from there.
BROKEN_DEFAULTS = Std.from_str("0") is None
WORKAROUND = ["--redirects", "2", "--tee", "2"] if BROKEN_DEFAULTS else []

# If told to, rank 1 fails in the first attempt when all ranks are there, and none of them gets as far as the workers'
# own store. torchrun hosts that one itself and keeps it over a restart, so that the next attempt could take the
# addresses of dead workers from it. Its count of restarts is no help: it differs between the agents.
WORKER = """
import os, pathlib, sys, time, torch, torch.distributed as dist
folder = pathlib.Path(__file__).parent
if sys.argv[1] == "fail" and not (folder / "failed").exists():
    (folder / ("here" + os.environ["RANK"])).touch()
    while os.environ["RANK"] != "1" or len(list(folder.glob("here*"))) < 4:
        time.sleep(0.05)  # rank 1: for the others; they: until their agent ends them
    (folder / "failed").touch()
    sys.exit("this rank was told to fail")
dist.init_process_group("gloo")
total = torch.tensor([float(dist.get_rank())])
dist.all_reduce(total)
rank, node = dist.get_rank(), os.environ["GROUP_RANK"]
# In one piece: torchrun's workers share a pipe, and print() would write the end of the line by itself.
sys.stdout.write(f"rank {rank} of {dist.get_world_size()}, node {node}, sum {total.item()}\\n")
sys.stdout.flush()
dist.destroy_process_group()
"""


def agent(endpoint, nodes, is_host, options, program, log):
    command = [
        sys.executable, "-m", "torch.distributed.run", "--rdzv_backend", "c10d", "--rdzv_endpoint", endpoint,
        "--rdzv_conf", f"is_host={int(is_host)}", "--rdzv_id", "interop", "--nnodes", str(nodes),
        "--nproc_per_node", "2", "--monitor_interval", "1", *options, *program,
    ]  # fmt: skip
    return subprocess.Popen(command, stdout=log, stderr=log, text=True)


def text_of(log):
    log.seek(0)
    return log.read()


def two_agents_at_our_store(restarts):
    """They meet, and meet again each time that a worker has failed."""
    server = Ours()
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "worker.py"
        script.write_text(WORKER)
        logs = [open(Path(folder) / f"agent{n}.log", "w+") for n in range(2)]
        options = [*WORKAROUND, "--log_dir", folder, "--max_restarts", str(restarts)]
        agents = [
            agent(f"{HOST}:{server.port}", 2, False, options, [str(script), "fail" if restarts else "work"], log)
            for log in logs
        ]
        codes = [process.wait() for process in agents]
        output = "\n".join(text_of(log) for log in logs)
        for log in logs:
            log.close()
    print(output)
    assert codes == [0, 0], f"the agents ended with {codes}"
    lines = sorted(line for line in output.splitlines() if line.startswith("rank "))
    assert len(lines) == 4 and all(line.endswith("sum 6.0") for line in lines), lines
    assert {line.split(", ")[1] for line in lines} == {"node 0", "node 1"}, lines
    store = connect(server)
    assert store.get("torch.rendezvous.interop"), "the rendezvous left nothing in our store"
    keys = store.num_keys()
    del store
    assert not server.refusals(), server.refusals()
    server.stop()
    seconds = time.monotonic() - began
    print(f"SUMMARY 2 agents x 2 workers, {restarts} restarts: {seconds:.1f} s, {keys} keys are left")


def control_with_default_options():
    """One agent that hosts PyTorch's own store: whether the defaults work with this PyTorch and Python."""
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as log:
        process = agent(f"{HOST}:0", 1, True, ["--log_dir", folder], ["--no_python", "true"], log)
        code = process.wait()
        output = text_of(log)
    print(output)
    if not BROKEN_DEFAULTS:
        assert code == 0, f"the agent ended with {code}"
        return
    assert code != 0 and "'NoneType' object has no attribute 'get'" in output, f"the agent ended with {code}"
    print("SUMMARY with PyTorch's own store and default options its agent fails in to_map: not ours, and worked around")


def runs():
    yield "two stock torchrun agents meet at our store and train", lambda: two_agents_at_our_store(0), 90
    if MODERN:  # Debian's would do, but take longer than the rest of its tests together
        yield "two stock torchrun agents meet again after a worker failed", lambda: two_agents_at_our_store(1), 120
    yield "control: a stock torchrun agent at PyTorch's own store", control_with_default_options, 60
