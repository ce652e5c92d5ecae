"""Limits: connections, sizes of requests, time to read a response."""

import re
import socket
import tempfile
import time

import numpy as np
from grpc import StatusCode
from tensorflow_serving.apis import predict_pb2

import tensorflow as tf
from support import eventually, refused

X = np.array([[2.0]], np.float32)
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, SETTINGS, GOAWAY = 0, 1, 4, 7


def connect(address, receive_buffer=None):
    host, port = address.rsplit(":", 1)
    s = socket.socket()
    if receive_buffer:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    s.settimeout(30)
    s.connect((host, int(port)))
    return s


def frame(kind, flags, stream, payload):
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def is_closed(s):
    """Whether the server has closed the connection; data that it sent before is ignored."""
    s.setblocking(False)
    try:
        while True:
            if not s.recv(1 << 16):
                return True
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def half_plus_two(world):
    return f"--model=half_plus_two={world.root}/half_plus_two"


def works(server):
    assert server.predict("half_plus_two", {"x": X})["y"][0, 0] == 3.0
    status, _, answer = server.post("/v1/models/half_plus_two:predict", {"instances": [[2.0]]})
    assert (status, answer) == (200, {"predictions": [[3.0]]}), answer


def case_sizes_of_requests(world):
    with world.start(half_plus_two(world), "--max_message_mb=1", "--max_body_mb=1") as server:
        works(server)
        large = np.zeros((300_000, 1), np.float32)
        # Slightly too large: the client gets an error.
        refused(StatusCode.RESOURCE_EXHAUSTED, "at most 1048576",
                lambda: server.predict("half_plus_two", {"x": large}))
        body = b'{"instances": [' + b"[0.0]," * 200_000 + b"[0.0]]}"
        status, _, answer = server.post("/v1/models/half_plus_two:predict", body)
        assert status == 429 and "at most 1048576" in answer["error"], answer
        works(server)


def case_connections_that_idle_are_closed(world):
    with world.start(half_plus_two(world), "--idle_seconds=1") as server:
        works(server)
        silent = [connect(a) for a in (server.grpc_address, server.rest_address) for _ in range(20)]
        greeted = connect(server.grpc_address)
        greeted.sendall(PREFACE + frame(SETTINGS, 0, 0, b""))
        half = connect(server.rest_address)
        half.sendall(b"GET /heal")
        for s in [*silent, greeted, half]:
            eventually(lambda: is_closed(s), seconds=20)
            s.close()
        # gRPC's own client reconnects, and a busy connection stays open.
        works(server)
        watch = server.channel.unary_stream("/grpc.health.v1.Health/Watch")(b"")
        assert next(watch) == b"\x08\x01"
        time.sleep(3)
        assert watch.is_active()
        watch.cancel()


def case_idle_connections_are_closed_sooner_under_load(world):
    with world.start(half_plus_two(world), "--max_connections=8", wait=False) as server:
        idle = [connect(a) for a in (server.grpc_address, server.rest_address) for _ in range(12)]
        begin = time.monotonic()
        eventually(lambda: server.get("/readyz")[0] == 200)
        works(server)
        # With free slots they would have stayed open for minutes.
        assert time.monotonic() - begin < 100
        for s in idle:
            s.close()


def header(name, value):
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


def large_predict(rows):
    request = predict_pb2.PredictRequest()
    request.model_spec.name = "half_plus_two"
    request.inputs["x"].CopyFrom(tf.make_tensor_proto(np.zeros((rows, 1), np.float32)))
    message = request.SerializeToString()
    return b"\0" + len(message).to_bytes(4, "big") + message


def case_unread_responses(world):
    """A client that does not read, or gives no flow-control window, does not keep a response forever."""
    with world.start(half_plus_two(world), "--answer_seconds=1") as server:
        reader = connect(server.rest_address, receive_buffer=1 << 16)
        # A response larger than the socket buffers.
        body = b'{"instances": [' + b"[1.25]," * 900_000 + b"[1.25]]}"
        head = f"POST /v1/models/half_plus_two:predict HTTP/1.0\r\nContent-Length: {len(body)}\r\n\r\n"
        reader.sendall(head.encode() + body)
        host, port = server.grpc_address.rsplit(":", 1)
        without_window = connect(server.grpc_address)
        # Its window allows no byte of a body.
        settings = (4).to_bytes(2, "big") + (0).to_bytes(4, "big")
        names = [(b":method", b"POST"), (b":scheme", b"http"), (b":authority", host.encode()),
                 (b":path", b"/tensorflow.serving.PredictionService/Predict"),
                 (b"content-type", b"application/grpc"), (b"te", b"trailers")]
        block = b"".join(header(*name) for name in names)
        data = large_predict(3000)
        without_window.sendall(
            PREFACE + frame(SETTINGS, 0, 0, settings) + frame(HEADERS, 4, 1, block)
            + frame(DATA, 1, 1, data))
        begin = time.monotonic()
        eventually(lambda: is_closed(without_window), seconds=30)
        assert time.monotonic() - begin >= 0.8
        # The other client has read the beginning; when it reads on later the end is missing.
        reader.settimeout(120)
        begin = reader.recv(200)
        length = int(re.search(rb"content-length: (\d+)", begin)[1])
        time.sleep(4)
        works(server)
        got = len(begin)
        try:
            while chunk := reader.recv(1 << 20):
                got += len(chunk)
        except ConnectionError:
            pass
        # The body was cut off, either by a reset or by an early end.
        assert got < length, (got, length)
        reader.close()
        without_window.close()


def case_flags_without_effect_are_named(world):
    with tempfile.NamedTemporaryFile("w", suffix=".config") as file:
        file.write(f"""model_config_list {{ config {{
            name: "half_plus_two" base_path: "{world.root}/half_plus_two"
            logging_config {{ sampling_config {{ sampling_rate: 0.1 }} }} }} }}""")
        file.flush()
        with world.start("--model_config_file", file.name) as server:
            works(server)
            said = server.stop()
            assert "model 'half_plus_two': logging_config has no effect" in said, said
