#include "train/user_error.hpp"

#include <cstdint>

#include "ddp/ddp.hpp"

namespace train {

void leave_together_if(ddp::Context& context, const std::string& problem) {
    std::int32_t reporter = problem.empty() ? context.world_size() : context.rank();
    context.world().all_reduce(reporter, ddp::ReduceOp::Min, {.label = "problems"}).wait();
    if (reporter == context.world_size()) return;
    throw UserError(reporter == context.rank() ? problem : "");
}

}  // namespace train
