// At which endpoint the nodes meet, and which node starts the daemon there.

#include "launcher/host/placement.hpp"

#include <chrono>
#include <future>

#include "launcher/host/this_host.hpp"
#include "tests/catch.hpp"

using namespace ddprun;
using namespace ddprun::launcher;
using Part = Placement::Part;
using namespace std::chrono_literals;

namespace {

/// A world in which only "here" and 10.0.0.1 are this machine.
std::optional<std::string> fake_address_here(const std::string& host) {
    if (host == "here" || host == "10.0.0.1") return "10.0.0.1";
    if (host == "localhost" || host == "127.0.0.1") return "127.0.0.1";
    return std::nullopt;
}

struct Case {
    std::vector<std::string> words;  ///< before the program
    Part part;
    Endpoint endpoint;
};

const std::vector<Case> kCases{
    {{}, Part::kAlone, {"127.0.0.1", 0}},
    {{"--standalone"}, Part::kAlone, {"127.0.0.1", 0}},
    {{"--standalone", "--rdzv-endpoint", "there"}, Part::kAlone, {"127.0.0.1", 0}},
    {{"--nnodes", "2"}, Part::kHost, {"127.0.0.1", 29400}},
    {{"--nnodes", "1:2"}, Part::kHost, {"127.0.0.1", 29400}},
    {{"--nnodes", "2", "--local-nodes"}, Part::kEmulate, {"127.0.0.1", 0}},
    {{"--local-nodes", "--rdzv-endpoint", "there"}, Part::kEmulate, {"127.0.0.1", 0}},
    {{"--nnodes", "2", "--rdzv-endpoint", "here:1234"}, Part::kHost, {"10.0.0.1", 1234}},
    {{"--nnodes", "2", "--rdzv-endpoint", "there"}, Part::kJoin, {"there", 29400}},
    {{"--rdzv-endpoint", "there"}, Part::kJoin, {"there", 29400}},
    {{"--rdzv-endpoint", "localhost:0"}, Part::kHost, {"127.0.0.1", 0}},
    {{"--nnodes", "2", "--master-addr", "here"}, Part::kHost, {"10.0.0.1", 29500}},
    {{"--nnodes", "2", "--master-addr", "there", "--master-port", "77", "--node-rank", "1"},
     Part::kJoin,
     {"there", 77}},
    {{"--nnodes", "2", "--master-addr", "service", "--node-rank", "0"}, Part::kHost, {"0.0.0.0", 29500}},
    {{"--nnodes", "2", "--master-addr", "here", "--node-rank", "1"}, Part::kHost, {"10.0.0.1", 29500}},
    {{"--master-port", "78"}, Part::kHost, {"127.0.0.1", 78}},
    {{"--rdzv-endpoint", "there:5", "--master-addr", "here"}, Part::kJoin, {"there", 5}},
    {{"--nnodes", "2", "--rdzv-endpoint", "here", "--rdzv-conf", "is_host=0"}, Part::kJoin, {"here", 29400}},
    {{"--nnodes", "2", "--rdzv-endpoint", "service", "--rdzv-conf", "is_host=1"}, Part::kHost, {"0.0.0.0", 29400}},
    {{"--nnodes", "2", "--rdzv-endpoint", "[fd00::1]:9", "--rdzv-conf", "is_host=1"}, Part::kHost, {"::", 9}},
    {{"--nnodes", "2", "--rdzv-backend", "etcd", "--rdzv-id", "x"}, Part::kMeet, {"", 0}},
    {{"--nnodes", "2", "--rdzv-dir", "/d", "--rdzv-id", "x"}, Part::kMeet, {"", 0}},
    {{"--rdzv-dir", "/d", "--rdzv-id", "x", "--master-port", "79", "--rdzv-endpoint", "here"}, Part::kMeet, {"", 79}},
    {{"--nnodes", "2", "--rdzv-dir", "/d", "--local-nodes"}, Part::kEmulate, {"127.0.0.1", 0}},
    {{"--rdzv-backend", "etcd", "--standalone"}, Part::kAlone, {"127.0.0.1", 0}},
    {{"--as-local-node", "1@127.0.0.1:40001", "--nnodes", "2", "--local-nodes", "--rdzv-dir", "/d"},
     Part::kJoin,
     {"127.0.0.1", 40001}},
    {{"--as-local-node", "1@127.0.0.1:40001", "--nnodes", "2", "--local-nodes"}, Part::kJoin, {"127.0.0.1", 40001}},
};

Result<Placement> placed(std::vector<std::string> words) {
    words.push_back("program");
    auto invocation = parse_options(words, {});
    REQUIRE(invocation.has_value());
    return place(invocation->options, fake_address_here);
}

}  // namespace

TEST_CASE("each way to describe a job determines which node starts the daemon", "[launcher][unit]") {
    for (const Case& example : kCases) {
        CAPTURE(example.words);
        const auto placement = placed(example.words);
        REQUIRE(placement.has_value());
        INFO(to_string(placement->endpoint) << ": " << placement->reason);
        CHECK(placement->part == example.part);
        CHECK(placement->endpoint == example.endpoint);
        CHECK_FALSE(placement->reason.empty());
    }
}

TEST_CASE("the endpoint of --master-addr or of the static backend is for the workers, too, as the user wrote it",
          "[launcher][unit]") {
    const std::vector<std::pair<std::vector<std::string>, std::optional<Endpoint>>> questions{
        {{"--master-addr", "localhost", "--master-port", "29555"}, Endpoint{"localhost", 29555}},
        {{"--nnodes", "2", "--master-addr", "there"}, Endpoint{"there", 29500}},
        {{"--nnodes", "2", "--master-addr", "here", "--rdzv-conf", "is_host=0"}, Endpoint{"here", 29500}},
        {{"--master-port", "78"}, Endpoint{"127.0.0.1", 78}},
        {{"--master-addr", "fd00::1", "--nnodes", "2"}, Endpoint{"fd00::1", 29500}},
        {{"--master-port", "0"}, std::nullopt},  // the workers get a port that the user does not know
        {{"--rdzv-endpoint", "there:5", "--master-addr", "here"}, std::nullopt},
        {{"--standalone", "--master-port", "78"}, std::nullopt},
        {{"--nnodes", "2"}, std::nullopt},
        {{"--rdzv-backend", "static", "--rdzv-endpoint", "localhost:77"}, Endpoint{"localhost", 77}},
        {{"--nnodes", "2", "--node-rank", "1", "--rdzv-endpoint", "there:77"}, Endpoint{"there", 77}},
        {{"--nnodes", "2", "--rdzv-conf", "rank=1", "--rdzv-endpoint", "there:77"}, Endpoint{"there", 77}},
        {{"--rdzv-endpoint", "localhost:77"}, std::nullopt},  // elastic: a port for each generation
        {{"--rdzv-backend", "static", "--nnodes", "1:2", "--rdzv-endpoint", "localhost:77"}, std::nullopt},
        {{"--rdzv-backend", "c10d", "--node-rank", "0", "--rdzv-endpoint", "localhost:77"}, std::nullopt},
    };
    for (const auto& [words, master] : questions) {
        CAPTURE(words);
        const auto placement = placed(words);
        REQUIRE(placement.has_value());
        CHECK(placement->master == master);
    }
}

TEST_CASE("the hosting node passes a name on only if it leads to the daemon here", "[launcher][unit]") {
    CHECK(name_for_local_processes("localhost", {"::1", "127.0.0.1"}, "127.0.0.1") == "localhost");
    CHECK(name_for_local_processes("n1", {"10.0.0.1"}, "10.0.0.1") == "n1");
    CHECK(name_for_local_processes("n1", {"127.0.1.1"}, "10.0.0.1") == "10.0.0.1");      // Debian's /etc/hosts
    CHECK(name_for_local_processes("service", {"10.9.9.9"}, "10.0.0.1") == "10.0.0.1");  // bound to every address
    CHECK(name_for_local_processes("0.0.0.0", {"0.0.0.0"}, "10.0.0.1") == "10.0.0.1");
    CHECK(name_for_local_processes("n1", {}, "10.0.0.1") == "10.0.0.1");
}

TEST_CASE("port 0 is refused where another node would have to know it", "[launcher][unit]") {
    for (const std::vector<std::string>& words :
         {std::vector<std::string>{"--nnodes", "2", "--rdzv-endpoint", "here:0"},
          std::vector<std::string>{"--rdzv-endpoint", "there:0"}}) {
        const auto refused = placed(words);
        REQUIRE_FALSE(refused.has_value());
        CHECK(refused.error().code == Errc::kUsage);
        CHECK_THAT(refused.error().message, Catch::Contains("Name a port."));
    }
}

TEST_CASE("a host is this one by its addresses and names", "[launcher][unit]") {
    const ThisHost self{"n1.cluster", {"10.0.0.1", "192.168.0.1", "fd00::1"}};
    struct Question {
        std::string host;
        std::vector<std::string> resolved;
        std::optional<std::string> answer;
    };
    const std::vector<Question> questions{
        {"127.0.0.1", {"127.0.0.1"}, "127.0.0.1"},
        {"127.0.1.1", {"127.0.1.1"}, "127.0.1.1"},
        {"::1", {"::1"}, "::1"},
        {"0.0.0.0", {"0.0.0.0"}, "0.0.0.0"},
        {"192.168.0.1", {"192.168.0.1"}, "192.168.0.1"},
        {"fd00:0::1", {"fd00::1"}, "fd00::1"},
        {"10.0.0.2", {"10.0.0.2"}, std::nullopt},
        {"localhost", {"::1", "127.0.0.1"}, "127.0.0.1"},
        {"localhost", {"::1"}, "::1"},
        {"localhost", {}, "127.0.0.1"},
        {"n1.cluster", {"10.0.0.1"}, "10.0.0.1"},
        {"n1.cluster", {"127.0.1.1"}, "10.0.0.1"},  // Debian's entry for the own name
        {"N1", {}, "10.0.0.1"},                     // known to the kernel alone
        {"n1.other", {}, std::nullopt},
        {"storage.cluster", {"172.16.0.9", "192.168.0.1"}, "192.168.0.1"},
        {"n2", {"10.0.0.2"}, std::nullopt},
        {"no-such-host", {}, std::nullopt},
        {"", {}, std::nullopt},
    };
    for (const Question& question : questions) {
        CAPTURE(question.host, question.resolved);
        CHECK(address_here(question.host, question.resolved, self) == question.answer);
    }
    CHECK(address_here("n1.cluster", {"127.0.1.1"}, self, true) == "127.0.1.1");  // no other node has to reach it
    CHECK(address_here("n1.cluster", {"10.0.0.1"}, self, true) == "10.0.0.1");
    CHECK(address_here("localhost", {"::1", "127.0.0.1"}, self, true) == "127.0.0.1");
    CHECK(address_here("n1", {"127.0.1.1"}, {"n1", {}}) == "127.0.0.1");  // a machine without a network
}

TEST_CASE("a node that does not host looks up no name", "[launcher][unit]") {
    const auto invocation = parse_options({"--rdzv-endpoint", "n1.example", "--rdzv-conf", "is_host=0", "program"}, {});
    REQUIRE(invocation.has_value());
    int lookups = 0;
    const auto placement = place(invocation->options, [&](const std::string&) {
        ++lookups;
        return std::optional<std::string>();
    });
    REQUIRE(placement.has_value());
    CHECK(placement->part == Part::kJoin);
    CHECK(lookups == 0);
}

TEST_CASE("this machine recognises its own names", "[launcher][unit]") {
    const ThisHost self = this_host();
    REQUIRE_FALSE(self.name.empty());
    const auto here = [&](const std::string& host) {
        return address_here(host, addresses_of(host, 30s).value(), self);
    };
    CHECK(here("127.0.0.1") == "127.0.0.1");
    CHECK(here("::1") == "::1");
    CHECK(here("localhost") == "127.0.0.1");
    CHECK(here(self.name).has_value());
    for (const std::string& address : self.addresses) CHECK(here(address) == address);
    CHECK_FALSE(here("240.0.0.1").has_value());  // reserved, never assigned
}

TEST_CASE("a listener on all interfaces is dialed at an address that other nodes can reach", "[launcher][unit]") {
    const ThisHost self{"n1", {"10.0.0.1", "fd00::1"}};
    CHECK(address_to_dial("192.168.0.1", self) == "192.168.0.1");
    CHECK(address_to_dial("127.0.0.1", self) == "127.0.0.1");
    CHECK(address_to_dial("0.0.0.0", self) == "10.0.0.1");
    CHECK(address_to_dial("::", self) == "10.0.0.1");
    CHECK(address_to_dial("0.0.0.0", {"n1", {"fd00::1"}}) == "127.0.0.1");  // not one that it does not listen at
    CHECK(address_to_dial("::", {"n1", {"fd00::1"}}) == "fd00::1");
    CHECK(address_to_dial("0.0.0.0", {"n1", {}}) == "127.0.0.1");
    CHECK(address_to_dial("::", {"n1", {}}) == "::1");
}

TEST_CASE("a name server that does not answer costs the launcher no more than its timeout", "[launcher][unit]") {
    std::promise<void> hangs;
    const LookUp hanging = [wait = hangs.get_future().share()](const Endpoint&) -> Result<Addresses> {
        wait.wait();
        return Addresses{};
    };
    const auto addresses = addresses_of("n1.example", 1s, hanging);
    hangs.set_value();
    REQUIRE_FALSE(addresses.has_value());
    CHECK(addresses.error().code == Errc::kTimeout);
    CHECK(addresses.error().message ==
          "cannot find out by its addresses whether 'n1.example' is this machine: no name server has answered in 1 s");
}

TEST_CASE("a name that nobody knows has no addresses, and needs no timeout", "[launcher][unit]") {
    const LookUp unknown = [](const Endpoint&) -> Result<Addresses> { return Error{Errc::kNotFound, "unknown"}; };
    CHECK(addresses_of("n1.example", 60s, unknown).value().empty());
}
