#pragma once
// Work: a handle on a collective in flight. Any thread may wait on it; copies share one state; dropping it is safe.

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <utility>

namespace ddp {

namespace detail {
class WorkState;
}

class Work {
public:
    Work() = default;  ///< done from the start
    explicit Work(std::shared_ptr<detail::WorkState> state) : state_(std::move(state)) {}
    explicit Work(std::uint64_t seq) : done_seq_(seq) {}  ///< operation `seq`, done well
    Work(const Work&) = default;
    Work& operator=(const Work&) = default;
    Work(Work&&) noexcept = default;
    Work& operator=(Work&&) noexcept = default;
    /// The operation goes on, and its buffers are the library's until it has ended.
    ~Work();

    /// True once the operation has ended, well or badly.
    [[nodiscard]] bool done() const;
    /// Host memory: blocks until the result is there. CUDA: makes the caller's stream wait, not the host.
    /// Throws the operation's ddp::Error.
    void wait();
    /// Always blocks the host. `timeout` 0: until the operation's own deadline. Throws Error{Timeout} when it passes;
    /// the operation itself goes on. Throws Error{InvalidArgument} for a negative one.
    void wait_host(std::chrono::milliseconds timeout = {});
    /// Calls `callback` once, with the error or null, on the thread that runs the operation (the group's, or one that
    /// waits), or at once if the work is done. Until it returns the group does nothing else; it may submit work to the
    /// group, but must not wait for it (that throws Error{InvalidArgument}, unless the work is done), nor lock what a
    /// thread that waits holds: it may be that thread. If it destroys the group, that ends when the callback has
    /// returned: the buffers of what is in flight are the library's until their works are done, which they are soon
    /// then, with an error. What it throws aborts the group with its text, as abort() does. One that is called at once
    /// may wait, and what it throws comes out of then().
    void then(std::function<void(std::exception_ptr)> callback);
    /// The operation's number in its group, from 1.
    [[nodiscard]] std::uint64_t seq() const;

private:
    friend class detail::WorkState;
    std::shared_ptr<detail::WorkState> state_;  ///< null: done
    std::uint64_t done_seq_ = 0;
};

}  // namespace ddp
