// Host names: a name server that does not answer delays nothing beyond the deadline.
#include "rendezvous/client/resolve.hpp"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <future>
#include <optional>
#include <utility>

#include "tests/catch.hpp"

using namespace ddprun;
namespace asio = boost::asio;

namespace {

/// A name server that answers at answer(), or at the end of the test.
class SilentServer {
public:
    ~SilentServer() { answer(); }
    void answer() {
        if (!std::exchange(answered_, true)) promise_.set_value();
    }

private:
    std::promise<void> promise_;
    bool answered_ = false;

public:
    LookUp look_up = [answered = promise_.get_future().share()](const Endpoint&) {
        answered.wait();
        return numeric_address({"192.0.2.1", 1});
    };
};

/// Resolves "host:1" on `io`; the result once it is there.
std::shared_ptr<std::optional<Result<Addresses>>> start(asio::io_context& io, TimePoint deadline, LookUp look_up,
                                                        std::string host = "host") {
    auto result = std::make_shared<std::optional<Result<Addresses>>>();
    const Endpoint endpoint{std::move(host), 1};
    asio::co_spawn(io, client::async_resolve(endpoint, deadline, std::move(look_up)),
                   [result](std::exception_ptr error, Result<Addresses> addresses) {
                       if (error) std::rethrow_exception(error);
                       *result = std::move(addresses);
                   });
    return result;
}

}  // namespace

TEST_CASE("a name server that does not answer is a timeout at the deadline", "[client][unit]") {
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

TEST_CASE("an answer ends the wait, numeric addresses need none", "[client][unit]") {
    asio::io_context io(1);
    SilentServer server;
    const auto result = start(io, Clock::now() + std::chrono::seconds(60), server.look_up);
    const auto numeric = start(io, TimePoint::max(), server.look_up, "::1");
    while (!numeric->has_value()) REQUIRE(io.run_one_for(std::chrono::seconds(20)) == 1);
    io.run_for(std::chrono::milliseconds(20));
    CHECK_FALSE(result->has_value());
    CHECK((*numeric)->value().front().bytes.ss_family == AF_INET6);
    server.answer();
    io.run_for(std::chrono::seconds(20));
    REQUIRE(result->has_value());
    CHECK((*result)->value().front().bytes.ss_family == AF_INET);
}
