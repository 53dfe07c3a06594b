#!/usr/bin/python3
"""Measures how fast ddprun passes the output of workers on, beside a bare multiplexer, in one run.

Build first: cmake --build --preset release --target ddprun ddprund ddprun-guard bench_logs
Usage: bench_logs.py [--lines N] [--rounds N] [BUILD FOLDER]
"""

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time


def megabytes_per_second(command, total_bytes, folder):
    """Runs `command`, reads its stdout to the end, and returns the rate at which `total_bytes` passed."""
    shutil.rmtree(folder, ignore_errors=True)
    os.mkdir(folder)
    begin = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=folder) as process:
        while os.read(process.stdout.fileno(), 1 << 20):
            pass
        if process.wait() != 0:
            raise SystemExit(f"{command} ended with {process.returncode}")
    return total_bytes / 1e6 / (time.monotonic() - begin)


def delays(command):
    """Returns the time in microseconds from the moment a worker prints a line until it is read here."""
    found = []
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        for line in iter(process.stdout.readline, b""):
            now = time.monotonic_ns()
            found.append((now - int(line.split(b":")[-1])) / 1e3)
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", nargs="?", default="build/release")
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    programs = os.path.abspath(os.path.join(options.build, "bin"))
    bench = os.path.abspath(os.path.join(options.build, "bench"))
    printer = os.path.join(bench, "bench_log_printer")
    launcher = [os.path.join(programs, "ddprun"), "--nproc-per-node"]
    with tempfile.TemporaryDirectory() as folder:
        files = os.path.join(folder, "files")
        for workers in ("1", "4"):
            for buffering in ("full", "line"):
                words = [printer, "lines", str(options.lines // int(workers)), buffering]
                cases = {
                    "multiplexer": [os.path.join(bench, "bench_log_multiplexer"), workers, files, *words],
                    "ddprun -t 3": [*launcher, workers, "-t", "3", "--log-dir", files, *words],
                    "ddprun -t 3 --timestamps": [*launcher, workers, "-t", "3", "--timestamps", "--log-dir", files,
                                                 *words],
                    "ddprun --fold": [*launcher, workers, "--fold", "--log-dir", files, *words],
                    "own files": ["sh", "-c", 'n=$1; shift; for i in $(seq $n); do "$@" >rank-$i & done; wait', "sh",
                                  workers, *words],
                    "ddprun -r 3": [*launcher, workers, "-r", "3", "--log-dir", files, *words],
                }
                rates = {name: [] for name in cases}
                for _ in range(options.rounds):
                    for name, command in cases.items():
                        rates[name].append(megabytes_per_second(command, 100 * options.lines, files))
                base = {"ddprun -r 3": "own files"}
                for name, found in rates.items():
                    beside = statistics.median(rates[base.get(name, "multiplexer")])
                    rate = statistics.median(found)
                    print(f"{workers} workers, {buffering:4}: {name:26}{rate:7.0f} MB/s, ratio {rate / beside:.2f}",
                          flush=True)
        clock = [printer, "clock", "2000"]
        for name, command in {
            "multiplexer": [os.path.join(bench, "bench_log_multiplexer"), "1", folder, *clock],
            "ddprun -t 3": [*launcher, "1", "-t", "3", *clock],
        }.items():
            found = sorted(delays(command))
            print(f"a line of {name}: p50 {found[len(found) // 2]:.0f} us, p99 {found[len(found) * 99 // 100]:.0f} us")


if __name__ == "__main__":
    main()
