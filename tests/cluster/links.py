"""Fault injection for networks: TCP proxies between tasks, and network namespaces."""

import asyncio
import contextlib
import ctypes
import multiprocessing
import os
import socket
import subprocess
import time

CHUNK = 1 << 16
# Poll interval of a blocked link.
POLL_SECONDS = 0.01
CLIENTS = "clients"


class Links:
    """A TCP proxy for every pair of source and destination.

    A cut blocks bytes without closing connections: existing ones stay open, new ones are accepted and blocked."""

    def __init__(self, addresses):
        self.listeners, self.ports = [], {}
        for source in [*addresses, CLIENTS]:
            for destination, address in addresses.items():
                if source == destination:
                    continue
                listener = socket.create_server(("127.0.0.1", 0))
                self.ports[source, destination] = listener.getsockname()[1]
                self.listeners.append((source, destination, address, listener))
        self.control, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.get_context("fork").Process(
            target=_serve, args=(self.listeners, theirs))
        self.process.start()
        for *_, listener in self.listeners:
            listener.close()
        theirs.close()

    def address(self, source, destination):
        return f"127.0.0.1:{self.ports[source, destination]}"

    def cut(self, task, to=True, back=True):
        """Blocks bytes to a task, bytes from it, or both."""
        self.control.send(("cut", task, to, back))

    def cut_between(self, one, other):
        """Blocks bytes between two tasks; both still reach all other tasks."""
        self.control.send(("between", one, other))

    def delay(self, task, seconds):
        """Delays every request to or from a task; responses are not delayed."""
        self.control.send(("delay", task, seconds))

    def heal(self):
        self.control.send(("heal",))

    def stop(self):
        self.process.kill()
        self.process.join()


class _State:
    def __init__(self):
        self.to, self.back, self.pairs, self.slow = set(), set(), set(), {}

    def command(self, words):
        kind, *rest = words
        if kind == "cut":
            task, to, back = rest
            self.to |= {task} if to else set()
            self.back |= {task} if back else set()
        elif kind == "between":
            self.pairs.add(frozenset(rest))
        elif kind == "delay":
            self.slow[rest[0]] = rest[1]
        else:
            self.__init__()

    def is_blocked(self, sender, receiver):
        is_cut = frozenset((sender, receiver)) in self.pairs
        return is_cut or receiver in self.to or sender in self.back

    def lag(self, *ends):
        return max((self.slow.get(end, 0) for end in ends), default=0)


def _serve(listeners, control):
    asyncio.run(_run(listeners, control))


async def _run(listeners, control):
    state, loop = _State(), asyncio.get_running_loop()
    ended = loop.create_future()

    def on_command():
        try:
            state.command(control.recv())
        except EOFError:
            # The parent process has exited.
            if not ended.done():
                ended.set_result(None)
    loop.add_reader(control.fileno(), on_command)
    for source, destination, address, listener in listeners:
        host, port = address.rsplit(":", 1)

        def on_connection(reader, writer, ends=(source, destination), at=(host, int(port))):
            return _link(state, ends, at, reader, writer)
        await asyncio.start_server(on_connection, sock=listener)
    await ended


async def _link(state, ends, at, reader, writer):
    source, destination = ends
    try:
        there, back = await asyncio.open_connection(*at)
    except OSError:
        writer.close()
        return
    requests = _pump(reader, back, lambda: state.is_blocked(source, destination),
                     lambda: state.lag(source, destination))
    answers = _pump(there, writer, lambda: state.is_blocked(destination, source), lambda: 0)
    await asyncio.gather(requests, answers)


async def _pump(reader, writer, is_blocked, lag):
    """Forwards bytes in order, each after its delay and while the link is not blocked."""
    queue = asyncio.Queue(256)

    async def read_all():
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK):
                await queue.put((time.monotonic() + lag(), data))
        await queue.put((0, None))

    async def write_all():
        while True:
            due, data = await queue.get()
            while is_blocked() or time.monotonic() < due:
                await asyncio.sleep(POLL_SECONDS)
            if data is None:
                break
            with contextlib.suppress(OSError):
                writer.write(data)
                await writer.drain()
        with contextlib.suppress(OSError):
            writer.close()
    await asyncio.gather(read_all(), write_all())


class Namespaces:
    """A network namespace for each task, connected by a bridge. Detaching a task drops its packets, SYN packets
    included, without notifying either side."""

    def __init__(self, tasks):
        self.holders, self.addresses, self.interfaces = {}, {}, {}
        try:
            self.switch = self._namespace("switch")
            self._run_in(self.switch, "link add name switch type bridge")
            self._run_in(self.switch, "link set switch up")
            for i, task in enumerate([CLIENTS, *tasks]):
                holder = self._namespace(task)
                interface, address = f"veth{i}", f"10.77.0.{i + 1}"
                self._run_in(holder, f"link add name wire type veth peer name {interface} netns {self.switch.pid}")
                self._run_in(holder, f"addr add {address}/24 dev wire")
                self._run_in(holder, "link set lo up")
                self._run_in(holder, "link set wire up")
                self._run_in(self.switch, f"link set {interface} master switch")
                self._run_in(self.switch, f"link set {interface} up")
                self.addresses[task], self.interfaces[task] = address, interface
        except BaseException:
            self.stop()
            raise

    def _namespace(self, name):
        """A sleeping process in a namespace of its own, which keeps the namespace alive."""
        holder = subprocess.Popen(["unshare", "--net", "--", "sh", "-c", "echo; exec sleep 1000"],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.holders[name] = holder
        if not holder.stdout.readline():
            raise OSError(holder.stderr.read().decode().strip())
        return holder

    def _run_in(self, holder, command):
        subprocess.run([*self._enter(holder), "ip", *command.split()], check=True,
                       capture_output=True)

    @staticmethod
    def _enter(holder):
        return ["nsenter", f"--net=/proc/{holder.pid}/ns/net", "--"]

    def prefix(self, task):
        """The command prefix that runs a command in a task's namespace."""
        return self._enter(self.holders[task])

    def join(self):
        """Moves this process and its later children to the clients' namespace."""
        descriptor = os.open(f"/proc/{self.holders[CLIENTS].pid}/ns/net", os.O_RDONLY)
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.setns(descriptor, 0) != 0:
            raise OSError(ctypes.get_errno(), "setns")
        os.close(descriptor)

    def cut(self, task):
        self._run_in(self.switch, f"link set {self.interfaces[task]} nomaster")

    def heal(self, task):
        self._run_in(self.switch, f"link set {self.interfaces[task]} master switch")

    def stop(self):
        for holder in self.holders.values():
            holder.kill()
            holder.wait()


def namespaces_unavailable():
    """Why network namespaces are unavailable here; None if they are available."""
    try:
        Namespaces([]).stop()
        return None
    except (OSError, subprocess.CalledProcessError) as error:
        detail = getattr(error, "stderr", b"") or b""
        return f"network namespaces cannot be made here: {error} {detail.decode().strip()}".strip()
