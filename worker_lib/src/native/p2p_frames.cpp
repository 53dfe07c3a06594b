// What travels between two ranks: reading the peer's frames and doing what they say, copying, writing our own.

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "ddp/error.hpp"
#include "ddp/process_group.hpp"
#include "worker_lib/src/native/p2p_peer.hpp"

namespace ddp::detail {

namespace {

/// How much moves in one go before the owner looks at anything else: 0.1 ms.
constexpr std::size_t kTurn = std::size_t{1} << 20;

}  // namespace

P2pPeer::Progress P2pPeer::progress() {
    Progress result;
    const bool pulled = pull();
    const bool copied = copy();
    const bool pushed = push();
    result.moved = pulled || copied || pushed;
    result.peer_concerned = pushed || inlet_->has_made_room();
    return result;
}

bool P2pPeer::pull() {
    std::size_t total = 0;
    while (total < kTurn) {
        const bool in_frame = pulled_ < sizeof(Frame);
        const auto frame = std::as_writable_bytes(std::span(&frame_, 1));
        const auto rest = in_frame ? frame.subspan(pulled_) : payload_.subspan(pulled_ - sizeof(Frame));
        const std::size_t some = inlet_->pull(rest.first(std::min(rest.size(), kTurn)));
        if (some == 0) break;
        total += some;
        pulled_ += some;
        if (in_frame && pulled_ == sizeof(Frame)) begin_frame();
        if (pulled_ == sizeof(Frame) + payload_.size() && pulled_ >= sizeof(Frame)) end_frame();
    }
    return total > 0;
}

/// Its fixed part has come: where does the payload go?
void P2pPeer::begin_frame() {
    if (frame_.magic != Frame::kMagic || frame_.dtype > DType::f64) refuse("what is no message of this version");
    payload_ = {};
    if (frame_.kind == FrameKind::kData) {
        receiver_ = take(accepted_, frame_.id);
        payload_ = bytes_of(receiver_->transfer().buffer);
    } else if (frame_.kind == FrameKind::kMessage) {
        receiver_ = take_posted(frame_.tag);
        if (receiver_) compare(frame_, *receiver_);
        if (!receiver_ && frame_.bytes > ProcessGroup::kEagerBytes) refuse("more than it may without being asked");
        if (!receiver_) unclaimed_.resize(static_cast<std::size_t>(frame_.bytes));
        payload_ = receiver_ ? bytes_of(receiver_->transfer().buffer) : std::span(unclaimed_);
    } else if (frame_.kind == FrameKind::kGoodbye) {
        unclaimed_.resize(sizeof(FailureNote));
        payload_ = unclaimed_;
    }
    if (payload_.size() != frame_.bytes) refuse("a payload of the wrong size");
}

void P2pPeer::end_frame() {
    pulled_ = 0;
    switch (frame_.kind) {
        case FrameKind::kMessage: end_message(); break;
        case FrameKind::kOffer:
            if (auto posted = take_posted(frame_.tag)) return meet_offer(frame_, std::move(*posted));
            arrived_.push_back({.frame = frame_, .payload = {}});
            break;
        case FrameKind::kAccept: accepted_by_peer(frame_); break;
        case FrameKind::kTaken: finish(take(offered_, frame_.id)); break;
        case FrameKind::kPlaced: finish(take(accepted_, frame_.id)); break;
        case FrameKind::kData: finish(*std::exchange(receiver_, std::nullopt)); break;
        case FrameKind::kCredit: window_used_ -= std::min(window_used_, static_cast<std::size_t>(frame_.count)); break;
        case FrameKind::kAsk:
            enqueue(FrameKind::kAnswer, 0);
            outbox_.back().frame.count = owner_.listening.load(std::memory_order_relaxed);
            break;
        case FrameKind::kAnswer:
            asked_ = false;
            listening_ = frame_.count;
            break;
        case FrameKind::kGoodbye: {
            FailureNote note;
            std::memcpy(&note, unclaimed_.data(), sizeof(note));
            (frame_.count != 0 ? owner_.told : departure_) = read_note(note);
            break;
        }
        default: refuse("a message of an unknown kind");
    }
}

void P2pPeer::end_message() {
    if (receiver_) {
        owe(window_cost(payload_.size()));
        return finish(*std::exchange(receiver_, std::nullopt));
    }
    // A receive may have been posted since the first byte came.
    if (auto posted = take_posted(frame_.tag)) {
        compare(frame_, *posted);
        std::ranges::copy(unclaimed_, bytes_of(posted->transfer().buffer).begin());
        owe(window_cost(unclaimed_.size()));
        return finish(std::move(*posted));
    }
    arrived_.push_back({.frame = frame_, .payload = std::exchange(unclaimed_, {})});
}

void P2pPeer::accepted_by_peer(const Frame& frame) {
    Pending pending = take(offered_, frame.id);
    const Buffer& buffer = pending.transfer().buffer;
    Frame next;
    next.id = frame.id;
    if (frame.place == Frame::kNowhere) {
        next.kind = FrameKind::kData;
        next.bytes = buffer.bytes();
        outbox_.push_back({next, bytes_of(buffer), std::move(pending)});
    } else {
        next.kind = FrameKind::kPlaced;
        copies_.push_back({memory_at(frame.place, buffer.bytes()), static_cast<const std::byte*>(buffer.data),
                           buffer.bytes(), next, std::move(pending)});
    }
}

Pending P2pPeer::take(std::map<std::uint64_t, Pending>& from, std::uint64_t id) const {
    const auto found = from.find(id);
    if (found == from.end()) refuse("an answer to what was not asked");
    Pending pending = std::move(found->second);
    from.erase(found);
    return pending;
}

bool P2pPeer::copy() {
    if (copies_.empty()) return false;
    Copy& front = copies_.front();
    const std::size_t some = std::min(front.bytes, kTurn);
    if (some > 0) std::memmove(front.to, front.from, some);  // a rank may send to itself what it receives
    front.to += some;
    front.from += some;
    front.bytes -= some;
    if (front.bytes > 0) return true;
    // The peer may have failed, and use its buffer for something else: then what we have read is torn.
    std::atomic_thread_fence(std::memory_order_acquire);
    if (owner_.node.poisoned() && !owner_.node.stopped()) return false;
    outbox_.push_back({front.frame, {}, std::nullopt});
    finish(std::move(front.pending));
    copies_.pop_front();
    return true;
}

bool P2pPeer::push() {
    std::size_t total = 0;
    while (!outbox_.empty() && total < kTurn) {
        Outgoing& front = outbox_.front();
        const auto head = std::as_bytes(std::span(&front.frame, 1));
        const std::size_t of_head = std::min(front.pushed, head.size());
        const auto body = front.payload.subspan(front.pushed - of_head);
        const std::size_t some = outlet_->push(head.subspan(of_head), body.first(std::min(body.size(), kTurn)));
        if (some == 0) break;
        total += some;
        front.pushed += some;
        if (front.pushed < head.size() + front.payload.size()) continue;
        if (front.pending) finish(std::move(*front.pending));
        outbox_.pop_front();
    }
    return total > 0;
}

std::byte* P2pPeer::memory_at(std::uint64_t place, std::size_t bytes) const {
    if (memory_.kind == PeerMemory::Kind::kOwn) return reinterpret_cast<std::byte*>(place);
    if (place > memory_.heap_bytes || bytes > memory_.heap_bytes - place) refuse("a place outside its memory");
    return memory_.heap + place;
}

void P2pPeer::refuse(const char* why) const {
    throw Error(ErrorCode::System, fmt::format("{} sent {}", name_of(rank_, owner_.members), why), {rank_});
}

}  // namespace ddp::detail
