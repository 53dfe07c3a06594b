#pragma once
// exchange(): an all-gather through the store, which works before the members of a group are connected.

#include <string>
#include <string_view>
#include <vector>

#include "worker_lib/src/bootstrap/group_spec.hpp"
#include "worker_lib/src/bootstrap/peer_states.hpp"

namespace ddp::detail {

/// Returns the store key `name` of this group in this generation and in a world of this size. The key contains the size
/// because torchrun, when nodes join or are lost, restarts all workers with another size but the same restart count,
/// and some ranks are then new to the store.
[[nodiscard]] std::string group_key(const GroupSpec& spec, std::string_view name);

/// Publishes `value` under `topic` for the ranks that call exchange(), without waiting for them.
void publish(const GroupSpec& spec, std::string_view topic, std::string_view value);

/// Publishes `value` under `topic` (once per topic and group) and returns the values of all ranks, by rank. Waits
/// spec.init_timeout at most. Throws Error{Timeout} naming the ranks that did not publish.
/// backend   of a group that is connected already and whose ranks make a call together. Then throws Error{PeerLost} as
///           soon as one of them knows that another is lost, and Error{Aborted} when the group is aborted
/// call      the call that absent ranks did not make, for errors: "split 'evaluation'". A rank that arrives after
///           another one has given up gets an error at once. Empty: the ranks publish their addresses
[[nodiscard]] std::vector<std::string> exchange(const GroupSpec& spec, std::string_view topic, std::string_view value,
                                                const PeerStates* backend = nullptr, std::string_view call = {});

/// Throws the timeout of exchange().
/// wanted   the action that the absent ranks did not take: "join. Did they start?"
[[noreturn]] void report_absent(const GroupSpec& spec, const std::vector<int>& absent, std::string_view wanted);

/// Throws Error{Aborted} if the group has been aborted, here or by a peer. `call` names the refused call.
void refuse_if_aborted(const GroupSpec& spec, const PeerStates& backend, std::string_view call);

}  // namespace ddp::detail
