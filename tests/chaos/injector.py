"""Injects one fault and returns when it is over."""

import signal
import time

from job import kill, start_time


def inject(job, fault):
    """Returns when the fault began. Lasting faults are over at the return."""
    kind, host = fault.kind, fault.hosts[0]
    if kind in ("host killed", "daemon's host killed"):
        return kill_host(job, host, fault.seconds)
    if kind == "partition":
        return separate(job, fault.hosts, fault.seconds)
    role, what = kind.split()
    targets = job.by_role(role, host)
    if role == "worker":
        targets = [target for target in targets if target.environment["LOCAL_RANK"] == str(fault.local_rank)]
    if not targets:
        raise RuntimeError(f"{host} has no process that is a {role}")
    pid = max(targets, key=lambda target: start_time(target.pid)).pid
    began = time.time()
    if what == "killed":
        kill(pid)
    else:
        kill(pid, signal.SIGSTOP)
        job.wait(fault.seconds)
        kill(pid, signal.SIGCONT)
    return began


def kill_host(job, host, seconds):
    job.down.add(host)
    began = time.time()
    job.hosts.call("kill", host)
    job.launched[host].wait()
    job.wait(seconds)
    job.hosts.call("start", host)
    job.start(host)
    job.down.remove(host)
    return began


def separate(job, hosts, seconds):
    others = [host for host in job.hosts.names if host not in hosts]
    began = time.time()
    job.hosts.call("partition", ",".join(hosts), ",".join(others))
    job.wait(max(0.0, began + seconds - time.time()))
    job.hosts.call("heal")
    return began
