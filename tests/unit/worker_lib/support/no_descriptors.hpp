#pragma once
// NoDescriptorsLeft, for tests of what happens at the limit of open files.

#include <sys/resource.h>
#include <unistd.h>

#include "common/system/unique_fd.hpp"

namespace ddp::testing {

/// During its lifetime this process cannot open any descriptor.
class NoDescriptorsLeft {
public:
    NoDescriptorsLeft() {
        ::getrlimit(RLIMIT_NOFILE, &before_);
        const ddprun::UniqueFd lowest(::dup(0));
        const rlimit now{.rlim_cur = static_cast<rlim_t>(lowest.get()), .rlim_max = before_.rlim_max};
        ::setrlimit(RLIMIT_NOFILE, &now);
    }
    ~NoDescriptorsLeft() { ::setrlimit(RLIMIT_NOFILE, &before_); }
    NoDescriptorsLeft(const NoDescriptorsLeft&) = delete;
    NoDescriptorsLeft& operator=(const NoDescriptorsLeft&) = delete;

private:
    rlimit before_{};
};

}  // namespace ddp::testing
