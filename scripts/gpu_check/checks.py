"""The 24 checks. Each is a function that gets a Trial; its row in the table is made by @check.

A check fails if one of its parts fails, is "not tried" if a part could not be tried, and else has passed. A check whose Catch2 cases
do not exist in gpu_tests yet is "not tried": add cases with its tag to tests/gpu.
"""
import json
import os
import pathlib
import re
import shutil
import tempfile
import time

from gpu_check import machine as machines
from gpu_check import timeline
from gpu_check.trial import first_complaint

CALL_SECONDS = 540  # what one call may take: with less than 60 s to spare it would not fit into 10 minutes
START_SECONDS = 60  # for the first barrier, on which all else depends: part of each call
CALL_NAMES = {"results": 1, "faults": 2, "speed": 3}

CHECKS = []


class Check:
    def __init__(self, function, number, call, name, expected, seconds, needs_nccl):
        self.function, self.number, self.call, self.name = function, number, call, name
        self.expected, self.seconds, self.needs_nccl = expected, seconds, needs_nccl


def check(number, call, name, expected, seconds, needs_nccl=True):
    def add(function):
        CHECKS.append(Check(function, number, call, name, expected, seconds, needs_nccl))
        CHECKS.sort(key=lambda one: one.number)
        return function
    return add


# Parts that several checks have.

def cases(trial, spec, what, ranks=1, environment=None, seconds=None, may_skip=True, **how):
    """Runs the cases of gpu_tests that `spec` selects, on each rank. `what` names them for "not tried: …"; `how`: Machine.ranks()."""
    machine = trial.machine
    if not machine.has_cases(spec):
        trial.not_tried(f"{what}: gpu_tests has no case with {spec}")
        return None
    command, extra = [machine.tests / "gpu_tests", spec, "--durations", "yes"], {}
    if ranks > 1:
        command, extra = machine.ranks(ranks, command, **how)
    outcome = trial.program(command, seconds, {**extra, **(environment or {})})
    found = re.search(r"All tests passed \((\d+) assertions? in (\d+) test cases?\)", outcome.output)
    if found and not outcome.problem:
        trial.see(f"{found.group(2)} case{'s' if found.group(2) != '1' else ''} passed")
    if not may_skip and not machine.dry_run:  # fake libraries have only the functions that ddp::ddp calls
        trial.failures += trial.untried  # here that is a failure
        trial.untried.clear()
    return outcome


def bench(trial, ranks, arguments, seconds):
    """Runs ddp-bench with every collective, and compares each result."""
    machine = trial.machine
    command, extra = [machine.tool("ddp-bench"), "--backend", "nccl", *arguments], {}
    if ranks > 1:
        command, extra = machine.ranks(ranks, command)
    outcome = trial.program(command, seconds, extra)
    if not outcome.problem:
        trial.see(f"ddp-bench {' '.join(map(str, arguments[:2]))}: all results right")


def used_memory(machine):
    """Returns the used memory of device 0 in MiB; None: unknown."""
    try:
        return int(machine.query("memory.used").splitlines()[0])
    except (ValueError, IndexError):
        return None


# Call 1: what is here, and are the results right?

@check(1, 1, "facts", "one set of versions that fit together, no other process on the card", 50, needs_nccl=False)
def facts(trial):
    machine = trial.machine
    trial.see(", ".join(machine.devices))
    if not machine.dry_run:
        trial.see(f"driver {machine.query('driver_version').partition(chr(10))[0] or 'unknown'}, CUDA {machine.cuda_version()}")
        others = machine.query("pid,process_name,used_memory", "--query-compute-apps").splitlines()
        if others:
            trial.fail(f"other processes use the card: {'; '.join(others)}")
        trial.see(f"{len(others)} other processes")
    shared = os.statvfs("/dev/shm")
    trial.see(f"/dev/shm {shared.f_bavail * shared.f_frsize >> 20:,} MiB")
    cases(trial, "[facts]", "versions", seconds=20, may_skip=False)
    outcome = trial.machine.run([machine.tool("ddprun"), "--standalone", "check"], min(30, trial.seconds_left()), {})
    findings = re.search(r"\d+ findings?:\n((?:  .*\n?)*)", outcome.output)
    text = " ".join(findings.group(1).split()) if findings else ""
    # In a dry run the findings are those of this machine, which has no driver.
    if outcome.problem and not (machine.dry_run and outcome.code == 93):
        trial.fail(f"ddprun check: {outcome.problem}: {text or first_complaint(outcome.output)}")
    else:
        trial.see(f"ddprun check: {text or 'nothing found'}")


@check(2, 1, "first barrier, world 1", "< 10 s; one context; memory back within 1 MiB when the process has ended", 30)
def first_barrier(trial):
    before = used_memory(trial.machine)
    outcome = cases(trial, "[first]", "first barrier", seconds=25, may_skip=False)
    after = used_memory(trial.machine)
    if outcome and before is not None and after is not None:
        trial.figure("memory_of_the_card_lost", after - before, "MiB", "<=", 1)


@check(3, 1, "gpu_tests, world 1", "all pass, none skipped; every collective right", 100)
def world_of_one(trial):
    cases(trial, "~[check]", "tests", seconds=70, may_skip=False)
    most = "1m" if trial.machine.short else "64m"
    bench(trial, len(trial.machine.devices), ["-c", "all", "-b", "32", "-e", most, "-f", "8"], 60)


def ranks_on_the_card(trial, ranks):
    """All collectives and types as several hosts over sockets."""
    environment = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
    outcome = cases(trial, "[ranks]~[check]", "tests", ranks, environment, may_skip=False)
    if outcome and trial.machine.shares_device(ranks):
        over_sockets = re.search(r"NET/Socket", outcome.output)
        if over_sockets:
            trial.see("NET/Socket")
        elif not trial.machine.dry_run and not outcome.problem:
            trial.fail("the log of NCCL does not name NET/Socket")
    bench(trial, ranks, ["-c", "all", "-b", "32", "-e", "32k" if trial.machine.short else "1m", "-f", "32", "-n", "3", "-w", "1"], 60)


@check(4, 1, "2 ranks by NCCL_HOSTID", "NET/Socket; collectives x types equal the native backend: integers bit for bit, "
       "floats within ranks x 1 ulp", 110)
def two_ranks(trial):
    ranks_on_the_card(trial, 2)


@check(5, 1, "4 ranks by NCCL_HOSTID", "as check 4", 120)
def four_ranks(trial):
    ranks_on_the_card(trial, 4)


@check(6, 1, "2 ranks by NCCL_MULTI_RANK_GPU_ENABLE", "NCCL >= 2.30.3; P2P or SHM; as check 4", 50)
def ranks_of_one_host(trial):
    machine = trial.machine
    if machine.dry_run:
        return trial.not_tried("a dry run has no NCCL >= 2.30.3")
    if not machine.shares_device(2):
        return trial.not_tried("there is a device for each rank")
    version = machine.nccl_version()
    if version < (2, 30, 3):
        return trial.not_tried(f"NCCL {'.'.join(map(str, version))} is older than 2.30.3")
    outcome = cases(trial, "[oracle]", "tests", 2, {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,P2P,SHM"}, hosts=False)
    ways = sorted(set(re.findall(r"via (P2P|SHM|NET/\w+)", outcome.output if outcome else "")))
    trial.see(f"via {', '.join(ways) or 'unknown'}")


@check(7, 1, "2 ranks under MPS", "only if its daemon runs already: results right", 15)
def under_mps(trial):
    if not machines.processes_named("nvidia-cuda-mps-control"):
        return trial.not_tried("no MPS daemon runs here (nvidia-cuda-mps-control)")
    cases(trial, "[messages]", "tests", 2)


# Call 2: faults, deadlines and launches.

@check(8, 2, "first message, peer 2 s late", "waits, then the values are right", 25)
def late_peer(trial):
    cases(trial, "[late-peer]", "test", 2)


@check(9, 2, "a call the peer never makes", "Timeout within deadline + 2 s, naming it; the device copies afterwards; "
       "utilisation 0 %", 30)
def absent_call(trial):
    cases(trial, "[absent-call]", "test", 2)


@check(10, 2, "peer stopped (SIGSTOP)", "error at the deadline + 2 s, group ended < 1 s, a new group works after SIGCONT", 35)
def stopped_peer(trial):
    cases(trial, "[stopped-peer]", "test", 2)


@check(11, 2, "peer killed (SIGKILL)", "PeerLost <= 2.5 s, by NCCL's socket, and on one node with its name; under ddprun training again < 5 s", 60)
def killed_peer(trial):
    if trial.machine.dry_run:
        trial.not_tried("a death that only NCCL's sockets show: the fake NCCL has none")
    elif trial.machine.shares_device(2):
        cases(trial, "[killed-peer]", "test", 2, seconds=18, may_die=True)
    cases(trial, "[killed-peer]", "test", 2, seconds=18, may_die=True, one_node=True)
    with tempfile.TemporaryDirectory() as folder:
        cases(trial, "[restart]", "test", 2, {"GPU_CHECK_FOLDER": folder}, options=["--max-restarts", 1])


@check(12, 2, "two groups in flight, peer killed", "both fail <= 2.5 s after it, both aborts return", 30)
def two_groups(trial):
    cases(trial, "[two-groups]", "test", 2, may_die=True, one_node=True)


@check(13, 2, "a kernel before the all_reduce", "flight record: queued, not started; then started and done within 10 ms of the "
       "device", 25)
def started(trial):
    cases(trial, "[started]", "test")


@check(14, 2, "launch cost; soak", "submit <= 5 us (median); 2,000 x (split, all_reduce, destroy) without a hang", 170)
def launches(trial):
    for blocking in "01":
        cases(trial, "[launch]", "launch cost", environment={"NCCL_COMM_BLOCKING": blocking}, seconds=30)
    cases(trial, "[soak]", "soak", environment={"NCCL_COMM_BLOCKING": "0", "GPU_CHECK_SOAK_SECONDS": "90"}, seconds=102)
    cases(trial, "[soak]", "soak", 2, {"NCCL_COMM_BLOCKING": "0", "GPU_CHECK_SOAK_SECONDS": "38"}, seconds=50)


@check(15, 2, "graph captures", "captures beside work in flight go on; a captured step is right in 100 replays, and ends at its deadline", 38)
def captures(trial):
    cases(trial, "[capture]~[reducer]~[late]", "captures", seconds=15)
    cases(trial, "[capture][reducer]~[ranks]", "a reducer's step")
    cases(trial, "[capture][reducer][ranks]", "with a peer", 2)
    cases(trial, "[capture][late]", "a missing peer", 2)


@check(21, 2, "50 x create and destroy, 20 x abort", "memory back within 1 MiB, threads and descriptors back", 45)
def leaks(trial):
    cases(trial, "[leaks]", "test")


@check(24, 2, "progress words", "a memfd can be registered; the agent reads the words of a killed worker", 20)
def progress_words(trial):
    cases(trial, "[progress-words]~[library]", "driver")
    cases(trial, "[progress-words][library]", "the library's own words")


# Call 3: kernels, reducer, training, checkpoints.

@check(16, 3, "compute-sanitizer", "memcheck, racecheck, initcheck over reducer and kernels: 0 errors", 100)
def sanitizer(trial):
    machine = trial.machine
    tool = shutil.which("compute-sanitizer") or next(iter(map(str, pathlib.Path("/usr/local").glob("cuda*/bin/compute-sanitizer"))), None)
    if not tool:
        return trial.not_tried("compute-sanitizer is not installed")
    if machine.dry_run:
        return trial.not_tried("a dry run has no device code")
    for tag in ("[kernels]~[check]", "[reducer]~[ranks]~[check]"):
        if not machine.has_cases(tag):
            trial.not_tried(f"gpu_tests has no case with {tag}")
            continue
        for mode in ("memcheck", "racecheck", "initcheck"):
            command = [tool, "--tool", mode, "--error-exitcode", 9, machine.tests / "gpu_tests", tag]
            outcome = machine.run(command, min(30, trial.seconds_left()), {})
            summary = re.findall(r"ERROR SUMMARY: (\d+) errors?|RACECHECK SUMMARY: (\d+) hazards?", outcome.output)
            if summary:
                errors = sum(int(first or second) for first, second in summary)
                trial.figure(f"{mode}_errors", errors, tag.split("]")[0][1:], "<=", 0)
            elif outcome.problem:  # it did not come to its end: that is no result
                trial.not_tried(f"{mode}: {outcome.problem}: {outcome.output.strip().splitlines()[-1:]}")


KERNELS, REDUCER = "[kernels]", "[reducer]"


def kernel_rates(trial, environment=None):
    cases(trial, KERNELS, "pack, narrow and widen", environment=environment, seconds=35)


def reducer_results(trial, environment=None):
    cases(trial, f"{REDUCER}~[capture]~[rates]", "reducer on CUDA", 2, environment, seconds=50)


@check(17, 3, "kernels", "pack, narrow, widen >= 90 % of the device copy measured beside them", 40)
def kernels(trial):
    kernel_rates(trial)


@check(18, 3, "reducer, 2 ranks", "plans, hooks, averages, no_sync, Join equal the native reducer; timeline", 70)
def reducer(trial):
    file = trial.machine.log.parent / "gpu-check-timeline.json"
    reducer_results(trial, {"DDP_TIMELINE": str(file)})
    recorded = file.with_suffix(".rank-0.json")
    if not recorded.exists():
        return
    share = timeline.hidden_share(*timeline.read(recorded))
    if share is not None:
        trial.figure("buckets_under_backward", share, "%")
    python = trial.machine.python("matplotlib")
    picture = file.with_suffix(".png")
    if python and not trial.machine.run([python, timeline.__file__, recorded, picture], 15, {}).problem:
        trial.see(f"picture {picture.name}")
    else:
        trial.see(f"no matplotlib for a picture: {recorded.name} opens in ui.perfetto.dev")


@check(19, 3, "reducer against torch DDP", "world 1, same gradients: (step without DDP + reducer) / step with DDP <= 1.00; launch of a bucket <= 5 us", 80)
def against_torch(trial):
    python = trial.machine.python("torch")
    if not python:
        trial.not_tried("Python has no torch here")
    elif trial.machine.dry_run:
        trial.not_tried("torch needs a real device")
    else:
        script = pathlib.Path(__file__).resolve().parents[2] / "tests/gpu/torch_ddp.py"
        trial.program([python, script], 50)
    cases(trial, f"{REDUCER}[rates]", "reducer on CUDA")
    values = {figure["name"]: figure["value"] for figure in trial.figures}
    for name in [name for name in values if name.startswith("reducer_alone_")]:
        model = name[len("reducer_alone_"):]
        ddp, plain = (values.get(f"torch_step_{model}{suffix}") for suffix in ("", "_without_DDP"))
        if ddp and plain:  # as if none of the reducer's work were hidden by backward, as some of DDP's is
            trial.figure(f"step_{model}", (plain + values[name]) / ddp, "x", "<=", 1.0)


@check(20, 3, "train --device cuda", "200 steps as on the CPU within 1e-4; checkpoints load both ways; kill -9: the same curve", 90)
def training(trial):
    machine = trial.machine
    train = machine.tool("train")
    if "--device" not in machine.run([train, "--help"], 10, {}).output:
        return trial.not_tried("train has no --device")
    steps = 20 if machine.short else 200
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        losses = {device: last_loss(trial, steps, device, folder / device, half=True) for device in ("cpu", "cuda")}
        if None not in losses.values():
            relative(trial, "loss_difference", losses["cuda"], losses["cpu"])
        for first, second in (("cpu", "cuda"), ("cuda", "cpu")):  # each goes on from the other's checkpoint
            crossed = folder / f"{first}-{second}"
            if not (folder / first).is_dir():
                continue
            shutil.copytree(folder / first, crossed)
            loss = last_loss(trial, steps, second, crossed, half=False)
            if loss is not None and losses["cpu"] is not None:
                relative(trial, f"{first}_checkpoint_on_{second}", loss, losses["cpu"])
        if losses["cuda"] is not None:
            killed_training(trial, steps, folder / "killed", losses["cuda"])


def training_environment(machine):
    """No TF32; and cuBLAS is found where Python has it. The folders of this machine come first."""
    libraries = [*machine.libraries, *map(str, machine.python_libraries())]
    return {"NVIDIA_TF32_OVERRIDE": "0", "LD_LIBRARY_PATH": os.pathsep.join(filter(None, libraries))}


def train_command(trial, steps, device, folder):
    return [trial.machine.tool("train"), "--device", device, "--steps", steps, "--checkpoint-dir", folder]


def last_loss(trial, steps, device, folder, half):
    """Trains `steps` steps, with a checkpoint at the half of them that is kept alone if `half`. Returns the last loss, or None."""
    command = [*train_command(trial, steps, device, folder), "--checkpoint-every", max(steps // 2, 1)]
    outcome = trial.program(command, 30, training_environment(trial.machine))
    loss = json_loss(outcome.output)
    if half and not outcome.problem:
        for path in pathlib.Path(folder).glob("step-*.safetensors"):
            if path.name != f"step-{steps // 2}.safetensors":
                path.unlink()
    return loss


def json_loss(output):
    for line in output.splitlines():
        try:
            return json.loads(line[line.index("{"):])["loss_last"]
        except (ValueError, KeyError, TypeError):
            continue
    return None


def relative(trial, name, value, reference):
    trial.figure(name, abs(value - reference) / abs(reference), "relative", "<=", 1e-4)


def killed_training(trial, steps, folder, reference):
    """Kills the worker once it has a checkpoint; ddprun restarts it, and it has to end with the same loss."""
    machine = trial.machine
    command = [machine.tool("ddprun"), "--max-restarts", 1, "--nproc-per-node", 1,
               "sh", "-c", KILL_SELF_ONCE, "sh", folder, *train_command(trial, steps, "cuda", folder), "--checkpoint-every", max(steps // 10, 1)]
    outcome = trial.program(command, 40, training_environment(machine))
    loss = json_loss(outcome.output)
    restarts = re.search(r'"restarts":(\d+)', outcome.output)
    if loss is not None:
        trial.figure("restarts", int(restarts.group(1)) if restarts else 0, "times", ">=", 1)
        relative(trial, "loss_after_kill_-9", loss, reference)


# The first incarnation of the worker is killed as soon as it has saved a checkpoint, in the middle of a later step.
KILL_SELF_ONCE = ('folder=$1; shift; "$@" & worker=$!; '
                  'if [ "$TORCHELASTIC_RESTART_COUNT" = 0 ]; then '
                  'while kill -0 $worker 2>/dev/null && ! ls "$folder"/step-*.safetensors >/dev/null 2>&1; do sleep 0.01; done; '
                  'kill -9 $worker; fi; wait $worker')


@check(22, 3, "checkpoint of 4 GB", ">= 80 % of the pinned copy measured beside it; bits equal", 50)
def checkpoint(trial):
    with tempfile.TemporaryDirectory() as folder:
        cases(trial, "[checkpoint]", "checkpoints of device memory", environment={"GPU_CHECK_FOLDER": folder})


@check(23, 3, "CUDA_FORCE_PTX_JIT=1", "checks 17 and 18 again", 45)
def jit(trial):
    for part in (kernel_rates, reducer_results):
        part(trial, {"CUDA_FORCE_PTX_JIT": "1"})
