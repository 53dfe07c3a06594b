"""The option lines that are typed under torchrun and under ddprun, and on which points they may differ, with the reason.

A point is named as compare.py prints it. A line fails where it differs in a point that is not listed here, and where it
does not differ in one that is.
"""

import shlex
from dataclasses import dataclass, field

# Why ddprun does something else. Each reason is a decision of the project; there is no other kind of difference.
USAGE = "a wrong command line is one sentence and exit code 2; torchrun ends with 1 and a traceback"
CODE = "the exit code is that of the worker that failed first, or 128 + signal; torchrun's is 1"
RUNS = "torchrun refuses or fails here without need"
STRICT = "torchrun passes over what is wrong in the line; ddprun says so, and starts nothing"
PREFIX = "only whole option names are accepted: a new option must not break old lines"
PROGRAMS = "a program is executed as it is, unless its name ends in .py or --run-path is given"
NOT_FOUND = "what cannot be executed is found before any worker runs: 127, or 126"
ARGUMENTS = "arguments of the script are left as they are"
RUN_PATH = "a script of --run-path runs as python3 -u script"
ID = "an id that was given stays, where torchrun makes a random one"
BARRIER = "the job ends on all nodes at once; a torchrun agent waits for the others for up to 300 s"
COUNT = "the restart count is the same on all nodes; a torchrun agent counts its own"
FILES = "with --log-dir every stream of every worker is kept in files"
ERROR_FILE = "the launcher's error file is written after each failure, also where the worker has written none"
MEMORY = "a worker's error file is memory of the agent, which copies it into the log folder: that file system may hang"
DEV_NULL = "workers have an error file also where there is no log folder"


@dataclass(frozen=True)
class Line:
    words: list
    environment: dict = field(default_factory=dict)
    differs: dict = field(default_factory=dict)
    nodes: int = 1
    workers: int = 2  # that have to wait before the signal is sent
    signal: str = ""
    depends_on_machine: bool = False  # not compared with what torchrun did on another machine

    @property
    def name(self):
        variables = [f"{name}={shlex.quote(value)}" for name, value in self.environment.items()]
        what = [*variables, *map(shlex.quote, self.words)]
        return " ".join(what) + (f"  ({self.nodes} nodes)" if self.nodes > 1 else "") + (
            f"  ({self.signal})" if self.signal else ""
        )


def line(words, differs=None, **more):
    """A line as it is typed: variables, then words. `probe.py` is added where the words name no program."""
    words = shlex.split(words)
    environment = {}
    while words and words[0].partition("=")[0].replace("_", "").isupper() and "=" in words[0]:
        name, _, value = words.pop(0).partition("=")
        environment[name] = value
    if not any("probe" in word for word in words):
        words.append("probe.py")
    differs = dict(differs or {})
    if "{folder}/logs" in " ".join([*words, *environment.values()]):
        differs["TORCHELASTIC_ERROR_FILE in the log folder, a temporary file"] = MEMORY
    return Line(words, environment, differs, **more)


def started_here(reason, code=1):
    """torchrun ends with `code` before its worker runs, ddprun runs it."""
    return {f"exit {code}, 0": reason, "workers 0, 1": reason, "stdout": reason, "stderr": reason}


def refused_here(reason, code=2):
    """torchrun runs its worker, ddprun ends with `code` before."""
    return {f"exit 0, {code}": reason, "workers 1, 0": reason, "stdout": reason, "stderr": reason}


REFUSED = {"exit 1, 2": USAGE}

SIZE = [
    line(""),
    line("--nproc-per-node 2"),
    line("--nproc_per_node 2"),
    line("--nproc-per-node=2"),
    line("--nproc_per_node=3"),
    line("--nproc-per-node cpu", depends_on_machine=True),
    line("--nproc-per-node auto", depends_on_machine=True),
    line("--nproc-per-node gpu", REFUSED, depends_on_machine=True),
    line("--nproc-per-node xpu", REFUSED, depends_on_machine=True),
    line("--nproc-per-node 0", REFUSED),
    line("--nproc-per-node -1", REFUSED),
    line("--nproc-per-node abc", REFUSED),
    line("--nproc-per-node ''", REFUSED),
    line("--nnodes 1 --nproc-per-node 2"),
    line("--nnodes=1:1 --nproc-per-node 2"),
    line("--nnodes 0", REFUSED),
    line("--nnodes 2:1", REFUSED),
    line("--nnodes 2:20:30", REFUSED),
    line("--nnodes abc", REFUSED),
    line("--nnodes 0:1", REFUSED),
    line("--nnodes=1:2 --rdzv-backend c10d --rdzv-endpoint localhost:{port} --rdzv-id j --rdzv-conf last_call_timeout=1"),
    line("PET_NNODES=1 PET_NPROC_PER_NODE=2 probe.py"),
    line("PET_NPROC_PER_NODE=3 --nproc-per-node 2"),
    line("PET_NPROC_PER_NODE='' probe.py", REFUSED),
    line("PET_NPROC_PER_NODE=abc probe.py", REFUSED),
    line("PET_NNODES=2:1 probe.py", REFUSED),
]

RESTARTS = [
    line("--nproc-per-node 2 --max-restarts 0"),
    line("--nproc-per-node 2 --max-restarts 1 probe.py '*:twice'"),
    line("--nproc-per-node 2 --max_restarts=2 probe.py '1:twice'"),
    line("--nproc-per-node 2 --max-restarts=2 probe.py '0:exit=5'", {"exit 1, 5": CODE}),
    line("PET_MAX_RESTARTS=1 --nproc-per-node 2 probe.py '1:twice'"),
    line("--max-restarts -1", REFUSED),
    line("--max-restarts abc"),
    line("--max-restarts 1.5"),
]

RENDEZVOUS = [
    line("--standalone --nproc-per-node 2"),
    line("--standalone --nnodes 1 --nproc-per-node 2"),
    line("--standalone --nnodes 1:2 --nproc-per-node 2"),
    line("--standalone --rdzv-id k", {"TORCHELASTIC_RUN_ID made by the launcher, k": ID}),
    line("--standalone --rdzv-backend c10d --rdzv-endpoint localhost:{port}"),
    line("PET_STANDALONE=1 probe.py"),
    line("PET_STANDALONE=0 probe.py"),
    line("PET_STANDALONE=true probe.py", started_here(RUNS)),
    line("--rdzv-backend static"),
    line("--rdzv_backend=static --rdzv_endpoint=localhost:{port}"),
    line("--rdzv-backend static --rdzv-endpoint 127.0.0.1:{port} --rdzv-id j"),
    line("--rdzv-backend static --rdzv-endpoint localhost", started_here(RUNS)),
    line("--rdzv-backend c10d --rdzv-endpoint localhost:{port} --nproc-per-node 2"),
    line("--rdzv_backend=c10d --rdzv_endpoint=127.0.0.1:{port} --rdzv_id=456"),
    line("--rdzv-backend c10d --rdzv-endpoint localhost:0 --rdzv-id j"),
    line("--rdzv-backend c10d --rdzv-endpoint [::1]:{port} --rdzv-id j", depends_on_machine=True),  # IPv6
    line("--rdzv-backend c10d --rdzv-endpoint localhost:99999", REFUSED),
    line("--rdzv-backend c10d --rdzv-endpoint localhost:abc", REFUSED),
    line("--rdzv-backend c10d --rdzv-endpoint a:b:c", REFUSED),
    line("--rdzv-backend bogus", REFUSED),
    line("PET_RDZV_BACKEND=c10d PET_RDZV_ENDPOINT=localhost:{port} PET_RDZV_ID=j probe.py"),
    line("--rdzv-id j", {"TORCHELASTIC_RUN_ID made by the launcher, j": ID}),
    line("--rdzv-id 'a b' --rdzv-backend c10d --rdzv-endpoint localhost:{port}"),
    line("--rdzv-id a/b --rdzv-backend c10d --rdzv-endpoint localhost:{port}", started_here(RUNS)),
    line("--rdzv-id " + "x" * 220 + " --rdzv-backend c10d --rdzv-endpoint localhost:{port}"),
    line("--rdzv-backend c10d --rdzv-endpoint localhost:{port} --rdzv-id j --rdzv-conf join_timeout=60"),
    line("--rdzv-backend c10d --rdzv-endpoint localhost:{port} --rdzv-id j --rdzv-conf 'join_timeout=60, read_timeout=30'"),
    line("--rdzv-backend c10d --rdzv-endpoint localhost:{port} --rdzv-id j --rdzv-conf is_host=1"),
    line("--rdzv-backend c10d --rdzv-endpoint localhost:{port} --rdzv-id j --rdzv-conf is_host=true,store_type=tcp"),
    line("--rdzv-backend c10d --rdzv-endpoint localhost:{port} --rdzv-id j --rdzv-conf timeout=60"),
    line("--rdzv-backend c10d --rdzv-endpoint localhost:{port} --rdzv-id j --rdzv-conf close_timeout=5,heartbeat_timeout=5"),
    line("--rdzv-backend c10d --rdzv-endpoint localhost:{port} --rdzv-id j --rdzv-conf keep_alive_interval=5,keep_alive_max_attempt=3"),
    line("--rdzv-backend static --rdzv-endpoint localhost:{port} --rdzv-conf rank=0"),
    line("--rdzv-conf foo=1 --rdzv-backend c10d --rdzv-endpoint localhost:{port} --rdzv-id j", refused_here(STRICT)),
    line("--rdzv-conf join_timeout --rdzv-backend c10d --rdzv-endpoint localhost:{port}", REFUSED),
    line("--rdzv-conf join_timeout=-1 --rdzv-backend c10d --rdzv-endpoint localhost:{port}", REFUSED),
    line("--rdzv-conf join_timeout=abc --rdzv-backend c10d --rdzv-endpoint localhost:{port}", REFUSED),
    line("--node-rank 0"),
    line("--node_rank=0 --master_addr=localhost --master_port={port} --nproc-per-node 2"),
    line("--nnodes 1 --node-rank 0 --master-addr 127.0.0.1 --master-port {port}"),
    line("--master-port {port}"),
    line("--master-addr localhost"),
    line("PET_MASTER_ADDR=localhost PET_MASTER_PORT={port} PET_NODE_RANK=0 probe.py"),
    line("--node-rank abc"),
    line("--node-rank -1", refused_here(STRICT)),
    line("--master-port abc"),
    line("--master-port 99999", REFUSED),
    line("--local-addr 127.0.0.1 --rdzv-backend c10d --rdzv-endpoint localhost:{port} --rdzv-id j"),
    line("--local_addr=localhost --rdzv-backend c10d --rdzv-endpoint localhost:{port} --rdzv-id j"),
    line("--nnodes 2 --nproc-per-node 2 --node-rank {node} --master-addr localhost --master-port {port}", nodes=2),
    line("--nnodes=2 --nproc_per_node=1 --node_rank={node} --master_addr=127.0.0.1 --master_port={port} probe.py '1:exit=3'",
         {"exit still runs, 3": BARRIER, "exit 1, 3": CODE}, nodes=2),
    line("--nnodes 2 --rdzv-backend static --rdzv-endpoint localhost:{port} --node-rank {node}", nodes=2),
    line("--nnodes 2 --nproc-per-node 2 --rdzv-backend c10d --rdzv-endpoint localhost:{port} --rdzv-id j", nodes=2),
    line("--nnodes 2 --rdzv-backend c10d --rdzv-endpoint localhost:{port} --rdzv-id j --role trainer", nodes=2),
    line("--nnodes 2:2 --max-restarts 1 --rdzv-backend c10d --rdzv-endpoint localhost:{port} --rdzv-id j probe.py '0:exit=7'",
         {"exit still runs, 7": BARRIER, "TORCHELASTIC_RESTART_COUNT 0, 1": COUNT}, nodes=2),
]

PROGRAM = [
    line("probe.py a b c"),
    line("probe.py -x --y=1 -- z"),
    line("probe.py -- z", {"argv": ARGUMENTS}),
    line("-- probe.py z"),
    line("probe.py --nproc-per-node 8"),
    line("probe.py --r=16", started_here(PREFIX, code=2)),
    line("probe.py -h"),
    line("probe.py '' 'a b' '*' '\"'"),
    line("probe.py '$HOME' '${RANK}'"),
    line("--nproc-per-node 2 probe.py '${local_rank}' 'x$local_rank'"),
    line("probe.py 'a$$b'", {"argv": ARGUMENTS}),
    line("./probe.py"),
    line("{folder}/probe.py"),
    line("-m probe x"),
    line("--module probe x"),
    line("PET_MODULE=1 probe x"),
    line("-m missing_probe"),
    line("--no-python ./probe.sh x"),
    line("--no_python ./probe.sh x"),
    line("--no-python {python} -u probe.py x"),
    line("PET_NO_PYTHON=1 ./probe.sh x"),
    line("./probe.sh x", started_here(PROGRAMS)),
    line("probe x", refused_here(PROGRAMS, 127)),
    line("./probe x", refused_here(PROGRAMS, 126)),
    line("--run-path probe x", {"interpreter arguments": RUN_PATH}),
    line("--run-path probe.py x", {"interpreter arguments": RUN_PATH}),
    line("PET_RUN_PATH=1 probe x", {"interpreter arguments": RUN_PATH}),
    line("-m --no-python probe x", REFUSED),
    line("missing_probe.py", {"exit 1, 127": NOT_FOUND}),
    line("--no-python ./missing_probe", {"exit 1, 127": NOT_FOUND}),
    line("PYTHON_EXEC=/usr/bin/python3 probe.py"),
    line("PYTHON_EXEC=/missing/python3 probe.py", {"exit 1, 127": NOT_FOUND}),
]

OUTPUT = [
    line("--nproc-per-node 2 --log-dir {folder}/logs", {"more files": FILES}),
    line("--nproc-per-node 2 --log_dir={folder}/logs -r 0", {"more files": FILES}),
    line("--nproc-per-node 2 --log-dir {folder}/logs -r 1", {"more files": FILES}),
    line("--nproc-per-node 2 --log-dir {folder}/logs -r 2", {"more files": FILES}),
    line("--nproc-per-node 2 --log-dir {folder}/logs -r 3"),
    line("--nproc-per-node 2 --log-dir {folder}/logs --redirects=0:3,1:1", {"more files": FILES}),
    line("--nproc-per-node 2 --log-dir {folder}/logs -r 1:2", {"more files": FILES}),
    line("--nproc-per-node 2 --log-dir {folder}/logs -t 1", {"more files": FILES}),
    line("--nproc-per-node 2 --log-dir {folder}/logs -t 2", {"more files": FILES}),
    line("--nproc-per-node 2 --log-dir {folder}/logs --tee 3"),
    line("--nproc-per-node 2 --log-dir {folder}/logs --tee=0:1,1:2", {"more files": FILES}),
    line("--nproc-per-node 2 --log-dir {folder}/logs -r 3 -t 1"),
    line("--nproc-per-node 2 --log-dir {folder}/logs -r 1:3 -t 0:3"),
    line("PET_REDIRECTS=3 --nproc-per-node 2 --log-dir {folder}/logs"),
    line("PET_TEE=0:3 --nproc-per-node 2 --log-dir {folder}/logs", {"more files": FILES}),
    line("PET_LOG_DIR={folder}/logs PET_TEE=3 --nproc-per-node 2"),
    line("--nproc-per-node 2 -r 3"),
    line("--nproc-per-node 2 -t 3"),
    line("--nproc-per-node 2 -r 3 --log-dir /dev/null", {"TORCHELASTIC_ERROR_FILE , a temporary file": DEV_NULL}),
    line("--nproc-per-node 2 --log-dir /dev/null", {"TORCHELASTIC_ERROR_FILE , a temporary file": DEV_NULL}),
    line("--log-dir {folder}/plain.txt -r 3", REFUSED),
    line("-r 4", REFUSED),
    line("-r abc", REFUSED),
    line("-r 0:4", REFUSED),
    line("-t 0:", REFUSED),
    line("-t 5:1 --nproc-per-node 2 --log-dir {folder}/logs", {"more files": FILES}),
    line("--nproc-per-node 2 -t 3 --local-ranks-filter 0 --log-dir {folder}/logs"),
    line("--nproc-per-node 2 --local-ranks-filter 1"),
    line("--nproc-per-node 3 --local_ranks_filter=0,2"),
    line("PET_LOCAL_RANKS_FILTER=0 --nproc-per-node 2"),
    line("--local-ranks-filter abc", REFUSED),
    line("--nproc-per-node 2 -t 3 --log-line-prefix-template '${role_name}-${local_rank}-${rank}: ' --role r"),
    line("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE='<${rank}> ' --nproc-per-node 2 -t 3"),
    line("PET_LOG_LINE_PREFIX_TEMPLATE='<${local_rank}> ' --nproc-per-node 2 -t 3"),
    line("--nproc-per-node 2 -t 3 --log-dir {folder}/logs --duplicate-stdout-filters 'out 1'"),
    line("--nproc-per-node 2 -t 3 --log-dir {folder}/logs --duplicate-stderr-filters 'err 0,err 1'"),
    line("--nproc-per-node 2 -t 3 --log-dir {folder}/logs --duplicate-stdout-filters nothing"),
]

SIGNALS = [
    line("--nproc-per-node 2 probe.py wait", {"exit 1, 130": CODE}, signal="SIGINT"),
    line("--nproc-per-node 2 probe.py wait", {"exit 1, 143": CODE}, signal="SIGTERM"),
    line("--nproc-per-node 2 probe.py wait", {"exit 1, 129": CODE}, signal="SIGHUP"),
    line("--nproc-per-node 2 probe.py wait", {"exit 1, 131": CODE}, signal="SIGQUIT"),
    line("--nproc-per-node 2 --signals-to-handle SIGTERM,SIGUSR1 probe.py wait", {"exit 1, 138": CODE}, signal="SIGUSR1"),
    line("--nproc-per-node 2 --signals_to_handle=SIGTERM,SIGINT probe.py wait", {"exit 1, 130": CODE}, signal="SIGINT"),
    line("--nproc-per-node 2 --shutdown-timeout 5 probe.py wait", {"exit 1, 143": CODE}, signal="SIGTERM"),
    line("TORCH_ELASTIC_SHUTDOWN_TIMEOUT=5 --nproc-per-node 2 probe.py wait", {"exit 1, 143": CODE}, signal="SIGTERM"),
    line("--signals-to-handle SIGFOO", refused_here(STRICT)),
    line("--signals-to-handle SIGTERM"),
    line("--shutdown-timeout abc"),
    line("--shutdown-timeout 10"),
]

FAILURES = [
    line("--nproc-per-node 2 probe.py '0:exit=3'", {"exit 1, 3": CODE}),
    line("--nproc-per-node 2 probe.py '1:exit=3'", {"exit 1, 3": CODE}),
    line("--nproc-per-node 2 probe.py '*:exit=4'", {"exit 1, 4": CODE}),
    line("--nproc-per-node 2 probe.py '1:signal=9'", {"exit 1, 137": CODE}),
    line("--nproc-per-node 2 probe.py '1:signal=11'", {"exit 1, 139": CODE}),
    line("--nproc-per-node 2 probe.py '1:signal=15'", {"exit 1, 143": CODE}),
    line("--nproc-per-node 2 probe.py '0:exit=255'", {"exit 1, 255": CODE}),
    line("TORCHELASTIC_ERROR_FILE={folder}/error.json --nproc-per-node 2 probe.py '1:raise'"),
    line("TORCHELASTIC_ERROR_FILE={folder}/error.json --nproc-per-node 2 probe.py '1:exit=3'", {"exit 1, 3": CODE, "error file": ERROR_FILE}),
    line("TORCHELASTIC_ERROR_FILE={folder}/error.json --nproc-per-node 2"),
    line("--nproc-per-node 2 --log-dir {folder}/logs -r 3 probe.py '1:exit=3'", {"exit 1, 3": CODE}),
]

OTHERS = [
    line("--role trainer --nproc-per-node 2"),
    line("PET_ROLE=evaluator probe.py"),
    line("--monitor-interval 1"),
    line("--monitor_interval=0.5"),
    line("--monitor-interval abc"),
    line("--logs-specs default"),
    line("--logs_specs=bogus", REFUSED),
    line("--start-method fork"),
    line("--start-method bogus"),
    line("--event-log-handler null"),
    line("--event_log_handler=console"),
    line("--virtual-local-rank --nproc-per-node 2"),
    line("CUDA_VISIBLE_DEVICES=3,4 --virtual-local-rank --nproc-per-node 2"),
    line("CUDA_VISIBLE_DEVICES=3 --virtual-local-rank --nproc-per-node 2", REFUSED),
    line("CUDA_VISIBLE_DEVICES=1,0 --nproc-per-node 2"),
    line("PET_VIRTUAL_LOCAL_RANK=1 --nproc-per-node 2"),
    line("OMP_NUM_THREADS=7 --nproc-per-node 2"),
    line("TORCH_NCCL_ASYNC_ERROR_HANDLING=0 --nproc-per-node 2"),
    line("RANK=5 WORLD_SIZE=9 MASTER_ADDR=elsewhere MASTER_PORT=1 --nproc-per-node 2"),
    line("LOGLEVEL=ERROR --nproc-per-node 2"),
    line("--numa-binding bogus"),
    line("--nn 1", refused_here(PREFIX)),
    line("--redirect 3", {"exit 0, 2": PREFIX, "workers 1, 0": PREFIX}),
    line("--bogus"),
    line("--help probe.py"),
    line("PET_BOGUS=1 probe.py"),
]

LINES = [*SIZE, *RESTARTS, *RENDEZVOUS, *PROGRAM, *OUTPUT, *SIGNALS, *FAILURES, *OTHERS]
