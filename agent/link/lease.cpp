#include "agent/link/lease.hpp"

#include <algorithm>
#include <cstddef>

namespace ddprun::agent {
namespace {

constexpr std::size_t kMaxUnconfirmed = 64;  // far beyond the end of any lease

}  // namespace

void Lease::welcomed(const protocol::Welcome& welcome) {
    limits_ = welcome;
    confirmed_ = join_sent_;
    ended_at_.reset();
    unconfirmed_.clear();
}

protocol::Heartbeat Lease::next_heartbeat(TimePoint now) {
    unconfirmed_.push_back(now);
    if (unconfirmed_.size() > kMaxUnconfirmed) unconfirmed_.pop_front();
    return {++sent_, heard_};
}

void Lease::heard(const protocol::Heartbeat& heartbeat) {
    heard_ = heartbeat.number;
    const std::uint64_t missing = sent_ - std::min(sent_, heartbeat.heard);  // sent and not confirmed yet
    while (unconfirmed_.size() > missing) {
        confirmed_ = unconfirmed_.front();
        unconfirmed_.pop_front();
    }
}

TimePoint Lease::ends() const {
    const TimePoint by_silence = confirmed_ + length();
    return ended_at_ ? std::min(by_silence, *ended_at_ + limits_.reconnect_grace / 2) : by_silence;
}

}  // namespace ddprun::agent
