#pragma once
// StoreClients: passes the TCPStore clients of the control port to the store of the current generation, and keeps out
// those of older ones (docs/design/017-store-at-the-named-port.md). Owned by Sessions, on the io_context's one thread.

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/coordinator/state.hpp"
#include "rendezvous/daemon/control_port.hpp"
#include "rendezvous/daemon/stores.hpp"

namespace ddprun::daemon {

/// The numeric addresses from which agents have connected.
using Origins = std::map<protocol::NodeId, std::string>;

/// Returns whether a client from `address` may be a worker of an older generation: a lost node that may still have
/// processes has connected from there, and no member of the current generation has.
[[nodiscard]] bool may_be_outdated(const coordinator::State& job, const Origins& origins, const std::string& address);

class StoreClients {
public:
    /// Takes a client of another host, which the agent of `node` there vouches for.
    using Hold = std::function<void(UniqueFd socket, Generation generation, const protocol::NodeId& node)>;

    /// `stores` outlives this object. `members_only`: of other hosts, those of the group's members alone are served,
    /// which go to `hold` first; empty: they are served at once.
    StoreClients(GenerationStores& stores, bool members_only, Hold hold = {})
        : stores_(stores), members_only_(members_only), hold_(std::move(hold)) {}

    [[nodiscard]] bool members_only() const { return members_only_; }
    /// Returns whether the agent of a member of the newest group has connected from `address`.
    [[nodiscard]] bool is_of_member(const coordinator::State& job, const std::string& address);
    /// Gives a client from `address` of another host to the Hold function, or closes it without one there.
    void hold(UniqueFd socket, Generation generation, const std::string& address, const coordinator::State& job);
    /// Notes the address from which the agent of `node` has connected.
    void note_origin(const coordinator::State& job, const protocol::NodeId& node, std::string address);
    /// Returns the generation to which a connection belongs that is accepted now.
    [[nodiscard]] std::optional<Generation> current() const { return stores_.current(); }
    /// Passes the client on to the store of `generation`, in which it was accepted. Returns empty, or the reason why
    /// its connection was closed.
    [[nodiscard]] std::string pass_on(StoreClient client, std::optional<Generation> generation,
                                      const std::string& address, const coordinator::State& job);

private:
    GenerationStores& stores_;
    bool members_only_;
    Origins origins_;
    Hold hold_;
    Generation members_of_{0};                                        ///< the group of `members_`; 0: not known
    std::map<std::string, std::vector<protocol::NodeId>> members_{};  ///< by numeric address
};

}  // namespace ddprun::daemon
