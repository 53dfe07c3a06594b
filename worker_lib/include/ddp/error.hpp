#pragma once
// Error: the base class of all exceptions of the worker library. It has a code to branch on, and the culprits if known.

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "ddp/export.hpp"

namespace DDP_EXPORT ddp {

/// The kind of an Error.
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
    Superseded,       ///< a newer generation of the job, or another job, has taken over the checkpoint directory
};

/// Returns the code's name: "InvalidArgument".
[[nodiscard]] std::string_view to_string(ErrorCode code);

/// An error, with the group and the operation that failed, if there was one. A plain value, cheap to copy.
class Error : public std::runtime_error {
public:
    /// Makes what() one line: control characters in `text`, which may come from labels and names, become `\xHH`.
    Error(ErrorCode code, const std::string& text, std::vector<int> culprits = {});
    /// Copies; there is no move, so that an error that was moved from has a code, too.
    Error(const Error&) noexcept = default;
    /// Copies.
    Error& operator=(const Error&) noexcept = default;
    ~Error() override = default;

    /// Returns the kind of the error, to branch on.
    [[nodiscard]] ErrorCode code() const noexcept { return details_->code; }
    /// Returns the ranks of the group that the error is about; empty when unknown. The culprits of PeerLost and Timeout
    /// can be excluded by ProcessGroup::shrink(). A Mismatch is a bug in the program, which a smaller group has, too:
    /// do not exclude its culprits. They are the ranks that most others contradict, and the text quotes both sides. The
    /// exception is a Mismatch of shrink() itself: its culprits are all ranks that one of two survivors excludes, and
    /// both have to exclude them.
    [[nodiscard]] const std::vector<int>& culprits() const noexcept { return details_->culprits; }
    /// Returns the group's name; empty if the error is of no operation, for example while a group is being made.
    [[nodiscard]] const std::string& group() const noexcept { return details_->group; }
    /// Returns the operation that ended with this error or was refused at the call: "#183 all_reduce sum f32[6572160]
    /// 'bucket 3'" is number 183 of its group. Empty if there was none.
    [[nodiscard]] const std::string& operation() const noexcept { return details_->operation; }
    /// Returns the number of that operation in its group; 0 if there was none.
    [[nodiscard]] std::uint64_t seq() const noexcept { return details_->seq; }

    /// Returns the same error with an operation. Only the library calls it.
    [[nodiscard]] Error in(std::string group, std::string operation, std::uint64_t seq) const;

    /// Returns whether another rank failed before this one: it was lost, or it reported this error. The loss of the
    /// store names no rank. For the library.
    [[nodiscard]] bool peer_failed() const noexcept {
        const Details& details = *details_;
        return details.reported || (details.code == ErrorCode::PeerLost && !details.culprits.empty());
    }
    /// Returns the same error as one that another rank has reported. For the library.
    [[nodiscard]] Error reported() const;
    /// Returns the same error with another text, and without an operation. For the library.
    [[nodiscard]] Error reworded(const std::string& text) const;

private:
    struct Details {
        ErrorCode code;
        std::vector<int> culprits;
        std::string group;
        std::string operation;
        std::uint64_t seq = 0;
        bool reported = false;
    };

    Error(const std::runtime_error& text, Details details);

    std::shared_ptr<const Details> details_;
};

}  // namespace ddp
