// Starting the daemon, played by a shell script, and finding a process that holds its port already.

#include "launcher/host_daemon.hpp"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstddef>
#include <fstream>
#include <sstream>

#include "common/system/probe_bind.hpp"
#include "tests/catch.hpp"
#include "tests/temporary_directory.hpp"

using namespace ddprun;
using namespace ddprun::launcher;
using namespace std::chrono_literals;

namespace {

/// A socket of this process on a free port.
struct BoundSocket {
    UniqueFd socket;
    Endpoint endpoint;

    explicit BoundSocket(const std::string& address) : socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
        sockaddr_in name{};
        name.sin_family = AF_INET;
        REQUIRE(::inet_pton(AF_INET, address.c_str(), &name.sin_addr) == 1);
        REQUIRE(::bind(socket.get(), reinterpret_cast<sockaddr*>(&name), sizeof name) == 0);
        socklen_t size = sizeof name;
        REQUIRE(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&name), &size) == 0);
        endpoint = {"127.0.0.1", ntohs(name.sin_port)};
    }
};

struct Listener : BoundSocket {
    explicit Listener(const std::string& address) : BoundSocket(address) { REQUIRE(::listen(socket.get(), 1) == 0); }
};

DaemonRequest request_for(const std::filesystem::path& program) {
    DaemonRequest request;
    request.program = program;
    request.bind = {"127.0.0.1", 0};
    return request;
}

pid_t parent_of(pid_t pid) {
    std::ifstream status("/proc/" + std::to_string(pid) + "/status");
    for (std::string line; std::getline(status, line);) {
        if (line.starts_with("PPid:")) return std::stoi(line.substr(5));
    }
    return -1;
}

/// The name that a ddprun holds while it starts a daemon at `endpoint`.
struct NameOfStart {
    UniqueFd socket{::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0)};

    explicit NameOfStart(const Endpoint& endpoint) {
        sockaddr_un name{};
        name.sun_family = AF_UNIX;
        const std::string text = "ddprun-start-" + to_string(endpoint);
        text.copy(name.sun_path + 1, text.size());
        const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
        REQUIRE(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&name), size) == 0);
    }
};

}  // namespace

TEST_CASE("the holder of a port is named by pid and command", "[launcher][unit]") {
    for (const std::string address : {"127.0.0.1", "0.0.0.0"}) {  // one on all interfaces is in the way as well
        const Listener listener(address);
        const auto holder = find_port_holder(listener.endpoint);
        REQUIRE(holder.has_value());
        CHECK(holder->pid == ::getpid());
        CHECK(holder->uid == ::getuid());
        std::string own_name;
        std::getline(std::ifstream("/proc/self/comm") >> std::ws, own_name);
        CHECK(holder->program == own_name);
        CHECK_THAT(holder->command, Catch::Contains(own_name));
        CHECK_THAT(to_string(*holder), Catch::StartsWith("pid " + std::to_string(::getpid()) + " ("));
    }
}

TEST_CASE("a long command of a port's holder is cut between two words", "[launcher][unit]") {
    Listener listener("127.0.0.1");
    const int inherited = ::fcntl(listener.socket.get(), F_DUPFD, 0);  // not closed on exec
    std::array<int, 2> executed{};
    REQUIRE(::pipe2(executed.data(), O_CLOEXEC) == 0);
    const std::string number = "0." + std::string(50, '1');
    // "sleep 60 NUMBER SECOND" has 120 bytes, the limit, or one less or more.
    const std::size_t bytes = GENERATE(119, 120, 121);
    const std::string second = "0." + std::string(bytes - 64, '1');
    const bool third = GENERATE(true, false);
    const pid_t holder = ::fork();
    if (holder == 0) {
        const char* const last = third ? "0" : nullptr;
        ::execl("/bin/sleep", "sleep", "60", number.c_str(), second.c_str(), last, nullptr);
        ::_exit(127);
    }
    ::close(inherited);
    listener.socket.reset();
    ::close(executed[1]);
    char none = 0;
    CHECK(::read(executed[0], &none, 1) == 0);
    ::close(executed[0]);
    const std::string text = explain_port_in_use(listener.endpoint);
    ::kill(holder, SIGKILL);
    ::waitpid(holder, nullptr, 0);
    const std::string shown = bytes > 120 ? "…" : second + (third ? " …" : "");
    CHECK_THAT(text, Catch::StartsWith(
                         fmt::format("held by pid {} (sleep 60 {} {}). End that process", holder, number, shown)));
}

TEST_CASE("a free port has no holder", "[launcher][unit]") {
    Endpoint endpoint;
    {
        const Listener listener("127.0.0.1");
        endpoint = listener.endpoint;
        CHECK_FALSE(find_port_holder({"127.0.0.2", endpoint.port}).has_value());  // another address is not in the way
        CHECK(probe_bind(endpoint) == EADDRINUSE);
    }
    CHECK_FALSE(find_port_holder(endpoint).has_value());
    CHECK(probe_bind(endpoint) == 0);
}

TEST_CASE("an address of another machine cannot be bound", "[launcher][unit]") {
    DaemonRequest request = request_for("/bin/false");
    request.bind = {"240.0.0.1", 29400};
    const auto refused = host_or_join(request);
    REQUIRE_FALSE(refused.has_value());
    CHECK_THAT(refused.error().message,
               Catch::StartsWith("cannot host the rendezvous at 240.0.0.1:29400: Cannot assign"));
}

TEST_CASE("a port that another process holds is an error that names the process", "[launcher][unit]") {
    const Listener listener("127.0.0.1");
    DaemonRequest request = request_for("/bin/false");
    request.bind = listener.endpoint;
    const auto refused = host_or_join(request);
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().code == Errc::kInUse);
    CHECK_THAT(refused.error().message,
               Catch::StartsWith("cannot host the rendezvous at " + to_string(listener.endpoint) +
                                 ": the port is held by pid " + std::to_string(::getpid())));
    CHECK_THAT(refused.error().message, Catch::Contains("--rdzv-endpoint"));
}

TEST_CASE("a ddprund of this user on the port is joined, and so is a holder that cannot be inspected",
          "[launcher][unit]") {
    const uid_t own = ::geteuid();
    CHECK(is_joinable(PortHolder{4242, "/usr/bin/ddprund --port 29400", "ddprund", own}));
    CHECK(is_joinable(PortHolder{std::nullopt, "", "", own}));
    CHECK_FALSE(is_joinable(PortHolder{4242, "nginx", "nginx", own}));
    for (const uid_t other : {own + 1, own == 0 ? 1000u : 0u}) {
        CHECK_FALSE(is_joinable(PortHolder{4242, "/usr/bin/ddprund --port 29400", "ddprund", other}));
        CHECK_FALSE(is_joinable(PortHolder{std::nullopt, "", "", other}));
    }
    CHECK(to_string(PortHolder{42, "ddprund -p 1", "ddprund", own + 1}) ==
          fmt::format("pid 42 (ddprund -p 1) of user {}", own + 1));
}

TEST_CASE("a port that is bound without a listener is an error after a while", "[launcher][unit]") {
    const BoundSocket bound("127.0.0.1");
    DaemonRequest request = request_for("/bin/false");
    request.bind = bound.endpoint;
    request.ready_within = 50ms;
    const auto refused = host_or_join(request);
    REQUIRE_FALSE(refused.has_value());
    CHECK(refused.error().code == Errc::kInUse);
    CHECK_THAT(refused.error().message, Catch::Contains("no process listens there"));
}

TEST_CASE("a daemon that cannot be started is an error, not a reason to join", "[launcher][unit]") {
    DaemonRequest request = request_for("/bin/false");
    request.bind = BoundSocket("127.0.0.1").endpoint;  // free again
    const auto failed = host_or_join(request);
    REQUIRE_FALSE(failed.has_value());
    CHECK(failed.error().code == Errc::kClosed);
}

TEST_CASE("a start waits for another one of this user at the same port", "[launcher][unit]") {
    DaemonRequest request = request_for("/bin/false");
    request.bind = BoundSocket("127.0.0.1").endpoint;  // free again
    request.ready_within = 100ms;
    const NameOfStart other(request.bind);
    REQUIRE(::listen(other.socket.get(), 1) == 0);
    const TimePoint begun = Clock::now();
    CHECK(host_or_join(request).error().code == Errc::kClosed);  // a last look: the other one may have been stopped
    CHECK(Clock::now() - begun >= 100ms);
}

TEST_CASE("a start does not wait for a name that is held by no ddprun of this user", "[launcher][unit]") {
    DaemonRequest request = request_for("/bin/false");
    request.bind = BoundSocket("127.0.0.1").endpoint;  // free again
    request.ready_within = 60s;
    const NameOfStart bound(request.bind);  // and nothing listens there
    const TimePoint begun = Clock::now();
    SECTION("without a listener") { CHECK(host_or_join(request).error().code == Errc::kClosed); }
    SECTION("by another user") {
        if (::getuid() != 0) return;  // only root can listen as another user
        REQUIRE(::setresuid(65534, 65534, 0) == 0);
        const bool listens = ::listen(bound.socket.get(), 1) == 0;
        REQUIRE(::setresuid(0, 0, 0) == 0);
        REQUIRE(listens);
        CHECK(host_or_join(request).error().code == Errc::kClosed);
    }
    CHECK(Clock::now() - begun < 30s);
}

TEST_CASE("every requested setting becomes an argument of the daemon", "[launcher][unit]") {
    DaemonRequest request = request_for("/x/program");
    request.bind = {"10.0.0.1", 29400};
    const std::vector<std::string> first{"ddprund",      "--bind", "10.0.0.1", "--port", "29400",
                                         "--starter-fd", "4",      "--linger", "10",     "--quiet"};
    std::vector<std::string> expected = first;
    expected.insert(expected.end(), {"--ready-fd", "3"});
    CHECK(daemon_arguments(request, 3, 4) == expected);
    request.store_address = "10.1.0.1";
    request.run_id = "mnist";
    request.step = "slurm-71.0";
    request.hosts = {"n1", "n2"};
    request.join_timeout = 90s;
    request.last_call = 1500ms;
    request.insecure = true;
    request.store_vouch = true;  // ddprund refuses both together
    request.verbose = true;
    request.standby = true;
    expected = first;
    expected.pop_back();  // --quiet
    expected.insert(expected.end(),
                    {"--store-address", "10.1.0.1", "--run-id=mnist", "--step", "slurm-71.0", "--hosts", "n1,n2",
                     "--join-timeout", "90", "--last-call", "1.5", "--insecure", "--store-vouch", "--standby"});
    CHECK(daemon_arguments(request, 3, 4) == expected);
}

TEST_CASE("the daemon of a job step takes the first free port, and joins no other program", "[launcher][unit]") {
    const TemporaryDirectory temp;
    // Reports the port that it was given: its fourth argument.
    const auto script = temp.file("ddprund",
                                  "#!/bin/sh\nprintf '{\"address\":\"127.0.0.1\",\"port\":%s}\\n' \"$4\" >&3\n"
                                  "exec 3>&-\nexec cat <&4\n",
                                  0755);
    const Listener taken("127.0.0.1");
    const Endpoint free = BoundSocket("127.0.0.1").endpoint;
    DaemonRequest request = request_for(script);
    request.step = "slurm-71.0";
    const auto hosted = host_or_join_step(request, {taken.endpoint.port, free.port});
    REQUIRE(hosted.has_value());
    CHECK(hosted->started_here);
    CHECK(hosted->endpoint == free);
    release_daemon(hosted->lifeline);
    CHECK(daemon_ends_within(hosted->lifeline, 10s));

    const auto none = host_or_join_step(request, {taken.endpoint.port});
    REQUIRE_FALSE(none.has_value());
    CHECK(none.error().code == Errc::kInUse);
    CHECK_THAT(none.error().message, Catch::Contains("cannot host the rendezvous of slurm-71.0 at 127.0.0.1") &&
                                         Catch::Contains("--rdzv-endpoint"));
}

TEST_CASE("the ready line is read strictly", "[launcher][unit]") {
    const auto daemon = parse_ready_line(R"({"address":"127.0.0.1","port":40001,"run_id":"abc"})");
    REQUIRE(daemon.has_value());
    CHECK(daemon->endpoint == Endpoint{"127.0.0.1", 40001});
    CHECK(daemon->run_id == "abc");
    CHECK(daemon->pid == 0);
    CHECK(parse_ready_line(R"({"address":"127.0.0.1","port":1,"run_id":"abc","pid":71})").value().pid == 71);
    for (const char* line :
         {"", "listening", "[]", "{}", R"({"address":"x","port":0})", R"({"address":"x","port":70000})",
          R"({"address":"x","port":"1"})", R"({"address":1,"port":1})", R"({"port":1})"}) {
        CAPTURE(line);
        CHECK(parse_ready_line(line).error().code == Errc::kMalformed);
    }
}

TEST_CASE("the daemon is not a child of its starter, and its end is noticed", "[launcher][unit]") {
    const TemporaryDirectory temp;
    const std::filesystem::path fifo = temp.path() / "until";
    REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
    // Says its pid as the run id, then runs until the fifo is opened and closed at our end.
    const auto script =
        temp.file("ddprund",
                  "#!/bin/sh\nprintf '{\"address\":\"127.0.0.1\",\"port\":4711,\"run_id\":\"%s\"}\\n' $$ >&3\n"
                  "exec 3>&-\nread line < " +
                      fifo.string() + "\n",
                  0755);
    auto daemon = start_daemon(request_for(script));
    INFO((daemon ? "" : daemon.error().message));
    REQUIRE(daemon.has_value());
    CHECK(daemon->endpoint == Endpoint{"127.0.0.1", 4711});

    const pid_t pid = std::stoi(daemon->run_id);
    CHECK(parent_of(pid) != ::getpid());
    CHECK(::getsid(pid) != ::getsid(0));
    CHECK_FALSE(daemon_ends_within(daemon->lifeline, 0ms));
    { const UniqueFd opened(::open(fifo.c_str(), O_WRONLY | O_CLOEXEC)); }
    CHECK(daemon_ends_within(daemon->lifeline, 10s));
}

TEST_CASE("a daemon learns that its starter does not need it", "[launcher][unit]") {
    const TemporaryDirectory temp;
    const auto script =
        temp.file("ddprund",
                  "#!/bin/sh\nprintf '{\"address\":\"127.0.0.1\",\"port\":4711,\"run_id\":\"x\"}\\n' >&3\n"
                  "exec 3>&-\nexec cat <&4\n",
                  0755);
    const auto daemon = start_daemon(request_for(script));
    REQUIRE(daemon.has_value());
    REQUIRE_FALSE(daemon_ends_within(daemon->lifeline, 0ms));
    release_daemon(daemon->lifeline);
    CHECK(daemon_ends_within(daemon->lifeline, 10s));
}

TEST_CASE("the texts of a starter arrive one by one", "[launcher][unit]") {
    const TemporaryDirectory temp;
    const std::filesystem::path fifo = temp.path() / "until";
    REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
    const auto script = temp.file(
        "ddprund",
        "#!/bin/sh\nprintf '{\"address\":\"127.0.0.1\",\"port\":4711,\"run_id\":\"x\"}\\n' >&3\n"
        "exec 3>&-\nread line < " +
            fifo.string() + "\ndd bs=1024 count=1 <&4 > " + (temp.path() / "text").string() + " 2>/dev/null\n",
        0755);
    const auto daemon = start_daemon(request_for(script));
    REQUIRE(daemon.has_value());
    for (const std::string_view text : {"first", "second"})
        REQUIRE(::send(daemon->lifeline.get(), text.data(), text.size(), MSG_NOSIGNAL) ==
                static_cast<ssize_t>(text.size()));
    { const UniqueFd opened(::open(fifo.c_str(), O_WRONLY | O_CLOEXEC)); }
    CHECK(daemon_ends_within(daemon->lifeline, 10s));
    std::stringstream text;
    text << std::ifstream(temp.path() / "text").rdbuf();
    CHECK(text.str() == "first");
}

TEST_CASE("a daemon that ends, babbles or is silent is an error", "[launcher][unit]") {
    const TemporaryDirectory temp;
    const auto ends = start_daemon(request_for(temp.file("ends", "#!/bin/sh\nexit 1\n", 0755)));
    REQUIRE_FALSE(ends.has_value());
    CHECK(ends.error().code == Errc::kClosed);
    CHECK_THAT(ends.error().message, Catch::StartsWith("ddprund ended before it listened at 127.0.0.1:0."));

    const auto babbles = start_daemon(request_for(temp.file("babbles", "#!/bin/sh\necho hello >&3\n", 0755)));
    REQUIRE_FALSE(babbles.has_value());
    CHECK(babbles.error().code == Errc::kMalformed);

    const std::filesystem::path fifo = temp.path() / "until";
    REQUIRE(::mkfifo(fifo.c_str(), 0600) == 0);
    DaemonRequest request = request_for(temp.file("silent", "#!/bin/sh\nread line < " + fifo.string() + "\n", 0755));
    request.ready_within = 50ms;
    const auto silent = start_daemon(request);
    { const UniqueFd opened(::open(fifo.c_str(), O_WRONLY | O_CLOEXEC)); }  // lets it end
    REQUIRE_FALSE(silent.has_value());
    CHECK(silent.error().code == Errc::kTimeout);
}
