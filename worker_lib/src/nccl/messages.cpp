#include "worker_lib/src/nccl/messages.hpp"

#include <optional>

namespace ddp::detail {

namespace {

/// Cuts a buffer into its parts, one per rank in rank order.
class Parts {
public:
    /// `counts`: elements of each part; empty: all parts are equal.
    Parts(const Buffer& whole, const std::vector<std::size_t>& counts, int ranks)
        : rest_(whole), counts_(counts), equal_(whole.count / static_cast<std::size_t>(ranks)) {}

    Buffer next() {
        Buffer part = rest_;
        part.count = counts_.empty() ? equal_ : counts_[index_++];
        rest_.data = static_cast<std::byte*>(rest_.data) + part.bytes();
        return part;
    }

private:
    Buffer rest_;  // only its data pointer is used
    const std::vector<std::size_t>& counts_;
    const std::size_t equal_;
    std::size_t index_ = 0;
};

bool is_all_to_all(OpKind kind) { return kind == OpKind::kAllToAll || kind == OpKind::kAllToAllV; }

}  // namespace

bool is_messages(OpKind kind) {
    return gathers(kind) || scatters(kind) || is_all_to_all(kind) || kind == OpKind::kAllGatherV;
}

std::vector<Transfer> messages_of(const Operation& operation, int rank, int ranks) {
    const OpKind kind = operation.kind;
    const bool is_root = rank == operation.root;
    Parts given(operation.buffer, operation.counts, ranks);
    Parts taken(*operation.output, is_all_to_all(kind) ? operation.receive_counts : operation.counts, ranks);
    const auto to = [&](int peer) -> std::optional<Buffer> {
        if (is_all_to_all(kind) || (scatters(kind) && is_root)) return given.next();
        if (kind == OpKind::kAllGatherV || (gathers(kind) && peer == operation.root)) return operation.buffer;
        return std::nullopt;
    };
    const auto from = [&](int peer) -> std::optional<Buffer> {
        if (is_all_to_all(kind) || kind == OpKind::kAllGatherV || (gathers(kind) && is_root)) return taken.next();
        if (scatters(kind) && peer == operation.root) return operation.output;
        return std::nullopt;
    };
    std::vector<Transfer> messages;
    for (int peer = 0; peer < ranks; ++peer) {
        const auto sent = to(peer);
        const auto received = from(peer);
        if (peer == rank && sent && received && sent->data == received->data) continue;  // in place
        if (sent) messages.push_back({.sends = true, .buffer = *sent, .peer = peer});
        if (received) messages.push_back({.sends = false, .buffer = *received, .peer = peer});
    }
    return messages;
}

}  // namespace ddp::detail
