#pragma once
// Segment: the memory that a rank shares with the ranks of its node: control page, area for sends and receives, staging
// slot, heap of its arena. It is one sparse memfd: only touched pages take memory, it has no name in any file system,
// and it ends with the last process that maps it.

#include <cstddef>
#include <memory>
#include <string>

#include "common/system/unique_fd.hpp"
#include "worker_lib/src/native/shm/control.hpp"

namespace ddp::detail {

struct PostPage;

/// Bytes of the area for sends and receives: a PostPage, and rings to the other ranks of the node. With up to 500 ranks
/// each ring has room for a small message.
inline constexpr std::size_t kPostBytes = (16u << 20) - (64u << 10);
/// Bytes of a staging slot, through which buffers outside the heap are copied piece by piece.
inline constexpr std::size_t kStagingBytes = 4u << 20;

/// Owns one mapping. Any thread may use it.
class Segment {
public:
    /// Creates a zeroed segment whose heap is as large as heap_limit_here() allows. Throws Error{System}.
    [[nodiscard]] static std::shared_ptr<Segment> create(std::size_t local_ranks = 1);
    /// Maps a peer's segment from its descriptor. All users of a segment in one process share one mapping, so that
    /// ThreadSanitizer sees ranks that are threads use the same addresses. Throws Error{System}.
    [[nodiscard]] static std::shared_ptr<Segment> attach(const ddprun::UniqueFd& fd);
    ~Segment();
    Segment(const Segment&) = delete;
    Segment& operator=(const Segment&) = delete;

    [[nodiscard]] Control& control() const { return *reinterpret_cast<Control*>(base_); }
    [[nodiscard]] std::byte* staging() const { return base_ + kStagingOffset; }
    /// Returns the area for sends and receives between neighbours.
    [[nodiscard]] std::byte* post_area() const { return base_ + kPostOffset; }
    [[nodiscard]] PostPage& post_page() const { return *reinterpret_cast<PostPage*>(post_area()); }
    [[nodiscard]] std::byte* heap() const { return base_ + kHeapOffset; }
    [[nodiscard]] std::size_t heap_bytes() const { return bytes_ - kHeapOffset; }
    [[nodiscard]] int fd() const { return fd_.get(); }  ///< only in the creator
    /// Returns the reason for the size of the heap, for errors. Only in the creator.
    [[nodiscard]] const std::string& heap_limit() const { return heap_limit_; }

    /// Allocates the pages of [offset, offset + bytes) of the heap, or throws Error{System}. Without this a lack of
    /// memory would be a SIGBUS at the first access.
    void populate_heap(std::size_t offset, std::size_t bytes) const;
    /// Requests huge pages for the first `bytes` of the staging slot. The requests are slow, so call it once, before
    /// large operations.
    void prepare_staging(std::size_t bytes) const;

private:
    static constexpr std::size_t kControlBytes = 64u << 10;
    static constexpr std::size_t kPostOffset = kControlBytes;
    static constexpr std::size_t kStagingOffset = kPostOffset + kPostBytes;  // a huge page's boundary, as the next one
    static constexpr std::size_t kHeapOffset = kStagingOffset + kStagingBytes;
    static_assert(sizeof(Control) <= kControlBytes && kStagingOffset % (4u << 20) == 0);

    Segment(std::byte* base, std::size_t bytes) : base_(base), bytes_(bytes) {}
    static std::shared_ptr<Segment> map(int fd, std::size_t bytes);
    void request_huge_pages(std::size_t offset, std::size_t bytes) const;

    std::byte* base_;
    std::size_t bytes_;
    ddprun::UniqueFd fd_;
    std::string heap_limit_;
};

}  // namespace ddp::detail
