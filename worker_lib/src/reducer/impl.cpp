#include "worker_lib/src/reducer/impl.hpp"

#include <chrono>
#include <exception>
#include <utility>

#include "worker_lib/src/group/broadcast_in_pieces.hpp"
#include "worker_lib/src/group/group_impl.hpp"
#include "worker_lib/src/operation/operation_check.hpp"
#include "worker_lib/src/operation/work_state.hpp"
#include "worker_lib/src/reducer/agreements.hpp"
#include "worker_lib/src/reducer/device_gradients.hpp"
#include "worker_lib/src/reducer/host_gradients.hpp"
#include "worker_lib/src/reducer/parameter_reader.hpp"
#include "worker_lib/src/reducer/refuse.hpp"
#include "worker_lib/src/util/error.hpp"

namespace ddp {

using detail::refuse;

namespace {

std::string text_of(const Buffer& buffer) {
    return std::string(to_string(buffer.dtype)) + "[" + std::to_string(buffer.count) + "] in " +
           (buffer.device == Device::Cuda ? "device" : "host") + " memory";
}

}  // namespace

GradientReducer::Impl::Impl(ProcessGroup& parent, std::vector<ParamSpec> params, ReducerOptions options)
    : specs_(std::move(params)),
      options_(std::move(options)),
      device_(options_.device.value_or(parent.backend() == Backend::Nccl ? Device::Cuda : Device::Cpu)),
      may_rebuild_(options_.rebuild && !options_.plan),
      marks_(specs_) {
    const bool on_device = device_ == Device::Cuda;
    group_ = parent.impl_->split(0, parent.rank(), "reducer",
                                 on_device ? detail::PartMemory::kOfGroup : detail::PartMemory::kHost);
    group_->impl_->allow_any_thread();  // mark_ready starts buckets in launch order, whichever thread calls it
    BucketPlan plan = detail::agree_on_plan(*group_, specs_, options_, device_);
    or_fail([&] {
        timeline_ = detail::TimelineRow::from_environment(group_->impl_->world_rank());
        storage_.emplace(group_->arena(), device_, specs_, std::move(plan), options_.limits.align_bytes);
        memory_ = make_memory();
        exchange_.emplace(*group_, options_, *storage_, *memory_, timeline_);
        if (exchange_->finishes_aside()) finisher_.emplace([this](std::size_t b) { finish_aside(b); });
        take_plan();  // last: it binds the hook to this reducer
    });
}

std::unique_ptr<detail::GradientMemory> GradientReducer::Impl::make_memory() {
    detail::BackendImpl& backend = group_->impl_->backend();
    if (device_ == Device::Cpu) return std::make_unique<detail::HostGradients>(*storage_);
    auto memory = std::make_unique<detail::DeviceGradients>(*backend.device(), group_->arena(), *storage_);
    capture_.emplace(*group_, *memory);
    backend.before_abort([words = memory->words()] { words->give_up(); });
    return memory;
}

GradientReducer::Impl::~Impl() {
    {
        const ddprun::Lock lock(mutex_);
        if (phase_.in_backward()) {
            abort(std::uncaught_exceptions() > 0 ? "an exception ended its backward. See its output"
                                                 : "its GradientReducer was destroyed in the middle of a backward");
        }
    }
    finish_step_check();
    finisher_.reset();  // after the abort, for it may wait for a bucket that peers never complete; before the group
    if (options_.hook) options_.hook->release();
}

Buffer GradientReducer::Impl::grad(std::size_t i) const {
    check_index(i);
    return storage_->gradient(i);
}

Buffer GradientReducer::Impl::grad(std::size_t i, DType type) const {
    const Buffer found = grad(i);
    if (device_ == Device::Cuda)
        refuse(
            "grad: the gradient of parameter '" + specs_[i].name +
            "' is in the memory of a CUDA device, which the host cannot read. Call grad without a type, and pass its "
            "address to kernels; or set ReducerOptions::device to Device::Cpu");
    if (found.dtype != type)
        refuse("grad: parameter '" + specs_[i].name + "' is " + std::string(to_string(found.dtype)) + ", not " +
               std::string(to_string(type)) + ". Call grad<T> with its type");
    return found;
}

void GradientReducer::Impl::zero_grads(Stream stream) {
    const ddprun::Lock lock(mutex_);
    phase_.refuse_if_failed();
    if (phase_.in_backward()) refuse("zero_grads: a backward is going on. Call it before begin_backward");
    memory_->check_first(stream, "zero_grads");
    memory_->zero_all(stream);
}

void GradientReducer::Impl::bind(std::size_t i, Buffer external) {
    check_index(i);
    const Buffer& view = storage_->view(i);
    const std::string name = "bind: parameter '" + specs_[i].name + "'";
    if (const auto wrong = detail::device_memory_complaint(external, name, ": the buffer"); !wrong.empty())
        refuse(wrong);
    if (external.count != view.count || external.dtype != view.dtype || external.device != view.device)
        refuse(name + " needs " + text_of(view) + ", not " + text_of(external) +
               (external.device == view.device ? "" : ". ReducerOptions::device chooses the memory of the gradients"));
    if (external.data == nullptr && external.count > 0) refuse(name + " got no memory");
    const ddprun::Lock lock(mutex_);
    memory_->check(external, name);
    if (phase_.in_backward()) refuse(name + " cannot be bound in the middle of a backward");
    if (marks_.has_accumulated())
        refuse(name +
               " holds gradients of backwards without sync, which would be lost. Bind it before the first of them");
    storage_->bind(i, external);
    ++binds_;
}

void GradientReducer::Impl::begin(bool sync, Stream stream) {
    sync = next_.synchronises(sync);
    {
        const ddprun::Lock lock(mutex_);
        phase_.refuse_if_failed();
        if (!phase_.is_idle()) refuse("begin_backward: the previous backward was not ended by finish_backward");
        next_.check(sync);
        memory_->check_first(stream, "begin_backward");
        if (capture_) capture_->check_backward(sync);
    }
    if (options_.check_every_step) detail::agree_on_step(*group_, statistics_.steps(), sync);
    next_.begin();  // not before: when ranks disagree, all may try again
    const std::uint64_t number = statistics_.count_backward();
    or_fail([&] {
        throw_failure_of_group();
        if (sync) check_step(number, capture_ && capture_->is_running() ? "capture" : "backward");
        if (may_rebuild_ && statistics_.steps() > 0) rebuild_plan(stream);
        const ddprun::Lock lock(mutex_);
        if (sync) memory_->begin(stream);
    });

    const ddprun::Lock lock(mutex_);
    marks_.begin(sync);
    exchange_->begin();
    phase_.begin(sync);
    if (capture_) capture_->note_begin();
    statistics_.begin(ddprun::Clock::now());
}

/// Compares the numbers of the ranks' backwards, so that buckets of different ones are not taken for each other's. The
/// native backend does that with every operation. NCCL compares nothing, so there a barrier of the hosts does, which no
/// thread waits for: if it fails, so does a later call.
/// kind   "backward", "capture", or "replay": all ranks do the same
void GradientReducer::Impl::check_step(std::uint64_t number, std::string kind) {
    group_->impl_->set_step(number);
    if (device_ == Device::Cuda) step_check_ = detail::WorkState::of(group_->barrier({.label = std::move(kind)}));
}

/// Waits for the barrier of the last backward, if the reducer ends without a failure. A rank that left in the middle of
/// it would be lost for the others, which have begun the backward later, and would abort its exchange.
void GradientReducer::Impl::finish_step_check() noexcept {
    constexpr auto kTimeout = std::chrono::seconds(1);  // the ranks have exchanged gradients: they are not far apart
    if (step_check_ == nullptr || std::uncaught_exceptions() > 0) return;
    try {
        (void)step_check_->wait_until(ddprun::Clock::now() + kTimeout);
    } catch (...) {  // the group has failed, and there is no call left that could throw its error
    }
}

/// Collective. All ranks follow rank 0's order, once it has one: a rank that only shadowed others' backwards has none.
void GradientReducer::Impl::rebuild_plan(Stream stream) {
    const auto ready = [this] {
        const ddprun::Lock lock(mutex_);
        return marks_.ready_order();
    }();
    const auto order = detail::share_ready_order(*group_, ready, specs_.size());
    may_rebuild_ = order.empty() && !specs_.empty();
    if (may_rebuild_) return;
    BucketPlan rebuilt = plan_buckets(specs_, options_.limits, order);
    if (rebuilt == plan()) return;
    storage_->lay_out(std::move(rebuilt));
    memory_->clear(stream);
    take_plan();
}

void GradientReducer::Impl::take_plan() {
    {
        const ddprun::Lock lock(mutex_);  // stats() may run meanwhile
        exchange_->take_plan();
    }
    exchange_->prepare_hook();
}

void GradientReducer::Impl::mark(std::size_t i, bool unused, Stream stream) {
    check_index(i);
    const detail::Fill fill = [&] {
        const ddprun::Lock lock(mutex_);
        phase_.refuse_if_failed();
        if (!phase_.in_backward())
            refuse("parameter '" + specs_[i].name + "' was marked outside begin_backward … finish_backward");
        if (capture_) capture_->check_thread(unused ? "mark_unused" : "mark_ready");
        // Host memory has no streams, and a virtual call would cost a noticeable part of a mark.
        if (device_ == Device::Cuda) memory_->check(stream, unused ? "mark_unused" : "mark_ready");
        const detail::Fill claimed = marks_.claim(i, unused);
        if (claimed == detail::Fill::kNotYet && phase_.is_syncing()) memory_->mark(i, stream);
        return claimed;
    }();
    if (fill == detail::Fill::kNotYet) return;
    memory_->fill(i, fill, stream);
    complete(i, stream);
}

/// Counts a gradient whose contents are final on `stream`, and launches every bucket whose turn has come.
void GradientReducer::Impl::complete(std::size_t i, Stream stream) {
    const ddprun::Lock lock(mutex_);
    marks_.complete(i);
    if (!phase_.is_syncing()) return;
    try {
        if (device_ == Device::Cuda) memory_->mark(i, stream);
        if (exchange_->count_gradient(storage_->bucket_of(i))) statistics_.count_out_of_order();
        while (const auto bucket = exchange_->take_complete()) {
            exchange_->launch(*bucket, statistics_.steps());
            if (finisher_) finisher_->add();
        }
    } catch (...) {
        fail();  // else a caller that drops this exception would finish with unreduced gradients
        throw;
    }
}

BackwardResult GradientReducer::Impl::finish(Stream stream) {
    {
        const ddprun::Lock lock(mutex_);
        if (phase_.in_backward()) memory_->check(stream, "finish_backward");
    }
    if (options_.unused == UnusedPolicy::Zero) mark_the_rest(stream);
    const bool sync = end_marking();
    const auto wait_began = ddprun::Clock::now();
    BackwardResult step{.synchronised = sync};
    ddprun::Duration exposed{};
    if (sync) {
        or_fail([&] {
            wait_for_buckets();
            end_exchange(stream);
            exposed = exchange_->waited_since(wait_began);
            if (!options_.find_unused) return;
            const auto asked = ddprun::Clock::now();
            const auto used = [this] {
                const ddprun::Lock lock(mutex_);
                return marks_.used();
            }();
            step.used = detail::used_on_any_rank(*group_, used);
            exposed += ddprun::Clock::now() - asked;
        });
    }
    last_stream_ = stream;
    const auto now = ddprun::Clock::now();
    timeline_.backward(sync, statistics_.began(), wait_began, now);
    const ddprun::Lock lock(mutex_);
    phase_.end();
    marks_.end(sync);
    statistics_.end(now);
    if (capture_) capture_->note_end();
    if (sync && !(capture_ && capture_->is_running())) statistics_.count_step(storage_->bucket_bytes(), exposed);
    return step;
}

/// On a device no call waits for what the group has done.
void GradientReducer::Impl::throw_failure_of_group() const {
    if (device_ == Device::Cpu) return;
    if (const auto failure = group_->impl_->failure()) throw Error(*failure);
}

void GradientReducer::Impl::check_capture() const {
    constexpr std::string_view kLeftOut = ", and a replay would leave out what that does on the host";
    if (options_.hook) refuse("capture: this reducer has a hook" + std::string(kLeftOut));
    if (options_.find_unused) refuse("capture: this reducer has find_unused" + std::string(kLeftOut));
    if (statistics_.steps() == 0)
        refuse("capture: NCCL connects and allocates in its first operation. Make a synchronised backward first");
    if (may_rebuild_)
        refuse(
            "capture: the buckets may move in the next begin_backward (ReducerOptions::rebuild). Make another "
            "synchronised backward first");
}

void GradientReducer::Impl::check_whole_step(Stream stream, std::string_view call) {
    const std::string name(call);
    const ddprun::Lock lock(mutex_);
    phase_.refuse_if_failed();
    if (!phase_.is_idle()) refuse(name + ": a backward is going on. End it by finish_backward first");
    if (capture_ && capture_->is_running())
        refuse(name + ": a capture is going on. Call it when capture() has returned");
    if (const auto what = next_.decided_by(); !what.empty())
        refuse(name + ": a " + std::string(what) + " is active, and a captured step is one whole step of all ranks");
    if (marks_.has_accumulated())
        refuse(name +
               ": gradients of backwards without sync are accumulated, and a captured step has none. Make a "
               "synchronised backward first");
    memory_->check_first(stream, call);
}

std::shared_ptr<CapturedStep::State> GradientReducer::Impl::capture(Stream stream, const std::function<void()>& step) {
    if (!capture_)
        refuse(
            "capture: the gradients are in host memory, and CUDA graphs hold work of a device. Use a group of "
            "Backend::Nccl with ReducerOptions::device left out");
    check_whole_step(stream, "capture");
    check_capture();
    const detail::StepCapture::Span span = capture_->begin(stream);
    auto captured = std::make_shared<CapturedStep::State>();
    captured->reducer = this;
    captured->binds = binds_;
    or_fail([&] {
        throw_failure_of_group();
        captured->graph = capture_->run(stream, step);
    });
    return captured;
}

void GradientReducer::Impl::replay(const CapturedStep::State& step, Stream stream) {
    check_whole_step(stream, "replay");
    or_fail([&] { throw_failure_of_group(); });  // which has freed the graph
    if (step.reducer != this || step.graph->instance() == nullptr)
        refuse(
            "replay: another reducer has captured the step, or the one that has is gone. Capture it by this reducer");
    if (step.binds != binds_)
        refuse(
            "replay: gradients were bound after the capture, and the step would use the earlier buffers. Capture it "
            "again");
    if (options_.check_every_step) detail::agree_on_step(*group_, statistics_.steps(), true);
    const std::uint64_t number = statistics_.count_backward();
    or_fail([&] {
        check_step(number, "replay");
        capture_->replay(*step.graph, stream);
        const ddprun::Lock lock(mutex_);
        capture_->count_replay(stream);
        statistics_.count_step(storage_->bucket_bytes(), {});
    });
    last_stream_ = stream;
}

/// Completes all gradients that were not fully marked, for UnusedPolicy::Zero.
void GradientReducer::Impl::mark_the_rest(Stream stream) {
    const auto rest = [this] {
        const ddprun::Lock lock(mutex_);
        // Outside of a backward end_marking() throws.
        return phase_.in_backward() ? marks_.claim_the_rest() : std::vector<std::pair<std::size_t, detail::Fill>>();
    }();
    for (const auto& [i, fill] : rest) {
        memory_->fill(i, fill, stream);
        complete(i, stream);
    }
}

/// Returns whether this backward synchronises. Throws Error{InvalidArgument} when a gradient is missing.
bool GradientReducer::Impl::end_marking() {
    const ddprun::Lock lock(mutex_);
    phase_.refuse_if_failed();
    if (!phase_.in_backward()) refuse("finish_backward was called without begin_backward");
    const std::string missing = marks_.missing();
    if (missing.empty()) return phase_.is_syncing();
    try {
        refuse("finish_backward: these parameters were not marked ready: " + missing +
               ". Call mark_ready for each gradient, or mark_unused for those that took no part, or set "
               "ReducerOptions::unused to UnusedPolicy::Zero. The reducer has failed: correct the program");
    } catch (...) {
        fail();
        throw;
    }
}

/// Finishes a bucket on the finisher's thread. The peers get a failure at once, the caller from its next call.
void GradientReducer::Impl::finish_aside(std::size_t b) noexcept {
    {
        const ddprun::Lock lock(mutex_);
        if (phase_.has_failed()) return;
    }
    std::exception_ptr failure;
    try {
        return exchange_->finish(b);
    } catch (...) {
        failure = std::current_exception();
    }
    const ddprun::Lock lock(mutex_);
    if (phase_.has_failed()) return;  // this one is a consequence
    try {
        std::rethrow_exception(failure);
    } catch (...) {
        fail();
    }
    phase_.keep_unreported(std::move(failure));  // moved: from here on the exception is the caller's alone
}

void GradientReducer::Impl::end_exchange(Stream stream) {
    const ddprun::Lock lock(mutex_);
    memory_->end(stream);
}

void GradientReducer::Impl::wait_for_buckets() {
    if (!finisher_) return exchange_->finish_all();
    exchange_->note_waiter();
    finisher_->wait();
    const ddprun::Lock lock(mutex_);
    phase_.refuse_if_failed();
}

/// Ends the reducer with the exception that is being handled. Aborts its groups, so that the peers fail
/// at once instead of waiting until their deadline for buckets that never come.
void GradientReducer::Impl::fail() {
    if (phase_.has_failed()) return;  // a consequence of the first failure
    const std::string text = detail::caught();
    phase_.fail(text);
    abort(text);
}

void GradientReducer::Impl::abort(std::string_view reason) {
    group_->abort(reason);
    if (exchange_) exchange_->abort_hook(reason);
}

void GradientReducer::Impl::end_for_misuse(const std::string& text) {
    or_fail([&] { refuse(text); });
}

void GradientReducer::Impl::shadow(bool sync) {
    next_.announce(sync);
    const Stream stream = last_stream_;
    begin(sync, stream);
    for (std::size_t i = specs_.size(); i-- > 0;) mark(i, true, stream);
    finish(stream);
    const ddprun::Lock lock(mutex_);
    marks_.forget_ready_order();
}

void GradientReducer::Impl::sync_parameters(std::span<const Buffer> params, int root, Stream stream) {
    detail::broadcast_in_pieces(*group_, params, root, "parameters", stream);
}

void GradientReducer::Impl::verify_parameters(std::span<const Buffer> params, Stream stream) {
    detail::ParameterReader reader(group_->impl_->backend().device(), stream, group_->impl_->spec().default_timeout);
    detail::verify_parameters(*group_, specs_, params, reader);
}

ReducerStats GradientReducer::Impl::stats() const {
    const ddprun::Lock lock(mutex_);
    ReducerStats stats = statistics_.stats();
    stats.confirmed = memory_->confirmed(stats.steps);
    stats.buckets_done = exchange_->done();
    return stats;
}

void GradientReducer::Impl::check_index(std::size_t i) const {
    if (i >= specs_.size()) {
        refuse("there is no parameter " + std::to_string(i) + ": " + std::to_string(specs_.size()) +
               " were registered");
    }
}

}  // namespace ddp
