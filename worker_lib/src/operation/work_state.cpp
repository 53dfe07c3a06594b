#include "worker_lib/src/operation/work_state.hpp"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <optional>
#include <utility>

#include "ddp/error.hpp"
#include "worker_lib/src/util/error.hpp"
#include "worker_lib/src/util/timeouts.hpp"

namespace ddp::detail {

namespace {

/// Time in which a thread that waits for peers notices a pause of the process that has just ended.
constexpr auto kNoticing = std::chrono::seconds(1);

/// Marks, on the stack of complete(), that this thread is in the callbacks of a work. Frames nest: a callback may wait
/// for another group's work, and so run callbacks of that group inside.
class CallbackFrame {
public:
    explicit CallbackFrame(const WorkState& work) : work_(work), outer_(innermost) { innermost = this; }
    ~CallbackFrame() {
        innermost = outer_;
        for (const auto& end : at_end_) end();
    }
    CallbackFrame(const CallbackFrame&) = delete;
    CallbackFrame& operator=(const CallbackFrame&) = delete;

    /// Returns a work of the group whose callback this thread is in; null: it is in none of that group.
    /// group   Participant::of
    [[nodiscard]] static const WorkState* find(const void* group) {
        const CallbackFrame* frame = innermost;
        while (frame != nullptr && frame->work_.owner().of != group) frame = frame->outer_;
        return frame != nullptr ? &frame->work_ : nullptr;
    }

    /// Returns the outermost frame of that group: after it the thread is in none. Null: it is in none now.
    [[nodiscard]] static CallbackFrame* find_outermost(const void* group) {
        CallbackFrame* found = nullptr;
        for (CallbackFrame* frame = innermost; frame != nullptr; frame = frame->outer_)
            if (frame->work_.owner().of == group) found = frame;
        return found;
    }

    /// `end` must not throw.
    void at_end(std::function<void()> end) { at_end_.push_back(std::move(end)); }

private:
    static constinit thread_local CallbackFrame* innermost;

    const WorkState& work_;
    CallbackFrame* const outer_;
    std::vector<std::function<void()>> at_end_;
};

constinit thread_local CallbackFrame* CallbackFrame::innermost = nullptr;

/// What the flight record keeps of the error that ends a work.
struct Recorded {
    std::optional<ErrorCode> code = {};  ///< nothing for no error, and for an exception of another type
    bool peer_failed = false;
};

Recorded recorded(const std::exception_ptr& error) {
    if (error == nullptr) return {};
    try {
        std::rethrow_exception(error);
    } catch (const Error& known) {
        return {known.code(), known.peer_failed()};
    } catch (...) {
        return {};
    }
}

}  // namespace

void WorkState::complete(std::exception_ptr error, const OnThrown& on_thrown) { run(end(std::move(error)), on_thrown); }

std::vector<WorkState::Callback> WorkState::end(std::exception_ptr error) {
    if (error) error = named(error);
    std::vector<Callback> callbacks;
    {
        const ddprun::Lock lock(mutex_);
        if (done_) return {};
        const auto [code, peer_failed] = recorded(error);
        if (code == ErrorCode::Mismatch) entry_.mismatched();
        if (peer_failed) note_peer_failed();
        note_end(error == nullptr, code == ErrorCode::Timeout);
        error_ = std::move(error);
        done_.store(true, std::memory_order_release);
        callbacks.swap(callbacks_);
    }
    changed_.notify_all();
    return callbacks;
}

void WorkState::run(const std::vector<Callback>& callbacks, const OnThrown& on_thrown) {
    if (callbacks.empty()) return;
    std::exception_ptr error;
    {
        const ddprun::Lock lock(mutex_);
        error = error_;
    }
    std::string thrown;
    const CallbackFrame frame(*this);
    for (const Callback& callback : callbacks) {
        try {
            callback(error);
        } catch (...) {  // the others still have to run
            if (thrown.empty()) thrown = fmt::format("a callback of {} has thrown: {}", text(), caught());
        }
    }
    if (!thrown.empty() && on_thrown) on_thrown(thrown);
}

std::exception_ptr WorkState::named(const std::exception_ptr& error) const {
    try {
        std::rethrow_exception(error);
    } catch (const Error& ours) {
        return std::make_exception_ptr(ours.in(owner().group, text(), seq_));
    } catch (...) {
        return error;
    }
}

void WorkState::throw_late(std::string_view when) const {
    const auto& [group, rank, of] = owner();
    const std::string what = text();
    const Error late(ErrorCode::Timeout, fmt::format("group '{}': {}: {} is not done {}", group, rank, what, when));
    throw late.in(group, what, seq_);
}

bool WorkState::wait_until(ddprun::TimePoint until) {
    const ddprun::Lock lock(mutex_);
    while (!done()) {
        if (!changed_.wait_until(mutex_, until) && !done()) return false;
    }
    if (error_) std::rethrow_exception(error_);
    return true;
}

void WorkState::refuse_inside_callback(std::string_view call) const {
    const WorkState* const outer = CallbackFrame::find(owner().of);
    if (outer == nullptr) return;
    const std::string what = text();
    const Error refusal(ErrorCode::InvalidArgument,
                        fmt::format("{}() inside a callback of group '{}': {} waits for {}, but the group goes on only "
                                    "when the callback of {} returns. Start work there, and wait for it elsewhere",
                                    call, owner().group, owner().rank, what, outer->text()));
    throw refusal.in(owner().group, what, seq_);
}

bool WorkState::after_callbacks(const void* group, std::function<void()> end) {
    CallbackFrame* const frame = CallbackFrame::find_outermost(group);
    if (frame != nullptr) frame->at_end(std::move(end));
    return frame != nullptr;
}

bool WorkState::is_in_callback(const void* group) { return CallbackFrame::find(group) != nullptr; }

void WorkState::then(Callback callback) {
    std::exception_ptr error;
    {
        const ddprun::Lock lock(mutex_);
        if (!done_) {
            callbacks_.push_back(std::move(callback));
            return;
        }
        error = error_;
    }
    callback(error);  // an exception goes to the caller, and the group does not wait for it
}

/// Returns when a waiter gives up although the backend has not failed the work: after a pause that is later.
ddprun::TimePoint WorkState::last_moment() const {
    const ddprun::Duration after = grace() + (paused_time() - paused_before_);
    return deadline_ < ddprun::TimePoint::max() - after ? deadline_ + after : ddprun::TimePoint::max();
}

void WorkState::wait() {
    help();
    for (auto latest = last_moment(); !wait_until(latest); latest = last_moment()) {
        const auto now = ddprun::Clock::now();
        if (wait_until(now + kNoticing)) return;
        if (last_moment() <= now)  // a later pause may not have been noticed yet
            throw_late("at its deadline: it is still queued, or its thread is stuck");
    }
}

void WorkState::abandon() noexcept {
    // A callback's exception aborts the group with its own text, and the group waits for that callback.
    if (waited_.load(std::memory_order_relaxed) || is_in_callback(owner().of)) return hurry();
    try {
        const std::string reason =
            fmt::format("it threw an exception while {} was in flight. See the output of this rank", text());
        if (!abort_group(reason) || wait_until(ddprun::Clock::now() + grace() + kNoticing)) return;
        std::fputs(
            fmt::format("[ddp] {}: an exception waits for {}, whose buffers would be freed in use. Is a callback "
                        "of the group busy?\n",
                        owner().rank, text())
                .c_str(),
            stderr);
        (void)wait_until(ddprun::TimePoint::max());
    } catch (...) {  // the work's own error, or no memory: the exception that passes matters more
    }
}

}  // namespace ddp::detail

namespace ddp {

Work::Work(std::shared_ptr<detail::WorkState> state)
    : state_(std::move(state)), exceptions_(std::uncaught_exceptions()) {
    state_->add_handle();
}

Work::Work(const Work& other) : state_(other.state_), done_seq_(other.done_seq_), exceptions_(other.exceptions_) {
    if (state_) state_->add_handle();
}

Work::Work(Work&& other) noexcept = default;

Work& Work::operator=(Work other) noexcept {
    std::swap(state_, other.state_);
    std::swap(done_seq_, other.done_seq_);
    std::swap(exceptions_, other.exceptions_);
    return *this;
}

Work::~Work() {
    if (!state_) return;
    const bool last = state_->remove_handle();
    if (state_->done()) return;
    if (last && std::uncaught_exceptions() > exceptions_) {
        state_->abandon();
    } else {
        state_->hurry();  // perhaps no thread will wait for it
    }
}

bool Work::done() const {
    if (!state_ || state_->done()) return true;
    state_->note_waiter(false);
    state_->hurry();
    return false;
}

void Work::wait() {
    if (!state_) return;
    if (!state_->done()) {
        const bool blocks = state_->blocks_host();
        if (blocks) state_->refuse_inside_callback("wait");
        state_->note_waiter(blocks);
    }
    state_->wait();
    state_->note_waited();
}

void Work::wait_host(std::optional<std::chrono::milliseconds> timeout) {
    if (timeout && timeout->count() < 0) {
        throw Error(ErrorCode::InvalidArgument,
                    fmt::format("wait_host: the timeout is {} ms, and must not be negative. Pass none to wait until "
                                "the operation's own deadline",
                                timeout->count()));
    }
    if (!state_) return;
    if (!state_->done()) {
        state_->refuse_inside_callback("wait_host");
        state_->note_waiter(!timeout);
    }
    if (!timeout) return state_->detail::WorkState::wait();
    state_->hurry();
    if (!state_->wait_until(detail::deadline_in(*timeout))) {
        state_->throw_late(fmt::format("after {} ms of waiting; it goes on", timeout->count()));
    }
}

void Work::then(std::function<void(std::exception_ptr)> callback) {
    if (state_) {
        state_->then(std::move(callback));
        state_->hurry();
    } else {
        callback(nullptr);
    }
}

std::uint64_t Work::seq() const { return state_ ? state_->seq() : done_seq_; }

}  // namespace ddp
