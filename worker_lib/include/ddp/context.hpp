#pragma once
// Context: this process's place in the job. Everything starts with ddp::init_from_env().

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ddp/process_group.hpp"
#include "ddp/store.hpp"
#include "ddp/types.hpp"

namespace ddp {

struct InitOptions {
    /// The same on every rank. Auto: Nccl if every rank has a usable device, else Native for all. Nccl: nothing else;
    /// if a rank cannot, every rank throws Error{Unavailable} with the same text.
    Backend backend = Backend::Auto;
    /// Of every collective. 0: 10 min NCCL, 30 min Native (as in PyTorch); milliseconds::max(): without end.
    std::chrono::milliseconds timeout{};
    std::chrono::milliseconds init_timeout{300'000};  ///< for all ranks to appear; positive
    int device = -1;                                  ///< CUDA device; -1: LOCAL_RANK
};

/// What the launcher told this process, by environment variables (docs/environment.md).
struct Environment {
    int rank = 0;
    int world_size = 1;
    int local_rank = 0;
    int local_world_size = 1;
    int node_rank = 0;
    int restart_count = 0;
    std::int64_t generation = 0;
    std::string run_id;
    std::string master_addr;
    int master_port = 0;
};

class Context {
public:
    /// For programs and tests that bring their own store and place.
    Context(Environment environment, std::shared_ptr<Store> store, const InitOptions& options = {});
    Context(Context&&) noexcept;
    Context& operator=(Context&&) noexcept;
    ~Context();

    [[nodiscard]] int rank() const { return environment_.rank; }
    [[nodiscard]] int world_size() const { return environment_.world_size; }
    [[nodiscard]] int local_rank() const { return environment_.local_rank; }
    [[nodiscard]] int local_world_size() const { return environment_.local_world_size; }
    [[nodiscard]] int node_rank() const { return environment_.node_rank; }
    /// Worker groups started before this one; 0 in an undisturbed job.
    [[nodiscard]] int restart_count() const { return environment_.restart_count; }
    [[nodiscard]] std::int64_t generation() const { return environment_.generation; }

    [[nodiscard]] Store& store() { return *store_; }
    [[nodiscard]] ProcessGroup& world() { return *world_; }
    /// The ranks of this machine, in their order; and the first rank of every machine, nullptr on the others. Machines
    /// are told apart by the kernel's boot id, and emulated nodes by their number, never by LOCAL_WORLD_SIZE. The first
    /// call of each makes the group: all ranks of the world make it, as a ProcessGroup::split, and it throws as that
    /// does.
    [[nodiscard]] ProcessGroup& local();
    [[nodiscard]] ProcessGroup* leaders();

private:
    [[nodiscard]] int first_rank_here(std::string_view call);

    Environment environment_;
    std::shared_ptr<Store> store_;
    std::unique_ptr<ProcessGroup> world_;
    std::vector<std::string> machines_;  ///< by rank; empty until somebody wants to know
    std::unique_ptr<ProcessGroup> local_;
    std::optional<std::unique_ptr<ProcessGroup>> leaders_;
};

/// Reads RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR, MASTER_PORT,
/// TORCHELASTIC_RESTART_COUNT, TORCHELASTIC_RUN_ID, DDPRUN_GENERATION; connects to the store and to all peers. Works
/// under ddprun, and under torchrun when its agent hosts the store (TORCHELASTIC_USE_AGENT_STORE=True). Without any of
/// them: a world of one rank, so that a trainer also runs when started by hand; refused where mpirun or srun has
/// started several that would each run alone. Throws Error{Environment} naming the variable, Error{Timeout} naming the
/// ranks that did not come, Error{InvalidArgument} for options that cannot be meant, Error{Unavailable} or
/// Error{Mismatch} for the backend.
[[nodiscard]] Context init_from_env(const InitOptions& options = {});

}  // namespace ddp
