#include "worker_lib/src/board.hpp"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "ddp/phase.hpp"
#include "worker_lib/src/backend.hpp"

namespace ddp::detail {

namespace layout = ddprun::board;

namespace {

/// A fork has the memory, too, but is not who the board is about.
std::atomic<bool> is_fork{false};

std::int64_t nanoseconds(ddprun::TimePoint time) {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

std::int64_t now() { return nanoseconds(ddprun::Clock::now()); }

template <std::size_t Size>
void copy(std::array<char, Size>& to, std::string_view text) {
    std::memcpy(to.data(), text.data(), std::min(text.size(), Size));
}

template <std::size_t Size>
std::array<char, Size> padded(std::string_view text) {
    std::array<char, Size> result{};
    copy(result, text);
    return result;
}

/// What operations are called, as it stands on the board: as words to copy, for a small one takes little longer than
/// copying four texts.
class Names {
public:
    Names() {
        for (std::size_t i = 0; i < kinds_.size(); ++i) kinds_[i] = padded<24>(to_string(static_cast<OpKind>(i)));
        for (std::size_t i = 0; i < dtypes_.size(); ++i) dtypes_[i] = padded<8>(ddp::to_string(static_cast<DType>(i)));
        for (std::size_t i = 0; i < reduces_.size(); ++i)
            reduces_[i] = padded<8>(ddp::to_string(static_cast<ReduceOp>(i)));
    }
    [[nodiscard]] const auto& of(OpKind kind) const { return kinds_[static_cast<std::size_t>(kind)]; }
    [[nodiscard]] const auto& of(DType type) const { return dtypes_[static_cast<std::size_t>(type)]; }
    [[nodiscard]] const auto& of(ReduceOp op) const { return reduces_[static_cast<std::size_t>(op)]; }

private:
    std::array<std::array<char, 24>, static_cast<std::size_t>(OpKind::kAllToAllV) + 1> kinds_{};
    std::array<std::array<char, 8>, static_cast<std::size_t>(DType::f64) + 1> dtypes_{};
    std::array<std::array<char, 8>, static_cast<std::size_t>(ReduceOp::BXor) + 1> reduces_{};
};

const Names& names() {
    static const Names all;
    return all;
}

/// False: they do not fit.
bool describe_members(const std::vector<int>& members, layout::Group& group) {
    for (std::size_t i = 0; i < members.size(); ++group.run_count) {
        if (group.run_count == layout::kRuns) return false;
        layout::Run& run = group.runs[group.run_count];
        run.first = members[i];
        run.count = 1;
        if (i + 1 < members.size()) run.stride = members[i + 1] - members[i];
        while (++i < members.size() && members[i] - members[i - 1] == run.stride) ++run.count;
    }
    return true;
}

/// Operations may end on several threads: one that comes late takes nothing back.
void raise_to(std::atomic<std::uint64_t>& number, std::uint64_t to) {
    if (number.load(std::memory_order_relaxed) < to) number.store(to, std::memory_order_relaxed);
}

Board* take_inherited() {
    const char* text = std::getenv(layout::kDescriptorVariable);
    if (text == nullptr) return nullptr;
    int descriptor = -1;
    const char* end = text + std::strlen(text);
    std::string problem = "not a number";
    layout::Board* memory = nullptr;
    if (const auto parsed = std::from_chars(text, end, descriptor); parsed.ptr == end && parsed.ec == std::errc())
        memory = take_board(descriptor, problem);
    if (memory == nullptr) {
        const char* level = std::getenv("LOGLEVEL");
        if (level != nullptr && std::string_view(level) == "debug") {
            std::fputs(fmt::format("[ddp] no board: {}={}: {}\n", layout::kDescriptorVariable, text, problem).c_str(),
                       stderr);
        }
        return nullptr;
    }
    ::pthread_atfork(nullptr, nullptr, [] { is_fork.store(true, std::memory_order_relaxed); });
    return new Board(*memory);  // for good: threads may write until the process has ended
}

}  // namespace

Board* process_board() {
    static Board* const board = take_inherited();
    return is_fork.load(std::memory_order_relaxed) ? nullptr : board;
}

BoardGroup Board::add(const GroupSpec& spec, std::string_view name) {
    const std::lock_guard lock(mutex_);
    layout::GroupSlot* oldest = nullptr;
    std::uint32_t oldest_id = 0;
    for (layout::GroupSlot& slot : memory_.groups) {
        layout::Group group;
        const bool used = slot.group.load(group);
        if (used && group.live != 0) continue;
        if (oldest != nullptr && used && group.id >= oldest_id) continue;
        oldest = &slot;
        oldest_id = used ? group.id : 0;
        if (!used) break;
    }
    if (oldest == nullptr) {
        memory_.hidden_groups.fetch_add(1, std::memory_order_relaxed);
        return {.hidden = true};
    }
    layout::Group group;
    group.id = ++groups_;
    group.live = 1;
    group.rank = spec.rank;
    group.size = static_cast<std::int32_t>(spec.members.size());
    if (!describe_members(spec.members, group)) group.run_count = 0;
    copy(group.name, name.empty() ? spec.name : name);
    for (auto* number : {&oldest->queued, &oldest->started, &oldest->done}) number->store(0, std::memory_order_relaxed);
    oldest->group.store(group);
    return {oldest, group.id};
}

void Board::remove(const BoardGroup& place) {
    if (place.hidden) memory_.hidden_groups.fetch_sub(1, std::memory_order_relaxed);
    if (place.slot == nullptr) return;
    const std::lock_guard lock(mutex_);
    layout::Group group;
    if (!place.slot->group.load(group)) return;
    group.live = 0;
    place.slot->group.store(group);
}

/// No slot when a thread that was interrupted for a whole turn of the ring is still writing there: then the operation
/// is not on the board.
BoardClaim Board::claim() {
    const std::uint64_t id = memory_.last_operation.fetch_add(1, std::memory_order_relaxed) + 1;
    layout::OperationSlot& slot = memory_.operations[id % layout::kOperations];
    return {slot.operation.begin_store() ? &slot : nullptr, id};
}

void Board::write(const BoardClaim& claim, layout::Operation& entry) {
    if (claim.slot == nullptr) return;
    entry.id = claim.id;
    layout::OperationSlot& slot = *claim.slot;
    slot.id.store(entry.id, std::memory_order_relaxed);
    slot.started.store(0, std::memory_order_release);
    slot.ended.store(0, std::memory_order_release);
    slot.waited.store(0, std::memory_order_release);
    slot.timed_out.store(0, std::memory_order_release);
    slot.operation.finish_store(entry);
}

BoardTicket Board::queue(const Operation& operation, const BoardClaim& claim, const BoardGroup& group,
                         ddprun::TimePoint now) {
    if (group.slot == nullptr) return {};
    layout::Operation entry;
    entry.group = group.id;
    entry.seq = operation.seq;
    entry.fingerprint = operation.counts_hash;
    entry.queued = nanoseconds(now);
    entry.op = names().of(operation.kind);
    if (!operation.tag.empty()) copy(entry.tag, operation.tag);
    if (has_root(operation.kind)) entry.peer = operation.root;
    if (reduces(operation.kind)) entry.reduce = names().of(operation.reduce_op);
    if (operation.kind != OpKind::kBarrier) {
        entry.count = operation.compared_count();
        entry.input_count = operation.buffer.count;
        entry.output_count = operation.result().count;
        entry.dtype = names().of(operation.part().dtype);
    }
    write(claim, entry);
    group.slot->queued.store(operation.seq, std::memory_order_relaxed);
    return {claim.slot, *group.slot, claim.id, operation.seq};
}

std::vector<BoardTicket> Board::queue(const TransferBatch& batch, const BoardGroup& group, ddprun::TimePoint now) {
    std::vector<BoardTicket> tickets;
    for (std::size_t i = 0; group.slot != nullptr && i < batch.transfers.size(); ++i) {
        const Transfer& transfer = batch.transfers[i];
        layout::Operation entry;
        entry.group = group.id;
        entry.seq = group.slot->queued.load(std::memory_order_relaxed);
        entry.p2p_seq = batch.seq;
        entry.queued = nanoseconds(now);
        entry.peer = transfer.peer;
        entry.count = entry.input_count = entry.output_count = transfer.buffer.count;
        copy(entry.op, transfer.sends ? "send" : "recv");
        copy(entry.dtype, ddp::to_string(transfer.buffer.dtype));
        entry.transfer_tag = transfer.tag;
        copy(entry.tag, batch.tag);
        const BoardClaim place = claim();
        write(place, entry);
        tickets.emplace_back(place.slot, *group.slot, place.id, 0).started();
    }
    return tickets;
}

BoardTicket Board::queue(const StoreStep& step, const BoardGroup& group, ddprun::TimePoint now) {
    if (group.slot == nullptr) return {};
    layout::Operation entry;
    entry.group = group.id;
    entry.seq = step.seq;
    entry.queued = nanoseconds(now);
    copy(entry.op, step.what);
    copy(entry.tag, step.tag);
    const BoardClaim place = claim();
    write(place, entry);
    group.slot->queued.store(step.seq, std::memory_order_relaxed);
    return {place.slot, *group.slot, place.id, step.seq};
}

void Board::set_phase(std::string_view text) {
    const std::lock_guard lock(mutex_);
    layout::Phase phase;
    phase.since = now();
    copy(phase.text, text);
    memory_.phase.store(phase);
}

void BoardTicket::mark_started() const {
    if (is_fork.load(std::memory_order_relaxed)) return;
    if (has_slot()) slot_->started.store(now(), std::memory_order_relaxed);
    if (seq_ != 0) raise_to(group_->started, seq_);
}

/// A thread that waits says more than one that looks, and who looked first has waited longest.
void BoardTicket::mark_waited(bool blocked) const {
    if (is_fork.load(std::memory_order_relaxed) || !has_slot()) return;
    const std::int64_t known = slot_->waited.load(std::memory_order_relaxed);
    if (known > 0 || (known < 0 && !blocked)) return;
    slot_->waited.store(blocked ? now() : -now(), std::memory_order_relaxed);
}

void BoardTicket::mark_ended(bool well, bool timed_out) const {
    if (is_fork.load(std::memory_order_relaxed)) return;
    if (has_slot()) {
        if (timed_out) slot_->timed_out.store(1, std::memory_order_relaxed);
        slot_->ended.store(well ? now() : -now(), std::memory_order_release);
    }
    if (seq_ != 0 && well) raise_to(group_->done, seq_);
}

void BoardTicket::mark_done(ddprun::TimePoint queued) const {
    if (is_fork.load(std::memory_order_relaxed)) return;
    if (has_slot()) {
        slot_->started.store(nanoseconds(queued), std::memory_order_relaxed);
        slot_->ended.store(nanoseconds(queued), std::memory_order_relaxed);
    }
    if (seq_ == 0) return;
    raise_to(group_->started, seq_);
    raise_to(group_->done, seq_);
}

BoardPlace::BoardPlace(const GroupSpec& spec, std::string_view name)
    : board_(process_board()), group_(board_ != nullptr ? board_->add(spec, name) : BoardGroup()) {}

BoardPlace::~BoardPlace() {
    if (may_write()) board_->remove(group_);
}

bool BoardPlace::may_write() const { return board_ != nullptr && !is_fork.load(std::memory_order_relaxed); }

BoardTicket BoardPlace::queue(const Operation& operation, const BoardClaim& claim, ddprun::TimePoint now) {
    return claim.id != 0 ? board_->queue(operation, claim, group_, now) : BoardTicket();
}

std::vector<BoardTicket> BoardPlace::queue(const TransferBatch& batch, ddprun::TimePoint now) {
    return may_write() ? board_->queue(batch, group_, now) : std::vector<BoardTicket>();
}

BoardTicket BoardPlace::queue(const StoreStep& step, ddprun::TimePoint now) {
    return may_write() ? board_->queue(step, group_, now) : BoardTicket();
}

}  // namespace ddp::detail

namespace ddp {

void set_phase(std::string_view text) {
    if (detail::Board* board = detail::process_board()) board->set_phase(text);
}

}  // namespace ddp
