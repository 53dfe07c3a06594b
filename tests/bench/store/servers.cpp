#include "tests/bench/store/servers.hpp"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <thread>

namespace ddprun::bench {
namespace {

using namespace std::chrono_literals;

constexpr int kAnswerMs = 5000;
constexpr auto kStartTimeout = 60s;  // importing PyTorch from a cold disk

/// Says its port and version, then serves until it is stopped. The argument: libuv or not, where that can be
/// said.
constexpr const char* kTorchServer = R"(
import datetime, inspect, signal, sys, torch, torch.distributed as dist
options = {}
if sys.argv[1] != 'default': options['use_libuv'] = sys.argv[1] == 'uv'
store = dist.TCPStore('127.0.0.1', 0, is_master=True, wait_for_workers=False, **options)
print(store.port, torch.__version__, flush=True)
while True: signal.pause()
)";

/// Empty when nobody listens there.
UniqueFd connect_to(std::uint16_t port) {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const sockaddr_in address{.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) fd.reset();
    return fd;
}

/// What was stored comes back. Whoever answers fast but wrong takes no part.
bool keeps_values(const Server& server) {
    const std::string value = "stored by bench_store";
    const Protocol& protocol = *server.protocol;
    const std::string bytes = protocol.greeting() + protocol.set("/check", value).bytes + protocol.sync().bytes +
                              protocol.get("/check", value.size()).bytes;
    const UniqueFd fd = connect_to(server.port);
    if (::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) != ssize_t(bytes.size())) return false;
    std::string answer;
    for (std::array<char, 1024> buffer; answer.find(value) == std::string::npos;) {
        pollfd readable{.fd = fd.get(), .events = POLLIN, .revents = 0};
        if (::poll(&readable, 1, kAnswerMs) != 1) return false;
        const ssize_t n = ::recv(fd.get(), buffer.data(), buffer.size(), 0);
        if (n <= 0) return false;
        answer.append(buffer.data(), std::size_t(n));
    }
    return true;
}

/// For servers that cannot choose one. Somebody else may take it before they do: the caller tries again.
std::uint16_t free_port() {
    const UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof(address);
    ::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length);
    ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length);
    return ntohs(address.sin_port);
}

bool wait_until_accepting(Server& server) {
    const auto deadline = std::chrono::steady_clock::now() + kStartTimeout;
    while (std::chrono::steady_clock::now() < deadline && server.process->running()) {
        if (connect_to(server.port)) return true;
        std::this_thread::sleep_for(10ms);
    }
    return false;
}

/// Reads "PORT VERSION" from the server's first line.
bool read_announcement(Server& server) {
    std::string line = server.process->first_line(kStartTimeout);
    if (line.starts_with("store listening on ")) {  // ddprund's
        line.erase(0, line.rfind(':') + 1);
    }
    const auto [end, error] = std::from_chars(line.data(), line.data() + line.size(), server.port);
    if (error != std::errc{} || server.port == 0) return false;
    if (*end == ' ') server.version = end + 1;
    return true;
}

std::filesystem::path self() { return std::filesystem::read_symlink("/proc/self/exe"); }

bool start(Server& server, const std::vector<std::string>& command, int cpu) {
    server.process = std::make_unique<Process>(command, cpu);
    return read_announcement(server) && wait_until_accepting(server);
}

std::shared_ptr<const Protocol> floor_protocol(const std::string& name) {
    if (name == "echo") return make_echo_protocol();
    if (name == "gate") return make_gate_protocol();
    return make_plain_protocol();
}

bool start_ddprund(Server& server, const std::string& program, int cpu) {
    server.protocol = make_modern_tcpstore_protocol();
    server.version = program;
    return start(server, {program, "--store", "127.0.0.1:0"}, cpu);
}

std::vector<std::string> redis_command(std::uint16_t port) {
    return {"redis-server",
            "--port",
            std::to_string(port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--appendonly",
            "no",
            "--daemonize",
            "no",
            "--maxclients",
            "19000",
            "--logfile",
            "/dev/null",
            "--loglevel",
            "warning",
            "--dir",
            "/tmp",
            "--timeout",
            "0",
            "--io-threads",
            "1",
            "--proto-max-bulk-len",
            "1gb"};
}

bool start_redis(Server& server, int cpu) {
    server.protocol = make_redis_protocol();
    for (int tries = 0; tries < 5; ++tries) {
        server.port = free_port();
        server.process = std::make_unique<Process>(redis_command(server.port), cpu);
        if (wait_until_accepting(server)) return true;
    }
    return false;
}

/// Null: not to be read, or 2.1, whose dialect the benchmark does not speak.
std::shared_ptr<const Protocol> torch_protocol(const std::string& version) {
    int major = 0, minor = 0;
    const char* last = version.data() + version.size();
    const auto parsed = std::from_chars(version.data(), last, major);
    if (parsed.ptr == last || std::from_chars(parsed.ptr + 1, last, minor).ec != std::errc{}) return nullptr;
    if (major == 1 || (major == 2 && minor == 0)) return make_old_tcpstore_protocol();
    if (major == 2 && minor == 1) return nullptr;
    return make_modern_tcpstore_protocol();
}

bool start_torch(Server& server, const std::string& python, const std::string& loop, int cpu) {
    server.process = std::make_unique<Process>(std::vector<std::string>{python, "-c", kTorchServer, loop}, cpu);
    if (!read_announcement(server)) return false;
    server.protocol = torch_protocol(server.version);
    return server.protocol && wait_until_accepting(server);
}

}  // namespace

Servers::Servers(ServerOptions options)
    : options_(std::move(options)), names_{"plain", "plain-hot", "echo", "gate", "ours"} {
    if (options_.ddprund.empty()) options_.ddprund = self().parent_path() / "../bin/ddprund";
    if (!options_.before.empty()) names_.push_back("before");
    names_.insert(names_.end(), {"redis", "torch"});
    if (!options_.torch_python.empty()) names_.insert(names_.end(), {"torch2", "torch2-uv"});
}

std::unique_ptr<Server> Servers::start(const std::string& name, std::string& why) const {
    const int cpu = options_.pin ? 1 : -1;
    auto server = std::make_unique<Server>();
    server->name = name;
    bool started = false;
    const bool keeps_nothing = name.starts_with("plain") || name == "gate";
    if (keeps_nothing || name == "echo") {
        server->protocol = floor_protocol(name);
        started = bench::start(*server, {self(), "--serve", name}, cpu);
    } else if (name == "ours" || name == "before") {
        const std::string& program = name == "ours" ? options_.ddprund : options_.before;
        why = fmt::format("'{} --store 127.0.0.1:0' does not start. Build ddprund, or name one that has --store",
                          program);
        started = start_ddprund(*server, program, cpu);
    } else if (name == "redis") {
        why = "redis-server is not installed (Debian: apt install redis-server)";
        started = start_redis(*server, cpu);
    } else if (name == "torch") {
        why = "/usr/bin/python3 has no PyTorch whose store answers (Debian: apt install python3-torch)";
        started = start_torch(*server, "/usr/bin/python3", "default", cpu);
    } else {
        why = fmt::format("{} has no PyTorch whose store answers", options_.torch_python);
        started = start_torch(*server, options_.torch_python, name == "torch2-uv" ? "uv" : "poll", cpu);
    }
    if (started && (keeps_nothing || keeps_values(*server))) return server;
    if (started) why = "it does not give back what was stored";
    if (why.empty()) why = "it did not start";
    return nullptr;
}

}  // namespace ddprun::bench
