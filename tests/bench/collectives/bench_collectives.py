#!/usr/bin/env python3
"""Collectives beside others': ddp::ddp, Open MPI (as installed and at its best settings), MPICH, Gloo, torch.

One run: in every round each takes its turn, so that all see the same machine. A cell counts for the state of the
caches that its program found before and after it ("near": two CPUs share one, "far": they do not); one during which
the state changed is dropped. Figures are medians over the rounds; ratios are theirs to ours, more is better for us.
Goals are printed beside them, met or not.
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

sys.dont_write_bytecode = True  # nothing of a run stays in the tree
import programs
from goals import TUNED, best_tuned, goals_table

HERE = Path(__file__).resolve().parent
FAR_NS = 250  # a round trip between CPUs that share a cache takes about 100 ns, others' 500

CELLS = ["all_reduce:8:3000", "barrier:0:3000", "all_reduce:65536:500", "all_reduce:1048576:60",
         "all_reduce:26214400:12", "all_reduce.f16:26214400:12", "all_reduce.bf16:26214400:12",
         "broadcast:26214400:12", "gradients:0:8",
         "sendrecv:8:3000", "sendrecv:16384:1000", "sendrecv:1048576:60", "sendrecv:26214400:12"]
STALL_CELLS = ["all_reduce:8:100000"]  # the late ones of so many show whether anything ever stalls
MEASURED_FOR_STALLS = ["ours", "before", "foreign", "openmpi"]  # with the others it would take minutes
FLOORS_OF_FOREIGN = {"staged-floor": "staged", "cma-floor": "cma"}
LACKS = {"floor": ["barrier", "broadcast", "gradients", "f16", "sendrecv"], "bare": ["broadcast", "gradients", "f16", "sendrecv"],
         **{name: ["barrier", "broadcast", "gradients", "f16", "sendrecv"] for name in FLOORS_OF_FOREIGN},
         "gloo": ["sendrecv"], "torch": ["bf16"]}  # ends of operations
LARGE_CELLS = ["all_reduce:268435456:4"]

SINGLE_COPY = ["--mca", "btl_vader_single_copy_mechanism"]
RING = ["--mca", "coll_tuned_use_dynamic_rules", "1", "--mca", "coll_tuned_allreduce_algorithm", "5",
        "--mca", "coll_tuned_allreduce_algorithm_segmentsize", "1048576"]

COLUMNS = ["ours", "before", "foreign", "before-foreign", "floor", "bare", *FLOORS_OF_FOREIGN, "openmpi", *TUNED, "mpich", "gloo", "torch"]


def ours(build, ranks, buffers):
    return ([str(build / "bin" / "ddprun"), "--nproc_per_node", str(ranks), str(build / "bench" / "bench_peer_ddp"), buffers], {})


def peers(build, before, ranks):
    """name -> (command, environment), for what is installed. before: another build of ours, or None."""
    bench = build / "bench"
    found = {}
    ddprun = [str(build / "bin" / "ddprun"), "--nproc_per_node", str(ranks)]
    found["ours"] = ours(build, ranks, "arena")
    found["foreign"] = ours(build, ranks, "foreign")
    if before:
        found["before"] = ours(before, ranks, "arena")
        found["before-foreign"] = ours(before, ranks, "foreign")
    for name in ("floor", "bare"):
        found[name] = ([str(bench / f"bench_{name}"), str(ranks)], {})
    for name, way in FLOORS_OF_FOREIGN.items():
        found[name] = ([str(bench / "bench_floor_foreign"), way, str(ranks)], {})
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
        found["torch"] = (ddprun + [str(HERE / "peer_torch.py")], {"PYTHON_EXEC": "/usr/bin/python3",
                                                                         "BENCH_CACHE_STATE": str(bench / "bench_cache_state")})
    return found


def state_of(ns):
    return "far" if ns >= FAR_NS else "near"


def label(cell):
    """"OP BYTES", with the number of calls where many of them are the point."""
    op, size, calls = cell.split(":")
    return f"{op} {size}" + (f" x {calls}" if cell in STALL_CELLS else "")


STALLS = {label(cell) for cell in STALL_CELLS}


def cells_for(name, cells):
    """Without those that a peer does not have, or that would take it minutes."""
    return [cell for cell in cells if (cell not in STALL_CELLS or name in MEASURED_FOR_STALLS)
            and not any(cell.split(":")[0].endswith(end) for end in LACKS.get(name, []))]


def run_peer(command, environment, cells, seconds):
    """cell -> (median us, p99.9 us, ns between the CPUs before and after)"""
    with tempfile.TemporaryDirectory(prefix="bench-collectives-") as directory:
        words = [word.format(directory=directory) for word in command] + cells
        return programs.parse_figures(programs.run([words], {**os.environ, **environment}, seconds))


class Samples:
    """state of the caches -> cell -> peer -> [(median us, p99.9 us)]. A cell of a round is one sample."""

    def __init__(self):
        self.by_state = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
        self.taken = self.dropped = 0

    def add(self, name, figures):
        for cell, (median, late, before, after) in figures.items():
            self.taken += 1
            if state_of(before) != state_of(after):
                self.dropped += 1
                continue
            self.by_state[state_of(before)][label(cell)][name].append((median, late))

    def medians(self, state):
        """cell -> (peer -> median us, peer -> p99.9 / median: of the rounds' the median, or the worst where stalls are
        looked for)"""
        def middle(cell, row):
            return (max if cell in STALLS else statistics.median)([f[1] / f[0] for f in row if f[0] > 0])
        return {cell: ({name: statistics.median(f[0] for f in row) for name, row in rows.items()},
                       {name: middle(cell, row) for name, row in rows.items()})
                for cell, rows in self.by_state[state].items()}


def measure(ranks, cells, options):
    """(Samples, whether to go on); prints what failed, once."""
    samples, failed, go_on = Samples(), set(), True
    everybody = peers(options.build.resolve(), options.before and options.before.resolve(), ranks)
    names = [name for name in everybody if name not in options.without]
    try:
        for number in range(options.rounds):
            turn = number % max(len(names), 1)
            for name in names[turn:] + names[:turn]:
                own = cells_for(name, cells)
                if name in failed or not own:
                    continue
                try:
                    samples.add(name, run_peer(*everybody[name], own, options.timeout))
                except RuntimeError as error:
                    failed.add(name)
                    print(f"{name} is left out: {error}", file=sys.stderr)
            print(f"{ranks} ranks: round {number + 1} of {options.rounds} done", file=sys.stderr)
    except KeyboardInterrupt:
        go_on = False
        print("interrupted: these are the figures until then", file=sys.stderr)
    if samples.dropped:
        print(f"{samples.dropped} of {samples.taken} samples dropped: the caches' state changed under them",
              file=sys.stderr)
    return samples, go_on


def table(samples, ranks):
    lines = []
    for state in sorted(samples.by_state):
        medians = samples.medians(state)
        names = [n for n in COLUMNS if any(n in median for median, _ in medians.values())]
        lines += [f"\n**{ranks} ranks, caches {state}**: median µs; in brackets: times ours\n",
                  "| | " + " | ".join(names) + " | best tuned | p99.9 / median, ours | rounds, ours |",
                  "|---" * (len(names) + 4) + "|"]
        for cell, (median, late) in medians.items():
            ours = median.get("ours")
            if not ours:
                continue
            fields = [f"{median[n]:.4g}" + (f" ({median[n] / ours:.2f})" if n != "ours" else "") if n in median else "-"
                      for n in names]
            tuned = best_tuned(median)
            lines.append(f"| {cell} | " + " | ".join(fields) + f" | {f'{tuned / ours:.2f}' if tuned else '-'} "
                         f"| {late['ours']:.1f} | {len(samples.by_state[state][cell]['ours'])} |")
    goals = goals_table(ranks, {state: samples.medians(state) for state in samples.by_state})
    return "\n".join(lines) + (f"\n\n**Goals, {ranks} ranks**\n\n{goals}" if goals else "")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True, help="for example build/release")
    parser.add_argument("--before", type=Path, help="another build, to see what a change did")
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
    unknown = set(options.without) - set(COLUMNS)
    if unknown:
        parser.error(f"--without: there is no column {', '.join(sorted(unknown))}; there are {', '.join(COLUMNS)}")
    if "ours" in options.without:
        parser.error("--without ours: the others are compared with it")
    needed = ["bin/ddprun", "bench/bench_peer_ddp", "bench/bench_cache_state"]
    needed += [f"bench/bench_{name}" for name in ("floor", "bare") if name not in options.without]
    needed += ["bench/bench_floor_foreign"] if any(name not in options.without for name in FLOORS_OF_FOREIGN) else []
    programs.require(options.build, needed, "bench_collectives")
    if options.before:
        programs.require(options.before, ["bin/ddprun", "bench/bench_peer_ddp"], "bench_collectives")
    cells = options.cells or CELLS + STALL_CELLS + (LARGE_CELLS if options.large else [])
    everything = {}
    try:
        for ranks in options.ranks:
            samples, go_on = measure(ranks, cells, options)
            everything[ranks] = samples.by_state
            print(table(samples, ranks), flush=True)
            if not go_on:
                break
    finally:  # a second signal may come at any time
        if options.json:
            options.json.write_text(json.dumps(everything, indent=1))


if __name__ == "__main__":
    main()
