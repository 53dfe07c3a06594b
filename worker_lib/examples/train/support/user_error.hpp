#pragma once
// UserError: an error that the user can correct, in options or data.

#include <sstream>
#include <stdexcept>
#include <string>

#include "ddp/ddp.hpp"

namespace train {

/// Thrown on all ranks, with a text on the one that reports it and without one on the others; or by one rank alone,
/// with a text, while the others go on. main() passes it to ddp::fail().
struct UserError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// Returns all parts as one text, each as std::cout shows it.
template <typename... Parts>
std::string concat(const Parts&... parts) {
    std::ostringstream text;
    (text << ... << parts);
    return text.str();
}

/// Throws UserError on all ranks if one of them has a problem: with its text on the lowest such rank, which reports it.
/// Collective.
inline void fail_together(const std::string& problem, ddp::Context& context) {
    int reporter = problem.empty() ? context.world_size() : context.rank();
    context.world().all_reduce(reporter, ddp::ReduceOp::Min).wait();
    if (reporter < context.world_size()) throw UserError(reporter == context.rank() ? problem : "");
}

}  // namespace train
