// The collectives of the worker library between virtual hosts whose network is broken, and by which of their networks
// they go. Skipped where the tools for such hosts are absent.

#include <algorithm>
#include <chrono>
#include <deque>
#include <memory>
#include <sstream>

#include "tests/catch.hpp"
#include "tests/e2e/hosts.hpp"

namespace {

const std::vector<std::string> kCollectives{"all_reduce",   "broadcast", "barrier",   "reduce",      "reduce_scatter",
                                            "all_gather_v", "gather_v",  "scatter_v", "all_to_all_v"};
constexpr int kTimeout = 3;        // ddp::ErrorCode
constexpr int kDeadlineMs = 4000;  // generous: before the cut nothing may take so long, on a busy machine neither

/// A store on one host, and ranks on hosts, `ranks_per_host` on each.
class World {
public:
    struct Shape {
        std::vector<std::string> hosts;
        int ranks_per_host = 1;
        std::string store_host = "n1";
        int init_timeout_ms = 60'000;
        std::vector<std::string> environment;  ///< "NAME=value", for all ranks
    };

    World(const e2e::Sandbox& sandbox, const e2e::Hosts& hosts, Shape shape)
        : sandbox_(sandbox), hosts_(hosts), shape_(std::move(shape)) {
        store_ = std::make_unique<e2e::Process>(
            sandbox, hosts.on(shape_.store_host,
                              {(e2e::bin() / "ddprund").string(), "--store", shape_.store_host + ":" + port_}));
    }

    void start(const std::vector<std::string>& collectives) {
        const auto text = [](auto number) { return std::to_string(number); };
        const int ranks = static_cast<int>(shape_.hosts.size()) * shape_.ranks_per_host;
        for (int rank = 0; rank < ranks; ++rank) {
            const int node = rank / shape_.ranks_per_host;
            std::vector<std::string> line{"env",
                                          "MASTER_ADDR=" + shape_.store_host,
                                          "MASTER_PORT=" + port_,
                                          "RANK=" + text(rank),
                                          "WORLD_SIZE=" + text(ranks),
                                          "LOCAL_RANK=" + text(rank % shape_.ranks_per_host),
                                          "LOCAL_WORLD_SIZE=" + text(shape_.ranks_per_host),
                                          "GROUP_RANK=" + text(node)};
            line.insert(line.end(), shape_.environment.begin(), shape_.environment.end());
            line.insert(line.end(), {LASTING_COLLECTIVES, text(kDeadlineMs), text(shape_.init_timeout_ms)});
            line.insert(line.end(), collectives.begin(), collectives.end());
            ranks_.emplace_back(sandbox_, hosts_.on(shape_.hosts[static_cast<std::size_t>(node)], line));
        }
    }
    [[nodiscard]] bool running() {
        return e2e::eventually(e2e::Seconds(60), [this] {
            return std::ranges::all_of(
                ranks_, [](const e2e::Process& rank) { return rank.out().find("running\n") != std::string::npos; });
        });
    }
    e2e::Process& rank(int number) { return ranks_[static_cast<std::size_t>(number)]; }

private:
    static inline int made_ = 0;
    const e2e::Sandbox& sandbox_;
    const e2e::Hosts& hosts_;
    const Shape shape_;
    const std::string port_ = std::to_string(29500 + made_++);  // the hosts' own, so all are free
    std::unique_ptr<e2e::Process> store_;
    std::deque<e2e::Process> ranks_;
};

/// The line in which a rank said how a collective ended.
struct Ending {
    int code = -1;
    std::vector<int> culprits;
    std::string text;
};

Ending ending_of(const std::string& out, const std::string& collective) {
    std::istringstream lines(out);
    for (std::string line; std::getline(lines, line);) {
        if (!line.starts_with(collective + ' ')) continue;
        Ending ending;
        std::istringstream words(line.substr(collective.size()));
        words >> ending.code;
        for (int rank = 0; words >> rank;) ending.culprits.push_back(rank);
        ending.text = line;
        return ending;
    }
    return {};
}

/// Every collective of `rank` ended at its deadline because of one of `culprits` on `host`.
void check_blame(World& world, int rank, const std::vector<int>& culprits, const std::string& host) {
    const auto status = world.rank(rank).wait(e2e::Seconds(30));
    const std::string out = world.rank(rank).out();
    CAPTURE(rank, out, world.rank(rank).err());
    CHECK(status.exit_code() == 0);
    for (const std::string& collective : kCollectives) {
        const Ending ending = ending_of(out, collective);
        CAPTURE(collective, ending.text);
        CHECK(ending.code == kTimeout);
        REQUIRE(ending.culprits.size() == 1);
        CHECK(std::ranges::find(culprits, ending.culprits.front()) != culprits.end());
        CHECK_THAT(ending.text, Catch::Contains("(host " + host + ", pid ") && Catch::Contains(", 10.77.0."));
    }
}

}  // namespace

TEST_CASE("a partition inside any collective: both sides name a rank of the other at the deadline", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("partition-two");
    {
        const e2e::Hosts hosts(sandbox, 2);
        World world(sandbox, hosts, {.hosts = {"n1", "n2"}, .ranks_per_host = 2, .environment = {}});
        world.start(kCollectives);
        const bool running = world.running();
        CAPTURE(world.rank(0).out(), world.rank(0).err());
        REQUIRE(running);
        hosts.call({"partition", "n1", "n2"});
        const auto began = std::chrono::steady_clock::now();
        for (const int rank : {0, 1}) check_blame(world, rank, {2, 3}, "n2");
        for (const int rank : {2, 3}) check_blame(world, rank, {0, 1}, "n1");
        // Neither a wait without end nor one group's after the other's; telling and farewells take part of a second
        // each.
        CHECK(std::chrono::steady_clock::now() - began < std::chrono::milliseconds(2 * kDeadlineMs + 4000));
    }
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("a host of three that is cut off is the one that the others name", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("partition-three");
    const e2e::Hosts hosts(sandbox, 3);
    World world(sandbox, hosts, {.hosts = {"n1", "n2", "n3"}, .environment = {}});
    world.start(kCollectives);
    REQUIRE(world.running());
    hosts.call({"partition", "n3", "n1,n2"});
    for (const int rank : {0, 1}) check_blame(world, rank, {2}, "n3");
}

TEST_CASE("a peer that cannot be reached is named with its host, process and address", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("partition-before");
    const e2e::Hosts hosts(sandbox, 3);
    hosts.call({"partition", "n1", "n2"});
    World world(sandbox, hosts,
                {.hosts = {"n1", "n2"}, .store_host = "n3", .init_timeout_ms = 1500, .environment = {}});
    world.start({"barrier"});
    const auto status = world.rank(1).wait(e2e::Seconds(30));
    const Ending second = ending_of(world.rank(1).out(), "init");
    const auto first_status = world.rank(0).wait(e2e::Seconds(30));
    const Ending first = ending_of(world.rank(0).out(), "init");
    CAPTURE(first.text, second.text, world.rank(1).out(), world.rank(1).err());
    CHECK(status.exit_code() == 1);
    CHECK(first_status.exit_code() == 1);
    CHECK(second.culprits == std::vector<int>{0});
    CHECK_THAT(second.text, Catch::Contains("rank 1 lost rank 0 (host n1, pid ") && Catch::Contains(", 10.77.0.1)") &&
                                Catch::Contains("cannot connect to 10.77.0.1 port "));
    CHECK(first.culprits == std::vector<int>{1});
    CHECK_THAT(first.text, Catch::Contains("rank 0 at 10.77.0.1") && Catch::Contains("for rank 1 to connect") &&
                               Catch::Contains("host n2"));
}

TEST_CASE("collectives go by the interface that reached the store, or by the one that is wanted", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("interfaces");
    const e2e::Hosts hosts(sandbox, 2);
    for (const std::string number : {"1", "2"}) {
        const std::string host = "n" + number;
        for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
                 {"ip", "link", "add", "link", "eth0", "name", "eth1", "type", "macvlan", "mode", "bridge"},
                 {"ip", "addr", "add", "10.79.0." + number + "/24", "dev", "eth1"},
                 {"ip", "link", "set", "eth1", "up"}}) {
            REQUIRE(e2e::run(sandbox, hosts.on(host, words)).status.success());
        }
    }
    struct Choice {
        std::vector<std::string> environment;
        std::string network;
    };
    for (const auto& [environment, network] :
         {Choice{{}, "10.77.0."}, Choice{{"DDPRUN_SOCKET_IFNAME=eth1"}, "10.79.0."},
          Choice{{"DDPRUN_SOCKET_IFNAME==eth0"}, "10.77.0."}}) {
        World world(sandbox, hosts, {.hosts = {"n1", "n2"}, .environment = environment});
        world.start({"all_reduce"});
        REQUIRE(world.running());
        CHECK_THAT(world.rank(0).out(), Catch::Contains(" " + network + "1 "));
        CHECK_THAT(world.rank(1).out(), Catch::Contains(" " + network + "2 "));
    }
    World world(sandbox, hosts, {.hosts = {"n1", "n2"}, .environment = {"DDPRUN_SOCKET_IFNAME==eth"}});
    world.start({"barrier"});
    CHECK(world.rank(0).wait(e2e::Seconds(30)).exit_code() == 1);
    CHECK_THAT(world.rank(0).out(), Catch::Contains("DDPRUN_SOCKET_IFNAME is '=eth'") &&
                                        Catch::Contains("eth0 (10.77.0.1)") && Catch::Contains("eth1 (10.79.0.1)"));
}
