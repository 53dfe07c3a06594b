// The collectives, sends and receives of the worker library between virtual hosts whose network is broken, and by which
// of their networks they go. Skipped where the tools for such hosts are absent.
//
// DDP_FAULT_ROUNDS=10 cuts a network as often inside each operation, and prints for each scene how often all was right.

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <deque>
#include <memory>
#include <sstream>
#include <thread>

#include "tests/catch.hpp"
#include "tests/e2e/hosts.hpp"
#include "tests/unit/worker_lib/support/fault_rounds.hpp"

using ddp::testing::fault_rounds;

namespace {

const std::vector<std::string> kOperations{"all_reduce", "small all_reduce", "broadcast",    "barrier",
                                           "reduce",     "reduce_scatter",   "all_gather_v", "gather_v",
                                           "scatter_v",  "all_to_all_v",     "p2p"};
constexpr int kTimeout = 3;        // ddp::ErrorCode
constexpr int kDeadlineMs = 4000;  // generous: before the cut no operation takes this long, even on a busy machine

/// A store on one host, and ranks on hosts, `ranks_per_host` on each.
class World {
public:
    struct Shape {
        std::vector<std::string> hosts;
        int ranks_per_host = 1;
        std::string store_host = "n1";
        int init_timeout_ms = 60'000;
        int deadline_ms = kDeadlineMs;
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
            line.insert(line.end(), {LASTING_COLLECTIVES, text(shape_.deadline_ms), text(shape_.init_timeout_ms)});
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

/// The line in which a rank reported how a collective ended.
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

/// For each operation: how many of the ranks that called it ended as expected, of how many.
struct Tally {
    int right = 0;
    int all = 0;

    /// Every operation of `rank` ended at its deadline because of one of `culprits` on `host`.
    void check_blame(World& world, int rank, const std::vector<int>& culprits, const std::string& host) {
        const auto status = world.rank(rank).wait(e2e::Seconds(30));
        const std::string out = world.rank(rank).out();
        CAPTURE(rank, out, world.rank(rank).err());
        CHECK(status.exit_code() == 0);
        for (const std::string& operation : kOperations) {
            const Ending ending = ending_of(out, operation);
            const auto said = [&](const std::string& text) { return ending.text.find(text) != std::string::npos; };
            const bool one =
                ending.culprits.size() == 1 && std::ranges::find(culprits, ending.culprits.front()) != culprits.end();
            const bool named = said("(host " + host + ", pid ") && said(", 10.77.0.");
            CAPTURE(operation, ending.text);
            CHECK(ending.code == kTimeout);
            CHECK(one);
            CHECK(named);
            right += ending.code == kTimeout && one && named ? 1 : 0;
            ++all;
        }
    }
    void print(const std::string& scene) const {
        if (fault_rounds() == 1) return;
        std::printf("partition, %s: %d of %d right\n", scene.c_str(), right, all);
        std::fflush(stdout);
    }
};

/// A world whose host `cut` was separated from `others` while all operations ran.
struct Cut {
    Cut(const e2e::Sandbox& sandbox, const e2e::Hosts& virtual_hosts, World::Shape shape, const std::string& cut,
        const std::string& others, int round)
        : hosts(virtual_hosts), world(sandbox, hosts, std::move(shape)) {
        world.start(kOperations);
        const bool running = world.running();
        CAPTURE(world.rank(0).out(), world.rank(0).err());
        REQUIRE(running);
        std::this_thread::sleep_for(ddp::testing::delay_of(round));
        hosts.call({"partition", cut, others});
    }
    ~Cut() { hosts.call({"heal"}); }
    Cut(const Cut&) = delete;
    Cut& operator=(const Cut&) = delete;

    const e2e::Hosts& hosts;
    World world;
};

}  // namespace

TEST_CASE("a partition inside any operation: both sides name a rank of the other at the deadline", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("partition-two");
    {
        const e2e::Hosts hosts(sandbox, 2);
        Tally tally;
        for (int round = 0; round < fault_rounds(); ++round) {
            Cut scene(sandbox, hosts, {.hosts = {"n1", "n2"}, .ranks_per_host = 2, .environment = {}}, "n1", "n2",
                      round);
            const auto began = std::chrono::steady_clock::now();
            for (const int rank : {0, 1}) tally.check_blame(scene.world, rank, {2, 3}, "n2");
            for (const int rank : {2, 3}) tally.check_blame(scene.world, rank, {0, 1}, "n1");
            // No endless wait, and no group after the other; the reports and farewells take part of a second each.
            CHECK(std::chrono::steady_clock::now() - began < std::chrono::milliseconds(2 * kDeadlineMs + 4000));
        }
        tally.print("2 hosts with 2 ranks each");
    }
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("of three hosts the others name the one that is cut off", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("partition-three");
    const e2e::Hosts hosts(sandbox, 3);
    struct Scene {
        std::string cut;
        std::string others;
        std::string store;
        int culprit;
        std::vector<int> asked;
    };
    for (const Scene& scene : {Scene{"n3", "n1,n2", "n1", 2, {0, 1}},
                               Scene{"n1", "n2,n3", "n2", 0, {1, 2}}}) {  // the root of all that have one
        Tally tally;
        for (int round = 0; round < fault_rounds(); ++round) {
            Cut cut(sandbox, hosts, {.hosts = {"n1", "n2", "n3"}, .store_host = scene.store, .environment = {}},
                    scene.cut, scene.others, round);
            for (const int rank : scene.asked) tally.check_blame(cut.world, rank, {scene.culprit}, scene.cut);
        }
        tally.print("3 hosts, " + scene.cut + " is cut off");
    }
}

TEST_CASE("a host that is cut off while its process takes no more data is known to be cut off", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("partition-full");
    const e2e::Hosts hosts(sandbox, 2);
    // The sockets must not hold a whole message: buffers that the kernel lets grow sometimes do.
    const std::string small = "echo 4096 131072 1048576 > /proc/sys/net/ipv4/tcp_rmem";
    REQUIRE(e2e::run(sandbox, hosts.on("n1", {"sh", "-c", small})).status.exit_code() == 0);
    // Probes follow each other in ever longer intervals: two of them have to pass after the cut.
    World world(sandbox, hosts, {.hosts = {"n1", "n2"}, .store_host = "n2", .deadline_ms = 10'000, .environment = {}});
    world.start({"large gather_v"});
    REQUIRE(world.running());
    for (const pid_t pid : sandbox.pids("lasting_collectives")) {
        if (e2e::read_file("/proc/" + std::to_string(pid) + "/environ").find("GROUP_RANK=0") != std::string::npos)
            ::kill(pid, SIGSTOP);
    }
    // The kernel probes a receiver that has no room: the timer is called "persist".
    CHECK(e2e::eventually(e2e::Seconds(20), [&] {
        return e2e::run(sandbox, hosts.on("n2", {"ss", "-tno"})).out.find("persist") != std::string::npos;
    }));
    hosts.call({"partition", "n1", "n2"});
    CHECK(world.rank(1).wait(e2e::Seconds(30)).exit_code() == 0);
    const Ending ending = ending_of(world.rank(1).out(), "large gather_v");
    CHECK(ending.culprits == std::vector<int>{0});
    CHECK_THAT(ending.text, Catch::Contains("is that host down, or cut off?"));
    hosts.call({"heal"});
}

TEST_CASE("a machine that stands still at the deadline makes no other rank look late", "[e2e]") {
    if (e2e::no_hosts_here()) return;
    const e2e::Sandbox sandbox("partition-pause");
    const e2e::Hosts hosts(sandbox, 3);
    Tally tally;
    for (int round = 0; round < fault_rounds(); ++round) {
        Cut cut(sandbox, hosts, {.hosts = {"n1", "n2", "n3"}, .environment = {}}, "n3", "n1,n2", round);
        // The scene itself is one of time: all deadlines pass while no rank runs.
        std::this_thread::sleep_for(std::chrono::milliseconds(kDeadlineMs - 300));
        const std::vector<pid_t> ranks = sandbox.pids("lasting_collectives");
        for (const pid_t pid : ranks) ::kill(pid, SIGSTOP);
        std::this_thread::sleep_for(std::chrono::milliseconds(1500));
        for (const pid_t pid : ranks) ::kill(pid, SIGCONT);
        for (const int rank : {0, 1}) tally.check_blame(cut.world, rank, {2}, "n3");
    }
    tally.print("3 hosts that stand still at the deadline");
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

TEST_CASE("collectives use the interface that reached the store, or the requested one", "[e2e]") {
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
