"""Files as TensorFlow writes them, without TensorFlow: event files and graphs."""

import os
import struct
import time
import zlib

TABLE = []
for i in range(256):
    for _ in range(8):
        i = (i >> 1) ^ (0x82F63B78 if i & 1 else 0)
    TABLE.append(i)


def masked_crc(data):
    """The checksum of records: CRC-32C, rotated and shifted."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 255] ^ (crc >> 8)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(n):
    out = bytearray()
    n &= (1 << 64) - 1
    while n > 127:
        out.append(n & 127 | 128)
        n >>= 7
    out.append(n)
    return bytes(out)


def field(number, value):
    """A field of a message: a whole number, a double, or bytes, text and messages."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 1) + struct.pack("<d", value)
    if isinstance(value, str):
        value = value.encode()
    return varint(number << 3 | 2) + varint(len(value)) + value


def single(number, value):
    """A float of 32 bits."""
    return varint(number << 3 | 5) + struct.pack("<f", value)


class EventFile:
    """An event file that grows."""

    def __init__(self, folder):
        os.makedirs(folder, exist_ok=True)
        self.file = open(os.path.join(folder, f"events.out.tfevents.{int(time.time())}.test"), "wb")
        self._event(0, field(3, "brain.Event:2"))

    def close(self):
        self.file.close()

    def _event(self, step, what, wall_time=None):
        event = field(1, time.time() if wall_time is None else float(wall_time)) + field(2, step) + what
        length = struct.pack("<Q", len(event))
        self.file.write(
            length + struct.pack("<I", masked_crc(length)) + event + struct.pack("<I", masked_crc(event))
        )
        self.file.flush()

    def _summary(self, step, tag, value):
        self._event(step, field(5, field(1, field(1, tag) + value)))

    def scalar(self, step, tag, value):
        self._summary(step, tag, single(2, value))

    def histogram(self, step, tag, limits, counts):
        doubles = [struct.pack(f"<{len(x)}d", *x) for x in (limits, counts)]
        histogram = (
            field(1, float(limits[0]))
            + field(2, float(limits[-1]))
            + field(3, float(sum(counts)))
            + field(6, doubles[0])
            + field(7, doubles[1])
        )
        self._summary(step, tag, field(5, histogram))

    def image(self, step, tag, width, height, gray):
        """`gray(x, y)` is 0..255."""
        self._summary(
            step,
            tag,
            field(4, field(1, height) + field(2, width) + field(3, 1) + field(4, png(width, height, gray))),
        )

    def text(self, step, tag, text):
        tensor = field(1, 7) + field(2, b"") + field(8, text)
        self._summary(step, tag, field(8, tensor) + field(9, field(1, field(1, "text"))))

    def graph(self, graph):
        self._event(0, field(4, graph))

    def run_metadata(self, step, tag, metadata):
        self._event(step, field(8, field(1, tag) + field(2, metadata)))


def png(width, height, gray):
    rows = b"".join(b"\0" + bytes(gray(x, y) & 255 for x in range(width)) for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(png_chunk(kind, data) for kind, data in chunks)


def png_chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def graph_def(nodes):
    """A GraphDef of nodes `(name, op, inputs, device)`."""
    return b"".join(
        field(1, field(1, name) + field(2, op) + b"".join(field(3, i) for i in inputs) + field(4, device))
        for name, op, inputs, device in nodes
    )


def large_graph(nodes, edges, layers=8):
    """Nodes in scopes of several depths, on several devices, with about so many edges."""
    made = []
    per_node = edges / nodes
    for i in range(nodes):
        tower, block = i * layers // nodes, i // 300
        name = f"tower_{tower}/block_{block}/unit_{i // 30}/op_{i}"
        wanted = int((i + 1) * per_node) - int(i * per_node)
        # Near ones mostly, as in networks, and a few from far above.
        back = [1, 2, 7, 31, 450]
        inputs = [made[i - b][0] for b in back[: wanted + 1] if i >= b][:wanted]
        made.append((name, OPS[i % len(OPS)], inputs, f"/job:worker/replica:0/task:{tower % 4}/device:CPU:0"))
    return graph_def(made)


OPS = ["MatMul", "AddV2", "Relu", "Mul", "Sub", "Reshape", "Softmax", "Identity"]


def run_metadata(devices):
    """Times of nodes by device: `{device: [(name, label, thread, start_us, end_us)…]}`."""
    stats = b""
    for device, nodes in devices.items():
        one = field(1, device)
        for name, label, thread, start, end in nodes:
            one += field(
                2,
                field(1, name)
                + field(2, start)
                + field(3, 0)
                + field(4, end - start)
                + field(5, end - start)
                + field(8, label)
                + field(9, start)
                + field(10, thread),
            )
        stats += field(1, one)
    return field(1, stats)


def step_of(devices, nodes_each, begin=1_000_000):
    """A chain of nodes on every device; every tenth waits for a tensor of the device before."""
    names = [f"/job:worker/replica:0/task:{d}/device:CPU:0" for d in range(devices)]
    rows = {name: [] for name in names}
    at = [begin + 5 * d for d in range(devices)]
    for i in range(nodes_each):
        ends = list(at)
        for d in range(devices):
            node, before = f"d{d}/block_{i // 50}/op_{i}", f"d{d}/block_{(i - 1) // 50}/op_{i - 1}"
            start = at[d] + (i + d) % 3
            if i % 10 == 9 and devices > 1:
                sender, edge = (d - 1) % devices, f"{d}_{i}"
                sent = ends[sender] + 2
                source = f"d{sender}/block_{(i - 1) // 50}/op_{i - 1}"
                label = f"t_S{edge} = _Send({source}, edge_{edge} @{names[d]})"
                rows[names[sender]].append((f"t_S{edge}", label, 1, sent - 2, sent))
                start = max(start, sent + 9)
                label = f"t_R{edge} = _Recv(edge_{edge} @{names[sender]})"
                rows[names[d]].append((f"t_R{edge}", label, 2, ends[d], start))
                before = f"{before}, t_R{edge}"
            at[d] = start + 3 + (i * 7 + d * 3) % 11
            rows[names[d]].append((node, f"{node} = MatMul({before if i else ''})", i % 2, start, at[d]))
    return run_metadata(rows)
