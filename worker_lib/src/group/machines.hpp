#pragma once
// machines_of(): on which machine each rank of a group is.

#include <string>
#include <string_view>
#include <vector>

#include "worker_lib/src/bootstrap/group_spec.hpp"
#include "worker_lib/src/group/group_impl.hpp"

namespace ddp::detail {

/// Returns an id of each rank's machine, by rank: emulated nodes are machines of their own. Collective, once per group.
/// Throws as ProcessGroup::split().
/// call   the call that absent ranks have not made, for errors
[[nodiscard]] inline std::vector<std::string> machines_of(ProcessGroup& group, std::string_view call) {
    GroupImpl& impl = GroupImpl::of(group);
    return impl.exchange_with_all("machine", machine_of(impl.spec()), call);
}

}  // namespace ddp::detail
