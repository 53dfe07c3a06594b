#include "worker_lib/src/board.hpp"

#include <fmt/format.h>
#include <pthread.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <tuple>

#include "common/cut.hpp"
#include "ddp/phase.hpp"
#include "worker_lib/src/backend.hpp"
#include "worker_lib/src/board_writing.hpp"
#include "worker_lib/src/fnv.hpp"

namespace ddp::detail {

namespace layout = ddprun::board;

namespace {

template <std::size_t Size>
void copy(std::array<char, Size>& to, std::string_view text) {
    std::copy_n(text.begin(), std::min(text.size(), Size), to.begin());
}

template <std::size_t Size>
std::array<char, Size> padded(std::string_view text) {
    std::array<char, Size> result{};
    copy(result, text);
    return result;
}

/// Boards tell groups apart by name, and the parts of a split differ at its end or, in parts of parts, anywhere. Of one
/// that is too long the board has the beginning, a hash of all of it, and the end.
std::string name_for_board(std::string_view name) {
    constexpr std::size_t kRoom = std::tuple_size_v<decltype(layout::Group::name)>;
    constexpr std::size_t kEnd = 40;
    if (name.size() <= kRoom) return std::string(name);
    Fnv64 hash;
    hash.add(name);
    std::size_t from = name.size() - kEnd;
    while (from < name.size() && (static_cast<unsigned char>(name[from]) & 0xC0U) == 0x80) ++from;  // whole characters
    const std::string end = fmt::format("[{:016x}]{}", hash.value(), name.substr(from));
    return ddprun::cut(name, kRoom - end.size()) + end;
}

std::uint32_t milliseconds(ddprun::Duration timeout) {
    const std::int64_t count = std::chrono::ceil<std::chrono::milliseconds>(timeout).count();
    return static_cast<std::uint32_t>(std::clamp<std::int64_t>(count, 0, UINT32_MAX));
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
    copy(group.name, name_for_board(name.empty() ? spec.name : name));
    for (auto* number : {&oldest->queued, &oldest->started, &oldest->done}) number->store(0, std::memory_order_relaxed);
    oldest->abort.clear();
    oldest->left.store(0, std::memory_order_relaxed);
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
    slot.failure.store(layout::Failure::kOther, std::memory_order_release);
    slot.operation.finish_store(entry);
}

BoardTicket Board::queue(const Operation& operation, const BoardClaim& claim, const BoardGroup& group,
                         ddprun::TimePoint now) {
    if (group.slot == nullptr) return {};
    const Names& words = names();
    layout::Operation entry;
    entry.group = group.id;
    entry.seq = operation.seq;
    entry.fingerprint = operation.counts_hash;
    entry.queued = nanoseconds(now);
    entry.timeout_ms = milliseconds(operation.timeout);
    entry.op = words.of(operation.kind);
    if (!operation.tag.empty()) ddprun::copy_cut(entry.tag, operation.tag);
    if (has_root(operation.kind)) entry.peer = operation.root;
    if (reduces(operation.kind)) entry.reduce = words.of(operation.reduce_op);
    if (operation.kind != OpKind::kBarrier) {
        entry.count = operation.compared_count();
        entry.input_count = operation.buffer.count;
        entry.output_count = operation.result().count;
        entry.dtype = words.of(operation.part().dtype);
    }
    write(claim, entry);
    group.slot->queued.store(operation.seq, std::memory_order_relaxed);
    return {claim.slot, *group.slot, claim.id, operation.seq};
}

void Board::claim(TransferBatch& batch, const BoardGroup& group) {
    if (group.slot == nullptr) return;
    batch.tickets.reserve(batch.transfers.size());
    for (std::size_t i = 0; i < batch.transfers.size(); ++i) {
        const BoardClaim place = claim();
        batch.tickets.emplace_back(place.slot, *group.slot, place.id, 0);
    }
}

void Board::queue(TransferBatch& batch, const BoardGroup& group, ddprun::TimePoint now) {
    for (std::size_t i = 0; i < batch.tickets.size(); ++i) {
        const Transfer& transfer = batch.transfers[i];
        const BoardTicket& ticket = batch.tickets[i];
        write({ticket.slot_, ticket.id_}, batch, transfer, transfer.sends ? "send" : "recv", group, now);
    }
}

BoardTicket Board::note_arrival(const TransferBatch& sent, const BoardTicket& receive) {
    layout::Group group;
    if (receive.group_ == nullptr || !receive.group_->group.load(group)) return {};
    const BoardClaim place = claim();
    write(place, sent, sent.transfers.front(), "arrived", {receive.group_, group.id}, ddprun::Clock::now());
    return {place.slot, *receive.group_, place.id, 0};
}

void Board::note_misfit(const TransferBatch& sent, const BoardTicket& receive) {
    receive.mismatched();
    const BoardTicket message = note_arrival(sent, receive);
    message.mismatched();
    message.ended(false);
}

void Board::write(const BoardClaim& place, const TransferBatch& batch, const Transfer& transfer, std::string_view op,
                  const BoardGroup& group, ddprun::TimePoint now) {
    layout::Operation entry;
    entry.group = group.id;
    entry.seq = group.slot->queued.load(std::memory_order_relaxed);
    entry.p2p_seq = batch.seq;
    entry.queued = nanoseconds(now);
    entry.timeout_ms = milliseconds(batch.timeout);
    entry.peer = transfer.peer;
    entry.count = entry.input_count = entry.output_count = transfer.buffer.count;
    copy(entry.op, op);
    entry.dtype = names().of(transfer.buffer.dtype);
    entry.transfer_tag = transfer.tag;
    if (!batch.tag.empty()) ddprun::copy_cut(entry.tag, batch.tag);
    write(place, entry);
    if (place.slot != nullptr) place.slot->started.store(entry.queued, std::memory_order_relaxed);
}

BoardTicket Board::queue(const StoreStep& step, const BoardGroup& group, ddprun::TimePoint now) {
    if (group.slot == nullptr) return {};
    layout::Operation entry;
    entry.group = group.id;
    entry.seq = step.seq;
    entry.queued = nanoseconds(now);
    entry.timeout_ms = milliseconds(step.timeout);
    copy(entry.op, step.what);
    ddprun::copy_cut(entry.tag, step.tag);
    const BoardClaim place = claim();
    write(place, entry);
    group.slot->queued.store(step.seq, std::memory_order_relaxed);
    return {place.slot, *group.slot, place.id, step.seq};
}

void Board::abort(std::string_view reason, const BoardGroup& group) {
    if (group.slot == nullptr) return;
    const std::lock_guard lock(mutex_);
    layout::Abort abort;
    if (group.slot->abort.load(abort)) return;
    abort.at = now();
    ddprun::copy_cut(abort.reason, reason);
    group.slot->abort.store(abort);
}

void Board::leave(bool by_exception, const BoardGroup& group) {
    if (group.slot != nullptr) group.slot->left.store(by_exception ? -now() : now(), std::memory_order_release);
}

void Board::set_phase(std::string_view text) {
    const std::lock_guard lock(mutex_);
    layout::Phase phase;
    phase.since = now();
    ddprun::copy_cut(phase.text, text);
    memory_.phase.store(phase);
}

}  // namespace ddp::detail

namespace ddp {

void set_phase(std::string_view text) {
    if (detail::Board* board = detail::process_board()) board->set_phase(text);
}

}  // namespace ddp
