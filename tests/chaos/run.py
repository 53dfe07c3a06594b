"""One run: the job undisturbed, then with one fault after the other; each is injected, waited for, measured and checked."""

import time
from dataclasses import dataclass

import launchers
from injector import inject
from job import DidNotRecover, Job, kill
from losses import differences
from plan import ENDS_THE_DAEMON, GO_ON, LOSES_A_NODE, make_plan
from recovery import Recovery, first_new_step, longest_gap, phases
from report import table

REST = 61.0  # seconds of life after which earlier losses of hosts no longer count (docs/design/002)
STEPS_PER_SECOND = 15  # at the default --rate, at most
SETTLED = 1.0  # seconds of steps after a fault: what follows from it has begun by then
ORPHAN_LIMIT = 2.0  # seconds in which every process of an older group has to be gone
END_LIMIT = 600.0  # seconds for the rest of the job, and one more for each step
MAX_SHOWN = 20


@dataclass
class Before:
    """The job when a fault begins."""

    workers: set  # pids
    ends: int  # of launchers
    lines: int  # index of the newest step
    step: int


class Run:
    def __init__(self, options, hosts, directory):
        self.options, self.hosts, self.directory = options, hosts, directory
        self.launcher_type = launchers.LAUNCHERS[options.launcher]
        self.kinds = [kind for kind in self.launcher_type.kinds if kind in options.only]
        self.plan = make_plan(options.seed, options.faults, hosts.names, options.workers, self.kinds,
                              self.launcher_type.agents(hosts.names), options.max_seconds)
        rests = sum(fault.rest for fault in self.plan)
        self.steps = options.faults * options.steps_per_fault + int(rests * REST * STEPS_PER_SECOND)
        self.problems = []
        self.recoveries = []

    def start(self, name):
        folder = self.directory / name
        folder.mkdir(parents=True)
        launcher = self.launcher_type(self.options.build, folder)
        trainer = launchers.TRAINERS[self.options.trainer](self.options.build, folder, self.steps, self.options.checkpoint_every)
        return Job(self.hosts, launcher, trainer, self.options.workers, folder)

    def undisturbed(self):
        """Returns step -> loss as text."""
        with self.start("undisturbed") as job:
            self.wait_for_end(job)
            lines = list(job.losses.lines)
            if [step for _, step, _ in lines] != list(range(1, self.steps + 1)):
                raise RuntimeError(f"the undisturbed job made {len(lines)} of {self.steps} steps:\n{job.logs()}")
        print(f"undisturbed: {len(lines)} steps in {lines[-1][0] - lines[0][0]:.0f} s, last loss {lines[-1][2]}", flush=True)
        return {step: loss for _, step, loss in lines}

    def disturbed(self, expected):
        with self.start("disturbed") as job:
            try:
                self.hosts.set_rate(self.options.rate)
                for number, fault in enumerate(self.plan, 1):
                    self.one_fault(job, number, fault)
                self.hosts.set_rate("off")
                self.wait_for_end(job)
                self.check_nothing_is_left(job)
            finally:
                self.compare(expected, job.losses.lines)

    def one_fault(self, job, number, fault):
        self.wait_for_moment(job, number, fault)
        before = Before(job.worker_pids(), len(job.ends), len(job.losses.lines) - 1, job.step())
        began = time.time()
        try:
            began = inject(job, fault)
            over = time.time()
            self.wait_for_recovery(job, fault, before, over)
            recovery = self.measure(job, fault, began, over, before)
        except DidNotRecover as error:
            self.problems.append(f"fault {number} ({fault}): {error}\n{job.logs()}")
            recovery = Recovery(fault, began, began, began, 0.0, True, requeued=True)
            job.requeue()
            job.wait(until=lambda: job.step() > before.step, limit=self.options.limit)
        recovery.orphans = self.orphans_of(job)
        self.recoveries.append(recovery)
        self.check(number, recovery)
        print(f"{number:>4} at step {before.step}: {fault}: {recovery}", flush=True)
        for orphan in recovery.orphans:
            print(f"     orphan on {orphan.host}: {' '.join(orphan.words)[:100]}", flush=True)

    def wait_for_moment(self, job, number, fault):
        if fault.rest:
            job.wait(REST)
        target = job.step() + fault.after_steps
        job.wait(until=lambda: job.step() >= target or job.succeeded, limit=self.options.limit)
        if job.succeeded:
            raise RuntimeError(f"the job ended before fault {number}: pass a larger --steps-per-fault")
        job.wait(fault.delay)

    def wait_for_recovery(self, job, fault, before, over):
        """Returns when the job makes steps that are new, some time after all of it runs again and with the same workers since."""
        workers, since = job.worker_pids(), over

        def recovered():
            nonlocal workers, since
            if job.succeeded:
                raise RuntimeError(f"the job ended during a fault ({fault}): pass a larger --steps-per-fault")
            lines = job.losses.lines[before.lines:]
            if lines[-1][0] <= max(since, *job.started_at.values()) + SETTLED or not first_new_step(lines):
                return False
            if workers != job.worker_pids():
                workers, since = job.worker_pids(), time.time()
                return False
            return not (fault.ends_workers and before.workers <= workers)
        job.wait(until=recovered, limit=self.options.limit)

    def measure(self, job, fault, began, over, before):
        over = max(over if fault.seconds else began, *job.started_at.values())
        lines = job.losses.lines[before.lines:]
        done = first_new_step(lines)
        hit = set(fault.hosts) if fault.seconds else set()
        if fault.kind == "partition" and self.hosts.names[0] in hit:  # the daemon's side goes on
            hit = set(self.hosts.names) - hit
        restarted = not before.workers <= job.worker_pids()
        split = phases(began, over, done, job.events, [time for time, _, _ in lines], hit) if restarted else None
        return Recovery(fault, began, over, done, longest_gap(lines)[1], restarted, split,
                        {host: code for _, host, code in job.ends[before.ends:]})

    def orphans_of(self, job):
        deadline = time.time() + ORPHAN_LIMIT
        while orphans := job.orphans():
            if time.time() > deadline:
                for orphan in orphans:  # it is counted, and must not disturb what follows
                    kill(orphan.pid)
                return orphans
            job.wait(0.02)
        return []

    def check(self, number, recovery):
        """Notes what is not as documented: orphans, restarts after a pause, launchers that end beside the fault."""
        fault, problem = recovery.fault, f"fault {number} ({recovery.fault}): "
        if recovery.orphans:
            self.problems.append(f"{problem}{len(recovery.orphans)} orphans")
        if recovery.requeued or fault.kind in ENDS_THE_DAEMON:
            return
        if recovery.restarted and fault.kind in GO_ON:
            self.problems.append(f"{problem}the workers were restarted")
        if others := set(recovery.ended) - (set(fault.hosts) if fault.kind in LOSES_A_NODE else set()):
            self.problems.append(f"{problem}launchers ended that were not hit: " +
                                 ", ".join(f"{host} with {recovery.ended[host]}" for host in sorted(others)))

    def wait_for_end(self, job):
        """Waits for the success of the job. Raises RuntimeError if a launcher ends otherwise."""
        ends = len(job.ends)
        job.wait(until=lambda: len(job.succeeded) == len(self.hosts.names) or len(job.ends) > ends, limit=END_LIMIT + self.steps)
        for _, host, code in job.ends[ends:]:
            raise RuntimeError(f"{host} ended with {code}, without a fault:\n{job.logs()}")

    def check_nothing_is_left(self, job):
        deadline = time.time() + 10
        while (left := job.processes()) and time.time() < deadline:
            time.sleep(0.05)
        if left:
            self.problems.append("left after the end of the job: " + "; ".join(" ".join(process.words) for process in left))
        for host in self.hosts.names:
            if memory := self.hosts.call("exec", host, "--", "ls", "/dev/shm").split():
                self.problems.append(f"left in shared memory on {host}: {' '.join(memory)}")

    def compare(self, expected, lines):
        found = differences(expected, lines, self.options.checkpoint_every)
        made = {step for _, step, _ in lines}
        if missing := len(expected.keys() - made):
            self.problems.append(f"{missing} of {len(expected)} steps were not made")
        self.problems += found[:MAX_SHOWN] + ([f"and {len(found) - MAX_SHOWN} more"] if len(found) > MAX_SHOWN else [])
        if lines:
            print(f"\n{len(made)} steps, and {len(lines) - len(made)} made again: {len(found)} differences from the undisturbed "
                  f"job; last loss {lines[-1][2]}, undisturbed {expected.get(lines[-1][1])}")

    def print_end(self):
        orphans = sum(len(recovery.orphans) for recovery in self.recoveries)
        print(f"{len(self.recoveries)} faults, {orphans} orphans\n\n{table(self.recoveries, self.kinds)}")
        if self.problems:
            print(f"\n{len(self.problems)} problems:\n" + "\n".join(self.problems))
