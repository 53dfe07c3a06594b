#!/usr/bin/env python3
"""Collectives between virtual hosts, beside others': ddp::ddp, Gloo, Open MPI over TCP, and a bare stream.

The hosts are network namespaces made by the cluster tools (DDPRUN_CLUSTER_TOOLS), with the link between them as fast as it
gets ("unshaped") or shaped. One run: in every round each takes its turn. Figures are medians over the rounds of the
slowest rank's median; ratios are theirs to ours, more is better for us. `stream` sends what an all-reduce must and adds
nothing up: what the network gives. `--vary DDPRUN_SOCKETS_PER_PEER=1` adds a column: ours with that setting. Needs root; without the tools it says so and ends with 77.
"""

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

sys.dont_write_bytecode = True  # nothing of a run stays in the tree
import programs
from bench_collectives import state_of
from virtual_hosts import Hosts, require_tool

CELLS = ["all_reduce:8:500", "barrier:0:500", "all_reduce:4096:500", "all_reduce:65536:200", "all_reduce:1048576:30",
         "all_reduce:26214400:7", "broadcast:26214400:7", "reduce_scatter:26214400:7", "all_gather:26214400:7"]


def ddprun_job(build, ranks, words, setting=None):
    def job(hosts, directory):
        line = [*([setting] if setting else []), str(build / "bin" / "ddprun"), "--nnodes", str(len(hosts.names)),
                "--nproc_per_node", str(ranks), "--rdzv-endpoint", "n1:29400",
                *(word.format(directory=directory) for word in words)]
        return [hosts.on(host, ["env", f"BENCH_ADDRESS={hosts.address(host)}", *line]) for host in hosts.names]
    return job


def mpi_job(mpirun, ranks, btl, program, yields=False):
    def job(hosts, directory):
        agent = Path(directory) / "agent"  # how mpirun starts its daemon on a host
        agent.write_text(f'#!/bin/sh\nhost=$1; shift\nexec {hosts.tool} exec "$host" -- sh -c "$*"\n')
        agent.chmod(0o755)
        settings = {"btl": btl, "plm_rsh_agent": str(agent), "btl_tcp_if_include": "eth0", "oob_tcp_if_include": "eth0",
                    "orte_keep_fqdn_hostnames": "1", "mpi_yield_when_idle": str(int(yields))}
        words = [word for name, value in settings.items() for word in ("--mca", name, value)]
        where = ",".join(f"{host}:{ranks}" for host in hosts.names)
        return [hosts.in_network_of("n1", [mpirun, "--allow-run-as-root", "--bind-to", "none", "-np",
                                           str(len(hosts.names) * ranks), "-H", where, *words, program])]
    return job


def peers(build, ranks, hosts, settings):
    """name -> function(hosts, directory) that gives the commands to run at once, for what is installed."""
    bench = build / "bench"
    found = {"ours": ddprun_job(build, ranks, [str(bench / "bench_peer_ddp"), "arena"]),
             "foreign": ddprun_job(build, ranks, [str(bench / "bench_peer_ddp"), "foreign"])}
    for setting in settings:
        found[setting] = ddprun_job(build, ranks, [str(bench / "bench_peer_ddp"), "arena"], setting)
    if len(hosts.names) == 2:
        found["stream"] = ddprun_job(build, ranks, [str(bench / "bench_peer_stream"), "{directory}"])
    if (bench / "bench_peer_gloo").exists():
        found["gloo"] = ddprun_job(build, ranks, [str(bench / "bench_peer_gloo"), "{directory}"])
    mpirun = shutil.which("mpirun.openmpi")
    if mpirun and (bench / "bench_peer_openmpi").exists():
        program = str(bench / "bench_peer_openmpi")
        found["openmpi-tcp"] = mpi_job(mpirun, ranks, "tcp,self", program)
        if ranks > 1:
            found["openmpi-vader"] = mpi_job(mpirun, ranks, "vader,tcp,self", program)
            found["openmpi-yield"] = mpi_job(mpirun, ranks, "vader,tcp,self", program, yields=True)
    return found


def run_peer(hosts, job, cells, seconds):
    """"OP BYTES" -> (median us, p99.9 us, ns between the CPUs before and after)"""
    with tempfile.TemporaryDirectory(prefix="bench-between-hosts-") as directory:
        said = programs.run([words + cells for words in job(hosts, directory)], hosts.environment, seconds)
    return {" ".join(cell.split(":")[:2]): figures for cell, figures in programs.parse_figures(said).items()}


def measure(hosts, build, ranks, cells, options):
    """state of the caches -> cell -> peer -> [(median us, p99.9 us)]; prints what failed, once, and how much was dropped
    because the state changed meanwhile."""
    samples, failed, dropped = defaultdict(lambda: defaultdict(lambda: defaultdict(list))), set(), 0
    everybody = {name: job for name, job in peers(build, ranks, hosts, options.vary).items()
                 if not options.only or name in options.only or name in options.vary}
    names = list(everybody)
    for number in range(options.rounds):
        for name in names[number % len(names):] + names[:number % len(names)]:
            if name in failed:
                continue
            try:
                figures = run_peer(hosts, everybody[name], cells, options.timeout)
                for cell, (median, late, before, after) in figures.items():
                    if state_of(before) == state_of(after):
                        samples[state_of(before)][cell][name].append((median, late))
                    else:
                        dropped += 1
            except RuntimeError as error:
                failed.add(name)
                print(f"{name} is left out: {error}", file=sys.stderr)
        print(f"{options.hosts} hosts x {ranks}: round {number + 1} of {options.rounds} done", file=sys.stderr)
    if dropped:
        print(f"{dropped} samples dropped: the caches' state changed under them", file=sys.stderr)
    return samples


def share_of_nic(operation, hosts):
    """What of the buffer each host's NIC must send, or receive, at least."""
    others = (hosts - 1) / hosts
    return {"all_reduce": 2 * others, "reduce_scatter": others, "all_gather": others}.get(operation, 1)


def table(samples, title, rate_bits, options):
    names = [n for n in ("ours", "foreign", *options.vary, "stream", "gloo", "openmpi-tcp", "openmpi-vader",
                         "openmpi-yield") if any(n in row for row in samples.values())]
    lines = [f"\n**{title}**: median µs; in brackets: times ours\n",
             "| | " + " | ".join(names) + (" | least by the rate | share of it |" if rate_bits else " |"),
             "|---" * (len(names) + 1 + (2 if rate_bits else 0)) + "|"]
    for cell, row in samples.items():
        median = {n: statistics.median(f[0] for f in row[n]) for n in names if row.get(n)}
        ours = median.get("ours")
        fields = [f"{median[n]:.5g}" + (f" ({median[n] / ours:.2f})" if ours and n != "ours" else "")
                  if n in median else "-" for n in names]
        line = f"| {cell} | " + " | ".join(fields) + " |"
        if rate_bits:
            least = share_of_nic(cell.split()[0], options.hosts) * int(cell.split()[1]) * 8 / rate_bits * 1e6
            line += f" {least:.0f} | {100 * least / ours:.1f} % |" if ours and least else " - | - |"
        lines.append(line)
    return "\n".join(lines)


def goals(samples, rate):
    """Those of 25 MiB over an unshaped link, met or not. (Of a shaped one it is the share in the table: 95 %.)"""
    row = samples.get("all_reduce 26214400", {})
    if rate or not row.get("ours"):
        return ""
    median = {name: statistics.median(f[0] for f in figures) for name, figures in row.items()}
    mpi = min((us for name, us in median.items() if name.startswith("openmpi")), default=None)
    ratios = {name: us / median["ours"] for name, us in (("Gloo", median.get("gloo")), ("Open MPI", mpi)) if us}
    return "".join(f"\nGoal, all_reduce 26214400: {name} / ours ≥ 1.2: {'yes' if ratio >= 1.2 else '**no**'}: {ratio:.2f}\n"
                   for name, ratio in ratios.items())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True, help="for example build/release")
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2], help="per host")
    parser.add_argument("--rates", type=int, nargs="+", default=[0, 1000], help="Mbit/s of the link; 0: unshaped")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cells", nargs="+", default=CELLS, help="OP:BYTES:CALLS")
    parser.add_argument("--only", nargs="+", help="these columns")
    parser.add_argument("--vary", nargs="+", default=[], metavar="NAME=VALUE",
                        help="more columns: ours with this in the environment")
    parser.add_argument("--timeout", type=float, default=120, help="seconds for one program")
    parser.add_argument("--json", type=Path, help="all samples")
    options = parser.parse_args()
    tool = require_tool()
    programs.require(options.build, ["bin/ddprun", "bench/bench_peer_ddp", "bench/bench_peer_stream"],
                     "bench_collectives")
    everything = {}
    with tempfile.TemporaryDirectory(prefix="bench-cluster-") as directory, Hosts(tool, directory, options.hosts) as hosts:
        for rate in options.rates:
            hosts.set_rate(f"{rate}mbit" if rate else "off")
            for ranks in options.ranks:
                title = f"{options.hosts} hosts x {ranks} ranks, " + (f"{rate} Mbit/s" if rate else "unshaped")
                everything[title] = measure(hosts, options.build.resolve(), ranks, options.cells, options)
                for state, samples in sorted(everything[title].items()):
                    print(table(samples, f"{title}, caches {state}", rate * 1e6, options), flush=True)
                    print(goals(samples, rate), flush=True)
    if options.json:
        options.json.write_text(json.dumps(everything, indent=1))


if __name__ == "__main__":
    main()
