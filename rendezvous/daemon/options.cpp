#include "rendezvous/daemon/options.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>

#include "common/exit_codes.hpp"
#include "common/ids.hpp"

namespace ddprun::daemon {
namespace {

using std::chrono::milliseconds;

constexpr double kLongestSeconds = 1e7;  // almost four months

constexpr const char* kFooter =
    "\n"
    "It serves one job: gathers the nodes, gives them ranks, opens an empty TCPStore for every group of workers,\n"
    "and ends with the job.\n"
    "\n"
    "Exit codes: 0 the job has its verdict, whatever that is; 2 wrong usage; 69 the port could not be opened, or\n"
    "no agent was connected for --linger seconds; 128 + n told to end by signal n; 70 a bug.";

std::string seconds_in_range(const std::string& text) {
    double seconds = 0;
    const bool number = CLI::detail::lexical_cast(text, seconds);
    // Written so that not-a-number fails.
    if (number && seconds >= 0.001 && seconds <= kLongestSeconds) return {};
    return fmt::format("'{}' is not a number of seconds from 0.001 to {:.0f}", text, kLongestSeconds);
}

/// An option in seconds, decimals allowed, that sets `target`.
void add_seconds(CLI::App& app, const std::string& name, milliseconds& target, const std::string& text) {
    const auto set = [&target](const double& seconds) { target = milliseconds(std::llround(seconds * 1000)); };
    app.add_option_function<double>(name, set, text)
        ->check(seconds_in_range)
        ->type_name("SECONDS")
        ->default_str(fmt::format("{}", std::chrono::duration<double>(target).count()));
}

std::string numeric_address(const std::string& text) {
    boost::system::error_code ec;
    boost::asio::ip::make_address(text, ec);
    if (!ec) return {};
    return fmt::format("'{}' is not a numeric address: 127.0.0.1, 10.0.0.7, ::1, or 0.0.0.0 for all of this host",
                       text);
}

std::string open_descriptor(const std::string& text) {
    int fd = -1;
    if (!CLI::detail::lexical_cast(text, fd) || fd < 0 || ::fcntl(fd, F_GETFD) < 0) {
        return fmt::format("'{}' is not an open file descriptor", text);
    }
    return {};
}

int complain(const std::string& what) {
    fmt::print(stderr, "ddprund: {}. See ddprund --help.\n", what);
    return exit_code::kUsage;
}

}  // namespace

std::variant<Options, int> parse_options(int argc, const char* const* argv) {
    Options options;
    coordinator::Config& job = options.daemon.job;
    std::string bind = "127.0.0.1";
    CLI::App app("ddprund: the rendezvous daemon of ddprun.", "ddprund");
    app.footer(kFooter);
    app.set_version_flag("--version", "ddprund " DDPRUN_VERSION);
    app.add_option("--bind", bind, "numeric address to listen on, for agents and stores")
        ->check(numeric_address)
        ->type_name("ADDR")
        ->capture_default_str();
    app.add_option("--port", options.daemon.port, "port for agents; 0: a free one")
        ->type_name("N")
        ->capture_default_str();
    app.add_option("--run-id", job.run_id,
                   "name of the job; agents that name another are refused (default: a random one)")
        ->check([](const std::string& id) { return id.empty() || id.size() > 255 ? "give 1 to 255 bytes" : ""; })
        ->type_name("ID");
    app.add_option("--ready-fd", options.ready_fd,
                   "write {\"address\", \"port\", \"run_id\"} there when listening, and close it")
        ->check(open_descriptor)
        ->type_name("FD");
    add_seconds(app, "--linger", options.daemon.linger, "end when no agent has been connected for so long");
    add_seconds(app, "--join-timeout", job.join_timeout, "how long to wait for MIN nodes");
    add_seconds(app, "--last-call", job.last_call, "with MIN nodes here, how long to wait for more, up to MAX");
    add_seconds(app, "--heartbeat-interval", job.heartbeat_interval, "how often each side says that it is alive");
    add_seconds(app, "--lost-after", job.lost_after, "silence after which a node is lost");
    app.add_option("--log-file", options.log_file, "append log lines to this file as well")->type_name("PATH");
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& asked) {  // --help, --version
        return app.exit(asked);
    } catch (const CLI::ParseError& error) {
        return complain(error.what());
    }
    if (job.lost_after < 2 * job.heartbeat_interval) {
        return complain(
            "--lost-after must be at least twice --heartbeat-interval, or a late heartbeat looks like a lost node");
    }
    options.daemon.bind = boost::asio::ip::make_address(bind);
    if (job.run_id.empty()) job.run_id = random_id();
    return options;
}

}  // namespace ddprun::daemon
