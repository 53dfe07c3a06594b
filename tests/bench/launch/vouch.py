#!/usr/bin/env python3
"""What --store-vouch costs the clients of a store on another host than the daemon, and the ddprun of their host.

Two virtual hosts run a job in turns without and with --store-vouch. The worker on the second one connects to the store, sends an
echo request and waits for the answer: one connection after the other, many at once, and one after the other beside processes of
another user that connect without end, which are served without the option and refused with it. What a ddprun prints about a daemon
that it did not hear is printed. Needs root and the cluster tools (DDPRUN_CLUSTER_TOOLS); without them it reports that and ends with 77.
"""
import argparse
import json
import os
import secrets
import select
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.dont_write_bytecode = True  # nothing of a run stays in the tree
sys.path.append(str(Path(__file__).resolve().parent.parent / "collectives"))  # for virtual_hosts.py
from virtual_hosts import Hosts, require_tool  # noqa: E402

PING = b"\x00\xce\xf7\x85\x3c\x0dping"  # PyTorch's first message (VALIDATE and its number), then PING and four bytes
OTHER_USER = 65534
BURST = 500
ROWS = {"one_ms": "a connection and its answer, median (ms)", "one_worst_ms": "the same, 99th percentile (ms)",
        "burst_ms": f"{BURST} at once, to the last answer (ms)", "agent_us": "CPU of the ddprun there, each connection (us)",
        "beside_ms": "beside those of another user, median (ms)", "beside_worst_ms": "the same, 99th percentile (ms)",
        "flood_per_s": "connections of the other user, per second", "flood_cpu": "CPU of the ddprun there meanwhile (cores)"}


def store():
    return os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])


def connect(address):
    """Returns a connection that ends by a reset: in TIME_WAIT, thousands would use up the ports."""
    client = socket.create_connection(address)
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return client


def connect_and_ask(address):
    """Returns the time until the store has answered; None if it has closed the connection."""
    begin = time.monotonic()
    with connect(address) as client:
        try:
            client.sendall(PING)
            return time.monotonic() - begin if client.recv(4) == b"ping" else None
        except ConnectionError:
            return None


def burst(address, count):
    begin, clients = time.monotonic(), []
    for _ in range(count):
        clients.append(connect(address))
        clients[-1].sendall(PING)
    for client in clients:
        if client.recv(4) != b"ping":
            sys.exit("the store has closed a connection of the job's user")
        client.close()
    return time.monotonic() - begin


def cpu_of_agent():
    fields = Path(f"/proc/{os.getppid()}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def flood(address, write_end):
    """Connects as another user until it is killed, and writes a byte for each connection."""
    os.setgroups([])
    os.setuid(OTHER_USER)
    while True:
        connect_and_ask(address)
        os.write(write_end, b".")


def sorted_ms(times):
    return sorted(1000 * time for time in times)


def measure(count, flooders):
    """Runs as the worker on the second host. Returns the figures."""
    address, figures = store(), {}
    for _ in range(20):
        connect_and_ask(address)
    before = cpu_of_agent()
    times = sorted_ms(connect_and_ask(address) for _ in range(count))
    figures["one_ms"], figures["one_worst_ms"] = statistics.median(times), times[count * 99 // 100]
    figures["burst_ms"] = 1000 * statistics.median(burst(address, BURST) for _ in range(5))
    figures["agent_us"] = 1e6 * (cpu_of_agent() - before) / (count + 5 * BURST)
    read_end, write_end = os.pipe()
    processes = []
    for _ in range(flooders):
        processes.append(os.fork())
        if processes[-1] == 0:
            flood(address, write_end)
    select.select([read_end], [], [])
    os.read(read_end, 1 << 16)
    before, begin, done = cpu_of_agent(), time.monotonic(), 0
    times = []
    while len(times) < count or time.monotonic() - begin < 2:
        times.append(connect_and_ask(address))
        if select.select([read_end], [], [], 0)[0]:
            done += len(os.read(read_end, 1 << 16))
    elapsed = time.monotonic() - begin
    for process in processes:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
    times = sorted_ms(times)
    figures["beside_ms"], figures["beside_worst_ms"] = statistics.median(times), times[len(times) * 99 // 100]
    figures["flood_per_s"], figures["flood_cpu"] = done / elapsed, (cpu_of_agent() - before) / elapsed
    return figures


def run_job(hosts, ddprun, vouch, options, folder):
    """Returns the figures of one job."""
    end = Path(folder) / f"end-{secrets.token_hex(4)}"
    line = [ddprun, "--nnodes", "2", "--rdzv-endpoint", "n1:29400", *(["--store-vouch"] if vouch else []), "--no-python",
            sys.executable, os.path.abspath(__file__), "--worker", "--count", str(options.count),
            "--flooders", str(options.flooders), "--end", str(end)]
    environment = {**hosts.environment, "DDPRUN_JOB_KEY": KEY}
    jobs = [subprocess.Popen(hosts.on(host, line), env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for host in hosts.names]
    outputs = [job.communicate(timeout=300) for job in jobs]
    for line in "".join(err for _, err in outputs).splitlines():
        if " rendezvous daemon " in line:
            print(line, file=sys.stderr)
    figures = [line for out, _ in outputs for line in out.splitlines() if "one_ms" in line]
    if len(figures) != 1 or any(job.returncode for job in jobs):
        sys.exit(f"the job has failed: {outputs}")
    return json.loads(figures[0][figures[0].index("{"):])


def work(options):
    """A worker of the job: the one that is not on the daemon's host measures, the other one waits for it."""
    if socket.gethostname() == "n2":
        print(json.dumps(measure(options.count, options.flooders)), flush=True)
        options.end.touch()
    while not options.end.exists():
        time.sleep(0.05)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=Path, default=Path("build/release"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--count", type=int, default=1000, help="connections of each measurement")
    parser.add_argument("--flooders", type=int, default=1, help="processes of the other user")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--end", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return work(options)
    tool, ddprun = require_tool(), str(options.build.resolve() / "bin" / "ddprun")
    began = os.getloadavg()
    rounds = []
    with tempfile.TemporaryDirectory() as folder, Hosts(tool, Path(folder) / "cluster", 2) as hosts:
        for number in range(options.rounds):
            rounds.append([run_job(hosts, ddprun, vouch, options, folder) for vouch in (False, True)])
            print(f"round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
    print(f"medians of {options.rounds} rounds of {options.count} connections, {options.flooders} processes of another user; load "
          f"{began[0]:.1f} to {os.getloadavg()[0]:.1f}")
    print(f"{'':50} {'without':>9} {'with':>9} {'ratio':>7}")
    for name, text in ROWS.items():
        without, vouched = (statistics.median(one[i][name] for one in rounds) for i in range(2))
        ratios = [one[1][name] / one[0][name] for one in rounds if one[0][name]]
        ratio = f"{statistics.median(ratios):7.2f}" if ratios else "      -"
        print(f"{text:50} {without:9.3f} {vouched:9.3f} {ratio}")


KEY = secrets.token_hex(32)
if __name__ == "__main__":
    main()
