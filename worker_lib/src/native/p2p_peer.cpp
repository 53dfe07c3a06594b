#include "worker_lib/src/native/p2p_peer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "ddp/error.hpp"
#include "ddp/process_group.hpp"

namespace ddp::detail {

namespace {

/// How much moves in one go before the owner looks at anything else: 0.1 ms.
constexpr std::size_t kTurn = std::size_t{1} << 20;

/// What a message counts against the window: empty ones need room, too.
std::size_t cost(std::size_t bytes) { return bytes + sizeof(Frame); }

Frame make_frame(const Pending& pending) {
    const Transfer& transfer = pending.transfer();
    Frame frame;
    frame.dtype = transfer.buffer.dtype;
    frame.tag = transfer.tag;
    frame.seq = pending.work->batch.seq;
    frame.count = transfer.buffer.count;
    pending.work->batch.tag.copy(frame.name.data(), frame.name.size() - 1);
    return frame;
}

std::span<std::byte> bytes_of(const Buffer& buffer) { return {static_cast<std::byte*>(buffer.data), buffer.bytes()}; }

/// The send that a frame stands for, in words.
std::string describe(const Frame& frame, int destination) {
    TransferBatch batch;
    batch.seq = frame.seq;
    batch.tag.assign(frame.name.data(), ::strnlen(frame.name.data(), frame.name.size()));
    const Buffer buffer{nullptr, static_cast<std::size_t>(frame.count), frame.dtype};
    return describe(batch, {.sends = true, .buffer = buffer, .peer = destination, .tag = frame.tag});
}

}  // namespace

P2pPeer::P2pPeer(P2pOwner& owner, int rank, PeerMemory memory, std::unique_ptr<Outlet> outlet,
                 std::unique_ptr<Inlet> inlet)
    : owner_(owner), rank_(rank), memory_(memory), outlet_(std::move(outlet)), inlet_(std::move(inlet)) {}

void P2pPeer::post(Pending pending) {
    pending.transfer().sends ? start_send(std::move(pending)) : start_receive(std::move(pending));
}

void P2pPeer::start_send(Pending pending) {
    const Buffer& buffer = pending.transfer().buffer;
    const bool small = buffer.bytes() <= ProcessGroup::kEagerBytes;
    const auto fits = [&] { return window_used_ + cost(buffer.bytes()) <= ProcessGroup::kEagerWindow; };
    if (small && !fits()) (void)pull();  // the peer may have told of room that we have not heard of
    Frame frame = make_frame(pending);
    frame.id = next_id_++;
    if (small && fits()) {
        window_used_ += cost(buffer.bytes());
        frame.bytes = buffer.bytes();
        outbox_.push_back({frame, bytes_of(buffer), std::move(pending)});
        return;
    }
    frame.kind = FrameKind::kOffer;
    frame.place = place_of(buffer);
    outbox_.push_back({frame, {}, std::nullopt});
    offered_.emplace(frame.id, std::move(pending));
}

void P2pPeer::start_receive(Pending pending) {
    const auto found =
        std::ranges::find(arrived_, pending.transfer().tag, [](const Arrival& a) { return a.frame.tag; });
    if (found == arrived_.end()) return posted_.push_back(std::move(pending));
    const Arrival arrival = std::move(*found);
    arrived_.erase(found);
    if (arrival.frame.kind == FrameKind::kOffer) return meet_offer(arrival.frame, std::move(pending));
    compare(arrival.frame, pending);
    std::ranges::copy(arrival.payload, bytes_of(pending.transfer().buffer).begin());
    owe(cost(arrival.payload.size()));
    finish(std::move(pending));
}

std::optional<Pending> P2pPeer::take_posted(std::int32_t tag) {
    const auto found = std::ranges::find(posted_, tag, [](const Pending& p) { return p.transfer().tag; });
    if (found == posted_.end()) return std::nullopt;
    Pending pending = std::move(*found);
    posted_.erase(found);
    return pending;
}

void P2pPeer::meet_offer(const Frame& frame, Pending pending) {
    compare(frame, pending);
    const Buffer& buffer = pending.transfer().buffer;
    if (frame.place != Frame::kNowhere) {
        Frame taken;
        taken.kind = FrameKind::kTaken;
        taken.id = frame.id;
        copies_.push_back({static_cast<std::byte*>(buffer.data), memory_at(frame.place, buffer.bytes()), buffer.bytes(),
                           taken, std::move(pending)});
        return;
    }
    enqueue(FrameKind::kAccept, frame.id, place_of(buffer));
    accepted_.emplace(frame.id, std::move(pending));
}

void P2pPeer::compare(const Frame& frame, const Pending& pending) const {
    const Buffer& buffer = pending.transfer().buffer;
    if (frame.dtype == buffer.dtype && frame.count == buffer.count) return;
    throw Error(ErrorCode::Mismatch,
                fmt::format("a send and its receive differ: rank {}: {}, rank {}: {}", rank_,
                            describe(frame, owner_.rank), owner_.rank, pending.text()),
                {rank_});
}

P2pPeer::Progress P2pPeer::progress() {
    Progress result;
    const bool pulled = pull();
    const bool copied = copy();
    const bool pushed = push();
    result.moved = pulled || copied || pushed;
    result.peer_concerned = pushed || inlet_->has_made_room();
    return result;
}

bool P2pPeer::owes_word() const {
    return std::ranges::any_of(outbox_, [](const Outgoing& one) {
        return one.frame.kind == FrameKind::kTaken || one.frame.kind == FrameKind::kPlaced;
    });
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
    if (frame_.magic != Frame::kMagic) refuse("what is no message of this version");
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
            arrived_.push_back({frame_, {}});
            break;
        case FrameKind::kAccept: accepted_by_peer(frame_); break;
        case FrameKind::kTaken: finish(take(offered_, frame_.id)); break;
        case FrameKind::kPlaced: finish(take(accepted_, frame_.id)); break;
        case FrameKind::kData: finish(*std::exchange(receiver_, std::nullopt)); break;
        case FrameKind::kCredit: window_used_ -= std::min(window_used_, static_cast<std::size_t>(frame_.count)); break;
        case FrameKind::kGoodbye: {
            FailureNote note;
            std::memcpy(&note, unclaimed_.data(), sizeof(note));
            if (frame_.count != 0) throw read_note(note);
            departure_ = read_note(note);
            break;
        }
        default: refuse("a message of an unknown kind");
    }
}

void P2pPeer::end_message() {
    if (receiver_) {
        owe(cost(payload_.size()));
        return finish(*std::exchange(receiver_, std::nullopt));
    }
    // A receive may have been posted since the first byte came.
    if (auto posted = take_posted(frame_.tag)) {
        compare(frame_, *posted);
        std::ranges::copy(unclaimed_, bytes_of(posted->transfer().buffer).begin());
        owe(cost(unclaimed_.size()));
        return finish(std::move(*posted));
    }
    arrived_.push_back({frame_, std::exchange(unclaimed_, {})});
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

void P2pPeer::enqueue(FrameKind kind, std::uint64_t id, std::uint64_t place) {
    Outgoing& last = outbox_.emplace_back();
    last.frame.kind = kind;
    last.frame.id = id;
    last.frame.place = place;
}

void P2pPeer::say_goodbye(const FailureNote& why, bool failed) {
    if (cut_off_) return;
    goodbye_ = why;
    while (outbox_.size() > 1 || (!outbox_.empty() && outbox_.front().pushed == 0)) outbox_.pop_back();
    enqueue(FrameKind::kGoodbye, 0);
    outbox_.back().frame.count = failed ? 1 : 0;
    outbox_.back().frame.bytes = sizeof(goodbye_);
    outbox_.back().payload = std::as_bytes(std::span(&goodbye_, 1));
    (void)push();
}

/// The peer hears of it in large portions: each costs a frame.
void P2pPeer::owe(std::size_t bytes) {
    owed_ += bytes;
    if (owed_ < ProcessGroup::kEagerWindow / 2) return;
    enqueue(FrameKind::kCredit, 0);
    outbox_.back().frame.count = std::exchange(owed_, 0);
}

std::uint64_t P2pPeer::place_of(const Buffer& buffer) const {
    switch (memory_.kind) {
        case PeerMemory::Kind::kNone: break;
        case PeerMemory::Kind::kHeap:
            return owner_.arena.offset_of(buffer.data, buffer.bytes()).value_or(Frame::kNowhere);
        case PeerMemory::Kind::kOwn: return reinterpret_cast<std::uintptr_t>(buffer.data);
    }
    return Frame::kNowhere;
}

std::byte* P2pPeer::memory_at(std::uint64_t place, std::size_t bytes) const {
    if (memory_.kind == PeerMemory::Kind::kOwn) return reinterpret_cast<std::byte*>(place);
    if (place > memory_.heap_bytes || bytes > memory_.heap_bytes - place) refuse("a place outside its memory");
    return memory_.heap + place;
}

void P2pPeer::refuse(const char* why) const {
    throw Error(ErrorCode::System, fmt::format("rank {} sent {}", rank_, why), {rank_});
}

void P2pPeer::clear() {
    cut_off_ = cut_off_ || (!outbox_.empty() && outbox_.front().pushed > 0);
    outbox_.clear();
    offered_.clear();
    accepted_.clear();
    posted_.clear();
    arrived_.clear();
    copies_.clear();
    receiver_.reset();
    payload_ = {};
}

}  // namespace ddp::detail
