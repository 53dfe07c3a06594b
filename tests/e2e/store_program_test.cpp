// `ddprund --store` as scripts, service managers and administrators meet it.

#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <sstream>
#include <utility>

#include "common/ids.hpp"
#include "common/system/unique_fd.hpp"
#include "tests/catch.hpp"
#include "tests/e2e/process.hpp"

using e2e::Seconds;

namespace {

/// Generous, for a machine that is paused now and then.
constexpr Seconds kAtOnce(20);

std::string program() { return (e2e::bin() / "ddprund").string(); }

/// Waits for the line that the program prints when it listens, and returns "127.0.0.1:41234" from it; empty: none came.
std::string address_of(e2e::Process& store) {
    const std::string before = "store listening on ";
    std::string line;
    const bool printed = e2e::eventually(Seconds(10), [&] {
        line = store.out();
        return line.ends_with("\n") || !store.running();
    });
    return printed && line.starts_with(before) ? line.substr(before.size(), line.size() - before.size() - 1) : "";
}

/// What systemd would listen on. '@' in front: an abstract name.
class NotifySocket {
public:
    explicit NotifySocket(std::string name) : name_(std::move(name)), fd_(::socket(AF_UNIX, SOCK_DGRAM, 0)) {
        sockaddr_un address{};
        address.sun_family = AF_UNIX;
        name_.copy(address.sun_path, sizeof(address.sun_path) - 1);
        const bool abstract = name_.front() == '@';
        if (abstract) address.sun_path[0] = '\0';
        const std::size_t length = offsetof(sockaddr_un, sun_path) + name_.size() + (abstract ? 0 : 1);
        REQUIRE(::bind(fd_.get(), reinterpret_cast<const sockaddr*>(&address), static_cast<socklen_t>(length)) == 0);
        const timeval limit{.tv_sec = 10, .tv_usec = 0};
        REQUIRE(::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) == 0);
    }
    ~NotifySocket() {
        if (name_.front() == '/') ::unlink(name_.c_str());
    }
    NotifySocket(const NotifySocket&) = delete;
    NotifySocket& operator=(const NotifySocket&) = delete;

    [[nodiscard]] const std::string& name() const { return name_; }
    [[nodiscard]] std::string next() const {
        std::array<char, 256> text{};
        const ssize_t n = ::recv(fd_.get(), text.data(), text.size(), 0);
        return n < 0 ? std::string("nothing came: ") + std::strerror(errno)
                     : std::string(text.data(), static_cast<std::size_t>(n));
    }

private:
    std::string name_;
    ddprun::UniqueFd fd_;
};

}  // namespace

TEST_CASE("ddprund --store tells its service manager when it serves and when it stops", "[e2e][store]") {
    const e2e::Sandbox sandbox("store");
    const bool abstract = GENERATE(false, true);
    const int signal = abstract ? SIGTERM : SIGQUIT;
    const std::string name = "ddprun-" + ddprun::random_id();
    const NotifySocket manager(abstract ? "@" + name : (sandbox.path() / "notify").string());
    e2e::Process store(sandbox,
                       {.argv = {program(), "--store", "127.0.0.1:0"}, .env = {{"NOTIFY_SOCKET", manager.name()}}});

    CHECK(manager.next() == "READY=1");
    CHECK(address_of(store).starts_with("127.0.0.1:"));
    store.signal(signal);
    CHECK(manager.next() == "STOPPING=1");
    CHECK(store.wait(kAtOnce).exit_code() == 0);
    CHECK_THAT(store.err(), Catch::Contains("stopped by " + ddprun::signal_name(signal)));
}

TEST_CASE("ddprund --store serves on when its service manager is not there", "[e2e][store]") {
    const e2e::Sandbox sandbox("store");
    const std::string name = GENERATE("/no/such/socket", "@no-listener-here", "neither a path nor abstract");
    e2e::Process store(sandbox, {.argv = {program(), "--store", "127.0.0.1:0"}, .env = {{"NOTIFY_SOCKET", name}}});
    CHECK(address_of(store) != "");
    CHECK(e2e::eventually(kAtOnce, [&] {
        return store.err().find("cannot send READY=1 to the service manager through NOTIFY_SOCKET=" + name) !=
               std::string::npos;
    }));
    store.signal(SIGINT);
    CHECK(store.wait(kAtOnce).exit_code() == 0);
}

TEST_CASE("ddprund --store stops at once while clients are connected, and its port is free again", "[e2e][store]") {
    const e2e::Sandbox sandbox("store");
    e2e::Process store(sandbox, {.argv = {program(), "--store", "127.0.0.1:0"}});
    const std::string address = address_of(store);
    REQUIRE(address != "");
    const std::string port = address.substr(address.rfind(':') + 1);
    // bash's /dev/tcp: VALIDATE, then nothing until the store ends the connection.
    e2e::Process client(sandbox,
                        {.argv = {"bash", "-c",
                                  fmt::format("exec 3<>/dev/tcp/127.0.0.1/{} && printf "
                                              "'\\x00\\xce\\xf7\\x85\\x3c\\x0c' >&3 && head -c1 <&3 && cat <&3",
                                              port)}});
    // The byte that answers CANCEL_WAIT: the connection is served.
    REQUIRE(e2e::eventually(kAtOnce, [&] { return client.out() == "\x01"; }));

    store.signal(SIGTERM);
    CHECK(store.wait(kAtOnce).exit_code() == 0);
    CHECK_THAT(store.err(), Catch::Contains("1 connection (1 accepted") && Catch::Contains("CANCEL_WAIT 1"));
    CHECK(client.wait(kAtOnce).exit_code() == 0);
    e2e::Process next(sandbox, {.argv = {program(), "--store", address}});
    CHECK(address_of(next) == address);
}

TEST_CASE("ddprund --store reports on SIGUSR1 as often as it is asked, and warns off loopback only", "[e2e][store]") {
    const e2e::Sandbox sandbox("store");
    const auto [host, warns] =
        GENERATE(table<std::string, bool>({{"127.0.0.1", false}, {"localhost", false}, {"0.0.0.0", true}}));
    e2e::Process store(sandbox, {.argv = {program(), "--store", host + ":0"}});
    REQUIRE(address_of(store) != "");
    CHECK((store.err().find("INSECURE") != std::string::npos) == warns);
    const auto reports = [&] {
        int count = 0;
        const std::string log = store.err();
        for (auto at = log.find(": up "); at != std::string::npos; at = log.find(": up ", at + 1)) ++count;
        return count;
    };
    for (int wanted = 1; wanted <= 3; ++wanted) {
        store.signal(SIGUSR1);
        CHECK(e2e::eventually(kAtOnce, [&] { return reports() == wanted; }));
    }
    CHECK(store.running());
}

TEST_CASE("ddprund --store refuses what it cannot do with one clear line", "[e2e][store]") {
    const e2e::Sandbox sandbox("store");
    e2e::Process other(sandbox, {.argv = {program(), "--store", "127.0.0.1:0"}});
    const std::string taken = address_of(other);
    REQUIRE(taken != "");
    struct Mistake {
        std::vector<std::string> options;
        int code;
        std::string says;
    };
    const std::vector<Mistake> mistakes{
        {{"--store", taken}, 69, "cannot listen on " + taken + ": the port is held by pid "},
        {{"--store", "203.0.113.9:0"}, 69, "cannot listen on 203.0.113.9:0"},
        {{"--store", "no-such-host.invalid:0"}, 2, "cannot find the address of host 'no-such-host.invalid'"},
        {{"--store", "127.0.0.1:port"}, 2, "the port is not a number"},
        {{"--store", ":0"}, 2, "the host is empty"},
        {{"--store", "localhost"}, 2, "--store localhost: the port is missing. Write --store localhost:29500."},
        {{"--store", "::1"}, 2, "--store ::1: the port is missing. Write --store [::1]:29500."},
        {{"--store", "29501"}, 2, "--store 29501: the host is missing. Write --store 127.0.0.1:29501."},
        {{"--store", "70000"}, 2, "--store 70000: the host is missing. Write --store 127.0.0.1:29500."},
        {{"--store", "127.0.0.1:0", "--port", "1"}, 2, "--port is an option of a job's daemon"},
        {{"--store", "127.0.0.1:0", "--store-limit", "colour=1"},
         2,
         "'colour=1' is not NAME=VALUE with one of the names key-bytes"},
        {{"--store", "127.0.0.1:0", "--store-limit", "key-bytes"}, 2, "'key-bytes' is not NAME=VALUE"},
        {{"--store", "127.0.0.1:0", "--store-limit", "key-bytes=0"}, 2, "'0' is not a number from 1 up"},
        {{"--store", "127.0.0.1:0", "--store-limit", "key-bytes=8KB"}, 2, "'8KB' is not a number from 1 up"},
        {{"--store", "127.0.0.1:0", "--store-limit", "key-bytes=9999999T"}, 2, "'9999999T' is not a number from 1 up"},
        {{"--store", "127.0.0.1:0", "--older-dialect", "1.9"}, 2, "'1.9' is not a dialect. Write 1.13 "},
        {{"--older-dialect", "none"}, 2, "--older-dialect requires --store"},
    };
    for (const Mistake& mistake : mistakes) {
        std::vector<std::string> argv{program()};
        argv.insert(argv.end(), mistake.options.begin(), mistake.options.end());
        const auto outcome = e2e::run(sandbox, {.argv = argv}, Seconds(20));
        CAPTURE(argv, outcome.err);
        CHECK(outcome.status.exit_code() == mistake.code);
        CHECK(outcome.out.empty());
        CHECK_THAT(outcome.err, Catch::Contains(mistake.says));
        CHECK(std::count(outcome.err.begin(), outcome.err.end(), '\n') == 1);
    }
}

TEST_CASE("ddprund opens as many files as its hard limit allows, with and without --store", "[e2e][store]") {
    const e2e::Sandbox sandbox("store");
    const std::string options = GENERATE("--store 127.0.0.1:0", "--bind 127.0.0.1 --port 0");
    e2e::Process daemon(
        sandbox,
        {.argv = {"bash", "-c", fmt::format("ulimit -Sn 64; ulimit -Hn 512; exec {} {}", program(), options)}});
    // "Max open files            SOFT                 HARD                 files"
    const auto limits = [&] {
        std::istringstream lines(e2e::read_file(fmt::format("/proc/{}/limits", daemon.pid())));
        const std::string name = "Max open files";
        for (std::string line; std::getline(lines, line);) {
            int soft = 0;
            int hard = 0;
            if (line.starts_with(name) && std::istringstream(line.substr(name.size())) >> soft >> hard)
                return std::pair(soft, hard);
        }
        return std::pair(0, 0);
    };
    CHECK(e2e::eventually(Seconds(10), [&] { return limits() == std::pair(512, 512); }));
    CAPTURE(options, limits().first, daemon.err());
    CHECK(daemon.running());
    daemon.signal(SIGTERM);
    static_cast<void>(daemon.wait(kAtOnce));
}
