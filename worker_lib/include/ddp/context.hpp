#pragma once
// Context: this process's rank in the job, its store and its groups. A program gets it from ddp::init_from_env().

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ddp/export.hpp"
#include "ddp/process_group.hpp"
#include "ddp/store.hpp"
#include "ddp/types.hpp"

namespace DDP_EXPORT ddp {

/// Options of init_from_env().
struct InitOptions {
    /// The same on every rank. Auto: Nccl if every rank has a usable device, else Native on all. Nccl: if one rank
    /// cannot use it, every rank throws Error{Unavailable} with the same text.
    Backend backend = Backend::Auto;
    /// Default timeout of every operation. Without one: 10 min on NCCL, 30 min on Native (as in PyTorch).
    std::optional<std::chrono::milliseconds> timeout{};
    /// For all ranks to arrive; then init fails and names the absent ranks. Must be positive.
    std::chrono::milliseconds init_timeout{300'000};
    int device = -1;  ///< CUDA device; -1: that of LOCAL_RANK, or the only one that this process sees
};

/// The job as the launcher describes it in environment variables (docs/environment.md).
struct Environment {
    int rank = 0;                 ///< RANK
    int world_size = 1;           ///< WORLD_SIZE
    int local_rank = 0;           ///< LOCAL_RANK
    int local_world_size = 1;     ///< LOCAL_WORLD_SIZE
    int node_rank = 0;            ///< GROUP_RANK
    int restart_count = 0;        ///< TORCHELASTIC_RESTART_COUNT
    std::int64_t generation = 0;  ///< DDPRUN_GENERATION
    std::string run_id;           ///< TORCHELASTIC_RUN_ID
    std::string master_addr;      ///< MASTER_ADDR
    int master_port = 0;          ///< MASTER_PORT
    std::string session;          ///< DDPRUN_SESSION beside DDPRUN_GENERATION; empty under other launchers
    std::string secret;           ///< of this generation's ranks, from ddprun (DDPRUN_SECRET_FD); empty: they have none
};

/// Owns this process's connection to the store, and the world. One thread at a time.
class Context {
public:
    /// Joins the job. Collective. For programs and tests with their own store and ranks; throws as init_from_env().
    Context(Environment environment, std::shared_ptr<Store> store, const InitOptions& options = {});
    /// Leaves the other one without a job: it may only be destroyed or assigned to.
    Context(Context&&) noexcept;
    /// Leaves this one's job as the destructor does.
    Context& operator=(Context&&) noexcept;
    /// Leaves the job: ends the world as ~ProcessGroup does.
    ~Context();

    /// Returns this process's rank in the job.
    [[nodiscard]] int rank() const { return environment_.rank; }
    /// Returns the number of ranks of the job.
    [[nodiscard]] int world_size() const { return environment_.world_size; }
    /// Returns this process's rank on its node.
    [[nodiscard]] int local_rank() const { return environment_.local_rank; }
    /// Returns the number of ranks on this node.
    [[nodiscard]] int local_world_size() const { return environment_.local_world_size; }
    /// Returns the number of this node in the job.
    [[nodiscard]] int node_rank() const { return environment_.node_rank; }
    /// Returns how often the job's workers were restarted; 0 in an undisturbed job.
    [[nodiscard]] int restart_count() const { return environment_.restart_count; }
    /// Returns the number of this set of workers: a larger one is later. Under torchrun it is
    /// restart_count().
    [[nodiscard]] std::int64_t generation() const { return environment_.generation; }
    /// Returns the job's name: --run-id of ddprun, --rdzv-id of torchrun; empty for a process started by hand.
    [[nodiscard]] const std::string& run_id() const { return environment_.run_id; }
    /// Returns all that the launcher has set.
    [[nodiscard]] const Environment& environment() const { return environment_; }
    /// Returns whether this rank has notice of a preemption. Other ranks may get it a moment earlier or later: stop by
    /// agree_to_stop() (preemption.hpp). Costs one load of memory. Any thread.
    [[nodiscard]] bool preempted() const;

    /// Returns the store of this generation's ranks, for keys of the program's own.
    [[nodiscard]] Store& store() { return *store_; }
    /// Returns the group of all ranks, which lives as long as the context.
    [[nodiscard]] ProcessGroup& world() { return *world_; }
    /// Returns true on all ranks if every rank has passed true, else false on all. Collective over the world. Throws as
    /// a collective does.
    [[nodiscard]] bool agree(bool yes);
    /// Makes the group of this machine's ranks, in their order. Collective over the world. Machines are distinguished
    /// by the kernel's boot id, emulated nodes by their number, never by LOCAL_WORLD_SIZE. Throws as
    /// ProcessGroup::split.
    [[nodiscard]] std::unique_ptr<ProcessGroup> split_by_machine();
    /// Makes the group of all machines' first ranks; returns nullptr on other ranks. Collective over the world.
    [[nodiscard]] std::unique_ptr<ProcessGroup> split_leaders();

private:
    [[nodiscard]] int first_rank_here(std::string_view call);

    Environment environment_;
    std::shared_ptr<Store> store_;
    std::unique_ptr<ProcessGroup> world_;
    std::vector<std::string> machines_;  ///< by rank; empty until a split by machine needs it
};

/// Ends this process at once, without destructors, as the one that the launcher reports: prints `text` to stderr and
/// aborts the world with it, which native peers get as Error{Aborted}, or as PeerLost on other hosts if the connection
/// ends first. An exit code of 0 becomes 1. Only this rank needs to call it. If all ranks leave
/// together (`if (!context.agree(problem.empty())) ddp::fail(context, problem);`), those without a text pass an empty
/// one: they print nothing, and end when the launcher stops them or after 2 s. Any thread.
[[noreturn]] void fail(Context& context, std::string_view text, int exit_code = 1);

/// Connects this process to the store and to all peers, as the launcher's environment variables say: RANK, WORLD_SIZE,
/// LOCAL_RANK, LOCAL_WORLD_SIZE, GROUP_RANK, MASTER_ADDR, MASTER_PORT, TORCHELASTIC_RESTART_COUNT, TORCHELASTIC_RUN_ID,
/// DDPRUN_GENERATION. Works under ddprun, and under torchrun when its agent hosts the store
/// (TORCHELASTIC_USE_AGENT_STORE=True). Without any of them it returns a world of one rank, so that a trainer also runs
/// when started by hand, but refuses that if mpirun or srun has started several processes that would each run alone.
/// Throws Error{Environment} naming the variable, Error{Timeout} naming the ranks that did not arrive,
/// Error{InvalidArgument} for invalid options, Error{Unavailable} or Error{Mismatch} for the backend.
[[nodiscard]] Context init_from_env(const InitOptions& options = {});

}  // namespace ddp
