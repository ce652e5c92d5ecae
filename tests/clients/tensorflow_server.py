"""TensorFlow's own server, started like ours: prints its address, exits on SIGTERM."""

import os
import signal

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
import tensorflow as tf

server = tf.compat.v1.train.Server.create_local_server()
print("listening on", server.target.removeprefix("grpc://"), flush=True)
signal.sigwait([signal.SIGTERM, signal.SIGINT])
os._exit(0)
