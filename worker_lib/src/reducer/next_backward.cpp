#include "worker_lib/src/reducer/next_backward.hpp"

#include <string>

#include "worker_lib/src/reducer/refuse.hpp"

namespace ddp::detail {
namespace {

std::string with_or_without(bool sync) { return sync ? "with sync" : "without sync"; }

}  // namespace

void NextBackward::check(bool sync) const {
    switch (expected_) {
        case Expected::kAny: return;
        case Expected::kUnannounced:
            refuse(
                "begin_backward: Join::more() was not called before it. Call it before each backward, as ranks "
                "without batches make one for each call");
        case Expected::kNone:
            refuse(
                "begin_backward: Join::more() has returned false, as no rank has a batch left. Leave the loop then; "
                "for backwards outside of it end the Join's life first");
        case Expected::kSync:
        case Expected::kNoSync: break;
    }
    if ((expected_ == Expected::kSync) == sync) return;
    refuse("begin_backward: this is a backward " + with_or_without(sync) + ", but Join::more() announced one " +
           with_or_without(!sync) +
           ", which ranks without batches make. Pass more() as JoinStep::sync whether the next backward synchronises; "
           "one under a "
           "no_sync() guard does not");
}

}  // namespace ddp::detail
