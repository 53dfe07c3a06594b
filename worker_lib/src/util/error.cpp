#include "worker_lib/src/util/error.hpp"

#include "common/text/escape.hpp"

namespace ddp {

/// Escapes control characters: the text contains names, tags and reasons of the program and of peers.
Error::Error(ErrorCode code, const std::string& text, std::vector<int> culprits)
    : std::runtime_error(ddprun::escape_controls(text)), code_(code), culprits_(std::move(culprits)) {}

}  // namespace ddp
