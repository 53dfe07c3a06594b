#include "worker_lib/src/transfer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "worker_lib/src/operation_check.hpp"

namespace ddp::detail {

namespace {

bool overlap(const Buffer& a, const Buffer& b) {
    const auto begin_a = reinterpret_cast<std::uintptr_t>(a.data);
    const auto begin_b = reinterpret_cast<std::uintptr_t>(b.data);
    return a.count > 0 && b.count > 0 && begin_a < begin_b + b.bytes() && begin_b < begin_a + a.bytes();
}

/// A received buffer and any other of the batch.
std::string overlap_complaint(const TransferBatch& batch) {
    for (const Transfer& written : batch.transfers) {
        if (written.sends) continue;
        for (const Transfer& other : batch.transfers) {
            if (&other == &written || !overlap(written.buffer, other.buffer)) continue;
            return fmt::format("{}: its buffer overlaps that of {}", describe(batch, written), describe(batch, other));
        }
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
