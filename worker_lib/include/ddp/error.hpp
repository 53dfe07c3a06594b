#pragma once
// What the worker library throws: one base class, a code to branch on, and who is to blame as far as it is known.

#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace ddp {

enum class ErrorCode {
    InvalidArgument,  ///< the call itself is wrong; the group stays usable
    Environment,      ///< RANK, WORLD_SIZE, … missing or contradictory
    Mismatch,         ///< the ranks called different operations, or with different values: a bug in the program
    Timeout,          ///< a deadline passed; the group is unusable
    PeerLost,         ///< a peer's process or connection is gone; the group is unusable
    Aborted,          ///< abort() was called, here or on a peer
    Unavailable,      ///< no such backend or device here
    Io,               ///< a checkpoint or data file
    System,           ///< the operating system refused something
};

class Error : public std::runtime_error {
public:
    /// what() is one line: control characters of `text`, which may come from tags and names, are shown as \xHH.
    Error(ErrorCode code, const std::string& text, std::vector<int> culprits = {});

    [[nodiscard]] ErrorCode code() const noexcept { return code_; }
    /// Ranks of the group that the error is about; empty when unknown. Those of PeerLost and Timeout can be excluded by
    /// ProcessGroup::shrink(). A Mismatch is a bug in the program, which a smaller group has, too: its text quotes both
    /// sides, and its culprits are those whom most others contradict, where that is known. Do not exclude them; but
    /// those of a shrink() whose survivors disagree are all whom one of two survivors excludes: to be excluded by both.
    [[nodiscard]] const std::vector<int>& culprits() const noexcept { return culprits_; }
    /// The operation that it has ended, or refused at the call, and the group's name: "#183 all_reduce sum f32[6572160]
    /// 'bucket 3'", which is number 183 there. Empty, and 0, where it was none: while a group is made, say.
    [[nodiscard]] const std::string& group() const noexcept { return group_; }
    [[nodiscard]] const std::string& operation() const noexcept { return operation_; }
    [[nodiscard]] std::uint64_t seq() const noexcept { return seq_; }

    /// The same error with an operation. For the library.
    [[nodiscard]] Error in(std::string group, std::string operation, std::uint64_t seq) const {
        Error error = *this;
        error.group_ = std::move(group);
        error.operation_ = std::move(operation);
        error.seq_ = seq;
        return error;
    }

private:
    ErrorCode code_;
    std::vector<int> culprits_;
    std::string group_;
    std::string operation_;
    std::uint64_t seq_ = 0;
};

}  // namespace ddp
