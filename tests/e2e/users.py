"""Clients that are another user's than the test, which only root may have."""

import contextlib
import os
import socket

OTHER_USER = 65533
NETLINK_SOCK_DIAG = 4


def knows_users():
    """Returns True if the kernel can name the user at the other end of a TCP connection."""
    try:
        socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_SOCK_DIAG).close()
        return True
    except OSError:
        return False


def why_no_other_user():
    """Empty where there can be one."""
    if os.geteuid() != 0:
        return "only root may connect as another user"
    return "" if knows_users() else "this kernel does not tell whose a TCP socket is"


@contextlib.contextmanager
def acting_as(user):
    """All threads of this process, gRPC's among them, are that user's."""
    own = os.geteuid()
    os.seteuid(user)
    try:
        yield
    finally:
        os.seteuid(own)
