#include "worker_lib/src/native/p2p/outbox.hpp"

#include <algorithm>
#include <utility>

namespace ddp::detail::p2p {

bool Outbox::owes_reply() const {
    return std::ranges::any_of(queue_, [](const Outgoing& one) {
        return one.frame.kind == FrameKind::kTaken || one.frame.kind == FrameKind::kPlaced;
    });
}

void Outbox::add(const Frame& frame, std::span<const std::byte> payload, std::optional<PendingTransfer> pending) {
    queue_.push_back({frame, payload, std::move(pending)});
}

bool Outbox::push() {
    std::size_t total = 0;
    while (!queue_.empty() && total < kMaxPerPass) {
        Outgoing& front = queue_.front();
        const auto head = std::as_bytes(std::span(&front.frame, 1));
        const std::size_t of_head = std::min(front.written, head.size());
        const auto body = front.payload.subspan(front.written - of_head);
        const std::size_t some = sink_->push(head.subspan(of_head), body.first(std::min(body.size(), kMaxPerPass)));
        if (some == 0) break;
        total += some;
        front.written += some;
        if (front.written < head.size() + front.payload.size()) continue;
        if (front.pending) own_.finished.push_back(std::move(*front.pending));
        queue_.pop_front();
    }
    return total > 0;
}

void Outbox::report_end(const FailureNote& why, bool failed) {
    if (cut_off_) return;
    final_report_ = why;
    while (queue_.size() > 1 || (!queue_.empty() && queue_.front().written == 0)) queue_.pop_back();
    const Frame frame{.kind = FrameKind::kFinalReport, .count = failed ? 1U : 0U, .bytes = sizeof(final_report_)};
    add(frame, std::as_bytes(std::span(&final_report_, 1)));
    (void)push();
}

void Outbox::clear() {
    cut_off_ = cut_off_ || (!queue_.empty() && queue_.front().written > 0);
    queue_.clear();
}

}  // namespace ddp::detail::p2p
