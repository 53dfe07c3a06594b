#include "worker_lib/src/group/broadcast_in_pieces.hpp"

#include <algorithm>
#include <cstddef>
#include <deque>

namespace ddp::detail {
namespace {

constexpr std::size_t kPieceBytes = 32u << 20;
constexpr std::size_t kMaxInFlight = 4;  // bounds the queue for models of many thousand tensors

/// Owns the broadcasts in flight, the oldest first. They use the caller's memory until they have ended, with or without
/// an error. Therefore the destructor waits for them, also when an exception passes.
class InFlight {
public:
    InFlight() = default;
    InFlight(const InFlight&) = delete;
    InFlight& operator=(const InFlight&) = delete;
    ~InFlight() {
        for (Work& work : works_) {
            try {
                work.wait_host();
            } catch (const Error&) {  // the group has failed; the first work's error is already being thrown
            }
        }
    }

    void add(Work work) {
        works_.push_back(std::move(work));
        if (works_.size() >= kMaxInFlight) wait_for_oldest();
    }
    void wait_for_all() {
        while (!works_.empty()) wait_for_oldest();
    }

private:
    void wait_for_oldest() {
        Work oldest = std::move(works_.front());
        works_.pop_front();
        oldest.wait_host();
    }

    std::deque<Work> works_;
};

}  // namespace

void broadcast_in_pieces(ProcessGroup& group, std::span<const Buffer> buffers, int root, std::string_view label,
                         Stream stream) {
    InFlight in_flight;
    for (const Buffer& whole : buffers) {
        OpOptions options{.label = label};
        if (whole.device == Device::Cuda) options.stream = stream;
        const std::size_t piece_elements = kPieceBytes / size_of(whole.dtype);
        for (std::size_t done = 0; done < whole.count; done += piece_elements) {
            Buffer piece = whole;
            piece.data = static_cast<std::byte*>(whole.data) + done * size_of(whole.dtype);
            piece.count = std::min(piece_elements, whole.count - done);
            in_flight.add(group.broadcast(piece, root, options));
        }
    }
    in_flight.wait_for_all();
}

}  // namespace ddp::detail
