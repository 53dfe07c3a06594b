"""Forwards TCP connections, and breaks them at one end on request.

usage: breaking_proxy.py PORT HOST:PORT

Reads lines "client reset", "client close", "server reset" and "server close" from stdin: every connection ends at that side alone,
by RST or FIN. Its other side stays open and silent. Prints how many connections there were.
"""
import select
import socket
import struct
import sys


def end(connection, how):
    if how == "reset":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def main():
    port, target = int(sys.argv[1]), sys.argv[2].split(":")
    listener = socket.create_server(("", port))
    peers, silent = {}, []  # both ways; the ends that stay open
    print("ready", flush=True)
    while True:
        readable, _, _ = select.select([listener, sys.stdin, *peers], [], [])
        for ready in readable:
            if ready is listener:
                client = listener.accept()[0]
                try:
                    server = socket.create_connection((target[0], int(target[1])))
                except OSError:
                    client.close()
                    continue
                for connection in (client, server):
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                peers[client], peers[server] = (server, "client"), (client, "server")
            elif ready is sys.stdin:
                line = sys.stdin.readline()
                if not line:
                    return
                side, how = line.split()
                ended = [connection for connection, (_, name) in peers.items() if name == side]
                for connection in ended:
                    other, _ = peers.pop(connection)
                    del peers[other]
                    silent.append(other)
                    end(connection, how)
                print(len(ended), flush=True)
            elif ready in peers:
                other, _ = peers[ready]
                try:
                    data = ready.recv(65536)
                    if data:
                        other.sendall(data)
                        continue
                except OSError:
                    pass
                for connection in (ready, other):
                    del peers[connection]
                    connection.close()


if __name__ == "__main__":
    main()
