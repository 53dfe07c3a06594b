#!/usr/bin/env python3
"""A remote shell for programs inside virtual hosts, like ssh: the tools for virtual hosts work outside of them only.

usage: remote_shell.py serve SOCKET TOOL          runs commands for clients; prints a line when it is ready
       remote_shell.py SOCKET [-x] HOST COMMAND   runs COMMAND on HOST, with this process's input and output
"""
import array
import os
import signal
import socket
import sys
import threading


def serve(path, tool):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(64)
    print("ready", flush=True)
    while True:
        client, _ = listener.accept()
        threading.Thread(target=run, args=(client, tool), daemon=True).start()


def run(client, tool):
    """Runs the command of one client; kills it if the client ends first."""
    fds = array.array("i")
    message, ancillary, _, _ = client.recvmsg(65536, socket.CMSG_SPACE(3 * fds.itemsize))
    fds.frombytes(ancillary[0][2])
    host, command = message.decode().split("\0", 1)
    argv = [tool, "exec", host, "--", "sh", "-c", command]
    moves = [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(fds)]
    pid = os.posix_spawn(tool, argv, os.environ, file_actions=moves, setpgroup=0)
    for fd in fds:
        os.close(fd)
    ended = threading.Event()

    def watch():
        if not client.recv(1) and not ended.is_set():
            os.kill(pid, signal.SIGKILL)

    threading.Thread(target=watch, daemon=True).start()
    status = os.waitpid(pid, 0)[1]
    ended.set()
    code = os.waitstatus_to_exitcode(status)
    client.sendall(bytes([code if code >= 0 else 128 - code]))


def call(path, arguments):
    while arguments[0].startswith("-"):
        arguments = arguments[1:]
    server = socket.socket(socket.AF_UNIX)
    server.connect(path)
    message = "\0".join((arguments[0], " ".join(arguments[1:]))).encode()
    socket.send_fds(server, [message], [0, 1, 2])
    code = server.recv(1)
    return code[0] if code else 255


if sys.argv[1] == "serve":
    serve(sys.argv[2], sys.argv[3])
sys.exit(call(sys.argv[1], sys.argv[2:]))
