#!/usr/bin/env python3
"""Holds hostile connections open to a ddprund while agents join and one of them resumes.

usage: hostile.py DDPRUND [--connections N] [--agents N] [--own-host] [--insecure]

Starts the daemon, with TLS for other hosts unless --insecure is passed. The agents connect over loopback; the hostile connections
from another host (a network namespace with eight addresses; needs root and ip(8)), or with --own-host over loopback, as the same
user. A quarter of them is silent, a quarter sends a byte per second, a quarter upgrades and announces a message of 8 MiB, of which it
sends zeros, a quarter begins TLS with a first message that announces 128 KiB. Those that are closed connect again, at most 2000 a
second. Prints the daemon's memory, the time in which all agents have joined, and the times in which one resumes.
"""
import argparse
import ctypes
import json
import os
import re
import resource
import select
import signal
import socket
import subprocess
import sys
import time

NAMESPACE = f"ddprun-hostile-{os.getpid()}"
UPGRADE = ("GET /ddprun/v1/agent HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
           "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nDdprun-Channel: 2\r\n\r\n").encode()
CLIENT_HELLO_OF_128_KIB = b"\x16\x03\x01\x40\x00" + b"\x01\x01\xff\xf0" + bytes(0x4000 - 4)
FRAME_OF_8_MIB = b"\x81\xff" + (8 << 20).to_bytes(8, "big") + b"\0\0\0\0"
ADDRESSES = 8
RECONNECTS_PER_SECOND = 2000
JOINS = 11
LAUNCH = {"command": "train", "command_hash": "0000000000000001", "user": "user", "uid": os.getuid()}


def frame(text):
    data = text.encode()
    length = bytes([0x80 | len(data)]) if len(data) < 126 else bytes([0x80 | 126]) + len(data).to_bytes(2, "big")
    return b"\x81" + length + b"\0\0\0\0" + data


class Agent:
    """One agent as far as the daemon sees it: joins, and is welcomed."""

    def __init__(self, address, number, count):
        self.address, self.session = address, None
        self.join = {"type": "join", "protocol": 8, "node": f"{number:032x}", "host": f"node{number}", "pid": 1,
                     "programs": [{"role": "default", "slots": 1, "max_restarts": 0}],
                     "min_nodes": count + 1, "max_nodes": count + 1, "scale_up": "immediate", "stop_grace_ms": 30_000,
                     "launch": LAUNCH}

    def connect(self, within=20):
        self.buffer, self.upgraded, self.welcomed = b"", False, False
        self.socket = socket.socket()
        self.socket.settimeout(within)
        self.socket.connect(self.address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.sendall(UPGRADE)

    def drop(self):
        """Ends the connection by a reset: the node may resume."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.socket.close()

    def read(self):
        """Handles what has arrived."""
        data = self.socket.recv(65536)
        if not data:
            raise ConnectionError("closed by the daemon: " + repr(self.buffer[-200:]))
        self.buffer += data
        if not self.upgraded and b"\r\n\r\n" in self.buffer:
            self.buffer = self.buffer.split(b"\r\n\r\n", 1)[1]
            self.upgraded = True
            self.socket.sendall(frame(json.dumps(dict(self.join, **({"session": self.session} if self.session else {})))))
        if b'"welcome"' in self.buffer:
            self.welcomed = True
            self.session = re.search(rb'"session":"([^"]*)"', self.buffer).group(1).decode()


def join_all(agents):
    """Returns the time until all agents are welcome."""
    start = time.monotonic()
    for agent in agents:
        agent.connect()
    waiting = {agent.socket: agent for agent in agents}
    while waiting:
        readable, _, _ = select.select(list(waiting), [], [], 20)
        if not readable:
            sys.exit(f"{len(waiting)} agents were not welcomed")
        for ready in readable:
            agent = waiting[ready]
            try:
                agent.read()
            except OSError:
                del waiting[ready]
                agent.connect()
                waiting[agent.socket] = agent
                continue
            if agent.welcomed:
                del waiting[ready]
    return time.monotonic() - start


def join_all_again(agents):
    """Returns the time in which all agents resume at once: the daemon does as much as when they first join."""
    for agent in agents:
        agent.drop()
    time.sleep(0.2)
    return join_all(agents)


def resume(agent):
    start = time.monotonic()
    agent.drop()
    try_time = 0.1
    while True:
        try:
            agent.connect(try_time)  # as agents do: a SYN that was lost is not waited for
            while not agent.welcomed:
                agent.read()
            return time.monotonic() - start
        except OSError:
            agent.socket.close()
            try_time = min(2 * try_time, 1.5)
            time.sleep(0.05)


def attack(address, count, sources):
    """Makes the hostile connections; never returns."""
    poll = select.epoll()
    sockets, closed, last_bytes = {}, list(range(count)), time.monotonic()
    allowance, counted, first = 0.0, time.monotonic(), True
    while True:
        now = time.monotonic()
        allowance = min(RECONNECTS_PER_SECOND / 5, allowance + (now - counted) * RECONNECTS_PER_SECOND)
        counted = now
        while closed and (first or allowance >= 1):
            number = closed.pop()
            allowance -= 1
            client = socket.socket()
            client.setblocking(False)
            if sources:
                client.bind((sources[number % len(sources)], 0))
            client.connect_ex(address)
            sockets[client.fileno()] = (client, number, [0])
            poll.register(client, select.EPOLLIN | (select.EPOLLOUT if number % 4 else 0))
        if first:
            print("all begun", flush=True)
        first = False
        for fd, event in poll.poll(0.05):
            client, number, sent = sockets[fd]
            try:
                if event & select.EPOLLOUT and number % 4 in (1, 3):
                    client.send(b"G" if number % 4 == 1 else CLIENT_HELLO_OF_128_KIB)
                    poll.modify(fd, select.EPOLLIN)
                elif event & select.EPOLLOUT:
                    sent[0] += client.send(UPGRADE if sent[0] == 0 else b"\0" * 65536)
                    if sent[0] == len(UPGRADE):
                        poll.modify(fd, select.EPOLLIN)
                if event & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
                    if not client.recv(65536):
                        raise ConnectionError
                    if number % 4 == 2 and sent[0] == len(UPGRADE):
                        sent[0] += client.send(FRAME_OF_8_MIB)
                        poll.modify(fd, select.EPOLLIN | select.EPOLLOUT)
            except BlockingIOError:
                pass
            except OSError:
                poll.unregister(fd)
                client.close()
                del sockets[fd]
                closed.append(number)
        if now - last_bytes > 1:
            last_bytes = now
            for client, number, _ in list(sockets.values()):
                if number % 4 == 1:
                    try:
                        client.send(b"E")
                    except OSError:
                        pass


def rss_mib(pid, which):
    with open(f"/proc/{pid}/status") as status:
        return int(re.search(which + r":\s+(\d+)", status.read()).group(1)) / 1024


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def make_namespace(here, sources):
    ip("netns", "add", NAMESPACE)
    ip("link", "add", "ddph0", "type", "veth", "peer", "name", "ddph1", "netns", NAMESPACE)
    ip("address", "add", here + "/24", "dev", "ddph0")
    ip("link", "set", "ddph0", "up")
    for source in sources:
        ip("-n", NAMESPACE, "address", "add", source + "/24", "dev", "ddph1")
    ip("-n", NAMESPACE, "link", "set", "ddph1", "up")


def enter_namespace():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(os.open(f"/run/netns/{NAMESPACE}", os.O_RDONLY), 0x40000000) != 0:  # CLONE_NEWNET
        sys.exit("cannot enter the network namespace")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("ddprund")
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--agents", type=int, default=64)
    parser.add_argument("--own-host", action="store_true")
    parser.add_argument("--insecure", action="store_true")
    options = parser.parse_args()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    here, sources, arguments = "127.0.0.1", [], []
    if not options.own_host:
        here, sources = "10.99.0.1", [f"10.99.0.{2 + i}" for i in range(ADDRESSES)]
        make_namespace(here, sources)
        arguments = ["--bind", "0.0.0.0"]
    if options.insecure:
        arguments.append("--insecure")
    daemon = attacker = None
    try:
        daemon = subprocess.Popen([options.ddprund, *arguments, "--port", "0", "--lost-after", "600", "--hold", "700"],
                                  env=dict(os.environ, DDPRUN_JOB_KEY=os.urandom(32).hex()), stderr=subprocess.PIPE, text=True)
        for line in daemon.stderr:
            found = re.search(r"serves run .* at \S*:(\d+)", line)
            if found:
                break
        else:
            sys.exit("ddprund does not start")
        subprocess.Popen(["cat"], stdin=daemon.stderr, stdout=subprocess.DEVNULL)
        port = int(found.group(1))
        agents = [Agent(("127.0.0.1", port), i, options.agents) for i in range(options.agents)]
        join_all(agents)
        normal = sorted(join_all_again(agents) for _ in range(JOINS))[JOINS // 2]
        alone = rss_mib(daemon.pid, "VmRSS")
        resumes = [resume(agents[0]) for _ in range(20)]
        print(f"without: {options.agents} agents join in {1000 * normal:.0f} ms; RSS {alone:.1f} MiB; "
              f"one resumes in {1000 * max(resumes):.0f} ms at most", flush=True)
        read_end, write_end = os.pipe()
        attacker = os.fork()
        if attacker == 0:
            os.dup2(write_end, 1)
            if sources:
                enter_namespace()
            attack((here, port), options.connections, sources)
        resumes, begin = [], time.monotonic()
        while not select.select([read_end], [], [], 0)[0]:
            resumes.append(resume(agents[len(resumes) % len(agents)]))
        print(f"while {options.connections} connections arrive ({time.monotonic() - begin:.1f} s): "
              f"{len(resumes)} resume in {1000 * max(resumes):.0f} ms at most", flush=True)
        joins, resumes = sorted(join_all_again(agents) for _ in range(JOINS)), []
        for i in range(40):
            resumes.append(resume(agents[i % len(agents)]))
            time.sleep(0.05)
        print(f"with {options.connections}: {options.agents} agents join in {1000 * joins[JOINS // 2]:.0f} ms "
              f"({joins[JOINS // 2] / normal:.1f} x; worst {1000 * max(joins):.0f} ms); one resumes in "
              f"{1000 * sorted(resumes)[20]:.0f} ms, {1000 * max(resumes):.0f} ms at most; "
              f"RSS {rss_mib(daemon.pid, 'VmRSS'):.1f} MiB, peak {rss_mib(daemon.pid, 'VmHWM'):.1f} MiB")
    finally:
        if attacker:
            os.kill(attacker, signal.SIGKILL)
            os.waitpid(attacker, 0)
        if daemon:
            daemon.kill()
            daemon.wait()
        if not options.own_host:
            ip("netns", "del", NAMESPACE)


if __name__ == "__main__":
    main()
