// Host names: what a name server that does not answer can keep waiting, which is nobody.
#include "rendezvous/client/resolve.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <future>
#include <optional>

#include "tests/catch.hpp"

using namespace ddprun;
using client::Addresses;
namespace asio = boost::asio;

namespace {

/// A name server that answers when it is told to, or at the end of the test.
struct SilentServer {
    std::shared_ptr<std::promise<void>> speak = std::make_shared<std::promise<void>>();
    client::LookUp look_up = [told = speak->get_future().share()](const Endpoint&) -> Result<Addresses> {
        told.wait();
        return Addresses{asio::ip::tcp::endpoint(asio::ip::make_address("192.0.2.1"), 1)};
    };
    ~SilentServer() {
        if (!told) speak->set_value();
    }
    bool told = false;
};

/// Resolves "host:1" on `io`; the result once it is there.
std::shared_ptr<std::optional<Result<Addresses>>> start(asio::io_context& io, TimePoint deadline,
                                                        client::LookUp look_up, std::string host = "host") {
    auto result = std::make_shared<std::optional<Result<Addresses>>>();
    const Endpoint endpoint{std::move(host), 1};
    asio::co_spawn(io, client::resolve(endpoint, deadline, std::move(look_up)),
                   [result](std::exception_ptr error, Result<Addresses> addresses) {
                       if (error) std::rethrow_exception(error);
                       *result = std::move(addresses);
                   });
    return result;
}

}  // namespace

TEST_CASE("a name server that does not answer is given up at the deadline", "[client][unit]") {
    asio::io_context io(1);
    SilentServer server;
    const auto result = start(io, Clock::now() + std::chrono::milliseconds(50), server.look_up);
    io.run_for(std::chrono::seconds(20));
    REQUIRE(result->has_value());
    REQUIRE_FALSE((*result)->has_value());
    CHECK((*result)->error().code == Errc::kTimeout);
    CHECK((*result)->error().message == "no name server has answered for 'host'");
}

TEST_CASE("the end of a program does not wait for a name server", "[client][unit]") {
    SilentServer server;
    const TimePoint begin = Clock::now();
    {
        asio::io_context io(1);
        const auto result = start(io, TimePoint::max(), server.look_up);
        io.run_for(std::chrono::milliseconds(20));
        CHECK_FALSE(result->has_value());
    }
    CHECK(Clock::now() - begin < std::chrono::seconds(10));  // with a join it would be for ever
}

TEST_CASE("an answer ends the wait; numeric addresses need none", "[client][unit]") {
    asio::io_context io(1);
    SilentServer server;
    const auto result = start(io, Clock::now() + std::chrono::seconds(60), server.look_up);
    const auto numeric = start(io, TimePoint::max(), server.look_up, "::1");
    while (!numeric->has_value()) REQUIRE(io.run_one_for(std::chrono::seconds(20)) == 1);
    io.run_for(std::chrono::milliseconds(20));
    CHECK_FALSE(result->has_value());
    CHECK((*numeric)->value().front().address().to_string() == "::1");
    server.speak->set_value();
    server.told = true;
    io.run_for(std::chrono::seconds(20));
    REQUIRE(result->has_value());
    CHECK((*result)->value().front().address().to_string() == "192.0.2.1");
}

TEST_CASE("the system knows localhost", "[client][unit]") {
    const auto addresses = client::ask_system({"localhost", 4711});
    REQUIRE(addresses.has_value());
    REQUIRE_FALSE(addresses->empty());
    CHECK(addresses->front().port() == 4711);
    CHECK(addresses->front().address().is_loopback());
    const std::string impossible(70, 'x');  // a label has at most 63 bytes: no name server is asked
    const auto unknown = client::ask_system({impossible, 1});
    REQUIRE_FALSE(unknown.has_value());
    CHECK_THAT(unknown.error().message, Catch::StartsWith("no address for '" + impossible + "': "));
}
