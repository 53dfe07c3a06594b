#include "worker_lib/src/context/backend_choice.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
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

void note_shared_gpus(std::vector<BackendReport>& reports) {
    std::map<std::string_view, int> ranks_of;
    for (const BackendReport& report : reports) ++ranks_of[report.gpu];
    for (BackendReport& report : reports) {
        if (!report.gpu.empty() && report.obstacle.empty() && ranks_of[report.gpu] > 1)
            report.obstacle = fmt::format("several ranks share {}, and NCCL allows one rank for each GPU", report.gpu);
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
    std::string gpu = report.gpu.empty() ? "-" : report.gpu;
    std::ranges::replace(gpu, ' ', '_');  // in a value of NCCL_HOSTID
    return fmt::format("{} {} {} {} {}", static_cast<int>(report.asked), report.gpu_expected ? 1 : 0, report.host, gpu,
                       report.obstacle);
}

BackendReport decode_report(std::string_view text) {
    // "0 1 host gpu obstacle"
    const auto end_of_host = text.find(' ', 4);
    const auto end_of_gpu = end_of_host == std::string_view::npos ? end_of_host : text.find(' ', end_of_host + 1);
    const bool well_formed = text.size() > 4 && text[0] >= '0' && text[0] <= '2' && text[1] == ' ' && text[3] == ' ' &&
                             end_of_gpu != std::string_view::npos;
    if (!well_formed) {
        throw Error(ErrorCode::System,
                    fmt::format("a rank published '{}', which this version of ddp cannot read. Run the same version on "
                                "all ranks",
                                text));
    }
    const auto gpu = text.substr(end_of_host + 1, end_of_gpu - end_of_host - 1);
    return {.asked = static_cast<Backend>(text[0] - '0'),
            .host = std::string(text.substr(4, end_of_host - 4)),
            .obstacle = std::string(text.substr(end_of_gpu + 1)),
            .gpu_expected = text[2] == '1',
            .gpu = gpu == "-" ? std::string() : std::string(gpu)};
}

BackendReport report_here(Backend asked, int& device, int local_rank) {
    BackendReport report{.asked = asked, .host = hostname(), .obstacle = {}, .gpu_expected = false};
    if (asked == Backend::Native) return report;
    const NcclAvailability nccl = probe_nccl(device, local_rank);
    if (!nccl.usable) report.obstacle = nccl.reason;
    device = nccl.device;
    report.gpu = nccl.gpu;
    report.gpu_expected = gpu_expected_here();
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
        throw Error(
            ErrorCode::Unavailable,
            fmt::format("Backend::Nccl is asked for, but NCCL is not usable by {}. Start one rank for each GPU, "
                        "where its driver and NCCL are installed; or pass Backend::Auto or Backend::Native",
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
