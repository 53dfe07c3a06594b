#include "worker_lib/src/sharding/read_only_view.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <fmt/format.h>

#include <cerrno>

#include "worker_lib/src/util/error.hpp"

namespace ddp::detail {

namespace {

[[noreturn]] void throw_unmapped(std::size_t bytes, int error) {
    throw_errno(fmt::format("cannot map {} bytes of whole units", bytes), error,
                "Raise `ulimit -v` or the sysctl vm.max_map_count, if they limit the address space, or copy units: set "
                "ShardOptions::mapped to false on all ranks");
}

}  // namespace

std::size_t page_bytes() {
    static const auto bytes = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    return bytes;
}

ReadOnlyView::ReadOnlyView(std::size_t bytes) : bytes_(bytes) {
    void* const base = ::mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED) throw_unmapped(bytes, errno);
    base_ = static_cast<std::byte*>(base);
}

ReadOnlyView::~ReadOnlyView() { ::munmap(base_, bytes_); }

void ReadOnlyView::show(std::size_t offset, const std::byte* memory, std::size_t bytes) {
    std::byte* const target = base_ + offset;
    // With an old size of 0 the kernel maps the same pages a second time. So no descriptor has to be kept for each
    // peer.
    void* const shown =
        ::mremap(const_cast<std::byte*>(memory), 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, static_cast<void*>(target));
    if (shown == MAP_FAILED) {
        const int error = errno;
        // The kernel may have unmapped the target before it failed, and another thread may use these addresses since.
        // So they are not unmapped again: the range ends there.
        ::munmap(target + bytes, bytes_ - offset - bytes);
        bytes_ = offset;
        throw_unmapped(bytes, error);
    }
    if (::mprotect(target, bytes, PROT_READ) != 0) throw_unmapped(bytes, errno);
}

}  // namespace ddp::detail
