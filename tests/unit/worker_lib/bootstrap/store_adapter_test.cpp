// ddp::Store over a real TCPStore server, and a world that meets there.

#include "worker_lib/src/bootstrap/store_adapter.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "common/system/unique_fd.hpp"
#include "ddp/error.hpp"
#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"
#include "tests/unit/rendezvous/store/server/server_thread.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"

using namespace ddp;
using std::chrono::milliseconds;
using std::chrono::seconds;

namespace {

Environment at(const ddprun::Endpoint& endpoint) {
    Environment environment;
    environment.master_addr = endpoint.host;
    environment.master_port = endpoint.port;
    return environment;
}

/// Returns what `call` writes to stderr.
template <typename Call>
std::string said_by(Call call) {
    const TemporaryDirectory directory;
    const auto file = directory.path() / "stderr";
    std::fflush(stderr);
    const ddprun::UniqueFd before(::dup(STDERR_FILENO));
    const ddprun::UniqueFd instead(::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    ::dup2(instead.get(), STDERR_FILENO);
    call();
    std::fflush(stderr);
    ::dup2(before.get(), STDERR_FILENO);
    return read_file(file);
}

}  // namespace

TEST_CASE("keys and counters go through the job's store", "[store_adapter][unit]") {
    const ddprun::store::test::ServerThread server;
    const auto store = detail::connect_store(at(server.endpoint()), seconds(10));
    const auto other = detail::connect_store(at(server.endpoint()), seconds(10));
    store->set("key", std::string_view("a\0b", 3));
    CHECK(other->get("key", seconds(5)) == std::string("a\0b", 3));
    CHECK(store->add("count", 2) == 2);
    CHECK(other->add("count", -5) == -3);
    CHECK(store->local_address() == "127.0.0.1");
    CHECK(store->set_once("once", "first") == "first");
    CHECK(other->set_once("once", "second") == "first");
    CHECK(other->get("once", seconds(5)) == "first");
}

TEST_CASE("a thread that waits for a key does not keep others from the store", "[store_adapter][unit]") {
    const ddprun::store::test::ServerThread server;
    const auto store = detail::connect_store(at(server.endpoint()), seconds(10));
    auto waiter = std::async(std::launch::async, [&] { return store->get("later", seconds(20)); });
    CHECK(store->add("count", 1) == 1);
    store->set("later", "now");
    CHECK(waiter.get() == "now");
}

TEST_CASE("many keys are read at once, and a wait in vain is reported by rank", "[store_adapter][unit]") {
    const ddprun::store::test::ServerThread server;
    Environment environment = at(server.endpoint());
    environment.rank = 3;
    const auto store = detail::connect_store(environment, seconds(10));
    store->set("a", "1");
    store->set("b", "2");
    CHECK(store->get_all({"b", "a"}, seconds(5)) == std::vector<std::string>{"2", "1"});
    try {
        (void)store->get_all({"a", "absent"}, milliseconds(50));
        FAIL("a value from nowhere");
    } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::Timeout);
        CHECK_THAT(error.what(), Catch::Contains("rank 3 waited") && Catch::Contains("'absent' is not set"));
    }
}

TEST_CASE("polling for a key requests nothing but the key", "[store_adapter][unit]") {
    const ddprun::store::test::ServerThread server;
    const auto remote = detail::connect_store(at(server.endpoint()), seconds(10));
    const auto local = detail::make_local_store();
    for (const auto& store : {remote, local}) {
        store->set("a", "1");
        CHECK(store->try_get("a", milliseconds(0)) == "1");
        CHECK_FALSE(store->try_get("absent", milliseconds(5)));
        CHECK(store->missing({"x", "a", "y"}) == std::vector<std::string>{"x", "y"});
        store->erase("a");
        store->erase("never there");
        CHECK_FALSE(store->try_get("a", milliseconds(5)));
        auto waiter = std::async(std::launch::async, [&] { return store->try_get("later", seconds(20)); });
        store->set("later", "now");
        CHECK(waiter.get() == "now");
    }
}

TEST_CASE("a key that is never set is a timeout with its name, and the store stays usable", "[store_adapter][unit]") {
    const ddprun::store::test::ServerThread server;
    const auto store = detail::connect_store(at(server.endpoint()), seconds(10));
    try {
        (void)store->get("absent", milliseconds(50));
        FAIL("a value from nowhere");
    } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::Timeout);
        CHECK_THAT(error.what(), Catch::Contains("absent"));
    }
    store->set("absent", "here");
    CHECK(store->get("absent", seconds(5)) == "here");
}

TEST_CASE("a store that is not there is named with its address", "[store_adapter][unit]") {
    ddprun::Endpoint endpoint;
    {
        const ddprun::store::test::ServerThread server;
        endpoint = server.endpoint();
    }
    try {
        (void)detail::connect_store(at(endpoint), milliseconds(200));
        FAIL("connected without a server");
    } catch (const Error& error) {
        CHECK(error.code() == ErrorCode::Timeout);
        CHECK_THAT(error.what(), Catch::Contains(std::to_string(endpoint.port)) && Catch::Contains("MASTER_ADDR"));
    }
}

TEST_CASE("a rank that does not reach the store reports that once, after a while", "[store_adapter][unit]") {
    Environment environment;
    environment.rank = 3;
    {
        const ddprun::store::test::ServerThread server;
        environment = at(server.endpoint());
        environment.rank = 3;
        CHECK(said_by([&] { (void)detail::connect_store(environment, seconds(10)); }) == "");
    }
    const auto try_for = [&](milliseconds timeout, milliseconds patience) {
        return said_by([&] { CHECK_THROWS_AS(detail::connect_store(environment, timeout, patience), Error); });
    };
    CHECK(try_for(milliseconds(200), seconds(5)) == "");
    const std::string said = try_for(milliseconds(900), milliseconds(200));
    INFO(said);
    CHECK(std::ranges::count(said, '\n') == 1);
    CHECK_THAT(said, Catch::StartsWith(
                         "[ddp] the store of this job (MASTER_ADDR, MASTER_PORT): rank 3 cannot reach the store at ") &&
                         Catch::Contains(std::to_string(environment.master_port) + " so far: ") &&
                         Catch::Contains("refused, ") && Catch::Contains(" tries in 0.") &&
                         Catch::Contains("; going on for up to 1 s. Is its host up"));
}

TEST_CASE("a store that ends is an error, not a hang", "[store_adapter][unit]") {
    auto server = std::make_unique<ddprun::store::test::ServerThread>();
    const auto store = detail::connect_store(at(server->endpoint()), seconds(10));
    server.reset();
    CHECK_THROWS_AS(store->get("key", milliseconds(300)), Error);
}

TEST_CASE("a world meets at the job's store", "[store_adapter][unit]") {
    const ddprun::store::test::ServerThread server;
    const testing::LocalWorld world{.ranks_per_node = {2, 1}};
    std::vector<std::future<int>> ranks;
    for (int rank = 0; rank < 3; ++rank) {
        ranks.push_back(std::async(std::launch::async, [&, rank] {
            Context context(world.environment(rank), detail::connect_store(at(server.endpoint()), seconds(10)),
                            world.options());
            int sum = 1 << rank;
            context.world().all_reduce(sum, ReduceOp::Sum).wait();
            return sum;
        }));
    }
    for (auto& rank : ranks) CHECK(rank.get() == 7);
}
