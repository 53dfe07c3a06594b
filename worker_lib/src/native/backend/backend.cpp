#include "worker_lib/src/native/backend/backend.hpp"

#include <fmt/format.h>

#include <exception>
#include <new>
#include <utility>

#include "worker_lib/src/native/native.hpp"
#include "worker_lib/src/util/signal_masked_thread.hpp"

namespace ddp::detail {

NativeBackend::NativeBackend(const GroupSpec& spec, Connected connected)
    : peers_(spec, connected),
      handle_(std::make_shared<BackendHandle<NativeBackend>>(
          *this, Participant{spec.name, peers_.own_name(), &peers_.node()})),
      failure_(peers_, queue_, p2p_),
      p2p_(
          peers_, [this](const Failure& failure) { failure_.report(failure); },
          [handle = handle_](const WorkState& work, std::string_view thrown) {
              (void)handle->with([&](NativeBackend& own) { own.abort_for(work, thrown); });
          }),
      runner_(peers_, queue_, failure_, std::move(connected.rules), handle_) {
    if (connected.p2p_listener) p2p_.make(connected.key, std::move(connected.p2p_listener));
    thread_ = start_signal_masked_thread("ddp-native", [this] { run(); });
}

/// Fails the work in flight, then reports the departure of this rank, or the group's failure, to the peers.
NativeBackend::~NativeBackend() {
    auto how = std::uncaught_exceptions() > 0 ? Departure::kLeftByException : Departure::kLeft;
    Node& node = peers_.node();
    Links* const links = peers_.links();
    Watch* const watch = peers_.watch();
    // Both come before stop(), which must not look like a failure of the group.
    if (watch != nullptr) watch->stop();
    auto failure = node.failure.for_other_nodes();
    failure_.stop(
        {.code = ErrorCode::Aborted,
         .cause = fmt::format("group '{}' was destroyed by {} with work in flight", peers_.group(), peers_.own_name()),
         .names_group = true});
    thread_.join();
    handle_->shut();
    const auto ending = runner_.ending();
    if (how == Departure::kLeft && ending.left_in_flight) how = Departure::kLeftInFlight;
    if (!failure && !node.failure.stopped()) failure = node.failure.for_other_nodes();
    const Absence departure = node.progress.own_absence(how);
    if (P2p* const p2p = p2p_.get()) p2p->stop(failure ? *failure : departure.failure, failure.has_value());
    const bool reported_end = ending.failure && !node.failure.stopped();
    if (links != nullptr && !reported_end) failure ? links->report_end(*failure) : links->report_end(departure);
    node.progress.leave(how);
    if (watch != nullptr) watch->report_end(failure, departure);
}

std::unique_ptr<BackendImpl> NativeBackend::make_another(const GroupSpec& spec) const {
    return make_native_backend(spec);
}

QueuedBatch NativeBackend::transfer(TransferList&& batch, TransferRecord& record) {
    P2p* p2p = p2p_.get();
    p2p::DoneTransfers done;
    try {
        p2p::ImmediateBatch begun = p2p != nullptr ? p2p->open(batch) : p2p::ImmediateBatch();
        done = begun.done();
        record.write(batch, begun ? Announced::kYes : Announced::kNo);
        done = std::move(begun).finish(batch);
        if (done.all) {
            record.done_at_once(batch);
            return QueuedBatch::done();
        }
        if (p2p == nullptr) p2p = &p2p_.make({}, {});
        return QueuedBatch(p2p->submit(std::move(batch), done));
    } catch (const std::bad_alloc&) {
        if (done.bits != 0) failure_.report_out_of_memory();  // peers have got a part, and must not wait for the rest
        throw;
    }
}

/// The body of the progress thread: runs the queued operations until the group ends, and then fails the rest.
void NativeBackend::run() {
    for (bool goes_on = true; goes_on;) {
        goes_on = queue_.wait();
        runner_.run_queue();
    }
}

std::unique_ptr<BackendImpl> make_native_backend(const GroupSpec& spec) {
    return std::make_unique<NativeBackend>(spec, connect_members(spec));
}

}  // namespace ddp::detail
