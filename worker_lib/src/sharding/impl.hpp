#pragma once
// ShardedParameters::Impl: checks the order of calls, and ends the groups on all ranks when one of them fails.

#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ddp/sharding.hpp"
#include "worker_lib/src/sharding/shard_layout.hpp"
#include "worker_lib/src/sharding/unit_gathers.hpp"
#include "worker_lib/src/sharding/unit_reductions.hpp"
#include "worker_lib/src/util/forks.hpp"

namespace ddp {

class ShardedParameters::Impl {
public:
    Impl(ProcessGroup& group, std::vector<std::vector<ParamSpec>> units, ShardOptions options);
    ~Impl();
    /// Returns whether this process is a child of fork() of the one that made the object.
    [[nodiscard]] bool is_elsewhere() const { return home_.is_elsewhere(); }

    void fill(const std::function<void(std::size_t, std::size_t, Buffer)>& values);
    void changed();
    void open(std::size_t unit);
    void open_with_grad(std::size_t unit);
    /// Ends a scope. `by_exception`: fails all ranks instead.
    void close(std::size_t unit, bool with_grad, bool by_exception) noexcept;
    [[nodiscard]] Buffer param(std::size_t unit, std::size_t i) const;
    [[nodiscard]] Buffer grad(std::size_t unit, std::size_t i) const;
    void begin_backward(Reduce reduce);
    void finish_backward();
    [[nodiscard]] double clip(double max_norm);
    [[nodiscard]] std::span<const Shard> shards() const { return shards_; }
    [[nodiscard]] std::size_t size() const { return size_; }
    [[nodiscard]] const ShardPlan& plan() const { return plan_; }
    void whole(std::size_t param, Buffer out, int root);
    [[nodiscard]] std::vector<NamedShard> state(std::string_view suffix, const Buffer& parallel) const;

private:
    void make_groups(ProcessGroup& group);
    /// Decides whether units are mapped, and lays them out: parts are whole pages then.
    void choose_layout(detail::GatherOptions& gathers);
    void make_shards();
    void check_call(std::string_view call) const;
    void check_unit(std::size_t unit, std::string_view call) const;
    void check_all_had_gradients() const;
    void gather_whole(std::size_t unit, const detail::ShardLayout::Slot& slot, Buffer out, int root);
    [[nodiscard]] Buffer view(const Buffer& whole, std::size_t unit, std::size_t i) const;
    /// Returns "unit 3 ('fc1.weight')", with the name of its first parameter.
    [[nodiscard]] std::string name_of(std::size_t unit) const;
    /// Shows in the flight record which scope this rank is in: its latest operation may be a gather ahead.
    void show_scope(std::string_view kind, std::size_t unit) const;
    /// Ends the groups with the exception that is being handled.
    void fail() noexcept;
    /// Runs an action in which the peers take part. If it throws, all ranks fail.
    template <typename Action>
    auto or_fail(Action action) {
        try {
            return action();
        } catch (...) {
            fail();
            throw;
        }
    }

    const std::vector<std::vector<ParamSpec>> units_;
    const ShardOptions options_;
    const int rank_;                           ///< in the group that was passed
    const int ranks_;                          ///< of that group
    std::unique_ptr<ProcessGroup> gathering_;  ///< Sharding::None: this rank alone; reducing_ too
    std::unique_ptr<ProcessGroup> reducing_;
    std::unique_ptr<ProcessGroup> replicas_;  ///< null: none
    std::vector<std::string> labels_;         ///< of the operations, by unit
    detail::ShardLayout layout_;
    ShardPlan plan_;
    std::optional<detail::UnitGathers> gathers_;
    std::optional<detail::UnitReductions> reductions_;
    std::vector<Buffer> params_;  ///< by unit, whole; valid while a scope is open
    std::vector<Buffer> grads_;
    std::vector<Shard> shards_;
    std::size_t size_ = 0;
    bool in_backward_ = false;
    Reduce reduce_ = Reduce::All;
    std::uint64_t step_ = 1;      ///< of the groups' operations
    std::exception_ptr failure_;  ///< every later call throws it
    const detail::ProcessMark home_;
};

}  // namespace ddp
