#include "worker_lib/src/transfer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "worker_lib/src/operation_check.hpp"

namespace ddp::detail {

namespace {

std::uintptr_t begin_of(const Transfer& transfer) { return reinterpret_cast<std::uintptr_t>(transfer.buffer.data); }
std::uintptr_t end_of(const Transfer& transfer) { return begin_of(transfer) + transfer.buffer.bytes(); }

/// A received buffer and any other of the batch. A batch may have thousands: they are looked at in the order of memory.
std::string overlap_complaint(const TransferBatch& batch) {
    std::vector<const Transfer*> ordered;
    for (const Transfer& one : batch.transfers) {
        if (one.buffer.count > 0) ordered.push_back(&one);
    }
    std::ranges::sort(ordered, {}, [](const Transfer* one) { return begin_of(*one); });
    const Transfer* furthest = nullptr;  // of those before: who ends last
    const Transfer* written = nullptr;   // the same, of those that are received
    for (const Transfer* one : ordered) {
        const Transfer* const before = one->sends ? written : furthest;
        if (before != nullptr && end_of(*before) > begin_of(*one)) {
            const auto [received, other] = one->sends ? std::pair(before, one) : std::pair(one, before);
            return fmt::format("{}: its buffer overlaps that of {}", describe(batch, *received),
                               describe(batch, *other));
        }
        if (furthest == nullptr || end_of(*one) > end_of(*furthest)) furthest = one;
        if (!one->sends && (written == nullptr || end_of(*one) > end_of(*written))) written = one;
    }
    return {};
}

}  // namespace

std::string describe(const TransferBatch& batch, const Transfer& transfer) {
    const auto& [sends, buffer, peer, tag] = transfer;
    std::string text = fmt::format("p2p #{} {} {}[{}] {} rank {}, tag {}", batch.seq, sends ? "send" : "recv",
                                   ddp::to_string(buffer.dtype), buffer.count, sends ? "to" : "from", peer, tag);
    if (!batch.tag.empty()) text += fmt::format(" '{}'", batch.tag);
    return text;
}

std::string complaint(const TransferBatch& batch, int group_size) {
    for (const Transfer& transfer : batch.transfers) {
        std::string wrong = buffer_complaint(transfer.buffer, "buffer", Backend::Native);
        if (transfer.peer < 0 || transfer.peer >= group_size) {
            wrong = fmt::format("there is no rank {} in a group of {}", transfer.peer, group_size);
        }
        if (transfer.tag < 0) wrong = "tags are not negative";
        if (!wrong.empty()) return fmt::format("{}: {}", describe(batch, transfer), wrong);
    }
    return overlap_complaint(batch);
}

}  // namespace ddp::detail
