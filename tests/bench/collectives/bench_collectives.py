#!/usr/bin/env python3
"""Collectives beside others': ddp::ddp, Open MPI (as installed and at its best settings), MPICH, Gloo, torch.

One run: in every round each takes its turn, so that all see the same machine. A sample counts for the state of the
caches that the machine was in before and after it ("near": two CPUs share one, "far": they do not); a sample during
which the state changed is dropped. Figures are medians over the rounds; ratios are theirs to ours, more is better for us.
"""

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

HERE = Path(__file__).resolve().parent
FAR_NS = 250  # a round trip between CPUs that share a cache takes about 100 ns, others' 500

CELLS = ["all_reduce:8:3000", "barrier:0:3000", "all_reduce:65536:500", "all_reduce:1048576:60",
         "all_reduce:26214400:12", "broadcast:26214400:12", "gradients:0:8",
         "sendrecv:8:3000", "sendrecv:16384:1000", "sendrecv:1048576:60", "sendrecv:26214400:12"]
NO_SENDRECV = ["gloo"]
LARGE_CELLS = ["all_reduce:268435456:4"]

SINGLE_COPY = ["--mca", "btl_vader_single_copy_mechanism"]
RING = ["--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "coll_tuned_allreduce_algorithm", "5",
        "--mca", "coll_tuned_allreduce_algorithm_segmentsize", "1048576"]
TUNED = ["openmpi-nocma", "openmpi-ring", "openmpi-huge"]


def peers(build, ranks):
    """name -> (command, environment), for what is installed."""
    bench = build / "bench"
    found = {}
    ddprun = [str(build / "bin" / "ddprun"), "--nproc_per_node", str(ranks)]
    found["ours"] = (ddprun + [str(bench / "bench_peer_ddp"), "arena"], {})
    found["foreign"] = (ddprun + [str(bench / "bench_peer_ddp"), "foreign"], {})
    found["floor"] = ([str(bench / "bench_floor"), str(ranks)], {})
    openmpi, mpich = shutil.which("mpirun.openmpi"), shutil.which("mpirun.mpich")
    if openmpi and (bench / "bench_peer_openmpi").exists():
        start = [openmpi, "--allow-run-as-root", "--oversubscribe", "-np", str(ranks)]
        program = [str(bench / "bench_peer_openmpi")]
        found["openmpi"] = (start + program, {})
        found["openmpi-nocma"] = (start + SINGLE_COPY + ["none"] + program, {})
        found["openmpi-ring"] = (start + SINGLE_COPY + ["none"] + RING + program, {})
        found["openmpi-huge"] = (start + program, {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"})
    if mpich and (bench / "bench_peer_mpich").exists():
        found["mpich"] = ([mpich, "-np", str(ranks), str(bench / "bench_peer_mpich")], {})
    if (bench / "bench_peer_gloo").exists():
        found["gloo"] = (ddprun + [str(bench / "bench_peer_gloo"), "{directory}"], {})
    if subprocess.run(["/usr/bin/python3", "-c", "import torch"], capture_output=True).returncode == 0:
        found["torch"] = (ddprun + [str(HERE / "peer_torch.py")], {"PYTHON_EXEC": "/usr/bin/python3"})
    return found


def cache_state(build):
    ns = float(subprocess.run([str(build / "bench" / "bench_cache_state")], capture_output=True, check=True).stdout)
    return "far" if ns >= FAR_NS else "near"


def run_peer(command, environment, cells, seconds):
    """cell -> (median us, p99.9 us)"""
    with tempfile.TemporaryDirectory(prefix="bench-collectives-") as directory:
        words = [word.format(directory=directory) for word in command] + cells
        done = subprocess.run(words, env={**os.environ, **environment}, capture_output=True, text=True, timeout=seconds)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(words)} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    figures = {}
    for line in done.stdout.splitlines():
        op, size, median, late = line.split()
        figures[f"{op} {int(size)}"] = (float(median), float(late))
    return figures


def measure(build, ranks, cells, options):
    """(state -> cell -> peer -> samples, whether to go on); prints what failed, once."""
    samples = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    everybody, dropped, failed, go_on = peers(build, ranks), 0, set(), True
    names = [name for name in everybody if name not in options.without]
    try:
        for number in range(options.rounds):
            for name in names[number % len(names):] + names[:number % len(names)]:
                if name in failed:
                    continue
                before = cache_state(build)
                try:
                    own = [cell for cell in cells if not (name in NO_SENDRECV and cell.startswith("sendrecv"))]
                    figures = run_peer(*everybody[name], own, options.timeout)
                except (RuntimeError, subprocess.TimeoutExpired) as error:
                    failed.add(name)
                    print(f"{name} is left out: {error}", file=sys.stderr)
                    continue
                if cache_state(build) != before:
                    dropped += 1
                    continue
                for cell, figure in figures.items():
                    samples[before][cell][name].append(figure)
            print(f"{ranks} ranks: round {number + 1} of {options.rounds} done", file=sys.stderr)
    except KeyboardInterrupt:
        go_on = False
        print("interrupted: these are the figures until then", file=sys.stderr)
    if dropped:
        print(f"{dropped} samples dropped: the caches' state changed under them", file=sys.stderr)
    return samples, go_on


def table(samples, ranks):
    lines = []
    for state in sorted(samples):
        names = [n for n in ("ours", "foreign", "floor", "openmpi", *TUNED, "mpich", "gloo", "torch")
                 if any(n in row for row in samples[state].values())]
        lines += [f"\n**{ranks} ranks, caches {state}**: median µs; in brackets: times ours\n",
                  "| | " + " | ".join(names) + " | best tuned | p99.9 / median, ours |",
                  "|---" * (len(names) + 3) + "|"]
        for cell, row in samples[state].items():
            median = {n: statistics.median(f[0] for f in row[n]) for n in names if row.get(n)}
            if "ours" not in median:
                continue
            ratio = {n: median[n] / median["ours"] for n in median}
            fields = [f"{median[n]:.4g}" + (f" ({ratio[n]:.2f})" if n != "ours" else "") if n in median else "-"
                      for n in names]
            tuned = [ratio[n] for n in ("openmpi", *TUNED) if n in ratio]
            late = statistics.median(f[1] / f[0] for f in row["ours"])
            lines.append(f"| {cell} | " + " | ".join(fields) + f" | {min(tuned):.2f} | {late:.1f} |" if tuned
                         else f"| {cell} | " + " | ".join(fields) + f" | - | {late:.1f} |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True, help="for example build/release")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--large", action="store_true", help="256 MiB as well")
    parser.add_argument("--cells", nargs="+", help="OP:BYTES:CALLS, instead of the usual ones")
    parser.add_argument("--without", nargs="+", default=[], help="columns to leave out")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for one program")
    parser.add_argument("--json", type=Path, help="all samples")
    options = parser.parse_args()
    for number in (signal.SIGINT, signal.SIGTERM):  # ends the rounds, not the table
        signal.signal(number, signal.default_int_handler)
    cells = options.cells or CELLS + (LARGE_CELLS if options.large else [])
    everything = {}
    try:
        for ranks in options.ranks:
            everything[ranks], go_on = measure(options.build.resolve(), ranks, cells, options)
            print(table(everything[ranks], ranks))
            if not go_on:
                break
    finally:  # a second signal may come at any time
        if options.json:
            options.json.write_text(json.dumps(everything, indent=1))


if __name__ == "__main__":
    main()
