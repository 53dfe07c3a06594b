#include "worker_lib/src/native/p2p/frame_reader.hpp"

#include <algorithm>

#include "worker_lib/src/native/p2p/peer_memory.hpp"

namespace ddp::detail::p2p {

FrameReader::Progress FrameReader::read(std::size_t max) {
    const bool in_header = read_ < sizeof(Frame);
    const auto header = std::as_writable_bytes(std::span(&frame_, 1));
    const auto rest = in_header ? header.subspan(read_) : payload_.subspan(read_ - sizeof(Frame));
    const std::size_t some = source_->pull(rest.first(std::min(rest.size(), max)));
    read_ += some;
    const bool ends_header = some > 0 && in_header && read_ == sizeof(Frame);
    if (ends_header) payload_ = {};
    return {some, ends_header};
}

void FrameReader::deliver_to(PendingTransfer receive) {
    receive_ = std::move(receive);
    payload_ = bytes_of(receive_->transfer().buffer);
}

void FrameReader::keep(std::size_t bytes) {
    kept_.resize(bytes);
    payload_ = kept_;
}

void FrameReader::clear() {
    receive_.reset();
    payload_ = {};
}

}  // namespace ddp::detail::p2p
