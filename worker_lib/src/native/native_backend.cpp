#include "worker_lib/src/native/native_backend.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <new>

#include "worker_lib/src/native/one_shot.hpp"
#include "worker_lib/src/native/quiet_thread.hpp"
#include "worker_lib/src/native/usual_floats.hpp"

namespace ddp::detail {

NativeBackend::NativeBackend(const GroupSpec& spec, Connected connected)
    : name_(spec.name),
      rank_(spec.rank),
      topology_(std::move(connected.topology)),
      members_(std::move(connected.members)),
      rules_(std::move(connected.rules)),
      arena_(std::move(connected.segment)),
      node_(spec.name, std::move(connected.local), topology_.own_index, topology_.nodes.size() == 1),
      handle_(std::make_shared<BackendHandle>(*this, Participant{name_, name_of(rank_), &node_})) {
    if (!connected.links.empty()) links_.emplace(spec.name, spec.generation, std::move(connected.links), node_);
    if (!connected.leaders.empty()) watch_.emplace(node_, spec.generation, std::move(connected.leaders));
    if (connected.p2p_listener) p2p_ = make_p2p(connected.hello, std::move(connected.p2p_listener));
    scratch_.sources.reserve(static_cast<std::size_t>(node_.size()));  // what submit() does cannot fail
    scratch_.outputs.reserve(static_cast<std::size_t>(node_.size()) + 1);
    thread_ = start_quiet_thread("ddp-native", [this] { run(); });
}

NativeBackend::~NativeBackend() {
    auto how = std::uncaught_exceptions() > 0 ? Departure::kLeftByException : Departure::kLeft;
    // Both before end(), which must look to nobody like a failure of the group.
    if (watch_) watch_->stop();
    auto failure = node_.failure_for_others();
    end(Error(ErrorCode::Aborted,
              fmt::format("group '{}' was destroyed by {} with work in flight", name_, name_of(rank_))),
        false, node_.last_done());
    thread_.join();
    handle_->shut();
    if (how == Departure::kLeft && left_in_flight_) how = Departure::kLeftInFlight;
    if (!failure && !node_.stopped()) failure = failure_;
    const Absence departure = node_.own_absence(how);
    if (p2p_) p2p_->stop(failure ? *failure : departure.error, failure.has_value());
    const bool goodbye_said = failure_ && !node_.stopped();
    if (links_ && !goodbye_said) failure ? links_->say_goodbye(*failure) : links_->say_goodbye(departure);
    node_.leave(how);
    if (watch_) watch_->say_goodbye(failure, departure);
}

std::shared_ptr<WorkState> NativeBackend::submit(Operation&& operation) {
    const bool opened = opening_.owns_lock();
    const std::unique_lock running = std::move(opening_);  // until it is in the queue: nobody may think there is none
    Step step = opened ? Step::kOpened : Step::kNone;
    if (opened && opened_alone_) step = go_on(operation);
    if (step == Step::kDone) return nullptr;
    try {
        return enqueue(std::move(operation), step);
    } catch (const std::bad_alloc&) {
        // The peers take part in what was opened: the group cannot go on as if that had not been called.
        if (opened) end(out_of_memory(), true, node_.last_done());
        throw;
    }
}

Error NativeBackend::out_of_memory() const {
    return Error(ErrorCode::System, fmt::format("group '{}': {} is out of memory", name_, name_of(rank_)));
}

std::shared_ptr<WorkState> NativeBackend::transfer(TransferBatch batch) {
    std::shared_ptr<P2p> p2p;
    {
        const std::lock_guard lock(p2p_mutex_);
        if (!p2p_) p2p_ = make_p2p({}, {});
        p2p = p2p_;
    }
    const bool has_sent = p2p->has_sent();
    try {
        return p2p->submit(std::move(batch));
    } catch (const std::bad_alloc&) {
        if (has_sent) end(out_of_memory(), true, node_.last_done());  // as in submit()
        throw;
    }
}

std::shared_ptr<P2p> NativeBackend::make_p2p(Hello hello, ddprun::UniqueFd listener) {
    return std::make_shared<P2p>(
        P2pSetup{.group = name_,
                 .rank = rank_,
                 .topology = topology_,
                 .members = members_,
                 .node = node_,
                 .arena = arena_,
                 .hello = hello,
                 .listener = std::move(listener),
                 .on_failure = [this](const Error& failure) { end(failure, true, node_.last_done()); },
                 .on_thrown =
                     [handle = handle_](const WorkState& work, std::string_view text) {
                         handle->with([&](NativeBackend& own) { own.give_up_for(work, text); });
                     }});
}

/// The first step, if that is possible here and now: nobody runs, and all before it are opened. GroupImpl has one
/// thread at a time call open() and submit(), so that nothing comes in between.
bool NativeBackend::open(const Operation& operation) noexcept {
    const bool one_shot = is_one_shot(topology_, operation);
    if (!one_shot && !may_do_at_once(operation)) return false;
    std::unique_lock running(running_, std::try_to_lock);
    if (!running || failure_) return false;
    // Nobody else queues now, nor takes away while we hold running_.
    opened_alone_ = idle_.load(std::memory_order_relaxed);
    if (!(one_shot ? open_one_shot(operation) : open_all_reduce(operation))) return false;
    opened_one_shot_ = one_shot;
    opening_ = std::move(running);
    return true;
}

bool NativeBackend::open_one_shot(const Operation& operation) {
    if (!opened_alone_ && !can_open_behind_others(operation)) return false;
    return node_.try_open(operation, {}, one_shot_data(topology_, operation));
}

bool NativeBackend::may_do_at_once(const Operation& operation) const {
    return operation.kind == OpKind::kAllReduce && operation.buffer.bytes() <= kAtOnceBytes &&
           topology_.nodes.size() == 1 && !node_.crowded();
}

/// Peers need us afterwards: it must not wait behind others, nor for a caller that computes.
bool NativeBackend::open_all_reduce(const Operation& operation) {
    if (!opened_alone_ || !caller_waits_.load(std::memory_order_relaxed)) return false;
    const OwnBuffers own = own_buffers(operation);
    if (own.input.is_foreign() || own.output.is_foreign()) return false;
    return node_.try_open(operation, {.input = own.input.place(), .output = own.output.place()}, {});
}

/// The rest of it, as far as peers have come. Whatever is left begins when somebody is at it again: until then this
/// rank waits for nobody, and says so.
Step NativeBackend::go_on(const Operation& operation) {
    if (!node_.try_join()) return Step::kOpened;
    const UsualFloats floats;
    if (opened_one_shot_) {
        finish_one_shot(team(), operation, OwnData::kBuffer);
    } else {
        const Step step = reduce_and_arrive(team(), operation, own_buffers(operation));
        if (step != Step::kArrived || !node_.try_barrier()) return step;
    }
    node_.done(operation);
    return Step::kDone;
}

void NativeBackend::abort(std::string_view reason) {
    end(Error(ErrorCode::Aborted, fmt::format("group '{}' was aborted by {}: {}", name_, name_of(rank_), reason),
              {rank_}),
        true, node_.poisoned() ? node_.last_done() : 0);
    const std::lock_guard lock(p2p_mutex_);
    if (p2p_) p2p_->interrupt();
}

std::string NativeBackend::where_is(int rank) const { return place_of(members_[static_cast<std::size_t>(rank)]); }

namespace {

RankState state_after(const Absence& absence) {
    return {.gone = true,
            .text = absence.error.what(),
            .left = absence.how == Departure::kLeft || absence.how == Departure::kLeftInFlight ||
                    absence.how == Departure::kLeftByException,
            .ended = absence.how == Departure::kEnded};
}

}  // namespace

/// Of the ranks of this node; of others only whether they are gone, where this rank leads its node.
RankState NativeBackend::state_of(int rank) const {
    const auto& local = topology_.local();
    const auto index = static_cast<int>(std::ranges::find(local, rank) - local.begin());
    const auto gone = watch_ ? watch_->departure_of(rank) : std::nullopt;
    if (index == node_.size() || rank == rank_) return gone ? state_after(*gone) : RankState{};
    if (const auto absence = node_.absence(index)) return state_after(*absence);
    const auto [begun, done] = node_.progress_of(index);
    const std::string last = done == 0 ? "no operation so far" : fmt::format("operation #{} as the last", done);
    if (begun > done) return {false, fmt::format("{} is alive, and in operation #{}", name_of(rank), begun)};
    return {false, fmt::format("{} is alive, in no operation, and has done {}", name_of(rank), last)};
}

int NativeBackend::stopped_pid(int rank) const {
    const auto& local = topology_.local();
    const auto index = static_cast<int>(std::ranges::find(local, rank) - local.begin());
    return index == node_.size() || rank == rank_ ? 0 : node_.stopped_pid(index);
}

OwnBuffer NativeBackend::own_buffer(const Buffer& buffer) const {
    return {.data = static_cast<std::byte*>(buffer.data),
            .bytes = buffer.bytes(),
            .heap_offset = arena_.offset_of(buffer.data, buffer.bytes())};
}

void NativeBackend::perform(const Job& job) {
    try {
        if (failure_) {
            throw Error(failure_->code(),
                        fmt::format("{} cannot run, for the group has failed: {}", describe(job.operation),
                                    without_reader(failure_->what())),
                        failure_->culprits());
        }
        const Operation& operation = job.operation;
        job.work->begin();
        node_.begin(operation);
        if (job.step == Step::kReduced || job.step == Step::kArrived) node_.take_earliest_deadline();
        if (!job.given) node_.check_poison(operation);  // else peers may end it well without us, and so must we
        if (is_one_shot(topology_, operation)) {
            if (job.step == Step::kNone) node_.open(operation, {}, one_shot_data(topology_, operation));
            node_.join(operation);
            const UsualFloats floats;
            finish_one_shot(team(), operation, OwnData::kAnnounced);
        } else {
            const UsualFloats floats;
            run_collective(team(), operation, own_buffers(operation), job.step);
        }
        node_.done(operation);
    } catch (const Error& error) {
        if (node_.stopped()) note_unfinished(job);
        fail(error, job.operation.seq - 1);
        complete(*job.work, std::current_exception());
        return;
    } catch (const std::exception& error) {  // out of memory, most likely
        const Error failure(ErrorCode::System, fmt::format("{}: {}", describe(job.operation), error.what()));
        fail(failure, job.operation.seq - 1);
        complete(*job.work, std::make_exception_ptr(failure));
        return;
    }
    complete(*job.work, nullptr);
}

/// What its callbacks throw nobody else catches.
void NativeBackend::complete(WorkState& work, std::exception_ptr error) {
    work.complete(std::move(error), [&](std::string_view thrown) { give_up_for(work, thrown); });
}

void NativeBackend::give_up_for(const WorkState& work, std::string_view thrown) {
    if (failure()) return;
    work.note_abort(thrown);
    abort(thrown);
}

/// It fails because we leave. Of what peers need nothing more of us for, they may say that we have done it.
void NativeBackend::note_unfinished(const Job& job) {
    left_in_flight_ = left_in_flight_ || !job.given;
    if (!left_in_flight_) node_.done(job.operation);
}

/// Takes the whole group along: the ranks of this node at once, the others by a last message. Unless this rank is only
/// leaving: then the destructor tells them that. What comes `after` cannot be done; they may still be at what came
/// before.
void NativeBackend::fail(const Error& failure, std::uint64_t after) {
    if (failure_) return;
    failure_ = failure;
    node_.poisoned() ? node_.pass_on(after) : node_.poison(failure, after);
    if (!links_) return;
    links_->finish_messages();  // while the buffers of the operation are still ours
    if (!node_.stopped()) links_->say_goodbye(failure);
}

std::unique_ptr<BackendImpl> make_native_backend(const GroupSpec& spec) {
    return std::make_unique<NativeBackend>(spec, connect_members(spec));
}

}  // namespace ddp::detail
