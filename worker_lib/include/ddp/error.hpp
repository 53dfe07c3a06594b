#pragma once
// What the worker library throws: one base class, a code to branch on, and who is to blame as far as it is known.

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace ddp {

enum class ErrorCode {
    InvalidArgument,  ///< the call itself is wrong; the group stays usable
    Environment,      ///< RANK, WORLD_SIZE, … missing or contradictory
    Mismatch,         ///< the ranks called different operations
    Timeout,          ///< a deadline passed; the group is unusable
    PeerLost,         ///< a peer's process or connection is gone; the group is unusable
    Aborted,          ///< abort() was called, here or on a peer
    Unavailable,      ///< no such backend or device here
    Io,               ///< a checkpoint or data file
    System,           ///< the operating system refused something
};

class Error : public std::runtime_error {
public:
    Error(ErrorCode code, const std::string& text, std::vector<int> culprits = {})
        : std::runtime_error(text), code_(code), culprits_(std::move(culprits)) {}

    [[nodiscard]] ErrorCode code() const noexcept { return code_; }
    /// Ranks of the group that the error is about; empty when unknown.
    [[nodiscard]] const std::vector<int>& culprits() const noexcept { return culprits_; }

private:
    ErrorCode code_;
    std::vector<int> culprits_;
};

}  // namespace ddp
