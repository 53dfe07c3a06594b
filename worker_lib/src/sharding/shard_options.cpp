#include "worker_lib/src/sharding/shard_options.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <map>
#include <string>
#include <string_view>

#include "worker_lib/src/group/agreement.hpp"
#include "worker_lib/src/group/group_impl.hpp"
#include "worker_lib/src/reducer/refuse.hpp"

namespace ddp::detail {
namespace {

using Units = std::vector<std::vector<ParamSpec>>;

constexpr std::size_t kMaxElements = std::size_t{1} << 48;  // of a unit: no size overflows
constexpr int kMaxPrefetch = 1000;                          // more would be a mistake

/// Returns all on which a rank's operations depend.
std::vector<std::string> describe(const Units& units, const ShardOptions& options) {
    const DType main = units.empty() || units[0].empty() ? DType::F32 : units[0][0].dtype;
    const auto name = [&](const std::optional<DType>& type) { return to_string(type.value_or(main)); };
    std::vector<std::string> items;
    items.push_back(fmt::format("Sharding::{}, {} replicas, parameters of {}, gradients of {}, prefetch {}, {}",
                                name_of(options.sharding), options.replicas == nullptr ? 0 : options.replicas->size(),
                                name(options.param_dtype), name(options.reduce_dtype), options.prefetch,
                                options.mapped ? "mapped" : "copied"));
    for (std::size_t u = 0; u < units.size(); ++u) {
        for (std::size_t i = 0; i < units[u].size(); ++i) {
            const ParamSpec& spec = units[u][i];
            items.push_back(
                fmt::format("unit {}, parameter {} '{}' {}[{}]", u, i, spec.name, to_string(spec.dtype), spec.count));
        }
    }
    return items;
}

void check_option(std::string_view name, const std::optional<DType>& type, DType main) {
    if (!type || *type == main) return;
    if (main == DType::F32 && (*type == DType::F16 || *type == DType::BF16)) return;
    refuse(fmt::format("ShardOptions::{} is {}, but the parameters are {}: expected that type{}", name,
                       to_string(*type), to_string(main), main == DType::F32 ? ", bf16 or f16" : ""));
}

void check_units(const Units& units) {
    std::map<std::string_view, std::size_t> unit_of;
    if (units.empty()) refuse("there are no units. Pass at least one, with its parameters");
    for (std::size_t u = 0; u < units.size(); ++u) {
        std::size_t elements = 0;  // an empty unit 0 is refused before units[0][0] is read
        for (const ParamSpec& spec : units[u]) {
            if (spec.dtype != units[0][0].dtype)
                refuse(fmt::format("parameter '{}' of unit {} is {}, but '{}' is {}. All parameters need one type",
                                   spec.name, u, to_string(spec.dtype), units[0][0].name,
                                   to_string(units[0][0].dtype)));
            const auto [first, is_new] = unit_of.emplace(spec.name, u);
            if (!is_new && !spec.name.empty())
                refuse(
                    fmt::format("parameter '{}' is in unit {} and in unit {}. Put layers that share a parameter into "
                                "one unit, and list it once",
                                spec.name, first->second, u));
            if (spec.count > kMaxElements || (elements += spec.count) > kMaxElements)
                refuse(fmt::format("parameter '{}' of unit {} has {} elements: more than memory can hold", spec.name, u,
                                   spec.count));
        }
        if (elements == 0) refuse(fmt::format("unit {} has no elements. Leave it out", u));
    }
    const DType main = units[0][0].dtype;
    if (main != DType::F32 && main != DType::F64)
        refuse(
            fmt::format("the parameters are {}. Make them f32 or f64, and set ShardOptions::param_dtype to compute "
                        "in {}",
                        to_string(main), to_string(main)));
}

void check_replicas(ProcessGroup& group, const ShardOptions& options) {
    if (options.replicas == nullptr) return;
    if (options.sharding == Sharding::None)
        refuse(
            "ShardOptions::replicas is set with Sharding::None, where all ranks of the group are replicas. Pass "
            "the group of all ranks, and no replicas");
    const std::vector<int>& own = GroupImpl::of(group).spec().members;
    const std::vector<int>& others = GroupImpl::of(*options.replicas).spec().members;
    const auto common =
        std::ranges::count_if(own, [&](int rank) { return std::ranges::find(others, rank) != others.end(); });
    if (common != 1)
        refuse(
            fmt::format("the group and ShardOptions::replicas have {} ranks in common, not this one alone. Make "
                        "them from the two dimensions of a Mesh",
                        common));
}

ShardTypes checked_types(ProcessGroup& group, const Units& units, const ShardOptions& options) {
    for (ProcessGroup* const used : {&group, options.replicas}) {
        if (used == nullptr || used->backend() == Backend::Native) continue;
        refuse("ShardedParameters takes host memory, but group '" + used->name() +
               "' is on NCCL. Make the Context with Backend::Native, or use GradientReducer");
    }
    check_units(units);
    const DType main = units[0][0].dtype;
    check_option("param_dtype", options.param_dtype, main);
    check_option("reduce_dtype", options.reduce_dtype, main);
    if (options.prefetch < 0 || options.prefetch > kMaxPrefetch)
        refuse(fmt::format("ShardOptions::prefetch is {}: expected 0 to {}", options.prefetch, kMaxPrefetch));
    check_replicas(group, options);
    return {main, options.param_dtype.value_or(main), options.reduce_dtype.value_or(main)};
}

}  // namespace

std::string_view name_of(Sharding sharding) {
    switch (sharding) {
        case Sharding::Full: return "Full";
        case Sharding::GradOp: return "GradOp";
        case Sharding::Optimizer: return "Optimizer";
        case Sharding::None: return "None";
    }
    return "?";
}

ShardTypes agree_on_units(ProcessGroup& group, const Units& units, const ShardOptions& options) {
    constexpr std::string_view kWhat = "the units or the options of a ShardedParameters";
    std::vector<std::string> items = describe(units, options);
    ShardTypes types;
    std::exception_ptr refusal;
    // An error that only this rank has found, or only its group, goes to the others by the next comparison, else they
    // would wait for this rank.
    const auto check = [&](const auto& action) {
        try {
            action();
        } catch (const Error& error) {
            // The text of a disagreement names ranks of that group, which are not those of the next comparison.
            const bool disagrees = error.code() == ErrorCode::Mismatch;
            items.insert(items.begin(),
                         disagrees ? fmt::format("ranks of its group '{}' differ, see their error", group.name())
                                   : error.what());
            if (!refusal) refusal = std::current_exception();
        }
    };
    check([&] { types = checked_types(group, units, options); });
    check([&] { require_agreement(group, kWhat, items); });
    if (options.replicas != nullptr && options.replicas != &group) {
        items.push_back(fmt::format("part {} of {}", group.rank(), group.size()));
        check([&] {
            require_agreement(*options.replicas, kWhat, items,
                              "Replicas are the ranks with the same rank in groups of one size: the two dimensions of "
                              "a Mesh, for example.");
        });
    }
    if (refusal) std::rethrow_exception(refusal);
    return types;
}

}  // namespace ddp::detail
