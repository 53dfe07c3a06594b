#include "ddp/error.hpp"

#include "common/escape.hpp"

namespace ddp {

/// Names, tags and reasons in it are the program's, and of peers.
Error::Error(ErrorCode code, const std::string& text, std::vector<int> culprits)
    : std::runtime_error(ddprun::escape_controls(text)), code_(code), culprits_(std::move(culprits)) {}

}  // namespace ddp
