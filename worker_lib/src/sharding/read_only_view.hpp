#pragma once
// ReadOnlyView: a range of addresses at which pages of shared memory appear again, end to end and read-only. Its
// owner's thread only; any thread may read it.

#include <cstddef>

namespace ddp::detail {

class ReadOnlyView {
public:
    /// Reserves `bytes` of addresses, which cannot be accessed until show(). Throws Error{System}.
    explicit ReadOnlyView(std::size_t bytes);
    ~ReadOnlyView();
    ReadOnlyView(const ReadOnlyView&) = delete;
    ReadOnlyView& operator=(const ReadOnlyView&) = delete;

    /// Shows [memory, memory + bytes), of one mapping of shared memory, at `offset`. All three are multiples of
    /// page_bytes(). The pages stay even if that mapping ends. Throws Error{System}; only the destructor may follow.
    void show(std::size_t offset, const std::byte* memory, std::size_t bytes);
    /// Returns the begin of the range. A write to it is a SIGSEGV.
    [[nodiscard]] std::byte* data() const { return base_; }

private:
    std::size_t bytes_;
    std::byte* base_;
};

[[nodiscard]] std::size_t page_bytes();

}  // namespace ddp::detail
