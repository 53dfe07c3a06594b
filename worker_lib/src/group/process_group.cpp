#include "ddp/process_group.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <tuple>

#include "common/cut.hpp"
#include "worker_lib/src/exchange.hpp"
#include "worker_lib/src/group.hpp"
#include "worker_lib/src/operation_check.hpp"
#include "worker_lib/src/split_names.hpp"
#include "worker_lib/src/store_wait.hpp"
#include "worker_lib/src/timeouts.hpp"

namespace ddp::detail {

namespace {

/// One rank's wish in a split, as it travels through the store: "color key name".
std::string timeout_complaint(const OpOptions& options) {
    return fmt::format("OpOptions::timeout is {} ms. Pass 0 for the default of the group", options.timeout.count());
}

constexpr std::size_t kMostNameBytes = 200;  // names of groups inside groups add up, in store keys and errors

void check_name(const GroupSpec& spec, std::string_view name) {
    if (name.size() <= kMostNameBytes) return;
    throw refusal(spec, fmt::format("split: its name for the parts, '{}', has {} bytes, and {} are allowed. Pass a "
                                    "shorter one on all ranks",
                                    ddprun::cut(name, 40), name.size(), kMostNameBytes));
}

/// With where its members are, now that they have met.
GroupSpec with_places(GroupSpec spec, const BackendImpl& backend) {
    spec.places.clear();
    for (int rank = 0; rank < static_cast<int>(spec.members.size()); ++rank)
        spec.places.push_back(backend.where_is(rank));
    return spec;
}

}  // namespace

GroupImpl::GroupImpl(GroupSpec spec, std::unique_ptr<BackendImpl> backend)
    : spec_(with_places(std::move(spec), *backend)), place_(spec_), backend_(std::move(backend)) {}

/// In a child of fork() nothing is ended: it would be the parent's group, and its threads are not here.
GroupImpl::~GroupImpl() {
    if (home_.is_elsewhere()) {
        static_cast<void>(backend_.release());
    } else if (!backend_->failure()) {  // before the peers can know
        place_.leave(std::uncaught_exceptions() > 0);
    }
}

/// A child of fork() that handles an error as its parent would has nothing to end.
void GroupImpl::abort(std::string_view reason) {
    if (home_.is_elsewhere()) return;
    if (!backend_->failure()) place_.abort(reason);  // what follows from a failure, maybe a peer's, is no other
    backend_->abort(reason);                         // which still ends what was before that failure
}

void GroupImpl::check_process() const {
    if (!home_.is_elsewhere()) return;
    throw Error(
        ErrorCode::InvalidArgument,
        fmt::format("group '{}': process {} is a child of fork(), and the group belongs to its parent ({}). Call "
                    "ddp only there, or call exec() in the child",
                    spec_.name, ::getpid(), backend_->name_of(spec_.rank)));
}

Work GroupImpl::submit(Operation&& operation, const OpOptions& options) {
    check_process();
    if (!options.tag.empty()) operation.tag = options.tag;
    std::string wrong = complaint(operation, spec_, backend_->kind());
    if (options.timeout.count() < 0) wrong = timeout_complaint(options);
    const std::lock_guard lock(mutex_);
    operation.seq = last_seq_ + 1;
    operation.counts_hash += step_;
    if (!wrong.empty()) {
        const std::string what = describe(operation);
        throw refusal(spec_, fmt::format("{}: {}", what, wrong)).in(spec_.name, what, operation.seq);
    }
    // Nobody sets a short timeout and asks for speed.
    const bool own_timeout = options.timeout.count() > 0;
    const ddprun::TimePoint tick = ddprun::last_tick();
    operation.timeout = timeout_of(options);
    operation.deadline = (own_timeout ? ddprun::Clock::now() : tick + ddprun::tick_length()) + operation.timeout;
    const BoardClaim claim = place_.claim();
    const bool opened = backend_->open(operation);
    const ddprun::TimePoint now = opened || !place_.is_written() ? tick : ddprun::Clock::now();
    const BoardTicket ticket = operation.ticket = place_.queue(operation, claim, now);
    try {
        auto state = backend_->submit(std::move(operation));
        ++last_seq_;
        if (state) return Work(std::move(state));
        ticket.done_at_once(now);
        return Work(last_seq_);
    } catch (...) {
        // The peers take part in what was opened: that was called, and the group has failed of it.
        opened ? ticket.ended(false) : ticket.refused();
        throw;
    }
}

void GroupImpl::set_step(std::uint64_t step) {
    const std::lock_guard lock(mutex_);
    step_ = step;
}

Work GroupImpl::transfer(TransferBatch batch, const OpOptions& options) {
    if (batch.transfers.empty()) return {};
    auto state = queue(batch, options);
    if (!state) return Work(batch.seq);
    state->start();  // without the lock: works may end in it, and their callbacks start others
    return Work(std::move(state));
}

Work GroupImpl::transfer(const Transfer& one, const Stream& stream, const OpOptions& options) {
    TransferBatch batch;
    batch.stream = stream;
    batch.transfers.push_back(one);
    return transfer(std::move(batch), options);
}

/// Null: it is done already, and well.
std::shared_ptr<WorkState> GroupImpl::queue(TransferBatch& batch, const OpOptions& options) {
    check_process();
    if (!options.tag.empty()) batch.tag = options.tag;
    const bool own_timeout = options.timeout.count() > 0;
    const ddprun::TimePoint tick = ddprun::last_tick();
    batch.timeout = timeout_of(options);
    batch.deadline = (own_timeout ? ddprun::Clock::now() : tick + ddprun::tick_length()) + batch.timeout;
    const std::lock_guard lock(mutex_);
    batch.seq = last_transfer_ + 1;
    std::string wrong = complaint(batch, spec_.rank, static_cast<int>(spec_.members.size()), backend_->kind());
    if (options.timeout.count() < 0) {
        wrong = fmt::format("{}: {}", describe(batch, batch.transfers.front()), timeout_complaint(options));
    }
    if (!wrong.empty()) {
        throw refusal(spec_, wrong).in(spec_.name, describe(batch, batch.transfers.front()), batch.seq);
    }
    place_.claim(batch);
    const bool opened = backend_->open_transfer(batch);
    const ddprun::TimePoint now = opened || !place_.is_written() ? tick : ddprun::Clock::now();
    place_.queue(batch, now);
    if (opened && backend_->finish_transfer(batch)) {
        ++last_transfer_;
        for (const BoardTicket& ticket : batch.tickets) ticket.done_at_once(now);
        return nullptr;
    }
    // What has been opened is not refused: if it cannot go on the group has failed.
    const std::vector<BoardTicket> tickets = opened ? std::vector<BoardTicket>() : batch.tickets;
    try {
        auto state = backend_->transfer(std::move(batch));
        ++last_transfer_;
        return state;
    } catch (...) {  // refused
        for (const BoardTicket& ticket : tickets) ticket.refused();
        throw;
    }
}

ddprun::Duration GroupImpl::timeout_of(const OpOptions& options) const {
    return options.timeout.count() > 0 ? bounded(options.timeout) : spec_.default_timeout;
}

std::unique_ptr<ProcessGroup> GroupImpl::split(int color, int key, std::string_view name) {
    check_process();
    check_name(spec_, name);
    const auto number = [this] {
        const std::lock_guard lock(mutex_);
        return ++splits_;
    }();
    const std::string call = fmt::format("split '{}'", name);
    refuse_if_aborted(spec_, *backend_, call);
    const WaitAtStore on_board = wait_at_store({"split", name, spec_.init_timeout});
    const SplitWish own{color, key, std::string(name)};
    std::vector<SplitWish> wishes;
    for (const std::string& text : exchange(spec_, fmt::format("split/{}", number), to_text(own), backend_.get(), call))
        wishes.push_back(parse_wish(text));

    GroupSpec spec = spec_;
    spec.name = name_of_part(spec_.name, number, own, wishes);
    spec.path = fmt::format("{}/{}.{}:{}", path_of(spec_), number, color, name);
    std::vector<std::tuple<int, int>> order;  // (key, rank in this group) of those with our color
    for (int rank = 0; rank < static_cast<int>(wishes.size()); ++rank) {
        const SplitWish& wish = wishes[static_cast<std::size_t>(rank)];
        if (wish.color != color) continue;
        order.emplace_back(wish.key, rank);
        if (color >= 0 && wish.name != name) {
            throw Error(ErrorCode::Mismatch,
                        fmt::format("split of group '{}': {} calls it '{}', {} calls it '{}'", spec_.name,
                                    backend_->name_of(spec_.rank), name, backend_->name_of(rank), wish.name));
        }
    }
    if (color < 0) return nullptr;
    std::ranges::sort(order);
    spec.members.clear();
    spec.places.clear();
    for (const auto& [unused, rank] : order) {
        if (rank == spec_.rank) spec.rank = static_cast<int>(spec.members.size());
        spec.members.push_back(spec_.members[static_cast<std::size_t>(rank)]);
        spec.places.push_back(spec_.places[static_cast<std::size_t>(rank)]);
    }
    const GroupSpec forming = spec;
    return make_group(std::move(spec), *backend_, forming);
}

std::vector<std::string> GroupImpl::tell_all(std::string_view topic, std::string_view value, std::string_view call) {
    check_process();
    refuse_if_aborted(spec_, *backend_, call);
    const WaitAtStore on_board = wait_at_store({call, topic, spec_.init_timeout});
    return exchange(spec_, topic, value, backend_.get(), call);
}

std::string name_rank(int rank, int global_rank, std::string_view place) {
    std::string about = global_rank < 0 || global_rank == rank ? "" : fmt::format("global rank {}", global_rank);
    if (!about.empty() && !place.empty()) about += ", ";
    about += place;
    return about.empty() ? fmt::format("rank {}", rank) : fmt::format("rank {} ({})", rank, about);
}

std::string name_rank(const GroupSpec& spec, int rank) {
    const auto index = static_cast<std::size_t>(rank);
    return name_rank(rank, spec.members[index], spec.places.empty() ? "" : spec.places[index]);
}

std::string name_self(const GroupSpec& spec) {
    return name_rank(spec.rank, spec.members[static_cast<std::size_t>(spec.rank)], "");
}

Error refusal(const GroupSpec& spec, std::string_view wrong) {
    return {ErrorCode::InvalidArgument,
            fmt::format("group '{}': {}: {}", spec.name, name_rank(spec, spec.rank), wrong)};
}

std::string BackendImpl::where_is(int /*rank*/) const { return {}; }
int BackendImpl::global_rank(int /*rank*/) const { return -1; }
RankState BackendImpl::state_of(int /*rank*/) const { return {}; }
int BackendImpl::stopped_pid(int /*rank*/) const { return 0; }
std::optional<Error> BackendImpl::failure() const { return std::nullopt; }

namespace {

std::unique_ptr<BackendImpl> make_backend(const GroupSpec& spec, Backend kind) {
    return kind == Backend::Nccl ? make_nccl_backend(spec) : make_native_backend(spec);
}

std::unique_ptr<ProcessGroup> with_backend(GroupSpec spec, std::unique_ptr<BackendImpl> backend) {
    return std::make_unique<ProcessGroup>(std::make_unique<GroupImpl>(std::move(spec), std::move(backend)));
}

}  // namespace

std::unique_ptr<BackendImpl> BackendImpl::make_another(const GroupSpec& spec) const {
    return make_backend(spec, kind());
}

std::unique_ptr<ProcessGroup> make_group(GroupSpec spec, Backend kind) {
    auto backend = make_backend(spec, kind);
    return with_backend(std::move(spec), std::move(backend));
}

std::unique_ptr<ProcessGroup> make_group(GroupSpec spec, const BackendImpl& like, const GroupSpec& forming) {
    return with_backend(std::move(spec), like.make_another(forming));
}

}  // namespace ddp::detail

namespace ddp {

ProcessGroup::ProcessGroup(std::unique_ptr<detail::GroupImpl> impl) : impl_(std::move(impl)) {}
ProcessGroup::ProcessGroup(ProcessGroup&&) noexcept = default;

int ProcessGroup::rank() const { return impl_->spec().rank; }
int ProcessGroup::size() const { return static_cast<int>(impl_->spec().members.size()); }
const std::string& ProcessGroup::name() const { return impl_->spec().name; }
Backend ProcessGroup::backend() const { return impl_->backend().kind(); }

std::string ProcessGroup::name_of(int rank) const {
    if (rank < 0 || rank >= size())
        throw detail::refusal(impl_->spec(), fmt::format("there is no rank {} in a group of {}", rank, size()));
    return impl_->backend().name_of(rank);
}

Arena& ProcessGroup::arena() { return impl_->backend().arena(); }
void ProcessGroup::abort(std::string_view reason) { impl_->abort(reason); }

std::unique_ptr<ProcessGroup> ProcessGroup::split(int color, int key, std::string_view name) {
    return impl_->split(color, key, name);
}

std::unique_ptr<ProcessGroup> ProcessGroup::shrink(std::span<const int> exclude) { return impl_->shrink(exclude); }

void ProcessGroup::monitored_barrier(std::chrono::milliseconds timeout, std::string_view where) {
    impl_->monitored_barrier(timeout, where);
}

}  // namespace ddp
