"""Virtual hosts, made by the cluster tools (DDPRUN_CLUSTER_TOOLS). They need root."""

import json
import os
import subprocess
import sys
from pathlib import Path


def require_tool():
    """Returns the path of the tool, or ends the script with 77 and one message."""
    tool = Path(os.environ.get("DDPRUN_CLUSTER_TOOLS", "")) / "hosts"
    if not os.environ.get("DDPRUN_CLUSTER_TOOLS") or not tool.exists() or os.geteuid() != 0:
        print("SKIPPED: no tools for virtual hosts (set DDPRUN_CLUSTER_TOOLS), or not root", file=sys.stderr)
        sys.exit(77)
    return str(tool)


class Hosts:
    """Virtual hosts that exist as long as the `with` block."""

    def __init__(self, tool, directory, count):
        self.tool, self.environment = tool, {**os.environ, "DDPRUN_CLUSTER_DIR": str(directory)}
        self.names = [f"n{number + 1}" for number in range(count)]

    def __enter__(self):
        self.call("up", *self.names)
        self.facts = json.loads(self.call("status", "--json"))["hosts"]
        return self

    def __exit__(self, *_):
        self.call("down")

    def call(self, *words):
        return subprocess.run([self.tool, *words], env=self.environment, check=True, capture_output=True,
                              text=True).stdout

    def set_rate(self, rate):
        for host in self.names:
            self.call("rate", host, rate)

    def address(self, host):
        return self.facts[host]["ip"]

    def on(self, host, words):
        return [self.tool, "exec", host, "--", *words]

    def in_network_of(self, host, words):
        """Outside the host's processes, so that the program may start others on both."""
        init = f"/proc/{self.facts[host]['init']}/ns"
        return ["nsenter", f"--net={init}/net", f"--uts={init}/uts", "--", *words]
