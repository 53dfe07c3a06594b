#include "launcher/scheduler/ssh_hosts.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <fstream>

#include "common/system/unique_fd.hpp"
#include "common/system/write_all.hpp"
#include "launcher/ssh_job.hpp"
#include "launcher/ssh_request.hpp"
#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"
#include "tests/unit/launcher/scheduler/parsed.hpp"

namespace ddprun::launcher {
namespace {

using Catch::Contains;

std::string hosts_error_of(const std::string& text) {
    const auto hosts = parse_ssh_hosts(text);
    return hosts ? "" : hosts.error().message;
}

TEST_CASE("a list of hosts has users, ranges and workers", "[launcher]") {
    CHECK(parse_ssh_hosts("n[1-2],me@n3.example:4").value() ==
          std::vector<SshHost>{{"n1", "n1", {}}, {"n2", "n2", {}}, {"me@n3.example", "n3.example", 4}});
}

TEST_CASE("a file of hosts is one of mpirun, or the node file of a batch job", "[launcher]") {
    const TemporaryDirectory directory;
    const std::string path = (directory.path() / "hosts").string();
    std::ofstream(path) << "# two\nn1 slots=2\n\nn2:3 # three\nn3\nn3\n";
    CHECK(parse_ssh_hosts(path).value() == std::vector<SshHost>{{"n1", "n1", 2}, {"n2", "n2", 3}, {"n3", "n3", {}}});
    std::ofstream(path) << "# none\n";
    CHECK_THAT(hosts_error_of(path), Contains("the file names no host"));
    CHECK_THAT(hosts_error_of("/nowhere/hosts"), Contains("cannot be read"));
}

TEST_CASE("a host that ssh or a shell would take for something else is refused", "[launcher]") {
    for (const char* const text : {"-oProxyCommand=x", "n1;x", "n1 n2", "@n1", "me@", "n1,,n2", "me@-n1", "$(x)"})
        CHECK_THAT(hosts_error_of(text), Contains("is not a"));
    for (const char* const text : {"n1:0", "n1:x", "n1:", "n1:5000"})
        CHECK_THAT(hosts_error_of(text), Contains("a number from 1"));
    CHECK_THAT(hosts_error_of("n1,n2,n1"), Contains("n1 is named twice. For two workers there write n1:2"));
    CHECK_THAT(hosts_error_of("localhost,n2"), Contains("localhost is another host on each node"));
    CHECK(hosts_error_of("localhost:2") == "");
    for (const char* const text : {"", "x", "1", "-1@x@n1", "x@1@n1", "1@x", "1@x@", "1@x@n1;y"})
        CHECK_FALSE(parse_ssh_node(text).has_value());
}

TEST_CASE("the ddprun on a host of a list is one node of the job", "[launcher]") {
    const Options second = options({}, {"--as-ssh-node", "1@4f@n1,me@n2:3", "--hosts", "/only/there", "train"});
    CHECK(second.nodes == NodeRange{2, 2});
    CHECK(second.rdzv_id == "hosts-4f");
    CHECK(second.allocation->hosts == std::vector<std::string>{"n1", "n2"});
    CHECK(second.allocation->node == 1);
    CHECK(second.programs.front().slots == Slots{Slots::Kind::kCount, 3});
    const Options first =
        options({}, {"--as-ssh-node", "0@4f@n1,n2:3", "--hosts", "n1,n2:3", "--nproc-per-node", "2", "train"});
    CHECK(first.programs.front().slots == Slots{Slots::Kind::kCount, 2});
    // In a job of SLURM the list of the user counts.
    CHECK(options({{"SLURM_JOB_ID", "71"}, {"SLURM_JOB_NUM_NODES", "4"}}, {"--hosts", "n1,n2", "t"}).nodes ==
          NodeRange{2, 2});
    CHECK_THAT(refusal({}, {"--as-ssh-node", "2@4f@n1,n2", "--hosts", "n1,n2", "t"}), Contains("--as-ssh-node"));
    CHECK_THAT(refusal({}, {"--hosts", "n1,n2", "--standalone", "t"}), Contains("--hosts and --standalone exclude"));
    CHECK_THAT(refusal({}, {"--hosts", "n1,n2", "--nnodes", "1", "t"}),
               Contains("--nnodes 1: the job on --hosts has 2"));
    CHECK_THAT(refusal({}, {"--hosts", "n1,n2", "--nnodes", "3", "t"}),
               Contains("--nnodes 3: the job on --hosts has 2"));
}

TEST_CASE("a request comes out of the pipe as it went in, and signals stay behind it", "[launcher]") {
    std::array<int, 2> ends{};
    REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
    const UniqueFd out(ends[0]);
    UniqueFd in(ends[1]);
    const SshRequest sent{"/a b", {"--nnodes", "", "x\ny"}, {{"A", "1=2\n3"}, {"B", ""}}};
    REQUIRE(write_all(in.get(), encode(sent) + "\x0f") == encode(sent).size() + 1);
    CHECK(read_ssh_request(out.get()).value() == sent);
    char signal = 0;
    REQUIRE(::read(out.get(), &signal, 1) == 1);
    CHECK(signal == 15);
}

TEST_CASE("a request that is cut off or foreign is refused", "[launcher]") {
    const std::string whole = encode({"/", {"x"}, {{"A", "1"}}});
    const auto text = GENERATE_COPY(as<std::string>(), "", "x\n", "ddprun-hosts 2\n", "ddprun-hosts 1\n99999999\n",
                                    "ddprun-hosts 1\n-1\n", std::string(1000, 'x'), whole.substr(0, whole.size() - 1),
                                    "ddprun-hosts 1\n1\n/0\n1\n1\nA");
    std::array<int, 2> ends{};
    REQUIRE(::pipe2(ends.data(), O_CLOEXEC) == 0);
    const UniqueFd out(ends[0]);
    UniqueFd in(ends[1]);
    REQUIRE(write_all(in.get(), text) == text.size());
    in.reset();
    CHECK_FALSE(read_ssh_request(out.get()).has_value());
}

TEST_CASE("variables of this host and login stay here, and a path is one word for a shell", "[launcher]") {
    CHECK(
        variables_for_hosts({{"HOME", "/root"}, {"SSH_CONNECTION", "x"}, {"XDG_RUNTIME_DIR", "x"}, {"PATH", "/bin"}}) ==
        Environment{{"PATH", "/bin"}});
    CHECK(shell_word("/a b/it's") == "'/a b/it'\\''s'");
}

}  // namespace
}  // namespace ddprun::launcher

TEST_CASE("a list of hosts is refused where each task, or each host, would run the job as one of its own",
          "[launcher]") {
    const Environment task{{"OMPI_COMM_WORLD_SIZE", "2"},
                           {"OMPI_COMM_WORLD_RANK", "0"},
                           {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                           {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"}};
    CHECK_THAT(refusal(task, {"--hosts", "n1,n2", "train"}), Contains("was started 2 times"));
    CHECK(refusal(task, {"--as-ssh-node", "0@4f@n1,n2", "--hosts", "n1,n2", "train"}) == "");
    for (const char* const endpoint : {"localhost:29400", "127.0.0.1:29400"})
        CHECK_THAT(refusal({}, {"--hosts", "n1,n2", "--nnodes", "1:2", "--rdzv-endpoint", endpoint, "train"}),
                   Contains("each host would train alone"));
    CHECK(refusal({}, {"--hosts", "n1,n2", "--rdzv-endpoint", "n1:29400", "train"}) == "");
}
