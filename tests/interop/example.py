#!/usr/bin/env python3
"""Replays the exchange at the end of docs/protocol.md against `ddprund --store`, and checks its table of limits.

usage: example.py --ddprund PATH docs/protocol.md      Needs no PyTorch.
"""

import argparse
import re
import socket
import subprocess
import sys
from pathlib import Path

UNITS = {"": 1, " KiB": 1 << 10, " MiB": 1 << 20, " GiB": 1 << 30}


def steps_of(text):
    """(line number, direction, bytes) of each line of the exchange."""
    block = re.search(r"^```exchange\n(.*?)^```", text, re.M | re.S)
    first = text[: block.start(1)].count("\n") + 1
    for number, line in enumerate(block[1].splitlines(), first):
        direction, digits = re.match(r"([<>])((?: [0-9a-f]+)+)(?:  |$)", line).groups()
        yield number, direction, bytes.fromhex(digits)


def replay(steps, address):
    """The number of replies, or what was wrong."""
    replies = 0
    with socket.create_connection(address, timeout=10) as connection:
        for number, direction, data in steps:
            if direction == ">":
                connection.sendall(data)
                continue
            answer = connection.recv(len(data), socket.MSG_WAITALL)
            if answer != data:
                return f"line {number}: the page says {data.hex()}, the store answers {answer.hex()}"
            replies += 1
        connection.settimeout(0.2)
        try:
            return f"there is more than the page says: {connection.recv(100).hex()}"
        except TimeoutError:
            return replies


def wrong_limits(text, help_text):
    """The limits whose defaults on the page are not those that --help gives."""
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (\d+(?: [KMG]iB)?) \|", text, re.M))
    page = {name: int(value.split()[0]) * UNITS[value[len(value.split()[0]) :]] for name, value in rows.items()}
    section = help_text[help_text.index("Limits of a store") :]
    section = section[: section.index("\n\n")]
    program = {name: int(value) for name, value in re.findall(r"^  ([a-z-]+) +(\d+) ", section, re.M)}
    return sorted(set(page.items()) ^ set(program.items())) or (not page and ["no limits found"])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ddprund", required=True)
    parser.add_argument("page", type=Path)
    arguments = parser.parse_args()
    text = arguments.page.read_text()
    help_text = subprocess.run([arguments.ddprund, "--help"], capture_output=True, text=True, check=True).stdout
    if wrong := wrong_limits(text, help_text):
        sys.exit(f"{arguments.page} and ddprund --help differ: {wrong}")
    with subprocess.Popen(
        [arguments.ddprund, "--store", "127.0.0.1:0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as store:
        try:
            port = int(store.stdout.readline().rsplit(":", 1)[1])
            result = replay(steps_of(text), ("127.0.0.1", port))
        finally:
            store.terminate()
    if isinstance(result, str):
        sys.exit(f"{arguments.page}: {result}")
    print(f"{result} replies are as the page says")
    return 0 if result else 1


if __name__ == "__main__":
    sys.exit(main())
