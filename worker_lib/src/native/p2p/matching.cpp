#include "worker_lib/src/native/p2p/matching.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "ddp/error.hpp"
#include "worker_lib/src/operation/group_recorder.hpp"

namespace ddp::detail::p2p {

namespace {

/// Returns the send that a frame describes.
TransferList send_of(const Frame& frame, int peer) {
    TransferList batch;
    batch.seq = frame.seq;
    batch.label.assign(frame.name.data(), ::strnlen(frame.name.data(), frame.name.size()));
    const Buffer buffer{nullptr, static_cast<std::size_t>(frame.count), frame.dtype};
    batch.transfers.push_back({.sends = true, .buffer = buffer, .peer = peer, .tag = frame.tag});
    return batch;
}

std::string describe(const Frame& frame, int destination) { return detail::describe(send_of(frame, destination)); }

/// Time for which a message is unexpected before it is recorded; if the deadline is near, a part of the time left.
constexpr auto kUnexpectedFor = std::chrono::seconds(1);
constexpr int kPartOfDeadline = 4;
constexpr std::size_t kMaxSearched = 8;
/// Only the oldest ones are recorded, because senders may be many messages ahead of their receivers.
constexpr std::ptrdiff_t kMaxRecorded = 16;
constexpr std::size_t kMaxNamed = 3;

}  // namespace

void Matching::add_unexpected(const Frame& frame, std::vector<std::byte> payload) {
    unexpected_.push_back({.frame = frame, .payload = std::move(payload)});
}

std::optional<PendingTransfer> Matching::take_posted(std::int32_t tag) {
    const auto found = std::ranges::find(posted_, tag, [](const PendingTransfer& one) { return one.transfer().tag; });
    if (found == posted_.end()) return std::nullopt;
    PendingTransfer receive = std::move(*found);
    posted_.erase(found);
    return receive;
}

std::optional<Matching::Arrival> Matching::take_unexpected(std::int32_t tag) {
    const auto found = std::ranges::find(unexpected_, tag, [](const Arrival& one) { return one.frame.tag; });
    if (found == unexpected_.end()) return std::nullopt;
    Arrival arrival = std::move(*found);
    unexpected_.erase(found);
    arrival.entry.ended(true);
    return arrival;
}

bool Matching::is_next_in_stream(std::int32_t tag) const {
    return unexpected_.size() <= kMaxSearched &&
           std::ranges::none_of(unexpected_, [tag](const Arrival& one) { return one.frame.tag == tag; });
}

void Matching::compare(const Frame& frame, const PendingTransfer& receive) const {
    const Buffer& buffer = receive.transfer().buffer;
    if (frame.dtype == buffer.dtype && frame.count == buffer.count) return;
    const std::vector<RecordEntry>& entries = receive.work->batch.record_entries;
    FlightRecorder* const recorder = process_recorder();
    if (recorder != nullptr && !entries.empty())
        note_mismatch(*recorder, send_of(frame, peer_), entries[receive.index]);
    throw Error(ErrorCode::Mismatch,
                fmt::format("a send and its receive differ: {}: {}, {}: {}", name_of(peer_, own_.members),
                            describe(frame, own_.rank), name_of(own_.rank, own_.members), receive.text()));
}

void Matching::record_unexpected(ddprun::TimePoint now) {
    if (posted_.empty() || unexpected_.empty()) return;
    FlightRecorder* const recorder = process_recorder();
    const TransferList& waiting = posted_.front().work->batch;
    if (recorder == nullptr || waiting.record_entries.empty()) return;
    const auto end = unexpected_.begin() + std::min(std::ssize(unexpected_), kMaxRecorded);
    for (auto one = unexpected_.begin(); one != end; ++one) {
        if (!one->record_at) {
            const auto part = (std::max(waiting.deadline, now) - now) / kPartOfDeadline;
            one->record_at = now + std::min<ddprun::Clock::duration>(kUnexpectedFor, part);
        }
        if (now < *one->record_at) continue;
        one->record_at = ddprun::TimePoint::max();
        one->entry = note_arrival(*recorder, send_of(one->frame, peer_), waiting.record_entries[posted_.front().index]);
    }
}

std::string Matching::unexpected_text() const {
    if (posted_.empty()) return "";
    std::string text;
    for (std::size_t i = 0; i < std::min(unexpected_.size(), kMaxNamed); ++i) {
        text += fmt::format("{}{}", i == 0 ? "" : ", ", describe(unexpected_[i].frame, own_.rank));
    }
    if (unexpected_.size() > kMaxNamed) text += fmt::format(" and {} more", unexpected_.size() - kMaxNamed);
    return text;
}

void Matching::clear() {
    posted_.clear();
    for (const Arrival& one : unexpected_) one.entry.ended(false);
    unexpected_.clear();
}

}  // namespace ddp::detail::p2p
