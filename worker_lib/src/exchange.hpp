#pragma once
// exchange(): what the members of a group tell each other through the store before they are connected.

#include <string>
#include <string_view>
#include <vector>

#include "worker_lib/src/backend.hpp"

namespace ddp::detail {

/// The store key `name` of this group in this generation, and in a world of this size: when nodes come or go torchrun
/// starts all workers anew, with another size but the same restart count, and some ranks are new to the store.
[[nodiscard]] std::string group_key(const GroupSpec& spec, std::string_view name);

/// Publishes `value` under `topic` for those who exchange(), without waiting for anybody.
void publish(const GroupSpec& spec, std::string_view topic, std::string_view value);

/// Publishes `value` under `topic` (once per topic and group) and returns everybody's, by rank. Waits spec.init_timeout
/// at most. Throws Error{Timeout} that names all ranks that did not publish.
/// backend   of a group that is connected already, whose ranks make a call together: then Error{PeerLost} as soon as
///           one of them knows of a rank that will never come, and Error{Aborted} when the group is aborted
/// call      "split 'evaluation'": what errors say that the absent did not call, and who comes after one has given up
///           gets such an error at once; empty: say where they are
[[nodiscard]] std::vector<std::string> exchange(const GroupSpec& spec, std::string_view topic, std::string_view value,
                                                const BackendImpl* backend = nullptr, std::string_view call = {});

/// Throws what exchange() does when its time is over.
/// wanted   what the absent did not do: "join. Did they start?"
[[noreturn]] void report_absent(const GroupSpec& spec, const std::vector<int>& absent, std::string_view wanted);

/// Throws Error{Aborted} if the group has been aborted, here or by a peer. `call` cannot run then.
void refuse_if_aborted(const GroupSpec& spec, const BackendImpl& backend, std::string_view call);

/// With their places, unless nobody knows them: "ranks 1 and 3", "rank 1 (host a, pid 71) and rank 3 (host b, pid 5)".
[[nodiscard]] std::string name_ranks(const GroupSpec& spec, const std::vector<int>& ranks);
/// "rank 3", "ranks 1, 2 and 7".
[[nodiscard]] std::string name_ranks(const std::vector<int>& ranks);

/// `text` with a full stop behind it, unless it ends a sentence itself: more may follow.
[[nodiscard]] std::string sentence(std::string_view text);

/// "a", "a and b", "a, b and c"; of many names the first `most`, "and 12 more": texts of failures are cut at 1 KiB.
[[nodiscard]] std::string list_of(std::vector<std::string> names, std::size_t most = 8);

}  // namespace ddp::detail
