#!/usr/bin/env python3
"""Training with sharded parameters beside PyTorch: step times, memory, and the exchanges of a unit of 16 MiB.

Each program runs in turn, in every round. A figure is the median over the rounds; a ratio is the median of the rounds' ratios.
FSDP2 needs PyTorch 2.6 or newer (--torch-python); the FSDP of Debian 12's 1.13 cannot be imported, so only its DDP and its
all_gather take part.
"""

import argparse
import os
import socket
import statistics
import subprocess
import sys
from pathlib import Path

sys.dont_write_bytecode = True  # nothing of a run stays in the tree
HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "collectives"))
import programs  # noqa: E402

UNIT_MIB, LAYERS = 16, 12
OURS = {"full": ["full", "mapped"], "full, copied": ["full", "copied"], "grad": ["grad", "mapped"],
        "optimizer": ["optimizer", "mapped"], "none": ["none", "mapped"]}


def formula(name, ranks):
    """MiB a rank: parameters, gradients and two moments in parts, and whole units and gradients."""
    parts = 4 * LAYERS * UNIT_MIB / ranks
    return {"full": parts + 2 * UNIT_MIB, "full, copied": parts + 4 * UNIT_MIB, "grad": parts + 2 * UNIT_MIB,
            "optimizer": parts + LAYERS * UNIT_MIB}.get(name)


def run_ours(options, ranks, words):
    command = [str(options.build / "bin" / "ddprun"), "--nproc_per_node", str(ranks),
               str(options.build / "bench" / "bench_sharding"), *words]
    return figures(programs.run([command], dict(os.environ), options.timeout))


def run_torch(options, ranks, words):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    fixed = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), WORLD_SIZE=str(ranks))
    command = ["/bin/sh", "-c", "for r in $0; do RANK=$r \"$@\" & pids=\"$pids $!\"; done; for p in $pids; do wait $p || exit 1; done",
               " ".join(str(rank) for rank in range(ranks)), options.torch_python, str(HERE / "peer_torch_sharding.py"), *words]
    return figures(programs.run([command], fixed, options.timeout))


def figures(text):
    """name -> numbers"""
    return {line.split()[0]: [float(number) for number in line.split()[1:]] for line in text.splitlines() if line}


def has_fsdp2(python):
    return subprocess.run([python, "-c", "from torch.distributed.fsdp import fully_shard"], capture_output=True).returncode == 0


def ratio(rounds, one, other, index=0):
    return statistics.median(a[index] / b[index] for a, b in zip(rounds[one], rounds[other]))


def compare_steps(options, ranks):
    kinds = {name: (lambda words=words: run_ours(options, ranks, ["step", *words, str(options.steps)]))
             for name, words in OURS.items()}
    kinds["torch DDP"] = lambda: run_torch(options, ranks, ["step", "ddp", str(options.steps)])
    if has_fsdp2(options.torch_python):
        kinds["torch FSDP2"] = lambda: run_torch(options, ranks, ["step", "fsdp2", str(options.steps)])
    rounds = {name: [] for name in kinds}
    for _ in range(options.rounds):
        for name, run in kinds.items():
            rounds[name].append(run()["step"])
    print(f"\n{ranks} ranks, {LAYERS} x Linear(2048), Adam, gloo\n\n| | step ms | Pss MiB a rank | formula | of it |\n|---|---|---|---|---|")
    for name, found in rounds.items():
        ms, mib = (statistics.median(one[i] for one in found) for i in (0, 1))
        wanted = formula(name, ranks)
        share = f"{wanted:.0f} | {mib / wanted:.2f}" if wanted else " | "
        print(f"| {name} | {ms:.1f} | {mib:.0f} | {share} |")
    goal("full / none <= 1.15", ratio(rounds, "full", "none"), lambda found: found <= 1.15)
    if "torch FSDP2" in rounds:
        goal("torch FSDP2 / full >= 1.5", ratio(rounds, "torch FSDP2", "full"), lambda found: found >= 1.5)
    goal("torch DDP / none >= 1", ratio(rounds, "torch DDP", "none"), lambda found: found >= 1)


def compare_units(options, ranks):
    rounds = {"mapped": [], "copied": [], "gloo": []}
    for _ in range(options.rounds):
        for kind in ("mapped", "copied"):
            rounds[kind].append(run_ours(options, ranks, ["unit", "full", kind, str(options.calls)]))
        rounds["gloo"].append(run_torch(options, ranks, ["unit", "gloo", str(options.calls)]))
    print(f"\n{ranks} ranks, a unit of 16 MiB, us\n\n| | gather | and read once | reduce_scatter |\n|---|---|---|---|")
    for kind, found in rounds.items():
        cells = [f"{statistics.median(one[name][0] for one in found):.0f}" if name in found[0] else ""
                 for name in ("gather", "gather_read", "reduce_scatter")]
        print(f"| {kind} | {' | '.join(cells)} |")
    for name in ("gather", "reduce_scatter"):
        if name not in rounds["gloo"][0]:
            continue
        for kind in ("mapped", "copied"):
            found = statistics.median(a[name][0] / b[name][0] for a, b in zip(rounds["gloo"], rounds[kind]))
            goal(f"{name}: gloo / {kind} >= 5", found, lambda value: value >= 5)


def goal(text, found, holds):
    print(f"{text}: {found:.2f}, {'yes' if holds(found) else '**no**'}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, required=True, help="for example build/release")
    parser.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=6, help="of one run")
    parser.add_argument("--calls", type=int, default=30, help="of one run, for a unit")
    parser.add_argument("--torch-python", default="/usr/bin/python3", help="a Python with PyTorch")
    parser.add_argument("--timeout", type=float, default=180, help="seconds for one run")
    options = parser.parse_args()
    options.build = options.build.resolve()
    programs.require(options.build, ["bin/ddprun", "bench/bench_sharding"], "ddprun bench_sharding")
    try:
        compare_units(options, 2)
        for ranks in options.ranks:
            compare_steps(options, ranks)
    except RuntimeError as error:
        sys.exit(f"{Path(sys.argv[0]).name}: {error}")


if __name__ == "__main__":
    main()
