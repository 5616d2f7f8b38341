"""evidence/wire.py: the bytes that this process sends over TCP."""

import contextlib
import socket
import sys
import threading

import pytest

from evidence.wire import acknowledged, sent_during

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="struct tcp_info is Linux's")


@contextlib.contextmanager
def connection():
    """Two ends of a TCP connection through this machine."""
    with socket.create_server(("localhost", 0)) as server, socket.create_connection(server.getsockname()) as near:
        far, _ = server.accept()
        with far:
            yield near, far


def send(near, far, size):
    def drain():
        left = size
        while left:
            left -= len(far.recv(min(left, 65536)))

    reader = threading.Thread(target=drain)
    reader.start()
    near.sendall(bytes(size))
    reader.join()


@pytest.mark.parametrize("size", [1, 4096, 3_000_000])
def test_every_byte_that_a_connection_sends_is_counted_once(size):
    with connection() as (near, far):
        assert sent_during(send, near, far, size) == size


def test_a_connection_that_sends_nothing_adds_nothing():
    with connection():
        assert sent_during(lambda: None) == 0


def test_other_sockets_of_the_process_are_left_alone():
    with connection() as (near, far), contextlib.ExitStack() as stack:
        for other in socket.socketpair():
            stack.enter_context(other)
        before = acknowledged()
        stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        assert acknowledged() == before
        send(near, far, 10)  # the connection is still open and usable
