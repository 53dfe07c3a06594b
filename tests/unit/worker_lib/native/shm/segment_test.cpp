// Segment: what peers see of a rank that fails while its group is forming. Signal-masked threads.

#include "worker_lib/src/native/shm/segment.hpp"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <fmt/format.h>

#include <cstdint>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "worker_lib/src/util/signal_masked_thread.hpp"

using namespace ddp::detail;

namespace {

/// A peer's view of a segment's control page: another mapping, as in another process.
class PeerView {
public:
    explicit PeerView(int fd) : base_(::mmap(nullptr, sizeof(Control), PROT_READ, MAP_SHARED, fd, 0)) {
        REQUIRE(base_ != MAP_FAILED);
    }
    ~PeerView() { ::munmap(base_, sizeof(Control)); }
    PeerView(const PeerView&) = delete;
    PeerView& operator=(const PeerView&) = delete;
    const Control& control() const { return *static_cast<const Control*>(base_); }

private:
    void* base_;
};

struct Uncopyable {
    Uncopyable() = default;
    Uncopyable(Uncopyable&&) { throw std::runtime_error("cannot be moved"); }
    void operator()() const {}
};

bool is_blocked(int signal) {
    sigset_t now;
    ::pthread_sigmask(SIG_SETMASK, nullptr, &now);
    return ::sigismember(&now, signal) == 1;
}

}  // namespace

TEST_CASE("peers that have mapped a rank's memory see that it gave up before the group was formed", "[native][unit]") {
    auto segment = Segment::create();
    const PeerView view(segment->fd());
    CHECK(view.control().left.load() == Departure::kPresent);
    segment.reset();
    CHECK(view.control().left.load() == Departure::kLeftByException);
}

TEST_CASE("the memory of a group is not part of a core dump, which would contain all of its holes", "[native][unit]") {
    const auto segment = Segment::create();
    const auto address = fmt::format("{:x}-", reinterpret_cast<std::uintptr_t>(&segment->control()));
    std::ifstream maps("/proc/self/smaps");
    std::string line;
    bool ours = false;
    std::vector<std::string> flags;
    while (std::getline(maps, line)) {
        if (line.find('-') < line.find(' '))  // the first line of a mapping: its addresses
            ours = ours ? line.find("memfd:ddp") != std::string::npos : line.starts_with(address);
        if (ours && line.starts_with("VmFlags:")) flags.push_back(line + " ");
    }
    CHECK_FALSE(flags.empty());
    for (const std::string& of_part : flags) CHECK_THAT(of_part, Catch::Contains(" dd "));
}

TEST_CASE("a rank that has left normally is not reported as failed", "[native][unit]") {
    auto segment = Segment::create();
    const PeerView view(segment->fd());
    segment->control().left = Departure::kLeft;
    segment.reset();
    CHECK(view.control().left.load() == Departure::kLeft);
}

TEST_CASE("the caller keeps its signals if a thread cannot start", "[native][unit]") {
    REQUIRE_FALSE(is_blocked(SIGUSR1));
    CHECK_THROWS_WITH((void)start_signal_masked_thread("test", Uncopyable()), "cannot be moved");
    CHECK_FALSE(is_blocked(SIGUSR1));
}
