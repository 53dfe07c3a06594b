#include "rendezvous/daemon/program.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <spdlog/sinks/sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/json.hpp>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>

#include "common/endpoint.hpp"
#include "common/exit_codes.hpp"
#include "common/job_key.hpp"
#include "common/system/probe_bind.hpp"
#include "common/system/process.hpp"
#include "common/system/signals.hpp"
#include "common/system/unique_fd.hpp"
#include "common/text/escape.hpp"
#include "rendezvous/daemon/startup.hpp"

namespace ddprun::daemon {
namespace {

namespace asio = boost::asio;

constexpr std::chrono::milliseconds kStandbyInterval{50};

/// Returns {"address":"127.0.0.1","port":29400,"run_id":"…","pid":71} and a newline.
std::string ready_line(const asio::ip::tcp::endpoint& endpoint, const std::string& run_id) {
    const boost::json::object ready{{"address", endpoint.address().to_string()},
                                    {"port", endpoint.port()},
                                    {"run_id", run_id},
                                    {"pid", ::getpid()}};
    return boost::json::serialize(ready) + "\n";
}

/// Returns the rules for connections from other hosts, with the job key if there may be any.
Result<transport::Security> security_of(const Options& options) {
    if (options.insecure || options.daemon.bind.is_loopback()) return transport::make_security({}, options.insecure);
    auto key = JobKey::load(parse_environment(::environ));
    if (!key)
        return with_context(fmt::format("cannot listen on {} without --insecure", options.daemon.bind.to_string()),
                            key.error());
    return transport::make_security(*key, false);
}

/// Waits until a daemon can listen at the port, or fails for another reason than that the port is in use. Returns false
/// if the starter has ended, or needs no daemon, before.
bool stand_by(const Options& options) {
    const Endpoint wanted{options.daemon.bind.to_string(), options.daemon.port};
    pollfd starter{options.starter_fd.value_or(-1), POLLIN, 0};
    while (probe_bind(wanted) == EADDRINUSE) {
        if (::poll(&starter, 1, static_cast<int>(kStandbyInterval.count())) == 1) return false;
    }
    return true;
}

/// Reports end-of-file on `starter`, and each text that is written there: why no further node will join. One read
/// returns one text: it is short, and the socket of ddprun keeps texts apart.
void watch_starter(asio::posix::stream_descriptor& starter, Daemon& daemon) {
    static std::array<char, 1024> why;
    starter.async_read_some(asio::buffer(why), [&](const boost::system::error_code& error, std::size_t size) {
        if (error == asio::error::operation_aborted) return;
        if (error) return daemon.starter_ended();
        daemon.no_more_nodes(std::string(why.data(), size));
        watch_starter(starter, daemon);
    });
}

}  // namespace

int run_program(const Options& options) {
    if (options.quiet && std::getenv("LOGLEVEL") == nullptr) {
        // A --log-file, which becomes another sink, still gets everything.
        for (const auto& sink : spdlog::default_logger()->sinks()) sink->set_level(spdlog::level::warn);
    }
    UniqueFd ready_fd(options.ready_fd.value_or(-1));
    if (!options.log_file.empty() && !log_to_file(options.log_file)) return exit_code::kUsage;

    auto security = security_of(options);
    if (!security) {
        spdlog::error("{}", security.error().message);
        return exit_code::kUsage;
    }
    DaemonConfig config = options.daemon;
    config.security = std::move(*security);

    asio::io_context io(1);
    if (options.standby && !stand_by(options)) return exit_code::kSuccess;
    auto listening = Daemon::listen(io.get_executor(), config);
    while (options.standby && !listening && listening.error().code == Errc::kInUse) {  // another one was faster
        if (!stand_by(options)) return exit_code::kSuccess;
        listening = Daemon::listen(io.get_executor(), config);
    }
    if (!listening) {
        spdlog::error("{}", listening.error().message);
        return exit_code::kInfrastructure;
    }
    const std::shared_ptr<Daemon> daemon = *listening;

    asio::signal_set signals(io, SIGINT, SIGTERM, SIGQUIT);
    if (!is_ignored(SIGHUP)) signals.add(SIGHUP);  // else nohup
    signals.async_wait([&](const boost::system::error_code& ec, int signal) {
        if (!ec) daemon->stop(signal);
    });
    int code = exit_code::kInternal;
    asio::co_spawn(io, daemon->run(), [&](std::exception_ptr thrown, int result) {
        if (thrown) std::rethrow_exception(thrown);
        code = result;
        io.stop();  // every agent has its final message; the connections that are left have not joined
    });
    asio::posix::stream_descriptor starter(io);
    if (options.starter_fd) starter.assign(*options.starter_fd);
    if (options.starter_fd) watch_starter(starter, *daemon);
    const Endpoint here{daemon->endpoint().address().to_string(), daemon->endpoint().port()};
    spdlog::info("ddprund {} serves run '{}' at {}", DDPRUN_VERSION, log_line(options.daemon.job.run_id),
                 to_string(here));
    if (ready_fd) report_ready(std::move(ready_fd), ready_line(daemon->endpoint(), options.daemon.job.run_id));
    io.run();
    return code;
}

}  // namespace ddprun::daemon
