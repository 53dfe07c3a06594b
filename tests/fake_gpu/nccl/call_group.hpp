#pragma once
// CallGroup: the calls of one thread between ncclGroupStart and ncclGroupEnd. They are launched together, or none of
// them if one is refused.

#include <vector>

#include "tests/fake_gpu/nccl/communicator.hpp"

namespace ddp::fake_nccl {

class CallGroup {
public:
    [[nodiscard]] static CallGroup& of_thread();
    CallGroup() = default;
    /// Reports a misuse if the group is open: at the end of its thread.
    ~CallGroup();
    CallGroup(const CallGroup&) = delete;
    CallGroup& operator=(const CallGroup&) = delete;

    void start() { ++depth_; }
    [[nodiscard]] ncclResult_t end();
    /// Launches a call, or adds it to the open group.
    [[nodiscard]] ncclResult_t add(Communicator& communicator, const Call& call, CUstream stream);
    /// Leaves a group open that the program has not started, as an init of NCCL 2.26 and newer does that fails. All
    /// later calls of the thread go into it.
    void leave_open() {
        ++depth_;
        left_open_ = true;
    }

private:
    [[nodiscard]] ncclResult_t launch();
    [[nodiscard]] std::string complaint(const Communicator& communicator, CUstream stream) const;

    int depth_ = 0;
    bool left_open_ = false;
    ncclResult_t refused_ = ncclSuccess;
    Communicator* communicator_ = nullptr;  // of all calls
    CUstream stream_ = nullptr;
    std::vector<Call> calls_;
};

}  // namespace ddp::fake_nccl
