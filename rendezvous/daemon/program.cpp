#include "rendezvous/daemon/program.hpp"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/json.hpp>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "common/endpoint.hpp"
#include "common/exit_codes.hpp"
#include "common/unique_fd.hpp"
#include "rendezvous/daemon/report.hpp"

namespace ddprun::daemon {
namespace {

namespace asio = boost::asio;

bool log_to_file(const std::string& path) {
    try {
        auto sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(path);
        sink->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %v");
        spdlog::default_logger()->sinks().push_back(std::move(sink));
        spdlog::default_logger()->flush_on(spdlog::level::info);
        return true;
    } catch (const spdlog::spdlog_ex& error) {
        spdlog::error("cannot write --log-file {}: {}", path, error.what());
        return false;
    }
}

/// {"address":"127.0.0.1","port":29400,"run_id":"…"} to whoever started us.
void say_ready(UniqueFd fd, const asio::ip::tcp::endpoint& endpoint, const std::string& run_id) {
    const boost::json::object ready{
        {"address", endpoint.address().to_string()}, {"port", endpoint.port()}, {"run_id", run_id}};
    const std::string line = boost::json::serialize(ready) + "\n";
    std::size_t written = 0;
    while (written < line.size()) {
        const ssize_t n = ::write(fd.get(), line.data() + written, line.size() - written);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            spdlog::warn("nobody reads --ready-fd: {}", std::strerror(errno));
            return;
        }
        written += static_cast<std::size_t>(n);
    }
}

void announce(const asio::ip::tcp::endpoint& endpoint, const std::string& run_id) {
    const std::string where = to_string(Endpoint{endpoint.address().to_string(), endpoint.port()});
    spdlog::info("ddprund {} serves run '{}' at {}", DDPRUN_VERSION, printable(run_id), where);
    if (!endpoint.address().is_loopback()) {
        spdlog::warn(
            "INSECURE: {} can be reached from other hosts, and this traffic is neither authenticated nor encrypted "
            "yet: "
            "whoever reaches it can join the job and read and change its store. Use a network that you trust, or "
            "--bind 127.0.0.1.",
            where);
    }
}

}  // namespace

int run_program(const Options& options) {
    UniqueFd ready_fd(options.ready_fd.value_or(-1));
    if (!options.log_file.empty() && !log_to_file(options.log_file)) return exit_code::kUsage;

    asio::io_context io(1);
    const auto listening = Daemon::listen(io.get_executor(), options.daemon);
    if (!listening) {
        spdlog::error("{}", listening.error().message);
        return exit_code::kInfrastructure;
    }
    const std::shared_ptr<Daemon> daemon = *listening;

    asio::signal_set signals(io, SIGINT, SIGTERM);
    signals.async_wait([&](const boost::system::error_code& ec, int signal) {
        if (!ec) daemon->stop(signal);
    });
    int code = exit_code::kInternal;
    asio::co_spawn(io, daemon->run(), [&](std::exception_ptr thrown, int result) {
        if (thrown) std::rethrow_exception(thrown);
        code = result;
        io.stop();  // every agent was told; what is left are strangers
    });
    announce(daemon->endpoint(), options.daemon.job.run_id);
    if (ready_fd) say_ready(std::move(ready_fd), daemon->endpoint(), options.daemon.job.run_id);
    io.run();
    return code;
}

}  // namespace ddprun::daemon
