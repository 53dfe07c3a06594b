// The daemon's log lines and command line.
#include <vector>

#include "common/exit_codes.hpp"
#include "common/line_limit.hpp"
#include "rendezvous/daemon/options.hpp"
#include "rendezvous/daemon/report.hpp"
#include "tests/catch.hpp"

using namespace ddprun;
using namespace ddprun::daemon;
using namespace std::chrono_literals;

TEST_CASE("the table of a group shows its nodes by rank", "[daemon][unit]") {
    coordinator::State state{coordinator::Config{}};
    const auto add = [&](const std::string& id, const std::string& host, int rank, int base, int slots) {
        coordinator::Node node;
        node.join.host = host;
        node.join.programs[0].slots = slots;
        state.nodes.add(id, node);
        state.group.members[id].assignment.node_rank = NodeRank{rank};
        state.group.members[id].assignment.rank_base = base;
    };
    add("b", "first\n", 0, 0, 4);
    add("a", "second", 1, 4, 1);
    CHECK(group_table(state) ==
          std::vector<std::string>{"  node 0  first\\x0a  ranks 0-3", "  node 1  second  rank 4"});
    for (int i = 2; i < 100; ++i) add("n" + std::to_string(i), "many", i, i, 1);
    CHECK(group_table(state).size() == kMaxTableNodes + 1);
    CHECK(group_table(state).back() == "  and 36 more nodes");
}

TEST_CASE("strangers write a bounded number of log lines", "[daemon][unit]") {
    LineLimit limit;
    const TimePoint start = Clock::now();
    int admitted = 0;
    for (int i = 0; i < 1000; ++i) admitted += limit.admit(start + i * 1ms) ? 1 : 0;
    CHECK(admitted == LineLimit::kLines);
    CHECK(limit.admit(start + LineLimit::kWindow));
}

namespace {

std::variant<Options, int> parse(std::vector<const char*> arguments) {
    arguments.insert(arguments.begin(), "ddprund");
    return parse_options(static_cast<int>(arguments.size()), arguments.data());
}

}  // namespace

TEST_CASE("ddprund listens on the loopback by default, and names its run", "[daemon][unit]") {
    const Options options = std::get<Options>(parse({}));
    CHECK(options.daemon.bind.to_string() == "127.0.0.1");
    CHECK(options.daemon.port == 29400);
    CHECK(options.daemon.job.linger == 10s);
    CHECK(options.daemon.job.run_id.size() == 32);
    CHECK_FALSE(options.ready_fd.has_value());
}

TEST_CASE("the address of the stores is one that workers can connect to", "[daemon][unit]") {
    CHECK(std::get<Options>(parse({"--store-address", "10.0.0.7"})).daemon.store_address->to_string() == "10.0.0.7");
    for (const char* address : {"0.0.0.0", "::", "localhost"})
        CHECK(std::get<int>(parse({"--store-address", address})) == exit_code::kUsage);
    CHECK(std::holds_alternative<Options>(parse({"--bind", "0.0.0.0"})));
}

TEST_CASE("a daemon or stores that other hosts can reach are warned of", "[daemon][unit]") {
    using boost::asio::ip::make_address;
    const auto warning = [](const char* bind, const char* store, bool insecure = false, bool members_only = false) {
        return exposure_warning({make_address(bind), 29400}, make_address(store), insecure, members_only);
    };
    CHECK(warning("127.0.0.1", "127.0.0.2").empty());
    CHECK(warning("10.0.0.7", "10.0.0.7", false, true).empty());
    CHECK_THAT(warning("127.0.0.1", "10.0.0.7"),
               Catch::StartsWith("INSECURE: the stores at 10.0.0.7 can") && Catch::Contains("leave out --local-addr"));
    CHECK_THAT(warning("0.0.0.0", "0.0.0.0"),
               Catch::StartsWith("INSECURE: the stores at 0.0.0.0 can") && Catch::EndsWith("or bind one address."));
    CHECK_THAT(warning("10.0.0.7", "10.0.0.7", true),
               Catch::StartsWith("INSECURE: 10.0.0.7:29400 can") && Catch::Contains("--insecure"));
    CHECK_THAT(warning("::", "::", true), Catch::StartsWith("INSECURE: [::]:29400 can"));
}

TEST_CASE("ddprund takes addresses, ports, and seconds with decimals", "[daemon][unit]") {
    const Options options =
        std::get<Options>(parse({"--bind", "::", "--port=0", "--run-id", "mnist", "--linger", "0.5", "--last-call",
                                 "1.25", "--lost-after=2", "--heartbeat-interval=0.25", "--ready-fd", "1"}));
    CHECK(options.daemon.bind.is_v6());
    CHECK(options.daemon.port == 0);
    CHECK(options.daemon.job.linger == 500ms);
    CHECK(options.daemon.job.run_id == "mnist");
    CHECK(options.daemon.job.last_call == 1250ms);
    CHECK(options.daemon.job.lost_after == 2s);
    CHECK(options.daemon.job.heartbeat_interval == 250ms);
    CHECK(options.ready_fd == 1);
    const std::string id = "--strange id/" + std::string(900, 'x');
    CHECK(std::get<Options>(parse({("--run-id=" + id).c_str()})).daemon.job.run_id == id);
}

TEST_CASE("a wrong command line of ddprund is refused as such", "[daemon][unit]") {
    using Arguments = std::vector<const char*>;
    const auto arguments = GENERATE(
        Arguments{"--bind", "localhost"}, Arguments{"--port", "65536"}, Arguments{"--port", "-1"},
        Arguments{"--linger", "0"}, Arguments{"--linger", "nan"}, Arguments{"--lost-after", "soon"},
        Arguments{"--ready-fd", "4000"}, Arguments{"--run-id", ""}, Arguments{"--run-id=a\nb"}, Arguments{"extra"},
        Arguments{"--unknown"}, Arguments{"--lost-after", "1", "--heartbeat-interval", "0.6"},
        Arguments{"--store-vouch", "--insecure"}, Arguments{"--store-vouch", "--store-address", "10.0.0.1"},
        Arguments{"--store-vouch", "--bind", "0.0.0.0"});
    CAPTURE(arguments.front());
    const auto parsed = parse(arguments);
    REQUIRE(std::holds_alternative<int>(parsed));
    CHECK(std::get<int>(parsed) == exit_code::kUsage);
}
