#include "worker_lib/src/group/group_impl.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <tuple>

#include "common/text/cut.hpp"
#include "worker_lib/src/bootstrap/exchange.hpp"
#include "worker_lib/src/group/monitored_barrier.hpp"
#include "worker_lib/src/group/shrink.hpp"
#include "worker_lib/src/group/split_names.hpp"
#include "worker_lib/src/group/store_wait.hpp"
#include "worker_lib/src/operation/operation_check.hpp"
#include "worker_lib/src/util/thread_id.hpp"
#include "worker_lib/src/util/timeouts.hpp"

namespace ddp::detail {

namespace {

/// Notes that this thread is in submit().
class Inside {
public:
    explicit Inside(std::atomic<pid_t>& thread) : thread_(thread) {
        thread_.store(thread_id(), std::memory_order_relaxed);
    }
    ~Inside() { thread_.store(0, std::memory_order_relaxed); }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

private:
    std::atomic<pid_t>& thread_;
};

bool has_bad_timeout(const OpOptions& options) { return options.timeout && options.timeout->count() <= 0; }

std::string timeout_complaint(const OpOptions& options) {
    return fmt::format("OpOptions::timeout is {} ms, and must be positive. Leave it out for the default of the group",
                       options.timeout->count());
}

constexpr ddprun::Duration kLeastToConnect = std::chrono::seconds(1);

constexpr std::size_t kMaxNameBytes = 200;  // the names of nested groups add up, in store keys and errors

void check_name(const GroupSpec& spec, std::string_view name) {
    if (name.size() <= kMaxNameBytes) return;
    throw refusal(spec, fmt::format("split: its name for the parts, '{}', has {} bytes, and {} are allowed. Pass a "
                                    "shorter one on all ranks",
                                    ddprun::cut(name, 40), name.size(), kMaxNameBytes));
}

/// Returns the time at which the timeout of an operation begins. The group's default begins at the kernel's next tick,
/// which is cheap to get. A timeout of the call may be short, so it begins now.
ddprun::TimePoint begin_of_timeout(const OpOptions& options, ddprun::TimePoint tick) {
    return options.timeout ? ddprun::Clock::now() : tick + ddprun::tick_length();
}

/// Returns the error with its code and culprits, if it has any.
Error as_error(const std::exception& error) {
    const auto* const ours = dynamic_cast<const Error*>(&error);
    return ours != nullptr ? *ours : Error(ErrorCode::System, error.what());
}

/// Returns the spec with the addresses of the members, which are known once they have met.
GroupSpec with_places(GroupSpec spec, const BackendImpl& backend) {
    spec.locations.clear();
    for (int rank = 0; rank < static_cast<int>(spec.members.size()); ++rank)
        spec.locations.push_back(backend.location_of(rank));
    spec.note_unreachable = nullptr;  // the entry that it writes to ends now
    return spec;
}

}  // namespace

GroupImpl::GroupImpl(GroupSpec spec, std::unique_ptr<BackendImpl> backend)
    : spec_(with_places(std::move(spec), *backend)), recorder_(spec_), backend_(std::move(backend)) {}

/// Ends nothing in a child of fork(), because the group belongs to the parent and its threads exist only there.
GroupImpl::~GroupImpl() {
    if (home_.is_elsewhere()) {
        static_cast<void>(backend_.release());
        return;
    }
    backend_->fail_with(nullptr);                                               // the control group ends first
    if (!backend_->failure()) recorder_.leave(std::uncaught_exceptions() > 0);  // before the peers can know
}

std::unique_ptr<ProcessGroup> GroupImpl::handle(std::unique_ptr<GroupImpl> impl) {
    return std::unique_ptr<ProcessGroup>(new ProcessGroup(std::move(impl)));
}

/// Does nothing in a child of fork(), which may run the error handling of its parent.
void GroupImpl::abort(std::string_view reason) {
    if (home_.is_elsewhere()) return;
    if (!backend_->failure()) recorder_.abort(reason);  // else it follows from that failure
    backend_->abort(reason);                            // also ends the operations before an earlier failure
    if (GroupImpl* const control = control_.if_made()) control->abort(reason);
}

std::optional<Error> GroupImpl::failure() {
    share_failure();
    return backend_->failure();
}

bool GroupImpl::after_callbacks(std::function<void()> end) const {
    if (home_.is_elsewhere()) return false;
    if (const GroupImpl* const control = control_.if_made(); control != nullptr && control->after_callbacks(end))
        return true;
    return backend_->after_callbacks(std::move(end));
}

GroupImpl& GroupImpl::control_group(ddprun::Duration timeout) {
    GroupImpl& control = control_.get([&] {
        try {
            return connect_control_group(timeout);
        } catch (const std::exception& error) {
            backend_->fail(as_error(error));  // the group has failed, as by any other operation
            throw;
        }
    });
    share_failure();
    return control;
}

std::unique_ptr<GroupImpl> GroupImpl::connect_control_group(ddprun::Duration timeout) {
    if (const auto failed = backend_->failure()) throw Error(*failed);  // its ranks may have ended
    constexpr std::string_view kCall = "the first barrier or operation on host memory";
    const WaitAtStore recorded_wait = wait_at_store({"connect", "host memory", timeout});
    return recorded_wait.run([&] {
        const ddprun::TimePoint deadline = ddprun::Clock::now() + timeout;
        GroupSpec meeting = spec_;
        meeting.init_timeout = timeout;
        (void)exchange(meeting, "control", "", backend_.get(), kCall);  // names the ranks that have not come
        GroupSpec spec = spec_;
        spec.name = spec_.name + " (host)";
        spec.path = path_of(spec_) + "/host";
        spec.make_control_backend = nullptr;
        spec.note_unreachable = recorded_wait.note_unreachable();
        GroupSpec forming = spec;  // all ranks are here, so that connecting them takes a moment
        const ddprun::Duration left = deadline - ddprun::Clock::now();
        forming.init_timeout = std::min(spec_.init_timeout, std::max(left, kLeastToConnect));
        auto backend = spec_.make_control_backend(forming);
        auto control = std::make_unique<GroupImpl>(std::move(spec), std::move(backend));
        backend_->fail_with([own = control->backend_.get()] { return own->failure(); });
        if (any_thread_) control->allow_any_thread();
        return control;
    });
}

void GroupImpl::share_failure() {
    GroupImpl* const control = control_.if_made();
    if (control == nullptr) return;
    const std::optional<Error> device_failure = backend_->failure();
    const std::optional<Error> host_failure = control->backend_->failure();
    // Without an entry in the flight record, which would report that the program called abort().
    if (device_failure && !host_failure) control->backend_->fail(*device_failure);
    if (host_failure && !device_failure) backend_->fail(*host_failure);
}

void GroupImpl::check_process() const {
    if (!home_.is_elsewhere()) return;
    throw Error(
        ErrorCode::InvalidArgument,
        fmt::format("group '{}': process {} is a child of fork(), and the group belongs to its parent, {}. Call "
                    "ddp only there, or call exec() in the child",
                    spec_.name, ::getpid(), backend_->name_of(spec_.rank)));
}

Work GroupImpl::submit(Operation&& operation, const OpOptions& options) {
    check_process();
    if (!options.label.empty()) operation.label = options.label;
    operation.stream = options.stream;
    if (spec_.make_control_backend != nullptr) {
        if (is_for_control_group(operation) && !has_bad_timeout(options)) {
            GroupImpl& control = control_group(timeout_of(options));
            operation.counts_hash += step();
            return control.submit(std::move(operation), options);
        }
        share_failure();
    }
    std::string wrong = complaint(operation, spec_, backend_->kind());
    if (has_bad_timeout(options)) wrong = timeout_complaint(options);
    const pid_t inside = inside_.load(std::memory_order_relaxed);
    const ddprun::Lock lock(mutex_);
    const Inside here(inside_);
    operation.seq = last_seq_ + 1;
    operation.counts_hash += step_;
    if (wrong.empty() && (inside != 0 || last_thread_ != thread_id())) {
        wrong = thread_complaint(inside);
        // The order of the calls before this one is as uncertain: no sum of the group can be trusted any more.
        if (!wrong.empty()) abort(fmt::format("{}: {}", describe(operation), wrong));
    }
    if (!wrong.empty()) {
        const std::string what = describe(operation);
        throw refusal(spec_, fmt::format("{}: {}", what, wrong)).in(spec_.name, what, operation.seq);
    }
    const ddprun::TimePoint tick = ddprun::last_tick();
    operation.timeout = timeout_of(options);
    operation.deadline = begin_of_timeout(options, tick) + operation.timeout;
    OperationRecord record(recorder_, tick);
    try {
        auto state = backend_->submit(std::move(operation), record);
        ++last_seq_;
        if (state) return WorkState::handle(std::move(state));
    } catch (...) {
        record.refused();
        throw;
    }
    record.done_at_once();
    return WorkState::done_handle(last_seq_);
}

/// A callback may call while operations of the program are in flight, but not at the same time as another thread.
std::string GroupImpl::thread_complaint(pid_t inside) {
    const pid_t thread = thread_id();
    const bool at_the_same_time = inside != 0 && inside != thread;
    const bool in_callback = backend_->is_in_callback();
    if (any_thread_) return {};
    const bool in_between = !in_callback && last_thread_ != 0 && last_thread_ != thread && backend_->is_busy(last_seq_);
    if ((at_the_same_time || in_between) && !backend_->failure()) {
        return fmt::format(
            "thread {} calls it while {} of thread {} is in flight. The order of their calls is left to chance, and "
            "differs between ranks. Give each thread a group of its own (ProcessGroup::split), or wait for the Work "
            "before another thread goes on",
            thread, at_the_same_time ? "a call" : fmt::format("operation #{}", last_seq_),
            at_the_same_time ? inside : last_thread_);
    }
    if (!in_callback) last_thread_ = thread;
    return {};
}

void GroupImpl::allow_any_thread() {
    any_thread_ = true;
    if (GroupImpl* const control = control_.if_made()) control->allow_any_thread();
}

std::uint64_t GroupImpl::step() const {
    const ddprun::Lock lock(mutex_);
    return step_;
}

void GroupImpl::set_step(std::uint64_t step) {
    const ddprun::Lock lock(mutex_);
    step_ = step;
}

Work GroupImpl::transfer(TransferList batch, const OpOptions& options) {
    if (batch.transfers.empty()) return {};
    std::uint64_t seq = 0;
    auto state = queue(std::move(batch), options, seq).start();
    return state ? WorkState::handle(std::move(state)) : WorkState::done_handle(seq);
}

Work GroupImpl::transfer(const Transfer& one, const OpOptions& options) {
    TransferList batch;
    batch.transfers.push_back(one);
    return transfer(std::move(batch), options);
}

QueuedBatch GroupImpl::queue(TransferList&& batch, const OpOptions& options, std::uint64_t& seq) {
    check_process();
    if (!options.label.empty()) batch.label = options.label;
    batch.stream = options.stream;
    const ddprun::TimePoint tick = ddprun::last_tick();
    batch.timeout = timeout_of(options);
    batch.deadline = begin_of_timeout(options, tick) + batch.timeout;
    const ddprun::Lock lock(mutex_);
    seq = batch.seq = last_transfer_ + 1;
    std::string wrong = complaint(batch, spec_.rank, static_cast<int>(spec_.members.size()), backend_->kind());
    if (has_bad_timeout(options)) {
        wrong = fmt::format("{}: {}", describe(batch, batch.transfers.front()), timeout_complaint(options));
    }
    if (!wrong.empty()) {
        throw refusal(spec_, wrong).in(spec_.name, describe(batch, batch.transfers.front()), batch.seq);
    }
    TransferRecord record(recorder_, batch, tick);
    try {
        auto queued = backend_->transfer(std::move(batch), record);
        ++last_transfer_;
        return queued;
    } catch (...) {
        record.refused();
        throw;
    }
}

ddprun::Duration GroupImpl::timeout_of(const OpOptions& options) const {
    return options.timeout ? bounded(*options.timeout) : spec_.default_timeout;
}

std::unique_ptr<ProcessGroup> GroupImpl::split(int color, int key, std::string_view name, PartMemory memory) {
    check_process();
    check_name(spec_, name);
    const auto number = [this] {
        const ddprun::Lock lock(mutex_);
        return ++splits_;
    }();
    const std::string call = fmt::format("split '{}'", name);
    const WaitAtStore recorded_wait = wait_at_store({"split", name, spec_.init_timeout});
    return recorded_wait.run([&] {
        refuse_if_aborted(spec_, *backend_, call);
        const bool on_host = memory == PartMemory::kHost && spec_.make_control_backend != nullptr;
        return form_part(number, {color, key, std::string(name), on_host}, call, recorded_wait);
    });
}

std::unique_ptr<ProcessGroup> GroupImpl::form_part(std::uint64_t number, const SplitRequest& own, std::string_view call,
                                                   const WaitAtStore& wait) {
    const auto& [color, key, name, on_host] = own;
    std::vector<SplitRequest> requests;
    for (const std::string& text : exchange(spec_, fmt::format("split/{}", number), to_text(own), backend_.get(), call))
        requests.push_back(parse_request(text));

    GroupSpec spec = spec_;
    spec.name = name_of_part(spec_.name, number, own, requests);
    spec.path = fmt::format("{}/{}.{}:{}", path_of(spec_), number, color, name);
    std::vector<std::tuple<int, int>> order;  // (key, rank in this group) of those with our color
    for (int rank = 0; rank < static_cast<int>(requests.size()); ++rank) {
        const SplitRequest& request = requests[static_cast<std::size_t>(rank)];
        if (request.color != color) continue;
        order.emplace_back(request.key, rank);
        if (color >= 0 && request.name != name) {
            throw Error(ErrorCode::Mismatch,
                        fmt::format("split of group '{}': ranks of one color must pass one name, but {} passes '{}' "
                                    "and {} passes '{}'. Pass the same name on all ranks of color {}",
                                    spec_.name, backend_->name_of(spec_.rank), name, backend_->name_of(rank),
                                    request.name, color));
        }
        if (request.on_host != on_host) {
            const auto kind = [](bool host) { return host ? "host memory" : "device memory"; };
            throw Error(ErrorCode::Mismatch,
                        fmt::format("the reducers of group '{}': {} has gradients in {}, but {} in {}. Set "
                                    "ReducerOptions::device alike on every rank",
                                    spec_.name, backend_->name_of(spec_.rank), kind(on_host), backend_->name_of(rank),
                                    kind(request.on_host)));
        }
    }
    if (color < 0) return nullptr;
    std::ranges::sort(order);
    spec.members.clear();
    spec.locations.clear();
    for (const auto& [unused, rank] : order) {
        if (rank == spec_.rank) spec.rank = static_cast<int>(spec.members.size());
        spec.members.push_back(spec_.members[static_cast<std::size_t>(rank)]);
        spec.locations.push_back(spec_.locations[static_cast<std::size_t>(rank)]);
    }
    spec.note_unreachable = wait.note_unreachable();
    const auto make_host_backend = spec.make_control_backend;
    if (on_host) spec.make_control_backend = nullptr;
    auto backend = on_host ? make_host_backend(spec) : backend_->make_another(spec);
    auto part = make_group(std::move(spec), std::move(backend));
    if (any_thread_) part->impl_->allow_any_thread();
    return part;
}

std::vector<std::string> GroupImpl::exchange_with_all(std::string_view topic, std::string_view value,
                                                      std::string_view call) {
    check_process();
    const WaitAtStore recorded_wait = wait_at_store({call, topic, spec_.init_timeout});
    return recorded_wait.run([&] {
        refuse_if_aborted(spec_, *backend_, call);
        return exchange(spec_, topic, value, backend_.get(), call);
    });
}

std::unique_ptr<ProcessGroup> GroupImpl::shrink(std::span<const int> exclude) {
    check_process();
    std::vector<int> excluded = checked_exclusion(spec_, exclude);
    const ddprun::Lock lock(shrink_mutex_);
    return shrink_group(spec_, *backend_, shrinks_, std::move(excluded));
}

void GroupImpl::monitored_barrier(std::optional<std::chrono::milliseconds> timeout, std::string_view where) {
    check_process();
    if (timeout && timeout->count() <= 0) {
        throw refusal(spec_, fmt::format("monitored_barrier: the timeout is {} ms, and must be positive. Pass none "
                                         "for the default of the group",
                                         timeout->count()));
    }
    const auto number = [this] {
        const ddprun::Lock lock(mutex_);
        return ++monitored_;
    }();
    const ddprun::Duration bound = timeout ? bounded(*timeout) : spec_.default_timeout;
    const WaitAtStore recorded_wait = wait_at_store({"monitored_barrier", where, bound});
    recorded_wait.run([&] { pass_monitored_barrier(spec_, *backend_, number, where, bound); });
}

WaitAtStore GroupImpl::wait_at_store(StoreStep step) {
    const ddprun::Lock lock(mutex_);
    if (!store_recorder_) store_recorder_.emplace(spec_, spec_.name + " (store)");
    step.seq = ++store_steps_;
    return WaitAtStore(*store_recorder_, step);
}

std::unique_ptr<ProcessGroup> make_group(GroupSpec spec, std::unique_ptr<BackendImpl> backend) {
    return GroupImpl::handle(std::make_unique<GroupImpl>(std::move(spec), std::move(backend)));
}

}  // namespace ddp::detail
