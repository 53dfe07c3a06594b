// Processes that are no part of a job: of another user of this host, and hostile connections in number.

#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <vector>

#include "common/system/unique_fd.hpp"
#include "tests/catch.hpp"
#include "tests/e2e/process.hpp"

using Catch::Contains;
using e2e::Seconds;

namespace {

std::string program(const std::string& name) { return (e2e::bin() / name).string(); }

bool cannot_become_another_user() {
    if (::geteuid() == 0 && std::filesystem::exists("/usr/bin/setpriv")) return false;
    WARN("SKIPPED: needs root and setpriv");
    return true;
}

std::vector<std::string> as_nobody(std::vector<std::string> argv) {
    argv.insert(argv.begin(), {"/usr/bin/setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups"});
    return argv;
}

/// Lets other users write where programs of a test do.
void open_to_all(const e2e::Sandbox& sandbox) {
    for (const auto& folder : {sandbox.path(), sandbox.path() / "tmp"}) REQUIRE(::chmod(folder.c_str(), 0777) == 0);
}

/// Returns the number that follows `before` in a text; empty: it is not there, or may not be complete.
std::string number_after(const std::string& text, const std::string& before) {
    const auto at = text.find(before);
    if (at == std::string::npos) return "";
    const auto begin = at + before.size();
    const auto end = text.find_first_not_of("0123456789", begin);
    return end == std::string::npos ? "" : text.substr(begin, end - begin);
}

/// Returns a command that asks the TCPStore at a port for an echo, and prints the answer.
std::vector<std::string> ping(const std::string& port) {
    return {"bash", "-c",
            fmt::format(R"(exec 3<>/dev/tcp/127.0.0.1/{} && printf '\0\xce\xf7\x85\x3c\x0dping' >&3 && head -c 4 <&3)",
                        port)};
}

std::vector<std::string> client_of(const std::string& port, const std::string& is_host) {
    return {program("ddprun"), "--nnodes",           "2",    "--rdzv-endpoint", "127.0.0.1:" + port,
            "--rdzv-conf",     "is_host=" + is_host, "echo", "joined"};
}

}  // namespace

TEST_CASE("another user cannot join, inspect, or reach the stores of a job", "[e2e]") {
    if (cannot_become_another_user()) return;
    const e2e::Sandbox sandbox("other-user");
    open_to_all(sandbox);
    const bool standalone = GENERATE(true, false);
    const std::string where = standalone ? "--standalone" : "--rdzv-endpoint=127.0.0.1:0";
    e2e::Process job(sandbox, {.argv = {program("ddprun"), "--nnodes", "1", "--rdzv-conf", "is_host=1", where, "sh",
                                        "-c", "echo store $MASTER_PORT.; while [ ! -e end ]; do sleep 0.05; done"},
                               .env = {{"LOGLEVEL", "info"}},
                               .directory = sandbox.path()});
    std::string store, port;
    REQUIRE(e2e::eventually(Seconds(20), [&] {
        store = number_after(job.out(), "store ");
        port = number_after(job.err(), " at 127.0.0.1:");
        return !store.empty() && !port.empty();
    }));
    const auto attempt = [&](std::vector<std::string> argv) {
        return e2e::run(sandbox, {.argv = std::move(argv), .directory = sandbox.path()}, Seconds(20));
    };
    for (const std::string& at : {store, port}) {
        CAPTURE(at);
        CHECK(attempt(ping(at)).out == "ping");
        CHECK(attempt(as_nobody(ping(at))).out == "");
    }
    for (const auto& argv :
         {client_of(port, "0"), {program("ddpctl"), "dump", "--rdzv-endpoint", "127.0.0.1:" + port}}) {
        const auto outcome = attempt(as_nobody(argv));
        CAPTURE(argv, outcome.err);
        CHECK(outcome.status.exit_code() == 69);
        CHECK(outcome.out == "");
        CHECK_THAT(outcome.err, Contains(fmt::format("the server at 127.0.0.1:{} is a process of user 0 on this host, "
                                                     "where a daemon and its clients must belong to one user",
                                                     port)));
    }
    e2e::write_file(sandbox.path() / "end", "");
    CHECK(job.wait(Seconds(20)).exit_code() == 0);
    CHECK_THAT(job.err(), Contains("it is that of a process of user 65534, and on this host only those of user 0 are"));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("the daemon of another user is never joined", "[e2e]") {
    if (cannot_become_another_user()) return;
    const e2e::Sandbox sandbox("other-daemon");
    open_to_all(sandbox);
    const std::string port = std::to_string(e2e::free_port());
    e2e::Process daemon(sandbox, {.argv = as_nobody({program("ddprund"), "--port", port})});
    REQUIRE(e2e::eventually(Seconds(20), [&] { return daemon.err().find("serves run") != std::string::npos; }));
    const auto first = e2e::run(sandbox, {.argv = client_of(port, "1"), .directory = sandbox.path()}, Seconds(20));
    CAPTURE(first.err);
    CHECK(first.status.exit_code() == 69);
    CHECK_THAT(first.err, Contains("the port is held by pid ") &&
                              Contains(" of user 65534, and ddprun joins only daemons of its own user (0)."));
    const auto second = e2e::run(sandbox, {.argv = client_of(port, "0"), .directory = sandbox.path()}, Seconds(20));
    CAPTURE(second.err);
    CHECK(second.status.exit_code() == 69);
    CHECK_THAT(second.err, Contains("is a process of user 65534 on this host"));
    CHECK(first.out + second.out == "");
    daemon.signal(SIGTERM);
    daemon.wait(Seconds(20));
    CHECK(sandbox.leftovers() == "");
}

TEST_CASE("hostile connections cost the daemon little, and a job starts beside them", "[e2e]") {
    const e2e::Sandbox sandbox("hostile");
    const std::string port = std::to_string(e2e::free_port());
    e2e::Process daemon(sandbox, {.argv = {program("ddprund"), "--port", port}});
    REQUIRE(e2e::eventually(Seconds(20), [&] { return daemon.err().find("serves run") != std::string::npos; }));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<std::uint16_t>(std::stoi(port)));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    // Silent; half a request; an upgrade and the beginning of a message of 8 MiB.
    const std::string request = "GET /ddprun/v1/agent HTTP/1.1\r\n";
    const std::string upgrade = request +
                                "Host: x\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Version: 13\r\n"
                                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nDdprun-Channel: 2\r\n\r\n";
    const std::string message = std::string("\x81\xff\0\0\0\0\0\x80\0\0\0\0\0\0", 14) + std::string(256u << 10, '\0');
    std::vector<ddprun::UniqueFd> crowd;
    for (int i = 0; i < 600; ++i) {
        ddprun::UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        (void)::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
        const auto send = [&](const std::string& bytes) {
            (void)::send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);  // it may be closed
        };
        if (i % 3 == 1) send(request);
        if (i % 3 == 2) send(upgrade);
        if (i % 3 == 2) ::usleep(1000);  // it has its answer then: before, more bytes would end it
        if (i % 3 == 2) send(message);
        crowd.push_back(std::move(socket));
    }
    // The worker reads the daemon's memory: the daemon ends with the job.
    const std::string peak = fmt::format("grep VmHWM /proc/{}/status", daemon.pid());
    const auto job = e2e::run(sandbox,
                              {.argv = {program("ddprun"), "--nnodes", "1", "--rdzv-endpoint", "127.0.0.1:" + port,
                                        "--rdzv-conf", "is_host=0", "sh", "-c", peak},
                               .directory = sandbox.path()},
                              Seconds(30));
    CAPTURE(job.out, job.err);
    CHECK(job.status.exit_code() == 0);
    REQUIRE_THAT(job.out, Catch::StartsWith("VmHWM:"));
    CHECK(std::stoi(job.out.substr(6)) < 64 * 1024);  // KiB
    CHECK(daemon.wait(Seconds(20)).exit_code() == 0);
    CHECK(sandbox.leftovers() == "");
}
