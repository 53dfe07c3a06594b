#include "worker_lib/src/operation/transfer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "worker_lib/src/operation/operation_check.hpp"

namespace ddp::detail {

namespace {

std::uintptr_t begin_of(const Transfer& transfer) { return reinterpret_cast<std::uintptr_t>(transfer.buffer.data); }
std::uintptr_t end_of(const Transfer& transfer) { return begin_of(transfer) + transfer.buffer.bytes(); }

/// Returns true for a small batch whose buffers do not overlap. Allocates nothing: most batches are a send, a receive,
/// or both.
bool surely_apart(const TransferList& batch) {
    constexpr std::size_t kFew = 4;
    const std::vector<Transfer>& all = batch.transfers;
    if (all.size() > kFew) return false;
    for (std::size_t i = 0; i < all.size(); ++i) {
        for (std::size_t j = 0; j < i; ++j) {
            if (all[i].sends && all[j].sends) continue;
            if (begin_of(all[i]) < end_of(all[j]) && begin_of(all[j]) < end_of(all[i])) return false;
        }
    }
    return true;
}

/// Finds a received buffer that overlaps another one of the batch. A batch may have thousands, so they are sorted by
/// address.
std::string overlap_complaint(const TransferList& batch) {
    std::vector<const Transfer*> ordered;
    for (const Transfer& one : batch.transfers) {
        if (one.buffer.count > 0) ordered.push_back(&one);
    }
    std::ranges::sort(ordered, {}, [](const Transfer* one) { return begin_of(*one); });
    const Transfer* furthest = nullptr;  // of those before: the one that ends last
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

/// Returns which two messages of a batch NCCL could confuse: both go to one rank, or come from one, with different
/// tags. Empty: none.
std::string tags_complaint(const TransferList& batch) {
    std::map<std::pair<bool, int>, const Transfer*> first_of;  // by direction and peer
    for (const Transfer& one : batch.transfers) {
        const Transfer* const first = first_of.try_emplace({one.sends, one.peer}, &one).first->second;
        if (first->tag == one.tag) continue;
        return fmt::format(
            "{}: the batch has a {} of tag {}, too. NCCL has no tags, so it could confuse them. Use one tag "
            "for all that a batch {} a rank (they meet in the order of the calls), or a batch for each tag, in the "
            "same "
            "order on both ranks. Backend::Native keeps tags apart",
            describe(batch, one), one.sends ? "send to that rank" : "receive from that rank", first->tag,
            one.sends ? "sends to" : "receives from");
    }
    return {};
}

/// Returns which message of a rank to itself has no counterpart in the batch, where NCCL needs it. Empty: none.
std::string own_messages_complaint(const TransferList& batch, int rank) {
    std::vector<const Transfer*> sent;
    std::vector<const Transfer*> received;
    for (const Transfer& one : batch.transfers) {
        if (one.peer == rank && one.buffer.count > 0) (one.sends ? sent : received).push_back(&one);
    }
    for (std::size_t i = 0; i < std::max(sent.size(), received.size()); ++i) {
        const bool both = i < sent.size() && i < received.size();
        if (both && sent[i]->buffer.count == received[i]->buffer.count &&
            sent[i]->buffer.dtype == received[i]->buffer.dtype && sent[i]->tag == received[i]->tag)
            continue;
        const Transfer& one = i < sent.size() ? *sent[i] : *received[i];
        return fmt::format(
            "{}: this is the own rank, and the batch has no {} like it. With NCCL put the send and the receive of what "
            "a "
            "rank sends to itself into one batch",
            describe(batch, one), one.sends ? "receive" : "send");
    }
    return {};
}

}  // namespace

std::string describe(const TransferList& batch, const Transfer& transfer) {
    const auto& [sends, buffer, peer, tag] = transfer;
    std::string text = fmt::format("p2p #{} {} {}[{}] {} rank {}, tag {}", batch.seq, sends ? "send" : "recv",
                                   ddp::to_string(buffer.dtype), buffer.count, sends ? "to" : "from", peer, tag);
    if (!batch.label.empty()) text += fmt::format(" '{}'", shown_label(batch.label));
    return text;
}

std::string describe(const TransferList& batch) {
    const std::string first = describe(batch, batch.transfers.front());
    const std::size_t others = batch.transfers.size() - 1;
    return others == 0 ? first : fmt::format("{} and {} more", first, others);
}

std::string complaint(const TransferList& batch, int rank, int group_size, Backend backend) {
    for (const Transfer& transfer : batch.transfers) {
        std::string wrong = buffer_complaint(transfer.buffer, "buffer", backend);
        if (transfer.peer < 0 || transfer.peer >= group_size) {
            wrong = fmt::format("there is no rank {} in a group of {}", transfer.peer, group_size);
        }
        if (transfer.tag < 0) wrong = "tags are not negative";
        if (!wrong.empty()) return fmt::format("{}: {}", describe(batch, transfer), wrong);
    }
    std::string wrong = stream_complaint(batch.stream, backend);
    if (!wrong.empty()) return fmt::format("{}: {}", describe(batch), wrong);
    if (!surely_apart(batch)) wrong = overlap_complaint(batch);
    if (wrong.empty() && backend == Backend::Nccl) wrong = tags_complaint(batch);
    if (wrong.empty() && backend == Backend::Nccl) wrong = own_messages_complaint(batch, rank);
    return wrong;
}

}  // namespace ddp::detail
