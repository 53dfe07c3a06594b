#include "worker_lib/src/operation/group_recorder.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>

#include "common/text/cut.hpp"
#include "worker_lib/src/recorder/recording.hpp"

namespace ddp::detail {

namespace layout = ddprun::flight_record;

namespace {

using Name = std::array<char, 24>;  ///< of an operation

template <std::size_t Size>
constexpr void copy(std::array<char, Size>& to, std::string_view text) {
    std::copy_n(text.begin(), std::min(text.size(), Size), to.begin());
}

template <std::size_t Size>
constexpr std::array<char, Size> padded(std::string_view text) {
    std::array<char, Size> result{};
    copy(result, text);
    return result;
}

constexpr Name kSend = padded<24>("send");
constexpr Name kRecv = padded<24>("recv");
constexpr Name kArrived = padded<24>("arrived");

std::uint32_t whole_milliseconds(ddprun::Duration timeout) {
    const std::int64_t count = std::chrono::ceil<std::chrono::milliseconds>(timeout).count();
    return static_cast<std::uint32_t>(std::clamp<std::int64_t>(count, 0, UINT32_MAX));
}

/// Owns the names of operations, types and reductions as arrays of the layout's size. Any thread may read it. Copying
/// an array is faster than copying a text, which matters for small operations.
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
    std::array<Name, static_cast<std::size_t>(kLastOpKind) + 1> kinds_{};
    std::array<std::array<char, 8>, static_cast<std::size_t>(DType::F64) + 1> dtypes_{};
    std::array<std::array<char, 8>, static_cast<std::size_t>(ReduceOp::BitXor) + 1> reduces_{};
};

const Names& names() {
    static const Names all;
    return all;
}

layout::Operation entry_of(const Operation& operation, ddprun::TimePoint now) {
    const Names& table = names();
    layout::Operation entry;
    entry.seq = operation.seq;
    entry.fingerprint = operation.counts_hash;
    entry.queued = nanoseconds(now);
    entry.timeout_ms = whole_milliseconds(operation.timeout);
    entry.op = table.of(operation.kind);
    if (!operation.label.empty()) ddprun::copy_cut(entry.tag, operation.label);
    if (has_root(operation.kind)) entry.peer = operation.root;
    if (reduces(operation.kind)) entry.reduce = table.of(operation.reduce_op);
    if (has_buffer(operation.kind)) {
        entry.count = operation.compared_count();
        entry.input_count = operation.buffer.count;
        entry.output_count = operation.result().count;
        entry.dtype = table.of(operation.part().dtype);
    }
    return entry;
}

layout::Operation entry_of(const TransferList& batch, const Transfer& transfer, const Name& op, ddprun::TimePoint now) {
    layout::Operation entry;
    entry.p2p_seq = batch.seq;
    entry.queued = nanoseconds(now);
    entry.timeout_ms = whole_milliseconds(batch.timeout);
    entry.peer = transfer.peer;
    entry.count = entry.input_count = entry.output_count = transfer.buffer.count;
    entry.op = op;
    entry.dtype = names().of(transfer.buffer.dtype);
    entry.transfer_tag = transfer.tag;
    if (!batch.label.empty()) ddprun::copy_cut(entry.tag, batch.label);
    return entry;
}

}  // namespace

GroupEntry add_group(FlightRecorder& recorder, const GroupSpec& spec, std::string_view name) {
    return recorder.add(name.empty() ? spec.name : name, spec.rank, spec.members);
}

RecordEntry record(const Operation& operation, const EntrySlot& claim, const GroupEntry& group, ddprun::TimePoint now) {
    layout::Operation entry = entry_of(operation, now);
    return FlightRecorder::queue(entry, claim, group);
}

RecordEntry record(FlightRecorder& recorder, const StoreStep& step, const GroupEntry& group, ddprun::TimePoint now) {
    layout::Operation entry;
    entry.seq = step.seq;
    entry.queued = nanoseconds(now);
    entry.timeout_ms = whole_milliseconds(step.timeout);
    copy(entry.op, step.what);
    ddprun::copy_cut(entry.tag, step.tag);
    return group.slot != nullptr ? FlightRecorder::queue(entry, recorder.claim(), group) : RecordEntry();
}

void claim_entries(FlightRecorder& recorder, TransferList& batch, const GroupEntry& group) {
    if (group.slot == nullptr) return;
    batch.record_entries.reserve(batch.transfers.size());
    for (std::size_t i = 0; i < batch.transfers.size(); ++i) {
        const EntrySlot slot = recorder.claim();
        batch.record_entries.emplace_back(slot.slot, *group.slot, slot.id, 0);
    }
}

void record(TransferList& batch, const GroupEntry& group, ddprun::TimePoint now) {
    for (std::size_t i = 0; i < batch.record_entries.size(); ++i) {
        const Transfer& transfer = batch.transfers[i];
        layout::Operation entry = entry_of(batch, transfer, transfer.sends ? kSend : kRecv, now);
        FlightRecorder::queue_transfer(entry, batch.record_entries[i].claim(), group);
    }
}

RecordEntry note_arrival(FlightRecorder& recorder, const TransferList& sent, const RecordEntry& receive) {
    layout::Operation entry = entry_of(sent, sent.transfers.front(), kArrived, ddprun::Clock::now());
    return recorder.queue_beside(entry, receive);
}

void note_mismatch(FlightRecorder& recorder, const TransferList& sent, const RecordEntry& receive) {
    receive.mismatched();
    const RecordEntry message = note_arrival(recorder, sent, receive);
    message.mismatched();
    message.ended(false);
}

GroupRecorder::GroupRecorder(const GroupSpec& spec, std::string_view name)
    : recorder_(process_recorder()), group_(recorder_ != nullptr ? add_group(*recorder_, spec, name) : GroupEntry()) {}

GroupRecorder::~GroupRecorder() {
    if (may_write()) recorder_->remove(group_);
}

bool GroupRecorder::may_write() const { return recorder_ != nullptr && !is_fork.load(std::memory_order_relaxed); }

RecordEntry GroupRecorder::queue(const Operation& operation, const EntrySlot& claim, ddprun::TimePoint now) {
    return claim.id != 0 ? record(operation, claim, group_, now) : RecordEntry();
}

void GroupRecorder::claim(TransferList& batch) {
    if (may_write()) claim_entries(*recorder_, batch, group_);
}

void GroupRecorder::queue(TransferList& batch, ddprun::TimePoint now) {
    if (!batch.record_entries.empty()) record(batch, group_, now);
}

RecordEntry GroupRecorder::queue(const StoreStep& step, ddprun::TimePoint now) {
    return may_write() ? record(*recorder_, step, group_, now) : RecordEntry();
}

void GroupRecorder::abort(std::string_view reason) {
    if (may_write()) recorder_->abort(reason, group_);
}

void GroupRecorder::leave(bool by_exception) {
    if (may_write()) recorder_->leave(by_exception, group_);
}

}  // namespace ddp::detail
