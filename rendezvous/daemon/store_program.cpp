#include "rendezvous/daemon/store_program.hpp"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/json.hpp>
#include <cassert>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "common/clock.hpp"
#include "common/endpoint.hpp"
#include "common/exit_codes.hpp"
#include "common/system/exit_status.hpp"
#include "common/system/signals.hpp"
#include "common/text/escape.hpp"
#include "common/text/number.hpp"
#include "rendezvous/daemon/startup.hpp"
#include "rendezvous/store/server/server.hpp"

namespace ddprun::daemon {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

/// Returns one address of the host. A name such as localhost may have both kinds; IPv4 is preferred, because every
/// client tries it.
Result<asio::ip::address> resolve(asio::io_context& io, const std::string& host) {
    error_code ec;
    if (const auto numeric = asio::ip::make_address(host, ec); !ec) return numeric;
    tcp::resolver resolver(io);
    const auto found = resolver.resolve(host, "", tcp::resolver::passive, ec);
    if (ec || found.empty()) {
        return Error{Errc::kUsage, fmt::format("--store: cannot find the address of host '{}': {}. Give a numeric "
                                               "address of this machine, 127.0.0.1, or 0.0.0.0 for all of them",
                                               log_line(host), ec.message())};
    }
    for (const auto& entry : found)
        if (entry.endpoint().address().is_v4()) return entry.endpoint().address();
    return found.begin()->endpoint().address();
}

/// The names of all kinds, in the order of RequestKind, as docs/protocol.md calls them.
constexpr std::array<std::string_view, store::kRequestKinds> kNames{
    "VALIDATE",   "SET",        "COMPARE_SET", "GET",       "ADD",       "CHECK",       "WAIT",
    "GETNUMKEYS", "DELETE_KEY", "APPEND",      "MULTI_GET", "MULTI_SET", "CANCEL_WAIT", "PING",
    "QUEUE_PUSH", "QUEUE_POP",  "QUEUE_LEN",   "LIST_KEYS", "BARRIER"};
static_assert(!kNames.back().empty(), "every kind has a name");

std::string amount(std::uint64_t bytes) {
    constexpr std::array<std::string_view, 5> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
    double number = static_cast<double>(bytes);
    std::size_t unit = 0;
    for (; number >= 1024 && unit + 1 < kUnits.size(); ++unit) number /= 1024;
    return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", number, kUnits[unit]);
}

std::string requests(const store::Statistics& now) {
    std::string kinds;
    for (std::size_t kind = 0; kind < now.requests.size(); ++kind) {
        if (now.requests[kind] == 0) continue;
        kinds += fmt::format("{}{} {}", kinds.empty() ? ": " : ", ", kNames[kind], now.requests[kind]);
    }
    return counted(now.request_count(), "request") + kinds;
}

/// Service: owns the store of this program, from the address to the statistics. run_store() makes one.
class Service {
public:
    static Result<std::unique_ptr<Service>> open(asio::io_context& io, const StoreMode& mode) {
        const auto address = resolve(io, mode.listen.host);
        if (!address) return address.error();
        auto server = store::StoreServer::listen(io.get_executor(), *address, mode.listen.port, mode.store);
        if (!server) return server.error();
        return std::unique_ptr<Service>(new Service(std::move(*server), *address));
    }

    [[nodiscard]] Endpoint endpoint() const { return {address_.to_string(), server_->port()}; }
    [[nodiscard]] bool loopback() const { return address_.is_loopback(); }
    /// Serves until `io`, which only waits for signals, is stopped.
    void run(asio::io_context& io) { server_->run(io); }
    void close() { server_->close(); }

    [[nodiscard]] std::string statistics() const {
        const auto up = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - opened_);
        return statistics_line(server_->statistics(), up);
    }

private:
    Service(std::unique_ptr<store::StoreServer> server, asio::ip::address address)
        : server_(std::move(server)), address_(std::move(address)) {}

    std::unique_ptr<store::StoreServer> server_;
    asio::ip::address address_;
    TimePoint opened_ = Clock::now();
};

void announce(const Service& service, const StoreMode& mode) {
    const std::string where = to_string(service.endpoint());
    // Scripts read this line, the only one on stdout. A closed stdout is not an error.
    fmt::print("store listening on {}\n", where);
    std::fflush(stdout);
    spdlog::info(
        "ddprund {} is a TCPStore at {} for clients of PyTorch 2.2 and later{}", DDPRUN_VERSION, where,
        mode.store.older_dialect == store::OlderDialect::kNone
            ? ""
            : fmt::format(", and for older ones in the dialect of PyTorch {}", to_string(mode.store.older_dialect)));
    if (!service.loopback()) {
        spdlog::warn(
            "INSECURE: {} can be reached from other hosts, and the TCPStore protocol has neither authentication nor "
            "encryption: every host that reaches it can read and change everything in it. Use a network that you "
            "trust, or "
            "--store 127.0.0.1:{}.",
            where, service.endpoint().port);
    }
}

std::string ready_line(const Endpoint& endpoint) {
    return boost::json::serialize(boost::json::object{{"address", endpoint.host}, {"port", endpoint.port}}) + "\n";
}

}  // namespace

std::string statistics_line(const store::Statistics& now, std::chrono::seconds up) {
    const std::string failures =
        now.accept_failures == 0 ? "" : fmt::format(", {} failed accepts", now.accept_failures);
    return fmt::format(
        "up {} s; {} ({} accepted, {} refused{}); {} and {} in {}; {}; {} in, {} out; "
        "{} buffered",
        up.count(), counted(now.connections, "connection"), now.accepted, now.refused, failures,
        counted(now.keys, "key"), counted(now.waiters, "wait"), amount(now.store_bytes), requests(now),
        amount(now.received_bytes), amount(now.sent_bytes), amount(now.buffer_bytes));
}

int run_store(const Options& options) {
    assert(options.store);
    UniqueFd ready_fd(options.ready_fd.value_or(-1));
    if (!options.log_file.empty() && !log_to_file(options.log_file)) return exit_code::kUsage;

    asio::io_context io(1);
    // The signals come before the port: a process that sees the port open may send one at once.
    asio::signal_set stop(io, SIGINT, SIGTERM, SIGQUIT);
    if (!is_ignored(SIGHUP)) stop.add(SIGHUP);  // else nohup
    asio::signal_set report(io, SIGUSR1);
    const auto opened = Service::open(io, *options.store);
    if (!opened) {
        spdlog::error("{}", opened.error().message);
        return opened.error().code == Errc::kUsage ? exit_code::kUsage : exit_code::kInfrastructure;
    }
    Service& service = **opened;

    stop.async_wait([&](const error_code& ec, int signal) {
        if (ec) return;
        notify_service_manager("STOPPING=1");
        spdlog::info("store {}: stopped by {}; {}", to_string(service.endpoint()), signal_name(signal),
                     service.statistics());
        service.close();
        io.stop();
    });
    std::function<void(const error_code&, int)> on_report = [&](const error_code& ec, int) {
        if (ec) return;
        spdlog::info("store {}: {}", to_string(service.endpoint()), service.statistics());
        report.async_wait(on_report);
    };
    report.async_wait(on_report);

    announce(service, *options.store);
    if (ready_fd) report_ready(std::move(ready_fd), ready_line(service.endpoint()));
    notify_service_manager("READY=1");
    service.run(io);
    return exit_code::kSuccess;
}

}  // namespace ddprun::daemon
