#include "worker_lib/src/context/backend_choice.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <utility>

#include "common/text/list.hpp"
#include "worker_lib/src/bootstrap/environment.hpp"
#include "worker_lib/src/nccl/nccl.hpp"

namespace ddp::detail {

namespace {

/// Returns whether a device node of NVIDIA's driver exists, or CUDA_VISIBLE_DEVICES names a device.
bool gpu_expected_here() {
    if (::access("/dev/nvidia0", F_OK) == 0) return true;
    const auto visible = process_variables()("CUDA_VISIBLE_DEVICES");
    return visible && !visible->empty() && *visible != "-1";
}

void require_one_request(const std::vector<BackendReport>& reports) {
    const Backend first = reports.front().asked;
    for (std::size_t rank = 1; rank < reports.size(); ++rank) {
        if (reports[rank].asked == first) continue;
        throw Error(ErrorCode::Mismatch,
                    fmt::format("the ranks want different backends: rank 0 asks for {}, rank {} for {}. Pass the same "
                                "InitOptions::backend on every rank",
                                to_string(first), rank, to_string(reports[rank].asked)));
    }
}

/// Returns why NCCL refuses ranks that use one GPU. Slices of MIG differ in their UUIDs.
std::string sharing_obstacle(const std::vector<const BackendReport*>& sharing) {
    const BackendReport& first = *sharing.front();
    const bool are_slices =
        std::ranges::any_of(sharing, [&](const BackendReport* report) { return report->uuid != first.uuid; });
    if (!are_slices) {
        return fmt::format(
            "several ranks share {}, and NCCL allows one rank for each GPU (CUDA_VISIBLE_DEVICES and "
            "InitOptions::device choose it)",
            first.uuid.empty() ? first.gpu : first.uuid);
    }
    return fmt::format(
        "several ranks have MIG slices of the GPU at {}, and NCCL takes these for one GPU, of which it "
        "allows one rank; NCCL 2.30.3 and newer allow several with NCCL_MULTI_RANK_GPU_ENABLE=1",
        first.gpu.substr(0, first.gpu.find('/')));
}

void note_shared_gpus(std::vector<BackendReport>& reports) {
    std::map<std::string_view, std::vector<const BackendReport*>> ranks_of;
    for (const BackendReport& report : reports) ranks_of[report.gpu].push_back(&report);
    for (BackendReport& report : reports) {
        const auto& sharing = ranks_of[report.gpu];
        if (!report.gpu.empty() && report.obstacle.empty() && sharing.size() > 1)
            report.obstacle = sharing_obstacle(sharing);
    }
}

/// Lists why ranks cannot use NCCL: "ranks 2 and 3 on host b: no CUDA device; rank 4 on host c: libnccl.so.2 not found"
std::string list(const std::vector<BackendReport>& reports, const std::vector<int>& ranks) {
    std::vector<std::pair<std::string, std::vector<int>>> locations;  // by the lowest rank
    for (const int rank : ranks) {
        const BackendReport& report = reports[static_cast<std::size_t>(rank)];
        std::string place = fmt::format("on host {}: {}", report.host, report.obstacle);
        const auto found = std::ranges::find(locations, place, &decltype(locations)::value_type::first);
        if (found != locations.end()) {
            found->second.push_back(rank);
        } else {
            locations.push_back({std::move(place), {rank}});
        }
    }
    std::string text;
    for (const auto& [place, there] : locations) {
        text += fmt::format("{}{} {}", text.empty() ? "" : "; ", ddprun::name_ranks(there), place);
    }
    return text;
}

}  // namespace

std::string encode(const BackendReport& report) {
    const auto word = [](std::string text) {  // a value of NCCL_HOSTID may have blanks
        std::ranges::replace(text, ' ', '_');
        return text.empty() ? "-" : text;
    };
    return fmt::format("{} {} {} {} {} {}", static_cast<int>(report.asked), report.gpu_expected ? 1 : 0, report.host,
                       word(report.gpu), word(report.uuid), report.obstacle);
}

BackendReport decode_report(std::string_view text) {
    // "0 1 host gpu uuid obstacle"
    std::array<std::string, 5> words;
    std::string_view rest = text;
    bool well_formed = true;
    for (std::string& word : words) {
        const auto end = rest.find(' ');
        well_formed = well_formed && end != std::string_view::npos && end > 0;
        if (!well_formed) break;
        word = rest.substr(0, end);
        rest.remove_prefix(end + 1);
    }
    const auto& [asked, expected, host, gpu, uuid] = words;
    if (!well_formed || asked.size() != 1 || asked[0] < '0' || asked[0] > '2') {
        throw Error(ErrorCode::System,
                    fmt::format("a rank published '{}', which this version of ddp cannot read. Run the same version on "
                                "all ranks",
                                text));
    }
    return {.asked = static_cast<Backend>(asked[0] - '0'),
            .host = host,
            .obstacle = std::string(rest),
            .gpu_expected = expected == "1",
            .gpu = gpu == "-" ? "" : gpu,
            .uuid = uuid == "-" ? "" : uuid};
}

BackendReport report_here(Backend asked, int device, int local_rank) {
    BackendReport report{.asked = asked, .host = hostname(), .obstacle = {}, .gpu_expected = false, .device = device};
    if (asked == Backend::Native) return report;
    const NcclAvailability nccl = probe_nccl(device, local_rank);
    if (!nccl.usable) report.obstacle = nccl.reason;
    report.device = nccl.device;
    report.gpu = nccl.gpu;
    report.uuid = nccl.uuid;
    report.gpu_expected = nccl.has_devices || gpu_expected_here();
    return report;
}

BackendChoice decide_backend(std::vector<BackendReport> reports) {
    require_one_request(reports);
    note_shared_gpus(reports);
    const Backend asked = reports.front().asked;
    std::vector<int> unable;
    for (std::size_t rank = 0; rank < reports.size(); ++rank) {
        if (!reports[rank].obstacle.empty()) unable.push_back(static_cast<int>(rank));
    }
    if (asked == Backend::Native) return {Backend::Native, {}};
    if (unable.empty()) return {Backend::Nccl, {}};
    const std::string who = list(reports, unable);
    if (asked == Backend::Nccl) {
        throw Error(ErrorCode::Unavailable,
                    fmt::format("Backend::Nccl is asked for, but NCCL is not usable by {}. Start one rank for each GPU "
                                "(--nproc-per-node gpu), where its driver and NCCL are installed; or pass "
                                "Backend::Auto or Backend::Native",
                                who),
                    unable);
    }
    const bool surprising = unable.size() < reports.size() || std::ranges::any_of(reports, [](const auto& report) {
                                return report.gpu_expected || !report.gpu.empty();
                            });
    if (!surprising) return {Backend::Native, {}};
    return {Backend::Native,
            fmt::format("NCCL is not usable by {}. So the collectives of all ranks run on the native CPU backend. Pass "
                        "Backend::Nccl to have this refused, or Backend::Native to silence it",
                        who)};
}

}  // namespace ddp::detail
