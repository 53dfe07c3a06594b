#include "worker_lib/check/usable_gpus.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

#include "common/text/number.hpp"

namespace ddp::check {
namespace {

constexpr std::string_view kNoneOfSlurm = "NoDevFiles";  // SLURM's list for a step without GPUs
constexpr std::string_view kEnd = "-1";                  // ends a list on purpose

std::string_view without_blanks(std::string_view text) {
    while (text.starts_with(' ')) text.remove_prefix(1);
    while (text.ends_with(' ')) text.remove_suffix(1);
    return text;
}

/// Returns the GPUs that `entry` may mean: those with its index, or whose UUID begins with it. nullopt: it is neither
/// an index nor a UUID of a GPU.
std::optional<std::vector<int>> gpus_of(std::string_view entry, const std::vector<Gpu>& gpus) {
    const auto index = ddprun::parse_number<int>(entry);
    if (!index && !entry.starts_with("GPU-") && entry != kNoneOfSlurm) return std::nullopt;
    std::vector<int> found;
    for (const Gpu& gpu : gpus)
        if (index ? gpu.index == *index : gpu.uuid.starts_with(entry)) found.push_back(gpu.index);
    return found;
}

/// Adds the GPUs of one list to `usable`. As in CUDA, the list ends at an entry that no GPU has; that becomes
/// `unknown`, unless it is there for that purpose. Returns the entry that cannot be resolved; nullopt: there is none.
std::optional<std::string> add_gpus(std::string_view list, const std::vector<Gpu>& gpus, std::set<int>& usable,
                                    std::string& unknown) {
    while (!list.empty()) {
        const auto comma = std::min(list.find(','), list.size());
        const std::string_view entry = without_blanks(list.substr(0, comma));
        list.remove_prefix(std::min(comma + 1, list.size()));
        const auto found = gpus_of(entry, gpus);
        if (!found || found->size() > 1) return std::string(entry);
        if (found->empty()) {
            if (entry != kEnd && entry != kNoneOfSlurm) unknown = entry;
            return std::nullopt;
        }
        usable.insert(found->front());
    }
    return std::nullopt;
}

}  // namespace

void keep_usable_gpus(Node& node, const std::vector<VisibleGpus>& lists) {
    if (node.gpus.empty()) return;  // gpu_note has the reason
    std::set<int> usable;
    for (const VisibleGpus& visible : lists) {
        if (!visible.list) return;
        if (const auto unresolved = add_gpus(*visible.list, node.gpus, usable, node.unknown_gpu)) {
            node.gpu_note =
                fmt::format("'{}' in CUDA_VISIBLE_DEVICES is not one whole GPU: all were checked", *unresolved);
            return;
        }
    }
    std::erase_if(node.gpus, [&](const Gpu& gpu) { return !usable.contains(gpu.index); });
    if (node.gpus.empty()) node.gpu_note = "CUDA_VISIBLE_DEVICES hides all";
}

}  // namespace ddp::check
