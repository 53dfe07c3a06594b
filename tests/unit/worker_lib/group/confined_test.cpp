// Ranks in a typical container: a /dev/shm of 64 MiB, and no access to the memory of other processes.

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <string>
#include <vector>

#include "tests/catch.hpp"
#include "tests/unit/worker_lib/support/local_world.hpp"
#include "tests/unit/worker_lib/support/processes.hpp"

using namespace ddp;
using namespace ddp::testing;

namespace {

constexpr std::size_t kLargeCount = 25'000'000;  // 100 MB

std::string system_text(const char* what) { return std::string(what) + ": " + std::strerror(errno); }

/// Gives this process a mount namespace with a small /dev/shm. Returns why that failed; empty: it did not.
std::string shrink_shared_memory() {
    const auto uid = std::to_string(::geteuid());
    const auto gid = std::to_string(::getegid());
    if (::unshare(CLONE_NEWNS) != 0) {
        if (::unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return system_text("unshare");
        std::ofstream("/proc/self/setgroups") << "deny";
        std::ofstream("/proc/self/uid_map") << uid + " " + uid + " 1";
        std::ofstream("/proc/self/gid_map") << gid + " " + gid + " 1";
    }
    if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return system_text("making mounts private");
    if (::mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=64m") != 0) return system_text("mounting /dev/shm");
    struct statvfs now {};
    const bool small = ::statvfs("/dev/shm", &now) == 0 && now.f_blocks * now.f_frsize == std::size_t{64} << 20;
    return small ? "" : "/dev/shm has not got its size";
}

/// Forbids this process and its children access to other processes. Returns why that failed; empty: it did not.
std::string forbid_ptrace() {
    constexpr std::uint32_t kRefuse = SECCOMP_RET_ERRNO | EPERM;
    const auto refuse = [](std::uint32_t number) {
        return std::array{sock_filter(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1)),
                          sock_filter(BPF_STMT(BPF_RET | BPF_K, kRefuse))};
    };
    std::vector<sock_filter> filter{
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<std::uint32_t>(offsetof(seccomp_data, nr)))};
    for (const long number : {SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_pidfd_getfd, SYS_kcmp}) {
        const auto rule = refuse(static_cast<std::uint32_t>(number));
        filter.insert(filter.end(), rule.begin(), rule.end());
    }
    filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
    const sock_fprog program{.len = static_cast<unsigned short>(filter.size()), .filter = filter.data()};
    if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return system_text("PR_SET_NO_NEW_PRIVS");
    if (::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) return system_text("seccomp");
    char byte = 0;
    const iovec own{.iov_base = &byte, .iov_len = 1};
    const bool refused = ::process_vm_readv(::getpid(), &own, 1, &own, 1, 0) == -1 && errno == EPERM;
    return refused ? "" : "process_vm_readv is not refused";
}

/// Sums 100 MB in the arena, and as many elsewhere.
std::string reduce_large(Context& context) {
    const int ranks = context.world().size();
    const auto sum = static_cast<float>(ranks * (ranks + 1) / 2);
    auto* const owned = static_cast<float*>(context.world().arena().allocate(kLargeCount * sizeof(float)));
    std::vector<float> foreign(kLargeCount);
    for (float* const data : {owned, foreign.data()}) {
        std::fill_n(data, kLargeCount, static_cast<float>(context.rank() + 1));
        context.world().all_reduce({data, kLargeCount, DType::F32}, ReduceOp::Sum).wait();
        if (std::count(data, data + kLargeCount, sum) != static_cast<std::ptrdiff_t>(kLargeCount)) return "wrong sums";
    }
    return "right";
}

/// Returns the output of the ranks, or why they could not be confined: "refused: …".
std::string run_confined() {
    std::string words = shrink_shared_memory();
    if (words.empty()) words = forbid_ptrace();
    if (!words.empty()) return "refused: " + words;
    const LocalWorld world{.ranks_per_node = {4}};
    Processes ranks(world, reduce_large);
    for (std::size_t rank = 0; rank < 4; ++rank) words += ranks.words(rank) + ";";
    return words;
}

}  // namespace

TEST_CASE("large sums need neither a large /dev/shm nor ptrace", "[native][unit]") {
    const TemporaryDirectory directory;
    const auto file = directory.path() / "words";
    const pid_t pid = ::fork();
    if (pid == 0) {
        write_file(file, run_confined());
        ::_exit(0);
    }
    ::waitpid(pid, nullptr, 0);
    const std::string words = read_file(file);
    if (words.starts_with("refused: ")) {
        WARN("SKIPPED: this process may not confine itself: " << words.substr(9));
        return;
    }
    CHECK(words == "right;right;right;right;");
}
