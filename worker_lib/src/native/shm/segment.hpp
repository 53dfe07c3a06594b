#pragma once
// Segment: the memory that a rank shares with the ranks of its node: control page, staging slot, heap of its arena. One
// memfd, sparse: it costs what is touched, has no name in any file system, and is gone with the last process that maps
// it.

#include <cstddef>
#include <memory>
#include <string>

#include "common/unique_fd.hpp"
#include "worker_lib/src/native/control.hpp"

namespace ddp::detail {

struct PostPage;

/// Bytes of the area for sends and receives: a PostPage, and lanes to the other ranks of the node, which at up to 500
/// ranks have room for a small message.
inline constexpr std::size_t kPostBytes = (16u << 20) - (64u << 10);
/// Bytes of a staging slot, through which buffers outside the heap pass piece by piece.
inline constexpr std::size_t kStagingBytes = 4u << 20;

class Segment {
public:
    /// A new one, zeroed. The heap is as large as heap_limit_here() allows. Throws Error{System}.
    [[nodiscard]] static std::shared_ptr<Segment> create();
    /// A peer's, from its descriptor. Within one process all users of a segment share one mapping of it: that way
    /// ThreadSanitizer sees ranks that are threads meet at the same addresses. Throws Error{System}.
    [[nodiscard]] static std::shared_ptr<Segment> attach(const ddprun::UniqueFd& fd);
    ~Segment();
    Segment(const Segment&) = delete;
    Segment& operator=(const Segment&) = delete;

    [[nodiscard]] Control& control() const { return *reinterpret_cast<Control*>(base_); }
    [[nodiscard]] std::byte* staging() const { return base_ + kStagingOffset; }
    /// For sends and receives between neighbours.
    [[nodiscard]] std::byte* post_area() const { return base_ + kPostOffset; }
    [[nodiscard]] PostPage& post_page() const { return *reinterpret_cast<PostPage*>(post_area()); }
    [[nodiscard]] std::byte* heap() const { return base_ + kHeapOffset; }
    [[nodiscard]] std::size_t heap_bytes() const { return bytes_ - kHeapOffset; }
    /// Valid in the segment's creator only, as the next one: what decided the size of the heap, for errors.
    [[nodiscard]] int fd() const { return fd_.get(); }
    [[nodiscard]] const std::string& heap_limit() const { return heap_limit_; }

    /// Makes the pages of [offset, offset + bytes) of the heap present, or throws Error{System}: without this, a lack
    /// of memory would show as SIGBUS at the first touch.
    void populate_heap(std::size_t offset, std::size_t bytes) const;
    /// Before much passes through the first `bytes` of the staging slot: the first time it is worth a millisecond.
    void prepare_staging(std::size_t bytes) const;

private:
    static constexpr std::size_t kControlBytes = 64u << 10;
    static constexpr std::size_t kPostOffset = kControlBytes;
    static constexpr std::size_t kStagingOffset = kPostOffset + kPostBytes;  // a huge page's boundary, as the next one
    static constexpr std::size_t kHeapOffset = kStagingOffset + kStagingBytes;
    static_assert(sizeof(Control) <= kControlBytes && kStagingOffset % (4u << 20) == 0);

    Segment(std::byte* base, std::size_t bytes) : base_(base), bytes_(bytes) {}
    static std::shared_ptr<Segment> map(int fd, std::size_t bytes);
    void wish_for_huge_pages(std::size_t offset, std::size_t bytes) const;

    std::byte* base_;
    std::size_t bytes_;
    ddprun::UniqueFd fd_;
    std::string heap_limit_;
};

}  // namespace ddp::detail
