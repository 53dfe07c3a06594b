#include "worker_lib/src/native/segment.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fcntl.h>
#include <fmt/format.h>

#include <cerrno>
#include <map>
#include <mutex>
#include <new>
#include <utility>

#include "worker_lib/src/native/heap_limit.hpp"
#include "worker_lib/src/native/system_error.hpp"

namespace ddp::detail {

namespace {

/// The segments that this process has mapped, by device and inode.
struct Mapped {
    using Key = std::pair<dev_t, ino_t>;
    std::mutex mutex;
    std::map<Key, std::weak_ptr<Segment>> segments;
};

Mapped& mapped() {
    static auto& table = *new Mapped;  // never destroyed: groups may outlive main()
    return table;
}

struct stat status_of(int fd) {
    struct stat status {};
    if (::fstat(fd, &status) != 0) throw_errno("cannot inspect shared memory", errno);
    return status;
}

}  // namespace

std::shared_ptr<Segment> Segment::map(int fd, std::size_t bytes) {
    void* base = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (base == MAP_FAILED) {
        throw_errno(fmt::format("cannot map {} MiB of shared memory (is there a limit on address space, ulimit -v?)",
                                bytes >> 20),
                    errno);
    }
    std::shared_ptr<Segment> segment(new Segment(static_cast<std::byte*>(base), bytes));
    ::madvise(segment->heap(), segment->heap_bytes(),
              MADV_HUGEPAGE);  // a wish: refused where the kernel has none for memfd
    return segment;
}

std::shared_ptr<Segment> Segment::create() {
    ddprun::UniqueFd fd(::memfd_create("ddp", MFD_CLOEXEC));
    if (!fd) throw_errno("cannot create shared memory (memfd)", errno);
    HeapLimit limit = heap_limit_here(kHeapOffset);
    const std::size_t bytes = kHeapOffset + limit.bytes;
    if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
        throw_errno(fmt::format("cannot size shared memory to {} MiB", bytes >> 20), errno);
    }
    // Without this a lack of memory would show as SIGBUS below.
    if (::fallocate(fd.get(), 0, 0, kControlBytes) != 0) {
        throw_errno("no room for a group's shared memory (is the memory of this machine or container used up?)", errno);
    }
    const auto status = status_of(fd.get());
    auto segment = map(fd.get(), bytes);
    new (segment->base_) Control;
    segment->fd_ = std::move(fd);
    segment->heap_limit_ = std::move(limit.reason);
    Mapped& table = mapped();
    const std::lock_guard lock(table.mutex);
    std::erase_if(table.segments, [](const auto& entry) { return entry.second.expired(); });
    table.segments[{status.st_dev, status.st_ino}] = segment;
    return segment;
}

std::shared_ptr<Segment> Segment::attach(const ddprun::UniqueFd& fd) {
    const auto status = status_of(fd.get());
    if (static_cast<std::size_t>(status.st_size) < kHeapOffset) {
        throw Error(ErrorCode::System,
                    "a peer's shared memory is too small: is it of another version of this library?");
    }
    Mapped& table = mapped();
    const std::lock_guard lock(table.mutex);
    auto& known = table.segments[{status.st_dev, status.st_ino}];
    auto segment = known.lock();
    if (!segment) known = segment = map(fd.get(), static_cast<std::size_t>(status.st_size));
    return segment;
}

Segment::~Segment() {
    // A creator that never got as far as Node::leave() has failed while its group was forming: peers that already have
    // this memory must not wait for it.
    Departure present = Departure::kPresent;
    if (fd_) control().left.compare_exchange_strong(present, Departure::kLeftByException, std::memory_order_seq_cst);
    ::munmap(base_, bytes_);
}

void Segment::populate_heap(std::size_t offset, std::size_t bytes) const {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t first = offset / page * page;
    const std::size_t end = (offset + bytes + page - 1) / page * page;
#ifdef MADV_POPULATE_WRITE
    if (::madvise(heap() + first, end - first, MADV_POPULATE_WRITE) == 0) return;
#endif
    // Kernels before 5.14: the pages exist afterwards, though not yet in our page table.
    const auto begin = static_cast<off_t>(kHeapOffset + first);
    if (::fallocate(fd_.get(), 0, begin, static_cast<off_t>(end - first)) == 0) return;
    throw_errno(
        fmt::format("no room for {} bytes of shared memory: the arena's size comes from {}", bytes, heap_limit_),
        errno);
}

}  // namespace ddp::detail
