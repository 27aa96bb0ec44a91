"""Measures a connection between two hosts of a test.
flow.py receive ADDRESS PORT    says "listening", takes one connection and what comes over it
flow.py send ADDRESS PORT S     sends for S seconds, says how many Mbit/s arrived
flow.py reach ADDRESS PORT S    can a connection be made within S seconds? the exit code says"""
import socket
import sys
import time

CHUNK = 1 << 18


def receive(address, port):
    with socket.create_server((address, port)) as server:
        server.settimeout(60)
        print("listening", flush=True)
        peer, _ = server.accept()
        peer.settimeout(60)
        while peer.recv(CHUNK):
            pass
        peer.close()


def send(address, port, seconds):
    block, total = bytes(CHUNK), 0
    start = time.monotonic()
    with socket.create_connection((address, port), timeout=60) as peer:
        while time.monotonic() < start + seconds:
            peer.sendall(block)
            total += len(block)
        peer.shutdown(socket.SHUT_WR)
        peer.recv(1)  # the receiver closes when it has it all
    print(f"{total * 8e-6 / (time.monotonic() - start):.0f}")


def reach(address, port, seconds):
    try:
        socket.create_connection((address, port), timeout=seconds).close()
    except OSError as error:
        sys.exit(f"{address}: {error}")


what, address, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
if what == "receive":
    receive(address, port)
elif what == "send":
    send(address, port, float(sys.argv[4]))
else:
    reach(address, port, float(sys.argv[4]))
