#pragma once
// The check of one job, from the facts of each node to the verdict.

#include <string>

#include "ddp/context.hpp"

namespace ddp::check {

/// The result on rank 0; the other ranks know `ok` alone.
struct Report {
    std::string table;
    std::string verdict;
    std::string json;
    bool ok = true;  ///< there are no findings; the same on all ranks
};

/// Collects, measures and compares. Collective over the world. Throws as its operations do.
[[nodiscard]] Report check_job(Context& context);

}  // namespace ddp::check
