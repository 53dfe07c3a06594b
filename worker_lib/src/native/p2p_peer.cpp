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

Frame make_frame(const TransferBatch& batch, const Transfer& transfer) {
    Frame frame;
    frame.dtype = transfer.buffer.dtype;
    frame.tag = transfer.tag;
    frame.seq = batch.seq;
    frame.count = transfer.buffer.count;
    batch.tag.copy(frame.name.data(), frame.name.size() - 1);
    return frame;
}

/// The send that a frame stands for.
TransferBatch send_of(const Frame& frame, int peer) {
    TransferBatch batch;
    batch.seq = frame.seq;
    batch.tag.assign(frame.name.data(), ::strnlen(frame.name.data(), frame.name.size()));
    const Buffer buffer{nullptr, static_cast<std::size_t>(frame.count), frame.dtype};
    batch.transfers.push_back({.sends = true, .buffer = buffer, .peer = peer, .tag = frame.tag});
    return batch;
}

std::string describe(const Frame& frame, int destination) { return describe(send_of(frame, destination)); }

/// A message that nobody asks for is nothing special before that; of short deadlines, before a part of what is left.
constexpr auto kUnaskedFor = std::chrono::seconds(1);
constexpr int kPartUnasked = 4;
/// Of those that nobody has asked for: so many are looked through again and again.
constexpr std::size_t kFewArrived = 8;
/// So much room is told of at once.
constexpr std::size_t kOwed = ProcessGroup::kEagerWindow / 2;
/// Of those that have come first. Senders are ahead of receivers, at times by many.
constexpr std::ptrdiff_t kMostNoted = 16;
constexpr std::size_t kMostNamed = 3;

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
    Frame frame = make_frame(pending.work->batch, pending.transfer());
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

bool P2pPeer::send_at_once(const TransferBatch& batch, const Transfer& transfer) noexcept {
    const std::size_t bytes = transfer.buffer.bytes();
    if (bytes > ProcessGroup::kEagerBytes || !outbox_.empty()) return false;
    if (window_used_ + window_cost(bytes) > ProcessGroup::kEagerWindow) return false;
    if (!outlet_->has_room(sizeof(Frame) + bytes)) return false;
    Frame frame = make_frame(batch, transfer);
    frame.id = next_id_++;
    frame.bytes = bytes;
    window_used_ += window_cost(bytes);
    (void)outlet_->push(std::as_bytes(std::span(&frame, 1)), bytes_of(transfer.buffer));
    return true;
}

P2pPeer::Look P2pPeer::receive_at_once(const Transfer& transfer) noexcept {
    const auto is_for_us = [&](const Arrival& one) { return one.frame.tag == transfer.tag; };
    if (pulled_ != 0 || arrived_.size() > kFewArrived || std::ranges::any_of(arrived_, is_for_us)) return Look::kOther;
    Frame frame;
    const std::size_t there = inlet_->look(std::as_writable_bytes(std::span(&frame, 1)));
    if (there == 0) return Look::kNothing;
    const Buffer& buffer = transfer.buffer;
    const std::size_t cost = window_cost(buffer.bytes());
    const bool fits = frame.magic == Frame::kMagic && frame.kind == FrameKind::kMessage && frame.tag == transfer.tag &&
                      frame.dtype == buffer.dtype && frame.count == buffer.count && frame.bytes == buffer.bytes();
    if (!fits || owed_ + cost >= kOwed) return Look::kOther;  // the peer is told of its room in the usual way
    if (there < sizeof(Frame) + buffer.bytes()) return Look::kNothing;
    inlet_->take(sizeof(Frame), bytes_of(buffer));
    owed_ += cost;
    return Look::kTaken;
}

void P2pPeer::start_receive(Pending pending) {
    const auto found =
        std::ranges::find(arrived_, pending.transfer().tag, [](const Arrival& a) { return a.frame.tag; });
    if (found == arrived_.end()) return posted_.push_back(std::move(pending));
    const Arrival arrival = std::move(*found);
    arrived_.erase(found);
    arrival.ticket.ended(true);
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
    const std::vector<BoardTicket>& tickets = pending.work->batch.tickets;
    Board* const board = process_board();
    if (board != nullptr && !tickets.empty()) board->note_misfit(send_of(frame, rank_), tickets[pending.index]);
    throw Error(ErrorCode::Mismatch,
                fmt::format("a send and its receive differ: {}: {}, {}: {}", name_of(rank_, owner_.members),
                            describe(frame, owner_.rank), name_of(owner_.rank, owner_.members), pending.text()));
}

void P2pPeer::note_unasked(ddprun::TimePoint now) {
    if (posted_.empty() || arrived_.empty()) return;
    Board* const board = process_board();
    const TransferBatch& waiting = posted_.front().work->batch;
    if (board == nullptr || waiting.tickets.empty()) return;
    const auto end = arrived_.begin() + std::min(std::ssize(arrived_), kMostNoted);
    for (auto one = arrived_.begin(); one != end; ++one) {
        if (!one->to_note) {
            const auto part = (std::max(waiting.deadline, now) - now) / kPartUnasked;
            one->to_note = now + std::min<ddprun::Clock::duration>(kUnaskedFor, part);
        }
        if (now < *one->to_note) continue;
        one->to_note = ddprun::TimePoint::max();
        one->ticket = board->note_arrival(send_of(one->frame, rank_), waiting.tickets[posted_.front().index]);
    }
}

std::string P2pPeer::unasked() const {
    if (posted_.empty()) return "";
    std::string text;
    for (std::size_t i = 0; i < std::min(arrived_.size(), kMostNamed); ++i) {
        text += fmt::format("{}{}", i == 0 ? "" : ", ", describe(arrived_[i].frame, owner_.rank));
    }
    if (arrived_.size() > kMostNamed) text += fmt::format(" and {} more", arrived_.size() - kMostNamed);
    return text;
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
    if (owed_ < kOwed) return;
    enqueue(FrameKind::kCredit, 0);
    outbox_.back().frame.count = std::exchange(owed_, 0);
}

void P2pPeer::clear() {
    cut_off_ = cut_off_ || (!outbox_.empty() && outbox_.front().pushed > 0);
    outbox_.clear();
    offered_.clear();
    accepted_.clear();
    posted_.clear();
    for (const Arrival& one : arrived_) one.ticket.ended(false);
    arrived_.clear();
    copies_.clear();
    receiver_.reset();
    payload_ = {};
}

}  // namespace ddp::detail
