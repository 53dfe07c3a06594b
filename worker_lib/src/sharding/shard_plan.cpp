#include "worker_lib/src/sharding/shard_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace ddp {
namespace {

constexpr std::size_t kGradBlocks = 2;  // those of UnitReductions

/// Returns "1.5 MB", for example.
std::string size_text(std::size_t bytes) {
    if (bytes < 1000) return fmt::format("{} B", bytes);
    auto size = static_cast<double>(bytes) / 1000;
    std::string_view unit = "kB";
    for (const std::string_view larger : {"MB", "GB", "TB"}) {
        if (size < 1000) break;
        size /= 1000;
        unit = larger;
    }
    return fmt::format("{:.1f} {}", size, unit);
}

}  // namespace

ShardPlan detail::plan_memory(const ShardLayout& layout, const std::vector<std::vector<ParamSpec>>& units,
                              const ShardTypes& types, const ShardOptions& options, bool mapped) {
    const Sharding sharding = options.sharding;
    ShardPlan plan{.sharding = sharding,
                   .ranks = layout.ranks,
                   .units = {},
                   .mapped = mapped,
                   .params_stay = mapped || sharding != Sharding::Full,
                   .grads_stay = sharding == Sharding::Optimizer || sharding == Sharding::None};
    const std::size_t main = size_of(types.main);
    const std::size_t gathered = size_of(types.gathered);
    std::size_t whole = 0;
    for (std::size_t u = 0; u < units.size(); ++u) {
        std::size_t elements = 0;
        for (const ParamSpec& spec : units[u]) elements += spec.count;
        plan.units.push_back({units[u].front().name, units[u].size(), elements, layout.units[u].part * main,
                              layout.whole(u) * gathered});
        if (plan.units[u].whole_bytes > plan.units[plan.largest].whole_bytes) plan.largest = u;
        whole += layout.whole(u);
    }
    const bool converts = types.main != types.gathered;
    const auto blocks = [&](std::size_t wanted) { return std::min(wanted, units.size()) * layout.largest_unit(); };
    const std::size_t ahead = static_cast<std::size_t>(options.prefetch) + 1;
    const bool apart = mapped || !plan.params_stay;  // else a part lies inside its whole unit
    if (converts || apart) plan.parts = layout.parts() * main;
    if (converts && apart) plan.parts += layout.parts() * gathered;
    plan.grad_parts = plan.array = layout.parts() * main;
    if (!mapped) plan.whole_params = (plan.params_stay ? whole : blocks(ahead)) * gathered;
    plan.whole_grads = (plan.grads_stay ? whole : blocks(kGradBlocks)) * size_of(types.reduced);
    return plan;
}

std::string to_string(const ShardPlan& plan) {
    std::string text = fmt::format("{} unit{}, divided among {} rank{} (Sharding::{})\n", plan.units.size(),
                                   plan.units.size() == 1 ? "" : "s", plan.ranks, plan.ranks == 1 ? "" : "s",
                                   detail::name_of(plan.sharding));
    text += fmt::format("{:>6}  {:<24} {:>7} {:>14} {:>10} {:>10}\n", "unit", "first parameter", "params", "elements",
                        "part", "whole");
    for (std::size_t u = 0; u < plan.units.size(); ++u) {
        const ShardPlan::Unit& unit = plan.units[u];
        text += fmt::format("{:>6}  {:<24} {:>7} {:>14} {:>10} {:>10}{}\n", u, unit.name, unit.params, unit.elements,
                            size_text(unit.part_bytes), size_text(unit.whole_bytes),
                            u == plan.largest ? "  the largest" : "");
    }
    const auto row = [&](std::string_view name, std::size_t bytes, std::string_view note) {
        text += fmt::format("  {:<24} {:>10}{}{}\n", name, size_text(bytes), note.empty() ? "" : "  ", note);
    };
    text += "each rank needs\n";
    row("parts of parameters", plan.parts, plan.parts == 0 ? "inside whole parameters" : "");
    row("parts of gradients", plan.grad_parts, "");
    row("whole parameters", plan.whole_params,
        plan.mapped        ? "mapped: the pages of all ranks' parts"
        : plan.params_stay ? "all units"
                           : "a few units at a time");
    row("whole gradients", plan.whole_grads, plan.grads_stay ? "all units" : "two units at a time");
    row("together", plan.total(), "");
    row("an array of an optimiser", plan.array, "");
    return text;
}

}  // namespace ddp
