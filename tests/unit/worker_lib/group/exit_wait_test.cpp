// A process that exits right after a callback has destroyed a group: it waits for the group's end, but not for ever.

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "common/system/unique_fd.hpp"
#include "ddp/process_group.hpp"
#include "tests/catch.hpp"
#include "worker_lib/src/group/group_impl.hpp"
#include "worker_lib/src/operation/work_state.hpp"

using namespace ddp::detail;
using std::chrono::milliseconds;

namespace {

/// A backend whose end takes a while, and is then written to a pipe.
class SlowEnd final : public BackendImpl, private ddp::Arena {
public:
    SlowEnd(milliseconds takes, int said) : takes_(takes), said_(said) {}
    ~SlowEnd() override {
        std::this_thread::sleep_for(takes_);
        [[maybe_unused]] const ssize_t written = ::write(said_, "ended", 5);
    }
    ddp::Backend kind() const override { return ddp::Backend::Native; }
    std::unique_ptr<BackendImpl> make_another(const GroupSpec&) const override { return nullptr; }
    std::shared_ptr<WorkState> submit(Operation&&, OperationRecord&) override { return nullptr; }
    QueuedBatch transfer(TransferList&&, TransferRecord&) override { return QueuedBatch::done(); }
    ddp::Arena& arena() override { return *this; }
    void abort(std::string_view) override {}
    bool after_callbacks(std::function<void()> end) const override {
        return WorkState::after_callbacks(this, std::move(end));
    }
    bool is_in_callback() const override { return false; }

private:
    void* allocate(std::size_t) override { return nullptr; }

    const milliseconds takes_;
    const int said_;
};

class WorkOf final : public WorkState {
public:
    explicit WorkOf(const BackendImpl* backend)
        : WorkState(1, ddprun::TimePoint::max()), owner_{"own", "rank 0", backend} {}
    [[nodiscard]] const Participant& owner() const override { return owner_; }
    [[nodiscard]] std::string text() const override { return "#1 barrier"; }

private:
    const Participant owner_;
};

[[noreturn]] void destroy_in_a_callback_and_exit(milliseconds takes, int said) {
    std::atexit([] { ::_exit(0); });  // behind the handlers that are registered from here on, and before the parent's
    GroupSpec spec;
    spec.name = "own";
    spec.members = {0};
    auto backend = std::make_unique<SlowEnd>(takes, said);
    const auto work = std::make_shared<WorkOf>(backend.get());
    auto group = ddp::detail::make_group(std::move(spec), std::move(backend));
    work->then([&group](const std::exception_ptr&) { group.reset(); });
    work->complete(nullptr);
    std::exit(0);
}

struct Heard {
    std::string said;
    std::chrono::steady_clock::duration after{};
};

Heard of_a_process_whose_group_ends_in(milliseconds takes) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return {"no pipe", {}};
    const ddprun::UniqueFd read_end(ends[0]);
    ddprun::UniqueFd write_end(ends[1]);
    const auto began = std::chrono::steady_clock::now();
    const pid_t child = ::fork();
    if (child == 0) destroy_in_a_callback_and_exit(takes, write_end.get());
    write_end.reset();
    Heard heard;
    std::array<char, 64> bytes{};
    for (ssize_t got = 0; (got = ::read(read_end.get(), bytes.data(), bytes.size())) > 0;)
        heard.said.append(bytes.data(), static_cast<std::size_t>(got));
    heard.after = std::chrono::steady_clock::now() - began;
    ::waitpid(child, nullptr, 0);
    return heard;
}

}  // namespace

TEST_CASE("a process that exits waits for the end of a group that a callback has destroyed", "[unit]") {
    const Heard heard = of_a_process_whose_group_ends_in(milliseconds(100));
    CHECK(heard.said == "ended");
}

TEST_CASE("it waits for a second at most", "[unit]") {
    const Heard heard = of_a_process_whose_group_ends_in(milliseconds(30'000));
    CHECK(heard.said == "");
    CHECK(heard.after >= milliseconds(1'000));
    CHECK(heard.after < milliseconds(15'000));  // on a machine that stands still now and then
}
