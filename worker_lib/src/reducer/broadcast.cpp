#include "worker_lib/src/reducer/broadcast.hpp"

#include <algorithm>
#include <cstddef>
#include <deque>

namespace ddp::detail {
namespace {

constexpr std::size_t kPieceBytes = 32u << 20;
constexpr std::size_t kMaxInFlight = 4;  // bounds the queue for models of many thousand tensors

}  // namespace

void broadcast_in_pieces(ProcessGroup& group, std::span<const Buffer> buffers, int root, std::string_view tag) {
    std::deque<Work> in_flight;
    const auto wait_for_oldest = [&] {
        Work oldest = std::move(in_flight.front());
        in_flight.pop_front();
        oldest.wait();
    };
    for (const Buffer& whole : buffers) {
        const std::size_t piece_elements = kPieceBytes / size_of(whole.dtype);
        for (std::size_t done = 0; done < whole.count; done += piece_elements) {
            Buffer piece = whole;
            piece.data = static_cast<std::byte*>(whole.data) + done * size_of(whole.dtype);
            piece.count = std::min(piece_elements, whole.count - done);
            in_flight.push_back(group.broadcast(piece, root, {}, {.timeout = {}, .tag = tag}));
            if (in_flight.size() >= kMaxInFlight) wait_for_oldest();
        }
    }
    while (!in_flight.empty()) wait_for_oldest();
}

}  // namespace ddp::detail
