#!/usr/bin/env python3
"""PowerSgd beside the plain exchange of 25 MiB of gradients, between virtual hosts.

The hosts are network namespaces made by the cluster tools (DDPRUN_CLUSTER_TOOLS), with a link of --rate Mbit/s between
them. Needs root; without the tools it reports that and ends with 77. The goal at 1 Gbit/s: a fifth of the time of the
plain exchange, with and without between_nodes. If one of them misses it, the exit code is 1.
"""

import argparse
import sys
import tempfile
from pathlib import Path

sys.dont_write_bytecode = True  # nothing of a run stays in the tree
sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "collectives"))
import programs  # noqa: E402
from virtual_hosts import Hosts, require_tool  # noqa: E402

GOAL = 0.2


def count_missed(output):
    """Prints whether each line of PowerSgd reaches the goal. Returns how many do not."""
    missed = 0
    for line in output.splitlines():
        if not line.startswith("PowerSgd"):
            continue
        name, _, share = line.rsplit(maxsplit=2)
        reached = float(share) <= GOAL
        missed += not reached
        print(f"goal: at most {GOAL}: {'yes' if reached else '**no**'}: {name}: {share}")
    print(flush=True)
    return missed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True, help="for example build/release")
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2], help="per host")
    parser.add_argument("--rate", type=int, default=1000, help="Mbit/s of the link")
    parser.add_argument("--factors", type=int, default=4, help="columns of the factors: PowerSgdOptions::rank")
    parser.add_argument("--steps", type=int, default=9)
    parser.add_argument("--timeout", type=float, default=120, help="seconds for one run")
    options = parser.parse_args()
    tool = require_tool()
    build = options.build.resolve()
    programs.require(options.build, ["bin/ddprun", "bench/bench_power_sgd"], "ddprun bench_power_sgd")
    with tempfile.TemporaryDirectory(prefix="bench-cluster-") as directory, Hosts(tool, directory, options.hosts) as hosts:
        hosts.set_rate(f"{options.rate}mbit")
        missed = 0
        for ranks in options.ranks:
            job = [str(build / "bin" / "ddprun"), "--nnodes", str(options.hosts), "--nproc_per_node", str(ranks),
                   "--rdzv-endpoint", f"{hosts.names[0]}:29400", str(build / "bench" / "bench_power_sgd"),
                   str(options.factors), str(options.steps)]
            output = programs.run([hosts.on(host, job) for host in hosts.names], hosts.environment, options.timeout)
            print(f"{options.hosts} hosts x {ranks} ranks, {options.rate} Mbit/s\n{output}", end="", flush=True)
            missed += count_missed(output)
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
