#include "agent/workers/environment.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/scheduler_step.hpp"
#include "common/text/words.hpp"

namespace ddprun::agent {
namespace {

std::string expand_local_rank(std::string_view text, const std::string& value) {
    constexpr std::string_view kBraced = "${local_rank}";
    constexpr std::string_view kBare = "$local_rank";
    std::string result;
    for (std::size_t at = 0; at < text.size();) {
        const std::string_view rest = text.substr(at);
        if (rest.starts_with(kBraced)) {
            result += value;
            at += kBraced.size();
        } else if (rest.starts_with(kBare) && !continues_name(rest, kBare.size())) {
            result += value;
            at += kBare.size();
        } else {
            result += text[at++];
        }
    }
    return result;
}

}  // namespace

Rank rank_of(const protocol::Assignment& assignment, LocalRank local_rank) {
    return Rank{assignment.rank_base + number(local_rank)};
}

Endpoint master_of(const protocol::Assignment& assignment, const std::optional<Endpoint>& named) {
    return named ? *named : Endpoint{assignment.master_addr, static_cast<std::uint16_t>(assignment.master_port)};
}

Environment worker_environment(Environment base, const protocol::Assignment& assignment, const WorkerSlot& slot) {
    Environment& env = base;
    const std::string rank = std::to_string(number(rank_of(assignment, slot.local_rank)));
    const std::string world_size = std::to_string(assignment.world_size);

    env["RANK"] = rank;
    env["LOCAL_RANK"] = std::to_string(number(slot.local_rank));
    std::string device = env.at("LOCAL_RANK");
    for (const std::string& name : slot.device_variables) {
        // Without a list HIP_VISIBLE_DEVICES gets the device of CUDA_VISIBLE_DEVICES, because ROCm reads both.
        if (const auto visible = env.find(name); visible != env.end())
            device = visible_device(visible->second, slot.local_rank).value_or("");  // a short list was refused before
        env["LOCAL_RANK"] = "0";
        env[name] = device;
    }
    env["WORLD_SIZE"] = world_size;
    env["LOCAL_WORLD_SIZE"] = std::to_string(slot.slots);
    env["GROUP_RANK"] = std::to_string(number(assignment.node_rank));
    env["GROUP_WORLD_SIZE"] = std::to_string(assignment.node_count);
    env["ROLE_NAME"] = slot.role;
    env["ROLE_RANK"] = std::to_string(slot.role_rank);
    env["ROLE_WORLD_SIZE"] = std::to_string(slot.role_world_size);
    const Endpoint master = master_of(assignment, slot.master);
    env["MASTER_ADDR"] = master.host;
    env["MASTER_PORT"] = std::to_string(master.port);

    env["TORCHELASTIC_RESTART_COUNT"] = std::to_string(assignment.restart_count);
    env["TORCHELASTIC_MAX_RESTARTS"] = std::to_string(slot.max_restarts);
    env["TORCHELASTIC_RUN_ID"] = slot.run_id;
    env["TORCHELASTIC_USE_AGENT_STORE"] = "True";  // as Python prints it: PyTorch compares with this very text
    env["TORCHELASTIC_ERROR_FILE"] = slot.error_file;

    env["DDPRUN_GENERATION"] = std::to_string(number(assignment.generation));
    env["DDPRUN_NODE_NAME"] = slot.node_name;
    env["DDPRUN_RUN_ID"] = slot.run_id;

    env.erase(kSchedulerStepVariable);  // of an outer job
    if (std::string step = scheduler_step(base); !step.empty()) env[kSchedulerStepVariable] = std::move(step);

    env.erase("DDPRUN_LOCAL_ADDR");  // of an outer job
    if (!slot.local_address.empty()) env["DDPRUN_LOCAL_ADDR"] = slot.local_address;

    // Defaults only: values that the user has set stay. By itself NCCL may choose an interface that leads nowhere, and
    // gloo that of the host's name, which often is a loopback address.
    if (!slot.interface.empty()) {
        const auto chosen = env.find("DDPRUN_SOCKET_IFNAME");
        if (!slot.nccl_has_interface)
            env.try_emplace("NCCL_SOCKET_IFNAME", chosen != env.end() ? chosen->second : "=" + slot.interface);
        if (chosen == env.end()) env.try_emplace("GLOO_SOCKET_IFNAME", slot.interface);
    }
    env.try_emplace("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
    env.try_emplace("OMP_NUM_THREADS", std::to_string(slot.threads));
    return base;
}

std::vector<std::string> worker_command(std::vector<std::string> command, LocalRank local_rank) {
    const std::string value = std::to_string(number(local_rank));
    for (std::size_t i = 1; i < command.size(); ++i) command[i] = expand_local_rank(command[i], value);
    return command;
}

std::vector<std::string> to_strings(const Environment& environment) {
    std::vector<std::string> strings;
    strings.reserve(environment.size());
    for (const auto& [name, value] : environment) strings.push_back(name + "=" + value);
    return strings;
}

}  // namespace ddprun::agent
