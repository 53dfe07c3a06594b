#include "worker_lib/src/recorder/flight_recorder_memory.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace ddp::detail {

namespace layout = ddprun::flight_record;

namespace {

/// Returns whether a living process other than this one is the writer.
bool is_held(std::int64_t holder) {
    const auto number = static_cast<std::uint64_t>(holder);
    const auto pid = static_cast<pid_t>(holder < 0 ? 0 - number : number);
    return pid > 0 && pid != ::getpid() && (::kill(pid, 0) == 0 || errno != ESRCH);
}

/// Resets the memory, while the agent may be reading it. The steps stay: they are those of the whole worker.
void clear(layout::Memory& memory) {
    for (auto& [id, operation, started, ended, waited, failure] : memory.operations) {
        operation.clear();
        id.store(0, std::memory_order_relaxed);
        for (auto* mark : {&started, &ended, &waited}) mark->store(0, std::memory_order_relaxed);
        failure.store(layout::Failure::kOther, std::memory_order_relaxed);
    }
    for (auto& [group, queued, started, done, abort, left, left_after] : memory.groups) {
        group.clear();
        abort.clear();
        for (auto* number : {&queued, &started, &done, &left_after}) number->store(0, std::memory_order_relaxed);
        left.store(0, std::memory_order_relaxed);
    }
    memory.preemption.calls.store(0, std::memory_order_relaxed);
    memory.phase.clear();
    for (auto& call : memory.device_calls) call.clear();
    memory.hidden_groups.store(0, std::memory_order_relaxed);
    memory.last_operation.store(0, std::memory_order_release);
}

/// Makes this process the writer. If two processes of a worker start at the same moment, one of them gets it.
bool claim(layout::Memory& memory) {
    const std::int64_t self = ::getpid();
    std::int64_t holder = memory.pid.load();
    if (is_held(holder)) return false;
    const bool has_predecessor = holder != 0 && holder != self;
    if (!memory.pid.compare_exchange_strong(holder, has_predecessor ? -self : self)) return false;
    if (!has_predecessor) return true;
    clear(memory);  // the predecessor's entries would look like ours
    memory.pid.store(self);
    return true;
}

}  // namespace

layout::Memory* take_recorder_memory(int descriptor, std::string& problem) {
    struct stat status {};
    if (descriptor < 3 || ::fstat(descriptor, &status) != 0) {
        problem = "there is no such descriptor";
        return nullptr;
    }
    // Any other file behind this number is left alone.
    const int seals = ::fcntl(descriptor, F_GET_SEALS);
    if (seals < 0 || (seals & F_SEAL_SHRINK) == 0 || status.st_size != sizeof(layout::Memory)) {
        problem = "it is not a flight record of this version";
        return nullptr;
    }
    void* const mapped = ::mmap(nullptr, sizeof(layout::Memory), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (mapped == MAP_FAILED) {
        problem = fmt::format("mmap: {}", std::strerror(errno));
        return nullptr;
    }
    auto* const memory = static_cast<layout::Memory*>(mapped);
    const bool known = memory->magic == layout::kMagic && memory->bytes == sizeof(layout::Memory);
    if (!known || !claim(*memory)) {
        problem = known ? "another process of this worker writes it" : "it is not a flight record of this version";
        ::munmap(mapped, sizeof(layout::Memory));
        return nullptr;
    }
    ::fcntl(descriptor, F_SETFD, FD_CLOEXEC);
    return memory;
}

}  // namespace ddp::detail
