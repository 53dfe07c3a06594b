#pragma once
// A daemon in the test's own io_context, on a free port of the loopback, with short times.

#include <memory>
#include <optional>

#include "rendezvous/daemon/daemon.hpp"
#include "tests/unit/rendezvous/daemon/fake_agent.hpp"

namespace ddprun::test {

inline daemon::DaemonConfig quick_config() {
    daemon::DaemonConfig config;
    config.port = 0;
    config.job.linger = 20s;
    config.handshake_time = 1s;
    config.job.run_id = "run";
    config.job.heartbeat_interval = 100ms;
    config.job.lost_after = 20s;  // tests without a silent node must not have one, however slow the machine is
    config.job.reconnect_grace = 100ms;
    config.job.last_call = 400ms;  // time for a second node to join, on a busy machine too
    return config;
}

struct DaemonFixture {
    explicit DaemonFixture(daemon::DaemonConfig config = quick_config())
        : daemon(daemon::Daemon::listen(io.get_executor(), std::move(config)).value()) {
        spawn(io, serve());
    }

    std::shared_ptr<FakeAgent> agent(protocol::Join join) {
        return std::make_shared<FakeAgent>(io, endpoint(), std::move(join));
    }
    [[nodiscard]] Endpoint endpoint() const {
        return {daemon->endpoint().address().to_string(), daemon->endpoint().port()};
    }
    [[nodiscard]] bool running() const { return !exit_code.has_value(); }
    awaitable<bool> has_ended(Duration limit = 10s) {
        return eventually([this] { return exit_code.has_value(); }, limit);
    }

    asio::io_context io{1};
    std::shared_ptr<daemon::Daemon> daemon;
    std::optional<int> exit_code;

private:
    awaitable<void> serve() { exit_code = co_await daemon->run(); }
};

}  // namespace ddprun::test
