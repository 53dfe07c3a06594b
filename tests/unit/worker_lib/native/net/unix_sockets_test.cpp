// Unix sockets between the ranks of a node: more that connect than may wait, and names that others have taken.

#include <poll.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "tests/catch.hpp"
#include "worker_lib/src/native/net/handshake.hpp"
#include "worker_lib/src/native/net/sockets.hpp"

using namespace ddp::detail;
using ddprun::UniqueFd;
using std::chrono::milliseconds;

namespace {

std::string new_name() { return "ddp-test-" + std::to_string(::getpid()) + "-" + std::to_string(::gettid()); }

/// A listener at which one connection may wait.
UniqueFd narrow_listener(const std::string& name) {
    auto listener = listen_unix(name);
    REQUIRE(listener.has_value());
    REQUIRE(::listen(listener->get(), 0) == 0);
    return std::move(*listener);
}

ddprun::TimePoint in(milliseconds time) { return ddprun::Clock::now() + time; }

/// The calling thread acts as another user, which only root may. It changes this thread alone; setresuid() would not.
bool become_nobody() { return ::syscall(SYS_setresuid, -1, 65534, -1) == 0; }

}  // namespace

TEST_CASE("a rank that finds a full queue at another's socket tries again", "[native][unit]") {
    const std::string name = new_name();
    const UniqueFd listener = narrow_listener(name);
    std::vector<std::future<bool>> ranks;
    for (int i = 0; i < 8; ++i)
        ranks.push_back(
            std::async(std::launch::async, [&] { return connect_unix(name, in(milliseconds(20'000))).has_value(); }));
    std::vector<UniqueFd> accepted;
    const auto deadline = in(milliseconds(20'000));
    std::this_thread::sleep_for(milliseconds(20));  // so that most find it full; the test holds without it, too
    while (accepted.size() < ranks.size() && wait_for(listener.get(), POLLIN, deadline))
        accepted.emplace_back(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    for (auto& rank : ranks) CHECK(rank.get());
    CHECK(accepted.size() == ranks.size());
}

TEST_CASE("a queue that stays full until the deadline is a timeout", "[native][unit]") {
    const std::string name = new_name();
    const UniqueFd listener = narrow_listener(name);
    std::vector<UniqueFd> waiting;
    for (;;) {
        auto socket = connect_unix(name, in(milliseconds(30)));
        if (!socket) {
            CHECK(socket.error().code == ddprun::Errc::kTimeout);
            break;
        }
        waiting.push_back(std::move(*socket));
        REQUIRE(waiting.size() < 10);
    }
    CHECK_FALSE(waiting.empty());
}

TEST_CASE("a name without a listener is refused at once", "[native][unit]") {
    const auto socket = connect_unix(new_name(), in(milliseconds(20'000)));
    REQUIRE_FALSE(socket.has_value());
    CHECK(socket.error().code != ddprun::Errc::kTimeout);
}

TEST_CASE("another user's process at a peer's name gets nothing, above all no shared memory", "[native][unit]") {
    if (::geteuid() != 0) {
        WARN("not root: no thread here can act as another user");
        return;
    }
    const std::string name = new_name();
    auto listener = std::async(std::launch::async, [&]() -> ddprun::Result<UniqueFd> {
                        if (!become_nobody()) return ddprun::system_error("setresuid", errno);
                        return listen_unix(name);
                    }).get();
    if (!listener) {
        WARN("this process may not act as another user");
        return;
    }
    ddp::detail::GroupSpec spec;
    spec.name = "world";
    spec.rank = 1;
    spec.members = {0, 1};
    std::vector<Member> members(2);
    members[0].local_name = name;
    const auto own = listen_unix(name + "-1");
    REQUIRE(own.has_value());
    const HandshakeSpec place{.spec = spec, .members = members, .deadline = in(milliseconds(20'000))};
    const UniqueFd memory(::dup(0));
    CHECK_THROWS_WITH(meet_over_unix(place, own->get(), {0}, memory.get()), Catch::Contains("belongs to another user"));
    const UniqueFd there(::accept4(listener->get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    REQUIRE(there);
    std::array<std::byte, 1> byte{};
    UniqueFd passed;
    CHECK(receive_some(there.get(), byte, passed) == 0);
    CHECK_FALSE(passed);
}
