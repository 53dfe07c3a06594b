#include "worker_lib/src/native/shm/segment.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <map>
#include <new>
#include <utility>

#include "common/clock.hpp"
#include "common/mutex.hpp"
#include "worker_lib/src/native/shm/heap_limit.hpp"
#include "worker_lib/src/util/error.hpp"

#ifndef MADV_COLLAPSE
#define MADV_COLLAPSE 25  // Linux 6.1; older ones refuse it. The C library of Debian 12 does not know it
#endif

namespace ddp::detail {

namespace {

/// The segments that this process has mapped, by device and inode.
struct Mapped {
    using Key = std::pair<dev_t, ino_t>;
    ddprun::Mutex mutex;
    std::map<Key, std::weak_ptr<Segment>> segments GUARDED_BY(mutex);
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

/// Requests are limited in time, because with fragmented memory the kernel may take long for each huge page.
constexpr std::size_t kBatchBytes = 8 * kHugePage;
constexpr std::chrono::milliseconds kRequestTimeout{50};

constexpr const char* kMemoryAdvice =
    "The memory of this machine or container may be used up: free some, or raise the container's memory limit "
    "(the size of /dev/shm does not matter)";

std::size_t round_up(std::size_t value, std::size_t unit) { return (value + unit - 1) / unit * unit; }

/// Maps the file at a multiple of the huge page size. Huge pages need addresses that match their offset in the file,
/// which the kernel does not ensure by itself.
void* map_aligned(int fd, std::size_t bytes) {
    const std::size_t room = bytes + kHugePage;
    void* const found = ::mmap(nullptr, room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (found == MAP_FAILED) return MAP_FAILED;
    auto* const begin = static_cast<std::byte*>(found);
    const std::size_t skipped =
        round_up(reinterpret_cast<std::uintptr_t>(begin), kHugePage) - reinterpret_cast<std::uintptr_t>(begin);
    void* const base =
        ::mmap(begin + skipped, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED, fd, 0);
    if (base == MAP_FAILED) {
        const int error = errno;
        ::munmap(begin, room);
        errno = error;
        return MAP_FAILED;
    }
    if (skipped > 0) ::munmap(begin, skipped);
    const std::size_t used = skipped + round_up(bytes, static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)));
    if (used < room) ::munmap(begin + used, room - used);
    return base;
}

}  // namespace

std::shared_ptr<Segment> Segment::map(int fd, std::size_t bytes) {
    void* base = map_aligned(fd, bytes);
    if (base == MAP_FAILED) {
        throw_errno(fmt::format("cannot map {} MiB of shared memory", bytes >> 20), errno,
                    "Raise `ulimit -v`, if it limits the address space");
    }
    std::shared_ptr<Segment> segment(new Segment(static_cast<std::byte*>(base), bytes));
    // Only a hint, which a kernel without huge pages for memfd refuses.
    ::madvise(segment->staging(), bytes - kStagingOffset, MADV_HUGEPAGE);
    // A core dump would contain every page, even untouched ones: as much as the machine's memory for each rank.
    ::madvise(base, bytes, MADV_DONTDUMP);
    return segment;
}

/// Requests huge pages for those parts of [offset, offset + bytes) of the segment that cover whole ones, where the
/// kernel does not use them by itself. MADV_COLLAPSE needs one existing small page in each. Any refusal is ignored.
void Segment::request_huge_pages(std::size_t offset, std::size_t bytes) const {
#ifdef MADV_POPULATE_WRITE
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t first = round_up(offset, kHugePage);
    const std::size_t end = (offset + bytes) / kHugePage * kHugePage;
    if (end <= first) return;
    const auto enough = ddprun::Clock::now() + kRequestTimeout;
    for (std::size_t at = first; at < end && ddprun::Clock::now() < enough; at += kBatchBytes) {
        const std::size_t batch = std::min(kBatchBytes, end - at);
        for (std::size_t huge = at; huge < at + batch; huge += kHugePage) {
            if (::madvise(base_ + huge, page, MADV_POPULATE_WRITE) != 0) return;
        }
        if (::madvise(base_ + at, batch, MADV_COLLAPSE) != 0) return;
    }
#else
    static_cast<void>(offset);
    static_cast<void>(bytes);
#endif
}

void Segment::prepare_staging(std::size_t bytes) const { request_huge_pages(kStagingOffset, bytes); }

std::shared_ptr<Segment> Segment::create(std::size_t local_ranks) {
    ddprun::UniqueFd fd(::memfd_create("ddp", MFD_CLOEXEC));
    if (!fd) throw_errno("cannot create shared memory (memfd)", errno);
    HeapLimit limit = heap_limit_here(kHeapOffset, local_ranks);
    const std::size_t bytes = kHeapOffset + limit.bytes;
    if (::ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) {
        throw_errno(fmt::format("cannot size shared memory to {} MiB", bytes >> 20), errno);
    }
    // Without this a lack of memory would be a SIGBUS below.
    if (::fallocate(fd.get(), 0, 0, kControlBytes) != 0) {
        throw_errno("cannot allocate a group's shared memory", errno, kMemoryAdvice);
    }
    const auto status = status_of(fd.get());
    auto segment = map(fd.get(), bytes);
    (new (segment->base_) Control)->cores = usable_cores();
    segment->fd_ = std::move(fd);
    segment->heap_limit_ = std::move(limit.reason);
    Mapped& table = mapped();
    const ddprun::Lock lock(table.mutex);
    std::erase_if(table.segments, [](const auto& entry) { return entry.second.expired(); });
    table.segments[{status.st_dev, status.st_ino}] = segment;
    return segment;
}

std::shared_ptr<Segment> Segment::attach(const ddprun::UniqueFd& fd) {
    const auto status = status_of(fd.get());
    if (static_cast<std::size_t>(status.st_size) < kHeapOffset) {
        throw Error(ErrorCode::System,
                    "a peer's shared memory is smaller than this version of the library makes it. Rebuild the trainers "
                    "of all nodes with one version");
    }
    Mapped& table = mapped();
    const ddprun::Lock lock(table.mutex);
    auto& known = table.segments[{status.st_dev, status.st_ino}];
    auto segment = known.lock();
    if (!segment) known = segment = map(fd.get(), static_cast<std::size_t>(status.st_size));
    return segment;
}

Segment::~Segment() {
    // Without NodeProgress::leave() the creator failed while its group was forming: peers that have mapped this memory
    // already must not wait for it.
    Departure present = Departure::kPresent;
    if (fd_) control().left.compare_exchange_strong(present, Departure::kLeftByException, std::memory_order_seq_cst);
    ::munmap(base_, bytes_);
}

void Segment::populate_heap(std::size_t offset, std::size_t bytes) const {
    const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const std::size_t first = offset / page * page;
    const std::size_t end = round_up(offset + bytes, page);
    request_huge_pages(kHeapOffset + first, end - first);
#ifdef MADV_POPULATE_WRITE
    if (::madvise(heap() + first, end - first, MADV_POPULATE_WRITE) == 0) return;
#endif
    // Kernels before 5.14: afterwards the pages exist, though not yet in this process's page table.
    const auto begin = static_cast<off_t>(kHeapOffset + first);
    if (::fallocate(fd_.get(), 0, begin, static_cast<off_t>(end - first)) == 0) return;
    throw_errno(fmt::format("cannot allocate {} bytes of the arena's shared memory", bytes), errno,
                fmt::format("{}. The size of the arena comes from {}", kMemoryAdvice, heap_limit_));
}

}  // namespace ddp::detail
