#pragma once
// Stripes: the distribution of a message's payload over the sockets to a peer: round-robin, in stripes of fixed size,
// the first one on the first socket, which also carries the header. Small messages use that socket alone; large ones
// fill a network that a single connection cannot fill. Pure.

#include <algorithm>
#include <array>
#include <cstddef>

#include "worker_lib/src/util/partition.hpp"

namespace ddp::detail {

inline constexpr std::size_t kMaxSocketsPerPeer = 8;

struct Stripes {
    static constexpr std::size_t kBytes = 64u << 10;

    std::size_t payload_bytes = 0;
    std::size_t sockets = 1;

    /// Returns how many bytes of the payload pass over socket number `socket`.
    [[nodiscard]] std::size_t share(std::size_t socket) const {
        if (sockets == 1) return payload_bytes;
        const std::size_t round = sockets * kBytes;
        const std::size_t begin = socket * kBytes;
        const std::size_t of_last_round = std::clamp(payload_bytes % round, begin, begin + kBytes) - begin;
        return payload_bytes / round * kBytes + of_last_round;
    }

    /// Returns the bytes of the payload that are next on a socket over which `done` bytes have passed, up to the end of
    /// a stripe.
    [[nodiscard]] Range next(std::size_t socket, std::size_t done) const {
        if (sockets == 1) return {done, payload_bytes};
        const std::size_t stripe = (done / kBytes * sockets + socket) * kBytes;
        return {std::min(payload_bytes, stripe + done % kBytes), std::min(payload_bytes, stripe + kBytes)};
    }
};

/// Counts the bytes of a message that have passed over each socket, in one direction.
class Progress {
public:
    Progress() = default;
    /// The first socket carries `header_bytes` before its share of the payload, and `seal_bytes` after it.
    Progress(std::size_t header_bytes, const Stripes& stripes, std::size_t seal_bytes)
        : header_(header_bytes),
          seal_(seal_bytes),
          stripes_(stripes),
          left_(header_bytes + stripes.payload_bytes + seal_bytes) {}

    [[nodiscard]] bool finished() const { return left_ == 0; }
    [[nodiscard]] bool finished(std::size_t socket) const {
        return left_ == 0 || done_[socket] == stripes_.share(socket) + (socket == 0 ? header_ + seal_ : 0);
    }
    [[nodiscard]] std::size_t done(std::size_t socket) const { return done_[socket]; }
    [[nodiscard]] bool has_header() const { return done_[0] >= header_; }

    /// Return the next bytes on a socket: those of the header, then of the payload, then of the seal.
    [[nodiscard]] Range header_part(std::size_t socket) const {
        return socket == 0 && !has_header() ? Range{done_[0], header_} : Range{};
    }
    [[nodiscard]] Range payload_part(std::size_t socket) const {
        if (socket > 0) return stripes_.next(socket, done_[socket]);
        return stripes_.next(0, has_header() ? done_[0] - header_ : 0);
    }

    [[nodiscard]] Range seal_part(std::size_t socket) const {
        if (socket > 0 || seal_ == 0) return {};
        const std::size_t before = done_[0] + header_part(0).size() + payload_part(0).size();
        return before == header_ + stripes_.share(0) ? Range{0, seal_} : Range{};
    }
    /// Adds a seal to a message that had none so far.
    void add_seal(std::size_t bytes) {
        seal_ += bytes;
        left_ += bytes;
    }

    void advance(std::size_t socket, std::size_t bytes) {
        done_[socket] += bytes;
        left_ -= bytes;
    }

private:
    std::size_t header_ = 0;
    std::size_t seal_ = 0;
    Stripes stripes_;
    std::size_t left_ = 0;
    std::array<std::size_t, kMaxSocketsPerPeer> done_{};
};

}  // namespace ddp::detail
