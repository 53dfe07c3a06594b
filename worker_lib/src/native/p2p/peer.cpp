#include "worker_lib/src/native/p2p/peer.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include "common/text/cut.hpp"
#include "ddp/error.hpp"
#include "ddp/process_group.hpp"

namespace ddp::detail::p2p {

namespace {

Frame make_frame(const TransferList& batch, const Transfer& transfer) {
    Frame frame;
    frame.dtype = transfer.buffer.dtype;
    frame.tag = transfer.tag;
    frame.seq = batch.seq;
    frame.count = transfer.buffer.count;
    if (!batch.label.empty()) ddprun::copy_cut(frame.name, batch.label);
    return frame;
}

}  // namespace

Peer::Peer(OwnRank& own, int rank, PeerMemory memory, std::unique_ptr<ByteSink> sink,
           std::unique_ptr<ByteSource> source)
    : own_(own),
      rank_(rank),
      memory_(memory),
      reader_(std::move(source)),
      outbox_(own, std::move(sink)),
      matching_(own, rank) {}

void Peer::post(PendingTransfer pending) {
    pending.transfer().sends ? start_send(std::move(pending)) : start_receive(std::move(pending));
}

void Peer::start_send(PendingTransfer pending) {
    const Buffer& buffer = pending.transfer().buffer;
    const bool small = buffer.bytes() <= ProcessGroup::kEagerBytes;
    if (small && !window_.has_room(buffer.bytes())) (void)pull();  // credit may have arrived that was not read
    Frame frame = make_frame(pending.work->batch, pending.transfer());
    frame.id = next_id_++;
    if (small && window_.has_room(buffer.bytes())) {
        window_.add_sent(buffer.bytes());
        frame.bytes = buffer.bytes();
        return outbox_.add(frame, bytes_of(buffer), std::move(pending));
    }
    frame.kind = FrameKind::kOffer;
    frame.place = memory_.address_of(buffer, own_.arena);
    outbox_.add(frame);
    offered_.emplace(frame.id, std::move(pending));
}

bool Peer::send_immediately(const TransferList& batch, const Transfer& transfer) noexcept {
    const std::size_t bytes = transfer.buffer.bytes();
    if (bytes > ProcessGroup::kEagerBytes || !window_.has_room(bytes) || !outbox_.can_push_now(bytes)) return false;
    Frame frame = make_frame(batch, transfer);
    frame.id = next_id_++;
    frame.bytes = bytes;
    window_.add_sent(bytes);
    outbox_.push_now(frame, bytes_of(transfer.buffer));
    return true;
}

Peer::Look Peer::receive_immediately(const Transfer& transfer) noexcept {
    if (!reader_.is_between_frames() || !matching_.is_next_in_stream(transfer.tag)) return Look::kOther;
    Frame frame;
    const std::size_t there = reader_.peek(frame);
    if (there == 0) return Look::kNothing;
    const Buffer& buffer = transfer.buffer;
    const bool fits = frame.magic == Frame::kMagic && frame.kind == FrameKind::kMessage && frame.tag == transfer.tag &&
                      frame.dtype == buffer.dtype && frame.count == buffer.count && frame.bytes == buffer.bytes();
    if (!fits || window_.owes_credit_after(buffer.bytes())) return Look::kOther;  // credit is a frame of ours
    if (there < sizeof(Frame) + buffer.bytes()) return Look::kNothing;
    reader_.take(bytes_of(buffer));
    window_.add_received(buffer.bytes());
    return Look::kTaken;
}

void Peer::start_receive(PendingTransfer pending) {
    const auto arrival = matching_.take_unexpected(pending.transfer().tag);
    if (!arrival) return matching_.add_posted(std::move(pending));
    if (arrival->frame.kind == FrameKind::kOffer) return meet_offer(arrival->frame, std::move(pending));
    matching_.compare(arrival->frame, pending);
    std::ranges::copy(arrival->payload, bytes_of(pending.transfer().buffer).begin());
    count_received(arrival->payload.size());
    finish(std::move(pending));
}

void Peer::meet_offer(const Frame& frame, PendingTransfer pending) {
    matching_.compare(frame, pending);
    const Buffer& buffer = pending.transfer().buffer;
    if (frame.place == Frame::kNowhere) {
        outbox_.add({.kind = FrameKind::kAccept, .id = frame.id, .place = memory_.address_of(buffer, own_.arena)});
        accepted_.emplace(frame.id, std::move(pending));
        return;
    }
    copies_.push_back({static_cast<std::byte*>(buffer.data), memory_at(frame.place, buffer.bytes()), buffer.bytes(),
                       Frame{.kind = FrameKind::kTaken, .id = frame.id}, std::move(pending)});
}

void Peer::count_received(std::size_t bytes) {
    window_.add_received(bytes);
    if (window_.owes_credit()) outbox_.add({.kind = FrameKind::kCredit, .count = window_.take_credit()});
}

Peer::Progress Peer::progress() {
    const bool pulled = pull();
    const bool copied = copy();
    const bool pushed = outbox_.push();
    return {.moved = pulled || copied || pushed, .peer_concerned = pushed || reader_.has_made_room()};
}

bool Peer::pull() {
    std::size_t total = 0;
    while (total < kMaxPerPass) {
        const auto [bytes, ends_header] = reader_.read(kMaxPerPass);
        if (bytes == 0) break;
        total += bytes;
        if (ends_header) begin_frame();
        if (!reader_.is_complete()) continue;
        reader_.finish_frame();
        end_frame(reader_.frame());
    }
    return total > 0;
}

/// Chooses the destination of the payload, when the frame's fixed part has been read.
void Peer::begin_frame() {
    const Frame& frame = reader_.frame();
    if (frame.magic != Frame::kMagic || frame.dtype > DType::F64)
        refuse("bytes that are not a message of this version");
    if (frame.kind == FrameKind::kData) {
        reader_.deliver_to(take(accepted_, frame.id));
    } else if (frame.kind == FrameKind::kMessage) {
        auto receive = matching_.take_posted(frame.tag);
        if (receive) {
            matching_.compare(frame, *receive);
            reader_.deliver_to(std::move(*receive));
        } else {
            if (frame.bytes > ProcessGroup::kEagerBytes) refuse("a large message without offering it first");
            reader_.keep(static_cast<std::size_t>(frame.bytes));
        }
    } else if (frame.kind == FrameKind::kFinalReport) {
        reader_.keep(sizeof(FailureNote));
    }
    if (reader_.payload_bytes() != frame.bytes) refuse("a payload of the wrong size");
}

void Peer::end_frame(const Frame& frame) {
    switch (frame.kind) {
        case FrameKind::kMessage: end_message(frame); break;
        case FrameKind::kOffer:
            if (auto posted = matching_.take_posted(frame.tag)) return meet_offer(frame, std::move(*posted));
            matching_.add_unexpected(frame, {});
            break;
        case FrameKind::kAccept: continue_offered(frame); break;
        case FrameKind::kTaken: finish(take(offered_, frame.id)); break;
        case FrameKind::kPlaced: finish(take(accepted_, frame.id)); break;
        case FrameKind::kData: finish(*reader_.take_receive()); break;
        case FrameKind::kCredit: window_.add_credit(static_cast<std::size_t>(frame.count)); break;
        case FrameKind::kAsk:
            outbox_.add({.kind = FrameKind::kAnswer, .count = own_.listening.load(std::memory_order_relaxed)});
            break;
        case FrameKind::kAnswer:
            asked_ = false;
            listening_ = frame.count;
            break;
        case FrameKind::kFinalReport: {
            FailureNote note;
            std::memcpy(&note, reader_.kept().data(), sizeof(note));
            (frame.count != 0 ? own_.reported_failure : departure_) =
                reported_by(name_of(rank_, own_.members), read_note(note, own_.node.ranks.group_size()));
            break;
        }
        default: refuse("a message of an unknown kind");
    }
}

void Peer::end_message(const Frame& frame) {
    if (auto receive = reader_.take_receive()) {
        count_received(reader_.payload_bytes());
        return finish(std::move(*receive));
    }
    // A receive may have been posted since the first byte arrived.
    if (auto posted = matching_.take_posted(frame.tag)) {
        matching_.compare(frame, *posted);
        std::ranges::copy(reader_.kept(), bytes_of(posted->transfer().buffer).begin());
        count_received(reader_.kept().size());
        return finish(std::move(*posted));
    }
    matching_.add_unexpected(frame, std::exchange(reader_.kept(), {}));
}

/// Sends an offered message as the receiver has asked for it: to an address in its memory, or through the stream.
void Peer::continue_offered(const Frame& accept) {
    PendingTransfer pending = take(offered_, accept.id);
    const Buffer& buffer = pending.transfer().buffer;
    if (accept.place == Frame::kNowhere) {
        const Frame frame{.kind = FrameKind::kData, .id = accept.id, .bytes = buffer.bytes()};
        return outbox_.add(frame, bytes_of(buffer), std::move(pending));
    }
    copies_.push_back({memory_at(accept.place, buffer.bytes()), static_cast<const std::byte*>(buffer.data),
                       buffer.bytes(), Frame{.kind = FrameKind::kPlaced, .id = accept.id}, std::move(pending)});
}

bool Peer::copy() {
    if (copies_.empty()) return false;
    Copy& front = copies_.front();
    const std::size_t some = std::min(front.bytes, kMaxPerPass);
    if (some > 0) std::memmove(front.to, front.from, some);  // a rank may send to itself from the buffer of the receive
    front.to += some;
    front.from += some;
    front.bytes -= some;
    if (front.bytes > 0) return true;
    // A peer that failed may use its buffer for something else: then the copy is torn.
    std::atomic_thread_fence(std::memory_order_acquire);
    if (own_.node.failure.poisoned() && !own_.node.failure.stopped()) return false;
    outbox_.add(front.frame);
    finish(std::move(front.pending));
    copies_.pop_front();
    return true;
}

PendingTransfer Peer::take(std::map<std::uint64_t, PendingTransfer>& from, std::uint64_t id) const {
    const auto found = from.find(id);
    if (found == from.end()) refuse("a reply without a request");
    PendingTransfer pending = std::move(found->second);
    from.erase(found);
    return pending;
}

std::byte* Peer::memory_at(std::uint64_t address, std::size_t bytes) const {
    const auto found = memory_.at(address, bytes);
    if (!found) refuse("an address outside its memory");
    return *found;
}

void Peer::refuse(const char* why) const {
    throw Error(ErrorCode::System, fmt::format("{} sent {}", name_of(rank_, own_.members), why), {rank_});
}

void Peer::ask() {
    if (!std::exchange(asked_, true)) outbox_.add({.kind = FrameKind::kAsk});
}

void Peer::clear() {
    outbox_.clear();
    offered_.clear();
    accepted_.clear();
    matching_.clear();
    copies_.clear();
    reader_.clear();
}

}  // namespace ddp::detail::p2p
