// Which send and receive belong together, and how a message shall travel.

#include "worker_lib/src/native/p2p_peer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "ddp/error.hpp"
#include "ddp/process_group.hpp"

namespace ddp::detail {

namespace {

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
    const auto fits = [&] { return window_used_ + window_cost(buffer.bytes()) <= ProcessGroup::kEagerWindow; };
    if (small && !fits()) (void)pull();  // the peer may have told of room that we have not heard of
    Frame frame = make_frame(pending);
    frame.id = next_id_++;
    if (small && fits()) {
        window_used_ += window_cost(buffer.bytes());
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
    owe(window_cost(arrival.payload.size()));
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
                fmt::format("a send and its receive differ: {}: {}, {}: {}", name_of(rank_, owner_.members),
                            describe(frame, owner_.rank), name_of(owner_.rank, owner_.members), pending.text()));
}

bool P2pPeer::owes_word() const {
    return std::ranges::any_of(outbox_, [](const Outgoing& one) {
        return one.frame.kind == FrameKind::kTaken || one.frame.kind == FrameKind::kPlaced;
    });
}

void P2pPeer::ask() {
    if (!std::exchange(asked_, true)) enqueue(FrameKind::kAsk, 0);
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

std::uint64_t P2pPeer::place_of(const Buffer& buffer) const {
    switch (memory_.kind) {
        case PeerMemory::Kind::kNone: break;
        case PeerMemory::Kind::kHeap:
            return owner_.arena.offset_of(buffer.data, buffer.bytes()).value_or(Frame::kNowhere);
        case PeerMemory::Kind::kOwn: return reinterpret_cast<std::uintptr_t>(buffer.data);
    }
    return Frame::kNowhere;
}

void P2pPeer::enqueue(FrameKind kind, std::uint64_t id, std::uint64_t place) {
    Outgoing& last = outbox_.emplace_back();
    last.frame.kind = kind;
    last.frame.id = id;
    last.frame.place = place;
}

/// The peer hears of it in large portions: each costs a frame.
void P2pPeer::owe(std::size_t bytes) {
    owed_ += bytes;
    if (owed_ < ProcessGroup::kEagerWindow / 2) return;
    enqueue(FrameKind::kCredit, 0);
    outbox_.back().frame.count = std::exchange(owed_, 0);
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
