#include "launcher/host/placement.hpp"

#include <fmt/format.h>

namespace ddprun::launcher {
namespace {

constexpr std::uint16_t kDefaultPort = 29400;        // torchrun's, for an endpoint
constexpr std::uint16_t kDefaultMasterPort = 29500;  // torchrun's, for --master-addr
const std::string kLoopback = "127.0.0.1";

using Part = Placement::Part;

/// The endpoint that the user named, and the option that named it.
struct Named {
    Endpoint endpoint;
    std::string by;
    bool is_master = false;      ///< it is MASTER_ADDR and MASTER_PORT, too
    bool static_rank_0 = false;  ///< --node-rank 0 beside --master-addr, which in torchrun names the hosting node
};

std::optional<Named> named_endpoint(const Options& options) {
    if (options.rdzv_endpoint) return Named{*options.rdzv_endpoint, "--rdzv-endpoint", names_static_master(options)};
    if (options.master_addr || options.master_port) {
        return Named{{options.master_addr.value_or(kLoopback), options.master_port.value_or(kDefaultMasterPort)},
                     options.master_addr ? "--master-addr" : "--master-port",
                     true,
                     options.node_rank == 0};
    }
    return std::nullopt;
}

Result<Placement> endpoint_at(const Named& named, const Options& options, const AddressHere& address_here) {
    const bool is_elsewhere = options.rdzv_conf.is_host == false;  // no lookup, which may take long, for nothing
    const auto here = is_elsewhere ? std::nullopt : address_here(named.endpoint.host);
    const bool hosts = options.rdzv_conf.is_host.value_or(here.has_value() || named.static_rank_0);
    if (named.endpoint.port == 0 && (options.nodes.max > 1 || !hosts)) {
        return Error{Errc::kUsage,
                     fmt::format("{} {}: port 0 (any free one) needs a job of one node whose daemon runs on this "
                                 "machine: other nodes cannot know the port. Name a port.",
                                 named.by, to_string(named.endpoint))};
    }
    if (!hosts)
        return Placement{Part::kJoin, named.endpoint,
                         is_elsewhere ? "is_host=0" : fmt::format("{} is another host", named.endpoint.host)};
    if (here)
        return Placement{
            Part::kHost, {*here, named.endpoint.port}, fmt::format("{} is this host", named.endpoint.host)};
    // This node is to host at an address that no interface here has (a service address, NAT): bind all interfaces.
    const std::string wildcard = named.endpoint.host.find(':') == std::string::npos ? "0.0.0.0" : "::";
    return Placement{Part::kHost,
                     {wildcard, named.endpoint.port},
                     fmt::format("{}, and {} is not an address of this host",
                                 options.rdzv_conf.is_host ? "is_host" : "node rank 0", named.endpoint.host)};
}

/// The first host of the allocation hosts the daemon. If no host is named, the nodes meet.
Placement place_in(const Allocation& allocation, const AddressHere& address_here) {
    if (allocation.hosts.empty()) return {Part::kMeet, {"", 0}, allocation.title};
    std::vector<std::uint16_t> ports = ports_of_step(allocation.name);
    Endpoint endpoint{allocation.hosts.front(), ports.front()};
    std::string reason = fmt::format("node {} of {}", allocation.node, allocation.title);
    if (allocation.node > 0) return {Part::kJoin, std::move(endpoint), std::move(reason), {}, std::move(ports)};
    endpoint.host = address_here(endpoint.host).value_or("0.0.0.0");
    return {Part::kHost, std::move(endpoint), std::move(reason), {}, std::move(ports)};
}

Result<Placement> place_at(const Named& named, const Options& options, const AddressHere& address_here) {
    Result<Placement> placement = endpoint_at(named, options, address_here);
    if (placement && named.is_master && named.endpoint.port != 0) placement->master = named.endpoint;
    return placement;
}

}  // namespace

Result<Placement> place(const Options& options, const AddressHere& address_here) {
    if (options.as_local_node) return Placement{Part::kJoin, options.as_local_node->endpoint, "an emulated node"};
    if (options.local_nodes) return Placement{Part::kEmulate, {kLoopback, 0}, "--local-nodes"};
    if (options.standalone) return Placement{Part::kAlone, {kLoopback, 0}, "--standalone"};
    if (uses_etcd(options) || options.rdzv_dir) {  // on a free port, unless the user needs a certain one
        return Placement{
            Part::kMeet, {"", options.master_port.value_or(0)}, uses_etcd(options) ? "etcd" : "--rdzv-dir"};
    }
    if (const auto named = named_endpoint(options)) return place_at(*named, options, address_here);
    if (options.nodes.max == 1) return Placement{Part::kAlone, {kLoopback, 0}, "one node"};
    if (options.allocation) return place_in(*options.allocation, address_here);
    const Named localhost{{"localhost", kDefaultPort}, "the default endpoint"};
    return place_at(localhost, options, address_here);
}

}  // namespace ddprun::launcher
