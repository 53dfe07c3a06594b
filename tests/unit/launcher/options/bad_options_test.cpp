// Every mistake on the command line gives one message: what is wrong, why, and what to write.

#include "launcher/options/options.hpp"
#include "tests/catch.hpp"

using namespace ddprun::launcher;

namespace {

struct Mistake {
    std::vector<std::string> words;
    std::string message;  ///< how it begins
    Environment environment = {};
};

const std::vector<Mistake> kMistakes{
    {{"--nnodes", "3:2", "p"}, "--nnodes 3:2: MIN is larger than MAX. Write N or MIN:MAX with 1 <= MIN <= MAX."},
    {{"--nnodes=0", "p"}, "--nnodes 0: a job needs at least one node. Write N or MIN:MAX with 1 <= MIN <= MAX."},
    {{"--nnodes", "-1", "p"}, "--nnodes -1: a job needs at least one node."},
    {{"--nnodes", "1:2:3", "p"}, "--nnodes 1:2:3: not a number of nodes."},
    {{"--nnodes", "two", "p"}, "--nnodes two: not a number of nodes."},
    {{"--nnodes", "", "p"}, "--nnodes : not a number of nodes."},
    {{"--nnodes", "2x", "p"}, "--nnodes 2x: not a number of nodes."},
    {{"--nnodes", "99999999999", "p"}, "--nnodes 99999999999: not a number of nodes."},
    {{"--nnodes", "16385", "p"},
     "--nnodes 16385: a job has at most 16384 nodes. Write N or MIN:MAX with 1 <= MIN <= MAX."},
    {{"--nnodes", "2:16385", "p"}, "--nnodes 2:16385: a job has at most 16384 nodes."},
    {{"--node-rank", "16384", "p"}, "--node-rank 16384: not a whole number from 0 to 16383."},
    {{"p"},
     "TORCHELASTIC_ENABLE_FILE_TIMER=1: ddprun has no file timer, and a script that uses "
     "torch.distributed.elastic.timer would fail without TORCHELASTIC_TIMER_FILE. Unset the variable;",
     {{"TORCHELASTIC_ENABLE_FILE_TIMER", "1"}}},
    {{"p"}, "PET_NNODES=3:2: MIN is larger than MAX.", {{"PET_NNODES", "3:2"}}},
    {{"p"}, "PET_NPROC_PER_NODE=: not a number of workers.", {{"PET_NPROC_PER_NODE", ""}}},
    {{"--nproc-per-node", "0", "p"},
     "--nproc-per-node 0: not a number of workers. Write a number from 1 to 4096, cpu, gpu, xpu or auto."},
    {{"--nproc_per_node", "-4", "p"}, "--nproc-per-node -4: not a number of workers."},
    {{"--nproc-per-node", "4.5", "p"}, "--nproc-per-node 4.5: not a number of workers."},
    {{"--nproc-per-node", "xpus", "p"}, "--nproc-per-node xpus: not a number of workers."},
    {{"--nproc-per-node", "100000", "p"},
     "--nproc-per-node 100000: a node has at most 4096 workers. Run the others on more nodes (--nnodes)."},
    {{"--nproc-per-node", "99999999999", "p"}, "--nproc-per-node 99999999999: a node has at most 4096 workers."},
    {{"--max-restarts", "-1", "p"}, "--max-restarts -1: not a whole number from 0 to"},
    {{"--node-rank", "x", "p"}, "--node-rank x: not a whole number from 0 to"},
    {{"--node-rank", "1", "p"}, "--node-rank 1: the only node is node 0 (--nnodes 1). Leave it out"},
    {{"--nnodes", "2", "--node-rank", "2", "p"}, "--node-rank 2: nodes are numbered from 0 to 1 (--nnodes 2)."},
    {{"--nnodes", "2:3", "p"},
     "--node-rank 3: nodes are numbered from 0 to 2 (--nnodes 2:3).",
     {{"PET_NODE_RANK", "3"}}},
    {{"--master-port", "65536", "p"}, "--master-port 65536: not a whole number from 0 to 65535."},
    {{"--rdzv-endpoint", "a:b:c", "p"}, "--rdzv-endpoint a:b:c: it has several colons and is not an IPv6 address."},
    {{"--rdzv-endpoint", "n1:port", "p"},
     "--rdzv-endpoint n1:port: the port is not a number from 0 to 65535. Write host, host:port"},
    {{"--rdzv-id", "a\nb", "p"}, "--rdzv-id a\nb: has a control character."},
    {{"--rdzv-id", std::string(1025, 'x'), "p"}, "--rdzv-id " + std::string(1025, 'x') + ": longer than 1024 bytes."},
    {{"--rdzv-id", "\xff", "p"}, "--rdzv-id \xff: not valid UTF-8."},
    {{"--rdzv-conf", "rank=1", "p"}, "--rdzv-conf rank=1: the only node is node 0 (--nnodes 1). Leave it out"},
    {{"--rdzv-conf", "rank=x", "p"}, "--rdzv-conf rank=x: rank=x: not a whole number from 0 to 16383."},
    {{"--rdzv-conf", "store_type=file", "p"},
     "--rdzv-conf store_type=file: store_type=file: a store in a shared folder is not offered. Leave store_type "
     "out"},
    {{"--rdzv-conf", "store_type=x", "p"}, "--rdzv-conf store_type=x: store_type=x: not a kind of store. Write tcp"},
    {{"--rdzv-conf", "a=1,, b=2", "p"}, "--rdzv-conf a=1,, b=2: unknown key 'a'."},
    {{"--rdzv-conf", "timeout=1,, b=2", "p"}, "--rdzv-conf timeout=1,, b=2: '' is not KEY=VALUE."},
    {{"--rdzv-conf", "timeout= ", "p"}, "--rdzv-conf timeout= : 'timeout=' is not KEY=VALUE."},
    {{"--rdzv-backend", "zookeeper", "p"},
     "--rdzv-backend zookeeper: not one of static, c10d, etcd, etcd-v2. Write one of these."},
    {{"--rdzv-backend", "statik", "p"},
     "--rdzv-backend statik: not one of static, c10d, etcd, etcd-v2. Did you mean static?"},
    {{"--rdzv-backend", "etcd", "p"},
     "--rdzv-backend etcd: the job needs a name, or it would meet other jobs there. Pass --rdzv-id ID"},
    {{"--rdzv-dir", "/d", "p"}, "--rdzv-dir: the job needs a name"},
    {{"--rdzv-dir", "/d", "--rdzv-backend", "etcd-v2", "--rdzv-id", "x", "p"},
     "--rdzv-dir and --rdzv-backend etcd exclude each other"},
    {{"--rdzv-backend=etcd", "--rdzv-endpoint=http://n1:2379", "p"},
     "--rdzv-endpoint http://n1:2379: 'http://n1:2379' is a URL. Write HOST:PORT"},
    {{"--rdzv-endpoint=n1:2379,n2:x", "--rdzv-backend=etcd", "p"}, "--rdzv-endpoint n1:2379,n2:x: 'n2:x': the port"},
    {{"--rdzv-endpoint=n1:0", "--rdzv-backend=etcd", "p"},
     "--rdzv-endpoint n1:0: 'n1:0': etcd cannot listen on port 0."},
    {{"--scale-up", "later", "p"}, "--scale-up later: not one of immediate, at-restart, never."},
    {{"--rdzv-conf", "protocol=https", "p"}, "--rdzv-conf protocol: is for --rdzv-backend etcd only."},
    {{"--rdzv-conf", "protocol=ftp", "p"}, "--rdzv-conf protocol=ftp: protocol=ftp: not one of http, https."},
    {{"--rdzv-backend=etcd", "--rdzv-conf=cacert=/ca", "p"}, "--rdzv-conf cacert, cert and key are for TLS"},
    {{"--rdzv-backend=etcd", "--rdzv-conf=protocol=https,cert=/c", "p"}, "--rdzv-conf cert and key belong together"},
    {{"--rdzv-backend=etcd", "--rdzv-conf=password_file=/p", "p"},
     "--rdzv-conf password_file needs the name of its user"},
    {{"--rdzv-conf", "join_timout=3", "p"},
     "--rdzv-conf join_timout=3: unknown key 'join_timout'. Did you mean join_timeout? Known keys:"},
    {{"--rdzv-conf", "join_timeout", "p"}, "--rdzv-conf join_timeout: 'join_timeout' is not KEY=VALUE."},
    {{"--rdzv-conf", "timeout=0", "p"}, "--rdzv-conf timeout=0: timeout=0: must be longer than 0 seconds."},
    {{"--rdzv-conf", "timeout=nan", "p"}, "--rdzv-conf timeout=nan: timeout=nan: not a number of seconds."},
    {{"--rdzv-conf", "is_host=si", "p"}, "--rdzv-conf is_host=si: is_host=si: neither yes nor no."},
    {{"--shutdown-timeout", "-1", "p"}, "--shutdown-timeout -1: not a number of seconds."},
    {{"p"},
     "TORCH_ELASTIC_SHUTDOWN_TIMEOUT=soon: not a number of seconds.",
     {{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT", "soon"}}},
    {{"-r", "4", "p"},
     "--redirects 4: not a choice of streams. Write 0 (none), 1 (stdout), 2 (stderr) or 3 (both), or one of these for "
     "each local rank: 0:3,1:1."},
    {{"-r", "", "p"}, "--redirects : not a choice of streams."},
    {{"-r", "0,1", "p"}, "--redirects 0,1: not a choice of streams."},
    {{"-t", "0:4", "p"}, "--tee 0:4: '4' is not a choice of streams. Write 0 (none),"},
    {{"-t", "0:", "p"}, "--tee 0:: '' is not a choice of streams."},
    {{"-t", "a:1", "p"}, "--tee a:1: 'a' is not a local rank. Write 0 (none),"},
    {{"-t", "-1:1", "p"}, "--tee -1:1: '-1' is not a local rank."},
    {{"-t", "0:1,", "p"}, "--tee 0:1,: '' is not a local rank."},
    {{"-t", "0:1,0:2", "p"}, "--tee 0:1,0:2: local rank 0 occurs twice. Write one entry for each rank."},
    {{"p"}, "PET_TEE=x:1: 'x' is not a local rank.", {{"PET_TEE", "x:1"}}},
    {{"--log-max-size", "10m", "p"},
     "--log-max-size 10m: not a size. Write a number of bytes, or of KiB, MiB or GiB as in 64K, 100M, 2G."},
    {{"--log-max-size", "1023", "p"}, "--log-max-size 1023: too small. Write at least 1K."},
    {{"--log-max-size", "M", "p"}, "--log-max-size M: not a size."},
    {{"--log-max-size", "-1M", "p"}, "--log-max-size -1M: not a size."},
    {{"--log-max-size", "99999999999G", "p"}, "--log-max-size 99999999999G: too large. Write at most 1048576G."},
    {{"--log-keep", "-1", "p"}, "--log-keep -1: "},
    {{"--ranks-filter", "0,x", "p"},
     "--ranks-filter 0,x: 'x' is neither a rank nor a range of ranks. Write whole numbers from 0 up, for example 0 or "
     "0,8-15."},
    {{"--ranks-filter", "3-1", "p"}, "--ranks-filter 3-1: '3-1' is neither a rank nor a range of ranks."},
    {{"--ranks-filter", "3-", "p"}, "--ranks-filter 3-: '3-' is neither a rank nor a range of ranks."},
    {{"--grep", "a(b", "p"}, "--grep a(b: not a regular expression: "},
    {{"--exclude", "[z-a]", "p"}, "--exclude [z-a]: not a regular expression: "},
    {{"--local-ranks-filter", "0,x", "p"},
     "--local-ranks-filter 0,x: 'x' is not a local rank. Write whole numbers from 0 up, for example 0 or 0,2,3."},
    {{"--local-ranks-filter", "0,,1", "p"}, "--local-ranks-filter 0,,1: '' is not a local rank."},
    {{"--local-ranks-filter", "0,", "p"}, "--local-ranks-filter 0,: '' is not a local rank."},
    {{"--local-ranks-filter", " ", "p"}, "--local-ranks-filter  : '' is not a local rank."},
    {{"--local-ranks-filter", "0 1", "p"}, "--local-ranks-filter 0 1: '0 1' is not a local rank."},
    {{"--local-ranks-filter", "-1", "p"}, "--local-ranks-filter -1: '-1' is not a local rank."},
    {{"--start-method", "thread", "p"}, "--start-method thread: not one of spawn, fork, forkserver."},
    {{"--role", "", "p"}, "--role : must not be empty."},
    {{"--nnode", "2", "p"}, "--nnode: no such option. Did you mean --nnodes?"},
    {{"--rdvz_endpoint=n1", "p"}, "--rdvz_endpoint: no such option. Did you mean --rdzv-endpoint?"},
    {{"--hlep", "p"}, "--hlep: no such option. Did you mean --help?"},
    {{"--frobnicate", "p"}, "--frobnicate: no such option. 'ddprun --help' lists all"},
    {{"-n", "2", "p"},
     "-n is not an option of ddprun, but mpirun's and srun's number of processes. Use --nproc-per-node N"},
    {{"-n4", "p"}, "-n4 is not an option of ddprun, but mpirun's"},
    {{"-np", "4", "p"},
     "-np is not an option of ddprun, but mpirun's and srun's number of processes. Use --nproc-per-node N"},
    {{"-np=4", "p"}, "-np=4 is not an option of ddprun, but mpirun's"},
    {{"-hostfile", "h", "p"}, "-hostfile is not an option of ddprun, but mpirun's list of hosts. Use --hosts"},
    {{"--mca=a", "p"}, "--mca is not an option of ddprun, but mpirun's"},
    {{"-tag-output", "p"}, "-tag-output is not an option of ddprun, but mpirun's. Use --label"},
    {{"--use_env", "p"}, "--use_env is not an option of ddprun, but torch.distributed.launch's."},
    {{"-max-restarts", "1", "p"}, "-max-restarts: no such option. Did you mean --max-restarts?"},
    {{"-hx", "p"}, "-hx: no such option."},
    {{"--numa_binding", "numa", "p"}, "--numa-binding numa: not one of node, socket, exclusive, core-complex."},
    {{"p"}, "PET_NUMA_BINDING=all: not one of node", {{"PET_NUMA_BINDING", "all"}}},
    {{"--bind-to", "core", "p"},
     "--bind-to is not an option of ddprun, but mpirun's binding of processes to cores. Use --numa-binding"},
    {{"--gpus", "0,x", "p"}, "--gpus 0,x: 'x' is not a GPU. Write numbers and ranges as in 0,2,4-7"},
    {{"--gpus", "0,", "p"}, "--gpus 0,: '' is not a GPU."},
    {{"--gpus", "3-1", "p"}, "--gpus 3-1: '3-1' is not a GPU."},
    {{"--gpus", "0-99999999", "p"}, "--gpus 0-99999999: '0-99999999' is not a GPU."},
    {{"--gpus=-1", "p"}, "--gpus -1: '-1' is not a GPU."},
    {{"--gpus", "GPU-", "p"}, "--gpus GPU-: 'GPU-' is not a GPU."},
    {{"--signals-to-handle", "SIGTERM,SIGKILL", "p"},
     "--signals-to-handle SIGTERM,SIGKILL: 'SIGKILL' is not a signal that can end a job."},
    {{"--signals-to-handle", "SIGTERM,", "p"}, "--signals-to-handle SIGTERM,: '' is not a signal"},
    {{"--fence", "vm", "p"}, "--fence vm: not one of auto, cgroup, namespace, guard."},
    {{"--report", "-", "p"}, "--report -: needs the name of a file: stdout and stderr are for the output"},
    {{"--events", "-", "p"}, "--events -: needs the name of a file"},
    {{"--event-log-handler", "syslog", "p"}, "--event-log-handler syslog: not one of null, console."},
    {{"-nx", "p"}, "-nx: no such option."},
    {{"--standalone=yes", "p"}, "--standalone yes: takes no value; it is there or not."},
    {{"--nnodes"}, "--nnodes: a value is missing. Write --nnodes N|MIN:MAX."},
    {{"--module", "--no-python", "p"}, "--module and --no-python exclude each other"},
    {{"--standalone", "--nnodes", "2", "p"}, "--standalone is for one node, but --nnodes needs 2."},
    {{"--standalone", "--nnodes", "2:4", "p"}, "--standalone is for one node, but --nnodes needs 2."},
    {{"--print-completion", "csh", "p"}, "--print-completion csh: no such shell here. Write bash|zsh|fish|tcsh."},
    {{"--print-completion"}, "--print-completion: a value is missing. Write --print-completion bash|zsh|fish|tcsh."},
    {{"a", ":", "--nproc-per-node", "1"},
     "program 2: no program to run. Write ddprun [options] program [arguments] : --nproc-per-node N [options] program "
     "[arguments]."},
    {{":", "--nproc-per-node", "1", "b"}, "program 1: no program to run."},
    {{"a", ":", "--nproc-per-node"}, "program 2: --nproc-per-node: a value is missing."},
    {{"a", ":", "--nproc-per-node", "0", "b"},
     "program 2 (b): --nproc-per-node 0: not a number of workers. Write a number from 1 to 4096"},
    {{"a", ":", "--nproc-per-node=2", "--max-restarts", "-1", "b"},
     "program 2 (b): --max-restarts -1: not a whole number"},
    {{"a", ":", "--nproc-per-node", "1", "b", ":", "--nproc_per_node=1", "--nnodes", "2", "c"},
     "program 3: --nnodes: is for the whole job, so it goes before the first program. The options of a program after "
     "':' are --nproc-per-node, --max-restarts, --role, --module, --run-path and --no-python."},
    {{"a", ":", "--nproc-per-node", "1", "--help", "b"}, "program 2: --help: is for the whole job"},
    {{"a", ":", "--nproc-per-node", "1", "--rolle", "r", "b"},
     "program 2: --rolle: no such option. Did you mean --role?"},
    {{"a", ":", "--nproc-per-node", "1", "-m", "--no-python", "b"},
     "program 2 (b): --module and --no-python exclude each other"},
    {{"a", ":", "--nproc-per-node", "1", "--role", "", "b"}, "program 2 (b): --role : must not be empty."},
    {{"a", ":", "--nproc-per-node", "1", "b\n"},
     "program 2 (b\n): the program's name is its role, unless --role NAME is given: has a control character."},
    {{"--role", "b", "a", ":", "--nproc-per-node", "1", "--max-restarts", "2", "b"},
     "--max-restarts: 0 and 2 for two programs of the role 'b', which share its restarts. Pass the same number to "
     "both, "
     "or give one of them another --role."},
    {{}, "no program to run. Write ddprun [options] program [arguments]"},
    {{"--nnodes", "2"}, "no program to run."},
    {{"--"}, "no program to run."},
    {{""}, "no program to run."},
};

}  // namespace

TEST_CASE("each mistake on the command line is refused with a message of its own", "[launcher][unit]") {
    for (const Mistake& mistake : kMistakes) {
        CAPTURE(mistake.words);
        const auto invocation = parse_options(mistake.words, mistake.environment);
        REQUIRE_FALSE(invocation.has_value());
        CHECK(invocation.error().code == ddprun::Errc::kUsage);
        CHECK_THAT(invocation.error().message, Catch::StartsWith(mistake.message));
    }
}

TEST_CASE("an internal option is not read from the environment", "[launcher][unit]") {
    const auto invocation = parse_options({"p"}, {{"PET_AS_LOCAL_NODE", "0@127.0.0.1:1"}});
    REQUIRE(invocation.has_value());
    CHECK_FALSE(invocation->options.as_local_node);
}
