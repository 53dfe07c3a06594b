#include "rendezvous/daemon/options.hpp"

#include <fcntl.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <vector>

#include "common/ids.hpp"
#include "common/job_limits.hpp"
#include "common/option_errors.hpp"
#include "common/text/number.hpp"

namespace ddprun::daemon {
namespace {

using std::chrono::milliseconds;

constexpr const char* kFooter =
    "\n"
    "It serves one job: gathers the nodes, gives them ranks, opens an empty TCPStore for every group of workers,\n"
    "and ends with the job.\n"
    "\n"
    "With --store it is instead a TCPStore server alone, for PyTorch processes and torchrun agents that others start\n"
    "(MASTER_ADDR, MASTER_PORT and TORCHELASTIC_USE_AGENT_STORE=True, or --rdzv-endpoint with --rdzv-conf is_host=0).\n"
    "It prints 'store listening on HOST:PORT', sends READY=1 to $NOTIFY_SOCKET where that is set (systemd's\n"
    "Type=notify), logs statistics on SIGUSR1, and ends on SIGTERM, SIGINT, SIGHUP or SIGQUIT, then with 0.\n"
    "\n"
    "Limits of a store, with their defaults (K, M, G and T may follow a number):\n"
    "{}"
    "\n"
    "Exit codes: 0 the job has its verdict, whatever that is; 2 wrong usage; 69 the port could not be opened, or\n"
    "no agent was connected for --linger seconds; 128 + n ended by signal n; 70 a bug.";

/// Returns "  key-bytes 8192      longest key", in columns.
std::string limit_table() {
    const store::Limits defaults;
    std::string lines;
    for (const auto& [name, field, help] : store::kLimitOptions)
        lines += fmt::format("  {:<25}{:<12}{}\n", name, defaults.*field, help);
    return lines;
}

/// Adds an option in seconds, decimals allowed, that sets `target`.
void add_seconds(CLI::App& app, const std::string& name, milliseconds& target, const std::string& text) {
    const auto set = [&target](const double& seconds) { target = milliseconds(std::llround(seconds * 1000)); };
    app.add_option_function<double>(name, set, text)
        ->check([](const std::string& typed) { return check_seconds(typed, 0.001, kMaxSeconds); })
        ->type_name("SECONDS")
        ->default_str(seconds_number(target));
}

std::string numeric_address(const std::string& text) {
    boost::system::error_code ec;
    boost::asio::ip::make_address(text, ec);
    if (!ec) return {};
    return fmt::format("'{}' is not a numeric address: 127.0.0.1, 10.0.0.7, ::1, or 0.0.0.0 for all of this host",
                       text);
}

/// Returns the error in an address of the stores, to which workers connect; empty: none.
std::string store_address_error(const std::string& text) {
    boost::system::error_code ec;
    const auto address = boost::asio::ip::make_address(text, ec);
    if (ec) return fmt::format("'{}' is not a numeric address: 127.0.0.1, 10.0.0.7, or ::1", text);
    if (!address.is_unspecified()) return {};
    return fmt::format(
        "'{}' becomes MASTER_ADDR, and no worker can connect to it: pass an address of this host, such as 10.0.0.7, or "
        "leave out the option",
        text);
}

std::string open_descriptor(const std::string& text) {
    int fd = -1;
    if (!CLI::detail::lexical_cast(text, fd) || fd < 0 || ::fcntl(fd, F_GETFD) < 0) {
        return fmt::format("'{}' is not an open file descriptor", text);
    }
    return {};
}

/// The texts of --store and of the options that need it.
struct StoreText {
    std::string endpoint;
    std::vector<std::string> limits;
    std::string older_dialect{to_string(store::Options().older_dialect)};
};

constexpr const char* kStoreGroup = "A store alone";

void add_store_options(CLI::App& app, StoreText& text) {
    auto* const store =
        app.add_option("--store", text.endpoint, "serve a TCPStore at HOST:PORT and nothing else; port 0: a free one")
            ->type_name("HOST:PORT")
            ->group(kStoreGroup);
    app.add_option("--store-limit", text.limits, "close a connection that asks for more than this; the names are below")
        ->type_name("NAME=VALUE")
        ->allow_extra_args(false)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->group(kStoreGroup)
        ->needs(store);
    app.add_option("--older-dialect", text.older_dialect,
                   "what clients older than PyTorch 2.2 speak: 1.13 (also 2.0), 2.1, or none to refuse them")
        ->type_name("VERSION")
        ->capture_default_str()
        ->group(kStoreGroup)
        ->needs(store);
}

Result<StoreMode> store_mode(const StoreText& text) {
    StoreMode mode;
    const auto endpoint = parse_store_endpoint(text.endpoint);
    if (!endpoint) return endpoint.error();
    mode.listen = *endpoint;
    for (const std::string& limit : text.limits)
        if (const auto taken = apply_store_limit(limit, mode.store.limits); !taken) return taken.error();
    const auto dialect = parse_older_dialect(text.older_dialect);
    if (!dialect) return dialect.error();
    mode.store.older_dialect = *dialect;
    return mode;
}

/// Returns the first option that was given although only a job's daemon has it; empty: none.
std::string job_option_given(const CLI::App& app) {
    for (const char* name : {"--bind", "--port", "--store-address", "--run-id", "--step", "--hosts", "--starter-fd",
                             "--standby", "--linger", "--join-timeout", "--last-call", "--insecure", "--store-vouch",
                             "--heartbeat-interval", "--lost-after", "--hold"})
        if (app.count(name) > 0) return name;
    return {};
}

}  // namespace

std::variant<Options, int> parse_options(int argc, const char* const* argv) {
    Options options;
    coordinator::Config& job = options.daemon.job;
    std::string bind = "127.0.0.1";
    std::optional<std::string> store_address;
    CLI::App app("ddprund: the rendezvous daemon of ddprun.", "ddprund");
    app.footer(fmt::format(kFooter, limit_table()));
    app.set_version_flag("--version", "ddprund " DDPRUN_VERSION);
    app.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    app.add_option("--bind", bind, "numeric address to listen on, for agents and stores")
        ->check(numeric_address)
        ->type_name("ADDR")
        ->capture_default_str();
    app.add_option("--port", options.daemon.port, "port for agents; 0: a free one")
        ->check(check_port)
        ->type_name("N")
        ->capture_default_str();
    app.add_option("--store-address", store_address,
                   "numeric address of the stores, which becomes MASTER_ADDR (default: that of --bind, as each node "
                   "reaches it)")
        ->check(store_address_error)
        ->type_name("ADDR");
    app.add_option("--run-id", job.run_id,
                   "name of the job; agents that name another are refused (default: a random one)")
        ->check([](const std::string& id) { return check_run_id(id); })
        ->type_name("ID");
    app.add_option("--step", job.step,
                   "name of the scheduler's job step, by which its nodes find this daemon (default: none)")
        ->check([](const std::string& name) { return check_run_id(name); })
        ->type_name("NAME");
    app.add_option("--hosts", job.hosts, "hosts of that step: those that have not joined yet are named (default: none)")
        ->delimiter(',')
        ->type_name("HOST,...");
    app.add_option("--ready-fd", options.ready_fd,
                   "write {\"address\", \"port\", \"run_id\"} there when listening, and close it")
        ->check(open_descriptor)
        ->type_name("FD");
    app.add_option("--starter-fd", options.starter_fd,
                   "end-of-file there: the program that started this one has ended; end, unless an agent has joined")
        ->check(open_descriptor)
        ->type_name("FD");
    app.add_flag("--standby", options.standby, "wait until the port is free, or --starter-fd reads end-of-file");
    add_seconds(app, "--linger", options.daemon.job.linger, "end after this time without any agent");
    add_seconds(app, "--join-timeout", job.join_timeout, "how long to wait for MIN nodes");
    add_seconds(app, "--last-call", job.last_call, "with MIN nodes here, how long to wait for more, up to MAX");
    add_seconds(app, "--heartbeat-interval", job.heartbeat_interval, "interval of the heartbeats of each side");
    add_seconds(app, "--lost-after", job.lost_after, "silence after which a node is lost");
    add_seconds(app, "--hold", job.hold, "silence after which a node ends its workers, which wait until then");
    app.add_flag("--insecure", options.insecure,
                 "no TLS, even if --bind lets other hosts connect; all nodes of the job need this option then");
    app.add_flag("--store-vouch", options.daemon.store_vouch,
                 "serve clients of stores on other hosts only if the agent there confirms that they are of its user");
    app.add_option("--log-file", options.log_file, "append log lines to this file as well")->type_name("PATH");
    app.add_flag("--quiet", options.quiet, "log warnings and errors only, unless LOGLEVEL is set");
    StoreText store;
    add_store_options(app, store);
    try {
        app.parse(argc, argv);
    } catch (const CLI::Success& asked) {  // --help, --version
        return print_requested(app, asked);
    } catch (const CLI::ParseError& error) {
        return refuse_usage(app, text_of(app, error));
    }
    if (app.count("--store") > 0) {
        if (const std::string name = job_option_given(app); !name.empty())
            return refuse_usage(app,
                                name + " is an option of a job's daemon; a store alone (--store) does not take it");
        const auto mode = store_mode(store);
        if (!mode) return refuse_usage(app, mode.error().message);
        options.store = *mode;
        return options;
    }
    // A confirmation may be two intervals old, and the lease of a node ends one before it is lost (docs/design/026).
    if (job.lost_after < 4 * job.heartbeat_interval)
        return refuse_usage(app,
                            "--lost-after must be at least four times --heartbeat-interval, or a late heartbeat looks "
                            "like a lost node");
    if (job.hold < job.lost_after)
        return refuse_usage(
            app, "--hold must be at least --lost-after, or nodes end their workers while the daemon waits for them");
    options.daemon.bind = boost::asio::ip::make_address(bind);
    if (store_address) options.daemon.store_address = boost::asio::ip::make_address(*store_address);
    if (options.daemon.store_vouch && (options.insecure || !have_one_address(options.daemon)))
        return refuse_usage(app,
                            "--store-vouch needs workers with the addresses of their agents, and TLS: leave out "
                            "--insecure and --store-address, and let --bind name one address");
    if (job.run_id.empty()) job.run_id = random_id();
    job.session = random_id();
    if (!options.insecure) job.worker_key = random_id() + random_id();  // with --insecure it would travel in clear
    return options;
}

}  // namespace ddprun::daemon
