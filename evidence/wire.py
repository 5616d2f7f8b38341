"""Bytes that this process sends over TCP, read from its own connections: what a collective of gloo costs on the wire.

Linux keeps the count: `struct tcp_info` of <linux/tcp.h>, field `tcpi_bytes_acked`. Bytes count when the other side has
acknowledged them, so a measurement waits a moment before it reads.
"""

import contextlib
import os
import socket
import struct
import time

import torch.distributed as dist

TCP_INFO, BYTES_ACKED = 11, 120  # the option of getsockopt, and the offset of the field
SETTLE = 0.3  # seconds until the last acknowledgments have arrived


def acknowledged():
    """Bytes that the open TCP connections of this process have sent so far, as acknowledged by the other side."""
    return sum(map(_acknowledged, os.listdir("/proc/self/fd")))


def sent_during(work, *arguments):
    """Bytes that this process sends while `work(*arguments)` runs; with a process group, all ranks begin together."""
    if dist.is_initialized():
        dist.barrier()
    time.sleep(SETTLE)
    before = acknowledged()
    work(*arguments)
    time.sleep(SETTLE)
    return acknowledged() - before


def _acknowledged(descriptor):
    with contextlib.suppress(OSError):  # closed since it was listed
        if os.readlink(f"/proc/self/fd/{descriptor}").startswith("socket:"):
            with socket.socket(fileno=os.dup(int(descriptor))) as connection:
                if connection.family in (socket.AF_INET, socket.AF_INET6) and connection.type == socket.SOCK_STREAM:
                    info = connection.getsockopt(socket.IPPROTO_TCP, TCP_INFO, BYTES_ACKED + 8)
                    return struct.unpack_from("Q", info, BYTES_ACKED)[0]
    return 0
