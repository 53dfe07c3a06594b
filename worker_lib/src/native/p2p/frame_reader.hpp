#pragma once
// FrameReader: reads frames from the stream of one peer. A Peer owns it, chooses the destination of each payload by the
// frame's header, and handles the frame when it is complete. P2p's lock guards the Peer.

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "worker_lib/src/native/p2p/work.hpp"
#include "worker_lib/src/native/protocol/channel.hpp"

namespace ddp::detail::p2p {

class FrameReader {
public:
    explicit FrameReader(std::unique_ptr<ByteSource> source) : source_(std::move(source)) {}

    struct Progress {
        std::size_t bytes = 0;     ///< that were read
        bool ends_header = false;  ///< the last of them ended the frame's fixed part: the payload needs a destination
    };
    /// Reads more of the current frame, `max` bytes at most.
    [[nodiscard]] Progress read(std::size_t max);
    [[nodiscard]] const Frame& frame() const { return frame_; }
    /// Directs the payload to the buffer of a receive.
    void deliver_to(PendingTransfer receive);
    /// Directs a payload of `bytes` bytes to kept().
    void keep(std::size_t bytes);
    [[nodiscard]] std::size_t payload_bytes() const { return payload_.size(); }
    /// Returns whether header and payload have been read.
    [[nodiscard]] bool is_complete() const {
        return read_ >= sizeof(Frame) && read_ == sizeof(Frame) + payload_.size();
    }
    /// Starts the next frame. The data of this one stays valid until read().
    void finish_frame() { read_ = 0; }
    /// Returns the receive of deliver_to(), once.
    [[nodiscard]] std::optional<PendingTransfer> take_receive() { return std::exchange(receive_, std::nullopt); }
    /// Returns the payload of keep().
    [[nodiscard]] std::vector<std::byte>& kept() { return kept_; }

    // For a message that is received without a Work:
    [[nodiscard]] bool is_between_frames() const { return read_ == 0; }
    /// Copies the next frame's fixed part without taking it. Returns how many bytes have arrived; 0 if it is not whole.
    [[nodiscard]] std::size_t peek(Frame& frame) { return source_->look(std::as_writable_bytes(std::span(&frame, 1))); }
    /// Takes that frame, whose payload fills `payload` and has arrived.
    void take(std::span<std::byte> payload) { source_->take(sizeof(Frame), payload); }

    /// Returns once whether reading made room for a peer that waits for it.
    [[nodiscard]] bool has_made_room() { return source_->has_made_room(); }
    /// Drops the receive and the destination of the payload. The program may free that buffer from now on, so no read()
    /// may follow.
    void clear();

private:
    const std::unique_ptr<ByteSource> source_;
    Frame frame_;
    std::size_t read_ = 0;  ///< bytes of frame and payload
    std::span<std::byte> payload_;
    std::optional<PendingTransfer> receive_;
    std::vector<std::byte> kept_;
};

}  // namespace ddp::detail::p2p
