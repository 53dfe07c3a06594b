#include "worker_lib/src/bootstrap/environment.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <limits>
#include <utility>

#include "common/system/files.hpp"
#include "common/system/process_state.hpp"
#include "common/text/number.hpp"
#include "common/worker_secret.hpp"
#include "ddp/error.hpp"

namespace ddp::detail {

namespace {

constexpr const char* kAdvice =
    "Start the program with ddprun or torchrun; or unset RANK and WORLD_SIZE to run it alone.";
constexpr const char* kGeneration = "DDPRUN_GENERATION";  // which every worker of ddprun has
constexpr std::size_t kSessionBytes = 32;                 // ddprun::random_id()

[[noreturn]] void refuse_environment(const std::string& text) { throw Error(ErrorCode::Environment, text); }

/// Returns a variable that must be a whole number from `min` to `max`, with nothing before or after it.
std::optional<std::int64_t> number(const Variables& variables, const char* name, std::int64_t min, std::int64_t max) {
    const auto text = variables(name);
    if (!text) return std::nullopt;
    const auto value = ddprun::parse_number<std::int64_t>(*text);
    if (!value || *value < min || *value > max) {
        const std::string range = max == std::numeric_limits<int>::max() ? fmt::format("of at least {}", min)
                                                                         : fmt::format("from {} to {}", min, max);
        refuse_environment(fmt::format("{} is '{}', expected a whole number {}", name, *text, range));
    }
    return value;
}

int number_or(const Variables& variables, const char* name, int min, int otherwise) {
    return static_cast<int>(number(variables, name, min, std::numeric_limits<int>::max()).value_or(otherwise));
}

/// The variables in which launchers that set no RANK store how many processes they have started.
constexpr std::array kForeignSizes{std::pair{"OMPI_COMM_WORLD_SIZE", "mpirun"}, std::pair{"PMI_SIZE", "mpiexec"},
                                   std::pair{"SLURM_STEP_NUM_TASKS", "srun"}};

/// Refuses to run alone under such a launcher: copies of a program that each train alone look like one job until their
/// results are compared.
void check_alone(const Variables& variables) {
    for (const auto& [name, launcher] : kForeignSizes) {
        const std::string size = variables(name).value_or("1");
        if (size == "1") continue;
        refuse_environment(
            fmt::format("{} is {} but RANK and WORLD_SIZE are not set: each of {}'s processes would run alone. Start "
                        "the program with ddprun or torchrun; or set RANK=0 and WORLD_SIZE=1 if they are to run alone.",
                        name, size, launcher));
    }
}

}  // namespace

Variables process_variables() {
    return [](const char* name) -> std::optional<std::string> {
        const char* value = std::getenv(name);
        if (value == nullptr) return std::nullopt;
        return value;
    };
}

std::string hostname() {
    std::array<char, 256> name{};
    if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "unknown-host";
    return name.data();
}

Environment read_environment(const Variables& variables) {
    const bool rank_set = variables("RANK").has_value();
    const bool size_set = variables("WORLD_SIZE").has_value();
    if (rank_set != size_set) {
        refuse_environment(fmt::format("{} is set but {} is not. {}", rank_set ? "RANK" : "WORLD_SIZE",
                                       rank_set ? "WORLD_SIZE" : "RANK", kAdvice));
    }
    Environment environment;
    if (!rank_set) {
        check_alone(variables);
        return environment;
    }

    environment.rank = number_or(variables, "RANK", 0, 0);
    environment.world_size = number_or(variables, "WORLD_SIZE", 1, 1);
    environment.local_rank = number_or(variables, "LOCAL_RANK", 0, 0);
    environment.local_world_size = number_or(variables, "LOCAL_WORLD_SIZE", 1, environment.local_rank + 1);
    environment.node_rank = number_or(variables, "GROUP_RANK", 0, 0);
    environment.restart_count = number_or(variables, "TORCHELASTIC_RESTART_COUNT", 0, 0);
    // Only ddprun counts generations; under torchrun the restarts keep the keys of one store apart.
    environment.generation =
        number(variables, kGeneration, 0, std::numeric_limits<std::int64_t>::max()).value_or(environment.restart_count);
    if (variables(kGeneration)) environment.session = variables("DDPRUN_SESSION").value_or("");
    environment.run_id = variables("TORCHELASTIC_RUN_ID").value_or("");
    environment.master_addr = variables("MASTER_ADDR").value_or("");
    environment.master_port = static_cast<int>(number(variables, "MASTER_PORT", 1, 65535).value_or(0));
    check(environment);
    if (environment.world_size > 1 && variables("TORCHELASTIC_USE_AGENT_STORE").value_or("True") == "False") {
        refuse_environment(
            "TORCHELASTIC_USE_AGENT_STORE=False: this launcher leaves it to rank 0 to host the store, which this "
            "library does not do. Use ddprun, or torchrun with --master-addr and --master-port (its static "
            "rendezvous)");
    }
    if (environment.world_size > 1 && (environment.master_addr.empty() || environment.master_port == 0)) {
        refuse_environment(fmt::format("WORLD_SIZE is {} but {} is not set: the ranks cannot find each other. {}",
                                       environment.world_size,
                                       environment.master_addr.empty() ? "MASTER_ADDR" : "MASTER_PORT", kAdvice));
    }
    return environment;
}

void check(const Environment& environment) {
    const auto below = [](const char* name, int value, const char* limit_name, int limit) {
        if (value >= 0 && value < limit) return;
        refuse_environment(
            fmt::format("{} is {} but {} is {}: expected 0 to {}", name, value, limit_name, limit, limit - 1));
    };
    if (environment.world_size < 1)
        refuse_environment(fmt::format("WORLD_SIZE is {}, expected at least 1", environment.world_size));
    below("RANK", environment.rank, "WORLD_SIZE", environment.world_size);
    below("LOCAL_RANK", environment.local_rank, "LOCAL_WORLD_SIZE", environment.local_world_size);
    if (environment.local_world_size > environment.world_size) {
        refuse_environment(fmt::format(
            "LOCAL_WORLD_SIZE is {} but WORLD_SIZE is only {}: a node cannot have more ranks than the job. {}",
            environment.local_world_size, environment.world_size, kAdvice));
    }
    // It becomes a part of file names, by which a Checkpointer knows its files from those of the user.
    const std::string& session = environment.session;
    const bool is_hexadecimal = session.find_first_not_of("0123456789abcdef") == std::string::npos;
    if (!session.empty() && (session.size() != kSessionBytes || !is_hexadecimal)) {
        refuse_environment(fmt::format("DDPRUN_SESSION is '{}', expected {} digits of 0-9 and a-f. {}", session,
                                       kSessionBytes, kAdvice));
    }
}

bool is_below_ddprun() {
    for (pid_t process = ::getppid(); process > 0; process = ddprun::parent_of(process)) {
        const std::string name = ddprun::content_of(fmt::format("/proc/{}/comm", process));
        if (name == "ddprun\n" || name == "ddprun-guard\n") return true;
    }
    return false;
}

void refuse_cleared(const Variables& variables, bool below_ddprun) {
    if (!below_ddprun || variables("RANK") || variables("WORLD_SIZE") || variables(kGeneration)) return;
    refuse_environment(
        fmt::format("ddprun has started this process, but RANK, WORLD_SIZE and {} are not set: a wrapper (env -i, "
                    "sudo, su -) has removed them, and each worker would run alone. Start the program without it, or "
                    "let it pass the environment on; or set RANK=0 and WORLD_SIZE=1 if it is to run alone.",
                    kGeneration));
}

bool has_lost_secret(const Variables& variables, bool below_ddprun) {
    const std::string size = variables("WORLD_SIZE").value_or("1");
    return size != "1" && !variables(ddprun::worker_secret::kDescriptorVariable) &&
           (variables(kGeneration) || below_ddprun);
}

}  // namespace ddp::detail
